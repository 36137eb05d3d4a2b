"""What a command says of an error: one line, with the rule and the place."""

import re
import sys

# What the package raises, and the system: their messages say what is wrong.
_TOLD = (ImportError, OSError, RuntimeError, TypeError, ValueError)
# TensorFlow's errors by name, in the order in which they are looked for.
_RULES = {
    "ResourceExhaustedError": "there must be enough memory, disk space and open files",
    "DataLossError": "a file must be whole as it was written",
    "NotFoundError": "what TensorFlow reads must exist",
    "PermissionDeniedError": "what TensorFlow reads and writes must be permitted",
}
_OTHER_RULE = "TensorFlow must be able to go on"
# Whole lines, and parts of them, that say where in a graph or in Python, not what.
_LINES_OF_GRAPHS = re.compile(
    r"Graph execution error|Detected at node|Stack trace|<stack traces|\s*File \"|Hint: |"
    r"\s*(?:\d+ root error|\d+ successful|\d+ derived)"
)
_PARTS_OF_GRAPHS = re.compile(
    r"\{\{\w+ [^}]*\}\}|\[\[[^\]]*\]\]|\[Op:[^\]]*\](?: name:)?|"
    r"Error in user-defined function passed to \S+ transformation with iterator: \S+: "
)
_PARTS_OF_KERAS = re.compile(
    r"\x1b\[[0-9;]*m|\AException encountered when calling [^\n]*\n|Arguments received by.*\Z",
    re.DOTALL,
)
_ERROR_IN_USER_CODE = re.compile(r"^ +\w*(?:Error|Exception): ", re.MULTILINE)
# `tf.debugging.Assert` of the package: the rule with "Received:", and the value.
_ASSERTION = re.compile(r"assertion failed: \[([^\]]*Received:)\] \[(.*)\]")


def told(error, option="--traceback"):
    """An error as one line.

    Args:
        error: An exception.
        option: What shows where it comes from.

    Returns:
        A string without a line end.
    """
    if isinstance(error, MemoryError):
        return f"there must be enough memory. Received: {_joined(str(error)) or 'MemoryError'}"
    if _is_of_tensorflow(error):
        message = _without_graphs(error.message)
        if rule := _ASSERTION.search(message):
            return f"{rule[1]} {rule[2]}"
        return f"{_rule(error)}. Received: {type(error).__name__}: {message}"
    message = str(error)
    if isinstance(error, _TOLD) and not isinstance(error, RecursionError) and message:
        if message.startswith("in user code:"):  # as TensorFlow raises what a traced function does
            message = _ERROR_IN_USER_CODE.split(message)[-1]
        return _joined(_PARTS_OF_KERAS.sub("", message)) or type(error).__name__
    message = f"{type(error).__name__}: {_joined(message)}".removesuffix(": ")
    return f"{message} (not expected: {option} shows where)"


def _joined(text):
    return " ".join(text.split())


def _is_of_tensorflow(error):
    tensorflow = sys.modules.get("tensorflow")  # whose errors cannot come before it
    return hasattr(tensorflow, "errors") and isinstance(error, tensorflow.errors.OpError)


def _rule(error):
    names = {kind.__name__ for kind in type(error).__mro__}
    return next((rule for name, rule in _RULES.items() if name in names), _OTHER_RULE)


def _without_graphs(message):
    lines = [line for line in message.splitlines() if not _LINES_OF_GRAPHS.match(line)]
    return _joined(_PARTS_OF_GRAPHS.sub("", " ".join(lines))) or _joined(message)
