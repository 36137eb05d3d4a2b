"""`Runner`: texts in, texts out, with an exported LiteRT folder."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from keras_transformer_runner.incremental_text import growing_text
from keras_transformer_runner.lengths import signatures_of
from keras_transformer_runner.model import DeviceModel, check_size
from keras_transformer_runner.sentences import translate_texts
from keras_transformer_runner.tokenizers.base import check_text_size, fits_size
from keras_transformer_runner.translation import Translation

_IMPOSSIBLE = -1e29  # below it, a score says that the search has found no such hypothesis


class Runner(DeviceModel):
    """Answers texts with an exported folder. Calls from several threads take turns.

    The model's file is mapped into memory, not read: it must stay as it is while it is in use.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> model = kt.Transformer(config)
        >>> report = kt.export_litert(model, tokenizer, "device", samples=["A man rides."])
        >>> runner = kt.Runner("device")
        >>> runner.metadata["signature"]
        'translate'
        >>> translations = runner.translate(["Hello.", ""])
        >>> len(translations), translations[1]
        (2, '')

    Args:
        folder: What an export for devices wrote.
        num_threads: Threads of the interpreter, at most 256. One is fastest for one sentence at a
            time.
        weight_cache: A folder for packed weights, made if missing, or `None`. The first model
            packs its weights into a file there, and all later ones map that, which takes less
            memory and is the same to the bit. Whoever may write there is trusted as whoever wrote
            `folder`. `stream` packs a copy of its own into memory.

    Attributes:
        metadata: What the folder says of itself, a dict.

    Raises:
        FileNotFoundError: if the folder or one of its files is missing.
        ValueError: if a file is damaged, or does not belong to the others; with `weight_cache`,
            if the folder is of an export that did not say how large its outputs are.
        OSError: if packed weights cannot be written to `weight_cache`.
        RuntimeError: if this ai-edge-litert cannot keep them: 2.1.5 and later can.
    """

    def translate(self, texts: Iterable[str]) -> list[str]:
        """A translation for each text, in order; an empty text gives an empty one.

        Args:
            texts: Sequence of `str`.

        Raises:
            TypeError: if `texts` is one string, or holds anything but strings.
            ValueError: if a text has more tokens than `max_source_length`, or the model does not
                translate.
        """
        self._check_kind("translate")
        rows = [self.encode(text) for text in _listed(texts)]
        for row in rows:  # all of them, before the first takes time
            self._checked(row)
        return [self.decode(self.translate_ids(row)) for row in rows]

    def translate_text(self, text: str, *, language: str = "") -> str:
        """The translation of a text of several sentences, its line breaks and spaces kept.

        It is split into sentences by the rule of docs/whole_texts.md, and one that is too long is
        cut. The translation of each is that of `translate`; an empty text gives an empty one.

        Args:
            text: A `str`.
            language: A BCP 47 tag such as `"de"`, that of the text: its abbreviations end no
                sentence.

        Raises:
            TypeError: if `text` or `language` is no string.
            ValueError: if `language` is no such tag, or the model does not translate.
            ImportError: if icu4py is not installed.
        """
        self._check_kind("translate")
        return translate_texts([text], self.translate, self.fits, language)[0]

    def fits(self, text: str) -> bool:
        """Whether a text has at most `max_source_length` tokens."""
        longest = self.metadata["max_source_length"]
        return fits_size(text, longest) and len(self.encode(text)) <= longest

    @property
    def n_best(self) -> int:
        """How many answers to a text the file gives, by `..._with_details`; 0 without scores."""
        if "scores" not in self._answer_outputs():
            return 0
        return self.metadata["search"].get("n_best", 1)

    def generate(self, prompts: Iterable[str]) -> list[str]:
        """For each prompt, in order, the text that begins with it and that the model went on with.

        Args:
            prompts: Sequence of `str`; an empty one starts from nothing.

        Raises:
            TypeError, ValueError: as `translate`; of a model that does not continue prompts.
        """
        self._check_kind("generate")
        rows = [self.encode(text) for text in _listed(prompts)]
        return [self.decode(self.generate_ids(row)) for row in rows]

    def translate_with_details(
        self, texts: Iterable[str], *, n_best: int | None = None
    ) -> list[list[Translation]]:
        """What the search has found for each text, in order, best first.

        Args:
            texts: Sequence of `str`.
            n_best: Answers to each; as many as the file gives when `None`. There are fewer where
                the search finds fewer.

        Returns:
            A list of lists of `Translation`. Text 0 of each is that of `translate`.

        Raises:
            TypeError: as `translate`.
            ValueError: as `translate`, or if the file gives no scores, or not as many answers.
        """
        self._check_kind("translate")
        return self._all_hypotheses(texts, n_best)

    def generate_with_details(
        self, prompts: Iterable[str], *, n_best: int | None = None
    ) -> list[list[Translation]]:
        """What the search has found for each prompt, in order, best first.

        Args:
            prompts: Sequence of `str`.
            n_best: See `translate_with_details`.

        Returns:
            A list of lists of `Translation`, whose texts begin with the prompt and whose score is
            that of the whole. Text 0 of each is that of `generate`.

        Raises:
            TypeError, ValueError: as `translate_with_details`; of a model that does not continue
                prompts.
        """
        self._check_kind("generate")
        return self._all_hypotheses(prompts, n_best)

    def _all_hypotheses(self, texts, n_best):
        outputs = self._answer_outputs()
        if "scores" not in outputs:
            raise ValueError(
                "scores must be in the file: export with `BeamSearch` or `Greedy(scores=True)`. "
                f"Received: outputs {outputs}"
            )
        if n_best is not None:
            check_size(n_best=n_best)
        return [self._hypotheses(self.encode(text), n_best) for text in _listed(texts)]

    def _answer_outputs(self):
        return self._tensors[signatures_of(self.metadata)[0]]["outputs"]

    def stream(self, text: str) -> Iterator[str]:
        """The answer to one text in pieces, each as soon as nothing can change it.

        Together they are the text that `translate` gives, or `generate`: the prompt comes first.

        Args:
            text: A `str`.

        Returns:
            An iterator over `str`, none of them empty.

        Raises:
            TypeError: if `text` is no string.
            ValueError: as `translate`, or if the file cannot decode step by step; of a model that
                has classes.
        """
        is_prompt = self.metadata["signature"] == "generate"
        self._check_kind("generate" if is_prompt else "translate")
        if "next_ids" not in self.step_outputs:
            needed = (
                "signature 'decode_step'" if is_prompt else "signatures 'encode' and 'decode_step'"
            )
            name = "LANGUAGE_MODEL_SIGNATURES" if is_prompt else "SIGNATURES"
            raise ValueError(
                f"a stream must have a file of a greedy search with the {needed}: export with "
                f"`Greedy()` and `signatures={name}`. Received: signatures {sorted(self._tensors)}"
            )
        if not isinstance(text, str):
            raise TypeError(f"`text` must be a string. Received: {type(text).__name__}")
        return growing_text(self.steps(self._checked(self.encode(text))), self._target_tokenizer)

    # --- Text to classes -------------------------------------------------------------------

    def classify(self, texts: Iterable[str]) -> list[np.ndarray]:
        """The probability of each class for each text, in order.

        Args:
            texts: Sequence of `str`.

        Returns:
            A list of float32 arrays: (C,) of a model that classifies texts, (S, C) of one that
            classifies tokens, for those of `encode(text)`.

        Raises:
            TypeError, ValueError: as `translate`; of a model that has no classes.
        """
        self._check_kind("classify")
        return [self.classify_ids(self.encode(text)) for text in _listed(texts)]

    def encode(self, text: str) -> list[int]:
        """The ids of one text as the model takes them: EOS at the end, but of a prompt."""
        check_text_size(text, self.metadata["max_source_length"])
        ids = self._tokenizer.encode(text)
        ends = self.metadata["signature"] != "generate" and self.metadata.get("adds_eos", True)
        return [*ids, self.metadata["eos_id"]] if ends else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids that `translate_ids` or `generate_ids` gave."""
        return self._target_tokenizer.decode(ids)

    def _hypotheses(self, ids, n_best):
        is_prompt = self.metadata["signature"] == "generate"
        checked = self._checked(ids)
        outputs = self._answer(self._prompt(checked) if is_prompt else checked)
        rows, scores = outputs["hypotheses"][0].tolist(), outputs["scores"][0].tolist()
        if n_best is not None and n_best > len(rows):
            raise ValueError(
                f"`n_best` must be at most what the file gives, {len(rows)}: export with a larger "
                f"`n_best`, which is `export --n-best N`. Received: n_best={n_best}"
            )
        if len(ids) == 1 and not is_prompt:
            n_best = 1  # nothing has one translation, which is empty
        pad_id, eos_id = self.metadata["pad_id"], self.metadata["eos_id"]
        found = []
        for row, score in zip(rows[:n_best], scores, strict=False):
            if score > _IMPOSSIBLE:
                tokens = tuple(token for token in row if token != pad_id)
                is_cut = bool(tokens) and tokens[-1] != eos_id
                found.append(Translation(self.decode(self._content(row)), tokens, score, is_cut))
        return found


def _listed(texts):
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"`texts` must be a list of strings. Received: {texts!r}")
    return texts
