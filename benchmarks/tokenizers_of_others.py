"""Imported tokenizers against Hugging Face's own: on how many lines do ids differ, and why.

    python benchmarks/tokenizers_of_others.py --python PATH [--lines 3000] [--size 4000]
        [--data ../shared/data/multi30k] [--web export/web] [--only FAMILY ...]
        [--out tokenizers.json]

PATH is a Python with transformers, tokenizers and sentencepiece. For each family, SentencePiece
models are learnt from the first lines of Multi30k's German and English (never from a hub), laid out
as the family's folder, and read by both sides. Compared are the ids of other lines: Hugging Face's,
and those of `read_tokenizers` in Python, as ops of a graph, and from the file that a run, an
artefact or a device holds; with `--web`, after `npm ci` there, in the page's WebAssembly too (of
SentencePiece, which ByT5 is not). To Multi30k's lines come 1,000 of random letters, of which many
have several splits of the same score; of these only our own sides are compared. `saved` families
are read from what transformers itself writes.

A line that differs is counted as an `unknown run` if Hugging Face's has the unknown id where ours
has known ones: several characters in a row that a side's model does not know are looked up there
as one piece, and here one by one. Exits with 1 on any other difference.
"""

import argparse
import collections
import gzip
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from reporting import options_of, processor, say, write_json

_PEER = pathlib.Path(__file__).resolve().parent / "tokenizer_peers" / "hugging_face.py"
_BROWSER = _PEER.parent / "browser.mjs"
_NLLB = ["ace_Latn", "deu_Latn", "eng_Latn", "fra_Latn"]
_MBART = ["ar_AR", "cs_CZ", "de_DE", "en_XX"]  # the first of 52
# Class there; `model_type`; the languages of both sides.
_FAMILIES = {
    "marian": ("MarianTokenizer", "marian", None),
    "marian_several": ("MarianTokenizer", "marian", (None, "deu")),
    "t5": ("T5Tokenizer", "t5", None),
    "t5_saved": ("T5Tokenizer", "t5", None),
    "byt5": ("ByT5Tokenizer", "t5", None),
    "m2m_100": ("M2M100Tokenizer", "m2m_100", ("de", "en")),
    "m2m_100_saved": ("M2M100Tokenizer", "m2m_100", ("de", "en")),
    "nllb_saved": ("NllbTokenizer", "m2m_100", ("deu_Latn", "eng_Latn")),
    "mbart50": ("MBart50Tokenizer", "mbart", ("de_DE", "en_XX")),
    "mbart50_saved": ("MBart50Tokenizer", "mbart", ("de_DE", "en_XX")),
}


def main():
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="tokenizers-") as folder:
        found, version = _compared(arguments, pathlib.Path(folder))
    report = {
        "options": options_of(arguments),
        "processor": processor(),
        "transformers": version,
        "families": found,
    }
    for name, one in found.items():
        print(f"{name}: {one['counts']}")
        for example in one["examples"]:
            print(f"  {example}")
    if arguments.out:
        write_json(arguments.out, report)
    wrong = ("different", "graph", "file", "page", "text")
    return int(any(one["counts"][why] for one in found.values() for why in wrong))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python with transformers")
    parser.add_argument("--data", type=pathlib.Path, default="../shared/data/multi30k")
    parser.add_argument("--web", type=pathlib.Path, help="export/web, with its packages")
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--size", type=int, default=4000, help="pieces of a model")
    parser.add_argument("--only", nargs="+", choices=_FAMILIES, default=list(_FAMILIES))
    parser.add_argument("--out", type=pathlib.Path, help="where the figures go, as JSON")
    return parser.parse_args()


def _compared(arguments, folder):
    german, english = (_lines(arguments.data / f"train.{end}.gz") for end in ("de", "en"))
    cut = len(german) - arguments.lines
    sides = {"source": german[cut:], "target": english[cut:]}
    learn = german[:cut][:15000], english[:cut][:15000]
    orders = []
    for name in arguments.only:
        say(f"{name}: learning")
        folder_of = folder / name
        folder_of.mkdir()
        orders.append(_made(name, folder_of, learn, arguments.size) | sides)
    say("asking Hugging Face's tokenizers")
    command = [arguments.python, str(_PEER)]
    answer = subprocess.run(command, input=json.dumps(orders), stdout=subprocess.PIPE, text=True)
    if answer.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {answer.returncode}")
    answers = json.loads(answer.stdout)
    found = {}
    for name, order, theirs in zip(arguments.only, orders, answers, strict=True):
        say(f"{name}: comparing")
        found[name] = _compared_one(name, order, theirs, arguments.web)
    return found, answers[0]["version"]


def _lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return stream.read().split("\n")[:-1]


# --- Folders as they are found -------------------------------------------------------------


def _made(name, folder, learn, size):
    """Writes the files of a family, and returns the order for the peer."""
    kind, model_type, languages = _FAMILIES[name]
    order = {"class": kind, "folder": str(folder), "arguments": {}}
    if name.startswith("marian"):
        config = _marian_files(folder, learn, size, [">>fra<<", ">>deu<<"] if languages else [])
    elif name.startswith("t5"):
        special = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        (folder / "spiece.model").write_bytes(_learnt([*learn[0], *learn[1]], size, **special))
        config = dict(vocab_size=size + 128, pad_token_id=0, eos_token_id=1)
    elif name == "byt5":
        _write(folder / "tokenizer_config.json", {"tokenizer_class": kind})
        config = dict(vocab_size=384, pad_token_id=0, eos_token_id=1)
    else:
        order["arguments"] = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        config = _fairseq_files(name, folder, learn, size)
        if name == "nllb_saved":
            order["languages"] = _NLLB
    if name.endswith("_saved"):
        order["save"] = str(folder / "saved")
    _write(folder / "config.json", {"model_type": model_type, "tokenizer_class": kind, **config})
    return order


def _learnt(sentences, size, **options):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        minloglevel=2,
        **{"character_coverage": 0.9995, **options},
    )
    return model.getvalue()


def _marian_files(folder, learn, size, languages):
    """A model a side; the table has the pieces of both by how often they are found."""
    import sentencepiece

    counts = collections.Counter()
    for side, sentences in zip(("source", "target"), learn, strict=True):
        model = _learnt(sentences, size)
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        counts.update(processor.id_to_piece(token) for token in range(3, size))
        for sentence in sentences:
            counts.update(processor.encode(sentence, out_type=str))
    pieces = ["</s>", "<unk>", *languages, *(piece for piece, _ in counts.most_common()), "<pad>"]
    ids = {piece: token for token, piece in enumerate(dict.fromkeys(pieces))}
    _write(folder / "vocab.json", ids)
    _write(folder / "tokenizer_config.json", {"source_lang": "de", "target_lang": "en"})
    pad = ids["<pad>"]
    start = dict(pad_token_id=pad, decoder_start_token_id=pad)
    return dict(vocab_size=len(ids), eos_token_id=0, **start)


def _fairseq_files(name, folder, learn, size):
    import sentencepiece

    model_type = "unigram" if name.startswith("mbart50") else "bpe"
    model = _learnt([*learn[0], *learn[1]], size, model_type=model_type)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    languages = _NLLB
    if name.startswith("m2m_100"):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [processor.id_to_piece(token) for token in range(3, size)]
        random.Random(0).shuffle(pieces)
        every = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
        _write(folder / "vocab.json", {piece: token for token, piece in enumerate(every)})
        languages = []  # as newer versions leave them out
    elif name.startswith("mbart50"):
        languages = _MBART
    if languages:
        listed = {"additional_special_tokens": languages}
        _write(folder / "special_tokens_map.json", listed)
    special = dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)
    return dict(vocab_size=size + 300, **special)


def _write(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


# --- The comparison ------------------------------------------------------------------------


def _compared_one(name, order, theirs, web):
    from keras_transformer.interop.tokenizers import read_tokenizers

    folder = pathlib.Path(order["folder"])
    config = json.loads((folder / "config.json").read_text())
    source_language, target_language = _FAMILIES[name][2] or (None, None)
    read = read_tokenizers(
        order.get("save", folder),
        config,
        source_language=source_language,
        target_language=target_language,
    )
    counts, examples = (
        collections.Counter(lines=0, different=0, graph=0, file=0, page=0, text=0),
        [],
    )
    counts["unknown run"] = 0
    rng = random.Random(0)
    ties = ["".join(rng.choices("tten12hax ", k=rng.randrange(3, 40))) for _ in range(1000)]
    for side, tokenizer in (("source", read.source), ("target", read.target)):
        prefix = tokenizer.prefix_ids if name == "marian_several" else ()  # text there
        _count(side, tokenizer, prefix, order[side], theirs[side], counts, examples)
        _count_our_sides(tokenizer, order[side] + ties, web, counts)
    for ids, text in zip(theirs["target"], theirs["texts"], strict=True):
        if read.target.unk_id in ids:  # which reads as ⁇ here and as nothing there
            continue
        ours = read.target.decode(ids)
        theirs_plain = text.removeprefix(f"__{target_language}__").strip()
        counts["text"] += ours != theirs_plain
    return {"counts": dict(counts), "examples": examples[:6], "notes": read.notes}


def _count(side, tokenizer, prefix, lines, rows, counts, examples):
    """Ours in Python against theirs."""
    for line, row in zip(lines, rows, strict=True):
        ours = tokenizer.encode(line)
        counts["lines"] += 1
        row = [*prefix, *row[:-1]]  # without EOS
        if ours == row:
            continue
        why = "unknown run" if tokenizer.unk_id in row else "different"
        counts[why] += 1
        pieces = [[tokenizer.pieces[token] for token in ids] for ids in (ours, row)]
        ours, row = ([piece for piece in one if piece not in two] for one, two in _both(pieces))
        examples.append(f"{side}, {why}: ours {ours}, theirs {row}")


def _count_our_sides(tokenizer, lines, web, counts):
    """Ours in Python against the graph, the file, and the page."""
    import tensorflow as tf

    from keras_transformer_runner.tokenizers import load_tokenizer

    ours = [tokenizer.encode(line) for line in lines]
    graph = tokenizer.tf_encode(tf.constant(lines)).to_list()
    counts["graph"] += sum(one != two for one, two in zip(ours, graph, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"tokenizer{tokenizer.file_suffix}"
        tokenizer.save(path)
        loaded = load_tokenizer(path)
        counts["file"] += sum(
            loaded.encode(line) != one for line, one in zip(lines, ours, strict=True)
        )
        if not web or path.suffix != ".model":
            return
        command = ["node", str(_BROWSER), str(web), str(path)]
        answer = subprocess.run(
            command, input=json.dumps(lines), stdout=subprocess.PIPE, text=True, check=True
        )
    page = json.loads(answer.stdout)
    ids = [one[len(tokenizer.prefix_ids) :] for one in ours]
    texts = [tokenizer.decode(one) for one in ours]
    counts["page"] += sum(one != two for one, two in zip(ids, page["ids"], strict=True))
    counts["page"] += sum(one != two for one, two in zip(texts, page["texts"], strict=True))


def _both(pair):
    return pair, pair[::-1]


if __name__ == "__main__":
    sys.exit(main())
