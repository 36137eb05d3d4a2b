"""The command `distil`: its arguments, and what it does with them."""

import pathlib

from keras_transformer.command.commands import beam_pipeline_options
from keras_transformer.command.export_parser import add_processes, add_search
from keras_transformer.command.inputs import set_values
from keras_transformer.command.run_parser import add_values
from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.folders import check_writable


def add_distil(add_command):
    """Adds the command `distil`.

    Args:
        add_command: Function of a name, a text and `run`, which gives the parser of a new command.
    """
    command = add_command(
        "distil",
        "Train a student on what teachers write. Interrupted, the same command goes on.",
        run=distil,
    )
    command.add_argument(
        "teachers",
        metavar="TEACHER",
        nargs="+",
        help="folder of a finished run or of a preset; several translate as one",
    )
    command.add_argument(
        "experiment", metavar="STUDENT.toml", help="the student: data, model, training time"
    )
    command.add_argument("run_dir", metavar="RUN", help="folder for the student")
    command.add_argument(
        "--corpus",
        metavar="FOLDER",
        help="for what the teachers write, which several students may share; RUN.distilled if not "
        "given",
    )
    command.add_argument(
        "--n-best", type=int, default=1, metavar="N", help="translations of each source"
    )
    command.add_argument(
        "--select",
        choices=("best", "best-bleu", "all", "original"),
        default="best",
        help="what becomes a pair: the best, of --n-best the nearest to the corpus' own target, "
        "all of them, or the corpus' own target, for --probabilities alone",
    )
    command.add_argument(
        "--probabilities",
        type=int,
        metavar="K",
        help="write the teachers' K most probable ids of each position too, for "
        "training.teacher_weight; needs their tokenizer",
    )
    command.add_argument(
        "--original-weight",
        type=float,
        metavar="WEIGHT",
        help="train on the original pairs too, so often an epoch: 1 is once",
    )
    add_processes(command)
    add_values(command)
    add_search(command)


def distil(arguments):
    """Runs the command: all that can be known first, then the teachers, then the student."""
    from keras_transformer import distillation
    from keras_transformer.distillation.distil import distilled_experiment
    from keras_transformer.experiment.experiment import Experiment
    from keras_transformer.experiment.run_folder import check_folder
    from keras_transformer.experiment.start import find_start
    from keras_transformer.experiment.unused_keys import check_keys

    options = distillation.DistillationOptions(
        n_best=arguments.n_best, select=arguments.select, top_k=arguments.probabilities
    )
    overrides = set_values(arguments, "SECTION.KEY=VALUE")
    student = Experiment.load(arguments.experiment, overrides, data_folder=arguments.data)
    places = {"corpus": arguments.corpus, "original_weight": arguments.original_weight}
    trained = distilled_experiment(student, arguments.run_dir, **places)
    teachers = distillation.Teachers.open(
        arguments.teachers,
        source_prefix=arguments.source_prefix,
        target_prefix=arguments.target_prefix,
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
        length_normalization=arguments.length_normalization,
    )
    distillation.check_student(student, teachers, options)
    resuming = check_folder(pathlib.Path(arguments.run_dir), trained, resume=True)
    distillation.check_job(trained.data.distilled, teachers, options)
    check_writable(arguments.run_dir)
    check_writable(trained.data.distilled)
    student.check_files()
    if not resuming:
        check_keys(trained, remote=False)
    find_start(student, arguments.run_dir)
    beam_options = None if arguments.beam is None else beam_pipeline_options(arguments.beam)
    start_tensorflow()
    made = distillation.distil(
        teachers,
        student,
        arguments.run_dir,
        **places,
        options=options,
        workers=arguments.workers,
        beam_options=beam_options,
        jit_compile=arguments.jit_compile,
    )
    print(made)
