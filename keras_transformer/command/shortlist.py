"""The command `shortlist`: what it takes and what it does."""

import itertools
import pathlib
import sys

from keras_transformer.presets.folder import EXPERIMENT_FILE, SHORTLIST_FILE
from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.lines import check_file

_SAY_EVERY = 100_000
_MOST_CHECKED = 2000  # sentences


def add_shortlist(add_command, add_corpus_format):
    """Adds the command `shortlist`.

    Args:
        add_command: Function of a name and a text, which gives the parser of a new command.
        add_corpus_format: Function that adds the options of a corpus to a parser.
    """
    command = add_command(
        "shortlist",
        "Learn which target ids a source may need, for `--shortlist`: a faster search among them.",
        run=shortlist,
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` has made")
    command.add_argument(
        "--source",
        metavar="FILE",
        help="pairs to learn from, with both sides, or --target; those that RUN was trained on if "
        "not given",
    )
    command.add_argument("--target", metavar="FILE", help="the translations, line for line")
    add_corpus_format(command, split="train")
    command.add_argument(
        "--lex",
        metavar="FILE",
        help="a dictionary in the place of pairs: Marian's lex.s2t, as text or binary",
    )
    command.add_argument(
        "--first", type=int, default=100, metavar="N", help="most frequent ids, for every sentence"
    )
    command.add_argument(
        "--best", type=int, default=100, metavar="N", help="most target ids of a source id"
    )
    command.add_argument(
        "--threshold", type=float, default=0.0, metavar="P", help="least P(target | source)"
    )
    command.add_argument(
        "--pairs", type=int, default=500_000, metavar="N", help="most pairs to learn from"
    )
    command.add_argument(
        "--references-only",
        action="store_true",
        help="do not learn from the model's own translations of the sources, which takes longer",
    )
    command.add_argument(
        "--check",
        action="store_true",
        help="translate the validation set of RUN with and without it, and compare",
    )


def shortlist(arguments):
    """Learns the shortlist of a run and writes it into its folder."""
    from keras_transformer.arguments import check_count, check_rate, check_size
    from keras_transformer.experiment.experiment import Experiment
    from keras_transformer.experiment.run_folder import check_finished

    check_count(first=arguments.first, best=arguments.best)
    check_size(pairs=arguments.pairs)
    check_rate(threshold=arguments.threshold)
    check_finished(arguments.run_dir)
    if arguments.lex is not None:
        check_file(arguments.lex)
    _check_run(Experiment.load(pathlib.Path(arguments.run_dir) / EXPERIMENT_FILE), arguments)
    corpus = _corpus(arguments)
    start_tensorflow()
    from keras_transformer.experiment import load_run

    run = load_run(arguments.run_dir)
    made = _of_lexicon(arguments, run) if arguments.lex else _learned(arguments, run, corpus)
    path = pathlib.Path(arguments.run_dir) / SHORTLIST_FILE
    made.save(path, owner=run.tokenizers_fingerprint)
    print(
        f"{path}: {len(made.frequent):,} ids for every sentence, and "
        f"{len(made.ids) / made.source_size:.1f} of a source id, {made.longest:,} at most"
    )
    if arguments.check:
        _check(run, made)


def _check_run(experiment, arguments):
    """Raises a `ValueError` if a run has not the corpora that the arguments need."""
    data, has_own = experiment.data, arguments.source is not None or arguments.lex is not None
    if data.imported is not None and (arguments.check or not has_own):
        raise ValueError(
            "a run without a corpus needs --source or --lex, and goes without --check. "
            f"Received: imported={data.imported!r}"
        )
    if arguments.check and not any(each.valid_tsv or each.valid_source for each in data.corpora):
        raise ValueError("--check needs a run with a validation set. Received: one without")


def _corpus(arguments):
    """The corpus that the arguments name, or `None`."""
    from keras_transformer.command.inputs import open_named_corpus

    return None if arguments.source is None else open_named_corpus(arguments)


def _learned(arguments, run, corpus):
    from keras_transformer.translation.learn_shortlist import learn_shortlist

    if corpus is None:
        corpus = _corpora_of(run)[0]

    def progress(done):
        if done % _SAY_EVERY < 4096:
            print(f"{done:,} pairs", file=sys.stderr, flush=True)

    return learn_shortlist(
        run.translator(),
        itertools.islice(_texts(corpus), arguments.pairs),
        first=arguments.first,
        best=arguments.best,
        threshold=arguments.threshold,
        own=not arguments.references_only,
        progress=progress,
    )


def _corpora_of(run):
    """The training corpus and the validation corpus, or `None`, of a run."""
    from keras_transformer.experiment.corpora import open_corpora

    return open_corpora(run.experiment.data)


def _texts(corpus):
    """The pairs of any corpus as text."""
    from keras_transformer.data import JoinedCorpus, PreparedCorpus

    if isinstance(corpus, PreparedCorpus):
        return corpus.decoded()
    return corpus.in_turn() if isinstance(corpus, JoinedCorpus) else iter(corpus)


def _of_lexicon(arguments, run):
    """The shortlist of a dictionary, whose frequent ids are those that most sources may become."""
    import numpy as np

    from keras_transformer.decoding.shortlist import Shortlist
    from keras_transformer.interop.lexical_shortlist import (
        LexicalShortlist,
        is_binary,
        read_lex,
    )

    sizes = dict(source_size=run.config.vocab_size, target_size=run.config.target_size)
    joint = run.target_tokenizer is run.tokenizer
    if is_binary(arguments.lex):
        return LexicalShortlist(arguments.lex, joint_vocabulary=joint).shortlist(**sizes)
    table = read_lex(arguments.lex, run.tokenizer.pieces, run.target_tokenizer.pieces)
    mass = np.bincount(table[1], table[2], sizes["target_size"])
    frequent = np.argsort(-mass, kind="stable")[: arguments.first]
    options = dict(best=arguments.best, threshold=arguments.threshold, joint=joint)
    return Shortlist.from_scores(*table, **sizes, **options, frequent=frequent[mass[frequent] > 0])


def _check(run, made):
    """Prints how the translations of the validation set differ, and how many candidates it has."""
    import dataclasses

    from keras_transformer.evaluation import text_scores

    corpus = _corpora_of(run)[1]
    pairs = (pair for pair in _texts(corpus) if pair[0].strip())
    sources, references = zip(*itertools.islice(pairs, _MOST_CHECKED), strict=True)
    references = [run.target_tokenizer.plain_text(text) for text in references]
    short, whole = (dataclasses.replace(run, shortlist=each).translator() for each in (made, None))
    texts = [translator.translate(sources) for translator in (short, whole)]
    same = sum(a == b for a, b in zip(*texts, strict=True))
    bleu = [text_scores(each, references)["bleu"].value for each in texts]
    sizes = [len(made.ids_for(short.source_ids(text))) for text in sources]
    print(
        f"{same:,} of {len(sources):,} texts ({same / len(sources):.2%}) are those of the whole "
        f"vocabulary; BLEU {bleu[0]:.2f} against {bleu[1]:.2f}; "
        f"{sum(sizes) / len(sizes):.0f} candidates a sentence, {max(sizes):,} at most, of "
        f"{made.target_size:,}"
    )
