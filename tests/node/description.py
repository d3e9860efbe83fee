"""GitHub's own OpenAPI description, and Prism serving the part of it that is used."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
DESCRIPTION = HERE / "node_modules" / "@octokit" / "openapi" / "generated" / "api.github.com.json"
PRISM = HERE / "node_modules" / "@stoplight" / "prism-cli" / "dist" / "index.js"
USED = (
    "/app",
    "/app/installations/{installation_id}/access_tokens",
    "/repos/{owner}/{repo}/check-runs",
    "/repos/{owner}/{repo}/check-runs/{check_run_id}",
    "/repos/{owner}/{repo}/commits/{ref}/check-runs",
    "/repos/{owner}/{repo}/contents/{path}",
    "/repos/{owner}/{repo}/installation",
    "/repos/{owner}/{repo}/pulls/{pull_number}",
)
"""Every path that gatekeeper sends requests to; a request to any other one is an error at Prism."""
START_SECONDS = 120


def part(description: dict[str, Any], paths: tuple[str, ...] = USED) -> dict[str, Any]:
    """Return a description of these paths alone, word for word, with all that they refer to.

    The whole one holds over eight hundred paths, which Prism takes long to read.
    """
    kept: dict[str, Any] = {name: description[name] for name in ("openapi", "info", "servers")}
    kept["paths"] = {path: description["paths"][path] for path in paths}
    # Prism lets {path} be one segment only, GitHub lets it hold slashes: the same operation, with one more segment before it.
    for path in [each for each in paths if each.endswith("/{path}")]:
        before = {"name": "folder", "in": "path", "required": True, "schema": {"type": "string"}}
        operation = dict(description["paths"][path]["get"])
        operation["parameters"] = [before, *operation["parameters"]]
        kept["paths"][path.replace("{path}", "{folder}/{path}")] = {"get": operation}
    components: dict[str, dict[str, Any]] = {}
    waiting: list[Any] = [kept["paths"]]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/components/"):
                kind, name = reference.split("/")[2:]
                if name not in components.setdefault(kind, {}):
                    components[kind][name] = description["components"][kind][name]
                    waiting.append(components[kind][name])
    return kept | {"components": components}


@contextmanager
def prism(folder: Path, *arguments: str, upstream: str | None = None) -> Iterator[str]:
    """Run Prism on loopback until the block ends; yields its address.

    With ``upstream`` it passes requests on and checks both directions, else it answers with GitHub's examples.
    """
    document = folder / "github.json"
    document.write_text(json.dumps(part(json.loads(DESCRIPTION.read_text(encoding="utf-8")))), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["node", str(PRISM), "mock" if upstream is None else "proxy", str(document)]
    command += [upstream] if upstream is not None else []
    log = folder / "prism.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--errors", *arguments],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
        )  # fmt: skip
        try:
            _wait(process, f"http://127.0.0.1:{port}/app", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(address, timeout=5, trust_env=False)
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"Prism did not start; its log ends:\n{log.read_text(errors='replace')[-2000:]}")
