"""Scores of a translated test set, and the translator inside a SavedModel."""

from pathlib import Path

_BATCH = 32


def corpus_scores(translations, references):
    """BLEU and chrF of a corpus, as sacreBLEU computes and signs them.

    Args:
        translations: Strings.
        references: As many strings, one reference each.

    Returns:
        Two lines, each a score, a tab and its signature.

    Raises:
        ImportError: if `sacrebleu` is not installed.
        ValueError: if the counts differ, or there is none.
    """
    translations, references = list(translations), list(references)
    if not references or len(translations) != len(references):
        raise ValueError(
            "`translations` and `references` must have the same number of lines, at least one. "
            f"Received: {len(translations)} and {len(references)}"
        )
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ImportError("scores need the package sacrebleu: pip install sacrebleu") from error
    lines = []
    for metric in (BLEU(), CHRF()):
        score = metric.corpus_score(translations, [references])
        lines.append(f"{score}\t{metric.get_signature()}")
    return lines


def saved_model_translate(path):
    """A function `list[str] -> list[str]` that runs an exported SavedModel.

    Args:
        path: The folder that `export_saved_model` has made.

    Raises:
        FileNotFoundError: if it is no SavedModel.
    """
    if not (Path(path) / "saved_model.pb").is_file():
        raise FileNotFoundError(f"a SavedModel must hold saved_model.pb. Received: {path}")
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)

    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]

    def translate(texts):
        translations = []
        for start in range(0, len(texts), _BATCH):
            batch = tf.constant(list(texts[start : start + _BATCH]))
            found = signature(text=batch)["translation"].numpy()
            translations += [text.decode("utf-8") for text in found]
        return translations

    translate.loaded = loaded  # the signature lives only as long as the object that owns it
    return translate
