"""A `Transformer` from Marian's own files: a `.npz`, its vocabularies and its `decoder.yml`.

So come OPUS-MT's releases and the students of Firefox Translations and Bergamot, before they are
quantized.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment.sections import DecodingSection
from keras_transformer.interop import marian_layout
from keras_transformer.interop.arrays import Arrays, content_of, read_arrays
from keras_transformer.interop.marian_yaml import read_settings, read_vocabulary
from keras_transformer.interop.pretrained import Pretrained, Report
from keras_transformer.interop.settings import Settings, check_sizes, reading
from keras_transformer.interop.tokenizers import MARIAN_LANGUAGE, marian_prefix
from keras_transformer_runner.tokenizers import SentencePieceTokenizer
from keras_transformer_runner.tokenizers.base import SpecialIds
from keras_transformer_runner.tokenizers.renumbered import UNKNOWN, PieceTable, renumbered

if TYPE_CHECKING:
    import keras

_SETTINGS = "special:model.yml"
_PRE_NORM = (
    "norms before sub-layers: early versions of Marian left keys and values of self-attention "
    "without them; here they have them, as in later ones"
)
# Keys of a `decoder.yml` that change no translation, but for its speed, its limits and its output.
_MEANINGLESS = frozenset(
    (
        *("relative-paths", "models", "vocabs", "mini-batch", "mini-batch-words", "maxi-batch"),
        *("maxi-batch-sort", "workspace", "cpu-threads", "devices", "num-devices", "quiet"),
        *("quiet-translation", "log", "log-level", "precision", "gemm-precision", "fp16"),
        *("alignment", "skip-cost", "ssplit-mode", "max-length-break", "max-length"),
        *("max-length-crop", "word-scores", "no-spm-decode", "version", "seed", "optimize"),
        *("gemm-type", "input", "output", "tsv", "tsv-fields", "port"),
    )
)


class _Vocabulary(NamedTuple):
    """Ids by piece, and the SentencePiece model that finds pieces in a text."""

    ids: dict[str, int]
    table: PieceTable
    unknown: str  # the piece that stands for what is unknown

    @property
    def special(self):
        """The ids of EOS and of unknown pieces."""
        return self.ids["</s>"], self.ids[self.unknown]


def from_marian(
    path: os.PathLike | str,
    *,
    vocabularies: Sequence[os.PathLike | str] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    dtype: "str | keras.DTypePolicy | None" = None,
) -> Pretrained:
    """A pretrained translator from Marian's own files.

    Each setting must be understood and each tensor used. Positions are Marian's own, which differ
    a little from those that converters to Hugging Face's and CTranslate2's format write. Models
    with self-attention or an SSRU in the decoder are read, in floating-point numbers; files that
    are quantized (`.bin`) are not. A lexical shortlist is for `interop.lexical_shortlist`.

    Args:
        path: The `.npz`, or a folder that holds it, the vocabularies, and a `decoder.yml` if there
            is one.
        vocabularies: The files of the source's and the target's vocabulary, if `decoder.yml` does
            not name them and their names do not tell: SentencePiece models (`.spm`), or Marian's
            `.yml` beside `source.spm` and `target.spm`.
        source_language: `None`: no such model has a piece for it.
        target_language: The language of the target, such as `"fra"`, in a model with pieces such as
            `>>fra<<`; `""` for none.
        dtype: Keras dtype policy of the model; the global one when `None`.

    Returns:
        A `Pretrained`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is damaged, a setting is not understood or cannot be taken over, a
            tensor is missing or not used, or a language is missing or unknown.

    Example:
        >>> from keras_transformer.interop.marian import from_marian
        >>> pretrained = from_marian("student.deen")  # doctest: +SKIP
        >>> pretrained.translator().translate(["Guten Tag!"])  # doctest: +SKIP
        ['Good day!']
    """
    path = Path(path)
    opened = Opened.read(path, vocabularies, source_language, target_language)
    from keras_transformer.models import Transformer  # which loads Keras

    model = Transformer(opened.config, dtype=dtype)
    with reading(path):
        marian_layout.fill(model, opened.arrays)
        if unused := opened.arrays.unused():
            raise ValueError(
                "each tensor of a model must be one that ours has. Received "
                f"{len(unused)} others: {', '.join(sorted(unused)[:5])}"
            )
        source, target = opened.tokenizers
        return Pretrained(
            model=model,
            tokenizer=source,
            target_tokenizer=target,
            search=opened.section.search(),
            report=_report(opened.config, opened.arrays, opened.section, opened.left),
            origin=f"{opened.name} (Marian)",
        ).checked()


class Opened(NamedTuple):
    """A model of Marian's, read as far as that needs no Keras.

    Example:
        >>> from keras_transformer.interop.marian import Opened
        >>> Opened.read(Path("student.deen")).config.decoder_recurrence  # doctest: +SKIP
        'ssru'
    """

    name: str
    config: TransformerConfig
    arrays: Arrays
    tokenizers: tuple[SentencePieceTokenizer, SentencePieceTokenizer]
    section: DecodingSection
    left: list[str]

    @classmethod
    def read(cls, path: Path, vocabularies=None, source_language=None, target_language=None):
        """Reads the settings and the vocabularies, and opens the weights; see `from_marian`."""
        with reading(path):
            return cls._read(path, vocabularies, source_language, target_language)

    @classmethod
    def _read(cls, path, vocabularies, source_language, target_language):
        files = _Files.of(path, vocabularies)
        arrays = read_arrays(files.model)
        settings = _settings_of(arrays)
        fields = marian_layout.config_fields(settings, arrays)
        settings.check_all_read(marian_layout.MEANINGLESS)
        sides = [_read_vocabulary(*pair) for pair in files.vocabularies]
        eos_id, unk_id = _special_ids(sides)
        config = TransformerConfig.from_dict({**fields, "eos_id": eos_id, "unk_id": unk_id})
        check_sizes(config, arrays)
        prefix_ids = marian_prefix(sides[0].ids, source_language, target_language)
        source, target = _tokenizers(sides, config, files.vocabularies)
        source = source.with_prefix(prefix_ids) if prefix_ids else source
        section, left = _search(files.decoder, unk_id)
        return cls(files.model.name, config, arrays, (source, target), section, left)


def _settings_of(arrays: Arrays):
    """The settings in the file of the weights."""
    if _SETTINGS not in arrays:
        raise ValueError(f"a model of Marian must hold {_SETTINGS!r}. Received: none")
    text = arrays.take(_SETTINGS).tobytes().rstrip(b"\0").decode()
    return Settings(read_settings(text, _SETTINGS), _SETTINGS)


class _Files(NamedTuple):
    """The files of a model."""

    model: Path
    decoder: Settings
    vocabularies: list[tuple[Path, Path]]  # of each side the ids, and the SentencePiece model

    @classmethod
    def of(cls, path, vocabularies):
        if not path.exists():
            raise FileNotFoundError(f"a model of Marian must exist. Received: {path}")
        folder = path if path.is_dir() else path.parent
        model = _only_model(folder) if path.is_dir() else path
        decoder = _decoder_settings(folder, model)
        named = decoder.take("vocabs", [], list)
        if vocabularies is not None:
            found = [Path(each) for each in vocabularies]
        elif named:  # paths of another machine, often
            found = [folder / Path(str(each)).name for each in named]
        else:
            found = _vocabularies_in(folder)
        if len(found) not in (1, 2):
            raise ValueError(
                "a model must have a vocabulary for both sides, or one for each, beside it, "
                "named in decoder.yml or by `vocabularies`. "
                f"Received: {[each.name for each in found]}"
            )
        found = (found * 2)[:2]
        pairs = [_with_pieces(*pair) for pair in zip(("source", "target"), found, strict=True)]
        for file in {file for pair in pairs for file in pair}:
            if not file.is_file():
                raise FileNotFoundError(f"a vocabulary's file must exist. Received: {file}")
        return cls(model, decoder, pairs)


def _only_model(folder):
    """The `.npz` of a folder, which may hold those of the optimizer too."""
    found = [each for each in sorted(folder.glob("*.npz")) if ".optimizer." not in each.name]
    plain = [each for each in found if each.name == "model.npz"]
    if len(found) != 1 and len(plain) != 1:
        raise ValueError(
            "a folder must hold one model, or a model.npz; name one of several. "
            f"Received: {folder} with {[each.name for each in found]}"
        )
    return found[0] if len(found) == 1 else plain[0]


def _decoder_settings(folder, model):
    """The `Settings` of the file that says how to translate; none without it."""
    for name in (f"{model.name}.decoder.yml", "decoder.yml"):
        path = folder / name
        if path.is_file():
            return Settings(read_settings(path.read_text(encoding="utf-8"), name), name)
    return Settings({}, "decoder.yml")


def _vocabularies_in(folder):
    """Those whose names tell what they are: one file for both sides, or one for each."""
    for ending in ("*vocab*.yml", "*.spm"):
        found = sorted(each for each in folder.glob(ending) if "decoder" not in each.name)
        if len(found) == 1:
            return found
        starts = (("src", "source"), ("trg", "tgt", "target"))
        sides = [[each for each in found if each.name.startswith(start)] for start in starts]
        if [len(side) for side in sides] == [1, 1]:
            return [side[0] for side in sides]
        if found:
            return found
    return []


def _with_pieces(side, path):
    """The file of a side's ids, and that of its SentencePiece model, which may be the same."""
    return path, path if path.suffix == ".spm" else path.parent / f"{side}.spm"


def _read_vocabulary(path, pieces):
    try:
        table = PieceTable.read(content_of(pieces))
    except ValueError as error:
        raise ValueError(f"{pieces}: {error}") from error
    if path == pieces:
        ids = {piece.text: token for token, piece in enumerate(table.pieces)}
        unknown = next((piece.text for piece in table.pieces if piece.kind == UNKNOWN), "<unk>")
    else:
        ids, unknown = read_vocabulary(path.read_text(encoding="utf-8"), path.name), "<unk>"
    missing = [piece for piece in ("</s>", unknown) if piece not in ids]
    if missing:
        raise ValueError(f"{path}: a vocabulary must have the piece {missing[0]!r}. Received: none")
    return _Vocabulary(ids, table, unknown)


def _special_ids(sides):
    """EOS and unknown, which both sides must have at the same ids."""
    source, target = (side.special for side in sides)
    if source != target:
        raise ValueError(
            "`</s>` and `<unk>` must have the same ids in both vocabularies. "
            f"Received: {source} and {target}"
        )
    return source


def _tokenizers(sides, config, files) -> list[SentencePieceTokenizer]:
    special_ids = SpecialIds.of(config)
    made = []
    for side, (path, _) in zip(sides, files, strict=True):
        if made and files[0] == files[1]:
            made.append(made[0])
            break
        if max(side.ids.values()) >= config.pad_id:
            raise ValueError(
                f"{path}: ids of pieces must be below the rows of the model's table, "
                f"{config.pad_id}. Received: {max(side.ids.values())}"
            )
        languages = [piece for piece in side.ids if MARIAN_LANGUAGE.fullmatch(piece)]
        size = config.vocab_size
        made.append(renumbered(side.table, side.ids, special_ids, size, controls=languages))
    return made


def _search(decoder, unk_id):
    """The section `[decoding]` of a `decoder.yml`, and lines about what is not in it."""
    size = decoder.take("beam-size", 1)
    penalty = decoder.take("normalize", 0.0, float)
    decoder.must_be(**{"word-penalty": 0, "n-best": False, "output-sampling": False})
    options, left = {}, []
    if not decoder.take("allow-unk", False, bool):
        options["forbidden_ids"] = (unk_id,)
    if size != 1:
        options["beam_size"] = size
        options["length_penalty"] = penalty
        options.update(length_normalization="power", candidates="joint")
        options["stopping"] = "first_finished"
        left.append("a beam that loses a place with each finished hypothesis: ours keeps its size")
    factor = decoder.take("max-length-factor", 3.0, None)
    left.append(
        f"max-length-factor = {factor}: a translation also ends when it is 50 tokens longer than "
        "its source (`extra_length`)"
    )
    if decoder.take("shortlist", [], None):
        left.append(
            "the lexical shortlist: `interop.lexical_shortlist` makes `allowed_ids` of it, for "
            "`decode` and `Translator`"
        )
    decoder.check_all_read(_MEANINGLESS)
    return DecodingSection(**options), left


def _report(config, arrays, section, left):
    decoder = "an SSRU" if config.decoder_recurrence else "self-attention"
    weights = sum(array.size for name, array in arrays.items() if name != _SETTINGS)
    search = f"beam {section.beam_size}" if section.beam_size > 1 else "greedy"
    return Report(
        taken=(
            f"{len(arrays) - 1} tensors, {weights:,} numbers, each used once",
            f"{config.encoder_layers}+{config.decoder_layers} blocks of width {config.model_dim}, "
            f"{decoder} in the decoder, vocabulary {config.pad_id}",
            f"alignments: block {config.alignment_layer}, head 0",
            f"search: {search}, length_penalty = {section.length_penalty or 0}",
            f"the id {config.pad_id}, which Marian has not, is pad and start",
        ),
        left=(
            f"dropout, which the file does not tell: {config.dropout} for further training",
            *(["positions beyond the table's last row"] if config.max_positions else []),
            *([_PRE_NORM] if config.residual == "pre" else []),
            *left,
        ),
    )
