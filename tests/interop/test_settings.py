"""Errors about a checkpoint name the folder, whatever it is called."""

import pytest

from keras_transformer.interop.settings import reading


@pytest.mark.parametrize("place", [".", "model", "t5", "/tmp/a+b"])
def test_a_name_that_is_a_word_of_the_message_is_named_all_the_same(place):
    message = "config.json: a model of t5 must have `num_heads`. Received: none"
    with pytest.raises(ValueError) as raised, reading(place):
        raise ValueError(message)
    assert str(raised.value) == f"{place}: {message}"
    for named in (f"a file must exist. Received: {place}/config.json", f"{place}: no JSON"):
        with pytest.raises(ValueError) as raised, reading(place):
            raise ValueError(named)
        assert str(raised.value) == named
