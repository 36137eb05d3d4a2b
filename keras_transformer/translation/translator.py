"""Text to text in Python: tokenize, batch by length, decode, detokenize."""

import functools
from collections.abc import Iterable, Iterator, Sequence

import keras
import numpy as np

from keras_transformer.arguments import check_flag, check_size
from keras_transformer.decoding import Greedy, align, decode, score
from keras_transformer.decoding.checked_ids import check_one_source, checked_rows
from keras_transformer.decoding.compiled import compiled
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.shortlist import Shortlist, candidate_inputs, check_shortlist
from keras_transformer.translation.arguments import (
    check_prefixes_and_shortlists,
    check_tokenizer,
    integers,
    listed,
)
from keras_transformer.translation.copy_unknown import source_words, with_source_words
from keras_transformer.translation.presets import TranslatorPresets
from keras_transformer.translation.streaming import TokenStream
from keras_transformer.translation.translation import hypotheses_of, with_scores
from keras_transformer.typing import Tensor
from keras_transformer_runner.incremental_text import growing_text
from keras_transformer_runner.sentences import translate_texts
from keras_transformer_runner.tokenizers.base import check_text_size, fits_size
from keras_transformer_runner.translation import Translation


class Translator(TranslatorPresets):
    """Translates lists of strings with a model and its tokenizer.

    Sentences are sorted by length and decoded in batches; each gets the text that it would get
    alone. A second call traces nothing.

    Ids that tell the model a language, or a task, are the `prefix_ids` of the tokenizers: before
    each source those of the source's, and each translation starts with those of the target's. So
    `Translator(model, tokenizer.with_prefix(["eng_Latn"]),
    target_tokenizer=tokenizer.with_prefix(["deu_Latn"]))` translates English to German. The
    target's are told and not predicted: they stand in `ids`, with log-probability 0, and count as
    tokens, but in no text.

    Args:
        model: A `Transformer` or an `Ensemble`.
        tokenizer: The tokenizer that it was trained with; that of the source, if the target has
            another.
        strategy: A search, such as `BeamSearch()`; `Greedy()` when `None`.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        batch_size: Sentences a batch.
        max_source_length: Longest source in tokens, EOS included. A longer one is an error, since
            a text that is cut gets only half a translation. A model with learned positions also
            limits it to `max_positions`.
        replace_unknown: Whether an unknown word of a translation becomes the source's word that
            it is aligned to (see `align`; Luong et al. 2015, arXiv 1410.8206). It takes one more
            pass over sentences with an unknown word, and a `Transformer`.
        jit_compile: Whether XLA compiles the search on TensorFlow. This makes greedy search
            faster, and beam search on a CPU not. It takes seconds for each new size, so batches
            are filled up to a power of two of rows and a multiple of 16 columns. It pays off for
            many sentences.
        shortlist: A `Shortlist`: only its candidates of a source are computed and chosen, which
            makes a step cheaper; `None` for the whole vocabulary. Scores are of the candidates'
            distribution then. A forced prefix need not be among them.

    Raises:
        TypeError: if `model` has no encoder or no decoder; a `LanguageModel` continues prompts
            with `decoding.generate`.
        ValueError: if a tokenizer or the shortlist and the model disagree on the vocabulary or a
            special id.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(
        ...     vocab_size=tokenizer.vocab_size,
        ...     model_dim=6,
        ...     num_heads=2,
        ...     encoder_layers=1,
        ...     decoder_layers=1,
        ...     intermediate_dim=7,
        ...     **tokenizer.special_ids._asdict(),
        ... )
        >>> translator = kt.Translator(kt.Transformer(config), tokenizer, kt.Greedy(max_length=3))
        >>> len(translator.translate(["a man", "a dog", ""]))
        3
        >>> translator.save_to_preset("preset", license="MIT")
        >>> kt.Translator.from_preset("preset").strategy.max_length
        3
    """

    def __init__(
        self,
        model,
        tokenizer,
        strategy: SearchOptions | None = None,
        *,
        target_tokenizer=None,
        batch_size: int = 64,
        max_source_length: int = 1024,
        replace_unknown: bool = False,
        jit_compile: bool = False,
        shortlist: Shortlist | None = None,
    ):
        if not all(hasattr(model, name) for name in ("config", "encode", "start", "step")):
            raise TypeError(
                "`model` must be a `Transformer`, or have its `config`, `encode`, `start` and "
                f"`step`. Received: {type(model).__name__}"
            )
        target_tokenizer = target_tokenizer or tokenizer
        check_tokenizer(tokenizer, "tokenizer", model.config, model.config.vocab_size)
        check_tokenizer(
            target_tokenizer, "target_tokenizer", model.config, model.config.target_size
        )
        check_size(batch_size=batch_size, max_source_length=max_source_length)
        check_flag(replace_unknown=replace_unknown, jit_compile=jit_compile)
        if shortlist is not None:
            check_shortlist(shortlist, model.config)
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer
        # A tokenizer need not be a `Tokenizer`.
        self.target_prefix_ids = tuple(getattr(target_tokenizer, "prefix_ids", ()))
        self.strategy = strategy or Greedy()
        self.batch_size = batch_size
        self.max_source_length = min(
            max_source_length, model.config.max_positions or max_source_length
        )
        self.replace_unknown = replace_unknown
        self.jit_compile = jit_compile
        self.shortlist = shortlist
        self.strategy.check_ids(model.config, model.config.target_size)
        # Graphs are traced when they first run: one that nobody calls costs nothing.
        self._score = compiled(functools.partial(score, model), model, 2)
        self._align = compiled(functools.partial(align, model), model, 2)
        self._searches = {}  # graphs by search and names of further inputs

    def translate(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str | Iterable[int]] | None = None,
        allowed_ids: Sequence[Iterable[int]] | None = None,
    ) -> list[str]:
        """A translation for each text, in order; an empty text gives an empty one.

        Args:
            texts: Sequence of `str`.
            prefixes: As many `str`, or collections of target ids, which each translation must
                begin with (behind the tokenizer's own `prefix_ids`), or `None`. The words after it
                are chosen as if the model had chosen the prefix.
            allowed_ids: As many collections of target ids, a lexical shortlist: the only ids
                beside EOS that each translation may go on with; or `None`.

        Raises:
            TypeError: if `texts` or `prefixes` is one string.
            ValueError: if a text is longer than `max_source_length` tokens, the numbers differ,
                or an id lies outside the vocabulary.
        """
        texts = listed("texts", texts)
        sources = [*map(self.source_ids, texts)]
        inputs = self._further_inputs(len(sources), prefixes, allowed_ids)
        translations = [""] * len(sources)
        for chosen in self._batches(sources):
            result = self._search(self.strategy, sources, inputs, chosen)
            for index, row in zip(chosen, self._content(result.ids), strict=True):
                translations[index] = self._text(texts[index], sources[index], row)
        return translations

    def translate_text(self, text: str, *, language: str = "") -> str:
        """The translation of a text of several sentences, its line breaks and spaces kept.

        It is split into sentences by the rule of docs/whole_texts.md, and one that is too long is
        cut. All are translated as one list; each gets what `translate` gives it.

        Args:
            text: A `str`; an empty one gives an empty one.
            language: A BCP 47 tag such as `"de"`, that of the text: its abbreviations end no
                sentence.

        Raises:
            TypeError: if `text` or `language` is no string.
            ValueError: if `language` is no such tag.
            ImportError: if icu4py is not installed.
        """
        return translate_texts([text], self.translate, self.fits, language)[0]

    def fits(self, text: str) -> bool:
        """Whether a text has at most `max_source_length` tokens, EOS included."""
        longest = self.max_source_length
        return fits_size(text, longest) and len(self.tokenizer.encode(text)) < longest

    def translate_with_details(
        self,
        texts: Sequence[str],
        *,
        n_best: int | None = None,
        alignments: bool = False,
        prefixes: Sequence[str | Iterable[int]] | None = None,
        allowed_ids: Sequence[Iterable[int]] | None = None,
    ) -> list[list[Translation]]:
        """The hypotheses that the search finds for each text, in order, with scores.

        Args:
            texts, prefixes, allowed_ids: See `translate`.
            n_best: Translations of each; as many as the strategy gives when `None`. There are
                fewer if the search finds fewer.
            alignments: Whether to return source positions, which takes one more pass.

        Returns:
            A list of lists of `Translation`. The first of each list has the text of `translate`.
            An empty text has one, which is empty, with score 0.

        Raises:
            TypeError: if `texts` is one string, or `alignments` is true for an `Ensemble`.
            ValueError: as `translate`, or if the strategy cannot find as many.
        """
        search = with_scores(self.strategy, n_best)
        texts = listed("texts", texts)
        sources = [*map(self.source_ids, texts)]
        inputs = self._further_inputs(len(sources), prefixes, allowed_ids)
        found = [None] * len(sources)
        for chosen in self._batches(sources):
            result = self._search(search, sources, inputs, chosen)
            fields = [keras.ops.convert_to_numpy(field) for field in result.hypotheses]
            for index, *row in zip(chosen, *fields, strict=True):
                hypotheses = hypotheses_of(*row, self.model.config)
                if len(sources[index]) == 1:
                    hypotheses = hypotheses[:1]
                found[index] = [
                    self._translation(texts[index], sources[index], hypothesis, alignments)
                    for hypothesis in hypotheses
                ]
        return found

    def score(
        self, sources: Sequence[str], targets: Sequence[str | Iterable[int]]
    ) -> list[Translation]:
        """What the model thinks of given translations.

        Args:
            sources: Sequence of `str`.
            targets: As many translations: a `str`, which is tokenized and ended by EOS, or the
                `ids` of a `Translation`, since a text may have several rows of ids.

        Returns:
            A list of `Translation`, with the numbers that the search reports for the same ids
            (without coverage or repetition penalties, which are not the model's).

        Raises:
            TypeError: if `sources` or `targets` is one string.
            ValueError: if their numbers differ, or one is too long.
        """
        sources, targets = listed("sources", sources), listed("targets", targets)
        if len(sources) != len(targets):
            raise ValueError(
                "`sources` and `targets` must be as many. Received: "
                f"{len(sources)} and {len(targets)}"
            )
        source_rows = [*map(self.source_ids, sources)]
        target_rows = [*map(self._target_ids, targets)]
        told = self.target_prefix_ids
        found = [None] * len(sources)
        for chosen in self._batches(source_rows):
            rows = [self.pad([each[i] for i in chosen]) for each in (source_rows, target_rows)]
            log_probs = keras.ops.convert_to_numpy(self._score(*rows).log_probs)
            for index, values in zip(chosen, log_probs, strict=True):
                ids = tuple(target_rows[index])
                if len(source_rows[index]) == 1 and ids == (*told, self.model.config.eos_id):
                    ids = ()  # the same as a search gives
                values = tuple(float(value) for value in values[: len(ids)])
                if told and ids[: len(told)] == told:
                    values = (*[0.0] * len(told), *values[len(told) :])
                found[index] = Translation(
                    self.target_tokenizer.decode(ids),
                    ids,
                    float(self.strategy.score_of(sum(values), len(ids))),
                    truncated=bool(ids) and ids[-1] != self.model.config.eos_id,
                    token_log_probs=values,
                )
        return found

    def stream(self, text: str) -> Iterator[str]:
        """Yields the translation of one text in pieces, each as soon as nothing can change it.

        Together they are the text that `translate` gives.

        Args:
            text: A `str`.

        Returns:
            An iterator over `str`, none of them empty.

        Raises:
            TypeError: if `text` is no string.
            ValueError: if the strategy is neither `Greedy` nor `Sampling` of one sample, or the
                text is longer than `max_source_length` tokens.
        """
        if not isinstance(text, str):
            raise TypeError(f"`text` must be a string. Received: {type(text).__name__}")
        source, config = self.source_ids(text), self.model.config
        stream = self._stream(self.pad([source]))
        tokens = (token for token in stream if token != config.pad_id)
        finish = None
        if self.replace_unknown:
            finish = functools.partial(self._text, text, source)
        return growing_text(tokens, self.target_tokenizer, finish)

    def translate_ids(self, source_ids: Tensor) -> list[list[int]]:
        """(B, S) int ids, pieces and EOS, then pads -> list of B lists of ids, without EOS or pads.

        Raises:
            TypeError: if `source_ids` are not rows of integers.
            ValueError: if an id lies outside [0, vocab_size), or a row is longer than
                `max_source_length` tokens.
        """
        config = self.model.config
        source_ids = np.asarray(source_ids)
        if not len(source_ids):
            return []
        if source_ids.ndim != 2 or (source_ids.size and source_ids.dtype.kind not in "iu"):
            raise TypeError(
                "`source_ids` must be (B, S) integers. Received: "
                f"shape={source_ids.shape}, dtype={source_ids.dtype}"
            )
        if source_ids.size and not (source_ids.min() >= 0 and source_ids.max() < config.vocab_size):
            raise ValueError(
                f"ids must lie in [0, {config.vocab_size}). Received: "
                f"{source_ids.min()} to {source_ids.max()}"
            )
        checked_rows("source_ids", source_ids, config.vocab_size, config.pad_id)
        check_one_source(source_ids, config)
        is_real = source_ids != config.pad_id
        width = int(np.flatnonzero(is_real.any(axis=0)).max(initial=0)) + 1
        if width > self.max_source_length:
            raise ValueError(
                f"a source must have at most `max_source_length` = {self.max_source_length} "
                f"tokens. Received: {width}"
            )
        source_ids = source_ids[:, :width].astype("int32")
        rows = self._further_inputs(len(source_ids), None, None)
        arrays = [self.pad(each) for each in rows.values()]
        return self._content(self._searcher(self.strategy, *rows)(source_ids, *arrays).ids)

    @functools.cached_property
    def _stream(self):
        return TokenStream(self.model, self.strategy, self.target_prefix_ids, self.shortlist)

    def _searcher(self, search, *names):
        """The graph of a search, of source ids and of the inputs of `decode` of these names."""
        if (search, names) not in self._searches:
            jit_compile = self.jit_compile and keras.backend.backend() == "tensorflow"

            def run(source_ids, *arrays):
                inputs = dict(zip(names, arrays, strict=True))
                options = dict(jit_compile=jit_compile, for_this_cpu=True)
                options["unscored_prefix"] = len(self.target_prefix_ids)
                options |= candidate_inputs(self.shortlist, source_ids, self.model.config.pad_id)
                return decode(self.model, source_ids, search, **options, **inputs)

            self._searches[search, names] = compiled(run, self.model, 1 + len(names), jit_compile)
        return self._searches[search, names]

    def _search(self, search, sources, inputs, chosen):
        """The `DecodingResult` of the sources of these indices."""
        rows = (sources, *inputs.values())
        arrays = (self.pad([each[index] for index in chosen]) for each in rows)
        return self._searcher(search, *inputs)(*arrays)

    def _further_inputs(self, count, prefixes, allowed_ids):
        """The inputs of `decode` beside the source: lists of rows of ids, by their names."""
        inputs, config = {}, self.model.config
        if prefixes is not None:
            prefixes = listed("prefixes", prefixes)
            inputs["prefix_ids"] = [self._prefix(each) for each in prefixes]
        elif self.target_prefix_ids:
            inputs["prefix_ids"] = [[*self.target_prefix_ids]] * count
        if allowed_ids is not None:
            # EOS is always allowed, and stands for an empty list.
            rows = listed("allowed_ids", allowed_ids, "rows of ids")
            rows = [integers("allowed_ids", ids) or [config.eos_id] for ids in rows]
            inputs["allowed_ids"] = rows
        check_prefixes_and_shortlists(inputs, count, config.target_size)
        return inputs

    def _prefix(self, prefix):
        """The ids that a translation begins with, from a text or ids."""
        if isinstance(prefix, str):
            return self.target_tokenizer.encode(prefix) or [*self.target_prefix_ids]
        ids, config = integers("prefixes", prefix), self.model.config
        if config.eos_id in ids[:-1] or config.pad_id in ids:
            raise ValueError(
                "`prefixes` must hold no pad, and EOS at most at the end of one. Received: "
                f"{ids}, where pad is {config.pad_id} and EOS {config.eos_id}"
            )
        return [*self.target_prefix_ids, *ids]

    def _content(self, ids):
        """(B, T) ids as lists without EOS and pads."""
        left_out = (self.model.config.pad_id, self.model.config.eos_id)
        return [
            [int(token) for token in row if token not in left_out]
            for row in keras.ops.convert_to_numpy(ids)
        ]

    def _batches(self, sources):
        """Yields lists of indices of sources of about one length."""
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        for first in range(0, len(order), self.batch_size):
            yield order[first : first + self.batch_size]

    def _target_ids(self, target):
        """The ids of a target, which is a text or ids."""
        config = self.model.config
        if isinstance(target, str):
            ids = self.target_tokenizer.encode(target) or self.target_prefix_ids
            target = [*ids, config.eos_id]
        ids = [int(token) for token in target]
        longest = config.max_positions
        if longest is not None and len(ids) > longest:
            raise ValueError(f"a target must have at most {longest} tokens. Received: {len(ids)}")
        if not all(0 <= token < config.target_size for token in ids):
            raise ValueError(f"ids must lie in [0, {config.target_size}). Received: {ids}")
        return ids

    def _positions(self, source, ids):
        """The source position of each id of one row."""
        rows = (self.pad([row]) for row in (source, ids))
        found = keras.ops.convert_to_numpy(self._align(*rows).positions)[0]
        return [int(position) for position in found[: len(ids)]]

    def _text(self, text, source, ids):
        """The text of a row of ids, with words of the source text if `replace_unknown`."""
        if not self.replace_unknown or self.model.config.unk_id not in ids:
            return self.target_tokenizer.decode(ids)
        words = source_words(self.tokenizer, text)
        positions = self._positions(source, ids)
        return with_source_words(self.target_tokenizer, list(ids), positions, words)

    def _translation(self, text, source, hypothesis, alignments):
        ids, score, log_probs, truncated = hypothesis
        content = [token for token in ids if token != self.model.config.eos_id]
        alignment = None
        if alignments:
            alignment = tuple(self._positions(source, ids)) if ids else ()
        text = self._text(text, source, content)
        return Translation(text, ids, score, truncated, log_probs, alignment)

    def source_ids(self, text: str) -> list[int]:
        """The ids of one text, with EOS at the end: what the encoder reads."""
        check_text_size(text, self.max_source_length)
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_id]
        if len(ids) > self.max_source_length:
            raise ValueError(
                f"a text must have at most `max_source_length` = {self.max_source_length} tokens. "
                f"Received: {len(ids)} tokens, {text[:60]!r}…"
            )
        return ids

    def pad(self, rows: list[list[int]]) -> np.ndarray:
        """Lists of ids -> (B, longest) int32 with pads."""
        return pad_rows(rows, self.tokenizer.pad_id)


def pad_rows(rows, pad_id):
    """Lists of ids -> (B, longest) int32, at least one column wide, with pads at the end."""
    padded = np.full((len(rows), max(1, *map(len, rows))), pad_id, "int32")
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded
