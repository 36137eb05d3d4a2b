"""Export for devices: one LiteRT file with the whole decoding loop inside."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.export.backend import check_backend
from keras_transformer.export.litert.calibration import MOST_SENTENCES, Calibration
from keras_transformer.export.litert.conversion import check_size
from keras_transformer.export.litert.graphs import (
    DEVICE_SIGNATURE,
    DeviceModule,
    check_search,
    check_signatures,
    check_with_shortlist,
)
from keras_transformer.export.litert.lengths import (
    check_answers,
    check_lengths,
    check_steps,
    fixed_lengths,
)
from keras_transformer.export.litert.modes import MODES, mode_named
from keras_transformer.export.litert.writer import (
    DeviceContents,
    new_export,
    parity_report,
    runtime,
    search_settings,
    timed_answers,
    write_folder,
    write_reports,
)
from keras_transformer.export.parity import (
    ParityReport,
    bleu,
    checked_references,
    checked_samples,
    compare,
)
from keras_transformer.models import Transformer
from keras_transformer.models.transfer import in_float32
from keras_transformer.presets.card import Card
from keras_transformer.translation import Translator
from keras_transformer_runner.lengths import fields
from keras_transformer_runner.runner import Runner
from keras_transformer_runner.tokenizers import Tokenizer

__all__ = ["MODES", "export_litert"]


def export_litert(
    model: Transformer,
    tokenizer: Tokenizer,
    path: os.PathLike | str,
    *,
    samples: Sequence[str],
    mode: str = "float32",
    references: Sequence[str] | None = None,
    strategy: SearchOptions | None = None,
    target_tokenizer: Tokenizer | None = None,
    calibration_samples: Sequence[str] | None = None,
    bleu_tokenize: str = "13a",
    signatures: Sequence[str] = (DEVICE_SIGNATURE,),
    lengths: Sequence[int] = (),
    lengths_only: bool = False,
    shortlist: Shortlist | None = None,
    max_source_length: int = 512,
    card: Card | None = None,
    overwrite: bool = False,
) -> ParityReport:
    """Writes a folder for a device, runs it, and compares its answers with Python's.

    A model of another compute dtype, such as `mixed_bfloat16`, is exported and compared as a
    float32 model of the same weights: LiteRT has no bfloat16 maths. Such a model may find other
    texts in Python, as these depend on how the processor multiplies in its dtype; `load_run` gives
    the float32 model.

    The folder holds `model.tflite` (builtin ops only, signature `translate`), `tokenizer.model`
    (`.json` where it is no SentencePiece model), `metadata.json`, `parity.json` and a model card,
    `README.md`, and `target_tokenizer.*` where there is one.
    `keras_transformer_runner.runner` runs it.

    Example:
        >>> import pathlib
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> model = kt.Transformer(config)
        >>> report = kt.export_litert(model, tokenizer, "device", samples=["A man rides."])
        >>> report.identical, report.samples
        (1, 1)
        >>> sorted(path.name for path in pathlib.Path("device").iterdir())
        ['README.md', 'metadata.json', 'model.tflite', 'parity.json', 'tokenizer.json']

    Args:
        model: A `Transformer`, trained or not.
        tokenizer: Its tokenizer; that of the source, where the target has another.
        path: The folder to make.
        samples: Sentences to compare on, at least one.
        mode: Key of `MODES`, which says what each promises.
        references: A translation of each sample by a person. With them the report has BLEU, and
            the mode's promise of BLEU is checked; a few hundred make the number steady.
        strategy: The search; `Greedy()` when `None`.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        calibration_samples: Sentences that modes with calibration choose their numbers on, of
            which the first 256 are used; `samples` when `None`.
        bleu_tokenize: sacreBLEU's tokenizer; `"none"` for text that is tokenized.
        signatures: `("translate",)`, or `device_graphs.SIGNATURES` for apps that show a
            translation as it grows: `encode` and `decode_step` share the weights in the file.
        lengths: Source lengths, ascending, such as `(32, 128, 512)`: for each the file has a
            signature of fixed shapes more, such as `translate_32`, which a source is padded for,
            for runtimes that cannot resize. The runner takes the shortest that fits, and
            `translate` beyond. They share the weights in the file.
        lengths_only: Whether the file has these signatures alone, first the longest, for runtimes
            that know no names. `max_source_length` then ends with the longest, too.
        shortlist: A `Shortlist`: the search computes its candidates alone, whose table is in the
            file, and every runtime gives the same text. It goes with neither `lengths` nor more
            `signatures`.
        max_source_length: Most source tokens that the runner accepts, EOS included.
        card: A `presets.card.Card`: what the model card says of where the model comes from.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is. A model
            card there that somebody has edited stays.

    Returns:
        The `ParityReport`, which is also written to `parity.json`.

    Raises:
        TypeError: if `samples` or `references` is one string, or `lengths` no list of integers.
        ValueError: if `mode` is unknown, `strategy` samples, a sample is longer than
            `max_source_length`, `lengths` do not ascend or go beyond it, there are not as many
            references as samples, or the model is too large for LiteRT.
        FileExistsError: if `path` exists and `overwrite` is false, or it holds anything else
            than an export writes.
        TargetInUseError: if another process is writing it.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if the mode's promise is broken; nothing is written then.
    """
    check_backend()
    mode_named(mode)
    signatures = check_signatures(signatures)
    if isinstance(model, Transformer):
        check_size(model, mode)
    limits = (tokenizer, strategy, target_tokenizer)
    translator = device_translator(model, *limits, max_source_length, shortlist)
    if shortlist is not None:
        check_with_shortlist(signatures, lengths)
    lengths = check_lengths(lengths, translator.max_source_length, lengths_only, signatures)
    if lengths_only:
        translator = device_translator(translator.model, *limits, lengths[-1])
    samples = checked_samples(samples)
    references = checked_references(references, samples, bleu_tokenize)
    with new_export(path, overwrite) as folder:
        answers = PythonAnswers.translated_by(translator, samples, references, bleu_tokenize)
        calibration = calibration_for(mode, translator, answers, calibration_samples)
        contents = device_contents(translator, signatures, lengths, lengths_only)
        report = write_mode(folder, translator, mode, answers, calibration, contents).check()
        write_reports(folder, path, contents, report, card)
    return report


def device_translator(
    model, tokenizer, strategy, target_tokenizer, max_source_length, shortlist=None
):
    """A `Translator` of the model in float32."""
    check_search(strategy)
    if isinstance(model, Transformer):
        model = in_float32(model)
    return Translator(
        model,
        tokenizer,
        strategy,
        target_tokenizer=target_tokenizer,
        max_source_length=max_source_length,
        shortlist=shortlist,
    )


class PythonAnswers(NamedTuple):
    """Sentences and Python's answers to them, the same for all modes."""

    samples: list
    source_ids: list
    target_ids: list
    texts: list
    references: list | None
    bleu_tokenize: str
    bleu: float | None

    @classmethod
    def translated_by(cls, translator, samples, references=None, bleu_tokenize="13a"):
        """Lets Python translate the sentences."""
        source_ids = [translator.source_ids(sample) for sample in samples]
        target_ids = translator.translate_ids(translator.pad(source_ids))
        texts = [translator.target_tokenizer.decode(ids) for ids in target_ids]
        if references is not None:
            references = list(map(translator.target_tokenizer.plain_text, references))
        score = bleu(texts, references, bleu_tokenize)
        return cls(samples, source_ids, target_ids, texts, references, bleu_tokenize, score)


def calibration_for(mode, translator, answers, samples=None):
    """The sentences that a mode is calibrated on with Python's answers, or `None`."""
    if not MODES[mode].is_calibrated:
        return None
    if samples is not None:
        samples = checked_samples(samples)[:MOST_SENTENCES]
        answers = PythonAnswers.translated_by(translator, samples)
    bos_id = translator.model.config.bos_id
    pairs = zip(answers.source_ids, answers.target_ids, strict=True)
    rows = [{"source_ids": a, "target_ids": [bos_id, *b]} for a, b in pairs]
    return Calibration(translator.model, rows)


def write_mode(folder, translator, mode, answers, calibration=None, contents=None):
    """Fills a folder with the export in one mode and runs it.

    Args:
        folder: An empty folder.
        translator: What it is made of.
        mode: Key of `MODES`.
        answers: `PythonAnswers`.
        calibration: What `calibration_for` gives.
        contents: What `device_contents` gives; that of `translate` alone when `None`.

    Returns:
        A `ParityReport` whose promises have not been checked.

    Raises:
        ParityError: if the signatures in it do not agree.
    """
    contents = device_contents(translator) if contents is None else contents
    graph = write_folder(folder, contents, mode, calibration)
    runner, samples = Runner(folder), answers.samples
    received, seconds = timed_answers(runner, runner.translate_ids, samples)
    texts = [runner.decode(ids) for ids in received]
    check_steps(runner, samples, texts)
    check_answers(runner, translator, answers, mode)
    python = list(zip(answers.texts, answers.target_ids, strict=True))
    return parity_report(
        folder,
        contents,
        mode,
        graph,
        seconds,
        **compare(samples, python, list(zip(texts, received, strict=True))),
        bleu=bleu(texts, answers.references, answers.bleu_tokenize),
        python_bleu=answers.bleu,
        promised_bleu_loss=MODES[mode].promised_bleu_loss,
        runtime=runtime(),
    )


def device_contents(translator, signatures=(DEVICE_SIGNATURE,), lengths=(), lengths_only=False):
    """The `DeviceContents` of a translator with these signatures."""
    model, strategy = translator.model, translator.strategy
    positions, prefix = model.config.max_positions, translator.target_prefix_ids
    fixed = fixed_lengths(DEVICE_SIGNATURE, lengths, strategy, positions)
    shortlist = translator.shortlist
    summary = {} if shortlist is None else {"shortlist": shortlist.summary}
    return DeviceContents(
        signature=DEVICE_SIGNATURE,
        model=model,
        module=DeviceModule(model, strategy, signatures, prefix, lengths, lengths_only, shortlist),
        tokenizer=translator.tokenizer,
        target_tokenizer=translator.target_tokenizer,
        max_source_length=translator.max_source_length,
        tensors={
            "max_positions": positions,
            "inputs": {"source_ids": "int32 (1, S): pieces, then EOS"},
            "outputs": {"target_ids": "int32 (1, T): pieces, then EOS, then pads"},
        },
        settings={
            "search": search_settings(strategy),
            **summary,
            **fields(fixed, not lengths_only),
        },
    )
