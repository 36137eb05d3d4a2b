"""SCAN's simple split is learnt exactly, by an example that takes minutes."""

import pytest
import scan


def test_lines_are_commands_and_actions(tmp_path):
    (tmp_path / "tasks_train_simple.txt").write_text("IN: walk twice OUT: I_WALK I_WALK\n")
    assert scan.read_pairs(tmp_path, "train_simple") == [["walk twice", "I_WALK I_WALK"]]


@pytest.mark.release
def test_simple_split(shared_data, tmp_path):
    assert scan.main(shared_data / "scan", tmp_path / "run") >= 0.995
