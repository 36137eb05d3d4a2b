"""Writes the checkpoints in `fixtures/` and what transformers computes with them.

Run by hand, in an environment with torch and transformers (5.24 wrote what is committed):

    python tests/interop/make_fixtures.py

Every weight is random, biases, norms and the output's bias too, so that a tensor that is forgotten
or misplaced shows. Each folder has `config.json`, `generation_config.json`, the weights, and
`oracle.npz`: a few rows of ids with their logits, and 100 sources with what `generate` answers,
greedily and with 4 beams. Rows that do not end are left out. The pad is forbidden, as ours never
chooses it.
"""

import functools
import json
import pathlib
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

FIXTURES = pathlib.Path(__file__).with_name("fixtures")
V, D, N, F = 53, 12, 3, 20
ROWS, LEAST_TOKENS, MOST_TOKENS = 100, 3, 16
LANGUAGE, OTHER_LANGUAGE = 49, 50  # ids, of the families that have languages

BART = dict(
    d_model=D,
    encoder_layers=2,
    decoder_layers=1,
    encoder_attention_heads=N,
    decoder_attention_heads=N,
    encoder_ffn_dim=F,
    decoder_ffn_dim=F,
    max_position_embeddings=64,
    scale_embedding=True,
)
T5 = dict(
    vocab_size=V,
    d_model=D,
    d_kv=5,
    d_ff=F,
    num_layers=2,
    num_decoder_layers=1,
    num_heads=N,
    pad_token_id=0,
    eos_token_id=1,
    decoder_start_token_id=0,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=20,
)
# What the first files of OPUS-MT have beside what transformers writes today.
OLD_MARIAN_KEYS = dict(
    _name_or_path="opus-mt-xx-yy",
    _num_labels=3,
    add_bias_logits=False,
    add_final_layer_norm=False,
    classif_dropout=0.0,
    classifier_dropout=0.0,
    extra_pos_embeddings=V,
    force_bos_token_to_be_generated=False,
    gradient_checkpointing=False,
    id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    label2id={"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    max_length=512,
    normalize_before=False,
    normalize_embedding=False,
    num_beams=4,
    num_hidden_layers=2,
    static_position_embeddings=True,
    bad_words_ids=[[V - 1]],
    torch_dtype="float16",
)


def marian(seed, **changes):
    options = dict(
        vocab_size=V,
        decoder_vocab_size=V,
        pad_token_id=V - 1,
        eos_token_id=0,
        bos_token_id=0,
        decoder_start_token_id=V - 1,
        forced_eos_token_id=0,
        activation_function="swish",
        **BART,
    )
    config = transformers.MarianConfig(**{**options, **changes})
    return randomized(transformers.MarianMTModel(config), seed)


def m2m_100(seed):
    options = dict(vocab_size=V, activation_function="relu", **BART)
    return randomized(
        transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**options)),
        seed,
        blocks=2.5,
    )


def mbart(seed):
    options = dict(vocab_size=V, decoder_start_token_id=2, activation_function="gelu", **BART)
    return randomized(
        transformers.MBartForConditionalGeneration(transformers.MBartConfig(**options)),
        seed,
        blocks=2.5,
    )


def t5(seed, **changes):
    config = transformers.T5Config(**{**T5, **changes})
    return randomized(
        transformers.T5ForConditionalGeneration(config),
        seed,
        own_head=bool(changes),
        blocks=1.0 if changes else 4.0,
    )


def mt5(seed):
    config = transformers.MT5Config(**{**T5, "feed_forward_proj": "gated-gelu"})
    return randomized(transformers.MT5ForConditionalGeneration(config), seed, own_head=True)


def randomized(model, seed, own_head=False, blocks=1.0):
    """Random weights of a size that makes sharp and different answers.

    `blocks` makes those of the blocks larger, so that a token is not only likely after itself.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return torch.randn(shape, generator=generator) * std

    with torch.no_grad():
        if own_head:
            model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
        for name, weight in model.named_parameters():
            if is_computed(weight):
                continue
            if "norm" in name and name.endswith("weight"):
                weight.copy_(1 + normal(weight.shape, 0.3))
            else:
                std = 0.3 if weight.ndim == 1 else 0.4
                is_table = "shared" in name or "lm_head" in name
                std = 0.8 if is_table else std * blocks
                weight.copy_(normal(weight.shape, std))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(normal(model.final_logits_bias.shape, 0.7))
    return model.eval()


def is_computed(weight):
    """Whether these are Marian's positions."""
    return isinstance(weight, torch.nn.Parameter) and not weight.requires_grad


def rounded(model, dtype):
    """The model with weights that `dtype` holds exactly."""
    with torch.no_grad():
        for weight in (*model.parameters(), *model.buffers()):
            if weight.is_floating_point() and not is_computed(weight):
                weight.copy_(weight.to(dtype).to(weight.dtype))


def sources(config, count, rng, size=9):
    """(count, size) ids: maybe a language, some tokens, EOS, pads."""
    eos, pad = config.eos_token_id, config.pad_token_id
    rows = rng.integers(4, 48, (count, size))
    for row in rows:
        length = rng.integers(3, size)
        row[length], row[length + 1 :] = eos, pad
        if config.model_type in ("m2m_100", "mbart"):
            row[0] = LANGUAGE
    return rows.astype("int32")


def forward(model, source, target):
    mask = torch.tensor(source != model.config.pad_token_id)
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(source).long(),
            attention_mask=mask.long(),
            decoder_input_ids=torch.tensor(target).long(),
            output_hidden_states=True,
        )


def favour_eos(model, source, target, wish=1.0):
    """Raises the mean logit of EOS by about `wish`, so that more answers end by themselves."""
    states = forward(model, source, target).decoder_hidden_states[-1].mean((0, 1))
    if getattr(model.config, "scale_decoder_outputs", False):
        states = states * D**-0.5
    with torch.no_grad():
        table = model.get_output_embeddings().weight
        table[model.config.eos_token_id] += wish * states / states.pow(2).sum()


def generated(model, source, **options):
    """(rows, MOST_TOKENS) ids after the start, then pads, and which rows end with EOS."""
    config = model.config
    if config.model_type in ("m2m_100", "mbart"):
        options["forced_bos_token_id"] = OTHER_LANGUAGE
    with torch.no_grad():
        ids = model.generate(
            input_ids=torch.tensor(source).long(),
            attention_mask=torch.tensor(source != config.pad_token_id).long(),
            max_new_tokens=MOST_TOKENS,
            do_sample=False,
            bad_words_ids=[[config.pad_token_id]],
            **options,
        ).numpy()[:, 1:]
    # What follows EOS is the pad, but EOS itself where the pad is 0 and there are beams.
    is_eos = ids == config.eos_token_id
    ids[np.cumsum(is_eos, axis=1) - is_eos > 0] = config.pad_token_id
    room = MOST_TOKENS - ids.shape[1]
    ids = np.pad(ids, [[0, 0], [0, room]], constant_values=config.pad_token_id)
    return ids.astype("int32"), (ids == config.eos_token_id).any(axis=1)


def _rows_that_end(model, rows, beam):
    """Some of the rows, and what `generate` answers, greedily and with a beam."""
    greedy, greedy_ends = generated(model, rows, num_beams=1)
    beams, beams_end = generated(model, rows, num_beams=4, **beam)
    lengths = np.stack([(ids != model.config.pad_token_id).sum(1) for ids in (greedy, beams)])
    ends = greedy_ends & beams_end & (lengths >= LEAST_TOKENS).all(0)
    chosen = ends & (lengths < MOST_TOKENS).all(0)
    at_limit = np.flatnonzero(ends & ~chosen)  # where EOS may be forced
    chosen[at_limit[: chosen.sum() // 4]] = True
    return rows[chosen], greedy[chosen], beams[chosen]


def oracle(model, dtype, **beam):
    """What transformers computes; of random rows; `None` for a model that hardly ever ends."""
    rng = np.random.default_rng(3)
    config = model.config
    source = sources(config, 5, rng)
    target = rng.integers(4, 48, (5, 7)).astype("int32")
    target[:, 0] = config.decoder_start_token_id
    favour_eos(model, source, target)
    rounded(model, dtype)
    kept, most = [], 12
    while sum(len(rows) for rows, _, _ in kept) < ROWS:
        kept.append(_rows_that_end(model, sources(config, 3 * ROWS, rng), beam))
        if len(kept) == most or len(kept[0][0]) < ROWS // most:
            return None
    many, greedy, beams = (np.concatenate(parts)[:ROWS] for parts in zip(*kept, strict=True))
    for name, ids in (("greedy", greedy), ("beam", beams)):
        lengths = (ids != config.pad_token_id).sum(1)
        print(f"{config.model_type}, {name}: {lengths.mean():.1f} tokens, at most {lengths.max()}")
    print(f"  beam and greedy differ in {(greedy != beams).any(1).sum()} rows")
    return dict(
        source=source,
        target=target,
        logits=forward(model, source, target).logits.numpy(),
        sources=many,
        greedy=greedy,
        beams=beams,
    )


def write(name, make, *, generation, config=None, dtype=torch.float32, as_bin=False, **beam):
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed, found = 0, None
    while found is None:
        seed += 1
        model = make(seed)
        rounded(model, dtype)
        found = oracle(model, dtype, **beam)
    np.savez_compressed(folder / "oracle.npz", **found)
    model.save_pretrained(folder)
    weights = folder / "model.safetensors"
    if as_bin:  # as the first files had it: with the copies of shared tables
        state = {n: t.detach().clone().to(dtype) for n, t in model.state_dict().items()}
        for side in ("encoder", "decoder"):
            table = getattr(model.model, side).embed_positions.weight
            state[f"model.{side}.embed_positions.weight"] = table.detach().clone().to(dtype)
        weights.unlink()
        torch.save(state, folder / "pytorch_model.bin")
    elif dtype != torch.float32:
        save_file({n: t.to(dtype) for n, t in load_file(weights).items()}, weights)
    written = json.loads((folder / "config.json").read_text()) | (config or {})
    written = {key: value for key, value in written.items() if value != "left out"}
    (folder / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    opus = dict(
        bad_words_ids=[[V - 1]],
        bos_token_id=0,
        decoder_start_token_id=V - 1,
        eos_token_id=0,
        forced_eos_token_id=0,
        max_length=512,
        num_beams=4,
        pad_token_id=V - 1,
    )
    write("marian", marian, generation=opus)
    old = dict(early_stopping=True, length_penalty=0.6, num_beams=4, max_length=512)
    write(
        "marian_bin",
        functools.partial(marian, activation_function="relu"),
        config=OLD_MARIAN_KEYS,
        generation={**opus, **old},
        dtype=torch.float16,
        as_bin=True,
        early_stopping=True,
        length_penalty=0.6,
    )
    two = dict(share_encoder_decoder_embeddings=False, vocab_size=V + 4, activation_function="gelu")
    write("marian_two_vocabularies", functools.partial(marian, **two), generation=opus)
    many = dict(max_length=200, num_beams=4, early_stopping=True)
    facts = dict(bos_token_id=0, decoder_start_token_id=2, eos_token_id=2, pad_token_id=1)
    write("m2m_100", m2m_100, generation={**facts, **many}, early_stopping=True)
    many["forced_eos_token_id"] = 2
    write("mbart", mbart, generation={**facts, **many}, early_stopping=True)
    beam = dict(num_beams=4, early_stopping=True, length_penalty=1.0)
    plain = dict(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)
    write("t5", t5, generation={**plain, **beam}, early_stopping=True)
    gated = dict(tie_word_embeddings=False, feed_forward_proj="gated-gelu")
    write(
        "t5_v1_1",
        functools.partial(t5, **gated),
        config=dict(tie_word_embeddings=False, scale_decoder_outputs="left out"),
        generation={**plain, **beam},
        early_stopping=True,
    )
    write(
        "byt5",
        functools.partial(t5, vocab_size=384, num_layers=3, **gated),
        config=dict(
            tie_word_embeddings=False,
            scale_decoder_outputs="left out",
            tokenizer_class="ByT5Tokenizer",
        ),
        generation={**plain, **beam},
        dtype=torch.float16,
        early_stopping=True,
    )
    write(
        "mt5",
        mt5,
        config=dict(tie_word_embeddings=False, tokenizer_class="T5Tokenizer"),
        generation={**plain, **beam},
        early_stopping=True,
        dtype=torch.bfloat16,
    )


if __name__ == "__main__":
    main()
