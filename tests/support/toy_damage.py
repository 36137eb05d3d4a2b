"""What may happen to files: damaged bytes, and JSON with strange values."""

STRANGE = (2**63, 2**31, -1, 0, 1, 3, 1e308, float("nan"), None, True, "x", "", [], {}, [[]])


def damaged(content, rng):
    """A file with a flipped bit, cut short, or with a part that is other or there twice."""
    content, kind = bytearray(content), rng.randrange(4)
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randrange(1, 40))
    if kind == 0:
        content[start] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del content[start:]
    elif kind == 2:
        content[start:end] = bytes(byte ^ 255 for byte in content[start:end])
    else:
        content[start:start] = content[start:end]
    return bytes(content)


def change_a_value(fields, rng):
    """Changes one value, wherever it stands: it is gone, there twice, or a strange one."""
    place = fields
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.3:
            break
        place = place[key]
    kind = rng.randrange(6)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, list):
        place.append(place[key])
    else:
        place[key] = rng.choice(STRANGE)
