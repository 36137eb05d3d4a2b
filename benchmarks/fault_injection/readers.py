"""What commands read before TensorFlow is imported: folders made without it, and how they are read.

Weights in them are random bytes: what reads those is not called here.
"""

import dataclasses
import json
import pathlib
import random
import shutil
import sys

import numpy as np
import sentencepiece
from fault_injection.world import EXPERIMENT, SYLLABLES

import keras_transformer_command  # noqa: F401 (first: nothing below loads Keras then)
from keras_transformer.artifacts import DESCRIPTION, check_whole, read_description
from keras_transformer.command.systems import find_systems
from keras_transformer.config import TransformerConfig
from keras_transformer.data.distilled import open_distilled
from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.figures import best_figures
from keras_transformer.experiment.length import Extension
from keras_transformer.experiment.run_folder import check_finished, check_folder
from keras_transformer.experiment.start import Start
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.interop import hugging_face, marian
from keras_transformer.presets.card_file import is_edited, stated
from keras_transformer.presets.record import check_record, write_record
from keras_transformer_runner.folder import open_folder
from keras_transformer_runner.integrity import SEAL, checksum, sealed
from keras_transformer_runner.lines import read_lines
from keras_transformer_runner.tokenizers import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
    load_tokenizer,
)

_TESTS = pathlib.Path(__file__).parents[2] / "tests"
_FIXTURES = _TESTS / "interop" / "fixtures"
_LANGUAGES = {"m2m_100": ("deu_Latn", "eng_Latn"), "mbart": ("de_DE", "en_XX")}


@dataclasses.dataclass(frozen=True)
class Reader:
    """A folder that is damaged, a file at a time, and what reads it.

    Attributes:
        name: As in the report.
        make: Function of a new folder and a seed, which fills it.
        read: Function of the folder; what it gives is compared.
        free: Pattern of files that people may edit, or that have no checksum: another answer is
            right there too.
        names: Whether an error must name the file or the folder.
    """

    name: str
    make: object
    read: object
    free: str = "$^"
    names: bool = True


# --- Of our own ---------------------------------------------------------------------------------


def _lines(seed):
    generator = random.Random(seed)
    words = [[generator.choice(SYLLABLES) for _ in range(4)] for _ in range(120)]
    return [" ".join(each) for each in words]


def _pieces(seed):
    return SentencePieceTokenizer.train(_lines(seed), vocab_size=40 + seed)


def _make_experiment(folder, seed):
    for name, count in (("train", 120), ("valid", 9)):
        text = "".join(f"{line}\n" for line in _lines(seed)[:count])
        (folder / f"{name}.src").write_text(text)
        (folder / f"{name}.tgt").write_text(text)
    text = EXPERIMENT.replace("max_epochs = 3", f"max_epochs = {3 + seed}")
    (folder / "experiment.toml").write_text(text)


def _read_experiment(folder):
    experiment = Experiment.load(folder / "experiment.toml")
    experiment.check_files()
    return repr((experiment, [list(read_lines(each)) for each in sorted(folder.glob("*.src"))]))


def _make_run(folder, seed):
    """All but the weights of a finished run."""
    tokenizer = _pieces(seed)
    ids = tokenizer.special_ids._asdict()
    config = TransformerConfig.preset("tiny", vocab_size=tokenizer.vocab_size, **ids)
    text = EXPERIMENT.replace("max_epochs = 3", f"max_epochs = {3 + seed}")
    (folder / "experiment.toml").write_text(text)
    (folder / "config.json").write_text(config.to_json())
    (folder / "samples.txt").write_text("bafe dudi\n")
    (folder / "model.keras").write_bytes(random.Random(seed).randbytes(500))
    Tokenizers(tokenizer, tokenizer).save(folder)
    write_record(folder, {path.name: path for path in folder.iterdir()})
    metrics = ({"epoch": epoch, "val_loss": 3 / epoch, "val_bleu": epoch} for epoch in (1, 2))
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in metrics))
    (folder / "README.md").write_text(f"---\nlicense: mit\nlanguage:\n- de\n- e{seed}\n---\n")


def _make_unfinished(folder, seed):
    _make_run(folder, seed)
    Extension(3, 5 + seed).begin(folder)


def _read_run(folder):
    """As `translate` and `export` do."""
    check_finished(folder)
    check_record(folder, ("model.keras", "config.json", "experiment.toml", "samples.txt"))
    config = TransformerConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    experiment = Experiment.load(folder / "experiment.toml")
    best_figures(folder / "metrics.jsonl")
    stated(folder)
    is_edited(folder / "README.md")
    kind = find_systems([folder])[0].kind
    return repr((Tokenizers.load(folder).source.fingerprint, config, experiment, kind))


def _read_start(folder):
    """As `train` does with `training.start_from`."""
    start = Start.open(folder)
    return repr((start.config, start.fingerprint))


def _read_unfinished(folder):
    """As `train` does that goes on."""
    given = folder.with_name("experiment.toml")
    given.write_text(EXPERIMENT)
    own = Experiment.load(given, data_folder=folder)
    check_folder(folder, own, resume=True)
    return repr((Tokenizers.load(folder).source.fingerprint, Extension.read(folder)))


def _make_tokenizers(folder, seed):
    _pieces(seed).save(folder / "pieces.model")
    VocabularyTokenizer.train(_lines(seed)).save(folder / "words.json")
    CharacterTokenizer(f"abcdefgiou {seed}").save(folder / "characters.json")


def _read_tokenizers(folder):
    found = [load_tokenizer(path) for path in sorted(folder.iterdir())]
    ids = [each.encode("bafe dudi koka") for each in found]
    return repr([(each.fingerprint, i, each.decode(i)) for each, i in zip(found, ids, strict=True)])


def _make_distilled(folder, seed):
    pairs = folder / "pairs-0.jsonl"
    text = (json.dumps({"source": line, "target": line}) for line in _lines(seed))
    pairs.write_text("".join(f"{line}\n" for line in text))
    part = {"corpus": "x", "sources": 120, "pairs": 120, "file": checksum(pairs)}
    note = sealed({"job": {"seed": seed}, "sources": 120, "parts": [part]})
    (folder / "distilled.json").write_text(json.dumps(note, indent=2))


def _make_served(folder, seed):
    version = folder / "1"
    (version / DESCRIPTION).parent.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(random.Random(seed).randbytes(300))
    sums = {"sha256": {"saved_model.pb": checksum(version / "saved_model.pb")}}
    facts = {"signatures": {"translate": {}}, "bounds": {}, "requires": {}, "latency": [], **sums}
    (version / DESCRIPTION).write_text(json.dumps(sealed(facts), indent=2))


def _read_served(folder):
    kind = find_systems([folder])[0].kind
    check_whole(folder / "1")
    return repr((kind, read_description(folder / "1")["signatures"]))


def _make_device(folder, seed):
    tokenizer = _pieces(seed)
    tokenizer.save(folder / "tokenizer.model")
    (folder / "model.tflite").write_bytes(random.Random(seed).randbytes(300))
    fields = {"format": 1, "signature": "translate", "max_source_length": 16}
    fields |= {name: tokenizer.vocab_size for name in ("vocab_size", "target_vocab_size")}
    fields |= {name: getattr(tokenizer, name) for name in ("pad_id", "bos_id", "eos_id")}
    fields["search"] = {"n_best": 1, "extra_length": 50, "max_length": 12}
    fields["sha256"] = {path.name: checksum(path) for path in folder.iterdir()}
    (folder / "metadata.json").write_text(json.dumps(sealed(fields), indent=2))


def _read_device(folder):
    kind = find_systems([folder])[0].kind
    fields = {**open_folder(folder).metadata, SEAL: None}  # which early exports have not
    return repr((kind, fields))


# --- Of other projects --------------------------------------------------------------------------


def _fixture(kind):
    """What makes a folder of Hugging Face's of a test's fixture and toy tokenizers."""

    def make(folder, seed):
        shutil.copytree(_FIXTURES / kind, folder, dirs_exist_ok=True)
        (folder / "oracle.npz").unlink()
        if kind == "marian":
            pieces = dict.fromkeys(
                [*_train(folder / "source.spm", seed, 28), *_train(folder / "target.spm", 5, 28)]
            )
            pad = json.loads((folder / "config.json").read_text())["pad_token_id"]
            names = ["</s>", "<unk>", *pieces][:pad]
            ids = {piece: token for token, piece in enumerate(names)} | {"<pad>": pad}
            (folder / "vocab.json").write_text(json.dumps(ids))
        elif kind == "t5":
            ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
            _train(folder / "spiece.model", seed, 45, **ids)
        else:
            _train(folder / "sentencepiece.bpe.model", seed, 45)
            named = {str(49 + at): {"content": each} for at, each in enumerate(_LANGUAGES[kind])}
            more = {"tokenizer_class": "MBart50Tokenizer"} if kind == "mbart" else {}
            text = json.dumps({"added_tokens_decoder": named, **more})
            (folder / "tokenizer_config.json").write_text(text)

    return make


def _train(path, seed, size, **options):
    """Trains a SentencePiece model; its pieces but for the first three."""
    options = {"hard_vocab_limit": False, "minloglevel": 2, **options}
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(_lines(seed)), model_writer=file, vocab_size=size, **options
        )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(token) for token in range(3, processor.get_piece_size())]


def _read_hugging_face(folder):
    """As `import` does."""
    checkpoint = hugging_face.Checkpoint.open(folder)
    languages = _LANGUAGES.get(checkpoint.kind, (None, None))
    found = hugging_face.tokenizers_of(checkpoint, *languages)
    sums = [float(np.nansum(array)) for array in checkpoint.arrays.values()]
    return repr((checkpoint.config, found.source.fingerprint, found.target.fingerprint, sums))


def _make_marian(folder, seed):
    sys.path.insert(0, str(_TESTS / "support"))
    import toy_marian

    toy_marian.write_folder(folder, {"enc-depth": 1, "dec-depth": 1 + seed})


def _read_marian(folder):
    opened = marian.Opened.read(folder)
    sums = [float(array.sum()) for array in opened.arrays.values()]
    return repr((opened.config, [each.fingerprint for each in opened.tokenizers], sums))


READERS = {
    reader.name: reader
    for reader in (
        Reader("run", _make_run, _read_run, free=r"README|metrics"),
        Reader("start", _make_run, _read_start, free=r"README|metrics"),
        # Without more_epochs.json a run is as long as its experiment says.
        Reader("unfinished", _make_unfinished, _read_unfinished, free=r"more_epochs"),
        Reader("experiment", _make_experiment, _read_experiment, free=".", names=False),
        Reader("tokenizers", _make_tokenizers, _read_tokenizers, free="."),
        Reader("distilled", _make_distilled,
               lambda folder: repr([list(each) for each in open_distilled(folder, 1)])),
        Reader("served", _make_served, _read_served),
        Reader("device", _make_device, _read_device),
        *(Reader(f"import {kind}", _fixture(kind), _read_hugging_face, free=".")
          for kind in ("marian", "m2m_100", "mbart", "t5")),
        Reader("import npz", _make_marian, _read_marian, free="."),
    )
}  # fmt: skip
