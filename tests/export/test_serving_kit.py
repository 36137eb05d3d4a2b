"""The files of export/serving: what they turn on, permit and promise."""

import json
import re

from keras_transformer.export import source_rows

SIGNATURES = {"serving_default", "translate", "translate_ids", "score", "encode", "embed"}


def test_the_kit_turns_its_batching_on(repo_root):  # what it says: test_serving_batching.py
    kit = repo_root / "export" / "serving"
    for name in ("compose.yaml", "kubernetes.yaml", "README.md"):
        page = (kit / name).read_text("utf-8")
        assert "--enable_batching=true" in page
        assert "--batching_parameters_file=/config/batching.config" in page


def test_the_kit_is_safe_as_it_stands(repo_root):
    kit = repo_root / "export" / "serving"
    compose, kubernetes, page = (
        (kit / name).read_text("utf-8") for name in ("compose.yaml", "kubernetes.yaml", "README.md")
    )
    ports = re.findall(r"\S*8500:8500|\S*8501:8501", compose + page)
    assert len(ports) == 4 and all("127.0.0.1:" in port for port in ports)
    images = re.findall(r"tensorflow/serving\S*", compose + kubernetes + page)
    tags = {re.sub(r"\$\{TF_SERVING_TAG:-(.+)\}", r"\1", image).split(":")[1] for image in images}
    assert len(images) == 3 and tags == {"2.20.0"}
    for line in ('user: "1000:1000"', "read_only: true", "cap_drop: [ALL]", "cpus: 2"):
        assert f"\n    {line}\n" in compose
    assert 'security_opt: ["no-new-privileges:true"]' in compose
    for option in ("--user 1000:1000", "--read-only", "--cap-drop ALL", "no-new-privileges"):
        assert option in page
    for line in (
        *("runAsNonRoot: true", "automountServiceAccountToken: false", "drop: [ALL]"),
        *("readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "RuntimeDefault"),
    ):
        assert line in kubernetes
    for word in ("HandleReloadConfigRequest", "--ssl_config_file", "server_cert"):
        assert word in page


def test_the_memory_that_was_measured_fits_the_limits(repo_root):
    """`benchmarks/serving_memory.py`, at the bounds of the kit."""
    kit = repo_root / "export" / "serving"
    compose, kubernetes, page, batching = (
        (kit / name).read_text("utf-8")
        for name in ("compose.yaml", "kubernetes.yaml", "README.md", "batching.config")
    )
    results = repo_root / "benchmarks" / "results" / "serving_memory" / "base.json"
    found = json.loads(results.read_text("utf-8"))
    (gigabytes,) = {*re.findall(r"mem\w*_limit: (\d+)g", compose)}
    assert re.findall(r"(?:requests|limits): {cpu: \S+ memory: (\d+)Gi}", kubernetes) == [
        *(gigabytes, gigabytes)
    ]
    assert f"--memory {gigabytes}g" in page
    peaks = {(row["signature"], row["beam_size"]): row["peak_mib"] for row in found["peaks"]}
    assert {signature for signature, _ in peaks} == {"score", "encode", "translate"}
    assert {beam_size for _, beam_size in peaks} == {1, 4}
    assert max(peaks.values()) < 1024 * int(gigabytes) - 512  # some room
    assert (found["size"], found["vocab_size"]) == ("base", 32_000)
    assert f"--max-source-length {found['source_tokens']}" in page
    for name, key in (("max_batch_size", "rows"), ("num_batch_threads", "at_once")):
        assert re.findall(rf"^{name} {{ value: (\d+) }}$", batching, re.MULTILINE) == [
            str(found[key])
        ]
    for (signature, beam_size), peak in peaks.items():
        assert re.search(rf"`{signature}`.*{beam_size}.*{peak:,} MiB|`{signature}`.*{peak:,}", page)


def test_the_kits_page_names_every_signature_and_status(repo_root):
    page = (repo_root / "export" / "serving" / "README.md").read_text("utf-8")
    statuses = {getattr(source_rows, name) for name in dir(source_rows) if name.isupper()}
    for word in SIGNATURES | {status for status in statuses if isinstance(status, str)}:
        assert f"`{word}`" in page, word
