"""The command `compare`: its arguments, and what it does with them."""

from keras_transformer.command.evaluate import (
    check_translator,
    open_test_set,
    read_test_set,
    translate_function,
)
from keras_transformer.command.export_parser import add_metrics, add_search, add_shortlist_use
from keras_transformer.command.usage import SEARCH
from keras_transformer_runner.folders import check_new_folder, check_writable
from keras_transformer_runner.lines import check_file, read_lines
from keras_transformer_runner.streams import log


def add_compare(add_command, add_corpus_format):
    """Adds the command `compare`.

    Args:
        add_command: Function of a name, a text and `run`, which gives the parser of a new command.
        add_corpus_format: Function that adds the options of a corpus to a parser.
    """
    command = add_command(
        "compare",
        "Score several translators on a test set, test each against the first (paired bootstrap, "
        "by sacreBLEU), and show where they differ most.",
        run=compare,
    )
    command.add_argument(
        "systems",
        metavar="RUN",
        nargs="+",
        help="a run, a SavedModel or LiteRT folder of `export`, or a file with translations, line "
        "for line; the first is what the others are compared with",
    )
    command.add_argument(
        "--source",
        metavar="FILE",
        help="what to translate: a sentence a line; or both sides, as the name (.tsv, .jsonl) or "
        "--format says. Not needed where all RUNs are files",
    )
    command.add_argument("--target", metavar="FILE", help="the references, line for line")
    add_corpus_format(command, split="test")
    command.add_argument(
        "--output",
        metavar="DIR",
        help="new folder for the translations, the figures (comparison.json, sentences.jsonl) and "
        "plots",
    )
    command.add_argument(
        "--examples",
        type=int,
        default=3,
        metavar="N",
        help="sentences to show where another is most above the first, and as many below",
    )
    command.add_argument(
        "--by", choices=("chrf", "bleu"), default="chrf", help="what sentences are compared by"
    )
    command.add_argument(
        "--samples", type=int, default=1000, metavar="N", help="test sets to resample"
    )
    command.add_argument("--seed", type=int, default=12345, help="of the resampling")
    add_metrics(command)
    add_search(command)
    add_shortlist_use(command)


def compare(arguments):
    """Runs the command: all that can be known first, then each translator in turn."""
    from keras_transformer.arguments import check_count, check_size
    from keras_transformer.command.comparison_report import print_comparison, write_comparison
    from keras_transformer.command.systems import find_systems, read_translations
    from keras_transformer.comparison import compare_translations
    from keras_transformer.evaluation import TextScorer

    check_size(samples=arguments.samples, seed=arguments.seed)
    check_count(examples=arguments.examples)
    systems = find_systems(arguments.systems)
    _check_search(arguments, systems)
    for system in systems:
        if system.kind != "file":
            check_translator(system.arguments(arguments))
    TextScorer(tokenize=arguments.tokenize)
    if arguments.output:
        check_new_folder(arguments.output, "a comparison")
        check_writable(arguments.output)
    sources, references = _test_set(arguments, systems)
    files = {  # before any translates
        each.name: read_translations(each, len(references))
        for each in systems
        if each.kind == "file"
    }
    translations = {
        each.name: files[each.name] if each.name in files else _translated(each, arguments, sources)
        for each in systems
    }
    found = compare_translations(
        translations,
        references,
        metrics=arguments.metrics,
        tokenize=arguments.tokenize,
        lowercase=arguments.lowercase,
        samples=arguments.samples,
        seed=arguments.seed,
        by=arguments.by,
    )
    texts = (sources, references, translations)
    if arguments.output:
        paths = {each.name: {"path": each.path, "kind": each.kind} for each in systems}
        write_comparison(arguments.output, found, *texts, paths)
    print_comparison(found, *texts, arguments.examples)


def _check_search(arguments, systems):
    """Raises a `ValueError` if a search is asked for and nothing searches by it."""
    if not any(system.kind == "python" for system in systems):
        for name in SEARCH:
            if getattr(arguments, name) is not None:
                raise ValueError(
                    f"--{name.replace('_', '-')} needs a run: of an artefact it is chosen by "
                    f"export. Received: {' '.join(arguments.systems)}"
                )


def _translated(system, arguments, sources):
    """The translations of one system."""
    log(f"{system.name} translates {len(sources):,} sentences")
    return translate_function(system.arguments(arguments))(sources)


def _test_set(arguments, systems):
    """The sources, or `None` where only references are given, and the references as plain text.

    Raises:
        ValueError: if there is none, or the runs read the references in different ways.
    """
    if arguments.source is None:
        check_file(arguments.target)
        references = list(read_lines(arguments.target, plain=True))
        if not references:
            raise ValueError(f"a test set must hold a line. Received: {arguments.target} is empty")
        return None, references
    sources, references = read_test_set(open_test_set(arguments))
    return sources, _plain_references(references, systems)


def _plain_references(references, systems):
    """The references as readable text: of a vocabulary of split text, joined."""
    from keras_transformer.command.systems import plain_text_of

    found, read = {}, references
    for system in systems:
        if plain_text := plain_text_of(system):
            texts = list(map(plain_text, references))
            if not found:
                read = texts
            # Some make all white space a single space, which no metric looks at.
            found.setdefault(tuple(" ".join(text.split()) for text in texts), system.path)
    if len(found) > 1:
        raise ValueError(
            "systems to compare must read the references as the same text, so all or none of them "
            f"have split text. Received: {' and '.join(found.values())}"
        )
    return read
