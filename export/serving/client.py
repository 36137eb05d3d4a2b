"""A client of an exported translator behind TF Serving, over gRPC or REST; or of another model.

    python client.py --model translator "Two dogs play." "A man sleeps."
    python client.py --model translator --rest --n-best 3 < sentences.txt

    python client.py --model translator --text --language de < letter.txt

gRPC needs `pip install tensorflow-serving-api`; REST needs the standard library alone. It is one
file, to copy: nothing of keras_transformer is needed here, but for whole texts, which the runner
splits: keras_transformer_runner with its extra `sentences`.
"""

import argparse
import base64
import dataclasses
import functools
import http.client
import itertools
import json
import pathlib
import random
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

_LINE_ENDS = dict.fromkeys(map(ord, "\n\v\f\r\x1c\x1d\x1e\x85"), " ")  # as in the package


class ServingError(RuntimeError):
    """The server's answer is an error, or none has come in time.

    Attributes:
        code: The gRPC status' name, such as `"INVALID_ARGUMENT"`, whatever the transport.
        may_pass: Whether the same call may be answered when it is tried again: the server cannot
            be reached or is overloaded, or it has put the call into one batch with another of
            a wrong dtype or shape, upon which it refuses both.
    """

    # What TF Serving says to all calls of a batch that cannot be merged.
    _BATCH_MATES = ("from different tasks have different shapes", "Tensor concat operation failed")

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        is_mates = any(words in str(message) for words in self._BATCH_MATES)
        self.may_pass = code == "UNAVAILABLE" or is_mates


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server makes of one text."""

    status: str  # "ok"; else what is wrong with the text, such as "too_long"
    # Of str, best first; of a language model prompts with their continuations. Empty unless the
    # status is "ok".
    translations: tuple
    scores: tuple  # of float, as many
    truncated: tuple  # of bool, as many: the length limit has cut it


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of one text, or of its tokens."""

    status: str  # "ok"; else what is wrong with the text, such as "too_long"
    labels: object  # the name of the likeliest class; a tuple of one for each token
    probabilities: tuple  # of float, one for each class; a tuple of these for each token


@dataclasses.dataclass(frozen=True)
class Retries:
    """How long and how often a call is tried.

    A call is tried again when its error `may_pass`. It waits `first_wait` seconds, then twice as
    long each time, up to `longest_wait`, each times a random number from 0.5 to 1, so that many
    clients do not come back at once. The `deadline` counts for all tries together.
    """

    deadline: float = 30.0  # seconds
    tries: int = 5
    first_wait: float = 0.1
    longest_wait: float = 5.0

    def call(self, attempt):
        """`attempt(seconds left)`, until it raises nothing that may pass."""
        end = time.monotonic() + self.deadline
        for number in itertools.count(1):
            try:
                return attempt(max(end - time.monotonic(), 0.001))
            except ServingError as error:
                wait = min(self.first_wait * 2 ** (number - 1), self.longest_wait)
                wait *= random.uniform(0.5, 1)
                is_late = time.monotonic() + wait >= end
                if not error.may_pass or number >= self.tries or is_late:
                    raise
                time.sleep(wait)


class Client:
    """What both transports share; use `GrpcClient` or `RestClient`, in a `with` block or not.

    Safe for many threads.

    Args:
        model: The name it is served under.
        version: Its number; the newest when `None`.
        version_label: What the server calls a version, such as "stable", in the place of a number.
        batch_size: Most texts a request; at most the server's `max_batch_size`.
        retries: `Retries`.
    """

    def __init__(self, model, *, version=None, version_label=None, batch_size=32, retries=None):
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
        if version is not None and version_label is not None:
            raise ValueError(
                f"`version` excludes `version_label`. Received: {version}, {version_label!r}"
            )
        self.model, self.batch_size = model, batch_size
        self.version, self.version_label = version, version_label
        self.retries = retries or Retries()

    def translate(self, texts):
        """A translation for each text; `""` for an empty one.

        Args:
            texts: Strings, or bytes, which need not be UTF-8.

        Raises:
            ServingError: if a call fails, or a text cannot be answered; `code` is then
                OUT_OF_RANGE.
        """
        return _best(self.translate_n_best(texts, 1))

    def translate_text(self, text, language=""):
        """The translation of a text of several sentences, its line breaks and spaces kept.

        The server gets its sentences, and parts of those that it calls too long.

        Args:
            text: A string.
            language: That of the text, such as "de": its abbreviations end no sentence.

        Raises:
            ServingError: as `translate`.
            ImportError: if the runner's package or icu4py is not installed.
            ValueError: if `language` is no such tag.
        """
        try:
            from keras_transformer_runner.sentences import split_text
        except ImportError as error:
            raise ImportError(
                "whole texts need keras_transformer_runner with its extra `sentences`. "
                f"Received: {error}"
            ) from error
        answers = {}
        while True:
            too_long = {each for each, answer in answers.items() if answer.status == "too_long"}
            split = split_text(text, language, lambda sentence, long=too_long: sentence not in long)
            new = [*dict.fromkeys(each for each in split.sentences if each not in answers)]
            if not new:
                break
            answers.update(zip(new, self.translate_n_best(new, 1), strict=True))
        for sentence in split.sentences:
            if answers[sentence].status != "ok":
                status = answers[sentence].status
                raise ServingError("OUT_OF_RANGE", f"{sentence[:60]!r}: {status}")
        return split.with_translations([answers[each].translations[0] for each in split.sentences])

    def translate_n_best(self, texts, n_best=0):
        """An `Answer` for each text, whatever is wrong with the others.

        Args:
            texts: Strings, or bytes.
            n_best: Translations of each; 0 for as many as the export chose. A number above what
                it allows is the status "bad_n_best".
        """
        return self._n_best("translate", "translations", texts, n_best)

    def generate(self, prompts):
        """For each prompt the text that begins with it and that a language model goes on with.

        Args:
            prompts: Strings, or bytes; an empty one starts from nothing.

        Raises:
            ServingError: as `translate`.
        """
        return _best(self.generate_n_best(prompts, 1))

    def generate_n_best(self, prompts, n_best=0):
        """As `translate_n_best`, of a language model."""
        return self._n_best("generate", "generated", prompts, n_best)

    def _n_best(self, signature, name, texts, n_best):
        answers, names = [], ("status", "counts", name, "scores", "truncated")
        for batch in self._batches(texts):
            found = self.predict(signature, {"text": batch, "n_best": [n_best] * len(batch)})
            answers += map(_answer, *(found[name] for name in names))
        return answers

    def classify(self, texts):
        """`Classes` for each text, whatever is wrong with the others, of a classifier.

        Args:
            texts: Strings, or bytes.
        """
        answers, names = [], ("status", "class_ids", "labels", "probabilities")
        for batch in self._batches(texts):
            found = self.predict("serving_default", {"text": batch})
            answers += map(_classes, *(found[name] for name in names))
        return answers

    def _batches(self, texts):
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"`texts` must be a list of strings. Received: {texts!r}")
        texts = [*map(_as_bytes, texts)]
        for start in range(0, len(texts), self.batch_size):
            yield texts[start : start + self.batch_size]

    def score(self, texts, targets):
        """The model's log-probability of each translation; `None` where there is none to give."""
        if len(texts) != len(targets):
            raise ValueError(
                f"`texts` and `targets` must be as many. Received: {len(texts)} and {len(targets)}"
            )
        found, pairs = [], [*zip(map(_as_bytes, texts), map(_as_bytes, targets), strict=True)]
        for start in range(0, len(pairs), self.batch_size):
            sources, ends = map(list, zip(*pairs[start : start + self.batch_size], strict=True))
            output = self.predict("score", {"text": sources, "target": ends})
            rows = zip(output["status"], output["log_prob"], strict=True)
            found += [value if _text(status) == "ok" else None for status, value in rows]
        return found

    def predict(self, signature, inputs):
        """Calls any signature: a dict of nested lists by input name, and by output name."""
        inputs = {name: _plain(name, values) for name, values in inputs.items()}
        return self.retries.call(lambda seconds: self._predict(signature, inputs, seconds))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Gives back connections."""


@dataclasses.dataclass(frozen=True)
class Tls:
    """PEM files of a connection by TLS; `Tls()` trusts whom the system trusts.

    Attributes:
        ca: Who vouches for the server.
        certificate, key: The client's own, where the server wants them; both or neither.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self):
        if (self.certificate is None) != (self.key is None):
            received = f"certificate={self.certificate}, key={self.key}"
            raise ValueError(f"`certificate` and `key` must go together. Received: {received}")

    def credentials(self):
        """gRPC's."""
        import grpc

        files = (self.ca, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(f and pathlib.Path(f).read_bytes() for f in files))

    def context(self):
        """That of Python's own connections."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class GrpcClient(Client):
    """Over gRPC: `GrpcClient("localhost:8500", "translator")`; TLS with `tls=Tls(...)`."""

    def __init__(self, address, model, *, tls=None, credentials=None, **options):
        super().__init__(model, **options)
        if "://" in address:
            raise ValueError(f"`address` of gRPC is HOST:PORT. Received: {address}")
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        limits = [(f"grpc.max_{way}_message_length", 2**28) for way in ("send", "receive")]
        credentials = credentials if tls is None else tls.credentials()
        secure = functools.partial(grpc.secure_channel, credentials=credentials)
        self._channel = (secure if credentials else grpc.insecure_channel)(address, options=limits)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def _predict(self, signature, inputs, seconds):
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        if self.version is not None:
            request.model_spec.version.value = self.version
        if self.version_label is not None:
            request.model_spec.version_label = self.version_label
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(_tensor(tf, values))
        try:
            response = self._stub.Predict(request, timeout=seconds)
        except grpc.RpcError as error:
            raise ServingError(error.code().name, error.details()) from error
        return {name: tf.make_ndarray(value).tolist() for name, value in response.outputs.items()}

    def close(self):
        self._channel.close()


class RestClient(Client):
    """Over REST: `RestClient("http://localhost:8501", "translator")`; TLS with https://."""

    _CODES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "UNAVAILABLE", 503: "UNAVAILABLE",
              500: "INTERNAL", 502: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}  # fmt: skip

    def __init__(self, address, model, *, tls=None, **options):
        super().__init__(model, **options)
        if not address.lower().startswith(("http://", "https://")):
            raise ValueError(f"`address` of REST begins with http[s]://. Received: {address}")
        self._open = functools.partial(urllib.request.urlopen, context=tls and tls.context())
        version = "" if self.version is None else f"/versions/{self.version}"
        if self.version_label is not None:
            version = f"/labels/{urllib.parse.quote(self.version_label, safe='')}"
        self._url = f"{address.rstrip('/')}/v1/models/{model}{version}:predict"

    def _predict(self, signature, inputs, seconds):
        body = json.dumps({"signature_name": signature, "inputs": _json(inputs)}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with self._open(request, timeout=seconds) as response:
                outputs = json.loads(response.read())["outputs"]
        except urllib.error.HTTPError as error:
            code = self._CODES.get(error.code, "UNKNOWN")
            raise ServingError(code, error.read().decode("utf-8", "replace")) from error
        except TimeoutError as error:
            raise ServingError("DEADLINE_EXCEEDED", f"{seconds:.3f} s") from error
        except (http.client.HTTPException, OSError) as error:
            late = isinstance(getattr(error, "reason", None), TimeoutError)
            why = f"{self._url.partition('/v1/')[0]}: {getattr(error, 'reason', error)}"
            raise ServingError("DEADLINE_EXCEEDED" if late else "UNAVAILABLE", why) from error
        # A signature with one output answers without its name.
        return outputs if isinstance(outputs, dict) else {"output": outputs}


def _plain(name, values):
    """Nested lists of texts and numbers, none of which TensorFlow would make another one of.

    Raises:
        ValueError: if a value is something else.
    """
    values = values.tolist() if hasattr(values, "tolist") else values  # NumPy's
    if isinstance(values, (list, tuple)):
        return [_plain(name, value) for value in values]
    if isinstance(values, bool) or not isinstance(values, (str, bytes, int)):
        raise ValueError(f"`{name}` must hold texts or whole numbers. Received: {values!r}")
    if isinstance(values, int) and not -(2**31) <= values < 2**31:
        raise ValueError(f"`{name}` must hold numbers of 32 bits. Received: {values}")
    return values


def _tensor(tf, values):
    if not values:  # what they would be is not in an empty list
        raise ValueError("a call must have at least one row. Received: none")
    if isinstance(values[0], (str, bytes)):
        return tf.make_tensor_proto([*map(_as_bytes, values)], tf.string)
    return tf.make_tensor_proto(values, tf.int32)


def _as_bytes(text):
    """UTF-8; a lone surrogate as the bytes that servers read as U+FFFD."""
    if not isinstance(text, (str, bytes)):
        raise ValueError(f"a text must be a string. Received: {text!r}")
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _json(value):
    """Bytes as TF Serving's REST API wants them: base64 where they are not UTF-8."""
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _answer(status, count, translations, scores, truncated):
    texts = tuple(map(_text, translations[:count]))
    return Answer(_text(status), texts, tuple(scores[:count]), tuple(truncated[:count]))


def _classes(status, class_ids, labels, probabilities):
    if not isinstance(class_ids, list):
        return Classes(_text(status), _text(labels), tuple(probabilities))
    tokens = [place for place, index in enumerate(class_ids) if index >= 0]  # the others are pads
    labels = tuple(_text(labels[place]) for place in tokens)
    return Classes(_text(status), labels, tuple(tuple(probabilities[place]) for place in tokens))


def _best(answers):
    """The first text of each answer."""
    for index, answer in enumerate(answers):
        if answer.status != "ok":
            raise ServingError("OUT_OF_RANGE", f"text {index}: {answer.status}")
    return [answer.translations[0] for answer in answers]


def _print_whole(client, arguments):
    """Writes the translation of standard input as it is, and of each text as a line."""
    for text in arguments.text or [sys.stdin.buffer.read().decode("utf-8-sig")]:
        made = client.translate_text(text, arguments.language) + "\n" * bool(arguments.text)
        sys.stdout.buffer.write(made.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def _print_answers(client, arguments):
    """Writes a line for each text."""
    texts = arguments.text or [line.rstrip(b"\r\n") for line in sys.stdin.buffer]
    if arguments.task == "classify":
        answers = client.classify(texts)
    else:
        answers = getattr(client, f"{arguments.task}_n_best")(
            texts, 1 if arguments.n_best is None else arguments.n_best
        )
    for answer in answers:
        if arguments.n_best is not None or arguments.task == "classify":
            print(json.dumps(dataclasses.asdict(answer), ensure_ascii=False))
        elif answer.status == "ok":
            # What ends a line is a space, as in the package's own command.
            print(answer.translations[0].translate(_LINE_ENDS))
        else:
            print()
            print(f"client: no answer: {answer.status}", file=sys.stderr)


def _parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="*", help="default: lines of standard input")
    add("--model", default="translator", help="its name at the server (%(default)s)")
    add("--task", choices=("translate", "generate", "classify"), default="translate",
        help="what the model does (%(default)s); of a classifier JSON lines")  # fmt: skip
    add("--version", type=int, help="a number; the newest that is served when left out")
    add("--version-label", metavar="LABEL", help="such as stable or canary")
    add("--rest", action="store_true", help="REST instead of gRPC")
    add("--address", help="localhost:8500, or http://localhost:8501 with --rest")
    add("--ca", metavar="FILE", help="TLS: who vouches for the server (PEM)")
    add("--certificate", metavar="FILE", help="TLS: this client's own")
    add("--key", metavar="FILE", help="of the certificate")
    add("--n-best", type=int, help="print JSON lines with so many, and scores")
    add("--text", action="store_true", dest="whole",
        help="standard input, or each TEXT, is one text")  # fmt: skip
    add("--language", default="", metavar="TAG", help="of --text, such as de")
    add("--deadline", type=float, default=30.0, metavar="SECONDS",
        help="of a call, tried again included (%(default)s)")  # fmt: skip
    arguments = parser.parse_args(argv)
    has_n_best, task = arguments.n_best is not None, arguments.task
    for is_wrong, rule in (
        (arguments.whole and has_n_best, "--text goes without --n-best"),
        (arguments.whole and task != "translate", "--text goes with --task translate"),
        (task == "classify" and has_n_best, "--n-best goes without --task classify"),
        (arguments.language and not arguments.whole, "--language goes with --text"),
    ):
        if is_wrong:
            parser.error(rule)
    return arguments


def main(argv=None):
    arguments = _parse_arguments(argv)
    make = RestClient if arguments.rest else GrpcClient
    address = arguments.address or ("http://localhost:8501" if arguments.rest else "localhost:8500")
    try:
        options = {name: getattr(arguments, name) for name in ("version", "version_label")}
        options["retries"] = Retries(deadline=arguments.deadline)
        files = {name: getattr(arguments, name) for name in ("ca", "certificate", "key")}
        options["tls"] = Tls(**files) if any(files.values()) else None
        with make(address, arguments.model, **options) as client:
            (_print_whole if arguments.whole else _print_answers)(client, arguments)
    except (ServingError, ImportError, ValueError, OSError) as error:
        hint = " (gRPC needs: pip install tensorflow-serving-api; --rest needs nothing)"
        print(f"client: {error}{hint * isinstance(error, ModuleNotFoundError)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
