"""The bundled llama.cpp server: `python -m tuner.embedded --model X --port N …`.

Its HTTP server, its log (standard error) and its exit are llama-server's: status 1 for a command
line or model it cannot use, SIGTERM and SIGINT stop it at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tuner.embedded.flags import CommandLine, FlagError, help_text, parse_command_line
from tuner.embedded.reading import Member

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOG_LAG_S = 0.3
"""The engine's log is written by a thread of its own; what it has not written is lost at exit."""


def main() -> int:
    """Run the program; gives its exit status."""
    try:
        line = parse_command_line(sys.argv[1:], os.environ)
    except FlagError as error:
        return _fail(str(error))
    if line.wants_help:
        sys.stdout.write(help_text())
        return 0
    try:
        import xllamacpp
    except ImportError as error:
        return _fail(
            f"error: the bundled server needs xllamacpp ({error}). "
            "Install it with: pip install 'speculative-tuner[embedded]'"
        )
    if line.wants_version:
        sys.stdout.write(version_text(xllamacpp))
        return 0
    return serve(xllamacpp, line)


def version_text(engine: ModuleType) -> str:
    """llama-server's two lines, with the module's version in the place of the commit."""
    version = str(engine.__version__)
    info = engine.BUILD_INFO
    build = version.rsplit(".", 1)[-1]
    return (
        f"version: {build} (xllamacpp {version})\n"
        f"built with {info['compiler']} for {info['build_target']}\n"
    )


def serve(engine: ModuleType, line: CommandLine) -> int:
    """Serve until a stop signal; 1 when the server cannot start."""
    try:
        params = common_params(engine, line.values)
    except (TypeError, ValueError, OverflowError) as error:
        return _fail(f"error: {error}")
    if not params.model.path:
        return _fail("error: --model is required")
    # The default action of the stop signals ends a slow load at once: Python's own handlers
    # would not run before the constructor returns.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        server = engine.Server(params)
    except RuntimeError as error:
        time.sleep(LOG_LAG_S)
        return _fail(f"error: {error}")
    _say(f"main: server is listening on {server.listening_address}")
    _say(f"main: stopped by {wait_for_stop_signal().name}")
    # The module's destructor waits without end for open connections: leave without it.
    os._exit(0)


def wait_for_stop_signal() -> signal.Signals:
    """Block until a stop signal arrives on any thread, the engine's own included."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    return signal.Signals(os.read(read_end, 1)[0])


def common_params(engine: ModuleType, values: Mapping[str, Any]) -> Any:
    """`CommonParams` of the engine module with these values set.

    Raises:
        ValueError: a value that this build of the engine does not know.
    """
    params = engine.CommonParams()
    params.port = 8080
    for path, value in values.items():
        *parents, name = path.split(".")
        target = params
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, _resolved(engine, value))
    return params


def _resolved(engine: ModuleType, value: Any) -> Any:
    if isinstance(value, list):
        return [_resolved(engine, item) for item in value]
    if not isinstance(value, Member):
        return value
    try:
        return getattr(getattr(engine, value.enum), value.name)
    except AttributeError:
        raise ValueError(f"this build does not know {value.name}") from None


def _fail(text: str) -> int:
    _say(text)
    return 1


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
