"""The settings of a checkpoint, of which each must be understood or known not to matter."""

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

# Keys of Hugging Face's `config.json` that change nothing that is computed in inference.
_MEANINGLESS = frozenset(
    (
        *("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype"),
        *("model_type", "tokenizer_class", "use_cache", "output_past", "return_dict"),
        *("output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate"),
        *("id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task"),
        *("gradient_checkpointing", "init_std", "initializer_factor", "initializer_range"),
        *("encoder_layerdrop", "decoder_layerdrop", "classif_dropout", "classifier_dropout"),
        *("num_hidden_layers", "num_attention_heads", "hidden_size", "extra_pos_embeddings"),
        *("n_positions", "task_specific_params", "tf_legacy_loss", "save_step", "license"),
        *("force_bos_token_to_be_generated", "remove_invalid_values", "_attn_implementation"),
        *("_commit_hash", "_from_model_config", "attn_implementation", "language"),
        *("cache_implementation", "return_legacy_cache", "output_logits", "low_memory"),
        *("adaptive_softmax_dropout", "xla_device"),
    )
)
# Keys of old files, or of what other models have, with the one value that is implied here.
_IMPLIED = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "tie_encoder_decoder": False,
    "chunk_size_feed_forward": 0,
    "pruned_heads": {},
    "torchscript": False,
    "use_bfloat16": False,
    "add_bias_logits": False,
    "adaptive_softmax_cutoff": None,
    "do_blenderbot_90_layernorm": False,
    "extra_layer_norm": False,
    "sep_token_id": None,
    "quantization_config": None,
}
_NOTHING = object()


@contextlib.contextmanager
def reading(place: Path) -> Iterator[None]:
    """Has an error about what is in a folder or a file name it.

    Args:
        place: The folder or the file.

    Raises:
        ValueError: for a `ValueError` or a `TypeError` that does not name it.

    Example:
        >>> from keras_transformer.interop.settings import reading
        >>> with reading("opus-mt-de-en"):
        ...     int("x")
        Traceback (most recent call last):
        ValueError: opus-mt-de-en: invalid literal for int() with base 10: 'x'
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search(rf"(^|[\s'\"]){re.escape(str(place))}([/:,'\"]|$)", str(error)):
            raise
        raise ValueError(f"{place}: {error}") from error


def check_sizes(config: Any, arrays: Mapping[str, Any]) -> None:
    """Raises a `ValueError` for a model with more weights than its checkpoint, before it is made.

    Args:
        config: Its `TransformerConfig`.
        arrays: The arrays of the checkpoint by name.

    Example:
        >>> from keras_transformer.interop.settings import check_sizes
        >>> check_sizes(kt.TransformerConfig.preset("tiny", vocab_size=9), {})
        Traceback (most recent call last):
        ValueError: a model's settings must fit its tensors. Received: settings of a model with \
at least 394,368 weights, tensors with 0
    """
    blocks = config.encoder_layers + config.decoder_layers
    rows = (
        max(config.vocab_size, config.target_size)
        + blocks * (config.intermediate_dim + config.num_heads * config.head_key_dim)
        + (config.max_positions or 0)
    )
    least = config.model_dim * rows
    if config.positions == "relative":
        least += config.relative_buckets * config.num_heads
    found = 0
    for array in arrays.values():  # no further than needed: each may be read from its file
        found += array.size
        if found >= least:
            return
    raise ValueError(
        "a model's settings must fit its tensors. Received: settings of a model with at least "
        f"{least:,} weights, tensors with {found:,}"
    )


class Settings:
    """What the JSON files of a checkpoint say; counts what has been read.

    Args:
        values: The content of a file.
        origin: The file, for messages.

    Example:
        >>> from keras_transformer.interop.settings import Settings
        >>> settings = Settings({"d_model": 8, "rotary": True}, "config.json")
        >>> settings.take("d_model")
        8
        >>> settings.check_all_read()
        Traceback (most recent call last):
        ValueError: config.json: a setting must be one that is understood. Received: rotary=True
    """

    def __init__(self, values: Mapping[str, Any], origin: object):
        self.values = dict(values)
        self.origin = origin
        self._read: set[str] = set()

    @classmethod
    def load(cls, path: Path, *, optional: bool = False) -> "Settings":
        """Reads a JSON file; none gives no settings where it is `optional`.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it does not hold a JSON object.
        """
        if not path.is_file():
            if optional:
                return cls({}, path.name)
            raise FileNotFoundError(
                f"a folder of Hugging Face must hold {path.name}. Received: {path.parent}"
            )
        try:
            values = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: must be JSON ({error})") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path}: must hold an object. Received: {type(values).__name__}")
        return cls(values, path.name)

    def take(self, name: str, default: Any = _NOTHING, kind: type | None = int) -> Any:
        """The setting `name`; `default`, if there is one, where it is missing or null.

        Raises:
            ValueError: if it is missing without a default, or not of the type `kind`.
        """
        self._read.add(name)
        value = self.values.get(name)
        if value is None:
            if default is _NOTHING:
                raise ValueError(f"{self.origin}: must have `{name}`. Received: none")
            return default
        if kind is float and type(value) is int:
            value = float(value)
        if kind is not None and type(value) is not kind:
            raise ValueError(
                f"{self.origin}: `{name}` must be of type {kind.__name__}. Received: {value!r}"
            )
        return value

    def must_be(self, **expected: Any) -> None:
        """Raises a `ValueError` for a setting that is given with another value than this."""
        for name, value in expected.items():
            self._read.add(name)
            if name in self.values and self.values[name] not in (value, None):
                raise ValueError(
                    f"{self.origin}: `{name}` must be {value!r}: the model computes something else "
                    f"otherwise. Received: {self.values[name]!r}"
                )

    def check_all_read(self, meaningless: Collection[str] | None = None) -> None:
        """Raises a `ValueError` that names a setting that nothing has read, if it may matter.

        `meaningless` are those that do not; Hugging Face's when `None`.
        """
        if meaningless is None:
            self.must_be(**_IMPLIED)
            meaningless = _MEANINGLESS
        unknown = sorted(self.values.keys() - self._read - frozenset(meaningless))
        if unknown:
            found = ", ".join(f"{name}={self.values[name]!r:.60}" for name in unknown)
            raise ValueError(
                f"{self.origin}: a setting must be one that is understood. Received: {found}"
            )
