"""The tokenizers of a run: learnt from its corpus or read from files, kept in its folder."""

from typing import NamedTuple

from keras_transformer.text import (
    BytesTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    VocabularyTokenizer,
    find_tokenizer,
    load_tokenizer,
)

SOURCE_NAME = "tokenizer"
TARGET_NAME = "target_tokenizer"


class Tokenizers(NamedTuple):
    """One for each side; a joint vocabulary is one object twice."""

    source: Tokenizer
    target: Tokenizer

    @property
    def are_joint(self):
        return self.source is self.target

    def config_fields(self):
        """The fields of a `TransformerConfig` that tokenizers decide.

        Raises:
            ValueError: if the two differ in a special id, of which a model has one set.
        """
        names = ("pad_id", "unk_id", "bos_id", "eos_id")
        ids = {name: getattr(self.source, name) for name in names}
        others = {name: getattr(self.target, name) for name in names}
        if ids != others:
            raise ValueError(
                "both tokenizers must have the same special ids. "
                f"Received: source {ids}, target {others}"
            )
        fields = {"vocab_size": self.source.vocab_size, **ids}
        if not self.are_joint:
            fields["target_vocab_size"] = self.target.vocab_size
        return fields

    def save(self, folder):
        """Writes `tokenizer.*`, and `target_tokenizer.*` where there is one."""
        self.source.save(folder / f"{SOURCE_NAME}{self.source.file_suffix}")
        if not self.are_joint:
            self.target.save(folder / f"{TARGET_NAME}{self.target.file_suffix}")

    @classmethod
    def load(cls, folder):
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: if there is none.
        """
        source = find_tokenizer(folder, SOURCE_NAME)
        if source is None:
            raise FileNotFoundError(f"a run folder must hold its tokenizer. Received: {folder}")
        source, target = load_tokenizer(source), find_tokenizer(folder, TARGET_NAME)
        return cls(source, source if target is None else load_tokenizer(target))

    @classmethod
    def make(cls, section, corpus):
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


def _learn(section, sentences):
    kinds = {
        "sentencepiece": SentencePieceTokenizer,
        "vocabulary": VocabularyTokenizer,
        "characters": CharacterTokenizer,
    }
    if section.type == "bytes":
        return BytesTokenizer()
    return kinds[section.type].train(sentences, **section.options())
