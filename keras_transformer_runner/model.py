"""An exported LiteRT file as functions of ids. Needs NumPy and ai-edge-litert, nothing else."""

import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from keras_transformer_runner.folder import METADATA_FILE, open_folder
from keras_transformer_runner.freed_memory import keep_freed_memory
from keras_transformer_runner.lengths import fixed_lengths, signatures_of

# What each kind of model answers with, by the name of its signature: its input and its output.
_TENSORS = {
    "translate": ("source_ids", "target_ids"),
    "generate": ("prompt_ids", "target_ids"),
    "classify": ("source_ids", "logits"),
}
_MOST_THREADS = 256  # LiteRT starts as many as it is told to


def check_size(**sizes):
    """Raises ValueError unless every named argument is a positive integer."""
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")


class DeviceModel:
    """Answers ids with an exported folder, for apps that tokenize themselves.

    `Runner`, which also takes texts, documents the arguments, the attribute `metadata` and the
    errors.

    Example:
        >>> import keras_transformer_runner
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> report = kt.export_classifier(kt.SequenceClassifier(config, num_classes=3), tokenizer,
        ...     "classifier", samples=["A man rides."])
        >>> model = keras_transformer_runner.DeviceModel("classifier")
        >>> model.classify_ids([36, 37, tokenizer.eos_id]).shape
        (3,)
    """

    def __init__(
        self,
        folder: os.PathLike | str,
        *,
        num_threads: int = 1,
        weight_cache: os.PathLike | str | None = None,
    ):
        check_size(num_threads=num_threads)
        if num_threads > _MOST_THREADS:
            raise ValueError(
                f"`num_threads` must be at most {_MOST_THREADS}. Received: {num_threads}"
            )
        opened = open_folder(folder)
        self.metadata = opened.metadata
        self._fixed = fixed_lengths(opened.metadata)
        self._tokenizer, self._target_tokenizer = opened.tokenizer, opened.target_tokenizer
        self._path, self._num_threads = opened.model, num_threads
        self._interpreter = self._packed = None
        keep_freed_memory()
        if weight_cache is None:
            self._interpreter = self._new_interpreter()
            self._tensors = self._interpreter.get_signature_list()
        else:
            from keras_transformer_runner.packed_weights import PackedModel

            self._packed = PackedModel(opened, weight_cache, num_threads)
            self._tensors = self._packed.signatures
        self._check_signature(opened.model)
        if self._packed:
            self._packed.reserve()
        self._lock = threading.Lock()
        self._calls = {}  # signature runners by name

    @property
    def step_outputs(self) -> tuple[str, ...]:
        """The names of what `decode_step` gives; none in a file without it."""
        return tuple(self._tensors.get("decode_step", {}).get("outputs", ()))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The source lengths that the file has signatures of fixed shapes for, shortest first."""
        return tuple(each.source_length for each in self._fixed)

    def translate_ids(self, source_ids: Sequence[int], *, length: int | None = None) -> list[int]:
        """Ids of one sentence, EOS at the end -> ids of its translation, without EOS and pads.

        Args:
            source_ids: Sequence of int in [0, vocab_size).
            length: Which of `lengths` the ids are padded to; the shortest that fits, and none
                beyond the longest, when `None`.

        Raises:
            TypeError: if the ids are not integers.
            ValueError: if an id lies outside the vocabulary, there are more ids than
                `max_source_length` or `length`, the file has no such `length`, or the model does
                not translate.
        """
        self._check_kind("translate")
        ids = self._checked(source_ids)
        self._check_length(ids, length)
        if not ids.size:
            return []
        return self._content(self._answer(ids, length)["target_ids"][0].tolist())

    def generate_ids(self, prompt_ids: Sequence[int], *, length: int | None = None) -> list[int]:
        """Ids of a prompt, without BOS and EOS -> these and those that follow, without EOS.

        Args:
            prompt_ids: Sequence of int in [0, vocab_size).
            length: See `translate_ids`.

        Raises:
            TypeError, ValueError: as `translate_ids`; of a model that does not continue prompts.
        """
        self._check_kind("generate")
        ids = self._checked(prompt_ids)
        self._check_length(ids, length)
        return self._content(self._answer(self._prompt(ids), length)["target_ids"][0].tolist())

    def classify_ids(self, source_ids: Sequence[int], *, length: int | None = None) -> np.ndarray:
        """Ids of one text -> float32 probabilities, as `classify` gives them.

        Args:
            source_ids: Sequence of int in [0, vocab_size), at least one.
            length: See `translate_ids`.

        Raises:
            TypeError, ValueError: as `translate_ids`, or if there are no ids; of a model that has
                no classes.
        """
        self._check_kind("classify")
        ids = self._checked(source_ids)
        self._check_length(ids, length)
        if not ids.size:
            raise ValueError("a text to classify must have an id. Received: 0 ids")
        logits = self._answer(ids, length)["logits"][0]
        if logits.ndim == 2:  # a row a token
            logits = logits[: ids.size]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def steps(self, ids: np.ndarray) -> Iterator[int]:
        """(1, S) checked ids -> the tokens of an answer, one by one, without EOS and pads.

        Those of the target's prefix, or of the prompt, come first.
        """
        if self.metadata["signature"] == "generate":
            state, limit, told = {}, self._most_tokens(ids), ids[0].tolist()
        else:
            state = self._run("encode", source_ids=ids)
            limit, told = int(state.pop("limit")[0]), self._target_tokenizer.prefix_ids
        token = self.metadata["bos_id"]
        state = {**self._empty_caches(limit), **state}  # older exports bring their own
        # The last token is EOS then, whatever the step says.
        limit -= (self.metadata.get("search") or {}).get("forced_eos") is True
        for position in range(limit):
            outputs = self._run(
                "decode_step",
                token_ids=np.array([[token]], np.int32),
                position=np.array([position], np.int32),
                **state,
            )
            token = int(outputs["next_ids"][0])
            if position < len(told) and told[position] != self.metadata["pad_id"]:
                token = told[position]
            if token == self.metadata["eos_id"]:
                return
            if token != self.metadata["pad_id"]:
                yield token
            state.update((name, value) for name, value in outputs.items() if name in state)

    def _prompt(self, ids):
        """(1, P) ids as a file takes them: some runtimes refuse a dimension of 0.

        A pad alone also means the empty prompt.
        """
        return ids if ids.size else np.full((1, 1), self.metadata["pad_id"], np.int32)

    def _most_tokens(self, ids):
        """The most tokens of the answer to a (1, P) prompt, which is part of it."""
        search = self.metadata["search"]
        limit = int((ids != self.metadata["pad_id"]).sum()) + search["extra_length"]
        bounds = (search["max_length"], self.metadata["max_positions"])
        return min([limit, *(bound for bound in bounds if bound is not None)])

    def _empty_caches(self, slots):
        """What `decode_step` carries before the first token, beside the source."""
        with self._lock:
            details = self._call("decode_step").get_input_details()
        return {
            name: np.zeros([slots if size < 0 else size for size in each["shape_signature"]], "f4")
            for name, each in details.items()
            if name.startswith("cache_")
        }

    def _new_interpreter(self):
        from ai_edge_litert.interpreter import Interpreter

        try:
            return Interpreter(model_path=str(self._path), num_threads=self._num_threads)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"{self._path} must be a model that this version of LiteRT can run. "
                f"Received: {error}"
            ) from error

    def _check_signature(self, path):
        name = self.metadata["signature"]
        needed = _TENSORS.get(name)
        for each in signatures_of(self.metadata):
            tensors = self._tensors.get(each)
            fits = needed and tensors and tensors["inputs"] == [needed[0]]
            if not fits or needed[1] not in tensors["outputs"]:
                raise ValueError(
                    f"{path} must have the signature that {METADATA_FILE} names, one of "
                    f"{list(_TENSORS)}. Received: {each!r}, and in the file {self._tensors}"
                )

    def _check_kind(self, signature):
        own = self.metadata["signature"]
        if own != signature:
            raise ValueError(
                f"the folder must hold a model with the signature {signature!r}. Received: {own!r}"
            )

    def _checked(self, ids):
        """Ids of one text as (1, S) int32."""
        ids = np.asarray(ids)
        if ids.ndim != 1:
            raise ValueError(f"`source_ids` must be one list of ids. Received: shape {ids.shape}")
        vocab_size, longest = self.metadata["vocab_size"], self.metadata["max_source_length"]
        if ids.size > longest:
            raise ValueError(
                f"a source must have at most `max_source_length` = {longest} tokens. "
                f"Received: {ids.size}"
            )
        if ids.size and ids.dtype.kind not in "iu":
            raise TypeError(f"`source_ids` must be integers. Received: dtype {ids.dtype}")
        if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
            raise ValueError(
                f"ids must lie in [0, {vocab_size}). Received: {ids.min()} to {ids.max()}"
            )
        return ids[np.newaxis].astype(np.int32)

    def _check_length(self, ids, length):
        if length is not None and (length not in self.lengths or ids.size > length):
            raise ValueError(
                f"`length` must be one of {list(self.lengths)}, and not below the number of ids. "
                f"Received: length={length!r}, {ids.size} ids"
            )

    def _answer(self, ids, length=None):
        """The outputs for (1, S) ids, by the signature of a length or by that which fits."""
        signature = self.metadata["signature"]
        name, size = _TENSORS[signature][0], length or ids.shape[1]
        fixed = next((each for each in self._fixed if size <= each.source_length), None)
        if fixed is None:
            return self._run(signature, **{name: ids})
        pads = ((0, 0), (0, fixed.source_length - ids.shape[1]))
        padded = np.pad(ids, pads, constant_values=self.metadata["pad_id"])
        return self._run(fixed.signature, **{name: padded})

    def _run(self, signature, **tensors):
        """The outputs of a signature, by name: the converter chooses their order in a file."""
        with self._lock:  # an interpreter has one set of tensors; what comes out of it is a copy
            if self._packed and signature in self._packed.answering:
                return self._packed.run(signature, **tensors)
            return self._call(signature)(**tensors)

    def _call(self, signature):
        """The runner of a signature; the lock is held."""
        if signature not in self._calls:
            self._interpreter = self._interpreter or self._new_interpreter()
            self._calls[signature] = self._interpreter.get_signature_runner(signature)
        return self._calls[signature]

    def _content(self, row):
        eos_id, pad_id = self.metadata["eos_id"], self.metadata["pad_id"]
        # Pads go, but do not end the row: an untrained model may choose one in the middle.
        end = row.index(eos_id) if eos_id in row else len(row)
        return [token for token in row[:end] if token != pad_id]
