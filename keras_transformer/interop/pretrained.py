"""`Pretrained`: a model of another project with all that makes it translate, and its run folder."""

import dataclasses
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.record import MODEL_FILE, write_record
from keras_transformer.experiment.run_folder import CONFIG_FILE, EXPERIMENT_FILE, SAMPLES_FILE
from keras_transformer.experiment.sections import DecodingSection
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.lines import one_line
from keras_transformer_runner.tokenizers import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.decoding.options import SearchOptions
    from keras_transformer.models import Transformer
    from keras_transformer.translation import Translator

REPORT_FILE = "import.txt"  # in the folder of a run
_FROM_TOKENIZER = ("vocab_size", "target_vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")
_SAMPLES = 16


@dataclasses.dataclass(frozen=True)
class Report:
    """What an import has taken over, and what it has not.

    Attributes:
        taken: Lines about what is as it was.
        left: Lines about what is not, each with its reason.
        checks: Lines about what was compared afterwards.

    Example:
        >>> from keras_transformer.interop.pretrained import Report
        >>> print(Report(taken=("46 tensors",), left=("do_sample = True: no sampling",)))
        taken over:
          46 tensors
        not taken over:
          do_sample = True: no sampling
    """

    taken: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    def __str__(self):
        parts = {"taken over": self.taken, "not taken over": self.left, "checked": self.checks}
        return "\n".join(
            "\n".join([f"{title}:", *(f"  {line}" for line in lines)])
            for title, lines in parts.items()
            if lines
        )


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model of another project, with its tokenizers and its search.

    Attributes:
        model: A `Transformer` with the weights.
        tokenizer: The source's tokenizer.
        target_tokenizer: The target's, which may be the same object.
        search: The search that comes with the model.
        report: A `Report`.
        origin: Where it comes from, for people.
        licence: What its folder says of its licence, or `None`.

    Example:
        >>> from keras_transformer.interop.pretrained import Pretrained
        >>> tokenizer = kt.CharacterTokenizer("abc")
        >>> config = kt.TransformerConfig(
        ...     vocab_size=tokenizer.vocab_size, model_dim=6, num_heads=2, encoder_layers=1,
        ...     decoder_layers=1, intermediate_dim=7,
        ... )
        >>> pretrained = Pretrained(kt.Transformer(config), tokenizer, tokenizer, kt.Greedy())
        >>> pretrained.save_run("imported", samples=["ab", "bca"]).name
        'imported'
        >>> kt.load_run("imported").samples
        ('ab', 'bca')
    """

    model: "Transformer"
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    search: "SearchOptions"
    report: Report = Report()
    origin: str = "an imported model"
    licence: str | None = None

    @property
    def tokenizers(self) -> Tokenizers:
        """Both tokenizers."""
        return Tokenizers(self.tokenizer, self.target_tokenizer)

    def translator(self) -> "Translator":
        """A `Translator` with the search of the model."""
        from keras_transformer.translation import Translator

        return Translator(
            self.model, self.tokenizer, self.search, target_tokenizer=self.target_tokenizer
        )

    def checked(self, tolerance: float = 1e-3) -> "Pretrained":
        """The same with a report of what a few random ids and a text give.

        Args:
            tolerance: The most that logits of cached decoding may differ from those of a full
                pass, as a share of the largest.

        Raises:
            ValueError: if logits are not finite, or differ by more.
        """
        checks = (*_check_logits(self.model, tolerance), *_round_trips(self.tokenizers))
        report = dataclasses.replace(self.report, checks=(*self.report.checks, *checks))
        return dataclasses.replace(self, report=report)

    def save_run(self, folder: os.PathLike | str, samples: Iterable[str] = ()):
        """Writes the folder of a run, which is whole or not there at all.

        `translate`, `evaluate` and `export` take it like any other, and `[training] start_from`
        trains from it.

        Args:
            folder: The folder, which must be new or empty.
            samples: Source sentences that exports are compared on. Without any they are made of
                random pieces of the source's vocabulary.

        Returns:
            `folder` as a `Path`.

        Raises:
            FileExistsError: if the folder holds something.
            TargetInUseError: if another process is writing it.
        """
        samples = [one_line(text) for text in samples] or _random_texts(self.tokenizer)
        about = f"{self.origin}\nlicence: {self.licence or 'unknown'}\n{self.report}\n"
        experiment = self._experiment()
        with new_folder(folder, what="a run") as made:
            texts = {
                CONFIG_FILE: self.model.config.to_json(),
                EXPERIMENT_FILE: experiment.to_toml(),
                SAMPLES_FILE: "".join(f"{text}\n" for text in samples),
                REPORT_FILE: about,
            }
            for name, text in texts.items():
                (made / name).write_text(text, encoding="utf-8", newline="\n")
            self.tokenizers.save(made)
            self.model.save(made / MODEL_FILE)
            write_record(made, {path.name: path for path in made.iterdir()})
        return type(made)(folder)

    def _experiment(self):
        """An experiment that says what the model is and how it translates, and names no corpus."""
        model = {
            name: value
            for name, value in self.model.config.to_dict().items()
            if value is not None and name not in _FROM_TOKENIZER
        }
        return Experiment.from_dict(
            {
                "data": {"imported": self.origin},
                "tokenizer": {"joint": self.tokenizers.are_joint},
                "model": model,
                "training": {"max_epochs": 1},
                "decoding": _section_of(self.search),
            }
        )


def _section_of(search):
    """The keys of `[decoding]` that make a search."""
    known = {field.name: field.default for field in dataclasses.fields(DecodingSection)}
    section = {
        name: value
        for name, value in dataclasses.asdict(search).items()
        if name in known and value not in (None, ()) and value != known[name]
    }
    if search.beams == 1:
        return section
    return {"strategy": "beam", **section}


def _check_logits(model, tolerance):
    """Full passes and cached steps on random ids."""
    config = model.config
    length = min(8, config.max_positions or 8)
    rng = np.random.default_rng(0)
    controls = {*config.special_ids}
    source, target = (
        rng.choice(
            [token for token in range(min(size, 4096)) if token not in controls] or [0], (2, length)
        ).astype("int32")
        for size in (config.vocab_size, config.target_size)
    )
    target[:, 0] = config.bos_id
    full = np.asarray(model({"source_ids": source, "target_ids": target}, training=False))
    if not np.isfinite(full).all():
        raise ValueError(
            "the weights must give finite logits. Received: a checkpoint that gives NaN or infinity"
        )
    memory = model.encode(source)
    cache, steps = model.start(memory, length), []
    for position in range(length):
        logits, cache = model.step(target[:, position : position + 1], cache, position)
        steps.append(np.asarray(logits)[:, 0])
    difference = np.abs(np.stack(steps, axis=1) - full).max()
    largest = np.abs(full).max()
    is_exact = model.policy.compute_dtype == "float32"
    if is_exact and not difference <= tolerance * max(1, largest):
        raise ValueError(
            "cached decoding must give the logits of a full pass. Received: logits up to "
            f"{largest:.4g} that differ by {difference:.2g}"
        )
    yield f"logits of random ids are finite, up to {largest:.3g}"
    yield f"cached decoding and full passes differ by {difference:.1g}"


def _round_trips(tokenizers):
    """What becomes of a text on its way to ids and back."""
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        text = next(iter(_random_texts(tokenizer)), "")
        ids = tokenizer.encode(text)
        back = tokenizer.decode(ids)
        same = "the same text" if back == text else repr(back)
        yield f"the {side}'s tokenizer: {text!r} gives {len(ids)} ids, and these {same}"


def _random_texts(tokenizer):
    """Texts of random pieces, for a start in the tokenizer's own script."""
    rng = np.random.default_rng(1)
    controls = {*tokenizer.special_ids, *tokenizer.prefix_ids}
    ids = [token for token in range(tokenizer.vocab_size) if token not in controls]
    texts = (
        one_line(tokenizer.decode(rng.choice(ids, rng.integers(3, 13)))).strip()
        for _ in range(4 * _SAMPLES if ids else 0)
    )
    return [text for text in dict.fromkeys(texts) if text and tokenizer.encode(text)][:_SAMPLES]
