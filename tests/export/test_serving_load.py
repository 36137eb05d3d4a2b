"""The load of serving_load.py, small enough for every change."""

import shutil

import pytest

pytest.importorskip("tensorflow_serving")  # the extra `serving`

from serving_process import SERVER, load

serving_load = load(SERVER.with_name("serving_load.py"))


@pytest.mark.release
def test_many_clients_get_what_they_get_alone(saved_model, texts, odd_texts, tmp_path):
    shutil.copytree(saved_model.path, tmp_path / "models" / "1")
    models, everything = tmp_path / "models", [*texts, *odd_texts]
    found = serving_load.run(models, everything, requests=800, most_rows=4)
    assert found["faults"] == found["server_faults"] == []
    assert found["version"] == 2
    assert sum(found["runs_by_calls"].values()) < found["requests"]  # they shared runs
    assert found["malformed"] > 3 and found["too_long"] > 5
    memory = found["memory_mb"]
    if memory["quarter"] is not None:
        # A second version has been loaded; a leak of a row's text or answer would be far more.
        assert memory["end"] - memory["quarter"] < 300, memory
