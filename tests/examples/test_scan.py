"""SCAN's simple split is learnt exactly, by an example that takes minutes."""

import pytest
import scan


def test_lines_are_commands_and_actions(tmp_path):
    (tmp_path / "tasks_train_simple.txt").write_text("IN: walk twice OUT: I_WALK I_WALK\n")
    assert scan.read_pairs(tmp_path, "train_simple") == [["walk twice", "I_WALK I_WALK"]]


@pytest.mark.slow
def test_the_first_epochs_get_many_commands_right(shared_data, tmp_path, monkeypatch):
    shorter = {**scan.EXPERIMENT["training"], "max_epochs": 6, "average_checkpoints": 2}
    monkeypatch.setitem(scan.EXPERIMENT, "training", shorter)
    assert scan.main(shared_data / "scan", tmp_path / "run") >= 0.3  # 0.62 where it was measured


@pytest.mark.release
def test_simple_split(shared_data, tmp_path):
    assert scan.main(shared_data / "scan", tmp_path / "run") >= 0.995
