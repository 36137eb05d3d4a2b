"""The kit's client where no server is needed: retries, deadlines, wrong use."""

import io

import pytest
from serving_process import load_client

client = load_client()


def test_an_unavailable_server_is_tried_again(monkeypatch):
    waits, calls = [], []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    retries = client.Retries(tries=4, first_wait=0.1, longest_wait=0.3)

    def attempt(seconds):
        calls.append(seconds)
        if len(calls) < 4:
            raise client.ServingError("UNAVAILABLE", "no")
        return "yes"

    assert retries.call(attempt) == "yes"
    for wait, most in zip(waits, (0.1, 0.2, 0.3), strict=True):
        assert most / 2 <= wait <= most
    assert calls == sorted(calls, reverse=True) and 29 < calls[-1] < 30
    calls.clear()
    with pytest.raises(client.ServingError, match="UNAVAILABLE: no"):
        client.Retries(tries=3).call(attempt)
    assert len(calls) == 3
    for code in ("INVALID_ARGUMENT", "DEADLINE_EXCEEDED"):
        calls.clear()

        def fault(seconds, code=code):
            calls.append(seconds)
            raise client.ServingError(code, "no")

        with pytest.raises(client.ServingError, match=code):
            retries.call(fault)
        assert len(calls) == 1
    # No wait that would outlast the deadline.
    with pytest.raises(client.ServingError, match="UNAVAILABLE"):
        client.Retries(deadline=0.01, first_wait=1).call(
            lambda seconds: (_ for _ in ()).throw(client.ServingError("UNAVAILABLE", "no"))
        )


@pytest.mark.parametrize(
    ("code", "message", "tries"),
    [
        (
            "FAILED_PRECONDITION",
            "Tensors with name 'x' from different tasks have different shapes",
            3,
        ),
        ("INVALID_ARGUMENT", '{"error": "… from different tasks have different shapes …"}', 3),
        ("INTERNAL", "Tensor concat operation failed: Cannot concatenate", 3),
        ("INTERNAL", "out of memory", 1),
        ("FAILED_PRECONDITION", 'Serving signature key "x" not found.', 1),
    ],
)
def test_a_batch_that_another_call_has_spoilt_is_tried_again(code, message, tries, monkeypatch):
    monkeypatch.setattr(client.time, "sleep", lambda seconds: None)
    calls = []

    def attempt(seconds):
        calls.append(seconds)
        raise client.ServingError(code, message)

    with pytest.raises(client.ServingError, match=code):
        client.Retries(tries=3).call(attempt)
    assert len(calls) == tries


@pytest.mark.parametrize("make", [client.GrpcClient, client.RestClient])
def test_nobody_there(make):
    if make is client.GrpcClient:
        pytest.importorskip("tensorflow_serving")  # the extra `serving`
    address = "127.0.0.1:9" if make is client.GrpcClient else "http://127.0.0.1:9"
    caller = make(address, "m", retries=client.Retries(deadline=5, tries=1))
    with caller, pytest.raises(client.ServingError, match="UNAVAILABLE"):
        caller.translate(["a"])


def test_a_batch_has_at_least_one_text():
    with pytest.raises(ValueError, match="`batch_size` must be at least 1. Received: 0"):
        client.RestClient("http://localhost", "m", batch_size=0)


# --- Whole texts ---------------------------------------------------------------------------


class Shouting(client.Client):
    """Answers in capitals; more than nine characters are too long, "?" is refused."""

    def __init__(self, *address_and_model, **options):
        super().__init__("m", batch_size=3)
        self.asked = []

    def translate_n_best(self, texts, n_best=0):
        self.asked.append(texts)
        return [
            client.Answer("too_long", (), (), ())
            if len(text) > 9
            else client.Answer("invalid", (), (), ())
            if text == "?"
            else client.Answer("ok", (text.upper(),), (0.0,), (False,))
            for text in texts
        ]


def test_a_whole_text_is_asked_for_in_sentences_that_the_server_takes():
    caller = Shouting()
    text = "a b. Dr. X.\r\n\n\tA b. One, two three. \n"
    assert caller.translate_text(text, "en") == text.upper()
    first, *cuts = caller.asked
    assert first == ["a b.", "Dr. X.", "A b.", "One, two three."]
    assert cuts == [["One,", "two three."], ["two", "three."]]
    assert caller.translate_text("") == "" and caller.translate_text(" \n") == " \n"
    with pytest.raises(client.ServingError, match="OUT_OF_RANGE: '\\?': invalid"):
        caller.translate_text("?")
    with pytest.raises(ValueError, match="`language` must be a BCP 47 tag"):
        caller.translate_text("a", "english")


def test_a_server_that_is_not_there_is_named(capsys):
    address = "http://127.0.0.1:9"
    assert client.main(["a", "--rest", "--address", address, "--deadline", "0.1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"client: UNAVAILABLE: {address}: [Errno ") and "urlopen" not in said


def test_the_command_of_the_client_takes_whole_texts(monkeypatch, capsys):
    monkeypatch.setattr(client, "RestClient", Shouting)
    stdin = io.TextIOWrapper(io.BytesIO("\ufeffa b. Ü\r\n".encode()))
    monkeypatch.setattr(client.sys, "stdin", stdin)
    assert client.main(["--rest", "--text", "--language", "de"]) == 0
    assert capsys.readouterr().out == "A B. Ü\r\n"
    assert client.main(["a b. C", "--rest", "--text"]) == 0
    assert capsys.readouterr().out == "A B. C\n"
    several = ["--n-best", "2"]
    for wrong in (["--language", "de"], ["--text", *several], ["--task", "classify", *several]):
        with pytest.raises(SystemExit, match="2"):
            client.main(["a", "--rest", *wrong])
    assert client.main(["a", "--rest", "--text", "--language", "english"]) == 1
    monkeypatch.setitem(client.sys.modules, "keras_transformer_runner.sentences", None)
    assert client.main(["a", "--rest", "--text"]) == 1
    errors = capsys.readouterr().err
    assert "`language` must be" in errors and "its extra `sentences`" in errors


def test_numbers_that_32_bits_do_not_hold_are_named():
    """TensorFlow would make 1 of 2^32 + 1."""
    rest = client.RestClient("http://127.0.0.1:1", "translator")
    for odd in (2**31, 2**32 + 1, -(2**31) - 1, 2**70):
        with pytest.raises(ValueError, match=f"`n_best` must hold numbers of 32 bits. .*: {odd}"):
            rest.translate_n_best(["a"], odd)
        with pytest.raises(ValueError, match=f"`source_ids` must hold numbers of 32 .*: {odd}"):
            rest.predict("translate_ids", {"source_ids": [[1, 2], [3, odd]]})
    for odd in (1.5, None, True):
        with pytest.raises(ValueError, match="`n_best` must hold texts or whole numbers. Received"):
            rest.translate_n_best(["a"], odd)
        with pytest.raises(ValueError, match=f"a text must be a string. Received: {odd}"):
            rest.translate([odd])


def test_each_transport_has_its_form_of_address(capsys):
    pytest.importorskip("tensorflow_serving")
    for address in ("127.0.0.1:8501", "localhost"):
        with pytest.raises(ValueError, match="`address` of REST begins with http.* Received: "):
            client.RestClient(address, "translator")
    with pytest.raises(ValueError, match="`address` of gRPC is HOST:PORT. Received: http://a:1"):
        client.GrpcClient("http://a:1", "translator")
    assert client.main(["--rest", "--address", "localhost:8501", "a"]) == 1
    assert capsys.readouterr().err.startswith("client: `address` of REST begins")
