"""Protobuf's wire format, for the few fields that are read and written without its classes.

The classes of SentencePiece's models and of TF Serving's requests each need other versions of
protobuf and TensorFlow than packages beside us allow.
"""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5  # kinds of values


def read_fields(content, start, end):
    """Yields `(number, start, end)` of the value of each field of a message in `content`."""
    while start < end:
        tag, start = _read_varint(content, start)
        kind = tag & 7
        if kind == _VARINT:
            _, stop = _read_varint(content, start)
        elif kind == _BYTES:
            size, start = _read_varint(content, start)
            stop = start + size
        elif kind in (_FIXED_64, _FIXED_32):
            stop = start + (8 if kind == _FIXED_64 else 4)
        else:
            raise ValueError(f"a protobuf message must have known fields. Received: type {kind}")
        yield tag >> 3, start, stop
        start = stop


def bytes_field(number, content):
    """A field that holds bytes, a string or a message."""
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def packed_field(number, values):
    """A field that holds many integers of at least 0."""
    return bytes_field(number, b"".join(map(_varint, values)))


def read_packed(content):
    """The integers of a `packed_field`, from the bytes of its value, as a tuple."""
    values, start = [], 0
    while start < len(content):
        value, start = _read_varint(content, start)
        values.append(value)
    return tuple(values)


def varint_field(number, value):
    """A field that holds a number of at least 0."""
    return _varint(number << 3 | _VARINT) + _varint(value)


def read_number(content, start):
    """The number that the value of a field of `varint_field` holds."""
    return _read_varint(content, start)[0]


def _read_varint(content, start):
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = content[start]
        start += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, start
        shift += 7


def _varint(value):
    groups = []
    while value >= 128:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
