"""README and the pages of `docs/` say what is so: their Python runs, their commands parse, the
options and files that they name exist."""

import contextlib
import gzip
import io
import re
import shlex
import shutil
import tomllib

import pytest

from keras_transformer.command import cli
from keras_transformer.command.parser import make_parser
from keras_transformer.command.usage import usage_problem
from keras_transformer.config import PRESETS, TransformerConfig
from keras_transformer.experiment import sections
from keras_transformer.experiment.data_sections import DataSection, SourceSection
from keras_transformer.export.litert.modes import MODES
from keras_transformer_runner import command as runner_command

# Where a page's commands may come from; what runs outside Python has pages of its own.
SCRIPTS = ("benchmarks", "examples", "export", "keras_transformer", "keras_transformer_runner")
SIZES = dict(model_dim=8, num_heads=2, encoder_layers=1, decoder_layers=1, intermediate_dim=16)
FENCE = re.compile(
    r"^(?:<!-- (?P<note>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
COMMANDS = {
    "keras-transformer": make_parser,
    "keras-transformer-run": runner_command.make_parser,
}
SECTIONS = {
    "data": DataSection,
    "tokenizer": sections.TokenizerSection,
    "model": TransformerConfig,
    "training": sections.TrainingSection,
    "decoding": sections.DecodingSection,
}


def read(path):
    return path.read_text(encoding="utf-8")


def pages(root):
    """What is written for users, by name; not what an export's folder brings with it."""
    paths = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("export/**/README.md")]
    paths += [root / "examples" / "README.md"]
    paths += [*root.glob("benchmarks/results/*/README.md"), root / "CONTRIBUTING.md"]
    paths = [path for path in sorted(paths) if "node_modules" not in path.parts]
    return {str(path.relative_to(root)): path for path in paths}


@pytest.fixture(scope="module")
def texts(repo_root):
    return {name: read(path) for name, path in pages(repo_root).items()}


def blocks(text, *languages):
    """`(text, note)` of the fenced blocks in these languages."""
    found = [match for match in FENCE.finditer(text) if match["language"] in languages]
    return [(match["text"], match["note"] or "") for match in found]


# Python


PAIRS = [("A man rides.", "Ein Mann fährt."), ("Two dogs play.", "Zwei Hunde spielen.")] * 9


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with the corpora that the pages speak of."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), "utf-8")
    (folder / "train.txt").write_text("".join(f"{a}\n{b}\n" for a, b in PAIRS), "utf-8")
    for side, name in enumerate(("train.en.gz", "train.de.gz")):
        with gzip.open(folder / name, "wt", encoding="utf-8") as file:
            file.writelines(f"{pair[side]}\n" for pair in PAIRS)
    return folder


@pytest.fixture(scope="module")
def world(corpus, tmp_path_factory):
    """The same with a run and an export, which the pages have made before."""
    import keras_transformer as kt

    folder = shutil.copytree(corpus, tmp_path_factory.mktemp("world"), dirs_exist_ok=True)
    lines = [text for pair in PAIRS for text in pair]
    tokenizer = kt.SentencePieceTokenizer.train(lines, 60)
    config = kt.TransformerConfig(
        vocab_size=tokenizer.vocab_size, **SIZES, **tokenizer.special_ids._asdict()
    )
    translator = kt.Translator(kt.Transformer(config), tokenizer, kt.Greedy(max_length=9))
    translator.save_to_preset(folder / "runs" / "multi30k", samples=lines[:2])
    kt.export_litert(translator.model, tokenizer, folder / "device", samples=lines[:2])
    return folder


RUN = ("README.md", "corpora", "tokenizers", "training", "further_training", "decoding", "layers")
RUN += ("long_sequences", "exporting", "tutorials/keras")
WRITES_DEVICE = {"README.md", "docs/exporting.md"}
PAGES = [name if name.endswith(".md") else f"docs/{name}.md" for name in RUN]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [PAGES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in PAGES[1:])]
)
def test_python_of_a_page_runs(name, texts, request, tmp_path, monkeypatch):
    """From top to bottom, in one process, beside the files that the page speaks of."""
    skipped = shutil.ignore_patterns("device") if name in WRITES_DEVICE else None
    before = request.getfixturevalue("corpus" if name == "README.md" else "world")
    shutil.copytree(before, tmp_path, ignore=skipped, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "tiny", SIZES)  # the same calls, seconds of compilation less
    names = {"__name__": "page"}
    ran = 0
    for text, note in blocks(texts[name], "python"):
        if not note.startswith("not run: "):
            with contextlib.redirect_stdout(io.StringIO()):
                # Each epoch is half a minute of a corpus of 20,000 pairs; one meets all that runs.
                exec(compile(text.replace("epochs=4", "epochs=1"), name, "exec"), names)
            ran += 1
    assert ran


def test_every_page_with_python_runs_or_says_why_not(texts):
    """A page outside PAGES says of each block why it does not run."""
    for name, text in texts.items():
        if name in PAGES or not name.startswith(("README", "docs/")):
            continue
        notes = [note for _, note in blocks(text, "python")]
        assert all(note.startswith("not run: ") for note in notes), name


# Commands


def command_lines(text):
    """The commands of ours in a page's blocks of shell, each as its words."""
    for block, _ in blocks(text, "sh", "bash", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shell_words(line.strip().removeprefix("$ ").removeprefix("KERAS_BACKEND=jax "))
            while words:
                stop = next((i for i, word in enumerate(words) if set(word) <= set("&|;")), None)
                command, words = words[:stop], words[len(words) if stop is None else stop + 1 :]
                if command:
                    yield command


def shell_words(line):
    lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|&;()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:  # what a console answers, such as a lone apostrophe
        return []
    for index, word in enumerate(words):
        if set(word) <= set("<>"):  # the rest names files
            return words[:index]
    return words


def problem_of(words):
    """What the command itself says of these words, or nothing."""
    parser, said = COMMANDS[words[0]](), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        if words[0] == "keras-transformer":
            arguments = cli._parsed(parser, words[1:])
            return usage_problem(arguments) or ""
        parser.parse_intermixed_args(words[1:])
    return said.getvalue()


def test_commands_of_pages_parse(texts):
    seen = 0
    for name, text in texts.items():
        for words in command_lines(text):
            if words[0] in COMMANDS:
                problem = problem_of(words)
                assert not problem, f"{name}: {' '.join(words)}: {problem}"
                seen += 1
    assert seen > 60


def test_a_copied_folder_is_the_same_the_second_time(texts):
    """`cp -r FOLDER TARGET` puts it into a TARGET that exists, beside what is old there."""
    copies = {(name, *words[2:]) for name in texts for words in command_lines(texts[name])
              if words[:2] == ["cp", "-r"]}  # fmt: skip
    assert copies and all(source.endswith("/.") for _, source, _ in copies), copies


def test_a_command_with_an_option_that_does_not_exist_is_found():
    (words,) = command_lines("```sh\nkeras-transformer train a.toml run --fast # so\n```\n")
    assert "unrecognized arguments: --fast" in problem_of(words)
    (words,) = command_lines("```sh\nkeras-transformer translate run --language de < x\n```\n")
    assert problem_of(words) == "--language goes with --text"


def written_options(root):
    """All options that scripts and commands of this repository know, by how they are spelled."""
    found = set()
    for folder in SCRIPTS:
        for path in (root / folder).rglob("*"):
            if path.suffix not in {".py", ".mjs", ".cc", ".sh"} or "node_modules" in path.parts:
                continue
            code = read(path)
            found.update(re.findall(r"""["'`](--[a-z][\w-]*)""", code))
            for ending in re.findall(r'f"--\{\w+\}([\w-]*)"', code):  # of a loop over names
                names = re.findall(r'"([a-z]\w*)"', code)
                found.update(f"--{name}{ending}".replace("_", "-") for name in names)
    return found


def test_options_that_pages_name_exist(texts, repo_root):
    known = written_options(repo_root)
    for name, text in texts.items():
        if not name.startswith(("README", "docs/")):
            continue
        plain = FENCE.sub("", text)
        for code in re.findall(r"`([^`\n]+)`", plain):
            for option in re.findall(r"(?:^|[ \[])(--[a-z][\w-]*)", code):
                foreign = re.match(r"pip |python -m |XLA", code) or "xla_" in option
                assert foreign or option in known, f"{name}: `{code}`"
        for words in command_lines(text):
            if words[0] == "python" and words[1].endswith(".py"):
                assert (repo_root / words[1]).is_file(), f"{name}: {words[1]}"


def test_promises_of_number_formats_are_those_of_the_code(texts):
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| (\d+)%, ([\d.]+), ([\d.]+) \|$",
        texts["docs/explanations/quantization.md"],
        re.M,
    )
    promised = [
        (name, mode.promised_agreement, mode.promised_bleu_loss, mode.promised_bytes)
        for name, mode in MODES.items()
    ]
    assert [(name, int(share) / 100, float(a), float(b)) for name, share, a, b in rows] == promised


# Experiments and links


def test_keys_of_experiments_in_pages_exist(texts):
    for name, text in texts.items():
        for block, _ in blocks(text, "toml"):
            for section, keys in tomllib.loads(block).items():
                known = {*SECTIONS[section].__dataclass_fields__}
                known |= {"preset"} if section == "model" else set()
                assert keys.keys() <= known, f"{name}: [{section}] {keys.keys() - known}"
                for source in keys.get("sources", ()):
                    assert source.keys() <= {*SourceSection.__dataclass_fields__}, name


def test_links_lead_to_files(texts, repo_root):
    """Sphinx checks anchors too, and that every page is in the table of contents."""
    for name, text in texts.items():
        folder = (repo_root / name).parent
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", FENCE.sub("", text)):
            if not re.match(r"[a-z]+:", target):
                assert (folder / target).exists(), f"{name}: {target}"
