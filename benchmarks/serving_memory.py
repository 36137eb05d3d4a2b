"""Peak memory of a server at the bounds that export/serving states, for every signature.

    python benchmarks/serving_memory.py [--size base] [--source-tokens 1024] [--rows 32]
        [--at-once 2] [--beam-sizes 1 4] [--signatures translate score ...] [--output FILE]

A SavedModel of random weights and 32,000 ids is exported for each beam size. Each signature runs
in a fresh process that loads it as TF Serving does, by TensorFlow's C++ session, and answers
`--at-once` calls of `--rows` rows at the same time, all texts as long as the bound and no
translation ending before its limit: the largest calls that `batching.config` and `serving.json`
let in. What counts is the most resident memory of that process (`VmHWM`, so Linux only), Python
and its TensorFlow included. The process has loaded the model twice, as a server has while a new
version takes over.

A large batch of a search runs in pieces, one after the other (`export/pieces.py`), so `--rows 4`, a
piece of 1,024 tokens a row, takes an eighth of the time of 32 and shows nearly as much memory.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SIGNATURES = ("serving_default", "translate", "translate_ids", "score", "encode", "embed")

_SERVER = """
import json, re, sys, threading, time
import numpy as np
import tensorflow as tf
import tensorflow_text
folder, signature, at_once = sys.argv[1], sys.argv[2], int(sys.argv[3])
inputs = dict(np.load(sys.argv[4], allow_pickle=True))
def load():
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], folder)
    return session, meta_graph.signature_def[signature]
def peak(name="VmHWM"):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
empty = peak("VmRSS")
session, wanted = load()
other, _ = load()  # the version before
loaded, start = peak("VmRSS"), time.perf_counter()
faults = []
def call():
    try:
        fetches = {name: tensor.name for name, tensor in wanted.outputs.items()}
        feeds = {tensor.name: inputs[name] for name, tensor in wanted.inputs.items()}
        found = session.run(fetches, feeds)
        if set(found.get("status", np.array([b"ok"]))) != {b"ok"}:
            faults.append(str(found["status"]))
    except Exception as error:
        faults.append(str(error)[:1000])
threads = [threading.Thread(target=call) for _ in range(at_once)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if faults:
    sys.exit(faults[0])
seconds = time.perf_counter() - start
found = {"empty": empty, "loaded": loaded, "peak": peak(), "seconds": seconds}
print(json.dumps(found))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=("tiny", "base"), default="base")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--source-tokens", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=32, help="`max_batch_size`")
    parser.add_argument("--at-once", type=int, default=2, help="`num_batch_threads`")
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--signatures", nargs="+", choices=SIGNATURES, default=SIGNATURES)
    parser.add_argument("--output", type=pathlib.Path, help="JSON file for the figures")
    arguments = parser.parse_args()
    from keras_transformer.quiet import start_tensorflow

    start_tensorflow()
    figures = {name: getattr(arguments, name) for name in ("size", "vocab_size", "source_tokens")}
    figures |= {"at_once": arguments.at_once, "peaks": []}
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        for beam_size in arguments.beam_sizes:
            folder = place / str(beam_size)
            inputs = export(folder, beam_size, arguments)
            for signature in arguments.signatures:
                # No more than a search differs between the exports.
                if beam_size != arguments.beam_sizes[0] and signature in (
                    "score",
                    "encode",
                    "embed",
                ):
                    continue
                row = {"signature": signature, "beam_size": beam_size, "rows": arguments.rows}
                row |= measured(folder, signature, arguments.at_once, inputs, place)
                figures["peaks"].append(row)
                print(
                    f"{signature:16} beam {beam_size}: {row['peak_mib']:6,} MiB at most, "
                    f"{row['loaded_mib']:,} loaded, {row['empty_mib']:,} before; "
                    f"{row['seconds']:.1f} s",
                    flush=True,
                )
                if arguments.output:
                    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")


def export(folder, beam_size, arguments):
    """Writes a SavedModel of random weights; returns inputs at its bounds, by name."""
    import numpy as np

    import keras_transformer as kt
    from keras_transformer.export import export_saved_model

    model, tokenizer, letters = random_model(kt, arguments.size, arguments.vocab_size)
    strategy = kt.BeamSearch(beam_size=beam_size) if beam_size > 1 else kt.Greedy()
    longest = arguments.source_tokens
    export_saved_model(
        model,
        tokenizer,
        folder,
        samples=[letters[:3]],
        strategy=strategy,
        max_source_length=longest,
        warmup_batch_sizes=(),
    )
    rng = np.random.default_rng(5)
    # Its word mark and EOS are two tokens more.
    texts = ["".join(rng.choice(list(letters), longest - 2)) for _ in range(arguments.rows)]
    rows = [tokenizer.encode(text) for text in texts]
    lengths = {len(row) + 1 for row in rows}
    if lengths != {longest}:
        raise RuntimeError(f"texts of {longest} tokens, EOS included, have {lengths}")
    text = np.array([text.encode() for text in texts], object)
    return {
        "text": text,
        "target": text[::-1],
        "n_best": np.zeros(arguments.rows, "int32"),
        "source_ids": np.array([[*row, tokenizer.eos_id] for row in rows], "int32"),
    }


def random_model(kt, size, vocab_size):
    """A model that never ends a text, its SentencePiece model of characters, and those."""
    import keras

    keras.utils.set_random_seed(11)
    # Of Chinese and Korean, as many as there are ids beside control ids and the word mark.
    letters = [*map(chr, range(0x4E00, 0x9FA6)), *map(chr, range(0xAC00, 0xD7A4))][: vocab_size - 5]
    tokenizer = kt.SentencePieceTokenizer.train(letters, vocab_size, model_type="char")
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    config = kt.TransformerConfig.preset(size, vocab_size=vocab_size, **ids)
    model = kt.Transformer(config)
    for variable in model.weights:
        if tuple(variable.shape) == (vocab_size, config.model_dim):
            values = variable.numpy()
            values[ids["eos_id"]] = 0  # the logit 0, which is never the highest
            variable.assign(values)
    return model, tokenizer, "".join(letters)


def measured(folder, signature, at_once, inputs, place):
    import numpy as np

    file = place / "inputs.npz"
    np.savez(file, **inputs)
    command = [sys.executable, "-c", _SERVER, folder, signature, at_once, file]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment
    )
    if done.returncode != 0:
        raise RuntimeError(f"{signature}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    sizes = {f"{name}_mib": round(found[name]) for name in ("empty", "loaded", "peak")}
    return {**sizes, "seconds": round(found["seconds"], 1)}


if __name__ == "__main__":
    main()
