"""What the server answers, as a Starlette application."""

import asyncio
import contextlib
import pathlib
from collections.abc import Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from keras_transformer_runner.server import answers
from keras_transformer_runner.server.fields import (
    BodyLimit,
    Limits,
    check_key,
    count_of,
    read_fields,
    refuse,
    texts_of,
    word_of,
)
from keras_transformer_runner.server.languages import Detector, language_name
from keras_transformer_runner.server.metrics import Metrics
from keras_transformer_runner.server.pool import Full, Pool

_PAGE_FOLDER = pathlib.Path(__file__).with_name("page")
_PAGE = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_LATER = {"Retry-After": "1"}
_GONE = 499  # nginx's status for what it no longer can answer


def make_app(
    pools: Mapping[str, Pool],
    pairs: Mapping[tuple[str, str], str],
    *,
    limits: Limits,
    api_key: str | None = None,
    origins: Sequence[str] = (),
):
    """The ASGI application.

    Args:
        pools: The `Pool` of each model by its name.
        pairs: For each source and target language the name of the model that translates.
        limits: What a request may ask for.
        api_key: What a request for an answer must have; `None` lets all in.
        origins: Of pages elsewhere that may ask from a browser; `*` for all.
    """
    server = _Server(pools, pairs, limits, api_key)
    posts = {
        "/translate": server.translate,
        "/detect": server.detect,
        "/generate": server.generate,
        "/classify": server.classify,
    }
    gets = {
        "/languages": server.languages,
        "/frontend/settings": server.settings,
        "/healthz": server.health,
        "/metrics": server.exposition,
    }
    gets |= {path: _file(name) for path, name in _PAGE.items()}
    server.metrics = Metrics(pools, frozenset({*posts, *gets}))
    routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()]
    routes += [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]
    middleware = [Middleware(BodyLimit, most=limits.body_bytes)]
    if origins:
        cors = dict(allow_methods=["GET", "POST"], allow_headers=["Authorization", "Content-Type"])
        middleware.insert(0, Middleware(CORSMiddleware, allow_origins=list(origins), **cors))
    errors = {HTTPException: _refused, Exception: _failed}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=errors)
    return server.metrics.around(app)


def _file(name):
    async def answer(request):
        return FileResponse(_PAGE_FOLDER / name, headers={"X-Content-Type-Options": "nosniff"})

    return answer


def _refused(request, error):
    said = error.detail
    if error.status_code == 404:  # this and the next are Starlette's own, which names no rule
        said = f"the path must be one of this server. Received: {request.url.path[:100]}"
    elif error.status_code == 405:
        allowed = ", ".join(sorted(error.headers["Allow"].split(", ")))  # it is a set's order
        said = f"{request.url.path} must be asked by {allowed}. Received: {request.method}"
    return JSONResponse({"error": said}, error.status_code, headers=error.headers)


def _failed(request, error):
    return JSONResponse({"error": "the server could not answer; its log says why"}, 500)


class _Server:
    """The endpoints."""

    def __init__(self, pools, pairs, limits, api_key):
        self._pools, self._pairs = pools, pairs
        self._limits, self._key = limits, api_key
        self._sources = list(dict.fromkeys(source for source, _ in pairs))
        self._detector = Detector(self._sources) if pairs else None
        codes = dict.fromkeys([*self._sources, *(target for _, target in pairs)])
        self._names = {code: language_name(code) for code in codes}
        self.metrics = None

    # --- LibreTranslate's interface -----------------------------------------------------------

    async def translate(self, request):
        fields = await self._fields(request)
        texts, is_list = texts_of(fields, "q", self._limits)
        source, target = word_of(fields, "source"), word_of(fields, "target")
        count = 1 + count_of(fields, "alternatives")
        if fields.get("format") not in (None, "", "text"):
            raise refuse(
                "`format` must be 'text': markup would be translated as text", fields["format"]
            )
        detected = None
        if source == "auto":
            detected = self._detected(" ".join(texts), target)
            source = detected["language"]
        name = self._model_of(source, target)

        def work(runner, go_on):
            return [answers.translations(runner, text, source, count, go_on) for text in texts]

        found = await self._answer(request, name, texts, work)
        answer = {"translatedText": [each[0] for each in found]}
        if count > 1:
            answer["alternatives"] = [each[1:] for each in found]
        if detected:
            answer["detectedLanguage"] = [detected] * len(texts)
        return JSONResponse(answer if is_list else {key: each[0] for key, each in answer.items()})

    async def detect(self, request):
        fields = await self._fields(request)
        texts, _ = texts_of(fields, "q", self._limits)
        return JSONResponse(self._ranked(" ".join(texts)))

    async def languages(self, request):
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": name,
                    "targets": [target for source, target in self._pairs if source == code],
                }
                for code, name in self._names.items()
            ]
        )

    async def settings(self, request):
        source, target = next(iter(self._pairs), ("", ""))
        named = {
            side: {"code": code, "name": self._names.get(code, "")}
            for side, code in (("source", source), ("target", target))
        }
        return JSONResponse(
            {
                "charLimit": self._limits.characters,
                "frontendTimeout": 500,  # milliseconds that a page waits for the next key
                "apiKeys": self._key is not None,
                "keyRequired": self._key is not None,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": named,
            }
        )

    # --- Models that do not translate ---------------------------------------------------------

    async def generate(self, request):
        fields = await self._fields(request)
        prompts, is_list = texts_of(fields, "prompt", self._limits)

        def one(runner, prompt):
            return runner.generate([prompt])[0]

        found = await self._answer_each(request, fields, "generate", prompts, one)
        return JSONResponse({"text": found if is_list else found[0]})

    async def classify(self, request):
        fields = await self._fields(request)
        texts, is_list = texts_of(fields, "text", self._limits)
        found = await self._answer_each(request, fields, "classify", texts, answers.classes)
        return JSONResponse({"classes": found if is_list else found[0]})

    # --- The server itself --------------------------------------------------------------------

    async def health(self, request):
        """Models are loaded before the port is open: whoever gets an answer may ask."""
        return JSONResponse({"status": "ok", "models": list(self._pools)})

    async def exposition(self, request):
        content, kind = self.metrics.exposition(request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    # --- What they share ----------------------------------------------------------------------

    async def _fields(self, request):
        fields = await read_fields(request, self._limits)
        check_key(request, fields, self._key)
        return fields

    def _ranked(self, text):
        ranked = self._detector.ranked(text) if self._detector else []
        if not ranked:
            raise HTTPException(
                400, "no language that is served is one that can be told from others"
            )
        return ranked

    def _detected(self, text, target):
        """The likeliest source language that is translated to a target."""
        for each in self._ranked(text):
            if (each["language"], target) in self._pairs:
                return each
        raise self._no_pair("auto", target)

    def _model_of(self, source, target):
        if (source, target) not in self._pairs:
            raise self._no_pair(source, target)
        return self._pairs[source, target]

    def _no_pair(self, source, target):
        served = ", ".join(":".join(pair) for pair in self._pairs) or "none"
        return refuse(
            f"`source` and `target` must be a pair that is served ({served})",
            f"{source}:{target}",
        )

    async def _answer_each(self, request, fields, signature, texts, one):
        """What a model that does not translate answers to each text."""
        name = self._named_model(fields.get("model"), signature)
        runner, least = self._pools[name].runner, int(signature == "classify")
        for text in texts:
            if not runner.fits(text) or len(runner.encode(text)) < least:
                longest = runner.metadata["max_source_length"]
                raise refuse(f"a text must have {least} to {longest} tokens", text)

        def work(runner, go_on):
            found = []
            for text in texts:
                go_on()
                found.append(one(runner, text))
            return found

        return await self._answer(request, name, texts, work)

    def _named_model(self, name, signature):
        names = [
            each
            for each, pool in self._pools.items()
            if pool.runner.metadata["signature"] == signature
        ]
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            raise refuse(f"`model` must be one of {names}, which are served for this", name)
        return name

    async def _answer(self, request, name, texts, work):
        gone = asyncio.ensure_future(_disconnected(request.receive))
        try:
            found = await self._pools[name].answer(work, self._limits.seconds, gone)
        except Full:
            message = "too many requests wait for an answer: try again"
            raise HTTPException(503, message, headers=_LATER) from None
        except TimeoutError:
            message = f"the answer took longer than {self._limits.seconds:g} s: try again, or less"
            raise HTTPException(503, message, headers=_LATER) from None
        except ConnectionError:
            raise HTTPException(_GONE, "the client has gone") from None
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone
        self.metrics.count_texts(name, texts)
        return found


async def _disconnected(receive):
    while (await receive())["type"] != "http.disconnect":
        pass
