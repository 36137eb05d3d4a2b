"""Checks of arguments, each with the error that a user needs."""


def check_size(*, optional=False, **sizes):
    """Raises ValueError unless every named argument is a positive integer (or an optional None)."""
    for name, value in sizes.items():
        if optional and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")


def check_rate(**rates):
    """Raises ValueError unless every named argument is a number in [0, 1)."""
    for name, value in rates.items():
        if not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise ValueError(f"`{name}` must be a rate in [0, 1). Received: {name}={value!r}")


def check_choice(choices, **values):
    """Raises ValueError unless every named argument is one of `choices`."""
    for name, value in values.items():
        if value not in choices:
            raise ValueError(f"`{name}` must be one of {tuple(choices)}. Received: {value!r}")
