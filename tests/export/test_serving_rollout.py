"""Labels, a canary, its promotion and the way back, by the kit's rollout.py."""

import shutil
import sys
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow_serving")  # the extra `serving`

from numbered_models import write_versions
from serving_process import BATCHING, KIT, load, load_client, serving

client = load_client()
rollout = load(KIT / "rollout.py")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Versions 1 and 2, and 4, which does not load."""
    folder = tmp_path_factory.mktemp("models") / "translator"
    write_versions(folder, (1, 2))
    (folder / "4").mkdir()
    return folder


@pytest.fixture
def fleet(models, tmp_path):
    """A file, a server that was started with it, and what runs rollout.py on both."""
    file = tmp_path / "models.config"
    shutil.copy(KIT / "models.config", file)
    with serving(models.parent, models=file, batching=BATCHING) as server:

        def step(*arguments, seconds=60):
            options = ["--address", server.grpc, "--seconds", str(seconds)]
            return rollout.main([str(file), *arguments, *options])

        yield SimpleNamespace(file=file, server=server, step=step)


def version_of(server, label):
    """The number of the version that answers to a label."""
    with client.GrpcClient(server.grpc, server.name, version_label=label) as caller:
        return int(caller.translate(["a"])[0].split()[0])


def state_of(file):
    return rollout.State(rollout.read(file)[1], "translator")


def test_a_canary_is_promoted_and_taken_back_while_calls_run(fleet, capsys):
    answers, faults, stop, server = set(), [], threading.Event(), fleet.server

    def call(make, address, label):
        with make(address, server.name, version_label=label) as caller:
            while not stop.is_set():
                try:
                    answers.update(caller.translate(["a"]))
                except client.ServingError as error:
                    faults.append(str(error))
                stop.wait(0.01)

    callers = [(client.GrpcClient, server.grpc), (client.RestClient, server.rest)]
    labels = ("stable", "canary")
    threads = [
        threading.Thread(target=call, args=(*caller, label))
        for caller, label in zip(callers, labels, strict=True)
    ]
    for thread in threads:
        thread.start()
    seen = []
    for step in (["canary", "2"], ["promote"], ["rollback"], ["canary", "2"], ["rollback"]):
        assert fleet.step(*step) == 0, capsys.readouterr().err
        seen.append(tuple(version_of(server, label) for label in labels))
    stop.set()
    for thread in threads:
        thread.join()
    assert seen == [(1, 2), (2, 2), (1, 1), (1, 2), (1, 1)]
    assert faults == [] and answers == {"1 a", "2 a"}
    # A server that starts again has what this one has, and the file still explains itself.
    assert str(state_of(fleet.file)) == "versions [1], stable 1, canary 1"
    assert fleet.file.read_text("utf-8").startswith("# --model_config_file of tensorflow")
    assert fleet.step("canary", "2") == fleet.step("promote") == fleet.step("finish") == 0
    assert str(state_of(fleet.file)) == "versions [2], stable 2, canary 2"
    capsys.readouterr()
    assert fleet.step("status") == 0
    assert f"{server.grpc}: version 2: AVAILABLE" in capsys.readouterr().out


@pytest.mark.slow
def test_steps_that_cannot_be_taken_change_nothing(fleet, capsys):
    before = fleet.file.read_text("utf-8")
    for step, message in (
        (["canary", "3"], "version 3 is not loaded: UNKNOWN after"),
        (["canary", "4"], "version 4 is not loaded"),
        (["canary", "1"], "must not be the stable version. Received: 1"),
        (["canary", "0"], "must be at least 1. Received: 0"),
        (["promote"], "there must be a canary to promote. Received: versions"),
        (["rollback"], "there must be a version to go back to. Received: versions"),
        (["status", "--model", "other"], "must be one of ['translator']. Received: other"),
    ):
        assert fleet.step(*step, seconds=3) == 1
        assert message in capsys.readouterr().err
        assert fleet.file.read_text("utf-8") == before
    assert version_of(fleet.server, "canary") == 1
    caller = client.GrpcClient(fleet.server.grpc, "translator", version_label="beta")
    with caller, pytest.raises(client.ServingError, match="Unrecognized servable version label"):
        caller.translate(["a"])


def test_a_canary_that_fails_leaves_every_server_as_it_was(fleet, capsys):
    def states():
        caller = rollout.Server(fleet.server.grpc)
        found = {number: state for number, (state, _) in caller.states("translator").items()}
        caller.close()
        return found

    # A server that is not there, before and behind one that is.
    for others in (["127.0.0.1:9", fleet.server.grpc], [fleet.server.grpc, "127.0.0.1:9"]):
        addresses = [part for each in others for part in ("--address", each)]
        assert rollout.main([str(fleet.file), "canary", "2", *addresses, "--seconds", "5"]) == 1
        assert "rollout: 127.0.0.1:9: UNAVAILABLE" in capsys.readouterr().err
        assert states().get(2, "END") != "AVAILABLE"
    # After a promotion the version before stays loaded, and the way back to it open.
    assert fleet.step("canary", "2") == fleet.step("promote") == 0
    assert fleet.step("canary", "4", seconds=3) == 1
    assert states()[1] == states()[2] == "AVAILABLE"
    assert fleet.step("rollback") == 0, capsys.readouterr().err
    assert version_of(fleet.server, "stable") == 1


def test_a_package_that_is_missing_is_named_as_pip_has_it(monkeypatch, capsys):
    for name in ("tensorflow_serving", "tensorflow_serving.apis", "tensorflow_serving.config"):
        monkeypatch.setitem(sys.modules, name, None)
    assert rollout.main([str(KIT / "models.config"), "status"]) == 1
    assert client.main(["a"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("pip install tensorflow-serving-api" in line for line in said)


def test_what_a_rollout_is_not_given_rightly(tmp_path, capsys):
    file = tmp_path / "models.config"
    file.write_text("model_configs {}")
    assert rollout.main([str(file), "status"]) == 1
    assert "must be a ModelServerConfig. Received:" in capsys.readouterr().err
    latest = 'model_config_list { config { name: "translator" base_path: "/m" } }'
    file.write_text(latest)
    assert rollout.main([str(file), "status"]) == 1
    assert "must be of `specific` versions. Received: stable None" in capsys.readouterr().err
    shutil.copy(KIT / "models.config", file)
    assert rollout.main([str(file), "canary", "2", "--address", "127.0.0.1:9"]) == 1
    assert "127.0.0.1:9: UNAVAILABLE" in capsys.readouterr().err
    for wrong in (["canary"], ["promote", "2"], ["status", "--key", "k"]):
        with pytest.raises(SystemExit, match="2"):
            rollout.main([str(file), *wrong])


def test_a_label_goes_without_a_number():
    with pytest.raises(ValueError, match="`version` excludes `version_label`. Received: 1, 'a'"):
        client.RestClient("http://localhost", "m", version=1, version_label="a")
