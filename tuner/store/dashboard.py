"""Owns the dashboard: optuna-dashboard on 127.0.0.1, on a database that is opened for reading.

optuna-dashboard has no authentication, checks no Host header and lets any POST complete a
running trial; so it gets a read-only database, only GET and HEAD, and only this host's names.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tuner.errors import HostError
from tuner.store.artifacts import ResultFiles
from tuner.store.database import open_store
from tuner.store.faults import database_errors

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"
PREFERRED_PORT = 8080
SAFE_METHODS = ("GET", "HEAD")


class Dashboard:
    """A dashboard that listens; `serve` answers until it is interrupted."""

    def __init__(self, server: WSGIServer, path: str) -> None:
        self._server = server
        self.url = f"http://{HOST}:{server.server_port}{path}"

    def serve(self) -> None:
        """Answer requests; returns after `stop`, raises KeyboardInterrupt as it comes."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()


@contextlib.contextmanager
def dashboard(
    url: str, study: str, port: int | None = None, files: ResultFiles | None = None
) -> Iterator[Dashboard]:
    """A dashboard of one database, listening at the page of a study.

    Args:
        url: storage URL.
        study: name of the study whose page is shown.
        port: where to listen; None: 8080, or any free port when that is taken.
        files: the study's raw files, offered as artifacts.

    Raises:
        StoreError: the database cannot be read; it is never created.
        HostError: the port is taken.
    """
    from optuna_dashboard import wsgi

    with open_store(url, create=False) as store:
        with database_errors(store.where):
            number = store.optuna_storage.get_study_id_from_name(study)
        server = _listen(wsgi(store.optuna_storage, files), port)
        try:
            yield Dashboard(server, f"/dashboard/studies/{number}")
        finally:
            server.server_close()


def read_only(app: WSGIApplication, hosts: Iterable[str]) -> WSGIApplication:
    """The application behind a filter: other methods answer 405, other Host names 421."""
    allowed = frozenset(hosts)

    def filtered(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_HOST", "").lower() not in allowed:
            return _refuse(start_response, "421 Misdirected Request", [])
        if environ["REQUEST_METHOD"] not in SAFE_METHODS:
            allow = [("Allow", ", ".join(SAFE_METHODS))]
            return _refuse(start_response, "405 Method Not Allowed", allow)
        return app(environ, start_response)

    return filtered


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests off the terminal."""


def _listen(app: WSGIApplication, port: int | None) -> WSGIServer:
    wanted = PREFERRED_PORT if port is None else port
    try:
        server = _server(wanted)
    except OSError as error:
        if port is not None:
            raise HostError(
                f"port {port}: must be free, got: {error.strerror}.",
                "Leave --port out, or choose another.",
            ) from error
        server = _server(0)
    names = ("127.0.0.1", "localhost")
    server.set_app(read_only(app, [f"{name}:{server.server_port}" for name in names]))
    return server


def _server(port: int) -> WSGIServer:
    with socket.socket() as probe:  # the server's own bind reuses ports that others hold
        probe.bind((HOST, port))
        port = probe.getsockname()[1]
    nothing: Callable[..., Iterable[bytes]] = lambda environ, start: []  # noqa: E731
    return make_server(HOST, port, nothing, server_class=_Server, handler_class=_Silent)


def _refuse(
    start_response: StartResponse, status: str, headers: list[tuple[str, str]]
) -> Iterable[bytes]:
    body = f"{status}\n".encode()
    size = ("Content-Length", str(len(body)))
    start_response(status, [("Content-Type", "text/plain"), size, *headers])
    return [body]
