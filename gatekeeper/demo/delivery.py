"""Plays GitHub's part in the demonstration: builds ``pull_request`` payloads, signs them and delivers them over HTTP."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from typing import Any

import httpx

OWNER, NAME = "sample", "upstream"
REPOSITORY = f"{OWNER}/{NAME}"
REPOSITORY_ID = 4_200_001
HOOK_ID = 77
NAMESPACE = uuid.UUID("4f3c1a52-6d0e-4a57-9a55-0a6a3b8f5d10")


def payload(number: int, title: str, author: tuple[int, str], head_sha: str, base_sha: str) -> dict[str, Any]:
    """Return a ``pull_request`` / ``opened`` payload with the fields that GitHub's own payloads carry and that are read."""
    repository = {
        "id": REPOSITORY_ID,
        "name": NAME,
        "full_name": REPOSITORY,
        "private": False,
        "owner": {"id": 4_200, "login": OWNER, "type": "Organization"},
        "default_branch": "main",
    }
    user = {"id": author[0], "login": author[1], "type": "User"}
    return {
        "action": "opened",
        "number": number,
        "pull_request": {
            "id": 9_000_000 + number,
            "number": number,
            "state": "open",
            "title": title,
            "user": user,
            "draft": False,
            "author_association": "CONTRIBUTOR",
            "head": {"ref": f"pull-{number}", "sha": head_sha, "repo": repository, "user": user},
            "base": {"ref": "main", "sha": base_sha, "repo": repository, "user": repository["owner"]},
        },
        "repository": repository,
        "sender": user,
    }


def sign(secret: str, body: bytes) -> str:
    """Return the value of ``X-Hub-Signature-256`` for a body: ``sha256=`` and the HMAC in hexadecimal."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def deliver(client: httpx.Client, secret: str, content: dict[str, Any]) -> httpx.Response:
    """Post one signed ``pull_request`` delivery and return the answer.

    Raises:
        httpx.HTTPError: if the service cannot be reached or answers with another status than 2xx.
    """
    body = json.dumps(content, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/demo",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": str(
            uuid.uuid5(NAMESPACE, f"{content['number']}:{content['pull_request']['head']['sha']}")
        ),
        "X-GitHub-Hook-ID": str(HOOK_ID),
        "X-Hub-Signature-256": sign(secret, body),
    }
    answer = client.post("/webhooks/github", content=body, headers=headers)
    answer.raise_for_status()
    return answer
