"""Owns `kubernetes.yaml`: ConfigMap, Deployment (over several nodes LeaderWorkerSet) and Service
that run the bundle's launch.sh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tuner.export.containers import MOUNT, SHARED_MEMORY_GIB, Container
from tuner.export.leader_worker_set import LEADER, leader_worker_set

NAME = "kubernetes.yaml"
CONFIG_FILES = ("server.yaml", "server.env", "launch.sh", "adaptive.json")
"""What a server needs to start; the last where it has a table of depths by load."""


def render_kubernetes(
    container: Container, files: Mapping[str, str], *, study: str, comment: str
) -> str:
    """Three documents; the ConfigMap holds the bundle's files as they are."""
    name = object_name(study)
    config = {key: files[key] for key in CONFIG_FILES if key in files}
    runs = workload(name, container)
    documents = [_config_map(name, config), runs, _service(name, container)]
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    text: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
    return head + text


def object_name(study: str) -> str:
    """A DNS-1123 label made of a study's name."""
    label = re.sub(r"[^a-z0-9]+", "-", study.lower()).strip("-")[:50].rstrip("-")
    return f"tuner-{label or 'server'}"


def workload(name: str, container: Container) -> dict[str, Any]:
    """What runs the pods: a Deployment, or a LeaderWorkerSet over several nodes."""
    pod = {
        "terminationGracePeriodSeconds": 60,
        "containers": [_container(container)],
        "volumes": _volumes(name, container),
    }
    if container.nodes > 1:
        return leader_worker_set(name, container.kind, container.nodes, pod)
    return deployment(name, pod)


def deployment(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    """The Deployment: one replica, replaced rather than doubled because GPUs are scarce."""
    labels = {"app.kubernetes.io/name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": pod,
            },
        },
    }


def check_kubernetes(text: str, files: Mapping[str, str]) -> None:
    """Raise ValueError unless the ConfigMap holds these very files."""
    first = next(iter(yaml.safe_load_all(text)), None)
    data = first.get("data") if isinstance(first, dict) else None
    if data != {key: files[key] for key in CONFIG_FILES if key in files}:
        raise ValueError(f"{NAME}: its ConfigMap must hold the bundle's files")


def _container(container: Container) -> dict[str, Any]:
    probe = {"httpGet": {"path": container.health_path, "port": "http"}, "timeoutSeconds": 10}
    limits = {} if container.gpus == 0 else {"nvidia.com/gpu": str(container.gpus or 1)}
    mounts = [
        {"name": "bundle", "mountPath": MOUNT, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
        *(
            {"name": f"model-{index}", "mountPath": path, "readOnly": True}
            for index, path in enumerate(container.folders)
        ),
    ]
    return {
        "name": "server",
        "image": container.image,
        "command": ["/bin/sh", f"{MOUNT}/launch.sh"],
        "env": [
            {"name": "HOST", "value": "0.0.0.0"},
            {"name": "PORT", "value": str(container.port)},
            {"name": "PROGRAM", "value": container.program},
        ],
        "ports": [{"name": "http", "containerPort": container.port}],
        "resources": {"limits": limits},
        "startupProbe": {
            **probe,
            "periodSeconds": 10,
            "failureThreshold": -(-container.start_s // 10),
        },
        "readinessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 3},
        "livenessProbe": {**probe, "periodSeconds": 30, "failureThreshold": 10},
        "volumeMounts": mounts,
    }


def _volumes(name: str, container: Container) -> list[dict[str, Any]]:
    memory = {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}
    models = [
        {"name": f"model-{index}", "hostPath": {"path": path, "type": "Directory"}}
        for index, path in enumerate(container.folders)
    ]
    return [
        {"name": "bundle", "configMap": {"name": name}},
        {"name": "shm", "emptyDir": memory},
        *models,
    ]


def _config_map(name: str, files: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": dict(files),
    }


def _service(name: str, container: Container) -> dict[str, Any]:
    leader = LEADER if container.nodes > 1 else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "selector": {"app.kubernetes.io/name": name, **leader},
            "ports": [{"name": "http", "port": container.port, "targetPort": "http"}],
        },
    }
