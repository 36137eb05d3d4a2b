"""Keys of an experiment that mean nothing where they stand, which a new run refuses.

Reading an experiment does not refuse them: runs of earlier versions may have some.
"""

import dataclasses

from keras_transformer.data import JsonLinesCorpus, PreparedCorpus, TfdsCorpus
from keras_transformer.data.places import is_remote
from keras_transformer.experiment.corpora import open_part
from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.run_folder import LEAST_SOURCE_LENGTH


def check_keys(experiment: Experiment, *, remote: bool = True):
    """Checks that keys of `[data]`, and the teachers' of `[training]`, have something to act on.

    Args:
        experiment: The experiment.
        remote: Whether corpora of other machines are looked at, which needs TensorFlow.

    Raises:
        ValueError: if one has not.
    """
    data, training = experiment.data, experiment.training
    if training.teacher_temperature != 1 and not training.teacher_weight:
        raise ValueError(
            "`training.teacher_temperature` goes with `training.teacher_weight`. "
            f"Received: teacher_temperature={training.teacher_temperature}, teacher_weight=0"
        )
    if data.temperature is not None and len(data.corpora) < 2:
        raise ValueError(
            "`data.temperature` goes with several corpora, `[[data.sources]]`. "
            f"Received: temperature={data.temperature}, and one corpus"
        )
    if data.sources is not None:
        _check(data, "data", "the corpora of `[[data.sources]]`", "split", "valid_split")
    for each in data.corpora:
        paths = (getattr(each, name) for name in each.PATHS)
        if remote or not any(is_remote(path) for path in paths if path):
            _check_corpus(data, each)


def _check_corpus(data, each):
    """Checks the keys of one of `data.corpora`."""
    name = "data" if data.sources is None else "data.sources"
    opened = {prefix: open_part(data, each, prefix) for prefix in ("", "valid_")}
    named = " and ".join(dict.fromkeys(part.name for part in opened.values() if part))
    corpora = {prefix: getattr(part, "corpus", part) for prefix, part in opened.items()}
    if not any(isinstance(part, (JsonLinesCorpus, TfdsCorpus)) for part in corpora.values()):
        _check(each, name, named, "source_key", "target_key")
    for prefix, corpus in corpora.items():
        if not isinstance(corpus, TfdsCorpus):
            without = f"a `{name}` without `valid_source`"
            _check(each, name, opened[prefix].name if corpus else without, f"{prefix}split")
    if not (each.source or each.valid_source):
        _check(each, name, named, "format")
    if all(part is None or isinstance(part, PreparedCorpus) for part in corpora.values()):
        _check_length(data, corpora[""])


def _check_length(data, corpus):
    """A prepared corpus has its own length, which is no shorter for `[data]`.

    Only what is above a run's least limit on sources moves that.
    """
    moves_nothing = data.max_length < min(corpus.max_length, LEAST_SOURCE_LENGTH)
    if moves_nothing and data.max_length != _default(data, "max_length"):
        raise ValueError(
            "`data.max_length` is of text; pairs of a prepared corpus are left out by "
            f"`training.buckets`. Received: max_length={data.max_length}, "
            f"{corpus.name} of at most {corpus.max_length}"
        )


def _check(section, name, corpora, *keys):
    """Raises a `ValueError` if one of the keys is not what it is by default."""
    for key in keys:
        value = getattr(section, key)
        if value != _default(section, key):
            raise ValueError(f"`{name}.{key}` does not go with {corpora}. Received: {value!r}")


def _default(section, key):
    return next(field.default for field in dataclasses.fields(section) if field.name == key)
