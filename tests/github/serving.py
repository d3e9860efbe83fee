"""HTTP for the in-memory GitHub, on loopback."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

from tests.github.world import World


@contextmanager
def served(world: World) -> Iterator[str]:
    """Serve a world until the block ends; yields its address. ``/api/v3`` before a path, as on an Enterprise Server, is taken too."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _any(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = world.handle(
                self.command,
                self.path.removeprefix("/api/v3"),
                {name.title(): text for name, text in self.headers.items()},
                data,
            )
            if answer is None:
                self.close_connection = True
                return
            body = b"" if answer.status == 304 else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 304:
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _any

        def log_message(self, *_: Any) -> None:
            """Say nothing: the world keeps its own list."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        # A proxy that the environment names has nothing to do with this machine.
        with mock.patch.dict(os.environ, {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}):
            yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
