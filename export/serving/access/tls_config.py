"""Writes the `--ssl_config_file` of tensorflow_model_server, which holds the PEM texts themselves.

    python tls_config.py server.key server.crt --client-ca clients.crt > tls.config

With `--client-ca` only callers whose certificate it has signed are served. The output holds the
key: let the server's user alone read it (`umask 077`).
"""

import argparse
import pathlib
import sys


def ssl_config(key, certificate, client_ca=None):
    """A `tensorflow.serving.SSLConfig` as text, of PEM texts."""
    fields = {"server_key": key, "server_cert": certificate}
    if client_ca is not None:
        fields["custom_ca"] = client_ca
    lines = [f"{name}: {_quoted(text)}\n" for name, text in fields.items()]
    return "".join(lines) + f"client_verify: {str(client_ca is not None).lower()}\n"


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def read_pem(path, what):
    text = pathlib.Path(path).read_text("ascii").replace("\r\n", "\n")
    if f"{what}-----" not in text or "-----BEGIN " not in text:
        raise ValueError(f"a PEM file must hold a {what}. Received: {path}")
    return text


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("key")
    parser.add_argument("certificate", help="the server's, and those that lead to its authority")
    parser.add_argument("--client-ca", metavar="FILE", help="who signs the callers' certificates")
    arguments = parser.parse_args(argv)
    try:
        client_ca = arguments.client_ca and read_pem(arguments.client_ca, "CERTIFICATE")
        key = read_pem(arguments.key, "PRIVATE KEY")
        certificate = read_pem(arguments.certificate, "CERTIFICATE")
        sys.stdout.write(ssl_config(key, certificate, client_ca))
    except (OSError, ValueError) as error:
        print(f"tls_config: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
