"""What each command of `keras-transformer` does with its arguments.

Whatever can be known to be wrong without TensorFlow is found before it is imported, which takes
seconds, and all that is left before work that takes minutes.
"""

import contextlib
import functools
import os
import pathlib
import shlex
import sys
import time

from keras_transformer.arguments import check_size
from keras_transformer.command import texts
from keras_transformer.command.inputs import (
    chunks,
    input_lines,
    listed_lines,
    open_named_corpus,
    set_values,
    write_lines,
)
from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.folders import check_new_folder, check_writable
from keras_transformer_runner.lines import check_file, one_line

_SAY_SECONDS = 10
_CHUNK = 256  # sentences translated before the output is flushed


def tokenizer(arguments):
    from keras_transformer.experiment import learn_tokenizer

    made = learn_tokenizer(arguments.input, arguments.output, set_values(arguments, "KEY=VALUE"))
    print(f"{arguments.output}: {made.vocab_size} ids")


def prepare(arguments):
    from keras_transformer import data
    from keras_transformer.data.places import is_remote
    from keras_transformer.data.preparation import KIND
    from keras_transformer_runner.atomic import check_unheld
    from keras_transformer_runner.tokenizers import load_tokenizer

    corpus = open_named_corpus(arguments, invalid=arguments.invalid)
    options = {
        "max_length": arguments.max_length,
        "shards": arguments.shards,
        "seed": arguments.seed,
        "compression": "GZIP" if arguments.gzip else None,
    }
    if arguments.target_tokenizer:
        options["target_tokenizer"] = load_tokenizer(arguments.target_tokenizer)
    write = data.prepare
    if arguments.beam is not None:
        write = data.prepare_with_beam
        options["options"] = beam_pipeline_options(arguments.beam)
    tokenizer = load_tokenizer(arguments.tokenizer)
    if not is_remote(arguments.output):
        check_unheld(arguments.output)  # first: it removes a lock that a finished one has left
        check_new_folder(arguments.output, KIND)
        check_writable(arguments.output)
    start_tensorflow()
    made = write(corpus, tokenizer, arguments.output, **options)
    found = [f"{len(made):,} pairs in {made.shards} shards", str(made.check().faults)]
    print(f"{arguments.output}: {'; '.join(filter(None, found))}")


def train(arguments):
    from keras_transformer.experiment.experiment import Experiment
    from keras_transformer.experiment.run_folder import check_folder
    from keras_transformer.experiment.start import find_start
    from keras_transformer.experiment.unused_keys import check_keys

    overrides = set_values(arguments, "SECTION.KEY=VALUE")
    experiment = Experiment.load(arguments.experiment, overrides, data_folder=arguments.data)
    run_dir, more_epochs = pathlib.Path(arguments.run_dir), arguments.more_epochs
    resuming = check_folder(run_dir, experiment, resume=True, more_epochs=more_epochs)
    check_writable(arguments.run_dir)
    experiment.check_files()
    if not resuming:
        check_keys(experiment, remote=False)
    find_start(experiment, arguments.run_dir)
    start_tensorflow()
    from keras_transformer.training import train

    print(train(experiment, arguments.run_dir, more_epochs=more_epochs))


def stop(arguments):
    from keras_transformer.experiment.length import stop_run

    when = "now" if arguments.now else "after this epoch"
    if stop_run(arguments.run_dir, now=arguments.now):
        print(f"{arguments.run_dir}: training ends {when}")
    else:
        print(f"{arguments.run_dir}: nobody trains it; `train` now writes the model that there is")


def import_model(arguments):
    from keras_transformer.interop import from_pretrained, is_marian

    options = {
        "source_language": arguments.source_language,
        "target_language": arguments.target_language,
    }
    check_new_folder(arguments.run_dir, "an imported run")
    check_writable(arguments.run_dir)
    samples = listed_lines(arguments.samples) or ()
    if arguments.samples is not None and not samples:
        raise ValueError(f"--samples must have a line. Received: {arguments.samples} is empty")
    if is_marian(arguments.folder):
        from keras_transformer.interop.marian import Opened

        Opened.read(pathlib.Path(arguments.folder), **options)
    else:
        from keras_transformer.interop.hugging_face import Checkpoint, tokenizers_of

        tokenizers_of(Checkpoint.open(arguments.folder), **options)
    start_tensorflow()
    pretrained = from_pretrained(arguments.folder, **options)
    pretrained.save_run(arguments.run_dir, samples)
    print(pretrained.report)
    print(f"{arguments.run_dir}: {pretrained.origin}, licence {pretrained.licence or 'not stated'}")


def load_named_run(arguments):
    """The run that the arguments name, with the search that they ask for."""
    from keras_transformer.experiment import load_run

    start_tensorflow()
    run = load_run(arguments.run_dir).with_decoding(
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
        length_normalization=arguments.length_normalization,
    )
    if arguments.shortlist:
        run = run.with_shortlist(arguments.run_dir)
    return run.with_prefixes(source=arguments.source_prefix, target=arguments.target_prefix)


def check_named_run(arguments):
    """Raises a `FileNotFoundError` if the run that the arguments name is not there."""
    from keras_transformer.experiment.run_folder import check_finished, check_shortlist

    check_finished(arguments.run_dir)
    if arguments.shortlist:
        check_shortlist(arguments.run_dir)


def translate(arguments):
    if arguments.output:
        _translate_file(arguments)
        return
    texts.check_whole(arguments)
    check_named_run(arguments)
    if arguments.whole_texts:
        texts.print_translated(arguments, lambda: load_named_run(arguments).translator())
        return
    lines, interactive = arguments.text, False
    if not lines:
        lines, interactive = input_lines(arguments.input or "-")
    form, translator = texts.file_format(arguments), load_named_run(arguments).translator()
    items = ((number, line, None) for number, line in enumerate(lines, start=1))
    for chunk in chunks(items, 1 if interactive else _CHUNK):
        write_lines(map(one_line, form.translated(translator, chunk)))


def _translate_file(arguments):
    from keras_transformer.outputs import new_output

    check_file(arguments.input)
    check_writable(arguments.output)
    texts.check_whole(arguments)
    check_named_run(arguments)
    # Before anything that takes time.
    with new_output(arguments.output):
        start_tensorflow()
        translate = _translate_here if arguments.beam is None else _translate_with_beam
        done = translate(arguments)
    what = "characters" if texts.is_one_text(arguments) else "lines"
    print(f"{arguments.output}: {done:,} {what}")


def _translate_with_beam(arguments):
    from keras_transformer.translation.apache_beam import translate_file_with_beam

    form = texts.file_format(arguments)
    load_named_run(arguments)  # what is wrong with it is told here, not by a worker
    return translate_file_with_beam(
        functools.partial(_translator_of, arguments),
        arguments.input,
        arguments.output,
        form=form,
        options=beam_pipeline_options(arguments.beam),
        lock=False,
    )


def _translate_here(arguments):
    from keras_transformer.experiment.run_folder import model_fingerprint
    from keras_transformer.translation import files

    if texts.is_one_text(arguments):
        with _translating(arguments, _translator_of(arguments)) as translator:
            return texts.translate_named(arguments, translator)
    form, run = texts.file_format(arguments), load_named_run(arguments)
    start, said = time.monotonic(), [0.0]

    def progress(done):
        seconds = time.monotonic() - start
        if seconds - said[0] >= _SAY_SECONDS:
            said[0] = seconds
            print(f"{done:,} lines after {seconds:.0f} s", file=sys.stderr, flush=True)

    translator = run.translator(jit_compile=arguments.jit_compile)
    model = model_fingerprint(arguments.run_dir)
    with _translating(arguments, translator) as translator:
        return files.translate_file(
            translator,
            arguments.input,
            arguments.output,
            form=form,
            fingerprint=repr(
                (model, run.strategy, run.max_source_length, *run.prefixes, *run.shortlist_fields)
            ),
            progress=progress,
            lock=False,
        )


def _translating(arguments, translator):
    """A context manager that gives the translator, or what stands for it in several processes."""
    if arguments.workers == 1:
        return contextlib.nullcontext(translator)
    from keras_transformer.translation.workers import Workers

    make_translator = functools.partial(_translator_of, arguments)
    return Workers(make_translator, arguments.workers, translator)


def _translator_of(arguments):
    return load_named_run(arguments).translator(jit_compile=arguments.jit_compile)


def beam_pipeline_options(text):
    """The options of an Apache Beam pipeline that a command line gives."""
    try:
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ImportError("--beam-pipeline needs Apache Beam: pip install apache-beam") from error
    return PipelineOptions(shlex.split(text))


def export(arguments):
    check_size(
        optional=True, max_source_length=arguments.max_source_length, n_best=arguments.n_best
    )
    path = _new_artifact(arguments)
    check_writable(path)
    for samples in (arguments.samples, arguments.references, arguments.calibration):
        if samples is not None:
            check_file(samples)
    check_named_run(arguments)
    run = load_named_run(arguments).with_decoding(n_best=arguments.n_best)
    longest = arguments.max_source_length
    longest = run.max_source_length if longest is None else longest
    if arguments.lengths_only:
        longest = min(longest, arguments.lengths[-1])
    options = {
        "samples": listed_lines(arguments.samples) or run.samples_within(longest),
        "strategy": run.strategy,
        "target_tokenizer": run.target_tokenizer,
        "max_source_length": longest,
        "shortlist": run.shortlist,
    }
    from keras_transformer.command.run_origin import card_of_export

    options["card"] = card_of_export(run, arguments)
    if arguments.form == "savedmodel":
        from keras_transformer.export.serving.saved_model import export_saved_model

        options |= {"ids_only": arguments.ids_only, "measure_latency": True}
        report = export_saved_model(run.model, run.tokenizer, path, **options)
    else:
        from keras_transformer.export.litert.export_translator import export_litert
        from keras_transformer.export.litert.graphs import SIGNATURES

        options |= {
            "mode": arguments.mode,
            "lengths": arguments.lengths,
            "lengths_only": arguments.lengths_only,
            "references": listed_lines(arguments.references),
            "calibration_samples": listed_lines(arguments.calibration),
        }
        if arguments.signatures == "all":
            options["signatures"] = SIGNATURES
        report = export_litert(run.model, run.tokenizer, path, **options)
    print(
        f"{path}: {report.identical} of {report.samples} samples as in Python, "
        f"{report.token_agreement:.2%} of the tokens; {report.size_bytes / 1e6:.1f} MB, "
        f"{report.seconds_a_sample * 1e3:.1f} ms a sentence"
    )
    if arguments.form == "savedmodel":
        _print_serving_facts(path)


def _new_artifact(arguments):
    """The folder to make; of a model for TF Serving, the next version in the one that is named."""
    if arguments.form == "savedmodel":
        from keras_transformer.artifacts import next_version

        return next_version(arguments.output)
    from keras_transformer_runner.atomic import check_unheld

    check_unheld(arguments.output)
    if os.path.exists(arguments.output):
        raise FileExistsError(f"the artifact needs a new folder. Received: {arguments.output}")
    return arguments.output


def _print_serving_facts(path):
    """What a server needs, and how long its calls take, cold and warm."""
    from keras_transformer.artifacts import read_description

    facts = read_description(path)
    ops = ", ".join(facts["requires"]["tensorflow_text"])
    print(f"a server needs TensorFlow Text for {ops}" if ops else "a server needs TensorFlow alone")
    for call in facts["latency"]:
        print(
            f"{call['signature']}, {call['rows']} rows: {call['cold_seconds'] * 1e3:.1f} ms cold, "
            f"{call['warm_seconds'] * 1e3:.1f} ms warm"
        )
