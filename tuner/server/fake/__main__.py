"""`python -m tuner.server.fake --port N [--behaviour JSON|@file] [engine flags]`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

from tuner.server.fake import processes
from tuner.server.fake.app import App
from tuner.server.fake.behaviour import Behaviour, matches_environment
from tuner.server.fake.flags import Flags, parse
from tuner.server.fake.http import serve_connection


def log(line: str) -> None:
    """One line on standard error, as servers log."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    """Start as told, serve until SIGTERM."""
    flags, behaviour = parse(sys.argv[1:])
    if behaviour.trap_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour.startup_log:
        log(behaviour.startup_log)
    for name in behaviour.print_env:
        log(f"env {name}={os.environ.get(name, '(unset)')}")
    processes.write_nccl_log(behaviour.nccl_log, os.environ)
    refuse_to_start(behaviour)
    load(behaviour)
    listener = listen(flags)
    app = App(flags, behaviour, log)
    segment = start_processes(behaviour, app, listener)
    log(f"fake server (synthetic) listening on {flags.host}:{flags.port}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(app, listener))
    processes.remove(segment)


def refuse_to_start(behaviour: Behaviour) -> None:
    """Exit with the text and code the behaviour wants, if it wants any."""
    every, folder = behaviour.address_in_use_every, behaviour.state_dir
    if every and folder and processes.count_launch(folder) % every == 0:
        log("OSError: [Errno 98] Address already in use")
        sys.exit(1)
    code = behaviour.exit_code
    if code is not None:
        time.sleep(behaviour.exit_after_s)
        log(behaviour.exit_log)
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)


def load(behaviour: Behaviour) -> None:
    """Take the time loading takes, forever where the environment is not as needed."""
    needed = behaviour.never_ready_unless
    is_hopeless = needed is not None and not matches_environment(needed, dict(os.environ))
    deadline = time.monotonic() + (3600 if is_hopeless else behaviour.load_s)
    count = 0
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, behaviour.load_line_every_s or left))
        if behaviour.load_line_every_s:
            count += 1
            log(f"loading weights, part {count}")


def listen(flags: Flags) -> socket.socket:
    """The listening socket; exits with code 1 when the address is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by what is accepted; asyncio leaves it off for a socket made without a protocol.
    # Without it the first chunk waits up to 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((flags.host, flags.port))
    except OSError as error:
        log(f"OSError: [Errno {error.errno}] error while binding: address already in use")
        sys.exit(1)
    listener.listen(1024)
    return listener


def start_processes(behaviour: Behaviour, app: App, listener: socket.socket) -> Path | None:
    """Start the children and leaks of the behaviour; the shared-memory segment, if any."""
    if behaviour.worker or behaviour.worker_dies_at_request is not None:
        app.end_worker = processes.start_worker(behaviour)
    if behaviour.surviving_child:
        processes.start_surviving_child()
    if behaviour.double_fork:
        processes.hold_port_detached(listener)
    if behaviour.shm_leak_bytes:
        return processes.leak_shared_memory(behaviour.shm_leak_bytes)
    return None


async def serve(app: App, listener: socket.socket) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    if not app.behaviour.trap_sigterm:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await serve_connection(app.handle, reader, writer)

    server = await asyncio.start_server(on_connection, sock=listener, limit=1 << 22)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    main()
