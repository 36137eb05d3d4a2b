"""The signatures of fixed lengths in an exported file, as its metadata list them."""

from collections.abc import Iterable
from typing import NamedTuple

FIELD = "lengths"
OPEN_FIELD = "open_length"  # whether there is a signature for every length beside these


class FixedLength(NamedTuple):
    """A signature for sources of one length, shorter ones with pads behind them."""

    signature: str
    source_length: int
    target_length: int


def fixed_signature(name: str, source_length: int) -> str:
    """The name of the signature for one length beside an open one."""
    return f"{name}_{source_length}"


def fields(fixed: Iterable[FixedLength], has_open: bool) -> dict:
    """These lengths as fields of the metadata; none without lengths."""
    listed = [each._asdict() for each in fixed]
    return {FIELD: listed, OPEN_FIELD: has_open} if listed else {}


def fixed_lengths(metadata: dict) -> tuple[FixedLength, ...]:
    """The fixed lengths of a file by its metadata, shortest first; none of most files.

    Raises:
        ValueError: if the fields are not what an export writes.
    """
    rows, has_open = metadata.get(FIELD, []), metadata.get(OPEN_FIELD, True)
    kinds = FixedLength.__annotations__
    is_list = type(rows) is list and all(
        type(row) is dict
        and row.keys() == kinds.keys()
        and all(type(row[name]) is kind for name, kind in kinds.items())
        for row in rows
    )
    fixed = tuple(FixedLength(**row) for row in rows) if is_list else ()
    lengths = [0, *(each.source_length for each in fixed)]
    ascend = all(a < b for a, b in zip(lengths, lengths[1:], strict=False))
    are_named = all(
        each.signature == fixed_signature(metadata["signature"], each.source_length)
        and each.target_length > 0
        for each in fixed
    )
    if not (is_list and ascend and are_named):
        raise ValueError(
            f"`{FIELD}` must list signatures with their `source_length` and `target_length`, "
            f"shortest first. Received: {rows!r}"
        )
    longest = metadata["max_source_length"]
    is_bounded = lengths[-1] <= longest and (has_open is True or lengths[-1] == longest)
    if type(has_open) is not bool or not is_bounded:
        raise ValueError(
            f"`{FIELD}` must end at `max_source_length`, where `{OPEN_FIELD}` is false, or before. "
            f"Received: lengths up to {lengths[-1]}, max_source_length={longest}, "
            f"{OPEN_FIELD}={has_open!r}"
        )
    return fixed


def signatures_of(metadata: dict) -> tuple[str, ...]:
    """The signatures that answer a whole source, the open one first where there is one."""
    has_open = (metadata["signature"],) if metadata.get(OPEN_FIELD, True) else ()
    return (*has_open, *(each.signature for each in fixed_lengths(metadata)))
