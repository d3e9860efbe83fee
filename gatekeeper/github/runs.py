"""The check runs of one commit: what GitHub shows now, and the two requests that change it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gatekeeper.domain.errors import ConfigurationError, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.repository import CONFIGURATION_PATH, parse
from gatekeeper.github.app import GithubApp
from gatekeeper.github.faults import Missing, Refused


class _Output(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    annotations_count: int = 0


class _App(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    id: int


class Run(BaseModel):
    """A check run as GitHub shows it. ``status`` may also be one of the words that only GitHub Actions writes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: int = Field(gt=0)
    name: str
    head_sha: str
    status: str
    conclusion: str | None = None
    external_id: str | None = None
    output: _Output = _Output()
    app: _App | None = None

    @property
    def finished(self) -> bool:
        """Whether it has a conclusion; GitHub itself gives one (``stale``) after 14 days."""
        return self.status == "completed"

    @property
    def annotations(self) -> int:
        """How many annotations it has."""
        return self.output.annotations_count


class CheckRuns:
    """Reads and writes the App's own check runs in one repository."""

    def __init__(self, app: GithubApp, repository: RepositoryRef) -> None:
        self._client = app.client(repository)
        self._app = app.number()
        self._path = f"/repos/{repository.full_name}"

    def latest(self, head_sha: str) -> dict[str, Run]:
        """Return the newest run of each name that this App made for a commit. Others' runs of the same name do not count.

        Raises:
            Missing: if GitHub has no such commit in this repository.
            Retryable: if GitHub does not answer as it should.
        """
        asked: dict[str, str | int] = {"app_id": self._app, "filter": "latest", "per_page": 100}
        try:
            told = self._client.get(f"{self._path}/commits/{head_sha}/check-runs", asked)
        except Refused as error:  # GitHub says 422 for a commit that it does not have
            raise Missing("GitHub has no such commit", code="GITHUB_MISSING", found=error.found) from error
        listed = told.get("check_runs") if isinstance(told, dict) else None
        if not isinstance(listed, list):
            raise Retryable("GitHub's answer is not what it documents", code="GITHUB_ANSWER", found="no check_runs")
        newest: dict[str, Run] = {}
        for each in listed:
            run = _run(each)
            mine = run.app is not None and run.app.id == self._app and run.head_sha == head_sha
            if mine and (run.name not in newest or newest[run.name].id < run.id):
                newest[run.name] = run
        return newest

    def create(self, body: Mapping[str, Any]) -> Run:
        """Create a check run.

        Raises:
            Refused: if GitHub does not take it.
            Retryable: if GitHub does not answer.
        """
        return _run(self._client.send("POST", f"{self._path}/check-runs", body))

    def update(self, run: int, body: Mapping[str, Any]) -> Run:
        """Change a check run; annotations are added to those that it has. The same errors as :meth:`create`."""
        return _run(self._client.send("PATCH", f"{self._path}/check-runs/{run}", body))

    def mode(self, base_ref: str) -> str:
        """Return the mode that the configuration on a base branch chooses.

        A file that is not there or cannot be read gives ``block``: its verdict will be ``error``, and that has to be seen.

        Raises:
            Retryable: if GitHub does not answer.
        """
        try:
            told = self._client.get(f"{self._path}/contents/{CONFIGURATION_PATH}", {"ref": base_ref})
            content = told.get("content") if isinstance(told, dict) and told.get("encoding") == "base64" else None
            return parse(base64.b64decode(content or "")).mode
        except (Missing, ConfigurationError, ValueError, TypeError):
            return "block"


def _run(told: Any) -> Run:
    try:
        return Run.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Retryable(
            "GitHub's answer is not what it documents",
            code="GITHUB_ANSWER", expected=first["msg"], found=f"a check run: field {field}",
        ) from None  # fmt: skip
