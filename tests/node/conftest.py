"""These tests need node and the packages of ``package.json``; where they are absent none is collected, and that is said."""

from __future__ import annotations

import shutil
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE / "node_modules" / "@octokit" / "webhooks-examples" / "api.github.com" / "index.json"
METHODS = HERE / "node_modules" / "@octokit" / "webhooks-methods"

AVAILABLE = shutil.which("node") is not None and EXAMPLES.exists() and METHODS.exists()
collect_ignore_glob = [] if AVAILABLE else ["test_*.py"]


def pytest_report_header() -> str:
    """Say whether GitHub's published payloads and signing code are part of this run."""
    if AVAILABLE:
        return "node: GitHub's example payloads and @octokit/webhooks-methods are used"
    missing = "node" if shutil.which("node") is None else "the packages (npm ci --prefix tests/node)"
    return f"node: NOT collected, {missing} absent; tests/node was left out"
