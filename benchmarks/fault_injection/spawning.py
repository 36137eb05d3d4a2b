"""What a child spawns (`translate --workers`) becomes a fork of the child as it was at its start.

A spawned Python would import TensorFlow again, for seconds. Before the child runs its first op it
leaves a process behind, which makes a worker of each order: the descriptors of `spawn` and its
command, under their numbers, in a process that has imported all and run nothing. The worker is a
child of the command, as a spawned one is, by Linux' adoption of orphans.
"""

import ctypes
import json
import os
import socket
import sys
import traceback
from multiprocessing import util

_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_MARK = "--multiprocessing-fork"


def fork_what_is_spawned():
    """Replaces what `multiprocessing` starts a worker by, in this process."""
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _answer(theirs)
    theirs.close()
    spawn = util.spawnv_passfds

    def fork(path, arguments, descriptors):
        arguments = [os.fsdecode(argument) for argument in arguments]
        if _MARK not in arguments:
            return spawn(path, arguments, descriptors)  # the tracker of resources, which is small
        numbers = sorted({0, 1, 2, *descriptors})
        order = {"code": arguments[arguments.index("-c") + 1], "numbers": numbers}
        socket.send_fds(ours, [json.dumps(order).encode()], numbers)
        return json.loads(ours.recv(64))

    util.spawnv_passfds = fork


def _answer(orders):
    """Makes a worker of each order until the command is no more; never returns."""
    while True:
        message, received, *_ = socket.recv_fds(orders, 65536, 64)
        if not message:
            os._exit(0)
        order = json.loads(message)
        reader, writer = os.pipe()
        if (between := os.fork()) == 0:
            worker = os.fork()
            if worker:
                os.write(writer, str(worker).encode())
                os._exit(0)  # so that the command adopts the worker
            for descriptor in (reader, writer, orders.fileno()):
                os.close(descriptor)
            _be_worker(order, received)
        os.waitpid(between, 0)
        orders.send(os.read(reader, 64))
        for descriptor in (reader, writer, *received):
            os.close(descriptor)


def _be_worker(order, received):
    code = 1
    try:
        above = max(order["numbers"]) + 1
        moved = []
        for descriptor in received:
            copy = _copy_above(descriptor, above)
            os.close(descriptor)
            moved.append(copy)
        for copy, number in zip(moved, order["numbers"], strict=True):
            os.dup2(copy, number, inheritable=True)
            os.close(copy)
        sys.argv = ["-c", _MARK]
        exec(order["code"], {"__name__": "__main__"})
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _copy_above(descriptor, least):
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, least)
