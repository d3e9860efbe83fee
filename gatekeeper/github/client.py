"""Requests to GitHub's REST API: conditional, paced, counted, and with every answer turned into data or one of our errors.

PyGithub carries them: connection, TLS, authentication, redirects. Its objects are not used, because they hide the headers of
good answers (quota, ETag, request id), know no 304, and follow addresses that stand in answers.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import requests
import structlog
from github.GithubException import GithubException
from github.Requester import Requester

from gatekeeper.domain.errors import Retryable
from gatekeeper.github.faults import Answer, Throttled, Unauthorised, fault_of
from gatekeeper.github.meter import Meter
from gatekeeper.github.pace import Pace

KEPT_ANSWERS = 256
"""Answers that are kept for conditional requests, for each repository."""
LARGEST_KEPT = 512 * 1024
LOG = structlog.get_logger(__name__)


class Client:
    """Speaks in one name: the App's own, or an installation's for one repository.

    Args:
        requester: PyGithub's transport with its authentication.
        installation: whose quota is used; see :data:`gatekeeper.github.meter.APP`.
        pace: the installation's manners.
        meter: counts every request.
        forget_token: drops the token that was not accepted.
    """

    def __init__(
        self,
        requester: Requester,
        installation: int,
        pace: Pace,
        meter: Meter,
        forget_token: Callable[[], None] = lambda: None,
    ) -> None:
        self._requester = requester
        self._installation = installation
        self._pace, self._meter = pace, meter
        self._forget_token = forget_token
        self._kept: OrderedDict[str, tuple[str, str]] = OrderedDict()
        # A requester keeps the request of the moment in its connection: two threads would get each other's answers.
        self._lock = threading.Lock()

    def get(self, path: str, parameters: Mapping[str, str | int] | None = None) -> Any:
        """Return the JSON value at a path. What has not changed since the last time costs no quota.

        Raises:
            Missing: if there is no such thing.
            Throttled: if a limit is reached.
            Refused: if GitHub does not take the parameters.
            Retryable: if GitHub does not answer, or not as it should.
        """
        return self._ask("GET", path, parameters=parameters)

    def send(self, verb: str, path: str, body: Mapping[str, Any]) -> Any:
        """Send a JSON object with ``POST`` or ``PATCH`` and return the JSON value of the answer; the same errors as :meth:`get`."""
        return self._ask(verb, path, body=body)

    def _ask(
        self,
        verb: str,
        path: str,
        *,
        parameters: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        with self._lock:
            try:
                return self._once(verb, path, parameters, body)
            except Unauthorised:  # tokens can be withdrawn before they end: once more with a new one
                self._forget_token()
                return self._once(verb, path, parameters, body)

    def _once(
        self, verb: str, path: str, parameters: Mapping[str, str | int] | None, body: Mapping[str, Any] | None
    ) -> Any:
        name = Requester.add_parameters_to_url(path, dict(parameters or {}))
        kept = self._kept.get(name) if verb == "GET" else None
        asked = f"{verb} {path}"
        with self._pace.turn(verb):
            answer, text = self._exchange(verb, path, parameters, body, kept[0] if kept else None, asked)
            pause = self._pace.learn(answer)
        if pause is not None:
            LOG.warning(
                "github.limited", asked=asked, installation=self._installation, pause=pause, said=answer.message
            )
            raise Throttled(
                "GitHub asks for a pause", retry_after=pause, found=f"{asked}: {answer.status} {answer.message}"
            )
        fault = fault_of(answer, asked)
        if fault is not None:
            raise fault
        if answer.status == 304:
            if kept is None:
                raise Retryable("GitHub says 304 to an unconditional request", code="GITHUB_ANSWER", found=asked)
            self._kept.move_to_end(name)
            return json.loads(kept[1])  # a value of its own for each caller
        if verb == "GET" and "etag" in answer.headers and len(text) <= LARGEST_KEPT:
            self._kept[name] = (answer.headers["etag"], text)
            if len(self._kept) > KEPT_ANSWERS:
                self._kept.popitem(last=False)
        return answer.data

    def _exchange(
        self,
        verb: str,
        path: str,
        parameters: Mapping[str, str | int] | None,
        body: Mapping[str, Any] | None,
        etag: str | None,
        asked: str,
    ) -> tuple[Answer, str]:
        """Send one request and return the answer with the text of its body."""
        headers = {"Accept": "application/vnd.github+json"} | ({"If-None-Match": etag} if etag else {})
        try:
            status, answered, text = self._requester.requestJson(
                verb, path, dict(parameters or {}), headers, None if body is None else dict(body)
            )
        except (requests.RequestException, GithubException, RuntimeError, ValueError, OSError) as error:
            # RuntimeError: PyGithub does not follow a redirect to another host. ValueError: it finds no number in a header of numbers.
            self._meter.note(self._installation, verb, None)
            raise Retryable(
                "GitHub cannot be reached", code="GITHUB_UNREACHABLE", found=f"{asked}: {type(error).__name__}"
            ) from error
        known = {str(name).lower(): str(value) for name, value in answered.items()}
        try:
            answer = Answer(status, known, json.loads(text) if text else None)
        except ValueError:
            answer = Answer(status, known)
            if 200 <= status < 300:
                self._meter.note(self._installation, verb, answer)
                raise Retryable(
                    "GitHub's answer is no JSON", code="GITHUB_ANSWER", found=f"{asked}: {len(text)} characters"
                ) from None
        self._meter.note(self._installation, verb, answer)
        return answer, text
