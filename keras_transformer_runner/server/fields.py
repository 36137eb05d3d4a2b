"""The fields of a request, from JSON, a form or the address, and whether they are within bounds."""

import asyncio
import hmac
import urllib.parse
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

_MOST_FIELDS = 1000  # of a form
_LISTS = ("q", "prompt", "text")  # fields that may come several times


class Limits(NamedTuple):
    """What a request may ask for.

    Attributes:
        characters: Of all its texts together.
        texts: How many they may be.
        body_bytes: Of what it sends.
        seconds: Until it is sent, and again until it is answered.
    """

    characters: int = 10_000
    texts: int = 64
    body_bytes: int = 1 << 20
    seconds: float = 60.0


def refuse(rule: str, received: object, status: int = 400) -> HTTPException:
    """The error of a field, in one line; what was received is cut where it is long."""
    shown = repr(received)
    shown = shown if len(shown) <= 100 else f"{shown[:100]}..."
    return HTTPException(status, f"{rule}. Received: {shown}")


class BodyLimit:
    """ASGI middleware that lets no body grow beyond a size."""

    def __init__(self, app, most):
        self.app, self.most = app, most

    async def __call__(self, scope, receive, send):
        size, announced = 0, dict(scope.get("headers", ())).get(b"content-length", b"")

        async def limited():
            nonlocal size
            if announced.isdigit():
                self._check(int(announced))  # before anything of it is waited for
            message = await receive()
            size += len(message.get("body", b""))
            self._check(size)
            return message

        await self.app(scope, limited, send)

    def _check(self, size):
        if size > self.most:
            raise HTTPException(413, f"a request must have at most {self.most} bytes")


async def read_fields(request: Request, limits: Limits) -> dict:
    """The fields of a POST: a JSON object, or a form, with those of the address.

    Raises:
        HTTPException: if it is neither, or takes too long or too much.
    """
    try:
        async with asyncio.timeout(limits.seconds):
            return await _fields(request, limits)
    except TimeoutError:
        raise HTTPException(408, f"a request must be sent within {limits.seconds:g} s") from None


async def _fields(request, limits):
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            fields = await request.json()
        except (ValueError, RecursionError):
            raise HTTPException(400, "the body must be JSON in UTF-8") from None
        if not isinstance(fields, dict):
            raise refuse("the body must be a JSON object", fields)
        return fields
    of_address = _once_each(_pairs(request.scope["query_string"], strict=False))
    if kind == "application/x-www-form-urlencoded":
        return {**of_address, **_once_each(_pairs(await request.body()))}
    async with request.form(max_files=0, max_part_size=limits.body_bytes) as form:
        return {**of_address, **_once_each(form.multi_items())}


def _pairs(encoded, *, strict=True):
    """The fields of an address or of a form as `curl -d` sends it: in UTF-8, escaped or not.

    Args:
        encoded: Bytes.
        strict: Whether each must have a `=`: what has none is a part of a text.
    """
    try:
        parts = [part for part in encoded.decode("utf-8").split("&") if part]
        if len(parts) > _MOST_FIELDS:
            raise HTTPException(400, f"a form must have at most {_MOST_FIELDS} fields")
        if strict and (without := [part for part in parts if "=" not in part]):
            rule = "a form must hold fields name=value, `&` between them and %26 within them"
            raise refuse(rule, without[0])
        return urllib.parse.parse_qsl("&".join(parts), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise HTTPException(400, "a form must be UTF-8") from None


def _once_each(pairs):
    """A dict of fields; those that may be lists may come several times."""
    fields = {}
    for name, value in pairs:
        if name not in fields:
            fields[name] = value
        elif name in _LISTS:
            before = fields[name]
            fields[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            raise refuse(f"`{name}` must be given once", value)
    return fields


def check_key(request: Request, fields: dict, key: str | None) -> None:
    """Raises unless a request has the key of the server, as `api_key` or as a bearer token."""
    if key is None:
        return
    given = fields.get("api_key")
    given = given.encode("utf-8", "replace") if isinstance(given, str) else b""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not given and scheme.lower() == "bearer":
        given = token.strip().encode("latin-1")  # as headers are decoded
    if not hmac.compare_digest(given, key.encode()):
        raise HTTPException(403, "`api_key` must be the key of this server")


def texts_of(fields: dict, name: str, limits: Limits) -> tuple[list[str], bool]:
    """The texts of a field, and whether they came as a list.

    Raises:
        HTTPException: if they are missing, no texts, or more than may be.
    """
    given = fields.get(name)
    if given is None:
        raise HTTPException(
            400,
            f"`{name}` must be given: as JSON with Content-Type: application/json, or in a form",
        )
    is_list = isinstance(given, list)
    texts = given if is_list else [given]
    if not all(isinstance(text, str) for text in texts):
        raise refuse(f"`{name}` must be a string or a list of strings", given)
    if len(texts) > limits.texts:
        raise HTTPException(
            400, f"`{name}` must have at most {limits.texts} texts. Received: {len(texts)}"
        )
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise HTTPException(
            400,
            f"`{name}` must have at most {limits.characters} characters. Received: {characters}",
        )
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            rule = f"`{name}` must be Unicode text without lone surrogates"
            raise refuse(rule, text) from None
    return texts, is_list


def word_of(fields: dict, name: str) -> str:
    """A field that must be a string, and not empty."""
    given = fields.get(name)
    if not isinstance(given, str) or not given:
        raise refuse(f"`{name}` must be given as a string", given)
    return given


def count_of(fields: dict, name: str) -> int:
    """A field that is a whole number, 0 if it is missing."""
    given = fields.get(name)
    if given is None:  # missing, or null in JSON
        return 0
    try:
        is_number = isinstance(given, (int, str)) and not isinstance(given, bool)
        count = int(given) if is_number else -1
    except ValueError:
        count = -1
    if count < 0:
        raise refuse(f"`{name}` must be a whole number, at least 0", given)
    return count
