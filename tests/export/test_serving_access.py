"""Who may call: TLS of the server itself, and the kit's nginx before it."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("tensorflow_serving")  # the extra `serving`

from numbered_models import write_versions
from serving_process import KIT, load, load_client, serving
from serving_protos import read_text

client = load_client()
rollout = load(KIT / "rollout.py")
tls_config = load(KIT / "access" / "tls_config.py")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Versions 1 and 2."""
    folder = tmp_path_factory.mktemp("models") / "translator"
    write_versions(folder, (1, 2))
    return folder


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
            for _ in range(2000):
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
    for path in (
        "/monitoring/prometheus/metrics",
        "/v1/models/translator/../x",
        "/v1/models/translator%0a",
        "/",
    ):
        with pytest.raises(urllib.error.HTTPError, match="404|400"):
            urllib.request.urlopen(rest + path, context=own.context())
