"""The sections of an experiment file, each with its checks."""

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from keras_transformer.arguments import check_choice, check_least, check_name
from keras_transformer.data.buckets import check_ascending
from keras_transformer_runner.tokenizers.sentence_piece import check_training_options

if TYPE_CHECKING:
    from keras_transformer.decoding import BeamSearch, Greedy, Sampling

_LARGEST = 2**31 - 1  # what 32 bits hold, which counts and seeds end up in
SENTENCEPIECE_OPTIONS = {
    "model_type": "unigram",
    "character_coverage": 1.0,
    "byte_fallback": False,
    "split_digits": False,
    "normalization": "nmt_nfkc",
    "max_sentences": None,
}
# Which options of [tokenizer] go with which type.
TOKENIZER_OPTIONS = {
    "sentencepiece": {"vocab_size", *SENTENCEPIECE_OPTIONS},
    "vocabulary": {"vocab_size", "min_count", "joiner"},
    "characters": {"min_count"},
    "bytes": set(),
}
SCHEDULES = ("paper", "inverse_sqrt")
OPTIMIZERS = ("adam", "adamw")
BEST_BY = ("loss", "bleu", "chrf")
STRATEGIES = ("none", "mirrored", "multi_worker", "tpu")
DISTRIBUTIONS = ("none", "data_parallel", "model_parallel")
_BLOCK = re.compile(r"(encoder|decoder)_(0|[1-9]\d*)")
# What `freeze` may name; beside these a block, such as `encoder_0`.
FREEZABLE = (
    *("encoder", "decoder", "embeddings"),
    *("self_attention", "cross_attention", "feed_forward", "normalization"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerSection:
    """`[tokenizer]`: the kind of tokenizer, and how to learn it or where to read it.

    Attributes:
        type: `"sentencepiece"`, `"vocabulary"` (text that is already split, such as `@@ ` BPE),
            `"characters"` or `"bytes"`.
        joint: Whether both sides share one vocabulary.
        file: A tokenizer's file, instead of learning one (a SentencePiece model, or what `save`
            wrote).
        target_file: The target's, where it has one of its own.
        vocab_size: Ids wanted, of each side; 8000 for SentencePiece, all pieces for a vocabulary.
        model_type, character_coverage, byte_fallback, split_digits, normalization,
            max_sentences: Of `SentencePieceTokenizer.train`.
        min_count: Of a vocabulary and of characters: what occurs less often is unknown.
        joiner: Of a vocabulary: the end of a piece that goes on.
    """

    type: str = "sentencepiece"
    joint: bool = True
    file: str | None = None
    target_file: str | None = None
    vocab_size: int | None = None
    model_type: str = "unigram"
    character_coverage: float = 1.0
    byte_fallback: bool = False
    split_digits: bool = False
    normalization: str = "nmt_nfkc"
    max_sentences: int | None = None
    min_count: int = 1
    joiner: str = "@@"

    PATHS = ("file", "target_file")

    def __post_init__(self):
        check_choice(TOKENIZER_OPTIONS, **{"tokenizer.type": self.type})
        _check_least(self, vocab_size=5, max_sentences=1, min_count=1)
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        known = {"type", "joint", *self.PATHS, *TOKENIZER_OPTIONS[self.type]}
        if self.file:
            known -= TOKENIZER_OPTIONS[self.type]
        for name, default in defaults.items():
            if name not in known and getattr(self, name) != default:
                learnt = "a tokenizer that is read from a file" if self.file else repr(self.type)
                raise ValueError(
                    f"`tokenizer.{name}` does not go with {learnt}. "
                    f"Received: {name}={getattr(self, name)!r}"
                )
        if self.type == "sentencepiece" and not self.file:
            names = ("model_type", "character_coverage", "normalization", "max_sentences")
            check_training_options(
                self.options()["vocab_size"], *(getattr(self, name) for name in names)
            )
        if self.target_file and not self.file:
            raise ValueError(
                "`tokenizer.target_file` goes with `tokenizer.file`. "
                f"Received: target_file={self.target_file!r}, file=None"
            )

    @property
    def is_joint(self) -> bool:
        """Whether one tokenizer serves both sides."""
        return self.joint and not self.target_file

    def options(self) -> dict[str, Any]:
        """The keywords that learning a tokenizer of this type takes."""
        names = TOKENIZER_OPTIONS[self.type]
        options = {name: getattr(self, name) for name in names}
        if self.type == "sentencepiece" and self.vocab_size is None:
            options["vocab_size"] = 8000
        return options


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSection:
    """`[training]`: how long to train, with which batches, loss, optimizer and devices.

    Attributes:
        start_from: The folder of a finished run or of a preset, whose weights training starts
            with. Where `[tokenizer]` is left out its tokenizers are taken too; of another
            vocabulary, the rows of the pieces that both have. Its model is what `[model]` starts
            from, unless that names a `preset`.
        freeze: Parts that stay as they are: `"encoder"`, `"decoder"`, `"embeddings"` (positions
            and output included), `"self_attention"`, `"cross_attention"`, `"feed_forward"`,
            `"normalization"`, or a block such as `"encoder_0"`.
        max_minutes: Stop after this wall time, XLA compilation included, over all resumed parts.
        max_epochs: Stop after this many passes over the data.
        batch_tokens: Positions in a batch, a side.
        buckets: Lengths to pad to; chosen from the data when left out. Training pairs that are
            longer than the last are left out, as those beyond `data.max_length` are.
        pack: Whether several pairs share a row, of the length of the last bucket, so that hardly
            anything is padded. There is one shape then, and the pairs of a row stay together.
        accumulate_batches: Batches whose gradients make one update, each weighted by its tokens.
        schedule: `"paper"` (equation 3, times `learning_rate_scale`) or `"inverse_sqrt"` (linear
            warm-up to `learning_rate`, then decay with the root of the step).
        warmup_steps: Updates of linear growth.
        learning_rate_scale: Of the schedule `"paper"`.
        learning_rate: The peak of the schedule `"inverse_sqrt"`.
        optimizer: `"adam"`, or `"adamw"`, which decays kernels and embeddings only.
        weight_decay: Of `"adamw"`.
        label_smoothing: Of the loss.
        r_drop: Weight of the R-Drop loss; 0 for none. Doubles the work of a step.
        teacher_weight: Weight of the teachers' probabilities in the loss, of `data.distilled` made
            with `--probabilities`; what is left is that of the labels. 0 for labels alone.
        teacher_temperature: What the logarithms of both sides are divided by in that part.
        clipnorm: Global norm to clip gradients to; none when left out.
        ema: Momentum of an exponential moving average of the weights, which is what is validated
            and kept; none when left out.
        seed: Decides weights, dropout and the order of the data.
        jit_compile: Whether XLA compiles the training step.
        rematerialize: Whether the inside of each block is computed again for its gradient: less
            memory, and about a third more operations.
        average_checkpoints: Epoch snapshots that are kept and averaged at the end.
        save_every_steps: Steps between two saves of the state inside an epoch.
        score_every_epochs: Epochs between two translations of the validation set, whose BLEU and
            chrF join the metrics of the epoch; 0 for none.
        best_by: What the best snapshot is chosen by: `"loss"`, `"bleu"` or `"chrf"`.
        patience: Stop after this many epochs without a better `best_by`, in one that has it; never
            when left out.
        strategy: How several devices share the work on TensorFlow: `"mirrored"` (all of this
            machine), `"multi_worker"` (the machines of `TF_CONFIG`), `"tpu"`, or `"none"`.
        distribution: How all devices of this machine share it on JAX: `"data_parallel"` (the rows
            of a batch), `"model_parallel"` (the weights too), or `"none"`.
        model_devices: Devices that share one copy of the weights under `"model_parallel"`; all
            when left out.
    """

    start_from: str | None = None
    freeze: tuple[str, ...] | None = None
    max_minutes: float | None = None
    max_epochs: int | None = None
    batch_tokens: int = 4096
    buckets: tuple[int, ...] | None = None
    pack: bool = False
    accumulate_batches: int = 1
    schedule: str = "paper"
    warmup_steps: int = 4000
    learning_rate_scale: float = 1.0
    learning_rate: float | None = None
    optimizer: str = "adam"
    weight_decay: float = 0.0
    label_smoothing: float = 0.1
    r_drop: float = 0.0
    teacher_weight: float = 0.0
    teacher_temperature: float = 1.0
    clipnorm: float | None = None
    ema: float | None = None
    seed: int = 1
    jit_compile: bool = True
    rematerialize: bool = False
    average_checkpoints: int = 5
    save_every_steps: int = 500
    score_every_epochs: int = 0
    best_by: str = "loss"
    patience: int | None = None
    strategy: str = "none"
    distribution: str = "none"
    model_devices: int | None = None

    PATHS = ("start_from",)

    def __post_init__(self):
        if self.max_minutes is None and self.max_epochs is None:
            raise ValueError(
                "`[training]` must have `max_minutes` or `max_epochs`. Received: neither"
            )
        _check_least(
            self,
            max_epochs=1,
            batch_tokens=1,
            accumulate_batches=1,
            warmup_steps=1,
            average_checkpoints=1,
            save_every_steps=1,
            score_every_epochs=0,
            patience=1,
            model_devices=1,
            seed=0,
            r_drop=0,
            weight_decay=0,
        )
        for name in (
            *("max_minutes", "learning_rate_scale", "learning_rate", "clipnorm"),
            "teacher_temperature",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`training.{name}` must be positive. Received: {value}")
        for name in ("label_smoothing", "ema"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`training.{name}` must be a rate in [0, 1). Received: {value}")
        if self.buckets is not None:
            check_ascending("training.buckets", self.buckets, minimum=2)
        check_choice(SCHEDULES, **{"training.schedule": self.schedule})
        check_choice(OPTIMIZERS, **{"training.optimizer": self.optimizer})
        check_choice(BEST_BY, **{"training.best_by": self.best_by})
        check_choice(STRATEGIES, **{"training.strategy": self.strategy})
        check_choice(DISTRIBUTIONS, **{"training.distribution": self.distribution})
        for part in self.freeze or ():
            if not _BLOCK.fullmatch(part):
                check_name("a part of `training.freeze`", part, FREEZABLE)
        self._check_pairs()

    def _check_pairs(self):
        """Options that only mean something together."""
        if (self.learning_rate is None) != (self.schedule == "paper"):
            raise ValueError(
                "`training.learning_rate` is the peak of the schedule 'inverse_sqrt', which needs "
                f"it. Received: schedule={self.schedule!r}, learning_rate={self.learning_rate}"
            )
        if self.learning_rate_scale != 1.0 and self.schedule != "paper":
            raise ValueError(
                "`training.learning_rate_scale` goes with the schedule 'paper'. "
                f"Received: schedule={self.schedule!r}"
            )
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError(
                "`training.weight_decay` goes with the optimizer 'adamw'. "
                f"Received: optimizer={self.optimizer!r}, weight_decay={self.weight_decay}"
            )
        if self.strategy != "none" and self.distribution != "none":
            raise ValueError(
                "`training.strategy` is of TensorFlow and `training.distribution` of JAX: one of "
                f"them must be 'none'. Received: strategy={self.strategy!r}, "
                f"distribution={self.distribution!r}"
            )
        if self.model_devices is not None and self.distribution != "model_parallel":
            raise ValueError(
                "`training.model_devices` goes with the distribution 'model_parallel'. Received: "
                f"model_devices={self.model_devices}, distribution={self.distribution!r}"
            )
        if self.strategy == "multi_worker" and self.max_minutes is not None:
            raise ValueError(
                "`training.max_minutes` does not go with the strategy 'multi_worker', whose "
                "workers must stop at the same step: use `max_epochs`. "
                f"Received: {self.max_minutes}"
            )
        if not 0 <= self.teacher_weight <= 1:
            raise ValueError(
                f"`training.teacher_weight` must be in [0, 1]. Received: {self.teacher_weight}"
            )
        if self.teacher_weight and (self.r_drop or self.pack):
            raise ValueError(
                "`training.teacher_weight` does not go with `r_drop` and `pack`. Received: "
                f"r_drop={self.r_drop}, pack={self.pack}"
            )
        if self.best_by != "loss" and not self.score_every_epochs:
            raise ValueError(
                "`training.best_by` needs `score_every_epochs`, unless it is 'loss'. "
                f"Received: best_by={self.best_by!r}, score_every_epochs=0"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingSection:
    """`[decoding]`: how the trained model translates.

    Attributes:
        strategy: The search: `"greedy"`, `"beam"` or `"sampling"`; by `beam_size` when left out.
        max_length: Most tokens of a translation; no limit of its own when left out.
        extra_length: It may be this many tokens longer than its source.
        min_length, no_repeat_ngram, repetition_penalty, forbidden_ids, forced_eos: Of every search.
        beam_size: Hypotheses of `BeamSearch`; 1 for `Greedy`, where no search is named.
        n_best: Hypotheses of `BeamSearch`, or samples, where several are asked for.
        length_penalty, length_normalization, coverage_penalty, stopping, candidates: Of
            `BeamSearch`; its own when left out.
        temperature, top_k, top_p, min_p, seed: Of `Sampling`; its own when left out.
    """

    strategy: str | None = None
    max_length: int | None = None
    extra_length: int = 50
    min_length: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    forbidden_ids: tuple[int, ...] | None = None
    forced_eos: bool = False
    beam_size: int = 1
    n_best: int = 1
    length_penalty: float | None = None
    length_normalization: str | None = None
    coverage_penalty: float | None = None
    stopping: str | None = None
    candidates: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None

    PATHS = ()
    COMMON = (
        *("max_length", "extra_length", "min_length", "no_repeat_ngram", "repetition_penalty"),
        *("forbidden_ids", "forced_eos"),
    )
    OF_LENGTH = ("length_penalty", "length_normalization")
    OF_BEAM = ("n_best", *OF_LENGTH, "coverage_penalty", "stopping", "candidates")
    OF_SEARCH = {
        "greedy": (),
        "beam": OF_BEAM,
        "sampling": ("n_best", "temperature", "top_k", "top_p", "min_p", "seed"),
    }

    def __post_init__(self):
        _check_least(self, max_length=1, extra_length=1, beam_size=1, n_best=1)
        if self.strategy is not None:
            check_choice(self.OF_SEARCH, **{"decoding.strategy": self.strategy})
        if self.beam_size > 1 and self.search_name != "beam":
            raise ValueError(
                '`beam_size` above 1 is for `strategy` "beam". Received: '
                f"beam_size={self.beam_size}, strategy={self.strategy!r}"
            )
        # Alone those of the length change nothing: `--beam-size` may come later.
        fitting = (*self.OF_SEARCH[self.search_name], *self.OF_LENGTH)
        for option in {each: None for options in self.OF_SEARCH.values() for each in options}:
            value = getattr(self, option)
            if option not in fitting and value != getattr(DecodingSection, option):
                owners = [name for name, options in self.OF_SEARCH.items() if option in options]
                raise ValueError(
                    f"`{option}` is for `strategy` {' or '.join(map(repr, owners))}. Received: "
                    f"{option}={value!r}, strategy={self.search_name!r}"
                )

    @property
    def search_name(self) -> str:
        """The search's name, also where it is left out."""
        return self.strategy or ("beam" if self.beam_size > 1 else "greedy")

    def with_changes(self, **changes: Any) -> "DecodingSection":
        """The section with other values; `None` changes none."""
        changes = {name: value for name, value in changes.items() if value is not None}
        if "beam_size" in changes:
            changes = {"n_best": min(self.n_best, changes["beam_size"]), **changes}
        if "beam_size" in changes and "strategy" not in changes and self.strategy != "sampling":
            changes["strategy"] = None  # which presets and imported runs name: the size chooses it
            if changes["beam_size"] == 1:
                changes = {**dict.fromkeys(self.OF_BEAM), **changes}
        return dataclasses.replace(self, **changes)

    def search(self) -> "Greedy | BeamSearch | Sampling":
        """The search.

        Raises:
            ValueError: if a value is none that the search takes.
        """
        from keras_transformer.decoding import BeamSearch, Greedy, Sampling

        searches = {"greedy": Greedy, "beam": BeamSearch, "sampling": Sampling}
        return searches[self.search_name](**self.options)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the search that are given."""
        names = (*self.COMMON, *self.OF_SEARCH[self.search_name])
        options = {name: getattr(self, name) for name in names}
        if self.search_name == "beam":
            options["beam_size"] = self.beam_size
        return {name: value for name, value in options.items() if value is not None}


def _check_least(section, **least):
    """Raises a ValueError if a field that is given is smaller than its keyword says, or huge."""
    for name, minimum in least.items():
        value = getattr(section, name)
        check_least(minimum, optional=True, **{name: value})
        if type(value) is int and value > _LARGEST:
            raise ValueError(f"`{name}` must be at most {_LARGEST}. Received: {value!r:.40}")
