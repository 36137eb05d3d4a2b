"""The tokenizers of a run: learnt from its corpus or read from files, kept in its folder."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.experiment.experiment import section_from_text
from keras_transformer.experiment.sections import TokenizerSection
from keras_transformer.presets.folder import SOURCE_TOKENIZER, TARGET_TOKENIZER
from keras_transformer.presets.record import MODEL_FILE, check_record
from keras_transformer_runner.atomic import locked, write_file
from keras_transformer_runner.folders import check_writable
from keras_transformer_runner.lines import check_file, read_lines
from keras_transformer_runner.streams import log
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    VocabularyTokenizer,
    find_tokenizer,
    load_tokenizer,
)
from keras_transformer_runner.tokenizers.base import check_special_ids

_SAY_EVERY = 1_000_000


class Tokenizers(NamedTuple):
    """The tokenizers of a model, one for each side; a joint vocabulary is one object twice.

    Example:
        >>> from keras_transformer.experiment import Tokenizers
        >>> letters = kt.CharacterTokenizer("abc")
        >>> Tokenizers(letters, letters).config_fields()
        {'vocab_size': 7, 'pad_id': 0, 'unk_id': 1, 'bos_id': 2, 'eos_id': 3}
        >>> Tokenizers(letters, kt.BytesTokenizer()).config_fields()["target_vocab_size"]
        260
    """

    source: Tokenizer
    target: Tokenizer

    @property
    def are_joint(self) -> bool:
        return self.source is self.target

    def config_fields(self) -> dict[str, int]:
        """The fields of a `TransformerConfig` that tokenizers decide.

        Raises:
            ValueError: if the two differ in a special id, of which a model has one set.
        """
        check_special_ids(*self)
        fields = {"vocab_size": self.source.vocab_size, **self.source.special_ids._asdict()}
        if not self.are_joint:
            fields["target_vocab_size"] = self.target.vocab_size
        return fields

    def save(self, folder: Path) -> None:
        """Writes `tokenizer.*`, and `target_tokenizer.*` where there is one."""
        self.source.save(folder / f"{SOURCE_TOKENIZER}{self.source.file_suffix}")
        if not self.are_joint:
            self.target.save(folder / f"{TARGET_TOKENIZER}{self.target.file_suffix}")

    @classmethod
    def load(cls, folder: Path) -> "Tokenizers":
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if they are not those that the run's record tells of.
        """
        check_record(folder, cls.files(folder), unread={MODEL_FILE})
        source, target = (
            find_tokenizer(folder, name) for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)
        )
        if source is None:
            raise FileNotFoundError(f"a run folder must hold its tokenizer. Received: {folder}")
        source = load_tokenizer(source)
        return cls(source, source if target is None else load_tokenizer(target))

    @staticmethod
    def files(folder: Path) -> list[str]:
        """The names of the files that `load` reads."""
        paths = (find_tokenizer(folder, name) for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER))
        return [path.name for path in paths if path is not None]

    @classmethod
    def make(cls, section: TokenizerSection, corpus: Iterable[tuple[str, str]]) -> "Tokenizers":
        """The tokenizers that a `TokenizerSection` asks for.

        Args:
            section: The section.
            corpus: Iterable of `(source, target)` strings, to learn from.

        Raises:
            FileNotFoundError, ValueError: as the tokenizers' own `train` and `load`.
        """
        if section.file:
            source = load_tokenizer(section.file)
            target = load_tokenizer(section.target_file) if section.target_file else source
            return cls(source, target)
        if section.joint:
            joint = _learn(section, (text for pair in corpus for text in pair))
            return cls(joint, joint)
        return cls(*(_learn(section, (pair[side] for pair in corpus)) for side in (0, 1)))


def learn_tokenizer(
    files: Iterable[os.PathLike | str],
    output: os.PathLike | str,
    options: dict[str, Any] | None = None,
) -> Tokenizer:
    """Learns one tokenizer from text files and writes it.

    Args:
        files: Text files, a sentence a line; may be gzip.
        output: The file to write: `.model` for SentencePiece, `.json` for the others.
        options: Keys of the section `[tokenizer]` of an experiment, with values as TOML or text.

    Returns:
        The `Tokenizer`.

    Raises:
        FileExistsError: if `output` exists.
        TargetInUseError: if another process is writing it.
        FileNotFoundError: if a file does not.
        ValueError: if an option or a file is wrong, or `output` has another suffix.

    Example:
        >>> from keras_transformer.experiment import learn_tokenizer
        >>> with open("train.txt", "w") as file:
        ...     _ = file.write("a man\\na woman\\n")
        >>> tokenizer = learn_tokenizer(["train.txt"], "words.json", {"type": "vocabulary"})
        >>> tokenizer.pieces[4:]
        ['a', 'man', 'woman']
        >>> kt.load_tokenizer("words.json").encode("a woman")
        [4, 6]
    """
    section = section_from_text("tokenizer", options or {})
    output = Path(output)
    suffix = ".model" if section.type == "sentencepiece" else ".json"
    if output.suffix != suffix:
        raise ValueError(f"`output` must end in {suffix} for {section.type!r}. Received: {output}")
    check_writable(output)
    with locked(output) as path:
        if path.exists():
            raise FileExistsError(f"a tokenizer needs a new file. Received: {output}")
        for file in files:
            check_file(file)
        made = _learn(section, (line for file in files for line in read_lines(file, plain=True)))
        write_file(path, lambda temporary: temporary.write_bytes(made.to_bytes()), lock=False)
    return made


def _counted(sentences):
    """Yields the sentences, and logs now and then how many have been read."""
    number = 0
    for number, sentence in enumerate(sentences, start=1):
        if number % _SAY_EVERY == 0:
            log(f"vocabulary: {number:,} sentences read")
        yield sentence
    log(f"vocabulary: {number:,} sentences read; learning from them")


def _learn(section, sentences):
    kinds = {
        "sentencepiece": SentencePieceTokenizer,
        "vocabulary": VocabularyTokenizer,
        "characters": CharacterTokenizer,
    }
    if section.type == "bytes":
        return BytesTokenizer()
    return kinds[section.type].train(_counted(sentences), **section.options())
