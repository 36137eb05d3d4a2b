"""What a runner answers to the texts of a request, as JSON has it."""

from collections.abc import Callable

from keras_transformer_runner.runner import Runner
from keras_transformer_runner.sentences import split_text


def translations(
    runner: Runner, text: str, language: str, count: int, go_on: Callable[[], None]
) -> list[str]:
    """Different translations of a whole text, best first; the first is `Runner.translate_text`'s.

    Translation k has the k-th best of each sentence, or the last where the search found fewer.

    Args:
        runner: Of a model that translates.
        text: Of any length.
        language: See `Runner.translate_text`.
        count: The most that are given; what the file has, if that is less.
        go_on: Called before each sentence; what it raises ends the work.
    """
    split = split_text(text, language, runner.fits)
    count, found = min(count, max(1, runner.n_best)), []
    for sentence in split.sentences:
        go_on()
        found.append(_of_sentence(runner, sentence, count))
    texts = (
        split.with_translations([each[min(rank, len(each) - 1)] for each in found])
        for rank in range(count)
    )
    return list(dict.fromkeys(texts))


def _of_sentence(runner, sentence, count):
    if count == 1:
        return runner.translate([sentence])
    return [each.text for each in runner.translate_with_details([sentence], n_best=count)[0]]


def classes(runner: Runner, text: str) -> list[dict]:
    """Every class of a text with its probability, the likeliest first.

    Of a model that classifies tokens, the likeliest class of each token instead, in their order.
    """
    labels, probabilities = runner.metadata.get("labels"), runner.classify([text])[0]

    def of(row, index):
        label = labels[index] if labels else str(index)
        return {"label": label, "probability": float(row[index])}

    if probabilities.ndim == 2:
        return [of(row, int(row.argmax())) for row in probabilities]
    return [of(probabilities, int(index)) for index in (-probabilities).argsort(kind="stable")]
