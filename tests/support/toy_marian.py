"""Models of Marian's own with random weights, and what they compute, from its source alone.

`src/models/transformer.h`, `src/rnn/cells.h` and `src/graph/node_initializers.cpp` of marian-dev.
Nothing of the package is used.
"""

import math

import numpy as np
import sentencepiece

DIM, FFN, HEADS, VOCAB = 10, 13, 2, 40
# As Marian writes them, one of each kind of value.
SETTINGS = {
    **{"type": "transformer", "dim-vocabs": [VOCAB, VOCAB], "dim-emb": DIM, "dim-rnn": 1024},
    **{"enc-type": "bidirectional", "enc-cell": "gru", "enc-cell-depth": 1, "enc-depth": 2},
    **{"dec-cell": "ssru", "dec-cell-base-depth": 2, "dec-cell-high-depth": 1, "dec-depth": 2},
    **{"skip": False, "layer-normalization": False, "right-left": False, "input-types": []},
    **{"tied-embeddings": False, "tied-embeddings-src": False, "tied-embeddings-all": True},
    **{"transformer-heads": HEADS, "transformer-no-projection": False, "transformer-pool": False},
    **{"transformer-dim-ffn": FFN, "transformer-ffn-depth": 2, "transformer-decoder-dim-ffn": 0},
    **{"transformer-decoder-ffn-depth": 0, "transformer-ffn-activation": "relu"},
    **{"transformer-dim-aan": 2048, "transformer-aan-depth": 2, "transformer-aan-nogate": False},
    **{"transformer-aan-activation": "swish", "transformer-decoder-autoreg": "rnn"},
    **{"transformer-tied-layers": [], "transformer-guided-alignment-layer": "last"},
    **{"transformer-preprocess": "", "transformer-postprocess": "dan"},
    **{"transformer-postprocess-emb": "d", "transformer-postprocess-top": ""},
    **{"transformer-train-position-embeddings": False, "transformer-rnn-projection": False},
    **{"ulr": False, "ulr-trainable-transformation": False, "ulr-dim-emb": 0},
    **{"lemma-dim-emb": 0, "output-omit-bias": False, "bert-train-type-embeddings": True},
    "version": "v1.9.0 56f6124 2021-10-10 10:10:10 +0100",
}


def yaml_of(settings):
    """As yaml-cpp writes settings."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, list):
            items = "".join(f"\n  - {item}" for item in value) or "\n  []"
            lines.append(f"{name}:{items}")
        elif isinstance(value, bool):
            lines.append(f"{name}: {str(value).lower()}")
        else:
            lines.append(f"{name}: {value}" if value != "" else f'{name}: ""')
    return "\n".join(lines)


def random_arrays(settings, seed=0, positions=None):
    """Every tensor that a model of these settings has; `positions` for a table of so many."""
    rng, arrays = np.random.default_rng(seed), {}
    source, target = settings["dim-vocabs"]
    post = settings["transformer-postprocess"].endswith("n")

    def matrix(name, rows, columns):
        arrays[name] = rng.normal(size=(rows, columns)) * (2 / (rows + columns)) ** 0.5

    def linear(prefix, part, rows, columns):
        matrix(f"{prefix}_W{part}", rows, columns)
        arrays[f"{prefix}_b{part}"] = 0.3 * rng.normal(size=(1, columns))

    def norm(prefix, end=""):
        arrays[f"{prefix}_ln_scale{end}"] = 1 + 0.3 * rng.normal(size=(1, DIM))
        arrays[f"{prefix}_ln_bias{end}"] = 0.3 * rng.normal(size=(1, DIM))

    def layer_norm(prefix):
        norm(prefix, "" if post else "_pre")

    def attention(prefix):
        for part in "qkvo":
            linear(prefix, part, DIM, DIM)
        layer_norm(f"{prefix}_Wo")

    if settings["tied-embeddings-all"] or settings["tied-embeddings-src"]:
        matrix("Wemb", source, DIM)
    else:
        matrix("encoder_Wemb", source, DIM)
        matrix("decoder_Wemb", target, DIM)
    if positions:
        matrix("Wpos", positions, DIM)
    for side, depth in (("encoder", settings["enc-depth"]), ("decoder", settings["dec-depth"])):
        if "n" in settings["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
        if "n" in settings["transformer-postprocess-top"]:
            norm(f"{side}_top")
        for layer in (f"{side}_l{index + 1}" for index in range(depth)):
            if side == "decoder" and settings["transformer-decoder-autoreg"] == "rnn":
                matrix(f"{layer}_rnn_W", DIM, DIM)
                linear(f"{layer}_rnn", "f", DIM, DIM)
                norm(f"{layer}_rnn_ffn") if post else norm(f"{layer}_rnn", "_pre")
            else:
                attention(f"{layer}_self")
            if side == "decoder":
                attention(f"{layer}_context")
            linear(f"{layer}_ffn", "1", DIM, FFN)
            linear(f"{layer}_ffn", "2", FFN, DIM)
            layer_norm(f"{layer}_ffn_ffn")
    if not settings["tied-embeddings-all"] and not settings["tied-embeddings"]:
        matrix("decoder_ff_logit_out_W", DIM, target)
    arrays["decoder_ff_logit_out_b"] = rng.normal(size=(1, target))
    return {name: array.astype("float32") for name, array in arrays.items()}


def write_model(path, settings, arrays):
    """Writes a `.npz` as Marian does, its settings as bytes with a zero behind them."""
    text = np.frombuffer(yaml_of(settings).encode() + b"\0", "int8")
    np.savez(path, **arrays, **{"special:model.yml": text})


def write_pieces(path, words, size=VOCAB):
    """A SentencePiece model as Marian makes it: EOS 0, unknown 1, no BOS and no pad."""
    options = dict(vocab_size=size, model_type="unigram", hard_vocab_limit=False)
    options.update(eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2)
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(words), model_writer=file, **options
        )


class Marian:
    """What a model computes, in float64."""

    def __init__(self, settings, arrays):
        self.settings = settings
        self.arrays = {name: array.astype("float64") for name, array in arrays.items()}

    def logits(self, source_ids, target_ids):
        """(T, V) for one sentence: row t follows the first t of the target's ids."""
        memory = self._embedded("encoder", self._table("encoder")[source_ids])
        for index in range(self.settings["enc-depth"]):
            memory = self._attention(f"encoder_l{index + 1}_self", memory, memory)
            memory = self._feed_forward(f"encoder_l{index + 1}_ffn", memory)
        memory = self._top("encoder", memory)
        table = self._table("decoder")
        states = np.concatenate([np.zeros((1, DIM)), table[target_ids]])  # starts from nothing
        states = self._embedded("decoder", states)
        causal = np.tri(len(states), dtype=bool)
        self.alignments = []
        for index in range(self.settings["dec-depth"]):
            layer = f"decoder_l{index + 1}"
            if self.settings["transformer-decoder-autoreg"] == "rnn":
                states = self._cell(f"{layer}_rnn", states)
            else:
                states = self._attention(f"{layer}_self", states, states, causal)
            states = self._attention(f"{layer}_context", states, memory)
            states = self._feed_forward(f"{layer}_ffn", states)
        states = self._top("decoder", states)
        output = self.arrays.get("decoder_ff_logit_out_W")
        output = table.T if output is None else output
        return states @ output + self.arrays["decoder_ff_logit_out_b"]

    def _table(self, side):
        shared = self.arrays.get("Wemb")
        return self.arrays[f"{side}_Wemb"] if shared is None else shared

    def _embedded(self, side, states):
        if "Wpos" in self.arrays:
            states = states + self.arrays["Wpos"][: len(states)]
        else:
            half = DIM // 2
            rates = np.exp(-np.arange(half) * math.log(10000) / (half - 1))
            angles = np.outer(np.arange(len(states)), rates)
            signal = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
            states = math.sqrt(DIM) * states + signal
        has_norm = "n" in self.settings["transformer-postprocess-emb"]
        return self._norm(f"{side}_emb", states, "_pre") if has_norm else states

    def _top(self, side, states):
        has_norm = "n" in self.settings["transformer-postprocess-top"]
        return self._norm(f"{side}_top", states) if has_norm else states

    def _norm(self, name, states, end=""):
        centred = states - states.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
        scale, bias = (self.arrays[f"{name}_ln_{part}{end}"] for part in ("scale", "bias"))
        return scaled * scale + bias

    def _sublayer(self, before, after, states, function):
        is_before = self.settings["transformer-preprocess"] == "n"
        outputs = function(self._norm(before, states, "_pre") if is_before else states)
        for op in self.settings["transformer-postprocess"]:
            if op == "a":
                outputs = outputs + states
            elif op == "n":
                outputs = self._norm(after, outputs)
        return outputs

    def _affine(self, name, part, states):
        return states @ self.arrays[f"{name}_W{part}"] + self.arrays[f"{name}_b{part}"]

    def _attention(self, name, states, memory, visible=True):
        def attend(queries):
            keys = queries if memory is states else memory
            parts = zip("qkv", (queries, keys, keys), strict=True)
            query, key, value = (
                self._affine(name, part, each).reshape(len(each), HEADS, -1) for part, each in parts
            )
            scores = np.einsum("TNH,SNH->NTS", query, key) / math.sqrt(DIM / HEADS)
            powers = np.where(visible, np.exp(scores), 0)
            weights = powers / powers.sum(axis=-1, keepdims=True)
            if name.endswith("context"):
                self.alignments.append(weights)
            context = np.einsum("NTS,SNU->TNU", weights, value).reshape(len(queries), -1)
            return self._affine(name, "o", context)

        return self._sublayer(f"{name}_Wo", f"{name}_Wo", states, attend)

    def _cell(self, name, states):
        def unroll(inputs):
            projected = inputs @ self.arrays[f"{name}_W"]
            forget = 1 / (1 + np.exp(-self._affine(name, "f", inputs)))
            cell, outputs = np.zeros(DIM), []
            for x, f in zip(projected, forget, strict=True):
                cell = f * cell + (1 - f) * x
                outputs.append(np.maximum(cell, 0))
            return np.stack(outputs)

        return self._sublayer(name, f"{name}_ffn", states, unroll)

    def _feed_forward(self, name, states):
        def feed(inputs):
            hidden = self._affine(name, "1", inputs)
            is_relu = self.settings["transformer-ffn-activation"] == "relu"
            hidden = np.maximum(hidden, 0) if is_relu else hidden / (1 + np.exp(-hidden))
            return self._affine(name, "2", hidden)

        return self._sublayer(f"{name}_ffn", f"{name}_ffn", states, feed)


DECODER = "beam-size: 4\nnormalize: 1\nword-penalty: 0\nmini-batch: 16\nrelative-paths: true\n"
WORDS = [f"{a}{b} {c}{a}" for a in "abcd" for b in "efg" for c in "hij"]


def write_folder(folder, settings=None, decoder=DECODER, vocabularies=("vocab.spm",), **changes):
    """A folder as people have it; returns the settings and the arrays in it."""
    folder.mkdir(exist_ok=True)
    settings = {**SETTINGS, **(settings or {})}
    positions = 20 if settings["transformer-train-position-embeddings"] else None
    arrays = {**random_arrays(settings, positions=positions), **changes}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    write_model(folder / "model.npz", settings, arrays)
    for name in vocabularies:
        write_pieces(folder / name, WORDS if name != "target.spm" else WORDS[::-1])
    if decoder is not None:
        (folder / "decoder.yml").write_text(decoder)
    return settings, arrays
