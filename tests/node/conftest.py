"""These tests need node and the packages of ``package.json``; where they are absent none is collected, and that is said."""

from __future__ import annotations

import shutil
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = HERE / "node_modules"
EXAMPLES = PACKAGES / "@octokit" / "webhooks-examples" / "api.github.com" / "index.json"
METHODS = PACKAGES / "@octokit" / "webhooks-methods"
DESCRIPTION = PACKAGES / "@octokit" / "openapi" / "generated" / "api.github.com.json"
PRISM = PACKAGES / "@stoplight" / "prism-cli"

NODE = shutil.which("node") is not None
NEEDS = {"test_real_deliveries.py": (EXAMPLES, METHODS), "test_openapi.py": (DESCRIPTION, PRISM)}
LEFT_OUT = [name for name, needed in NEEDS.items() if not NODE or not all(path.exists() for path in needed)]
collect_ignore = LEFT_OUT


def pytest_report_header() -> str:
    """Say whether GitHub's published payloads, signing code and API description are part of this run."""
    if not LEFT_OUT:
        return "node: GitHub's example payloads, @octokit/webhooks-methods and GitHub's API description (at Prism) are used"
    missing = "the packages (npm ci --prefix tests/node)" if NODE else "node"
    return f"node: NOT collected, {missing} absent; left out: {', '.join(LEFT_OUT)}"
