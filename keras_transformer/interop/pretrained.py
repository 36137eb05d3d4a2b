"""`Pretrained`: a model of another project with all that makes it translate, and its run folder."""

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer_runner.lines import one_line
from keras_transformer_runner.tokenizers import Tokenizer
from keras_transformer_runner.tokenizers.base import UNKNOWN

if TYPE_CHECKING:
    from keras_transformer.decoding.options import SearchOptions
    from keras_transformer.models import Transformer
    from keras_transformer.translation import Translator

_SAMPLES = 16
_BANNED = -500  # logits below are of ids that an import has given no probability
_MOST_PIECES = 4096  # that texts are made of


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

    def save_run(self, folder: os.PathLike | str, samples: Iterable[str] = ()) -> Path:
        """Writes the folder of a run, which is whole or not there at all.

        `translate`, `evaluate` and `export` take it like any other, and `[training] start_from`
        trains from it. Its model card, `README.md`, has the report.

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
        self.translator().save_to_preset(
            folder,
            license=self.licence,
            data=f"that of {self.origin}, which was imported",
            samples=[*samples] or _random_texts(self.tokenizer),
            notes=f"## Import\n```\n{self.report}\n```",
        )
        return Path(folder)


def _check_logits(model, tolerance):
    """Full passes and cached steps on random ids."""
    config = model.config
    length = min(8, config.max_positions or 8)
    rng = np.random.default_rng(0)
    sizes = (config.vocab_size, config.target_size)
    source, target = (rng.integers(0, size, (2, length), dtype="int32") for size in sizes)
    source[:, -1], target[:, 0] = config.eos_id, config.bos_id
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
    largest = np.abs(full[full > _BANNED]).max(initial=0)
    is_exact = model.dtype_policy.compute_dtype == "float32"
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
    ids = rng.permutation(tokenizer.vocab_size)[:_MOST_PIECES]
    ids = [token for token in ids if _is_text(tokenizer.decode([token]))]
    texts = (
        one_line(tokenizer.decode(rng.choice(ids, rng.integers(4, 16)))).strip()
        for _ in range(2 * _SAMPLES if ids else 0)
    )
    return [text for text in dict.fromkeys(texts) if tokenizer.encode(text)][:_SAMPLES]


def _is_text(piece):
    """Whether what an id reads as can stand in a text: not nothing, no part of a character."""
    return piece.strip() != "" and piece.isprintable() and not {UNKNOWN, "\ufffd"} & {*piece}
