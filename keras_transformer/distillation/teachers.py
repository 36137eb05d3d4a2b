"""Teachers: finished runs, presets or imported models, which translate as one."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.run_folder import (
    CONFIG_FILE,
    EXPERIMENT_FILE,
    check_finished,
    load_run,
    model_fingerprint,
)
from keras_transformer.experiment.sections import DecodingSection

if TYPE_CHECKING:
    from keras_transformer.translation import Translator


@dataclasses.dataclass(frozen=True)
class Teachers:
    """Runs or presets that translate as one: several are an `Ensemble`.

    Attributes:
        folders: Their folders.
        fingerprints: Of each, hashes of its weights and its tokenizers.
        decoding: The search: that of the first one's `[decoding]`, with what was changed.
        source_prefix, target_prefix: See `Run.with_prefixes`.

    Example (a run that the example of `train` makes):
        >>> from keras_transformer.distillation import Teachers
        >>> teachers = Teachers.open(["run"], beam_size=4)  # doctest: +SKIP
        >>> teachers.translator().translate(["ab"])  # doctest: +SKIP
        ['ba']
    """

    folders: tuple[Path, ...]
    fingerprints: tuple[tuple[str, ...], ...]
    decoding: DecodingSection
    source_prefix: tuple[int | str, ...] | None = None
    target_prefix: tuple[int | str, ...] | None = None

    @classmethod
    def open(
        cls,
        folders: Sequence[os.PathLike | str],
        *,
        source_prefix: Iterable[int | str] | None = None,
        target_prefix: Iterable[int | str] | None = None,
        **decoding: Any,
    ) -> "Teachers":
        """Looks at all of the folders but the weights, whose checksums are taken; without Keras.

        Args:
            folders: At least one folder of a finished run or of a preset.
            source_prefix, target_prefix: See `Run.with_prefixes`.
            **decoding: What is other than in the first one's `[decoding]`; `None` changes none.

        Raises:
            FileNotFoundError: if a folder is no run or preset, or not finished.
            ValueError: if there is none, two differ in a tokenizer, or a value of the search is
                wrong.
        """
        folders = tuple(Path(os.path.abspath(folder)) for folder in folders)
        if not folders:
            raise ValueError("`folders` must name a teacher. Received: none")
        for folder in folders:
            check_finished(folder)
        prints = tuple(tuple(model_fingerprint(folder)) for folder in folders)
        for folder, (_, *tokenizers) in zip(folders, prints, strict=True):
            if tokenizers != list(prints[0][1:]):
                raise ValueError(
                    "teachers must have the same tokenizers, since their probabilities of each "
                    f"piece are averaged. Received: {folder}, which differs from {folders[0]}"
                )
        experiment = Experiment.load(folders[0] / EXPERIMENT_FILE)
        prefixes = (
            None if each is None else tuple(each) for each in (source_prefix, target_prefix)
        )
        section = experiment.decoding.with_changes(**decoding)
        return cls(folders, prints, section, *prefixes)

    def description(self) -> dict[str, Any]:
        """All that decides what they write, as plain values for JSON."""
        search = {
            name: value
            for name, value in dataclasses.asdict(self.decoding).items()
            if value is not None
        }
        return {
            "teachers": self.fingerprints,
            "search": search,
            "source_prefix": self.source_prefix,
            "target_prefix": self.target_prefix,
        }

    def configs(self) -> list[TransformerConfig]:
        """The `TransformerConfig` of each, read without Keras."""
        texts = ((folder / CONFIG_FILE).read_text(encoding="utf-8") for folder in self.folders)
        return [*map(TransformerConfig.from_json, texts)]

    def translator(self, *, jit_compile: bool = False) -> "Translator":
        """The `Translator` of all of them; `jit_compile` is its argument.

        Where the target's tokenizer is a vocabulary of split text, its translations are split as
        the corpus is.
        """
        from keras_transformer.decoding.ensemble import Ensemble
        from keras_transformer.translation import Translator

        runs = [load_run(folder) for folder in self.folders]
        first = runs[0].with_prefixes(source=self.source_prefix, target=self.target_prefix)
        translator = Translator(
            first.model if len(runs) == 1 else Ensemble([run.model for run in runs]),
            first.tokenizer,
            strategy=self.decoding.search(),
            target_tokenizer=first.target_tokenizer,
            max_source_length=min(run.max_source_length for run in runs),
            jit_compile=jit_compile,
        )
        is_split = getattr(first.target_tokenizer, "joiner", "")
        return _SplitTranslator(translator) if is_split else translator


class _SplitTranslator:
    """A `Translator` whose translations are split as its corpus is, such as `ca@@ t@@ s`."""

    def __init__(self, translator):
        self._translator, self.model = translator, translator.model
        self.tokenizer, self.target_tokenizer = translator.tokenizer, translator.target_tokenizer
        self.batch_size = translator.batch_size
        self.source_ids = translator.source_ids

    def translate_with_details(self, texts, *, n_best=None):
        found = self._translator.translate_with_details(texts, n_best=n_best)
        return [[self._split(each) for each in hypotheses] for hypotheses in found]

    def _split(self, translation):
        text = self.target_tokenizer.corpus_text(translation.ids)
        return dataclasses.replace(translation, text=text)
