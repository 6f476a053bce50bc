"""Resolves SGLang argument vectors with SGLang's own code; run by SGLang's interpreter, by path.

Standard input: one JSON document {"servers": [{"argv": [...], "env": {...}}, ...]}. Standard
output: one line that begins with the marker, then JSON {"version", "gpu", "assumed", "common",
"servers": [{"error", "kind", "resolved", "messages"}, ...]}; `resolved` holds what differs from
`common`. Imports nothing of the tuner and needs no GPU: without one, a CUDA device and a portable
attention backend are assumed and said so.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from typing import Any

MARKER = "TUNER-PREFLIGHT "
ASSUMED = (
    ("--device", "cuda"),
    ("--attention-backend", "triton"),
    ("--mem-fraction-static", "0.8"),
)

REFUSALS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError,
    NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What SGLang's resolution is seen to raise; the words are the result."""


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _plain(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return str(value)


def _resolved(server_args: Any) -> dict[str, Any]:
    if hasattr(server_args, "resolve_once"):  # 0.5.2x; older versions resolve when built
        server_args.resolve_once()
    if hasattr(server_args, "check_server_args"):
        server_args.check_server_args()
    if hasattr(server_args, "resolved_dict"):
        values = server_args.resolved_dict()
    else:
        values = vars(server_args)
    return {name: _plain(value) for name, value in values.items() if not name.startswith("_")}


def _prepare(argv: list[str], stderr: io.StringIO) -> Any:
    from sglang.srt.server_args import prepare_server_args

    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
        return prepare_server_args(argv)


def _resolve(argv: list[str], env: dict[str, str | None]) -> dict[str, Any]:
    result: dict[str, Any] = {"error": "", "kind": "", "resolved": {}}
    before, stderr, messages = dict(os.environ), io.StringIO(), _Messages()
    try:
        for name, value in env.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        server_args = _prepare(argv, stderr)
        logging.getLogger().addHandler(messages)
        result["resolved"] = _resolved(server_args)
    except SystemExit as error:
        lines = stderr.getvalue().strip().splitlines()
        result.update(kind=f"exit {error.code}", error=lines[-1] if lines else "refused")
    except REFUSALS as error:
        text = str(error).strip() or "refused without a message"
        result.update(kind=type(error).__name__, error=f"{type(error).__name__}: {text}")
    finally:
        logging.getLogger().removeHandler(messages)
        os.environ.clear()
        os.environ.update(before)
    result["messages"] = messages.texts[-20:]
    return result


def _has_gpu() -> bool:
    try:
        import torch

        return bool(torch.cuda.is_available())
    except (ImportError, RuntimeError):
        return False


def _with_assumptions(argv: list[str], gpu: bool) -> tuple[list[str], list[str]]:
    if gpu or "--device" in argv:
        return argv, []
    missing = [(flag, value) for flag, value in ASSUMED if flag not in argv]
    return argv + [word for pair in missing for word in pair], [flag for flag, _ in missing]


def _common(servers: list[dict[str, Any]]) -> dict[str, Any]:
    """The first server's values; the others keep only what differs from them."""
    resolved = [server["resolved"] for server in servers if server["resolved"]]
    common = dict(resolved[0]) if resolved else {}
    for server in servers:
        values = server["resolved"]
        server["resolved"] = {k: v for k, v in values.items() if v != common.get(k)}
    return common


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    import sglang

    gpu = _has_gpu()
    servers: list[dict[str, Any]] = []
    assumed: set[str] = set()
    for server in request["servers"]:
        argv, added = _with_assumptions(list(server["argv"]), gpu)
        assumed.update(added)
        servers.append(_resolve(argv, server.get("env", {})))
    answer = {
        "version": getattr(sglang, "__version__", ""),
        "gpu": gpu,
        "assumed": sorted(assumed),
        "common": _common(servers),
        "servers": servers,
    }
    sys.stdout.write("\n" + MARKER + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
