"""The model in NumPy and float64, written from the papers: what layers and models are held against.

Nothing of the package is used. A layer is read for its weights only (`kernel`, `bias`, ...); what
to compute with them is said by `options`, the arguments of the layer's constructor, or by the
config. Dimension key: that of `keras_transformer/layers/__init__.py`.

Sources: Vaswani et al. 2017 (the model); Raffel et al. 2020, section 2.1 and code (relative bias);
Press et al. 2022, section 3 and code (ALiBi); Su et al. 2021, eq. 34 (rotary); Shazeer 2020 (gated
layers); Takase et al. 2022, arXiv 2206.00330 (b2t); Zhang and Sennrich 2019 (RMS norm); Ioffe and
Szegedy 2015 (batch norm); Bahdanau et al. 2015, appendix A.1.2 (additive scores); Kim et al. 2019,
D19-5632, section 4.1 (SSRU).
"""

import math

import numpy as np

DEFAULTS = {
    **dict(residual="post", use_residual=True, use_feed_forward=True, normalization="layer"),
    **dict(norm_epsilon=1e-6, activation="relu", attention_score="scaled_dot_product"),
    **dict(rotary=False, attention_window=None, recurrence=None),
}


def array(variable):
    """A Keras variable, or anything like an array, in float64."""
    return np.asarray(variable.numpy() if hasattr(variable, "numpy") else variable, "float64")


# --- Attention -----------------------------------------------------------------------------


def softmax(scores, visible=None):
    """Softmax over the last axis, of the visible keys only; a row that sees none is all zeros."""
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    return powers / np.maximum(powers.sum(axis=-1, keepdims=True), 1e-300)


def visible_keys(query_length, key_length, causal=False, window=None):
    """(T, S) boolean: whether query t may see key s."""
    query_T1, key_1S = np.arange(query_length)[:, None], np.arange(key_length)
    visible_TS = np.ones((query_length, key_length), bool)
    if causal:
        visible_TS &= key_1S <= query_T1
    if window is not None:
        visible_TS &= np.abs(query_T1 - key_1S) < window
    return visible_TS


def scores(query_BNTH, key_BNSH, kind="scaled_dot_product", vector_NH=None):
    """(B, N, T, S): q.k / sqrt(d_k), q.k, or v.tanh(q + k)."""
    if kind == "additive":
        sums_BNTSH = query_BNTH[:, :, :, None] + key_BNSH[:, :, None]
        return np.einsum("NH,BNTSH->BNTS", vector_NH, np.tanh(sums_BNTSH))
    scale = {"scaled_dot_product": query_BNTH.shape[-1] ** -0.5, "dot_product": 1.0}[kind]
    return scale * np.einsum("BNTH,BNSH->BNTS", query_BNTH, key_BNSH)


def dense(layer, inputs):
    """x W + b."""
    outputs = inputs @ array(layer.kernel)
    return outputs if layer.bias is None else outputs + array(layer.bias)


def split_heads(states_BTE, heads):
    """(B, T, N * H) -> (B, N, T, H), heads major."""
    return np.stack(np.split(states_BTE, heads, axis=-1), axis=1)


def with_heads(mask):
    """(B, T, S) or (B, N, T, S), or `None`, -> what broadcasts to (B, N, T, S)."""
    return mask[:, None] if mask is not None and mask.ndim == 3 else mask


def attend(layer, options, query, key, value, visible, bias):
    """Equation 1 for every head, and the output product: (B, T, D) and (B, N, T, S) weights."""
    vector = array(layer.score_vector) if options["attention_score"] == "additive" else None
    scores_BNTS = scores(query, key, options["attention_score"], vector)
    if bias is not None:
        scores_BNTS = scores_BNTS + with_heads(bias)
    weights_BNTS = softmax(scores_BNTS, visible)
    context_BNTU = weights_BNTS @ value
    context_BTE = np.concatenate(np.moveaxis(context_BNTU, 1, 0), axis=-1)
    return dense(layer.output_projection, context_BTE), weights_BNTS


def self_attention(layer, options, inputs, mask=None, bias=None, causal=False):
    """Multi-head self-attention; `mask` (B, T, T) or (B, 1, T), `bias` added to the scores."""
    options = {**DEFAULTS, **options}
    heads, width = options["num_heads"], options["num_heads"] * options["key_dim"]
    states = dense(layer.query_key_value, inputs)
    query, key, value = (
        split_heads(part, heads) for part in np.split(states, [width, 2 * width], axis=-1)
    )
    if options["rotary"]:
        query, key = (rotate(part, np.arange(inputs.shape[1])) for part in (query, key))
    visible = visible_keys(inputs.shape[1], inputs.shape[1], causal, options["attention_window"])
    visible = visible if mask is None else visible & with_heads(mask)
    return attend(layer, options, query, key, value, visible, bias)


def cross_attention(layer, options, query, value, key=None, mask=None, bias=None):
    """Multi-head attention to another sequence; `mask` (B, T, S) or (B, 1, S)."""
    options = {**DEFAULTS, **options}
    heads = options["num_heads"]
    query = split_heads(dense(layer.query_projection, query), heads)
    key = split_heads(dense(layer.key_projection, value if key is None else key), heads)
    value = split_heads(dense(layer.value_projection, value), heads)
    return attend(layer, options, query, key, value, with_heads(mask), bias)


def ssru(layer, inputs, segment_starts=None):
    """c_t = f_t c_(t-1) + (1 - f_t) W x_t, and its positive part; one token after the other."""
    projected = dense(layer.input_projection, inputs)
    forget = 1 / (1 + np.exp(-dense(layer.forget_gate, inputs)))
    state, outputs = np.zeros_like(projected[:, 0]), np.zeros_like(projected)
    for t in range(inputs.shape[1]):
        if segment_starts is not None:
            state = np.where(segment_starts[:, t, None], 0, state)
        state = forget[:, t] * state + (1 - forget[:, t]) * projected[:, t]
        outputs[:, t] = np.maximum(state, 0)
    return outputs


# --- Positions -----------------------------------------------------------------------------


def rotate(states, positions):
    """Rotary positions: the pair (x_i, x_i+H/2) turned by position * 10000^(-2i/H)."""
    half = states.shape[-1] // 2
    angles_TH = np.outer(positions, 10000.0 ** (-2 * np.arange(half) / states.shape[-1]))
    pairs = (states[..., :half] + 1j * states[..., half:]) * np.exp(1j * angles_TH)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def relative_bucket(offset, num_buckets=32, max_distance=128, bidirectional=True):
    """T5's bucket of the key at `offset` = s - t from the query, in exact integer arithmetic.

    Half of the buckets hold one distance each, the others distances up to `max_distance`, of
    logarithmically growing size. Both ways: half of all buckets for keys after the query.
    """
    first = 0
    if bidirectional:
        num_buckets //= 2
        first, distance = (num_buckets if offset > 0 else 0), abs(offset)
    else:
        distance = max(-offset, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    # floor(k) of (distance / exact) = (max_distance / exact)^(k / rest)
    rest, steps = num_buckets - exact, 0
    while steps < rest - 1 and distance**rest * exact ** (steps + 1) >= (
        max_distance ** (steps + 1) * exact**rest
    ):
        steps += 1
    return first + exact + steps


def relative_bias(table_BN, query_positions, key_positions, **arguments):
    """(N, T, S) learned bias of T5, `table_BN` (num_buckets, N)."""
    buckets_TS = [
        [relative_bucket(int(s) - int(t), len(table_BN), **arguments) for s in key_positions]
        for t in query_positions
    ]
    return np.moveaxis(np.asarray(table_BN, "float64")[np.array(buckets_TS)], -1, 0)


def alibi_slopes(heads):
    """Slopes 2^(-8/N), 2^(-16/N), ...; for other N, every other one of twice the power below."""
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2 ** (-8 * i / (2 * power)) for i in range(1, 2 * power + 1, 2)]
    return np.array((slopes + between)[:heads])


def alibi_bias(heads, query_positions, key_positions):
    """(N, T, S): -slope * |s - t|."""
    distances_TS = np.abs(np.subtract.outer(query_positions, key_positions))
    return -alibi_slopes(heads)[:, None, None] * distances_TS


def sinusoidal(length, dim):
    """(T, D): section 3.5 of the paper, sine and cosine side by side."""
    column = np.arange(dim)
    angles = np.arange(length)[:, None] / 10000.0 ** (2 * (column // 2) / dim)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


def tensor2tensor(length, dim):
    """(T, D): the timing signal of Tensor2Tensor, all sines, then all cosines; odd: one zero."""
    rates = np.exp(-np.arange(dim // 2) * math.log(1e4) / max(dim // 2 - 1, 1))
    angles = np.outer(np.arange(length), rates)
    return np.concatenate([np.sin(angles), np.cos(angles), np.zeros((length, dim % 2))], axis=-1)


# --- Feed-forward and norms ----------------------------------------------------------------


def gelu(inputs):
    """x times the normal distribution function of x."""
    return inputs * (1 + np.vectorize(math.erf)(inputs / math.sqrt(2))) / 2


def gelu_tanh(inputs):
    """Hendrycks and Gimpel 2016, section 2: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    return inputs * (1 + np.tanh(math.sqrt(2 / math.pi) * (inputs + 0.044715 * inputs**3))) / 2


ACTIVATIONS = {"relu": lambda x: np.maximum(x, 0), "gelu": gelu, "tanh": np.tanh}
ACTIVATIONS["gelu_tanh"] = gelu_tanh
ACTIVATIONS["silu"] = lambda x: x / (1 + np.exp(-x))
ACTIVATIONS["sigmoid"] = lambda x: 1 / (1 + np.exp(-x))
GATES = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "swiglu": "silu"}
GATES["geglu_tanh"] = "gelu_tanh"


def feed_forward(layer, activation, inputs):
    """activation(x W1) W2, or (gate(x V) * x W1) W2; biases as the layer has them."""
    hidden = dense(layer.intermediate, inputs)
    if activation in GATES:
        hidden = ACTIVATIONS[GATES[activation]](dense(layer.gate, inputs)) * hidden
    else:
        hidden = ACTIVATIONS[activation](hidden)
    return dense(layer.outer, hidden)


def normalize(layer, options, inputs):
    """The norm by name, at inference: batch norm by its running statistics."""
    kind, epsilon = options["normalization"], options["norm_epsilon"]
    if kind == "none":
        return inputs
    if kind == "rms":
        mean, square = 0, (inputs**2).mean(axis=-1, keepdims=True)
    elif kind == "layer":
        mean, square = inputs.mean(-1, keepdims=True), inputs.var(-1, keepdims=True)
    else:
        mean, square = array(layer.moving_mean), array(layer.moving_variance)
    outputs = (inputs - mean) / np.sqrt(square + epsilon)
    scale = layer.scale if kind == "rms" else layer.gamma
    return outputs * array(scale) + (0 if kind == "rms" else array(layer.beta))


# --- Blocks --------------------------------------------------------------------------------


def wire(block, options, inputs, sublayers):
    """The sub-layers in turn, name -> function giving (states, attention weights or `None`).

    post: x = Norm(x + f(x)); pre: x = x + f(Norm(x)); b2t: post, with the block's input in the
    last sum too; `use_residual` off: without the x. Returns states and a list of weights.
    """
    states, kept = inputs, []
    for name, sublayer in sublayers.items():
        norm = getattr(block, f"{name}_norm")
        is_pre = options["residual"] == "pre"
        outputs, weights = sublayer(normalize(norm, options, states) if is_pre else states)
        kept.append(weights)
        outputs = outputs + (states if options["use_residual"] else 0)
        if options["residual"] == "b2t" and name == list(sublayers)[-1]:
            outputs = outputs + inputs
        states = outputs if is_pre else normalize(norm, options, outputs)
    return states, [weights for weights in kept if weights is not None]


def _block(block, options, inputs, attentions):
    def feed(states):
        return feed_forward(block.feed_forward, options["activation"], states), None

    options = {**DEFAULTS, **options}
    fed = {"feed_forward": feed} if options["use_feed_forward"] else {}
    return wire(block, options, inputs, {**attentions, **fed})


def encoder_block(block, options, inputs, mask=None, bias=None, causal=False):
    """(B, S, D) states and [(B, N, S, S) weights]."""

    def attention(states):
        return self_attention(block.self_attention, options, states, mask, bias, causal)

    return _block(block, options, inputs, {"self_attention": attention})


def decoder_block(block, options, inputs, memory, mask=None, memory_mask=None, bias=None):
    """(B, T, D) states and [(B, N, T, T), (B, N, T, S) weights]; rotary etc. in the first only.

    With a recurrence in the place of the first there are weights of the second alone.
    """

    def recurrence(states):
        return ssru(block.recurrence_layer, states), None

    def attention(states):
        return self_attention(block.self_attention, options, states, mask, bias, causal=True)

    def cross(states):
        return cross_attention(block.cross_attention, options, states, memory, None, memory_mask)

    if options.get("recurrence"):
        return _block(block, options, inputs, {"recurrence": recurrence, "cross_attention": cross})
    attentions = {"self_attention": attention, "cross_attention": cross}
    return _block(block, options, inputs, attentions)


# --- The model -----------------------------------------------------------------------------


def block_options(config):
    """The options of every block of a `TransformerConfig`."""
    names = "num_heads residual use_residual use_feed_forward normalization norm_epsilon activation"
    return {
        **{name: getattr(config, name) for name in names.split()},
        "key_dim": config.key_dim or config.model_dim // config.num_heads,
        "attention_score": config.attention_score,
        "rotary": config.positions == "rotary",
        "attention_window": config.attention_window,
    }


def _embed(model, config, embedding, side, ids):
    """sqrt(D) times the rows, plus the positions that are added to them, and a norm if wanted."""
    length, dim, first = ids.shape[1], config.model_dim, config.first_position
    scale = math.sqrt(dim) if config.embedding_scale is None else config.embedding_scale
    states_BTD = array(embedding.embeddings)[ids] * scale
    tables = {"sinusoidal": sinusoidal, "tensor2tensor": tensor2tensor}
    if config.positions == "learned":
        states_BTD = states_BTD + array(model.get_layer(f"{side}_positions").weights[0])[:length]
    elif config.positions in tables:
        states_BTD = states_BTD + tables[config.positions](first + length, dim)[first:]
    if config.embedding_norm:
        norm = model.get_layer(f"{side}_embedding_norm")
        states_BTD = normalize(norm, block_options(config), states_BTD)
    return states_BTD


def _bias(model, config, side, length, bidirectional):
    """(1, N, T, T) bias of the self-attention on one side, or `None`."""
    positions = np.arange(length)
    if config.positions == "alibi":
        return alibi_bias(config.num_heads, positions, positions)[None]
    if config.positions != "relative":
        return None
    table = array(model.get_layer(f"{side}_position_bias").weights[0])
    reach = dict(max_distance=config.relative_max_distance, bidirectional=bidirectional)
    return relative_bias(table, positions, positions, **reach)[None]


def _final_norm(model, config, side, states):
    wanted = config.residual == "pre" if config.final_norm is None else config.final_norm
    options = block_options(config)
    if not wanted or config.normalization == "none":
        return states
    return normalize(model.get_layer(f"{side}_norm"), options, states)


def transformer(model, config, source_ids, target_ids):
    """(B, T, V) logits, and the attention weights: a (B, N, S, S) array for each encoder block,
    a (B, N, T, T) and a (B, N, T, S) for each decoder block, or the latter alone."""
    names = dict(
        all=["embedding"] * 3,
        target_output=["source_embedding", "target_embedding", "target_embedding"],
        source_target=["embedding", "embedding", "output_embedding"],
        none=["source_embedding", "target_embedding", "output_embedding"],
    )[config.embedding_sharing]
    source, target, output = (model.get_layer(name) for name in names)
    options, mask = block_options(config), (source_ids != config.pad_id)[:, None]
    of_decoder = {**options, "recurrence": config.decoder_recurrence}
    memory, encoder = _embed(model, config, source, "source", source_ids), []
    bias = _bias(model, config, "source", source_ids.shape[1], True)
    for i in config.encoder_blocks:
        block = model.get_layer(f"encoder_{i}")
        memory, weights = encoder_block(block, options, memory, mask, bias)
        encoder += weights
    memory = _final_norm(model, config, "encoder", memory)
    states, decoder = _embed(model, config, target, "target", target_ids), []
    bias = None
    if config.decoder_recurrence is None:
        bias = _bias(model, config, "target", target_ids.shape[1], False)
    for i in config.decoder_blocks:
        block = model.get_layer(f"decoder_{i}")
        states, weights = decoder_block(block, of_decoder, states, memory, None, mask, bias)
        decoder.append(weights)
    states = _final_norm(model, config, "decoder", states)
    bias = array(output.output_bias) if config.output_bias else 0
    return states @ array(output.embeddings).T + bias, encoder, decoder
