"""The kit's files for production: each is read as by what it is for, and agrees with the others."""

import re
import shutil
import subprocess

import pytest
import yaml

pytest.importorskip("tensorflow_serving")  # the extra `serving`

import compose_spec
import kubernetes_validate
from serving_batching import read_parameters
from serving_process import BATCHING, KIT
from serving_protos import read_text
from tensorflow_serving.config import model_server_config_pb2

KUBERNETES = "1.37"  # the newest whose schemas kubernetes-validate brings
PATCHES = ("kubernetes/labels.yaml", "gpu/kubernetes.yaml")
COMPOSE = ("compose.yaml", "compose.production.yaml", "gpu/compose.yaml")


def documents(name):
    return [*yaml.safe_load_all((KIT / name).read_text("utf-8"))]


def manifests():
    """Every Kubernetes resource of the kit, and its file."""
    found = []
    for path in sorted([KIT / "kubernetes.yaml", *(KIT / "kubernetes").glob("*.yaml")]):
        name = path.relative_to(KIT).as_posix()
        found += [(name, each) for each in documents(name) if "kind" in each]
    return found


def one(kind, name="kubernetes.yaml"):
    (found,) = [each for file, each in manifests() if (file, each["kind"]) == (name, kind)]
    return found


def merged(value, patch):
    """A strategic merge of what these patches use: of lists, items of the same name are merged."""
    if isinstance(value, dict) and isinstance(patch, dict):
        return value | {key: merged(value.get(key), each) for key, each in patch.items()}
    if isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in patch):
        own = {each["name"]: each for each in value}
        names = [*own, *(each["name"] for each in patch if each["name"] not in own)]
        new = {each["name"]: each for each in patch}
        return [merged(own.get(name), new.get(name, {})) if name in own else new[name]
                for name in names]  # fmt: skip
    return patch


# --- TF Serving's own files ------------------------------------------------------------------


def test_the_servers_files_are_what_it_reads():
    monitoring = read_text(KIT / "monitoring" / "monitoring.config", "MonitoringConfig")
    assert monitoring.prometheus_config.enable
    config = read_text(KIT / "models.config", model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.model_platform) == ("translator", "tensorflow")
    assert dict(model.version_labels) == {"stable": 1, "canary": 1}
    assert [*model.model_version_policy.specific.versions] == [1]
    (mount,) = [
        each["mountPath"]
        for each in serving(one("Deployment"))["volumeMounts"]
        if each["name"] == "models"
    ]
    assert model.base_path == mount
    gpu, cpu = read_parameters(KIT / "gpu" / "batching.config"), read_parameters(BATCHING)
    assert gpu.max_batch_size > cpu.max_batch_size  # and so above the warm-up requests
    assert not gpu.pad_variable_length_inputs and gpu.allowed_batch_sizes == ()


def serving(deployment):
    (found,) = [
        each
        for each in deployment["spec"]["template"]["spec"]["containers"]
        if each["name"] == "serving"
    ]
    return found


# --- Kubernetes ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "manifest"), manifests())
def test_a_manifest_fits_the_schema_of_kubernetes(name, manifest):
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_of_the_deployment_fits_the_schema(name):
    (patch,) = documents(name)
    before, after = one("Deployment"), merged(one("Deployment"), patch)
    kubernetes_validate.validate(after, KUBERNETES, strict=True)
    assert after != before
    # The rest of the container stands: who it runs as, probes, mounts.
    for key in ("securityContext", "readinessProbe", "volumeMounts"):
        assert serving(after)[key] == serving(before)[key]


def test_what_kubernetes_is_told_agrees():
    deployment, service = one("Deployment"), one("Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == {"app": "translator"}
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        spec = one(kind)["spec"]
        assert (spec.get("selector") or spec["podSelector"]) == {"matchLabels": labels}
    # It may be emptied with one replica too, such as the GPU's.
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    ports = {port["name"]: port["containerPort"] for port in serving(deployment)["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        action = serving(deployment)[probe]
        assert (action.get("httpGet") or action["tcpSocket"])["port"] in ports
    for name in ("kubernetes/autoscaling.yaml", "kubernetes/autoscaling-queue.yaml"):
        target = one("HorizontalPodAutoscaler", name)["spec"]
        assert target["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
        assert target["minReplicas"] >= deployment["spec"]["replicas"] > 1
    proxy = one("Deployment", "kubernetes/proxy.yaml")["spec"]["template"]["metadata"]["labels"]
    assert {"translator-client": "true"}.items() <= proxy.items()


def test_only_clients_and_metrics_come_in_and_metrics_not_to_grpc():
    clients, metrics = one("NetworkPolicy")["spec"]["ingress"]
    assert one("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert clients["from"] == [{"podSelector": {"matchLabels": {"translator-client": "true"}}}]
    (peer,) = metrics["from"]
    assert peer["podSelector"] == {"matchLabels": {"translator-metrics": "true"}}
    assert metrics["ports"] == [{"port": "rest"}]


def test_every_way_to_serve_has_the_same_flags():
    base = {"--enable_batching=true", "--batching_parameters_file=/config/batching.config"}
    compose = {name: documents(name)[0]["services"]["translator"] for name in COMPOSE}
    labels = serving(documents("kubernetes/labels.yaml")[0])
    plain = serving(one("Deployment"))["args"], compose["compose.yaml"]["command"]
    labelled = labels["args"], compose["compose.production.yaml"]["command"]
    for flags in (*plain, *labelled):
        assert base <= {*flags}
    for flags in labelled:
        assert "--model_config_file=/config/models.config" in flags
        # Without it no server starts with labels in its file.
        assert "--allow_version_labels_for_unavailable_models=true" in flags
    for flags in (plain[0], *labelled):
        assert "--monitoring_config_file=/config/monitoring.config" in flags
    assert labels["command"] == compose["compose.production.yaml"]["entrypoint"]


# --- Compose ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPOSE)
def test_a_compose_file_fits_the_specification(name):
    text = (KIT / name).read_text("utf-8")
    found = compose_spec.PyCompose.from_yaml(re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", text))
    found.to_spec()
    assert "translator" in found.services


def test_files_that_are_mounted_are_there():
    for name in COMPOSE:
        for service in documents(name)[0]["services"].values():
            for volume in service.get("volumes", ()):
                source = volume.split(":")[0]
                if source.startswith("./") and source != "./access/tls":  # the user's own
                    assert (KIT / source).exists(), (name, source)


# --- Prometheus ------------------------------------------------------------------------------


def test_what_alerts_read_is_what_is_kept():
    (alerts,) = documents("monitoring/alerts.yaml")[0]["groups"]
    text = " ".join(rule["expr"] for rule in alerts["rules"])
    read = {*re.findall(r":tensorflow:[\w:]+", text)}
    records = {rule["record"] for rule in alerts["rules"] if "record" in rule}
    assert len(read) == 4
    path = read_text(KIT / "monitoring" / "monitoring.config", "MonitoringConfig")
    for name in ("prometheus.yaml", "prometheus-kubernetes.yaml"):
        (job,) = documents(f"monitoring/{name}")[0]["scrape_configs"]
        assert job["metrics_path"] == path.prometheus_config.path
        assert f'job="{job["job_name"]}"' in text
        (keep,) = job["metric_relabel_configs"]
        assert all(re.fullmatch(keep["regex"], metric) for metric in read)
        assert not re.fullmatch(keep["regex"], ":tensorflow:core:graph_runs")
    (rule,) = documents("kubernetes/adapter-rules.yaml")[0]
    assert rule["seriesQuery"].partition("{")[0] in records
    metrics = one("HorizontalPodAutoscaler", "kubernetes/autoscaling-queue.yaml")["spec"]["metrics"]
    assert metrics[0]["pods"]["metric"]["name"] == rule["name"]["as"]


def test_prometheus_itself_reads_them_and_each_alert_fires(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package prometheus")
    shutil.copytree(KIT / "monitoring", tmp_path, dirs_exist_ok=True)
    cluster = tmp_path / "prometheus-kubernetes.yaml"  # Debian's knows no Kubernetes
    pods, text = "kubernetes_sd_configs: [{role: pod}]", cluster.read_text("utf-8")
    assert pods in text
    cluster.write_text(text.replace(pods, 'static_configs: [{targets: ["a:1"]}]'))
    for command in (
        ["check", "config", "prometheus.yaml"],
        ["check", "config", cluster.name],
        ["test", "rules", "alerts_test.yaml"],
    ):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = (KIT / "monitoring" / "alerts_test.yaml").read_text("utf-8")
    alerts = documents("monitoring/alerts.yaml")[0]["groups"][0]["rules"]
    for name in (rule["alert"] for rule in alerts if "alert" in rule):
        assert tested.count(name) == 2, name  # on a quiet day, and when it is to fire
