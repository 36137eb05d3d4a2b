"""Our tokenizers from those that lie beside a checkpoint of Hugging Face's, with the same ids."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.arguments import check_name
from keras_transformer.interop import fast_tokenizer
from keras_transformer.interop.arrays import content_of
from keras_transformer_runner.tokenizers import BytesTokenizer, Tokenizer
from keras_transformer_runner.tokenizers.base import SpecialIds, check_special_ids
from keras_transformer_runner.tokenizers.renumbered import CONTROL, UNKNOWN, PieceTable, renumbered

# fairseq's order: four special ids, then the pieces of a SentencePiece model after its own three.
_FAIRSEQ_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
_FAIRSEQ_OFFSET = 1


class ReadTokenizers(NamedTuple):
    """The tokenizers of a checkpoint, one for each side; a language is in their `prefix_ids`."""

    source: Tokenizer
    target: Tokenizer  # `source` itself where the sides do not differ
    notes: tuple[str, ...]  # what is not as it was there, for people


def read_tokenizers(
    folder: os.PathLike | str,
    config: Mapping[str, Any],
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> ReadTokenizers:
    """The tokenizers of a folder of Hugging Face's, as ours and with the same ids.

    Reads those of Marian, T5, mT5, ByT5, M2M-100, NLLB-200 and mBART-50, from SentencePiece models
    with their tables, or from a `tokenizer.json`. Text never becomes a control id, as it may there:
    a language is an argument here, and `</s>` or `>>fra<<` in a text is spelled in other pieces.

    Args:
        folder: The folder, with the tokenizer's files.
        config: The content of its `config.json`.
        source_language: The language of the source, as the model calls it, where it has a token for
            it; by default the one that the folder names.
        target_language: The language of the target, likewise. `""` for none in a Marian model.

    Returns:
        `ReadTokenizers`, with the languages as `prefix_ids`: of the source for both languages in
        Marian's models, of each side in the others.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the model is of an unknown kind, a file is damaged, or a language is missing,
            unknown, or given to a model without.

    Example:
        >>> from keras_transformer.interop.tokenizers import read_tokenizers
        >>> config = {"model_type": "t5", "tokenizer_class": "ByT5Tokenizer", "vocab_size": 384}
        >>> read_tokenizers(".", config).source.encode("hi")
        [107, 108]
    """
    kind = str(config.get("model_type"))
    check_name("`model_type`", kind, list(_READERS))
    return _READERS[kind](_Folder(Path(folder), config), source_language, target_language)


class _Folder:
    """The files of a tokenizer, and the settings in them."""

    def __init__(self, path, config):
        self.path = path
        self.config = config
        self.settings = self.json("tokenizer_config.json", {})
        if self.settings.get("sp_model_kwargs"):  # such as pieces drawn at random
            raise ValueError(
                "`sp_model_kwargs` of tokenizer_config.json must be empty. "
                f"Received: {self.settings['sp_model_kwargs']}"
            )

    def json(self, name, default=None):
        """The object of a JSON file; `default`, if there is one, where the file is missing."""
        path = self.path / name
        if not path.is_file():
            if default is None:
                raise FileNotFoundError(f"a tokenizer's file must exist. Received: {path}")
            return default
        try:
            content = json.loads(content_of(path))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: a tokenizer's file must be JSON ({error})") from error
        if not isinstance(content, dict):
            raise ValueError(f"{path}: must hold an object. Received: {type(content).__name__}")
        return content

    def ids(self, name, default=None):
        """Ids by piece, of a JSON file."""
        ids = self.json(name, default)
        wrong = next((piece for piece, token in ids.items() if type(token) is not int), None)
        if wrong is not None:
            raise ValueError(
                f"{self.path / name}: an id must be an integer. Received: {wrong!r}: {ids[wrong]!r}"
            )
        return ids

    def vocabulary(self, name):
        """Ids by piece with the special ones, of a JSON file."""
        ids = self.ids(name)
        missing = [piece for piece in ("<pad>", "</s>", "<unk>") if piece not in ids]
        if missing:
            raise ValueError(f"{self.path / name}: must have an id for {missing[0]!r}")
        return ids

    def pieces(self, name, instead=""):
        """A SentencePiece model, as a `PieceTable`; `instead` ends what is said without it."""
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(
                f"a tokenizer's folder must hold {name}{instead}. Received: {self.path}"
            )
        try:
            return PieceTable.read(content_of(path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def number(self, name, default):
        """A number of config.json; `default` where there is none."""
        value = self.config.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 0:
            raise ValueError(f"`{name}` must be an integer of at least 0. Received: {value!r}")
        return value

    def special_ids(self, **ids):
        """The special ids of a vocabulary, which config.json must not contradict."""
        for ours, theirs in (("pad_id", "pad_token_id"), ("eos_id", "eos_token_id")):
            if self.number(theirs, ids[ours]) != ids[ours]:
                raise ValueError(
                    f"`{theirs}` must be the id of the tokenizer's piece, {ids[ours]}. "
                    f"Received: {self.config[theirs]}"
                )
        return SpecialIds(**ids)

    def added_tokens(self, first_id):
        """Ids by piece of what was added to a vocabulary, its languages above all.

        Args:
            first_id: The id of the first one, where files only tell their order.
        """
        try:
            return self._added_tokens(first_id)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path}: added tokens must have a content and an id ({error!r})"
            ) from error

    def _added_tokens(self, first_id):
        listed = self.json("special_tokens_map.json", {}).get("additional_special_tokens")
        for name in ("additional_special_tokens", "extra_special_tokens"):  # by version
            listed = listed or self.settings.get(name) or []
        listed = list(listed.values()) if isinstance(listed, dict) else listed
        names = [_content(entry) for entry in listed]
        names = [name for name in names if name not in (*_FAIRSEQ_IDS, "<mask>")]
        ids = {name: first_id + place for place, name in enumerate(names)}
        ids |= self.ids("added_tokens.json", {})
        entries = list(self.settings.get("added_tokens_decoder", {}).items())
        fast = self.json("tokenizer.json", {}).get("added_tokens", [])
        for token, entry in entries + [(entry["id"], entry) for entry in fast]:
            if not entry.get("special", True):
                raise ValueError(
                    "an added token must be special, as those of languages are: no text can make "
                    f"one. Received: {entry['content']!r}"
                )
            ids[_content(entry)] = int(token)
        return ids


def _content(entry):
    content = entry["content"] if isinstance(entry, dict) else entry
    if not isinstance(content, str):
        raise TypeError(f"a token must be a string, not {content!r}")
    return content


def _marian(folder, source_language, target_language):
    """source.spm and target.spm, with a joint vocab.json or a target_vocab.json beside it."""
    vocabularies = [folder.vocabulary("vocab.json")] * 2
    sizes = [folder.number("vocab_size", len(vocabularies[0]))] * 2
    if (folder.path / "target_vocab.json").is_file():
        vocabularies[1] = folder.vocabulary("target_vocab.json")
        sizes[1] = folder.number("decoder_vocab_size", len(vocabularies[1]))
    tokenizers, notes = [], []
    for side, ids, size in zip(("source", "target"), vocabularies, sizes, strict=True):
        pad_id = ids["<pad>"]
        special_ids = folder.special_ids(
            pad_id=pad_id,
            unk_id=ids["<unk>"],
            bos_id=folder.number("decoder_start_token_id", pad_id),
            eos_id=ids["</s>"],
        )
        table = folder.pieces(f"{side}.spm")
        controls = [piece for piece in ids if MARIAN_LANGUAGE.fullmatch(piece)]
        tokenizers.append(renumbered(table, ids, special_ids, size, controls=controls))
        notes += _missing_pieces(table, ids, f"{side}.spm")
    source, target = tokenizers
    check_special_ids(source, target)
    prefix_ids = marian_prefix(vocabularies[0], source_language, target_language, folder.settings)
    return ReadTokenizers(source.with_prefix(prefix_ids), target, tuple(notes))


MARIAN_LANGUAGE = re.compile(">>.+<<")  # a piece


def _missing_pieces(table, ids, name):
    missing = [each.text for each in table.pieces if each.kind not in (UNKNOWN, CONTROL)]
    missing = [text for text in missing if text not in ids]
    if not missing:
        return []
    return [
        f"{len(missing)} pieces of {name} have no id, such as {missing[0]!r}: they are spelled in "
        "others, where Hugging Face gives <unk>"
    ]


def marian_prefix(ids, source_language, target_language, settings=None):
    """The id of the target's language, a piece such as `>>fra<<`, which goes before a source.

    Args:
        ids: Ids by piece.
        source_language, target_language: As in `read_tokenizers`.
        settings: What the folder says of itself; its own languages may be given again.

    Returns:
        A list of one id, or of none.

    Raises:
        ValueError: if a language is missing, unknown, or given to a model without.

    Example:
        >>> from keras_transformer.interop.tokenizers import marian_prefix
        >>> marian_prefix({"</s>": 0, "<unk>": 1, ">>fra<<": 2, "a": 3}, None, "fra")
        [2]
    """
    languages = {
        piece[2:-2]: token for piece, token in ids.items() if MARIAN_LANGUAGE.fullmatch(piece)
    }
    named = {side: (settings or {}).get(f"{side}_lang") for side in ("source", "target")}
    if not languages:
        _check_none(named, source=source_language, target=target_language)
        return []
    _check_none(named, source=source_language)
    if target_language is None:
        raise ValueError(
            "`target_language` must be given for a model of several languages: one of "
            f"{list(languages)}, or '' for none. Received: None"
        )
    if not target_language:
        return []
    check_name("`target_language`", target_language, list(languages), cutoff=0.4)
    return [languages[target_language]]


def _check_none(named, **languages):
    """Raises a `ValueError` for a language that a model neither has a token for nor names."""
    for side, language in languages.items():
        if language not in (None, named.get(side)):
            raise ValueError(
                f"`{side}_language` must be None for this model, which has no token for it. "
                f"Received: {language!r}"
            )


def _t5(folder, source_language, target_language):
    """spiece.model, whose ids are the model's, and more rows up to the vocabulary's size."""
    _check_none({}, source=source_language, target=target_language)
    names = (folder.config.get("tokenizer_class"), folder.settings.get("tokenizer_class"))
    if "ByT5Tokenizer" in names:
        special_ids = BytesTokenizer(layout="byt5").special_ids
        folder.special_ids(**special_ids._asdict())
        tokenizer = BytesTokenizer(layout="byt5", vocab_size=folder.number("vocab_size", 384))
        return ReadTokenizers(tokenizer, tokenizer, ())
    table = _table(folder, "spiece.model")
    ids = {piece.text: token for token, piece in enumerate(table.pieces)}
    special_ids = folder.special_ids(
        pad_id=_special("<pad>", ids),
        unk_id=_special("<unk>", ids),
        bos_id=folder.number("decoder_start_token_id", _special("<pad>", ids)),
        eos_id=_special("</s>", ids),
    )
    sentinels = [piece for piece in ids if piece.startswith("<extra_id_")]
    size = folder.number("vocab_size", len(ids))
    tokenizer = renumbered(table, ids, special_ids, size, controls=sentinels)
    return ReadTokenizers(tokenizer, tokenizer, ())


def _special(piece, ids):
    if piece not in ids:
        raise ValueError(f"a tokenizer must have the piece {piece!r}. Received none")
    return ids[piece]


def _table(folder, name):
    """The pieces of a SentencePiece model, or of a tokenizer.json where that is all there is."""
    fast = folder.path / "tokenizer.json"
    if (folder.path / name).is_file() or not fast.is_file():
        return folder.pieces(name, f" or {fast.name}")
    try:
        return fast_tokenizer.read_pieces(folder.json(fast.name))
    except ValueError as error:
        raise ValueError(f"{fast}: {error}") from error


def _m2m_100(folder, source_language, target_language):
    """M2M-100, with a vocab.json and languages like `__de__`; or NLLB, without."""
    if not (folder.path / "vocab.json").is_file():
        if folder.settings.get("legacy_behaviour"):
            raise ValueError(
                "`legacy_behaviour` must be false: a source ends in EOS here, and not in its "
                "language. Received: true"
            )
        return _fairseq(folder, "[a-z]{3}_[A-Z][a-z]{3}", source_language, target_language)
    ids = folder.vocabulary("vocab.json")
    table = folder.pieces("sentencepiece.bpe.model")
    added = folder.added_tokens(first_id=len(ids))
    if not any(map(_M2M_LANGUAGE.match, added)):  # as newer versions leave the folder
        edition = str(folder.settings.get("language_codes", "m2m100"))
        check_name("`language_codes`", edition, list(_M2M_LANGUAGES))
        known = _M2M_LANGUAGES[edition].split()
        added |= {f"__{name}__": len(ids) + place for place, name in enumerate(known)}
    notes = _missing_pieces(table, ids, "sentencepiece.bpe.model")
    languages = {name[2:-2]: token for name, token in added.items() if _M2M_LANGUAGE.match(name)}
    controls = [name for name in added if name not in ids or _M2M_LANGUAGE.match(name)]
    return _multilingual(
        folder, table, added | ids, controls, languages, notes, source_language, target_language
    )


_M2M_LANGUAGE = re.compile("__.+__$")
# The languages of the two models that there are, in the order of their ids.
_M2M_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
        "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
        "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl "
        "tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


def _mbart(folder, source_language, target_language):
    """mBART-50. The first mBART ends a source in its language, and starts with the target's."""
    names = (folder.config.get("tokenizer_class"), folder.settings.get("tokenizer_class"))
    if not any(str(name).startswith("MBart50Tokenizer") for name in names):
        raise ValueError(
            "`tokenizer_class` must be 'MBart50Tokenizer': in other models of mBART a source ends "
            f"in its language, which is not supported. Received: {names[0] or names[1]!r}"
        )
    return _fairseq(folder, "[a-z]{2}_[A-Z]{2}", source_language, target_language)


def _fairseq(folder, language, source_language, target_language):
    """fairseq's order: the pieces of a SentencePiece model, one further, then the languages."""
    name = "sentencepiece.bpe.model"
    table = _table(folder, name)
    ids = {piece.text: token for token, piece in enumerate(table.pieces)}
    if (folder.path / name).is_file():
        if list(ids)[:3] != ["<unk>", "<s>", "</s>"]:
            raise ValueError(
                f"{name} must begin with <unk>, <s> and </s>. Received: {list(ids)[:3]}"
            )
        ids = {text: token + _FAIRSEQ_OFFSET for text, token in ids.items()} | _FAIRSEQ_IDS
    added = folder.added_tokens(first_id=len(table.pieces) + _FAIRSEQ_OFFSET)
    languages = {name: token for name, token in added.items() if re.fullmatch(language, name)}
    controls = [name for name in added if name not in _FAIRSEQ_IDS]
    return _multilingual(
        folder, table, ids | added, controls, languages, [], source_language, target_language
    )


def _multilingual(folder, table, ids, controls, languages, notes, *given):
    """Both sides of a model with a token for each language, which starts with EOS."""
    if not languages:
        raise ValueError(
            "a tokenizer's folder must name the languages: tokenizer.json, tokenizer_config.json, "
            f"added_tokens.json or special_tokens_map.json. Received: {folder.path}"
        )
    special_ids = folder.special_ids(
        pad_id=_special("<pad>", ids),
        unk_id=_special("<unk>", ids),
        bos_id=folder.number("decoder_start_token_id", _special("</s>", ids)),
        eos_id=_special("</s>", ids),
    )
    size = folder.number("vocab_size", max(ids.values()) + 1)
    tokenizer = renumbered(table, ids, special_ids, size, controls=controls)
    sides = []
    for side, short, language in zip(("source", "target"), ("src", "tgt"), given, strict=True):
        language = language or folder.settings.get(f"{short}_lang")
        if language is None and side == "target":
            language = _forced_language(folder, languages)
        if language is None:
            raise ValueError(
                f"`{side}_language` must be given for a model of several languages: one of "
                f"{list(languages)}. Received: None"
            )
        check_name(f"`{side}_language`", str(language), list(languages), cutoff=0.3)
        sides.append(tokenizer.with_prefix([languages[language]]))
    return ReadTokenizers(*sides, tuple(notes))


def _forced_language(folder, languages):
    """The language that a model was made to begin its targets with, if any."""
    forced = folder.json("generation_config.json", {}).get("forced_bos_token_id")
    forced = folder.config.get("forced_bos_token_id") if forced is None else forced
    return next((name for name, token in languages.items() if token == forced), None)


_READERS = {"marian": _marian, "t5": _t5, "mt5": _t5, "m2m_100": _m2m_100, "mbart": _mbart}
