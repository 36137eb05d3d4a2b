"""The command `keras-transformer-serve`, and `serve` of `keras-transformer`.

keras-transformer-serve en:de=FOLDER [de:en=FOLDER ...]
"""

import argparse
import contextlib
import importlib.util
import os
import signal
import socket
import sys

from keras_transformer_runner.failures import told
from keras_transformer_runner.runner import Runner
from keras_transformer_runner.sentences import check_language
from keras_transformer_runner.server.named_folders import named_folders
from keras_transformer_runner.streams import log, open_standard_streams

ABOUT = (
    "Answer over HTTP, as LibreTranslate does, with exported LiteRT folders: translations, "
    "continuations of prompts, classes."
)
KEY_VARIABLE = "KERAS_TRANSFORMER_API_KEY"
_MOST_WORKERS = 256
_MOST_CONNECTIONS = 1024


def main(arguments=None):
    """The command line; returns the exit code."""
    open_standard_streams()
    parser = argparse.ArgumentParser(prog="keras-transformer-serve", description=ABOUT)
    add_arguments(parser)
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    options = parser.parse_args(arguments)
    if problem := usage_problem(options):
        parser.error(problem)
    try:
        serve(options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if options.traceback:
            raise
        print(f"keras-transformer-serve: error: {told(error)}", file=sys.stderr)
        return 1
    return 0


def add_arguments(parser):
    """Adds the arguments of `serve` to an `argparse` parser."""
    parser.add_argument(
        "folders",
        metavar="MODEL",
        nargs="+",
        help="SOURCE:TARGET=FOLDER of a model that translates, such as en:de=app/en-de; "
        "NAME=FOLDER or FOLDER of another. FOLDER is what an export for devices wrote",
    )
    parser.add_argument("--source", metavar="TAG", help="language, of one FOLDER without a name")
    parser.add_argument("--target", metavar="TAG")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=5000, help="%(default)s; 0 for any that is free"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="requests a model answers at a time"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of each worker")
    parser.add_argument(
        "--queue",
        type=int,
        default=16,
        metavar="N",
        help="requests that wait for a worker, a model",
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"what requests must have; better in {KEY_VARIABLE}"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="of pages elsewhere that may ask from a browser; * for all",
    )
    parser.add_argument(
        "--max-characters", type=int, default=10_000, metavar="N", help="a request (%(default)s)"
    )
    parser.add_argument(
        "--max-texts", type=int, default=64, metavar="N", help="a request (%(default)s)"
    )
    parser.add_argument(
        "--max-bytes", type=int, default=1 << 20, metavar="N", help="a request (%(default)s)"
    )
    parser.add_argument(
        "--timeout", type=float, default=60, metavar="S", help="seconds a request (%(default)s)"
    )
    parser.add_argument(
        "--grace",
        type=int,
        default=30,
        metavar="S",
        help="seconds that running requests have to end, once the server is told to (%(default)s)",
    )


def usage_problem(options):
    """What is wrong with parsed arguments, as a sentence, or `None`."""
    least = dict(workers=1, threads=1, queue=0, grace=0)
    least |= dict(max_characters=1, max_texts=1, max_bytes=1)
    for name, least_of_it in least.items():
        if getattr(options, name) < least_of_it:
            option = f"--{name.replace('_', '-')}"
            return f"{option} must be at least {least_of_it}. Received: {getattr(options, name)}"
    if options.workers > _MOST_WORKERS:
        return f"--workers must be at most {_MOST_WORKERS}. Received: {options.workers}"
    if not 0 <= options.port < 1 << 16:
        return f"--port must be in [0, 65535]. Received: {options.port}"
    if not 0 < options.timeout < float("inf"):
        return f"--timeout must be a positive number of seconds. Received: {options.timeout}"
    if _key(options) == "":
        return f"--api-key and {KEY_VARIABLE} must not be empty: without them all may ask"
    return None


def _key(options):
    return os.environ.get(KEY_VARIABLE) if options.api_key is None else options.api_key


def serve(options):
    """Answers until SIGTERM or an interrupt, and then what is being answered.

    Args:
        options: What a parser of `add_arguments` gives.

    Raises:
        ImportError: if the extra `serve` is not installed.
        FileNotFoundError, ValueError: as `Runner`, and if the folders do not go with the names.
        OSError: if the address cannot be listened at.
    """
    named = named_folders(options.folders, options.source, options.target)
    uvicorn, make_app, limits = _web(options)
    for each in named:
        for language in each.pair or ():
            check_language(language)
    with bound(options.host, options.port) as listener:
        pools = {each.name: _pool(each, options) for each in named}
        app = make_app(
            pools,
            {each.pair: each.name for each in named if each.pair},
            limits=limits,
            api_key=_key(options),
            origins=options.allow_origin,
        )
        config = uvicorn.Config(
            app,
            **dict(http="h11", ws="none", loop="asyncio", lifespan="off", interface="asgi3"),
            **dict(log_level="warning", access_log=False, server_header=False),
            **dict(proxy_headers=False, limit_concurrency=_MOST_CONNECTIONS),
            timeout_graceful_shutdown=options.grace,
        )
        listener.listen(_MOST_CONNECTIONS)
        print(f"keras-transformer: {', '.join(pools)} at {_address(listener)}", flush=True)
        with _signals_end_it():
            uvicorn.Server(config).run(sockets=[listener])
        for pool in pools.values():
            pool.close()
    log("keras-transformer: the server has ended")


def _web(options):
    try:
        import icu4py  # noqa: F401 - what is asked for is a whole text
        import uvicorn

        from keras_transformer_runner.server.app import make_app
        from keras_transformer_runner.server.fields import Limits
    except ImportError as error:
        whole = importlib.util.find_spec("keras_transformer_command") is not None
        distribution = "keras-transformer-edge" if whole else "keras-transformer-edge-runner"
        raise ImportError(
            f"serve needs the extra serve: pip install '{distribution}[serve]'. Received: {error}"
        ) from error
    limits = Limits(options.max_characters, options.max_texts, options.max_bytes, options.timeout)
    return uvicorn, make_app, limits


def _pool(named, options):
    """The runners of a folder, which have answered once."""
    from keras_transformer_runner.server.pool import Pool

    # Without a weight cache, whose runtime would keep all other threads waiting while it computes.
    threads = options.threads
    runners = [Runner(named.folder, num_threads=threads) for _ in range(options.workers)]
    signature = runners[0].metadata["signature"]
    if (signature == "translate") != (named.pair is not None):
        raise ValueError(
            "a model that translates, and no other, must be given as SOURCE:TARGET=FOLDER. "
            f"Received: {named.name}={named.folder}, whose model has the signature {signature!r}"
        )
    for runner in runners:
        getattr(runner, signature)(["."])
    return Pool(runners, options.queue)


def bound(host, port):
    """A socket that is bound, so that a port that is taken is known before models are loaded.

    It does not listen: until they are, who connects is refused, and need not wait.
    """
    listener = None
    try:
        # With the protocol by name: asyncio sends small parts of an answer at once, and not 40 ms
        # later, on sockets that say that they are TCP's.
        *kind, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(*kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        return listener
    except OSError as error:
        if listener:
            listener.close()
        raise OSError(
            f"--host and --port must be an address that is free here. Received: {host}, {port}: "
            f"{error.strerror or error}"
        ) from error


def _address(listener):
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _signals_end_it():
    """uvicorn ends cleanly on these signals, and then raises them again."""
    ends = (signal.SIGINT, signal.SIGTERM)
    previous = {each: signal.signal(each, lambda *_: None) for each in ends}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
