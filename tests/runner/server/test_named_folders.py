"""What `serve` takes for a folder, and what for its name."""

import doctest

import pytest

from keras_transformer_runner.server import named_folders as module
from keras_transformer_runner.server.named_folders import NamedFolder, named_folders


def test_names_and_folders():
    assert doctest.testmod(module) == (0, 2)
    given = ["en:de=a/b", "pt-BR:en=c=d", "lm=/e", "f/g/", "./h=i"]
    assert named_folders(given, None, None) == [
        NamedFolder("en:de", "a/b", ("en", "de")),
        NamedFolder("pt-BR:en", "c=d", ("pt-BR", "en")),
        NamedFolder("lm", "/e", None),
        NamedFolder("g", "f/g/", None),
        NamedFolder("h=i", "./h=i", None),
    ]
    assert named_folders(["a"], "en", "de") == [NamedFolder("en:de", "a", ("en", "de"))]


@pytest.mark.parametrize("name", ["en:", ":de", "en:de:fr", ":"])
def test_a_pair_that_is_none(name):
    with pytest.raises(ValueError, match=rf"must be SOURCE:TARGET, such as en:de. .*: {name}$"):
        named_folders([f"{name}=a"], None, None)


def test_a_name_twice():
    with pytest.raises(ValueError, match="each name must stand once. Received: lm twice"):
        named_folders(["lm=a", "en:de=b", "c/lm"], None, None)


@pytest.mark.parametrize(
    "given, source, target",
    [(["a", "b"], "en", "de"), (["a"], "en", None), (["a"], None, "de"), (["x=a"], "en", "de")],
)
def test_languages_without_their_folder(given, source, target):
    with pytest.raises(ValueError, match="--source and --target must go together, with one FOLDER"):
        named_folders(given, source, target)
