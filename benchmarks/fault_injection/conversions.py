"""AutoGraph's translations of functions, made once for all children.

About a third of a tiny command is AutoGraph's, which parses and translates each Python function
that is traced. It runs no op, and what it makes depends on the function alone: a child notes which
functions it has translated, and the parent translates them too, so that later forks find them.
"""

import gc
import pickle
import types

_FIELDS = ("recursive", "user_requested", "internal_convert_user_code", "optional_features")


def note(path):
    """Has this process write to a file which functions AutoGraph translates; returns what does."""
    transpiler = _transpiler()
    translate, noted = transpiler.transform_function, []

    def noting(function, context):
        options = tuple(getattr(context.options, name) for name in _FIELDS)
        noted.append((*_place(function.__code__), options))
        return translate(function, context)

    transpiler.transform_function = noting

    def write():
        with open(path, "wb") as file:
            pickle.dump(noted, file)

    return write


def take_over(*paths):
    """Translates in this process what children have noted; what cannot be found is left out."""
    from tensorflow.python.autograph.core import converter

    noted = set()
    for path in paths:
        with open(path, "rb") as file:
            noted |= set(pickle.load(file))
    if not noted:
        return
    gc.unfreeze()  # or it would not find what there was before the freeze
    codes = _codes()
    for *place, options in noted:
        code, names = codes.get(tuple(place), (None, None))
        if code is None:
            continue
        closure = tuple(types.CellType(None) for _ in code.co_freevars)
        function = types.FunctionType(code, names, code.co_name, None, closure)
        context = converter.ProgramContext(
            converter.ConversionOptions(**dict(zip(_FIELDS, options, strict=True)))
        )
        try:
            _transpiler().transform_function(function, context)
        except Exception:  # then a child translates it, or does what AutoGraph does about it
            continue
    gc.freeze()


def _transpiler():
    from tensorflow.python.autograph.impl import api

    return api._TRANSPILER


def _place(code):
    return code.co_filename, code.co_firstlineno, code.co_name


def _codes():
    """The code and the globals of all functions of this process, by place; inner ones too."""
    found = {}
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            pending = [function.__code__]
            while pending:
                code = pending.pop()
                if _place(code) not in found:
                    found[_place(code)] = code, function.__globals__
                    pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found
