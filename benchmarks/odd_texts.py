"""Odd texts through Python, the SavedModel and the device: the same answer out of all three.

    python benchmarks/odd_texts.py --out odd_texts.json [--texts 10000] [--quick] [--seed 0]
        [--only TOKENIZER ...]

All scripts, control characters, marks of direction, emoji and their joiners, stacks of combining
marks, lone surrogates, look-alikes of special tokens, white space of all kinds, nothing, texts
around the limit and texts of a megabyte; by seed, from Unicode's ranges. For each kind of
tokenizer, learnt from such texts, and a tiny float32 model of random weights: `Translator`, the
exported SavedModel in batches of 32, and the runner must give the same text, or all must refuse it
as too long (the SavedModel: by its status). The SavedModel takes bytes: a lone surrogate goes in as
its three bytes, which are no UTF-8; every tenth batch goes in as bytes with faults. Both must be
read as `bytes.decode("utf-8", "replace")` does.

Exits with 1 on a difference.
"""

import argparse
import collections
import pathlib
import random
import shutil
import sys
import tempfile
import unicodedata

from fault_injection.odd import OddTexts
from reporting import options_of, processor, say, write_json

_TEXTS, _QUICK_TEXTS = 10000, 600
_BATCH, _LIMIT, _LEARN = 32, 80, 100
_REFUSED = "REFUSED"
_EXAMPLES = 20
_PLAIN = ["the dog runs after 1000 balls", "das Haus ist schön und groß", "a dog is a dog"] * 20
_TOKENIZERS = ("sentencepiece", "sentencepiece_bytes", "characters", "vocabulary", "bytes")


def main():
    arguments = _arguments()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="odd-texts-"))
    try:
        found = {name: _compared(name, arguments, folder / name) for name in arguments.only}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = {"options": options_of(arguments), "processor": processor(), "tokenizers": found}
    for name, one in found.items():
        print(f"{name}: {one['counts']}")
        for example in one["examples"]:
            print(f"  {example}")
    if arguments.out:
        write_json(arguments.out, report)
    return int(any(one["counts"].get("different") for one in found.values()))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="where the figures go, as JSON")
    parser.add_argument("--texts", type=int, help=f"of each tokenizer; {_TEXTS} when left out")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_TEXTS} of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=_TOKENIZERS, default=list(_TOKENIZERS))
    arguments = parser.parse_args()
    if arguments.texts is None:
        arguments.texts = _QUICK_TEXTS if arguments.quick else _TEXTS
    return arguments


def _compared(name, arguments, folder):
    """Counts of what the three answer with one kind of tokenizer, and what differs."""
    make = OddTexts(random.Random(f"{arguments.seed}/{name}"), _LIMIT)
    three = _Three(_tokenizer(name, [make() for _ in range(_LEARN)]), folder)
    counts, examples, answers = collections.Counter(), [], set()
    generator = random.Random(f"{arguments.seed}/{name}/bytes")
    for first in range(0, arguments.texts, _BATCH):
        texts = [make() for _ in range(min(_BATCH, arguments.texts - first))]
        raw = [text.encode("utf-8", "surrogatepass") for text in texts]
        if first // _BATCH % 10 == 9:
            raw = [_with_faults(data, generator) for data in raw]
            texts = [data.decode("utf-8", "replace") for data in raw]
        for text, *found in zip(texts, *three.answers(texts, raw), strict=True):
            counts["texts"] += 1
            counts["refused"] += found[0] == _REFUSED
            answers.add(found[0])
            if len(set(found)) > 1:
                counts["different"] += 1
                if len(examples) < _EXAMPLES:
                    shown = [ascii(one[:80]) for one in (text, *found)]
                    examples.append([len(text), *shown])
        if first // _BATCH % 40 == 39:
            say(f"{name}: {dict(counts)}")
    counts["different_answers_of_python"] = len(answers)
    return {"counts": dict(counts), "examples": examples}


class _Three:
    """A random model in Python, as a SavedModel and on a device."""

    def __init__(self, tokenizer, folder):
        import keras
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)

        import keras_transformer as kt

        keras.utils.set_random_seed(5)
        config = kt.TransformerConfig(
            **dict(vocab_size=tokenizer.vocab_size, model_dim=14, num_heads=2, dropout=0.0),
            **dict(encoder_layers=1, decoder_layers=1, intermediate_dim=17),
            embedding_sharing="none",  # so that a token does not just repeat itself
            **{name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")},
        )
        model, strategy = _randomised(kt.Transformer(config)), kt.Greedy(max_length=9)
        self._tf = tf
        self._python = kt.Translator(model, tokenizer, strategy, max_source_length=_LIMIT)
        options = dict(samples=["a", "dog"], strategy=strategy, max_source_length=_LIMIT)
        kt.export_saved_model(model, tokenizer, folder / "served", warmup_batch_sizes=(), **options)
        kt.export_litert(model, tokenizer, folder / "device", **options)
        self._served = tf.saved_model.load(str(folder / "served"))
        self._runner = kt.Runner(folder / "device")

    def answers(self, texts, raw):
        """What each of the three answers to the texts, which are `raw` as bytes."""
        return self._of_python(texts), self._of_served(raw), self._of_device(texts)

    def _of_python(self, texts):
        found = [_REFUSED] * len(texts)
        short = [number for number, text in enumerate(texts) if self._fits(text)]
        translations = self._python.translate([texts[number] for number in short])
        for number, translation in zip(short, translations, strict=True):
            found[number] = translation
        return found

    def _fits(self, text):
        try:
            self._python.source_ids(text)
        except ValueError:
            return False
        return True

    def _of_served(self, raw):
        text = self._tf.constant(raw)
        n_best = self._tf.zeros(len(raw), self._tf.int32)
        details = self._served.signatures["translate"](text=text, n_best=n_best)
        plain = self._served.signatures["serving_default"](text=text)["translation"].numpy()
        found = []
        rows = (details["status"].numpy(), details["translations"].numpy()[:, 0], plain)
        for status, best, translation in zip(*rows, strict=True):
            is_refused = status == b"too_long" and best == translation == b""
            is_answer = status == b"ok" and best == translation
            found.append(
                _REFUSED if is_refused
                else translation.decode() if is_answer
                else f"status {status}, {best} and {translation}"
            )  # fmt: skip
        return found

    def _of_device(self, texts):
        found = []
        for text in texts:
            try:
                found += self._runner.translate([text])
            except ValueError as error:
                is_long = "max_source_length" in str(error)
                found.append(_REFUSED if is_long else f"ValueError: {error}")
        return found


def _randomised(model):
    """Weights about as large as initializers make them, drawn again, biases and norms too."""
    import numpy as np

    generator = np.random.default_rng(3)
    for weight in model.trainable_weights:
        scale = (2 / sum(weight.shape)) ** 0.5 if weight.path.endswith("kernel") else 0.1
        if weight.path.endswith("embeddings"):
            scale = weight.shape[1] ** -0.5
        offset = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(offset + scale * generator.normal(size=weight.shape))
    return model


def _tokenizer(name, texts):
    from keras_transformer_runner import tokenizers

    lines = [" ".join(_well_formed(one)[:200].split()) for one in texts]
    lines = [*filter(None, lines), *_PLAIN]
    characters = len({*unicodedata.normalize("NFKC", "".join(lines))})
    if name == "bytes":
        return tokenizers.BytesTokenizer()
    if name == "characters":
        return tokenizers.CharacterTokenizer.train(lines, min_count=2)
    if name == "vocabulary":
        return tokenizers.VocabularyTokenizer.train(lines, vocab_size=500)
    if name == "sentencepiece_bytes":
        return tokenizers.SentencePieceTokenizer.train(
            lines, vocab_size=characters + 320, byte_fallback=True, character_coverage=0.99
        )
    return tokenizers.SentencePieceTokenizer.train(
        lines, vocab_size=characters + 80, model_type="bpe", character_coverage=0.99,
        normalization="identity",
    )  # fmt: skip


def _well_formed(text):
    return text.encode("utf-8", "replace").decode()


def _with_faults(data, generator):
    """Bytes with some that are no UTF-8."""
    data = bytearray(data[:400])
    for _ in range(generator.randint(1, 3)):
        fault = generator.choice(
            (b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xc0\xaf")
        )
        place = generator.randint(0, len(data))
        data[place:place] = fault
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main())
