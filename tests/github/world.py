"""An in-memory GitHub: repositories, pull requests, check runs, Apps with their permissions, tokens, limits, faults on command.

It refuses what GitHub refuses, and keeps a list of every request. :mod:`tests.github.serving` speaks HTTP for it; its answers are
checked against GitHub's own description in ``tests/node``. Times are seconds since 1970 of a clock that the test gives.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jwt

from tests.github import shapes

APP, CLIENT_ID, INSTALLATION, OTHER_APP = 4242, "Iv23liGatekeeper", 8, 77
GRANTED = {"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "read"}
SPAN, MOST = (60.0, 3600.0), (80, 500)
CONCLUSIONS = {"action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out"}


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    verb: str
    path: str
    query: dict[str, str]
    body: Any
    at: float
    status: int


@dataclass
class Pull:
    """A pull request."""

    head_sha: str
    title: str = "a change"
    base_ref: str = "main"
    author: str | None = "ada"
    state: str = "open"
    draft: bool = False
    fork: bool = False
    fork_deleted: bool = False


@dataclass
class Repository:
    """A repository: commits are those that the object database knows, files stand by branch and path."""

    id: int
    full_name: str
    installation: int | None = INSTALLATION
    pulls: dict[int, Pull] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)


@dataclass
class Fault:
    """What to answer instead. ``applied``: the request takes effect all the same. ``status`` 0 closes the connection."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    on: str = ""
    applied: bool = False
    times: int = 1


@dataclass
class Answer:
    """Status, headers and JSON value of an answer."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class World:
    """See the module. ``public_key`` is the App's, in PEM."""

    def __init__(self, public_key: bytes, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self.public_key = public_key
        self.repositories: dict[int, Repository] = {}
        self.suspended: set[int] = set()
        self.granted = dict(GRANTED)
        self.token_seconds = 3600.0
        self.tokens: dict[str, tuple[int, frozenset[int], dict[str, str], float]] = {}
        self.runs: dict[int, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.remaining = 5000
        self.violations: list[str] = []
        self.delay = 0.0
        self.at_once = self.most_at_once = 0
        self._writes: dict[int, list[float]] = {}
        self._lock = threading.RLock()

    def repository(self, number: int = 7, full_name: str = "acme/kernels", **more: Any) -> Repository:
        """Add a repository."""
        made = self.repositories[number] = Repository(number, full_name, **more)
        return made

    def fail(
        self, status: int, *, on: str = "", times: int = 1, applied: bool = False, body: Any = None, **headers: str
    ) -> None:
        """Answer the next requests whose ``VERB path`` holds ``on`` in another way; header names with ``_`` for ``-``."""
        named = {_header(name): value for name, value in headers.items()}
        self.faults.append(Fault(status, named, body, on, applied, times))

    def shown(self, head_sha: str, *, app: int = APP) -> dict[str, dict[str, Any]]:
        """Return the newest run of each name at a commit, as a person sees it."""
        mine = [run for run in self.runs.values() if run["head_sha"] == head_sha and run["app"] == app]
        return {run["name"]: run for run in sorted(mine, key=lambda run: run["id"])}

    def writes(self, on: str = "check-runs") -> list[Request]:
        """Return the writes whose path holds ``on``."""
        return [each for each in self.requests if each.verb != "GET" and on in each.path]

    def handle(self, verb: str, target: str, headers: Mapping[str, str], data: bytes) -> Answer | None:
        """Answer a request after ``delay`` seconds; None: close the connection without an answer."""
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.delay)
        try:
            return self._handle(verb, target, headers, data)
        finally:
            with self._lock:
                self.at_once -= 1

    def _handle(self, verb: str, target: str, headers: Mapping[str, str], data: bytes) -> Answer | None:
        parts = urlsplit(target)
        path, query = unquote(parts.path), {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = json.loads(data) if data else None
        with self._lock:
            fault = next((each for each in self.faults if each.on in f"{verb} {path}"), None)
            if fault is not None:
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
            if fault is None or fault.applied:
                answer = self._answer(verb, path, query, headers, body)
            if fault is not None:
                answer = Answer(fault.status, fault.body or shapes.fault("on command"), dict(fault.headers))
                if answer.headers.get("Location", "").startswith("/"):  # an address, as GitHub gives it
                    answer.headers["Location"] = f"http://{headers['Host']}{answer.headers['Location']}"
            answer = self._finished(verb, headers, answer)
            self.requests.append(Request(verb, path, query, body, self.now(), answer.status))
        return answer if answer.status else None

    def _finished(self, verb: str, headers: Mapping[str, str], answer: Answer) -> Answer:
        etag = 'W/"' + hashlib.sha256(json.dumps(answer.body, sort_keys=True).encode()).hexdigest()[:32] + '"'
        if verb == "GET" and answer.status == 200:
            answer.headers["ETag"] = etag
            if headers.get("If-None-Match") == etag:
                answer.status, answer.body = 304, None
        if answer.status != 304:
            self.remaining = max(self.remaining - 1, 0)
        told = {
            "X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": str(self.remaining), "X-RateLimit-Resource": "core",
            "X-RateLimit-Reset": str(int(self.now()) + 1800), "X-GitHub-Request-Id": f"{len(self.requests):04X}:TEST",
        }  # fmt: skip
        answer.headers = told | answer.headers
        return answer

    def _answer(self, verb: str, path: str, query: dict[str, str], headers: Mapping[str, str], body: Any) -> Answer:
        kind, _, secret = headers.get("Authorization", "").partition(" ")
        if "User-Agent" not in headers:
            return Answer(403, shapes.fault("Missing or invalid User Agent string."))
        if path == "/app" or path.startswith("/app/") or path.endswith("/installation"):
            return self._as_app(verb, path, secret, body)
        token = self.tokens.get(secret)
        if kind.lower() not in ("token", "bearer") or token is None or token[3] <= self.now():
            return Answer(401, shapes.fault("Bad credentials"))
        found = re.fullmatch(r"/repos/([^/]+/[^/]+)/(.*)", path)
        repository = self._named(found[1]) if found else None
        if found is None or repository is None or repository.id not in token[1] or repository.installation != token[0]:
            return Answer(404, shapes.fault("Not Found"))
        if token[0] in self.suspended:
            return Answer(403, shapes.fault("This installation has been suspended"))
        if verb != "GET":
            self._count_write(token[0])
        return self._in_repository(verb, found[2], repository, token[2], query, body)

    def _as_app(self, verb: str, path: str, secret: str, body: Any) -> Answer:
        try:
            claims = jwt.decode(
                secret, self.public_key, algorithms=["RS256"],
                options={"require": ["iat", "exp", "iss"], "verify_exp": False, "verify_iat": False},
            )  # fmt: skip
        except jwt.PyJWTError as error:
            return Answer(401, shapes.fault(f"A JSON web token could not be decoded: {error}"))
        # PyGithub signs with the machine's clock, whatever time it is in this world.
        now = time.time()
        if str(claims["iss"]) not in (str(APP), CLIENT_ID) or not claims["iat"] <= now <= claims["exp"] <= now + 600:
            return Answer(
                401, shapes.fault("'Expiration time' claim ('exp') is too far in the future, or 'iss' is unknown")
            )
        if path == "/app":
            return Answer(200, shapes.app(APP, self.granted))
        if found := re.fullmatch(r"/repos/([^/]+/[^/]+)/installation", path):
            repository = self._named(found[1])
            if repository is None or repository.installation is None:
                return Answer(404, shapes.fault("Not Found"))
            number = repository.installation
            owner = repository.full_name.split("/")[0]
            told = shapes.installation(number, APP, owner, permissions=self.granted, suspended=number in self.suspended)
            return Answer(200, told)
        if (found := re.fullmatch(r"/app/installations/(\d+)/access_tokens", path)) and verb == "POST":
            return self._token(int(found[1]), body or {})
        return Answer(404, shapes.fault("Not Found"))

    def _token(self, installation: int, body: dict[str, Any]) -> Answer:
        mine = {each.id for each in self.repositories.values() if each.installation == installation}
        if not mine:
            return Answer(404, shapes.fault("Not Found"))
        if installation in self.suspended:
            return Answer(403, shapes.fault("This installation has been suspended"))
        wanted = frozenset(body.get("repository_ids") or mine)
        permissions = body.get("permissions") or self.granted
        if not wanted <= mine or any(_less(self.granted.get(name), level) for name, level in permissions.items()):
            return Answer(422, shapes.fault("There is at least one repository or permission that is not accessible"))
        text = f"ghs_{hashlib.sha256(str(len(self.requests)).encode()).hexdigest()[:36]}"
        ends = self.now() + self.token_seconds
        self.tokens[text] = (installation, wanted, dict(permissions), ends)
        moment = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Answer(
            201, {"token": text, "expires_at": moment, "permissions": permissions, "repository_selection": "selected"}
        )

    def _in_repository(
        self, verb: str, path: str, repository: Repository, permissions: dict[str, str], query: dict[str, str], body: Any
    ) -> Answer:  # fmt: skip
        def lacks(name: str, level: str) -> Answer | None:
            refused = _less(permissions.get(name), level) or _less(self.granted.get(name), level)
            return Answer(403, shapes.fault("Resource not accessible by integration")) if refused else None

        if verb == "GET" and (found := re.fullmatch(r"pulls/(\d+)", path)):
            return lacks("pull_requests", "read") or self._pull(repository, int(found[1]))
        if verb == "GET" and (found := re.fullmatch(r"contents/(.+)", path)):
            return lacks("contents", "read") or self._file(repository, query.get("ref", "main"), found[1])
        if verb == "GET" and (found := re.fullmatch(r"commits/([0-9a-f]+)/check-runs", path)):
            return lacks("checks", "read") or self._list(repository, found[1], query)
        if verb == "POST" and path == "check-runs":
            return lacks("checks", "write") or self._create(repository, body)
        if verb == "PATCH" and (found := re.fullmatch(r"check-runs/(\d+)", path)):
            return lacks("checks", "write") or self._update(repository, int(found[1]), body)
        return Answer(404, shapes.fault("Not Found"))

    def _pull(self, repository: Repository, number: int) -> Answer:
        pull = repository.pulls.get(number)
        if pull is None:
            return Answer(404, shapes.fault("Not Found"))
        base = shapes.repository(repository.id, repository.full_name)
        fork = shapes.repository(900, f"{pull.author or 'ghost'}/fork", fork=True)
        told = shapes.pull(
            number, base, None if pull.fork_deleted else fork if pull.fork else base, head_sha=pull.head_sha,
            base_ref=pull.base_ref, title=pull.title, author=shapes.user(pull.author or "ghost"), state=pull.state,
            draft=pull.draft,
        )  # fmt: skip
        return Answer(200, told)

    def _file(self, repository: Repository, ref: str, path: str) -> Answer:
        data = repository.files.get((ref, path))
        if data is None:
            return Answer(404, shapes.fault("Not Found"))
        return Answer(200, shapes.file(path, base64.encodebytes(data).decode(), len(data), repository.full_name))

    def _list(self, repository: Repository, head_sha: str, query: dict[str, str]) -> Answer:
        if head_sha not in repository.commits:
            return Answer(422, shapes.fault(f"No commit found for SHA: {head_sha}"))
        found = [
            run for run in self.runs.values() if run["head_sha"] == head_sha and run["repository"] == repository.id
        ]
        if "app_id" in query:
            found = [run for run in found if run["app"] == int(query["app_id"])]
        if query.get("filter", "latest") == "latest":
            found = list({(run["name"], run["app"]): run for run in found}.values())
        told = [self._told(repository, run) for run in sorted(found, key=lambda run: -run["id"])]
        return Answer(200, {"total_count": len(told), "check_runs": told[: int(query.get("per_page", 30))]})

    def _create(self, repository: Repository, body: dict[str, Any]) -> Answer:
        if refused := _refusal(body) or (None if body.get("name") else "name wasn't supplied"):
            return Answer(422, shapes.fault("Invalid request.", errors=[refused]))
        if body.get("head_sha") not in repository.commits:
            return Answer(422, shapes.fault(f"No commit found for SHA: {body.get('head_sha')}"))
        number = 100 + len(self.runs)
        run = {"id": number, "repository": repository.id, "app": APP, "status": "queued", "annotations": []}
        self.runs[number] = run
        return Answer(201, self._told(repository, _changed(run, body)))

    def _update(self, repository: Repository, number: int, body: dict[str, Any]) -> Answer:
        run = self.runs.get(number)
        if run is None or run["repository"] != repository.id:
            return Answer(404, shapes.fault("Not Found"))
        if run["app"] != APP:
            return Answer(
                403, shapes.fault("Invalid app_id - check run can only be modified by the GitHub App that created it.")
            )
        if refused := _refusal(body):
            return Answer(422, shapes.fault("Invalid request.", errors=[refused]))
        return Answer(200, self._told(repository, _changed(run, body)))

    def _told(self, repository: Repository, run: dict[str, Any]) -> dict[str, Any]:
        return shapes.run(run["id"], shapes.app(run["app"], self.granted), repository.full_name, run)

    def _named(self, full_name: str) -> Repository | None:
        return next((each for each in self.repositories.values() if each.full_name.lower() == full_name.lower()), None)

    def _count_write(self, installation: int) -> None:
        """Note where the documented limits of content are not kept: 80 in a minute, 500 in an hour."""
        times = self._writes.setdefault(installation, [])
        times.append(self.now())
        for span, most in zip(SPAN, MOST, strict=True):
            if sum(each > self.now() - span for each in times) > most:
                self.violations.append(f"more than {most} writes in {span:.0f} s")


def _less(have: str | None, wanted: str) -> bool:
    order = {None: 0, "read": 1, "write": 2}
    return order[have] < order[wanted]


def _changed(run: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    run.update({name: value for name, value in body.items() if name != "output"})
    if "conclusion" in body:
        run["status"] = "completed"
    elif run["status"] != "completed":
        run.pop("conclusion", None)
    if "output" in body:
        run["output"] = {name: value for name, value in body["output"].items() if name != "annotations"}
        run["annotations"] = [*run["annotations"], *body["output"].get("annotations", [])]
    return run


def _refusal(body: dict[str, Any]) -> str | None:
    """Return what GitHub would refuse about a check run, or None."""
    if body.get("status") == "completed" and body.get("conclusion") not in CONCLUSIONS:
        return "conclusion is missing"
    output = body.get("output", {})
    if output and "summary" not in output:
        return "summary wasn't supplied"
    for part in ("title", "summary", "text"):
        if len(output.get(part, "").encode()) > 65_535 or "\x00" in output.get(part, ""):
            return f"{part} is too long or holds NUL"
    if len(output.get("annotations", ())) > 50:
        return "only 50 annotations are allowed per request"
    for each in output.get("annotations", ()):
        right = each["start_line"] >= 1 and each["end_line"] >= each["start_line"] and each["path"] and each["message"]
        if (
            not right
            or each["annotation_level"] not in ("notice", "warning", "failure")
            or len(each.get("title", "")) > 255
        ):
            return f"annotation {each!r} is not right"
    return None


def _header(name: str) -> str:
    """Return a header's name as the rest of the answer spells it, so that it replaces that one."""
    spelt = "-".join(part.capitalize() for part in name.split("_"))
    return spelt.replace("X-Ratelimit", "X-RateLimit")
