"""The package keras-transformer-web in projects of others. Needs Node 20.16."""

import random
import re
import shutil
import subprocess

import pytest
from page import SCRIPTS, WEB, node, node_json, pack
from page_engines import ENGINES, engine

from keras_transformer_runner import Runner
from keras_transformer_runner.sentences import split_text

SECOND_SITE = SCRIPTS / "second_site"
WHOLE = "Ab c! De f.\n\n  Am 3. a b (dr. h).  Bc\tde? gh \n" + "ab " * 300
SAMPLES = 8
SOURCES = ["path", "address", "files", "buffers", "function", "responses", "network"]
PLACES = ["page", "worker", "bundle", "service"]
FILES = ["model.tflite", "tokenizer.model"]  # that progress is told of


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of someone else, with the packed package installed."""
    if not (WEB / "node_modules").is_dir():
        pytest.skip("no packages in export/web: export/web/test.sh installs them")
    folder = tmp_path_factory.mktemp("projects") / "elsewhere"
    shutil.copytree(SECOND_SITE, folder)
    file = pack(tmp_path_factory.mktemp("packed"))
    command = ["npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", str(file)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def answers(fixed, texts):
    """What the Python runner answers: `(request, answers)`."""
    pytest.importorskip("icu4py")
    runner = Runner(fixed)
    request = dict(texts=texts[:SAMPLES], whole=WHOLE)
    text = runner.translate_text(WHOLE, language="de")
    return request, dict(answers=runner.translate(texts[:SAMPLES]), text=text)


@pytest.fixture(scope="module")
def in_node(project, fixed, answers, device, tmp_path_factory):
    damaged = tmp_path_factory.mktemp("damaged") / "folder"
    shutil.copytree(fixed, damaged)
    with (damaged / "model.tflite").open("r+b") as file:
        file.write(b"x")
    request = dict(answers[0], folder=str(fixed), damaged=str(damaged), open=str(device.path))
    return node_json(project / "in_node.mjs", request=request)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_node_gives_the_runners_texts_from_any_source(in_node, answers, source):
    found = in_node["answers"][source]
    assert {name: found[name] for name in answers[1]} == answers[1]
    assert found["files"] == FILES


@pytest.mark.slow
def test_a_call_before_closing_is_answered(in_node, answers):
    assert in_node["answers"]["beforeClosing"] == answers[1]["answers"][0]


ERRORS = {
    "no WebAssembly": "missing: litert_wasm_compat_internal.wasm is missing.",
    "damaged WebAssembly": "damaged: the WebAssembly is damaged: WebAssembly.compile(): ",
    "no model": "runtime: the model could not be loaded: ",
    "no signature": "runtime: the model failed: No signature named other found in model.",
    "no segmenter": "runtime: whole texts need Intl.Segmenter, which this browser lacks",
    "open": "folder: the folder must have signatures of fixed lengths, as LiteRT.js cannot resize",
    "damaged": "damaged: model.tflite is damaged or belongs to another export: its SHA-256 differs",
    "no file": "missing: model.tflite is missing.",
    "no folder": "/none/metadata.json could not be loaded: ENOENT",
    "no page": "/none/metadata.json could not be loaded: status 404",
    "no server": "missing: http://127.0.0.1:9/metadata.json could not be loaded: ",
    "no source": "argument: `source` must be the address of a folder, a Map of the bytes of its",
    "no address": 'that gives them. Received: "http://"',
    "no bytes": 'argument: metadata.json must be bytes, a Response or an address. Received: "text"',
    "a number": "argument: metadata.json must be bytes, a Response or an address. Received: number",
    "no text": "argument: `text` must be a string. Received: number",
    "no whole text": "argument: `text` must be a string. Received: number",
    "no language": 'argument: `language` must be a BCP 47 tag such as "de" or "pt-BR", or "". Rec',
    "no options": "argument: `options` must be an object. Received: null",
    "no options of a split": "argument: `options` must be an object. Received: null",
    "no options of ids": "argument: `options` must be an object. Received: number",
    "no signal": "argument: `signal` must be an AbortSignal. Received: number",
    "no signal of a text": "argument: `signal` must be an AbortSignal. Received: number",
    "no options of opening": "argument: `options` must be an object. Received: null",
    "no progress": "argument: `onProgress` must be a function. Received: number",
    "no ids": "argument: ids must be an array. Received: string",
    "another id": "argument: ids must lie in [0, 31). Received: 31",
    "another target id": "argument: ids must lie in [0, 31). Received: -1",
    "too long": "length: A sentence can have 512 tokens at most. This one has 60",
    "too many bytes": "length: A sentence can have 32768 bytes at most",
    "aborted": "20: This operation was aborted",
    "aborted text": "20: This operation was aborted",
    "aborted opening": "20: This operation was aborted",
    "closed": "closed: the translator is closed.",
}


@pytest.mark.slow
def test_errors_can_be_told_apart(in_node):
    errors = dict(in_node["errors"])
    stopped = errors.pop("stopped")
    assert set(stopped) == {"Error: enough"}
    assert errors.keys() == ERRORS.keys()
    for name, message in ERRORS.items():
        assert message in errors[name], name


def test_typescript_knows_the_package_without_the_dom(project):
    tsc = WEB / "node_modules" / "typescript" / "bin" / "tsc"
    done = node(tsc, "--project", project)
    assert done.returncode == 0, done.stdout


# --- Whole texts ---------------------------------------------------------------------------

PARTS = [
    "Dr.",
    "z. B.",
    "am 3.",
    "J.",
    "R.",
    "1.",
    "12",
    "1234.",
    "IV.",
    "XIV.",
    "St.",
    "p.",
    "Nr.",
]
PARTS += ["A", "b", "Go!", '"Really?"', "he", "asked.", "5", "example.org/?q=1", "Oktober", "usw."]
PARTS += [
    "你好。",
    "我很好。",
    "、",
    "”",
    "…",
    "?",
    "!",
    "(",
    ")",
    ",",
    ";",
    ":",
    "'s",
    "U.S.",
    "10.5",
]
PARTS += ["é", "e\u0301", "\U0001f600", "\ud800", "ß", "Α.", "π.χ.", "\U0001d400", "\U0001d400."]
PARTS += ["“", "”", "„", "«", "»", "「", "」", "’", "\u037e", "-", "Usw.", "Z. B."]
PARTS += ["👩‍👩‍👧", "🇩🇪", "\u0301", "한국어"]
PARTS += [" ", "  ", "\n", "\r\n", "\u2028", "\u3000", "\xa0", "\t", "\x85", "\u200b"]
LANGUAGES = ["", "de", "en", "fr", "el", "ru", "deu_Latn", "pt-BR", "zh", "xx"]


@pytest.fixture
def modules(project, tmp_path):
    """Calls of the installed package's own modules."""
    (tmp_path / "package").symlink_to(project / "node_modules" / "keras-transformer-web")
    return lambda *requests: node_json(SCRIPTS / "modules.mjs", tmp_path, request=requests)


def test_a_text_is_split_and_joined_as_in_python(modules):
    pytest.importorskip("icu4py")
    rng = random.Random(3)

    def text(most, parts):
        return "".join(
            rng.choice(parts) + rng.choice(["", " ", " "]) for _ in range(rng.randint(0, most))
        )

    texts = [
        (text(14, PARTS), rng.choice(LANGUAGES), rng.choice([0, 0, 3, 8, 20])) for _ in range(2000)
    ]
    in_a_line = [part for part in PARTS if len(part.splitlines()) == 1 and part[0] not in "\n\x85"]
    texts += [
        (text(3000, in_a_line), rng.choice(LANGUAGES), rng.choice([0, 20])) for _ in range(20)
    ]
    (answers,) = modules(dict(kind="split", texts=texts))
    for (text, language, most), answer in zip(texts, answers, strict=True):
        fits = None if most == 0 else lambda sentence, most=most: len(sentence) <= most
        split = split_text(text, language, fits)
        assert (answer["sentences"], answer["gaps"]) == (list(split.sentences), list(split.gaps))
        utf16 = [each.encode("utf-16-le", "surrogatepass")[:-2] for each in split.sentences]
        translations = [each.decode("utf-16-le", "surrogatepass") for each in utf16]
        assert answer["joined"] == split.with_translations(translations)


@pytest.mark.parametrize("sentence", ["你好。", "Go on! ", ". “"])
def test_a_line_is_not_copied_for_each_of_its_sentences(sentence, modules):
    (copies,) = modules(dict(kind="copies", text=sentence * 6000, most=40, isWhole=True))
    assert copies < 2000


def test_as_many_translations_as_sentences_are_joined(modules):
    (answer,) = modules(dict(kind="join", gaps=["", ""], translations=[]))
    assert answer["error"] == ("`translations` must be as many as the sentences. Received: 0 for 1")
    (answer,) = modules(dict(kind="join", gaps=["", ""], translations="a"))
    assert answer == dict(
        error="`gaps` and `translations` must be arrays of strings. Received: object and string",
        code="argument",
    )


# --- In browsers ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled(project):
    """The project with `bundle.js`, which a bundler has made of what runs in a worker."""
    esbuild = WEB / "node_modules" / "esbuild-wasm" / "bin" / "esbuild"
    options = ["--bundle", "--format=iife", "--log-level=error", "--minify"]
    done = node(esbuild, project / "bundled.js", *options, f"--outfile={project / 'bundle.js'}")
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture(scope="module")
def elsewhere(project, fixed, tmp_path_factory):
    """What another server has: the model, and the WebAssembly."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(fixed, folder / "model")
    vendor = project / "node_modules" / "keras-transformer-web" / "vendor"
    (folder / "assets").mkdir()
    for file in vendor.glob("*.wasm"):
        shutil.copy(file, folder / "assets")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENGINES)
def test_a_second_site_gives_the_runners_texts(kind, bundled, elsewhere, answers, repo_root):
    """In its page, in workers, bundled or not, with the model and the WebAssembly elsewhere, and
    under the content policy of export/web/README.md."""
    browser = engine(kind)
    page = (repo_root / "export" / "web" / "README.md").read_text("utf-8")
    (policy,) = re.findall(r"^Content-Security-Policy: (.+)$", page, re.MULTILINE)
    policy = policy.replace("connect-src 'self'", "connect-src 'self' ELSEWHERE")
    script = SCRIPTS / "second_site.mjs"
    found = node_json(script, browser, bundled, elsewhere, policy, request=answers[0])
    assert found == {place: dict(answers[1], files=FILES) for place in PLACES}
