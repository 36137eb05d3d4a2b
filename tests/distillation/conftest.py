"""What the tests of distillation share: two teachers and a student."""

import pytest
from toy_teachers import Stub, save_teacher, write_student

from keras_transformer.distillation import Teachers


@pytest.fixture(scope="session")
def teacher_folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers")
    return [save_teacher(folder / str(seed), seed) for seed in (1, 2)]


@pytest.fixture
def student(tmp_path):
    """The file of a student's experiment, with a source that comes twice."""
    return write_student(tmp_path)


@pytest.fixture
def stub(monkeypatch):
    """All teachers write what a `Stub` does."""
    monkeypatch.setattr(Teachers, "translator", lambda *_, **__: Stub())
