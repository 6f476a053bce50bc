"""Owns a server over several pods: the bundle's launch.sh under a LeaderWorkerSet.

LeaderWorkerSet (sigs.k8s.io/lws) gives every pod of a group its index and the leader's address;
they are appended to the script's arguments, which come last and therefore win.
"""

from __future__ import annotations

from typing import Any

RENDEZVOUS_PORT = 20000
LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""The label by which a Service finds the pods that answer."""

_ADDRESS, _INDEX = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"


def node_arguments(kind: str, nodes: int, *, is_leader: bool) -> list[str]:
    """What one node's server is told beyond the bundle; Kubernetes fills in `$(…)`."""
    common = ["--nnodes", str(nodes), "--node-rank", _INDEX]
    if kind == "sglang":
        return [*common, "--dist-init-addr", f"{_ADDRESS}:{RENDEZVOUS_PORT}"]
    headless = [] if is_leader else ["--headless"]
    return [*common, "--master-addr", _ADDRESS, "--master-port", str(RENDEZVOUS_PORT), *headless]


def leader_worker_set(name: str, kind: str, nodes: int, pod: dict[str, Any]) -> dict[str, Any]:
    """The set: one group of `nodes` pods like `pod`, restarted together.

    Only the leader serves, so only the leader is probed: a worker that is gone shows in it.
    """
    labels = {"app.kubernetes.io/name": name}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {
                    "metadata": {"labels": labels},
                    "spec": _with(pod, node_arguments(kind, nodes, is_leader=True)),
                },
                "workerTemplate": {
                    "metadata": {"labels": labels},
                    "spec": _without_probes(
                        _with(pod, node_arguments(kind, nodes, is_leader=False))
                    ),
                },
            },
        },
    }


def _with(pod: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    containers = [{**each, "args": arguments} for each in pod["containers"]]
    return {**pod, "containers": containers}


def _without_probes(pod: dict[str, Any]) -> dict[str, Any]:
    containers = [
        {key: value for key, value in each.items() if not key.endswith("Probe")}
        for each in pod["containers"]
    ]
    return {**pod, "containers": containers}
