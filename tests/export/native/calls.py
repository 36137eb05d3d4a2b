"""calls.py LIBRARY FOLDER [WEIGHT_CACHE]: the functions of keras_transformer.h, called by ctypes.

Standard input is a JSON list of calls, [NAME, ARGUMENTS...], or [[call, ...]] for calls from
threads of their own; standard output the list of results, {"error": TEXT} for those that fail.
Bytes are strings of Latin-1.
"""

import concurrent.futures
import ctypes
import json
import os
import sys

CAPACITY = 4096


class Translation(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_void_p),
        ("text_size", ctypes.c_size_t),
        ("ids", ctypes.POINTER(ctypes.c_int32)),
        ("id_count", ctypes.c_size_t),
        ("score", ctypes.c_float),
        ("is_cut", ctypes.c_int),
    )


class Translations(ctypes.Structure):
    _fields_ = (("items", ctypes.POINTER(Translation)), ("count", ctypes.c_size_t))


class Classes(ctypes.Structure):
    _fields_ = (
        ("probabilities", ctypes.POINTER(ctypes.c_float)),
        ("row_count", ctypes.c_size_t),
        ("class_count", ctypes.c_size_t),
        ("labels", ctypes.POINTER(ctypes.c_char_p)),
        ("is_by_token", ctypes.c_int),
    )


TAKE_PIECE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Library:
    """A translator behind the C interface."""

    def __init__(self, path, folder, *weight_cache):
        self.c = ctypes.CDLL(path)
        self.c.kt_version.restype = self.c.kt_error.restype = ctypes.c_char_p
        texts = ("kt_translate", "kt_translate_text", "kt_generate", "kt_decode")
        for name in ("kt_open", "kt_open_cached", *texts):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.kt_n_best.restype = ctypes.POINTER(Translations)
        self.c.kt_kind.restype = ctypes.c_char_p
        self.c.kt_classify.restype = self.c.kt_classify_ids.restype = ctypes.POINTER(Classes)
        self.handle = None
        self.open(folder, 1, *weight_cache)

    def open(self, folder, threads=1, *weight_cache):
        folder = None if folder is None else folder.encode()
        if weight_cache:
            handle = self.c.kt_open_cached(folder, threads, *map(os.fsencode, weight_cache))
        else:
            handle = self.c.kt_open(folder, threads)
        self.check(handle)
        self.c.kt_close(ctypes.c_void_p(self.handle))
        self.handle = handle

    def check(self, is_well):
        if not is_well:
            raise RuntimeError(self.c.kt_error().decode())

    def call(self, name, *arguments):
        return getattr(self.c, name)(ctypes.c_void_p(self.handle), *arguments)

    def version(self):
        return self.c.kt_version().decode()

    def encode(self, text):
        text = text.encode("latin-1")
        return self.ids("kt_encode", text, ctypes.c_size_t(len(text)))

    def translate_ids(self, source):
        return self.ids("kt_translate_ids", (ctypes.c_int32 * len(source))(*source), len(source))

    def generate_ids(self, prompt):
        return self.ids("kt_generate_ids", (ctypes.c_int32 * len(prompt))(*prompt), len(prompt))

    def count_only(self, source):
        given = (ctypes.c_int32 * len(source))(*source)
        return self.call("kt_translate_ids", given, len(source), None, 0)

    def ids(self, name, *arguments):
        ids = (ctypes.c_int32 * CAPACITY)()
        count = self.call(name, *arguments, ids, CAPACITY)
        self.check(count >= 0)
        return ids[:count]

    def decode(self, ids):
        return self.text("kt_decode", (ctypes.c_int32 * len(ids))(*ids), len(ids))

    def translate(self, text):
        text = text.encode("latin-1")
        return self.text("kt_translate", text, ctypes.c_size_t(len(text)))

    def kind(self):
        return self.call("kt_kind").decode()

    def generate(self, text):
        text = text.encode("latin-1")
        return self.text("kt_generate", text, ctypes.c_size_t(len(text)))

    def classify(self, text):
        text = text.encode("latin-1")
        return self.classes("kt_classify", text, ctypes.c_size_t(len(text)))

    def classify_ids(self, source):
        return self.classes("kt_classify_ids", (ctypes.c_int32 * len(source))(*source), len(source))

    def classes(self, name, *arguments):
        found = self.call(name, *arguments)
        self.check(found)
        classes = found.contents
        rows, count = classes.row_count, classes.class_count
        numbers = classes.probabilities[: rows * count]
        labels = [label.decode() for label in classes.labels[:count]] if classes.labels else None
        by_token = bool(classes.is_by_token)
        self.c.kt_free_classes(found)
        rows = [numbers[count * row : count * (row + 1)] for row in range(rows)]
        return {"rows": rows if by_token else rows[0], "labels": labels, "by_token": by_token}

    def translate_text(self, text, language):
        text, language = text.encode("latin-1"), language and language.encode("latin-1")
        return self.text("kt_translate_text", text, ctypes.c_size_t(len(text)), language)

    def split_text(self, text, language, most=-1):
        """Gaps and sentences in turn, of which the last is number `most`."""
        pieces = []

        def take(_, piece, size):
            pieces.append(ctypes.string_at(piece, size).decode("latin-1") if size else "")
            return len(pieces) == most

        text = text.encode("latin-1")
        arguments = text, ctypes.c_size_t(len(text)), language and language.encode("latin-1")
        self.check(self.call("kt_split_text", *arguments, TAKE_PIECE(take), None) == 0)
        return pieces

    def text(self, name, *arguments):
        size = ctypes.c_size_t()
        found = self.call(name, *arguments, ctypes.byref(size))
        self.check(found)
        content = ctypes.string_at(found, size.value + 1)
        self.c.kt_free(ctypes.c_void_p(found))
        assert content[-1:] == b"\0"
        return content[:-1].decode("latin-1")

    def n_best(self, text, count):
        text = text.encode("latin-1")
        found = self.call("kt_n_best", text, ctypes.c_size_t(len(text)), count)
        self.check(found)
        items = [found.contents.items[i] for i in range(found.contents.count)]
        answers = [
            {
                "text": ctypes.string_at(item.text, item.text_size).decode("latin-1"),
                "ids": item.ids[: item.id_count],
                "score": item.score,
                "truncated": bool(item.is_cut),
            }
            for item in items
        ]
        self.c.kt_free_translations(found)
        return answers

    def stream(self, text, most=-1):
        """The pieces, of which the last is number `most`."""
        pieces = []

        def take(_, piece, size):
            pieces.append(ctypes.string_at(piece, size).decode("latin-1"))
            getattr(self, self.kind())("a")  # a call from within a stream is allowed
            return len(pieces) == most

        text = text.encode("latin-1")
        size = ctypes.c_size_t(len(text))
        self.check(self.call("kt_stream", text, size, TAKE_PIECE(take), None) == 0)
        return pieces

    def null(self, name):
        """A call without a translator."""
        function = getattr(self.c, name)
        found = function(None, b"a", ctypes.c_size_t(1), None, 0)
        self.check(bool(found) and found != -1)

    def result(self, call):
        name, *arguments = call
        try:
            if isinstance(name, list):
                return self.results_of_threads(call)
            return getattr(self, name)(*arguments)
        except RuntimeError as error:
            return {"error": str(error)}

    def results_of_threads(self, calls):
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(self.result, calls))


def main(path, folder, *weight_cache):
    library = Library(path, folder, *weight_cache)
    json.dump([library.result(call) for call in json.load(sys.stdin)], sys.stdout)
    library.c.kt_close(ctypes.c_void_p(library.handle))


if __name__ == "__main__":
    main(*sys.argv[1:])
