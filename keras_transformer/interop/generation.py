"""How a checkpoint of Hugging Face's wants to be searched, as a section `[decoding]` of ours."""

from typing import Any, NamedTuple

from keras_transformer.experiment.sections import DecodingSection
from keras_transformer.interop.settings import Settings

# What `early_stopping` says, as our `stopping`.
_STOPPING = {True: "first_finished", False: "current_length", "never": "exact"}
# Options that are off at this value. Others than these are told, and not taken over.
_OFF = {
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_p": None,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "num_return_sequences": 1,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "force_words_ids": None,
    "constraints": None,
    "penalty_alpha": None,
    "guidance_scale": None,
    "max_time": None,
    "sequence_bias": None,
    "forced_decoder_ids": None,
    "prefix": None,
}
_READ = (
    *("num_beams", "length_penalty", "early_stopping", "max_length", "max_new_tokens"),
    *("min_length", "min_new_tokens", "no_repeat_ngram_size", "repetition_penalty"),
    *("bad_words_ids", "suppress_tokens", "renormalize_logits"),
    *("forced_bos_token_id", "forced_eos_token_id"),
)
_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


class Generation(NamedTuple):
    """What `generation_config.json` becomes."""

    decoding: DecodingSection
    first_id: int | None  # the target's first token, where it is always the same
    impossible_ids: tuple[int, ...]  # that have probability 0 for the others to share its mass
    taken: tuple[str, ...]  # lines for people
    left: tuple[str, ...]


def read_generation(config: Settings, generation: Settings, special_ids: Any) -> Generation:
    """The search that `generation_config.json` asks for; in old folders `config.json` does.

    Args:
        config: The `Settings` of `config.json`.
        generation: Those of `generation_config.json`, empty where there is none.
        special_ids: Anything with `pad_id`, `bos_id` and `eos_id`.

    Raises:
        ValueError: if an option has a value of another type, or an id contradicts `config.json`.

    Example:
        >>> from keras_transformer.interop.generation import read_generation
        >>> from keras_transformer.interop.settings import Settings
        >>> said = Settings({"num_beams": 4, "max_length": 200}, "generation_config.json")
        >>> found = read_generation(Settings({}, "config.json"), said, kt.BytesTokenizer())
        >>> found.decoding.beam_size, found.decoding.max_length
        (4, 199)
    """
    for settings in (config, generation):
        for name in (*_READ, *_OFF):
            settings.take(name, None, None)
    chosen = generation if generation.values else config
    _check_ids(config, generation)
    read = _Options(chosen, special_ids)
    options = {**read.lengths(), **read.beam(), **read.rules()}
    return Generation(
        DecodingSection(**options),
        chosen.take("forced_bos_token_id", None),
        read.impossible_ids(),
        tuple(f"{name} = {value!r}" for name, value in options.items()),
        (*read.left, *_left(chosen)),
    )


def _check_ids(config, generation):
    for name in _IDS:
        here, there = generation.take(name, None, None), config.values.get(name)
        if here is not None and there is not None and here not in (there, [there]):
            raise ValueError(
                f"`{name}` must be the same in config.json and generation_config.json. "
                f"Received: {there!r} and {here!r}"
            )


def _left(settings):
    for name, off in _OFF.items():
        value = settings.values.get(name)
        if value not in (None, off) and not (name == "prefix" and not str(value).strip()):
            yield f"{name} = {value!r}: ours has no such option, or is to be asked for by name"


class _Options:
    """Reads the options of a search, and says what it cannot take over."""

    def __init__(self, settings, special_ids):
        self.settings, self.special_ids = settings, special_ids
        self.left = []

    def lengths(self):
        """The limits. There the token that starts a row counts as one of it."""
        options = {}
        longest = self.settings.take("max_length", None)
        if longest is not None:
            options["max_length"] = max(longest - 1, 1)
        more = self.settings.take("max_new_tokens", None)
        if more is not None:
            options["max_length"] = more
        least = self.settings.take("min_length", 0)
        least = max(least, self.settings.take("min_new_tokens", -1) + 1)
        if least > 1:
            options["min_length"] = least
        self.left.append(
            "a limit by the target's length alone: a translation also ends when it is 50 tokens "
            "longer than its source (`extra_length`)"
        )
        forced = self.settings.take("forced_eos_token_id", None, None)
        if forced in (self.special_ids.eos_id, [self.special_ids.eos_id]):
            options["forced_eos"] = True
        elif forced is not None:
            self.left.append(f"forced_eos_token_id = {forced!r}: it is not the id of EOS")
        return options

    def beam(self):
        size = self.settings.take("num_beams", 1)
        if size == 1:
            return {}
        stopping = self.settings.take("early_stopping", False, None)
        if stopping not in [*_STOPPING]:  # which takes what cannot be a key, such as a list
            raise ValueError(
                f"{self.settings.origin}: `early_stopping` must be one of {tuple(_STOPPING)}. "
                f"Received: {stopping!r}"
            )
        return {
            "beam_size": size,
            "length_penalty": self.settings.take("length_penalty", 1.0, float),
            "length_normalization": "power",
            "stopping": _STOPPING[stopping],
            "candidates": "joint",
        }

    def rules(self):
        """What may not be chosen."""
        options = {}
        ngram = self.settings.take("no_repeat_ngram_size", 0)
        if ngram:
            options["no_repeat_ngram"] = ngram
        penalty = self.settings.take("repetition_penalty", 1.0, float)
        if penalty != 1:
            options["repetition_penalty"] = penalty
            self.left.append(
                "repetition_penalty of the token that starts a row: it counts real tokens alone"
            )
            if self.settings.take("num_beams", 1) > 1:
                self.left.append(
                    "repetition_penalty of a beam search, which multiplies log-probabilities there "
                    "and divides logits here: other texts may come out"
                )
        controls = (self.special_ids.pad_id, self.special_ids.bos_id, self.special_ids.eos_id)
        forbidden = [token for token in self._single_bad_words() if token not in controls]
        if forbidden:
            options["forbidden_ids"] = tuple(sorted({*forbidden}))
        return options

    def _single_bad_words(self):
        words = self.settings.take("bad_words_ids", [], list)
        words = words + [[token] for token in self.settings.take("suppress_tokens", [], list)]
        if not all(isinstance(word, list) and all(type(i) is int for i in word) for word in words):
            raise ValueError(
                f"{self.settings.origin}: `bad_words_ids` must hold lists of ids. "
                f"Received: {words!r:.80}"
            )
        for word in words:
            if len(word) != 1:
                self.left.append(f"the bad word {word} of several tokens: only single ids are")
        eos_id = self.special_ids.eos_id
        return [word[0] for word in words if len(word) == 1 and word[0] != eos_id]

    def impossible_ids(self):
        """Bad words whose probability the others share, as `renormalize_logits` has it."""
        if not self.settings.take("renormalize_logits", False, bool):
            return ()
        noted = len(self.left)
        found = tuple(sorted({*self._single_bad_words()}))
        del self.left[noted:]  # said already
        return found
