"""Commands as children of this process, to be killed at any moment.

Importing TensorFlow takes several times what a tiny command does. This process imports it once and
runs no op, so it has no threads of TensorFlow's, and each command is a fork of it: TensorFlow's
runtime starts in the child, with its first op, as in a fresh process. `fresh=True` starts a fresh
Python all the same.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import types

from fault_injection import conversions, spawning

ENVIRONMENT = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "MPLBACKEND": "agg",
}
CLI, RUNNER = "keras_transformer_command", "keras_transformer_runner.command"
TIMED_OUT = "timed out"
_MAY_DIE = 10.0  # seconds that the kernel has for all of a session
_IMPORTS = (
    *("tensorflow", "tensorflow_text", "keras", "sentencepiece", "h5py", "matplotlib.pyplot"),
    *("sacrebleu", "flatbuffers", "ai_edge_litert.interpreter", CLI, RUNNER),
    *("keras_transformer.training", "keras_transformer.data", "keras_transformer.plots"),
    *("keras_transformer.translation.files", "keras_transformer.translation.workers"),
    *(
        "keras_transformer.export.serving.saved_model",
        "keras_transformer.export.litert.export_translator",
    ),
)
_NEW_PROCESS_IDS, _NEW_MOUNTS = 0x20000000, 0x00020000
_PRIVATE = (1 << 18) | (1 << 14)  # MS_PRIVATE, MS_REC


def warm_up():
    """Imports what commands import, and checks that no op has run."""
    os.environ.update(ENVIRONMENT)
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    for name in _IMPORTS:
        importlib.import_module(name)
    os.dup2(saved, 2)
    os.close(saved)
    from tensorflow.python.eager import context

    if context.context()._initialized or threading.active_count() > 1:
        raise RuntimeError("an import has started TensorFlow: forks of it would not be as fresh")
    gc.collect()
    gc.freeze()  # or each child's collector would copy the parent's memory, page by page


class Child:
    """A command that runs in a session of its own.

    Args:
        argv: Its arguments.
        log: Path; its output goes to `log.out` and `log.err`.
        module: Which command: `CLI` or `RUNNER`.
        stdin: Path of a file, or `None` for nothing.
        temporary: Folder for `TMPDIR`.
        fresh: Whether in a fresh Python.
        contained: Whether as process 1 of a namespace of its own, as in a container.
        window: Lines that `translate --output` takes at a time, where it is a fork.
        addresses: Bytes of memory that it may map, where it is a fork.
        learn: Whether this process takes over what AutoGraph translates there; see `learnt`.
    """

    def __init__(self, argv, log, *, module=CLI, stdin=None, temporary=None, fresh=False,
                 contained=False, window=None, addresses=None, learn=False):  # fmt: skip
        self.argv, self.log = list(map(str, argv)), pathlib.Path(log)
        self._module, self._stdin, self._temporary = module, stdin, temporary
        self.fresh, self.contained, self._window = fresh, contained, window
        self._addresses, self._learn = addresses, learn
        self.code, self._output = None, None
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            self.pid = self._popen()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _as_a_process(self._child)

    @property
    def out(self):
        return self._output[0] if self._output else _text(self.log, ".out")

    @property
    def err(self):
        return self._output[1] if self._output else _text(self.log, ".err")

    def keep_output(self):
        """Reads it now; its files may be removed then."""
        self._output = self.out, self.err

    def learnt(self, seconds):
        """Waits for its end, and makes all later forks know what it has learnt; its exit code."""
        if self.wait(seconds) == 0:
            conversions.take_over(f"{self.log}.conversions")
        return self.code

    def poll(self):
        """The exit code, minus the signal's number where one has ended it; `None` before."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds):
        """The exit code, or `TIMED_OUT` of one that had to be killed."""
        if self.wait_or_leave(seconds) is None:
            self.kill()
            self.code = TIMED_OUT
        return self.code

    def wait_or_leave(self, seconds):
        """The exit code, or `None` of one that still runs."""
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            ready = select.poll()
            ready.register(descriptor, select.POLLIN)
            ready.poll(seconds * 1000)
            os.close(descriptor)
        return self.poll()

    def kill(self, *, only_parent=False):
        """Ends it by signal 9, with all that it has started or without."""
        with contextlib.suppress(ProcessLookupError):
            (os.kill if only_parent else os.killpg)(self.pid, signal.SIGKILL)
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if not only_parent:
            self.orphans(_MAY_DIE)

    def orphans(self, seconds):
        """What of its session still runs after `seconds` at most: process ids."""
        until = time.monotonic() + seconds
        while (left := _session(self.pid)) and time.monotonic() < until:
            time.sleep(0.02)
        return left

    def end_session(self):
        """Ends what has outlived its parent."""
        for pid in _session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _popen(self):
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(open(f"{self.log}{end}", "wb")) for end in (".out", ".err")
            ]
            stdin = stack.enter_context(open(self._stdin or os.devnull, "rb"))
            environment = dict(os.environ)
            if self._temporary:
                environment["TMPDIR"] = str(self._temporary)
            command = [sys.executable, "-m", self._module, *self.argv]
            if self.contained:
                command = ["unshare", "--pid", "--fork", "--mount-proc", *command]
            return subprocess.Popen(
                command, stdin=stdin, stdout=files[0], stderr=files[1], env=environment,
                start_new_session=True,
            ).pid  # fmt: skip

    def _child(self):
        os.setsid()
        if self.contained:
            _contain()
        for number, path, flags in (
            (0, self._stdin or os.devnull, os.O_RDONLY),
            (1, f"{self.log}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, f"{self.log}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            descriptor = os.open(path, flags, 0o644)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        if self._temporary:
            import tempfile

            tempfile.tempdir = None
            os.environ["TMPDIR"] = str(self._temporary)
        if self._addresses:
            resource.setrlimit(resource.RLIMIT_AS, (self._addresses, self._addresses))
        sys.argv = [self._module, *self.argv]
        sys.modules["__main__"] = types.ModuleType("__main__")
        if "--workers" in self.argv:
            spawning.fork_what_is_spawned()
        if self._window:
            from keras_transformer.translation.files import translate_file

            translate_file.__kwdefaults__["window"] = self._window
        write = conversions.note(f"{self.log}.conversions") if self._learn else None
        code = sys.modules[self._module].main(self.argv)
        if write:
            write()
        return code


def can_contain():
    """Whether this process may make namespaces of process ids."""
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False
    )
    return done.returncode == 0


def _contain():
    """Goes on as process 1 of a new namespace; what was called ends as that does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_PROCESS_IDS | _NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    if pid := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)
    libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None)
    libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None)


def _as_a_process(run):
    """Runs a function as the interpreter runs a script, and ends the process."""
    code = 1
    try:
        code = run()
    except SystemExit as error:
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(code or 0)


def _session(session):
    """The processes of a session that are no zombies."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = pathlib.Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def _text(log, end):
    return pathlib.Path(f"{log}{end}").read_text(encoding="utf-8", errors="backslashreplace")
