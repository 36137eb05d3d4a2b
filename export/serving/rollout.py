"""Canary, promotion and rollback of a version behind TF Serving, without a call that fails.

    python rollout.py models.config status
    python rollout.py models.config canary 2     # loads version 2 beside the stable one
    python rollout.py models.config promote      # `stable` is what `canary` is
    python rollout.py models.config rollback     # both are the version before; the other one goes
    python rollout.py models.config finish       # lets go of all but the stable version

Needs `pip install tensorflow-serving-api`, and a way to the gRPC port of every server: each is an
`--address`. The file is what the servers were started with (`--model_config_file`), all models in
it. A step is told to each server and written into the file last, so that a server that starts again
has what the others have; a step that failed half-way is given again. A label moves to a version
only when that is loaded everywhere.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

STABLE, CANARY = "stable", "canary"


class RolloutError(RuntimeError):
    """A step that cannot be taken; the labels are as they were, where it says nothing else."""


class State:
    """The versions and labels of one model in a `ModelServerConfig`, which it changes."""

    def __init__(self, config, name):
        found = [each for each in config.model_config_list.config if each.name == name]
        if not found:
            names = [each.name for each in config.model_config_list.config]
            raise RolloutError(f"--model must be one of {names}. Received: {name}")
        (self._model,) = found
        self.stable = self._model.version_labels.get(STABLE)
        self.canary = self._model.version_labels.get(CANARY, self.stable)
        self.versions = sorted(self._model.model_version_policy.specific.versions)
        if self.stable not in self.versions or self.canary not in self.versions:
            raise RolloutError(
                f"the labels of {name} must be of `specific` versions. Received: {STABLE} "
                f"{self.stable}, {CANARY} {self.canary}, versions {self.versions}"
            )

    def load(self, version):
        self._write([*self.versions, version], self.stable, self.canary)

    def label(self, stable, canary):
        self._write(self.versions, stable, canary)

    def keep(self, versions):
        self._write(versions, self.stable, self.canary)

    def previous(self):
        """What to go back to: the stable version, or, where that is the canary, the one before."""
        if self.canary != self.stable:
            return self.stable
        older = [version for version in self.versions if version != self.stable]
        if not older:
            raise RolloutError(f"there must be a version to go back to. Received: {self}")
        return older[-1]

    def _write(self, versions, stable, canary):
        self.versions, self.stable, self.canary = sorted(set(versions)), stable, canary
        self._model.model_version_policy.specific.versions[:] = self.versions
        self._model.version_labels[STABLE] = stable
        self._model.version_labels[CANARY] = canary

    def __str__(self):
        return f"versions {self.versions}, {STABLE} {self.stable}, {CANARY} {self.canary}"


class Server:
    """One server's `ModelService`."""

    def __init__(self, address, credentials=None):
        import grpc
        from tensorflow_serving.apis import model_service_pb2_grpc

        self.address, self._error = address, grpc.RpcError
        if credentials is None:
            self._channel = grpc.insecure_channel(address)
        else:
            self._channel = grpc.secure_channel(address, credentials)
        self._stub = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def apply(self, config, seconds):
        from tensorflow_serving.apis import model_management_pb2

        request = model_management_pb2.ReloadConfigRequest(config=config)
        found = self._call(self._stub.HandleReloadConfigRequest, request, seconds)
        if found.status.error_code:
            raise RolloutError(f"{self.address}: {found.status.error_message}")

    def states(self, name, seconds=30.0):
        """(State's name, what was wrong) of each version, by number."""
        from tensorflow_serving.apis import get_model_status_pb2

        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = name
        found = self._call(self._stub.GetModelStatus, request, seconds).model_version_status
        state_of = get_model_status_pb2.ModelVersionStatus.State.Name
        return {each.version: (state_of(each.state), each.status.error_message) for each in found}

    def _call(self, method, request, seconds):
        try:
            return method(request, timeout=seconds)
        except self._error as error:
            message = f"{self.address}: {error.code().name}: {error.details()}"
            raise RolloutError(message) from error

    def close(self):
        self._channel.close()


def wait_until_available(servers, name, version, seconds):
    """Returns when every server has loaded and warmed up the version."""
    end = time.monotonic() + seconds
    for server in servers:
        while True:
            state, fault = server.states(name).get(version, ("UNKNOWN", ""))
            if state == "AVAILABLE":
                break
            if state == "END" or time.monotonic() > end:
                why = fault or f"{state} after {seconds:g} s"
                raise RolloutError(f"{server.address}: version {version} is not loaded: {why}")
            time.sleep(min(1.0, seconds / 10))


def take_back(servers, config, seconds):
    """Tells every server that can be reached what it had, so that none tries to load for ever."""
    for server in servers:
        try:
            server.apply(config, seconds)
        except RolloutError as error:
            print(f"rollout: not taken back: {error}", file=sys.stderr)


def take_step(step, version, config, state, servers, name, seconds):
    """Changes `config` by `state` and tells the servers."""

    def tell():
        for server in servers:
            server.apply(config, seconds)

    if step == "canary":
        if version < 1:
            raise RolloutError(f"a version must be at least 1. Received: {version}")
        if version == state.stable:
            raise RolloutError(f"the canary must not be the stable version. Received: {version}")
        before = state.versions
        state.load(version)
        try:
            tell()
            wait_until_available(servers, name, version, seconds)
        except BaseException:  # also an interrupt of the long wait
            state.keep(before)
            take_back(servers, config, seconds)
            raise
        state.label(state.stable, version)
        state.keep({state.stable, version})
    elif step == "promote":
        if state.canary == state.stable:
            raise RolloutError(f"there must be a canary to promote. Received: {state}")
        wait_until_available(servers, name, state.canary, seconds)
        state.label(state.canary, state.canary)
    elif step == "rollback":
        back = state.previous()
        wait_until_available(servers, name, back, seconds)
        state.label(back, back)
        state.keep({back})
    else:
        state.label(state.stable, state.stable)
        state.keep({state.stable})
    tell()


def read(path):
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    text = pathlib.Path(path).read_text("utf-8")
    try:
        return text, text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    except text_format.ParseError as error:
        raise RolloutError(f"{path} must be a ModelServerConfig. Received: {error}") from error


def write(path, before, config):
    """Replaces the file whole; the comments at its top stay."""
    from google.protobuf import text_format

    lines = before.splitlines(keepends=True)
    count = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    path = pathlib.Path(path).resolve()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(lines[:count]) + text_format.MessageToString(config))
        os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def show(state, servers, name):
    print(state)
    for server in servers:
        for version, (found, fault) in sorted(server.states(name).items()):
            print(f"{server.address}: version {version}: {found}{f': {fault}' * bool(fault)}")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", help="the servers' --model_config_file")
    parser.add_argument(
        "step",
        choices=("status", "canary", "promote", "rollback", "finish"),
        help="see PRODUCTION.md, A new version",
    )
    parser.add_argument("version", type=int, nargs="?", help="of canary: its number")
    parser.add_argument("--model", default="translator", help="its name in the file (%(default)s)")
    parser.add_argument("--address", action="append", help="host:port; one for each server")
    parser.add_argument("--seconds", type=float, default=300.0, help="for loading and warm-up")
    for name, what in (("ca", "who vouches for the servers"), ("certificate", "of this caller"),
                       ("key", "of the certificate")):  # fmt: skip
        parser.add_argument(f"--{name}", metavar="FILE", help=f"TLS: PEM file, {what}")
    arguments = parser.parse_args(argv)
    if (arguments.step == "canary") != (arguments.version is not None):
        parser.error("canary goes with a version, and no other step does")
    if bool(arguments.certificate) != bool(arguments.key):
        parser.error("--certificate and --key go together")
    return arguments


def credentials_of(arguments):
    """gRPC's, or `None` without any file."""
    files = (arguments.ca, arguments.key, arguments.certificate)
    if not any(files):
        return None
    import grpc

    return grpc.ssl_channel_credentials(*(f and pathlib.Path(f).read_bytes() for f in files))


def main(argv=None):
    arguments = parse_arguments(argv)
    try:
        before, config = read(arguments.file)
        state, credentials = State(config, arguments.model), credentials_of(arguments)
        servers = [Server(each, credentials) for each in arguments.address or ["localhost:8500"]]
        if arguments.step != "status":
            take_step(arguments.step, arguments.version, config, state, servers, arguments.model,
                      arguments.seconds)  # fmt: skip
            write(arguments.file, before, config)
        show(state, servers, arguments.model)
    except (RolloutError, ImportError, OSError) as error:
        hint = " (it needs: pip install tensorflow-serving-api)" * isinstance(error, ImportError)
        print(f"rollout: {error}{hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
