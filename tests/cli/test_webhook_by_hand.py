"""The delivery by hand that the documentation shows works as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from gatekeeper.demo.upstream import base_files
from tests.checkout import checkout, git, put
from tests.cli.test_serve_stops import PATIENCE, start, wait_until_ready

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("curl")), reason="needs openssl and curl")
def test_the_documented_delivery_is_accepted_and_its_pull_request_read(tmp_path: Path) -> None:
    text = (DOCS / "webhooks.md").read_text().partition("## A delivery by hand")[2].partition("## Answers")[0]
    prepare, deliver = (
        block.replace("/srv/git", str(tmp_path / "git")) for block in re.findall(r"```\n(.*?)```", text, re.S)
    )
    *prepare_lines, serve = prepare.strip().splitlines()
    work = checkout(tmp_path / "up", {path: data.decode() for path, data in base_files().items()})
    put(work, "docs/serving.md", "another text\n")
    git(work, "commit", "-am", "By hand")
    git(work, "branch", "my-branch")
    script = "\n".join([*prepare_lines, 'printf %s "$GATEKEEPER_WEBHOOK_SECRET"'])
    secret = subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    base_url = re.fullmatch(r"GATEKEEPER_GIT_BASE_URL=(\S+) gatekeeper serve", serve)
    assert base_url is not None
    process, port = start(tmp_path, WEBHOOK_SECRET=secret, GIT_BASE_URL=base_url[1])
    try:
        wait_until_ready(process, port)
        done = subprocess.run(
            ["bash", "-ec", deliver.replace("127.0.0.1:8000", f"127.0.0.1:{port}")],
            capture_output=True, text=True, env={**os.environ, "GATEKEEPER_WEBHOOK_SECRET": secret, "no_proxy": "*"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"accepted"' in done.stdout
        assert httpx.get(f"http://127.0.0.1:{port}/pulls/me/up/1", trust_env=False).status_code == 200
        page = f"http://127.0.0.1:{port}/api/v1/pulls/me/up/1"
        deadline = time.monotonic() + PATIENCE
        while not (told := httpx.get(page, trust_env=False).json()).get("verdict"):
            assert time.monotonic() < deadline, json.dumps(told)
            time.sleep(0.2)
        assert told["outcome"] == "passed" and told["title"] == "By hand"
    finally:
        process.terminate()
        process.wait(PATIENCE)
