"""The files of export/serving: what they promise, and that they agree with each other."""

import json
import re

from keras_transformer.export.serving import inputs
from keras_transformer.export.serving.graphs import DESCRIPTIONS, SEARCHED_TOKENS


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
    for line in ('user: "1000:1000"', "read_only: true", "cap_drop: [ALL]", "cpus: 2.0"):
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
    assert max(row["peak_mib"] for row in found["peaks"]) < 1024 * int(gigabytes) - 512  # some room
    bounds = {
        name: int(re.search(rf"^{name} {{ value: (\d+) }}$", batching, re.MULTILINE).group(1))
        for name in ("max_batch_size", "num_batch_threads")
    }
    assert (found["size"], found["vocab_size"]) == ("base", 32_000)
    assert found["at_once"] == bounds["num_batch_threads"]
    assert f"--max-source-length {found['source_tokens']}" in page
    searches = set()
    for row in found["peaks"]:
        if row["signature"] in ("score", "encode"):
            assert row["rows"] == bounds["max_batch_size"]
        else:  # a whole piece, of those that run one after the other
            assert row["rows"] * found["source_tokens"] >= SEARCHED_TOKENS
            searches.add((row["signature"], row["beam_size"]))
    assert searches >= {("translate", 1), ("translate", 4)} and len(found["peaks"]) > len(searches)
    for row in found["peaks"]:
        if row["signature"] != "serving_default":
            assert re.search(
                rf"`{row['signature']}`.*{row['rows']} rows .*{row['peak_mib']:,}", page
            )


def test_the_kits_page_names_every_signature_and_status(repo_root):
    page = (repo_root / "export" / "serving" / "README.md").read_text("utf-8")
    statuses = {getattr(inputs, name) for name in dir(inputs) if name.isupper()}
    for word in DESCRIPTIONS.keys() | {status for status in statuses if isinstance(status, str)}:
        assert f"`{word}`" in page, word
