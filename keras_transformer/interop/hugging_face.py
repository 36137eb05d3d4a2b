"""A `Transformer` from a folder of Hugging Face's: settings, weights, tokenizers and search.

Reads files alone: neither torch nor transformers need be installed.
"""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.interop import bart_layout, t5_layout
from keras_transformer.interop.arrays import Arrays, read_arrays
from keras_transformer.interop.generation import Generation, read_generation
from keras_transformer.interop.pretrained import Pretrained, Report
from keras_transformer.interop.settings import Settings, check_sizes, reading
from keras_transformer.interop.tokenizers import ReadTokenizers, read_tokenizers
from keras_transformer.presets.card_file import stated
from keras_transformer_runner.tokenizers.base import SpecialIds

if TYPE_CHECKING:
    import keras

    from keras_transformer.models import Transformer

_BART, _T5 = ("marian", "m2m_100", "mbart"), ("t5", "mt5")
# Models that look like one of these and are not.
_REASONS = {
    "bart": "its tokenizer, byte-level BPE, has no counterpart here",
    "umt5": "each of its blocks has position biases of its own, and ours share one table a side",
    "nllb-moe": "it is a mixture of experts",
    "switch_transformers": "it is a mixture of experts",
    "pegasus": "it was not compared with an example of it",
    "longt5": "its attention is another one",
}
_IMPOSSIBLE = -1e3  # a logit whose exponential is 0 beside any other


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A folder of Hugging Face's, read as far as that needs no Keras.

    Example:
        >>> from keras_transformer.interop.hugging_face import Checkpoint
        >>> checkpoint = Checkpoint.open("opus-mt-de-en")  # doctest: +SKIP
        >>> checkpoint.config.model_dim  # doctest: +SKIP
        512
    """

    folder: Path
    kind: str  # the `model_type`
    config: TransformerConfig
    arrays: Arrays
    generation: Generation

    @classmethod
    def open(cls, folder: os.PathLike | str) -> "Checkpoint":
        """Reads the settings and opens the weights.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if a file is damaged, the model is of another kind, or a setting is not
                understood or cannot be taken over.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"a checkpoint must be a folder. Received: {folder}")
        with reading(folder):
            return cls._read(folder)

    @classmethod
    def _read(cls, folder):
        settings = Settings.load(folder / "config.json")
        said = Settings.load(folder / "generation_config.json", optional=True)
        kind = settings.take("model_type", kind=str)
        check_kind(kind)
        arrays = read_arrays(folder)
        if kind in _T5:
            fields = t5_layout.config_fields(settings, arrays)
        else:
            fields = bart_layout.config_fields(settings, arrays)
        ids = SpecialIds(*(fields[name] for name in SpecialIds._fields))
        generation = read_generation(settings, said, ids)
        if generation.impossible_ids:
            fields["output_bias"] = True
        settings.check_all_read()
        said.check_all_read()
        config = TransformerConfig.from_dict(fields)
        check_sizes(config, arrays)
        return cls(folder, kind, config, arrays, generation)

    def settings(self) -> dict[str, Any]:
        """The content of `config.json`."""
        return Settings.load(self.folder / "config.json").values

    def model(self, dtype: "str | keras.DTypePolicy | None" = None) -> "Transformer":
        """The model with its weights. Loads Keras.

        Args:
            dtype: Its dtype policy; the global one when `None`.

        Raises:
            ValueError: if a tensor of the checkpoint is missing, of another shape, or not used.
        """
        from keras_transformer.models import Transformer

        model = Transformer(self.config, dtype=dtype)
        with reading(self.folder):
            self._fill(model)
        return model

    def _fill(self, model):
        if self.kind in _T5:
            t5_layout.fill(model, self.arrays)
        else:
            bart_layout.fill(model, self.arrays, self.kind)
        unused = self.arrays.unused()
        if unused:
            raise ValueError(
                "each tensor of a checkpoint must be one that the model has. Received "
                f"{len(unused)} others: {', '.join(sorted(unused)[:5])}"
            )
        if self.generation.impossible_ids:
            output = _output_of(model)
            bias = np.array(output.output_bias)
            bias[list(self.generation.impossible_ids)] = _IMPOSSIBLE
            output.output_bias.assign(bias)


def check_kind(kind: str) -> None:
    """Raises a `ValueError` for a `model_type` that cannot be read."""
    if kind in (*_BART, *_T5):
        return
    reason = _REASONS.get(kind)
    raise ValueError(
        f"`model_type` must be one of {(*_BART, *_T5)}. Received: {kind!r}"
        + (f", which cannot be read: {reason}" if reason else "")
    )


def from_hugging_face(
    folder: os.PathLike | str,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    dtype: "str | keras.DTypePolicy | None" = None,
) -> Pretrained:
    """A pretrained translator from a local folder, as the hub has it.

    Reads Marian (OPUS-MT), M2M-100, NLLB-200, mBART-50, T5 v1.0 and v1.1, Flan-T5, mT5 and ByT5:
    `config.json`, `generation_config.json`, `model.safetensors` or `pytorch_model.bin` (also in
    several files), and the tokenizer's files. Each setting must be understood and each tensor
    used. The result is checked: see `Pretrained.checked`.

    Args:
        folder: The folder.
        source_language: The language of the source, where the model has a token for it, such as
            `"deu_Latn"`; by default the one that the folder names.
        target_language: The language of the target, likewise.
        dtype: Keras dtype policy of the model; the global one when `None`.

    Returns:
        A `Pretrained`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is damaged, a setting is not understood or cannot be taken over, a
            tensor is missing or not used, or a language is missing or unknown.

    Example:
        >>> from keras_transformer.interop.hugging_face import from_hugging_face
        >>> pretrained = from_hugging_face("opus-mt-de-en")  # doctest: +SKIP
        >>> pretrained.translator().translate(["Guten Tag!"])  # doctest: +SKIP
        ['Good day!']
    """
    checkpoint = Checkpoint.open(folder)
    tokenizers = tokenizers_of(checkpoint, source_language, target_language)
    model = checkpoint.model(dtype)
    found = Pretrained(
        model=model,
        tokenizer=tokenizers.source,
        target_tokenizer=tokenizers.target,
        search=checkpoint.generation.decoding.search(),
        report=_report(checkpoint, tokenizers, model.count_params()),
        origin=f"{checkpoint.folder.resolve().name} ({checkpoint.kind})",
        licence=stated(checkpoint.folder)[0],
    )
    with reading(checkpoint.folder):
        return found.checked()


def tokenizers_of(
    checkpoint: Checkpoint, source_language: str | None, target_language: str | None
) -> ReadTokenizers:
    """The tokenizers of a checkpoint, with the ids of its config.

    Raises:
        FileNotFoundError, ValueError: as `read_tokenizers`, or if they do not fit the model.
    """
    with reading(checkpoint.folder):
        return _tokenizers_of(checkpoint, source_language, target_language)


def _tokenizers_of(checkpoint, source_language, target_language):
    found = read_tokenizers(
        checkpoint.folder,
        checkpoint.settings(),
        source_language=source_language,
        target_language=target_language,
    )
    config, sides = checkpoint.config, (found.source, found.target)
    sizes = (config.vocab_size, config.target_size)
    for tokenizer, size in zip(sides, sizes, strict=True):
        if (tokenizer.special_ids, tokenizer.vocab_size) != (config.special_ids, size):
            raise ValueError(
                "the tokenizers must have the ids of the model. Received: "
                f"{tokenizer.vocab_size} ids with {tokenizer.special_ids._asdict()}, and {size} "
                f"with {config.special_ids._asdict()} in config.json"
            )
    first = checkpoint.generation.first_id
    if first is not None and not found.target.prefix_ids:
        found = found._replace(target=found.target.with_prefix([first]))
    return found


def _output_of(model):
    """The layer that gives the logits."""
    name = {"all": "embedding", "target_output": "target_embedding"}
    return model.get_layer(name.get(model.config.embedding_sharing, "output_embedding"))


def _report(checkpoint, tokenizers, weights):
    config, generation = checkpoint.config, checkpoint.generation
    prefixes = [
        f"before each {side}: {[tokenizer.pieces[token] for token in tokenizer.prefix_ids]}"
        for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target))
        if tokenizer.prefix_ids
    ]
    left = [*generation.left, *tokenizers.notes]
    if generation.impossible_ids:
        left.append(
            f"renormalize_logits: the ids {list(generation.impossible_ids)[:8]} have a bias of "
            f"{_IMPOSSIBLE:g}, and so no probability, in its place"
        )
    settings = checkpoint.settings()
    left += [
        f"{name} = {settings[name]}: no block is left out in further training"
        for name in ("encoder_layerdrop", "decoder_layerdrop")
        if settings.get(name)
    ]
    tasks = settings.get("task_specific_params")
    if tasks:
        left.append(
            f"task_specific_params of {', '.join(tasks)}: a prefix such as 'translate English to "
            "German: ' is part of the text, and comes from you"
        )
    if config.max_positions is None and settings.get("max_position_embeddings"):
        left.append(
            f"max_position_embeddings = {settings['max_position_embeddings']}: our positions are "
            "computed, and have no end"
        )
    return Report(
        taken=(
            f"{len(checkpoint.arrays)} tensors, each used once: {weights:,} weights",
            f"{config.encoder_layers}+{config.decoder_layers} blocks of width {config.model_dim}, "
            f"vocabulary {config.vocab_size}",
            f"dropout {config.dropout}, of attention {config.attention_dropout}, within the "
            f"feed-forward layer {config.intermediate_dropout}: for further training",
            *prefixes,
            *(f"search: {line}" for line in generation.taken),
        ),
        left=tuple(left),
    )
