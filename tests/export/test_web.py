"""Whole sites of export/web in headless Chromium.

Needs Node 20, `npm ci` in export/web and Chromium: export/web/test.sh sees to it.
"""

import json
import re
import shutil

import keras
import pytest
from page import LEFT, PAGE_LENGTHS, SCRIPTS, WEB, node_json
from toy_model import randomise

from keras_transformer import (
    BeamSearch,
    Greedy,
    Transformer,
    TransformerConfig,
    Translator,
    export_litert,
)
from keras_transformer.export import MODES
from keras_transformer.export.parity import compare
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import BytesTokenizer, SentencePieceTokenizer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
LINES = 60  # all different, so that none is known
LONG_TEXT = "\n".join("abcdefgh"[index % 8] * (1 + index // 8) for index in range(LINES))
TITLE = "<b>Spelling</b> & more"
WHOLE_TEXTS = ["a" * 600, " Ab c! De f.\n\n  Dr. b 1. a? b (a). \n", "\n \n"]

SAMPLES = 3  # typed by hand, as it were; the others go to the worker


@pytest.fixture(scope="module")
def browser():
    """Visits sites: a list of visits -> what came of them (see driver.mjs)."""
    if not (WEB / "node_modules").is_dir():
        pytest.skip("no packages in export/web: export/web/test.sh installs them")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: export/web/test.sh says what is needed")
    return lambda *visits: node_json(SCRIPTS / "driver.mjs", WEB, CHROMIUM, request=visits)


@pytest.fixture(scope="module")
def visits(browser, make_site, fixed, int8_fixed, everything, texts):
    """One visit each to the page of the float32 and of the int8 file."""
    lines = [*texts[4:6], "", texts[7]]
    visit = dict(typed=[*texts[:SAMPLES], "\n".join(lines), *WHOLE_TEXTS], ids=everything)
    visit |= dict(raw=[[31, 3], [-1, 3], [1.5, 3], [4] * 513], again=texts[:SAMPLES])
    visit |= dict(sent=[texts[9], LONG_TEXT, texts[10]], repeat=6)
    options = ("--title", TITLE, "--from", "en", "--to", "de", "--example", "ab c")
    sites = [make_site(folder, *options) for folder in (fixed, int8_fixed)]
    visit["newer"] = dict(site=str(make_site(fixed, "--title", "Newer")), title="Newer")
    return browser(*({**visit, "site": str(site)} for site in sites))


def ids_and_text(answer):
    return {key: answer[key] for key in ("sourceIds", "targetIds", "text")}


@pytest.mark.slow
def test_float32_gives_pythons_ids_and_text(visits, expected):
    assert [ids_and_text(answer) for answer in visits[0]["answers"]] == expected
    assert len({answer["text"] for answer in expected}) > 25


@pytest.mark.slow
def test_int8_keeps_its_promise(visits, expected, everything):
    answers = visits[1]["answers"]
    assert [answer["sourceIds"] for answer in answers] == [row["sourceIds"] for row in expected]
    pairs = [
        [(answer["text"], answer["targetIds"]) for answer in side] for side in (expected, answers)
    ]
    agreement = compare(everything, *pairs)["token_agreement"]
    assert agreement >= max(0.9, MODES["int8"].promised_agreement), agreement


@pytest.mark.slow
def test_what_is_typed_is_translated(visits, live, texts):
    typed = visits[0]["typed"]
    shown = [answer["text"] for answer in typed[: SAMPLES + 1]]
    lines = live.translate([*texts[4:6], "", texts[7]])
    assert shown == [*live.translate(texts[:SAMPLES]), "\n".join(lines)]
    assert all(answer["error"] is None for answer in typed[: SAMPLES + 1])
    assert all(answer["latency"].endswith(" ms") for answer in typed[: SAMPLES + 1])


@pytest.mark.slow
def test_a_text_is_translated_whole(visits, live):
    """Sentences, spaces and line breaks; what is too long for the model is cut as in Python."""
    pytest.importorskip("icu4py")
    from keras_transformer_runner.sentences import translate_texts

    def fits(sentence):
        return len(live.source_ids(sentence)) <= PAGE_LENGTHS[-1]

    answers = visits[0]["typed"][SAMPLES + 1 :]
    assert [answer["error"] for answer in answers] == [None] * len(WHOLE_TEXTS)
    shown = [answer["text"] for answer in answers]
    assert shown == translate_texts(WHOLE_TEXTS, live.translate, fits, "en")


@pytest.mark.slow
def test_ids_are_checked_before_they_reach_the_model(visits):
    *outside, too_many = visits[0]["raw"]
    rule = "ids must lie in [0, 31). Received: "
    assert outside == [f"{rule}31", f"{rule}-1", f"{rule}1.5"]
    assert too_many.startswith("A sentence can have 512 tokens at most. This one has 513")


@pytest.mark.slow
def test_only_the_newest_text_is_answered_to_the_end(visits):
    for visit in visits:
        *older, last = visit["burst"]
        assert last == dict(id=3, done=True, type="text")
        ids = [each["id"] for each in older]
        # How far they come depends on when the messages arrive.
        assert ids == sorted(ids) and not any(each["id"] == 2 and each["done"] for each in older)


@pytest.mark.slow
def test_a_newer_site_takes_over(visits):
    """And does so whole: without a network right after, it works."""
    for visit in visits:
        assert visit["title"] == TITLE
        assert visit["newer"] == dict(state="ready", title="Newer")


@pytest.mark.slow
def test_it_works_without_a_network(visits, live, texts):
    for visit in visits:
        assert visit["again"]["state"] == "ready" and visit["again"]["badge"]
        assert visit["again"]["shown"] == live.translate(texts[:SAMPLES])  # now float32 in both


@pytest.mark.slow
def test_nothing_leaves_the_machine_and_nothing_goes_wrong(visits):
    for visit in visits:
        assert visit["requests"] > 20
        assert visit["foreign"] == visit["pageErrors"] == []


@pytest.mark.slow
def test_memory_does_not_grow(visits, everything):
    """Over more than 200 sentences of all lengths. The heap grows in large steps, which could hide
    a leak, so what is made and given back is counted too."""
    for visit in visits:
        memory = visit["memory"]
        assert memory["runs"] == len(everything) * len(memory["heap"]) > 200
        assert len(set(memory["heap"])) == 1, memory["heap"]
        assert memory["tensorsDeleted"] == 2 * memory["runs"]  # a source and a target each


# --- What comes over the network ------------------------------------------------------------

ON_DEMAND = ["model/model.tflite", "model/tokenizer.model", "model/metadata.json"]
ON_DEMAND += ["translator/vendor/sentencepiece.js"]
ON_DEMAND += [f"translator/vendor/litert_wasm_internal.{suffix}" for suffix in ("js", "wasm")]
CUT_ALWAYS = 9


@pytest.fixture(scope="module")
def policy(repo_root):
    """The header that export/web/README.md tells to send."""
    page = (repo_root / "export" / "web" / "README.md").read_text("utf-8")
    (value,) = re.findall(r"^Content-Security-Policy: (.+)$", page, re.MULTILINE)
    return value


@pytest.fixture(scope="module")
def network_visits(browser, make_site, fixed, policy, texts):
    site = str(make_site(fixed))
    twice = dict.fromkeys(("model/model.tflite", "translator/vendor/litert_wasm_internal.wasm"), 2)
    foreign = "http://127.0.0.1:9/"
    older = make_site(fixed)
    worker = older / "worker.js"
    worker.write_text("Intl.Segmenter = undefined;\n" + worker.read_text())
    lines = f"{texts[4]}. {texts[7]}.\n\n{texts[8]}"
    return browser(
        *({"site": site, "cut": {name: 1}, "typed": texts[:1]} for name in ON_DEMAND),
        {"site": site, "cut": twice, "reload": True, "again": texts[:1]},
        {"site": site, "cut": {"worker.js": 1, "translator/index.js": 1}, "again": texts[:1]},
        {"site": site, "cut": {"icon.svg": CUT_ALWAYS}, "typed": texts[:1]},
        {"site": site, "cut": {"model/tokenizer.model": CUT_ALWAYS}},
        {"site": site, "headers": {"Content-Security-Policy": policy}, "foreign": foreign},
        {"site": site, "foreign": foreign},
        {"site": str(older), "typed": [lines]},
    )


@pytest.mark.slow
def test_a_browser_that_cannot_split_translates_lines(network_visits, live, texts):
    (answer,) = network_visits[-1]["typed"]
    assert answer["error"] is None
    assert answer["text"] == "\n\n".join(live.translate([f"{texts[4]}. {texts[7]}.", texts[8]]))


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(ON_DEMAND)), ids=ON_DEMAND)
def test_a_file_that_comes_cut_is_fetched_again(network_visits, live, texts, index):
    visit = network_visits[index]
    assert (visit["state"], visit["error"]) == ("ready", "")
    assert visit["typed"][0]["text"] == live.translate(texts[:1])[0]


@pytest.mark.slow
def test_what_comes_cut_is_not_kept(network_visits, live, texts):
    """Twice: the first visit fails, the second has all, and keeps it."""
    visit = network_visits[len(ON_DEMAND)]
    assert (visit["state"], visit["reloaded"]) == ("broken", "ready")
    assert visit["again"] == dict(state="ready", shown=live.translate(texts[:1]), badge=True)
    always = network_visits[len(ON_DEMAND) + 3]
    assert always["state"] == "broken"
    assert "tokenizer.model is damaged or belongs to another export" in always["error"]


@pytest.mark.slow
def test_what_the_service_worker_fetches_first_is_checked_too(network_visits, live, texts):
    once, always = network_visits[len(ON_DEMAND) + 1 : len(ON_DEMAND) + 3]
    assert once["again"] == dict(state="ready", shown=live.translate(texts[:1]), badge=True)
    # What cannot be kept is used all the same.
    assert (always["state"], always["badge"]) == ("ready", False)
    assert once["badge"] and always["typed"][0]["text"] == live.translate(texts[:1])[0]


@pytest.mark.slow
def test_the_policy_holds_in_the_worker(network_visits):
    """Sent as a header, and where the server sends none, by the service worker."""
    for visit in network_visits[-3:-1]:
        assert (visit["state"], visit["rule"]) == ("ready", "connect-src")
        assert visit["pageErrors"] == []


ODD = ["a", "ab cd", "", "  ", "é e\u0301\tc", "</s> a", "x\u3000y", "ﬁ ａｂ ½", "\ufffd a", "a\0b"]
ODD += ["\U0001f600 b", "\u200bz\u200d", "\ufeffa", "a\xa0b", "▁a", "中文 ab", "abcdefgh" * 3, LEFT]


def model_of(tokenizer):
    keras.utils.set_random_seed(3)
    config = TransformerConfig(
        **dict(vocab_size=tokenizer.vocab_size, model_dim=14, num_heads=2, dropout=0.0),
        **dict(encoder_layers=1, decoder_layers=1, intermediate_dim=17),
    )
    return randomise(Transformer(config))


@pytest.mark.slow
def test_other_tokenizers_and_searches(browser, make_site, tmp_path):
    """Also a search that limits an answer's length, and one with more outputs."""
    text = ["abc defg hé", "gfe dcba ab", "ab cd efgh"] * 40
    pieces = SentencePieceTokenizer.train(text, 290, byte_fallback=True)
    kinds = {
        "bytes": (BytesTokenizer(), Greedy(extra_length=5, max_length=30)),
        "pieces": (pieces, BeamSearch(beam_size=2, extra_length=5)),
    }
    requests, expected = [], []
    for kind, (tokenizer, strategy) in kinds.items():
        model, folder = model_of(tokenizer), tmp_path / kind
        options = dict(strategy=strategy, lengths=(8, 64), lengths_only=True)
        export_litert(model, tokenizer, folder, samples=ODD[:3], **options)
        requests.append(dict(site=str(make_site(folder)), ids=ODD))
        translator = Translator(model, tokenizer, strategy)
        answers = zip(map(translator.source_ids, ODD), translator.translate(ODD), strict=True)
        expected.append(list(answers))
    for visit, rows in zip(browser(*requests), expected, strict=True):
        assert [(row["sourceIds"], row["text"]) for row in visit["answers"]] == rows


@pytest.fixture(scope="module")
def broken_visits(browser, make_site, fixed):
    """Sites that went bad on the way: of each, what the page says."""

    def edit_length(site, **fields):
        file = site / "model" / "metadata.json"
        metadata = json.loads(file.read_text())
        metadata["lengths"][0].update(fields)
        file.write_text(json.dumps(sealed(metadata)))

    def damage_model(site):
        file = site / "model" / "model.tflite"
        file.write_bytes(file.read_bytes()[:-1] + b"\7")

    damages = {
        "gone": lambda site: (site / "model" / "model.tflite").unlink(),
        "damaged": damage_model,
        "longer": lambda site: edit_length(site, target_length=102),
        "shorter": lambda site: edit_length(site, source_length=31),
        "other signature": lambda site: edit_length(site, signature="other"),
    }
    sites = []
    for damage in damages.values():
        sites.append(make_site(fixed))
        damage(sites[-1])
    visits = browser(*({"site": str(site)} for site in sites))
    return dict(zip(damages, visits, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("gone", "model/model.tflite could not be loaded: status 404"),
        ("damaged", "model.tflite is damaged or belongs to another export: its SHA-256 differs."),
        ("longer", '"translate_32", of 32 ids to 102. Received: shapes (1, 32) and (1, 82)'),
        ("shorter", "`lengths` must list signatures, shortest first"),
        ("other signature", "`lengths` must list signatures, shortest first"),
    ],
)
def test_a_broken_site_says_so(broken_visits, damage, message):
    visit = broken_visits[damage]
    assert visit["state"] == "broken"
    assert message in visit["error"]
