"""compose.yaml, kubernetes.yaml and tuner.service: their content and their validators."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tuner.args import ServerArgs
from tuner.errors import ExportRefused
from tuner.export.bundle import build_bundle
from tuner.export.compose import render_compose
from tuner.export.containers import Container, container_for, model_folders
from tuner.export.kubernetes import object_name
from tuner.export.leader_worker_set import node_arguments
from tuner.export.subject import Subject
from tuner.export.systemd import quoted

COMPOSE_WHEEL = next(
    iter(Path(os.environ.get("TUNER_WHEELS", "/nowhere")).glob("docker_compose-*.whl")), None
)
"""The Compose schema as a package: `pip download --no-deps docker-compose==1.29.2`."""


@pytest.fixture
def files(engine: Any, subject: Subject) -> dict[str, str]:
    folder = Path("/srv/a 100% $bundle")
    targets = ("compose", "kubernetes", "systemd")
    found: dict[str, str] = build_bundle(engine, subject, folder=folder, targets=targets)
    return found


def test_compose_runs_the_launch_script(files: dict[str, str]) -> None:
    server = yaml.safe_load(files["compose.yaml"])["services"]["server"]
    assert server["image"] == "lmsysorg/sglang:v0.5.23"
    assert server["entrypoint"] == ["/bin/sh", "/tuner/launch.sh"]
    assert server["env_file"] == ["server.env"]
    assert server["environment"] == {"HOST": "0.0.0.0", "PORT": "30000", "PROGRAM": "python3"}
    assert server["ports"] == ["127.0.0.1:30000:30000"]
    assert server["shm_size"] == "32gb"
    devices = server["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": 8, "capabilities": ["gpu"]}]
    targets = [volume["target"] for volume in server["volumes"]]
    assert targets == ["/tuner", "/models/big"]
    assert "http://127.0.0.1:30000/health" in server["healthcheck"]["test"][1]


def test_kubernetes_runs_the_launch_script(files: dict[str, str]) -> None:
    config, deployment, service = yaml.safe_load_all(files["kubernetes.yaml"])
    assert config["data"]["launch.sh"] == files["launch.sh"]
    pod = deployment["spec"]["template"]["spec"]
    server = pod["containers"][0]
    assert server["command"] == ["/bin/sh", "/tuner/launch.sh"]
    assert server["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert server["startupProbe"]["failureThreshold"] * 10 == 1800
    assert server["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    mounted = {mount["name"] for mount in server["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["ports"][0]["port"] == 30000


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None, reason="kubernetes-validate is absent"
)
def test_kubernetes_accepts_every_document(files: dict[str, str]) -> None:
    import kubernetes_validate

    for document in yaml.safe_load_all(files["kubernetes.yaml"]):
        kubernetes_validate.validate(document, "1.31", strict=True)


@pytest.mark.skipif(COMPOSE_WHEEL is None, reason="no wheel of docker-compose 1.29 is here")
def test_compose_accepts_the_file(files: dict[str, str]) -> None:
    assert COMPOSE_WHEEL is not None
    with zipfile.ZipFile(COMPOSE_WHEEL) as wheel:
        schema = json.loads(wheel.read("compose/config/compose_spec.json"))
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(files["compose.yaml"]))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is absent")
def test_systemd_accepts_the_unit(files: dict[str, str], tmp_path: Path) -> None:
    unit = tmp_path / "tuner.service"
    unit.write_text(files["tuner.service"])
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "tuner.service" not in done.stderr, done.stderr


def test_systemd_specifiers_in_the_folder_are_escaped(files: dict[str, str]) -> None:
    assert 'ExecStart=/bin/sh "/srv/a 100%% $$bundle/launch.sh"' in files["tuner.service"]
    assert quoted('a\\b"c\n') == '"a\\\\b\\"c\\n"'


@pytest.mark.parametrize(
    ("kind", "version", "image"),
    [
        ("vllm", "0.33.0", "vllm/vllm-openai:v0.33.0"),
        ("vllm", "0.33.1.dev7+gabc", "vllm/vllm-openai:latest"),
        ("llamacpp", "b11549", "ghcr.io/ggml-org/llama.cpp:server-b11549"),
        ("sglang", "", "lmsysorg/sglang:latest"),
    ],
)
def test_images_follow_the_measured_version(
    subject: Subject, kind: str, version: str, image: str
) -> None:
    provenance = dataclasses.replace(subject.provenance, engine={"version": version})
    changed = dataclasses.replace(subject, provenance=provenance)
    assert container_for(kind, changed, "/health", ["python"]).image == image


@pytest.mark.parametrize(
    ("program", "inside"),
    [
        ("/opt/sglang/bin/python3.12", "python3"),
        ("/opt/vllm/bin/vllm", "vllm"),
        ("/usr/local/bin/llama-server", "/app/llama-server"),
    ],
)
def test_the_program_is_found_inside_the_image(
    subject: Subject, program: str, inside: str
) -> None:
    assert container_for("vllm", subject, "/health", [program]).program == inside


@pytest.mark.parametrize(
    ("kind", "argv"),
    [("llamacpp", ["python", "-m", "tuner.bundled"]), ("fake", ["python"])],
)
def test_what_no_image_has_is_refused(subject: Subject, kind: str, argv: list[str]) -> None:
    with pytest.raises(ExportRefused, match="must be in the engine's container image"):
        container_for(kind, subject, "/health", argv)


def test_gpus_are_tensor_times_pipeline_parallel(subject: Subject) -> None:
    flags = {"tensor-parallel-size": 4, "pipeline-parallel-size": 2, "data-parallel-size": 3}
    changed = dataclasses.replace(subject, args=ServerArgs(flags))
    assert container_for("vllm", changed, "/health", ["vllm"]).gpus == 8
    assert container_for("llamacpp", changed, "/health", ["llama-server"]).gpus is None


def test_model_folders_are_found_wherever_they_are_named() -> None:
    args = ServerArgs(
        {
            "model": "/models/a/b.gguf",
            "draft": ["/models/a", "name/on-hub"],
            "config": {"model": "/drafts/eagle"},
            "count": 3,
        }
    )
    assert model_folders(args) == ("/drafts/eagle", "/models/a")


@pytest.mark.parametrize(
    ("study", "name"),
    [("kimi-k2.5_eagle3", "tuner-kimi-k2-5-eagle3"), ("...", "tuner-server"), ("A" * 99, "")],
)
def test_object_names_are_dns_labels(study: str, name: str) -> None:
    found = object_name(study)
    assert len(found) <= 63
    assert not name or found == name


@pytest.fixture
def spread(engine: Any, subject: Subject) -> list[Any]:
    """The documents of a server of eight GPUs over two nodes."""
    files = build_bundle(engine, subject, folder=Path("/srv"), targets=["kubernetes"], nodes=2)
    return list(yaml.safe_load_all(files["kubernetes.yaml"]))


def test_several_nodes_are_a_leader_worker_set(spread: list[Any]) -> None:
    _, group, service = spread
    assert (group["apiVersion"], group["kind"]) == (
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
    )  # fmt: skip
    template = group["spec"]["leaderWorkerTemplate"]
    assert (template["size"], group["spec"]["replicas"]) == (2, 1)
    leader, worker = (
        template[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate")
    )
    assert leader["args"] == [
        "--nnodes", "2", "--node-rank", "$(LWS_WORKER_INDEX)",
        "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000",
    ]  # fmt: skip
    assert leader["command"] == worker["command"] == ["/bin/sh", "/tuner/launch.sh"]
    assert leader["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert "readinessProbe" in leader
    assert not [key for key in worker if key.endswith("Probe")]
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


TEMPLATE = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {
            "type": "object",
            "properties": {"labels": {"additionalProperties": {"type": "string"}}},
        },
        "spec": {"type": "object", "required": ["containers"]},
    },
    "additionalProperties": False,
}
LEADER_WORKER_SET = {
    "type": "object",
    "required": ["leaderWorkerTemplate"],
    "properties": {
        "replicas": {"type": "integer"},
        "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
        "leaderWorkerTemplate": {
            "type": "object",
            "required": ["workerTemplate"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "restartPolicy": {"enum": ["Default", "RecreateGroupOnPodRestart", "None"]},
                "leaderTemplate": TEMPLATE,
                "workerTemplate": TEMPLATE,
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
"""What the custom resource leaderworkerset.x-k8s.io/v1 says of `spec`; an unknown key would be
dropped silently by Kubernetes. The pods inside are validated as pods below."""


def test_the_set_has_the_form_of_its_custom_resource(spread: list[Any]) -> None:
    _, group, _ = spread
    assert set(group) == {"apiVersion", "kind", "metadata", "spec"}
    jsonschema.validate(group["spec"], LEADER_WORKER_SET)
    template = group["spec"]["leaderWorkerTemplate"]
    for name in ("leaderTemplate", "workerTemplate"):
        pod = template[name]["spec"]
        assert pod.get("restartPolicy", "Always") == "Always", "a StatefulSet takes no other"
        text = json.dumps(template[name])
        given = {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"}
        assert set(re.findall(r"\$\((LWS_\w+)\)", text)) <= given


def test_a_vllm_worker_serves_nothing() -> None:
    leader, worker = (
        node_arguments("vllm", 2, is_leader=is_leader) for is_leader in (True, False)
    )
    assert worker == [*leader, "--headless"]
    assert leader[4:6] == ["--master-addr", "$(LWS_LEADER_ADDRESS)"]


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None, reason="kubernetes-validate is absent"
)
def test_kubernetes_accepts_the_pods_of_a_group(spread: list[Any]) -> None:
    import kubernetes_validate

    config, group, service = spread
    for name in ("leaderTemplate", "workerTemplate"):
        template = group["spec"]["leaderWorkerTemplate"][name]
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {"name": "x", **template["metadata"]}
        kubernetes_validate.validate(pod, "1.31", strict=True)
    for document in (config, service):
        kubernetes_validate.validate(document, "1.31", strict=True)


@pytest.mark.parametrize(("kind", "nodes"), [("sglang", 3), ("llamacpp", 2)])
def test_gpus_that_cannot_be_spread_are_refused(subject: Subject, kind: str, nodes: int) -> None:
    with pytest.raises(ExportRefused, match="--nodes: must divide the server's"):
        container_for(kind, subject, "/health", ["python"], nodes)


def test_nothing_of_a_path_is_interpolated_by_compose() -> None:
    """Compose replaces `$NAME` in every value; `$$` is a dollar."""
    container = Container("image:1", "/opt/$v/python", 8000, 1, ("/m/$HOME",), "/health")
    server = yaml.safe_load(render_compose(container, "x"))["services"]["server"]
    assert server["environment"]["PROGRAM"] == "/opt/$$v/python"
    assert server["volumes"][1] == {
        "type": "bind", "source": "/m/$$HOME", "target": "/m/$$HOME", "read_only": True,
    }  # fmt: skip
    shown = json.dumps(server).replace("$$", "")
    assert "$" not in shown
