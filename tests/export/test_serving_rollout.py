"""Labels, a canary, its promotion and the way back, by the kit's rollout.py; and TLS."""

import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow_serving")  # the extra `serving`

import tensorflow as tf
from serving_process import BATCHING, KIT, load, load_client, serving
from serving_protos import read_text

client = load_client()
rollout = load(KIT / "rollout.py")
tls_config = load(KIT / "access" / "tls_config.py")


# --- Versions by label -----------------------------------------------------------------------


class Numbered(tf.Module):
    """A model as a server sees one: it answers with its version and the text."""

    def __init__(self, number):
        self._number = number

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "text"),
            tf.TensorSpec([None], tf.int32, "n_best"),
        ],
        autograph=False,
    )
    def translate(self, text, n_best):
        texts = tf.strings.join([f"{self._number} ", text])[:, None]
        return {
            "translations": texts, "scores": tf.zeros_like(texts, tf.float32),
            "truncated": tf.zeros_like(texts, tf.bool), "counts": tf.ones_like(n_best),
            "status": tf.fill(tf.shape(text), "ok"),
        }  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Versions 1 and 2, and 4, which does not load."""
    folder = tmp_path_factory.mktemp("models") / "translator"
    for number in (1, 2):
        model = Numbered(number)
        signatures = {"translate": model.translate}
        tf.saved_model.save(model, str(folder / str(number)), signatures)
    (folder / "4").mkdir()
    return folder


@pytest.fixture
def fleet(models, tmp_path):
    """A file, a server that was started with it, and what runs rollout.py on both."""
    file = tmp_path / "models.config"
    shutil.copy(KIT / "models.config", file)
    with serving(models.parent, models=file, batching=BATCHING) as server:

        def step(*arguments, seconds=60):
            options = ["--address", server.grpc, "--seconds", str(seconds)]
            return rollout.main([str(file), *arguments, *options])

        yield SimpleNamespace(file=file, server=server, step=step)


def version_of(server, label):
    """The number of the version that answers to a label."""
    with client.GrpcClient(server.grpc, server.name, version_label=label) as caller:
        return int(caller.translate(["a"])[0].split()[0])


def state_of(file):
    return rollout.State(rollout.read(file)[1], "translator")


def test_a_canary_is_promoted_and_taken_back_while_calls_run(fleet, capsys):
    answers, faults, stop, server = set(), [], threading.Event(), fleet.server

    def call(make, address, label):
        with make(address, server.name, version_label=label) as caller:
            while not stop.is_set():
                try:
                    answers.update(caller.translate(["a"]))
                except client.ServingError as error:
                    faults.append(str(error))
                stop.wait(0.01)

    callers = [(client.GrpcClient, server.grpc), (client.RestClient, server.rest)]
    labels = ("stable", "canary")
    threads = [
        threading.Thread(target=call, args=(*caller, label))
        for caller, label in zip(callers, labels, strict=True)
    ]
    for thread in threads:
        thread.start()
    seen = []
    for step in (["canary", "2"], ["promote"], ["rollback"], ["canary", "2"], ["rollback"]):
        assert fleet.step(*step) == 0, capsys.readouterr().err
        seen.append(tuple(version_of(server, label) for label in labels))
    stop.set()
    for thread in threads:
        thread.join()
    assert seen == [(1, 2), (2, 2), (1, 1), (1, 2), (1, 1)]
    assert faults == [] and answers == {"1 a", "2 a"}
    # A server that starts again has what this one has, and the file still explains itself.
    assert str(state_of(fleet.file)) == "versions [1], stable 1, canary 1"
    assert fleet.file.read_text("utf-8").startswith("# --model_config_file of tensorflow")
    assert fleet.step("canary", "2") == fleet.step("promote") == fleet.step("finish") == 0
    assert str(state_of(fleet.file)) == "versions [2], stable 2, canary 2"
    capsys.readouterr()
    assert fleet.step("status") == 0
    assert f"{server.grpc}: version 2: AVAILABLE" in capsys.readouterr().out


def test_steps_that_cannot_be_taken_change_nothing(fleet, capsys):
    before = fleet.file.read_text("utf-8")
    for step, message in (
        (["canary", "3"], "version 3 is not loaded: UNKNOWN after"),
        (["canary", "4"], "version 4 is not loaded"),
        (["canary", "1"], "must not be the stable version. Received: 1"),
        (["canary", "0"], "must be at least 1. Received: 0"),
        (["promote"], "there must be a canary to promote. Received: versions"),
        (["rollback"], "there must be a version to go back to. Received: versions"),
        (["status", "--model", "other"], "must be one of ['translator']. Received: other"),
    ):
        assert fleet.step(*step, seconds=3) == 1
        assert message in capsys.readouterr().err
        assert fleet.file.read_text("utf-8") == before
    assert version_of(fleet.server, "canary") == 1
    caller = client.GrpcClient(fleet.server.grpc, "translator", version_label="beta")
    with caller, pytest.raises(client.ServingError, match="Unrecognized servable version label"):
        caller.translate(["a"])


def test_what_a_rollout_is_not_given_rightly(tmp_path, capsys):
    file = tmp_path / "models.config"
    file.write_text("model_configs {}")
    assert rollout.main([str(file), "status"]) == 1
    assert "must be a ModelServerConfig. Received:" in capsys.readouterr().err
    latest = 'model_config_list { config { name: "translator" base_path: "/m" } }'
    file.write_text(latest)
    assert rollout.main([str(file), "status"]) == 1
    assert "must be of `specific` versions. Received: stable 0" in capsys.readouterr().err
    shutil.copy(KIT / "models.config", file)
    assert rollout.main([str(file), "canary", "2", "--address", "127.0.0.1:9"]) == 1
    assert "127.0.0.1:9: UNAVAILABLE" in capsys.readouterr().err
    for wrong in (["canary"], ["promote", "2"], ["status", "--key", "k"]):
        with pytest.raises(SystemExit, match="2"):
            rollout.main([str(file), *wrong])


def test_a_label_goes_without_a_number():
    with pytest.raises(ValueError, match="`version` excludes `version_label`. Received: 1, 'a'"):
        client.RestClient("http://localhost", "m", version=1, version_label="a")


# --- TLS -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Of two authorities: a server's and a client's of the first, a stranger's of the second."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name, signer in (("ca", None), ("other", None), ("server", "ca"), ("client", "ca"),
                         ("stranger", "other")):  # fmt: skip
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        out = ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}"]
        end = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        if signer:
            end += ["-CA", f"{signer}.crt", "-CAkey", f"{signer}.key"]
        openssl("req", "-x509", "-days", "2", *key, *out, *end)
    return folder


def tls_of(folder, name=None):
    ca = str(folder / "ca.crt")
    return client.Tls(ca) if name is None else client.Tls(
        ca, str(folder / f"{name}.crt"), str(folder / f"{name}.key")
    )  # fmt: skip


ONCE = client.Retries(deadline=20, tries=1)


def test_the_server_answers_who_has_a_certificate(certificates, models, tmp_path, capsys):
    files = [str(certificates / name) for name in ("server.key", "server.crt")]
    assert tls_config.main([*files, "--client-ca", str(certificates / "ca.crt")]) == 0
    config = tmp_path / "tls.config"
    config.write_text(capsys.readouterr().out)
    found = read_text(config, "SSLConfig")
    assert found.server_key == (certificates / "server.key").read_text()
    assert found.client_verify and found.custom_ca.startswith("-----BEGIN")
    with serving(models, tls=config) as server:
        address = f"localhost:{server.grpc.rpartition(':')[2]}"

        def ask(**options):
            with client.GrpcClient(address, server.name, retries=ONCE, **options) as caller:
                return caller.translate(["a"])

        assert ask(tls=tls_of(certificates, "client")) == ["2 a"]
        for options in ({}, {"tls": tls_of(certificates)},
                        {"tls": tls_of(certificates, "stranger")}):  # fmt: skip
            with pytest.raises(client.ServingError, match="UNAVAILABLE"):
                ask(**options)


def test_wrong_files_of_tls(certificates, tmp_path, capsys):
    key, certificate = (str(certificates / name) for name in ("server.key", "server.crt"))
    assert tls_config.main([certificate, certificate]) == 1
    assert "must hold a PRIVATE KEY. Received: " in capsys.readouterr().err
    assert tls_config.main([key, key]) == 1
    assert "must hold a CERTIFICATE. Received: " in capsys.readouterr().err
    assert tls_config.main([key, certificate]) == 0
    (tmp_path / "one").write_text(capsys.readouterr().out)
    assert not read_text(tmp_path / "one", "SSLConfig").client_verify
    with pytest.raises(ValueError, match="`certificate` and `key` must go together. Received: c"):
        client.Tls(certificate="c")
    assert client.main(["a", "--ca", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


# --- The proxy -------------------------------------------------------------------------------


@pytest.fixture
def proxy(certificates, models, tmp_path):
    """nginx by the kit's template before a server: its port."""
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("needs nginx")
    with serving(models) as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        text = (KIT / "access" / "translator.conf.template").read_text("utf-8")
        for before, after in (
            ("listen 8443", f"listen 127.0.0.1:{port}"),
            ("${NGINX_LOCAL_RESOLVERS}", "127.0.0.1:9"),
            ("${TRANSLATOR}:8500", server.grpc),
            ("${TRANSLATOR}:8501", server.rest.removeprefix("http://")),
            *((f"/etc/nginx/tls/tls.{end}", str(certificates / f"server.{end}"))
              for end in ("crt", "key")),
            ("/etc/nginx/tls/ca.crt", str(certificates / "ca.crt")),
        ):  # fmt: skip
            assert before in text
            text = text.replace(before, after)
        paths = "".join(
            f"{kind}_temp_path {tmp_path}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log;\n"
            f"events {{}}\nhttp {{ access_log off; {paths}\n{text}\n}}"
        )
        process = subprocess.Popen([nginx, "-e", f"{tmp_path}/log", "-c", f"{tmp_path}/nginx.conf"])
        try:
            for _ in range(100):
                if (tmp_path / "pid").exists() or process.poll() is not None:
                    break
                time.sleep(0.05)
            assert process.poll() is None, (tmp_path / "log").read_text()
            yield port
        finally:
            process.terminate()
            process.wait()


def test_the_proxy_passes_predictions_of_who_has_a_certificate(proxy, certificates):
    own, rest = tls_of(certificates, "client"), f"https://localhost:{proxy}"
    over_grpc = client.GrpcClient(f"localhost:{proxy}", "translator", tls=own)
    over_rest = client.RestClient(rest, "translator", tls=own)
    pinned = client.RestClient(rest, "translator", version=2, tls=own)
    with over_grpc, over_rest, pinned:
        assert [each.translate(["a"]) for each in (over_grpc, over_rest, pinned)] == [["2 a"]] * 3
    # Nobody else, and of the others nothing else.
    nobody = client.RestClient(rest, "translator", tls=tls_of(certificates), retries=ONCE)
    with pytest.raises(client.ServingError, match="400|UNAVAILABLE"):
        nobody.translate(["a"])
    manager = rollout.Server(f"localhost:{proxy}", own.credentials())
    with pytest.raises(rollout.RolloutError, match="UNIMPLEMENTED"):
        manager.states("translator")
    manager.close()
    for path in ("/monitoring/prometheus/metrics", "/v1/models/translator/../x", "/"):
        with pytest.raises(urllib.error.HTTPError, match="404|400"):
            urllib.request.urlopen(rest + path, context=own.context())
