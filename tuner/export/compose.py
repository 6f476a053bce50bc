"""Owns `compose.yaml`: the bundle as a Docker Compose service that runs its launch.sh."""

from __future__ import annotations

from typing import Any

import yaml

from tuner.export.containers import MOUNT, SHARED_MEMORY_GIB, Container

NAME = "compose.yaml"


def render_compose(container: Container, comment: str) -> str:
    """The compose file; paths are relative to the bundle, models are mounted where they were."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    text: str = yaml.safe_dump(
        {"services": {"server": service(container)}}, sort_keys=False, allow_unicode=True
    )
    return head + text


def service(container: Container) -> dict[str, Any]:
    """The service as plain data, `$` doubled because Compose interpolates."""
    url = f"http://127.0.0.1:{container.port}{container.health_path}"
    data: dict[str, Any] = {
        "image": container.image,
        "entrypoint": ["/bin/sh", f"{MOUNT}/launch.sh"],
        "env_file": ["server.env"],
        "environment": {
            "HOST": "0.0.0.0",  # inside the container; published on 127.0.0.1 below
            "PORT": str(container.port),
            "PROGRAM": container.program.replace("$", "$$"),
        },
        "ports": [f"127.0.0.1:{container.port}:{container.port}"],
        "volumes": [_bind(".", MOUNT), *(_bind(path, path) for path in container.folders)],
        "shm_size": f"{SHARED_MEMORY_GIB}gb",
        "ulimits": {"memlock": -1, "stack": 67108864},
        "healthcheck": {
            "test": ["CMD-SHELL", health_test(url).replace("$", "$$")],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": f"{container.start_s}s",
        },
        "restart": "unless-stopped",
        "stop_grace_period": "60s",
    }
    if container.gpus != 0:
        data["deploy"] = {"resources": {"reservations": {"devices": [_gpus(container)]}}}
    return data


def health_test(url: str) -> str:
    """A shell test that works with whichever of curl, wget and Python the image has."""
    python = f'import urllib.request as u; u.urlopen("{url}", timeout=8)'
    return f"curl -fsS -m 8 {url} || wget -q -T 8 -O /dev/null {url} || python3 -c '{python}'"


def _bind(source: str, target: str) -> dict[str, Any]:
    return {
        "type": "bind",
        "source": source.replace("$", "$$"),
        "target": target.replace("$", "$$"),
        "read_only": True,
    }


def _gpus(container: Container) -> dict[str, Any]:
    count: int | str = "all" if container.gpus is None else container.gpus
    return {"driver": "nvidia", "count": count, "capabilities": ["gpu"]}
