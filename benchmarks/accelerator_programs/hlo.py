"""Reads the text of a compiled program: what it must not hold, its products, its bytes of HBM."""

import collections
import math
import re

_WIDTHS = {
    "f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "u16": 2,
    "s16": 2, "pred": 1, "s8": 1, "u8": 1,
}  # fmt: skip
_SHAPE = re.compile(r"\b(" + "|".join(_WIDTHS) + r")\[([\d,]*)\](\{[^}]*\})?")
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)")
_OPCODE = re.compile(r"(?:^|\s)([a-z][\w\-]*)\(")
# These move nothing, are the second half of what was counted at its start, or fetch into VMEM while
# something else computes.
_NOT_COUNTED = {
    "parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "copy-start",
    "copy-done", "slice-start", "slice-done", "all-reduce-done", "async-start", "async-done",
}  # fmt: skip
_COLLECTIVE = re.compile(
    r"= .*? (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
# The compiler's own: they stand for no call out of the chip.
_CUSTOM_CALL = re.compile(r'custom_call_target="([^"]+)"')
_HOST = re.compile(r"callback|xla_python|host_send|SendToHost|infeed|outfeed", re.I)


def forbidden(text):
    """What a program must not have, counted: all must be 0."""
    return {
        "float64": len(re.findall(r"\bf64\[", text)),
        "calls of the host": len(_HOST.findall(text)),
        "dynamic shapes": len(re.findall(r"<=\d+\]|set-dimension-size|dynamic-reshape", text)),
    }


def custom_calls(text):
    return dict(collections.Counter(_CUSTOM_CALL.findall(text)))


def collectives(text):
    return dict(collections.Counter(_COLLECTIVE.findall(text)))


def product_types(text):
    """How many matrix products the program has, by the type of what goes in.

    On a GPU a product of bfloat16 may give float32: parts of its sum, which are added there.
    """
    return dict(collections.Counter(kind for kind, _ in _products(text)))


def product_flops(text):
    """Multiplications and additions of the program's products."""
    return sum(flops for _, flops in _products(text))


def _products(text):
    """(type, FLOPs) of each product that an instruction `dot` makes."""
    arrays = {}  # an operand is the last of its name: names of other computations come before
    for line in text.split("\n"):
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        name, rest = match.groups()
        if shape := _SHAPE.match(rest):
            arrays[name] = shape[1], [int(size) for size in shape[2].split(",") if size]
        if found := re.match(r"\S+ dot\(%([\w.\-]+), .*lhs_contracting_dims=\{([\d,]*)\}", rest):
            kind, sizes = arrays[found[1]]
            summed = math.prod(sizes[int(axis)] for axis in found[2].split(",") if axis)
            yield kind, 2 * math.prod(arrays[name][1]) * summed
        elif found := re.match(r"(\w+)\[[\d,]*\]\S* convolution\(", rest):  # a TPU's product
            yield found[1], 0


def hbm_bytes(text, groups=12):
    """Bytes that the entry computation reads from and writes to HBM, tiles' padding included.

    An operand is counted where an instruction reads it, once for each; what lies in a TPU's VMEM
    (memory space 1) is not, nor is what is fetched there while something else computes.

    Returns:
        The sum, and the largest groups of ops by name: `[(name, bytes), …]`.
    """
    types, total, by_group = {}, 0, collections.Counter()
    for line in _entry(text):
        match = _INSTRUCTION.match(line)
        opcode = match and _OPCODE.search(match[2])
        if not opcode:
            continue
        name, rest = match[1], match[2]
        types[name] = rest[: opcode.start()]
        operands = re.findall(r"%([\w.\-]+)", rest[opcode.end() :].split("), ")[0])
        if opcode[1] in _NOT_COUNTED:
            continue
        moved = sum(map(_bytes, [types[name], *(types.get(one, "") for one in operands)]))
        total += moved
        by_group[_group(rest, opcode[1])] += moved
    return total, by_group.most_common(groups)


def _entry(text):
    start = text.index("\nENTRY ")
    return text[start : text.index("\n}", start)].split("\n")[2:]


def _bytes(types):
    """Of all arrays in a type that lie in HBM."""
    return sum(
        _padded(dims, layout or "") * _WIDTHS[kind]
        for kind, dims, layout in _SHAPE.findall(types)
        if "S(1)" not in layout
    )


def _padded(dims, layout):
    """Elements, with the two minor axes filled up to whole tiles."""
    sizes = [int(size) for size in dims.split(",") if size]
    tile = re.search(r"T\((\d+)(?:,(\d+))?\)", layout)
    order = re.match(r"\{([\d,]+)", layout)
    if tile and order and sizes:
        minor_first = [int(axis) for axis in order[1].split(",")]
        tile_sizes = [int(size) for size in tile.groups() if size][::-1]
        for axis, size in zip(minor_first, tile_sizes, strict=False):
            sizes[axis] = -(-sizes[axis] // size) * size
    return math.prod(sizes)


def _group(rest, opcode):
    """The name of an op without its numbers and without the side that it is on."""
    found = re.search(r'op_name="([^"]*)"', rest)
    name = re.sub(r"jit\(\w+\)/", "", found[1]) if found else opcode
    return re.sub(r"encoder|decoder", "*", re.sub(r"_\d+", "", name))[-100:]
