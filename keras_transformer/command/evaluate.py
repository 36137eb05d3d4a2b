"""The commands that score translations of a test set: `evaluate`, and what `compare` shares."""

from keras_transformer.command.commands import check_named_run, load_named_run
from keras_transformer.command.inputs import open_named_corpus, write_lines
from keras_transformer.quiet import start_tensorflow


def evaluate(arguments):
    """Runs the command."""
    from keras_transformer.evaluation import TextScorer
    from keras_transformer.experiment.run_folder import check_run
    from keras_transformer.experiment.tokenizers import Tokenizers

    corpus = open_test_set(arguments)
    check_run(arguments.run_dir)  # whose tokenizer reads the references
    check_translator(arguments)
    scorer = TextScorer(
        tokenize=arguments.tokenize, lowercase=arguments.lowercase, metrics=arguments.metrics
    )
    # What makes a reference readable text: of a vocabulary of split text, its joining.
    plain_text = Tokenizers.load(arguments.run_dir).target.plain_text
    sources, references = read_test_set(corpus)
    translations = translate_function(arguments)(sources)
    for score in scorer(translations, map(plain_text, references)).values():
        write_lines([f"{score.text}\t{score.signature}"])


def open_test_set(arguments):
    """The corpus that the arguments name, which must be text.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if it is standard input, or what `prepare` has made.
    """
    from keras_transformer.data import PreparedCorpus

    if "-" in (arguments.source, arguments.target):
        raise ValueError(
            f"{arguments.command} needs files, or pipes by name, and no standard input. "
            f"Received: {arguments.source} and {arguments.target}"
        )
    corpus = open_named_corpus(arguments)
    if isinstance(corpus, PreparedCorpus):
        raise ValueError(
            f"a test set must be text, not what `prepare` made of it. Received: {corpus.name}"
        )
    return corpus


def read_test_set(corpus):
    """The sources and the references, lists of str. Each file is read once, as a pipe can be."""
    from keras_transformer.data.corpus import SKIP_HINT, FaultyLine

    try:
        pairs = list(corpus)
    except FaultyLine as error:  # no line of a test set may be left out
        raise ValueError(str(error).removesuffix(SKIP_HINT)) from error
    if not any(source.strip() and target.strip() for source, target in pairs):
        raise ValueError(
            "a test set must hold a pair with text on both sides. "
            f"Received: {corpus.name} with {len(pairs)} pairs"
        )
    return map(list, zip(*pairs, strict=True))


def check_translator(arguments):
    """Raises a `FileNotFoundError` if what translates is not there."""
    from keras_transformer.artifacts import newest_version
    from keras_transformer.evaluation import check_saved_model

    if arguments.backend == "python":
        check_named_run(arguments)
    elif arguments.backend == "savedmodel":
        check_saved_model(newest_version(arguments.artifact))


def translate_function(arguments):
    """`list[str] -> list[str]` of the run or of the artifact, which checks all before the first."""
    if arguments.backend == "litert":
        from keras_transformer_runner.runner import Runner

        return Runner(arguments.artifact).translate
    if arguments.backend == "savedmodel":
        from keras_transformer.artifacts import check_whole, newest_version
        from keras_transformer.evaluation import saved_model_translate

        path = newest_version(arguments.artifact)
        check_whole(path)
        start_tensorflow()
        return saved_model_translate(path)
    return load_named_run(arguments).translator().translate
