"""One bare mirror for each repository: what is fetched is checked on the way in, pinned, and never checked out."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.errors import Conflict, GatekeeperError, Rejected, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.git import plumbing
from gatekeeper.git.export import write_tree
from gatekeeper.git.repository import Repository
from gatekeeper.git.trees import GitTree
from gatekeeper.git.urls import branch_ref, pull_ref, remote

FETCH_SECONDS = 300.0
LOCK_SECONDS = 330.0
_HEAD, _BASE = "refs/gatekeeper/incoming/head", "refs/gatekeeper/incoming/base"
_GONE = ("couldn't find remote ref", "no such remote ref")
_FSCK = (
    "fsck error",
    "fsckobjects",
    "badtree",
    "hasdot",
    "fullpathname",
    "duplicateentries",
    "treenotsorted",
    "emptyname",
)
_SHALLOW = ("shallow",)

TokenSource = Callable[[RepositoryRef], str | None]
"""Gives a read-only access token for one repository, or None for anonymous access."""


@dataclass(frozen=True)
class Fetched:
    """Full commit ids as they were at the remote when the fetch ran. Both are pinned in the mirror."""

    head_sha: str
    base_sha: str


class Mirror(Repository):
    """The bare mirror of one repository on the forge."""

    def __init__(
        self, git_dir: Path, repository: RepositoryRef, base_url: str, token: TokenSource | None = None
    ) -> None:
        super().__init__(git_dir)
        self.repository = repository
        self._remote = remote(base_url)
        self._url = self._remote.url(repository.full_name)
        self._token = token
        self._thread_lock = threading.Lock()

    def fetch_pull(self, number: int, base_ref: str, *, expected_head: str | None = None) -> Fetched:
        """Fetch the head of a pull request and the tip of its base branch, and pin both.

        Args:
            number: pull request number.
            base_ref: branch name without ``refs/heads/``.
            expected_head: full id that the forge names as the head, if known.

        Raises:
            Rejected: ``CI_REF`` for a name that is no branch; ``ISO_MALFORMED_TREE`` if git's check of the objects fails.
            Conflict: ``REF_GONE`` if a ref has vanished; ``HEAD_MOVED`` if the head is another commit than expected.
            Retryable: ``GIT_FETCH`` if the remote cannot be reached; ``GIT_TIMEOUT``; ``GIT_LOCK``.
            ConfigurationError: ``ISO_SHALLOW`` if the mirror is not complete.
        """
        wanted = None if expected_head is None else plumbing.full_id(expected_head)
        specs = [f"+{pull_ref(number)}:{_HEAD}", f"+{branch_ref(base_ref)}:{_BASE}"]
        with self._locked():
            self._fetch(specs)
            fetched = Fetched(head_sha=self._commit(_HEAD), base_sha=self._commit(_BASE))
            if wanted is not None and fetched.head_sha != wanted:
                raise Conflict("the head has moved", code="HEAD_MOVED", expected=wanted, found=fetched.head_sha)
            self._pin(fetched.head_sha, fetched.base_sha)
        return fetched

    def fetch_branch(self, name: str) -> str:
        """Fetch and pin the tip of one branch; return its full id. The same errors as :meth:`fetch_pull`."""
        spec = f"+{branch_ref(name)}:{_BASE}"
        with self._locked():
            self._fetch([spec])
            tip = self._commit(_BASE)
            self._pin(tip)
        return tip

    def remote_head(self, number: int) -> str | None:
        """Return the full id that the remote names as the head of a pull request, without fetching it; None: no such ref.

        Raises:
            Retryable: ``GIT_FETCH`` if the remote cannot be reached; ``GIT_TIMEOUT``.
        """
        ref = pull_ref(number)
        with self._locked():
            self._initialise()
            listed = self._ask_remote("ls-remote", "--quiet", "--", self._url, ref).text
        found = [line.partition("\t") for line in listed.splitlines()]
        return next((plumbing.full_id(id) for id, _, name in found if name == ref), None)

    def pin(self, *ids: str) -> None:
        """Keep objects (commits or trees) by a ref of their own id, ``refs/gatekeeper/<id>``."""
        with self._locked():
            self._pin(*ids)

    def write_tree(self, tree: GitTree, directory: str, target: Path) -> str:
        """Write one directory of a tree below ``target``; see :func:`gatekeeper.git.export.write_tree`."""
        return write_tree(tree, directory, target)

    def _pin(self, *ids: str) -> None:
        lines = "".join(f"update refs/gatekeeper/{plumbing.full_id(id)} {id}\n" for id in ids)
        plumbing.run(self.git_dir, "update-ref", "--stdin", stdin=lines.encode())

    def _commit(self, ref: str) -> str:
        return plumbing.full_id(
            plumbing.run(self.git_dir, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}").text
        )

    def _fetch(self, specs: list[str]) -> None:
        self._initialise()
        self.require_complete()
        flags = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-gc", "--atomic")
        self._ask_remote("fetch", *flags, "--", self._url, *specs)
        self.require_complete()

    def _ask_remote(self, command: str, *arguments: str) -> plumbing.Completed:
        token = self._token(self.repository) if self._token is not None else None
        try:
            return plumbing.run(
                self.git_dir,
                command,
                *arguments,
                seconds=FETCH_SECONDS,
                protocol=self._remote.scheme,
                configuration=_authorization(self._remote.base, token),
                secrets=[token, _basic(token)] if token else (),
            )
        except (Retryable, Rejected):
            raise
        except GatekeeperError as error:
            raise _fetch_error(error) from error

    def _initialise(self) -> None:
        if not (self.git_dir / "HEAD").exists():
            self.git_dir.mkdir(parents=True, exist_ok=True)
            plumbing.run(self.git_dir, "init", "--quiet", "--bare", "--template=", "--initial-branch=none")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the mirror alone, among the threads of this process and among processes."""
        if not self._thread_lock.acquire(timeout=LOCK_SECONDS):
            raise Retryable("another thread holds the mirror", code="GIT_LOCK")
        try:
            self.git_dir.parent.mkdir(parents=True, exist_ok=True)
            file = self.git_dir.with_suffix(".lock")
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock_file(descriptor)
                yield
            finally:
                os.close(descriptor)
        finally:
            self._thread_lock.release()


class Mirrors:
    """All mirrors below one directory, one for each repository id: a renamed repository keeps its mirror."""

    def __init__(self, directory: Path, base_url: str, token: TokenSource | None = None) -> None:
        """Check ``base_url`` at once.

        Raises:
            ConfigurationError: ``CI_URL``, see :func:`gatekeeper.git.urls.remote`.
        """
        remote(base_url)
        self._directory = directory.absolute()
        self._base_url = base_url
        self._token = token
        self._lock = threading.Lock()
        self._open: dict[tuple[int, str], Mirror] = {}

    def open(self, repository: RepositoryRef) -> Mirror:
        """Return the mirror of a repository, the same object for the same id and name. Nothing is fetched yet.

        Raises:
            Rejected: ``CI_URL`` for a name that is not OWNER/NAME.
        """
        key = (repository.id, repository.full_name)
        with self._lock:
            if key not in self._open:
                git_dir = self._directory / f"{repository.id}.git"
                self._open[key] = Mirror(git_dir, repository, self._base_url, self._token)
            return self._open[key]

    def close(self) -> None:
        """End all reading processes."""
        with self._lock:
            for mirror in self._open.values():
                mirror.close()
            self._open.clear()


def _lock_file(descriptor: int) -> None:
    """Take the lock that processes share; it goes with the descriptor, also when a process dies."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Retryable("another process holds the mirror", code="GIT_LOCK") from None
            time.sleep(0.02)


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode("ascii")


def _authorization(base: str, token: str | None) -> dict[str, str]:
    """Return the header as configuration for this host only: it appears in no URL, file or process list."""
    return {f"http.{base}/.extraHeader": f"Authorization: Basic {_basic(token)}"} if token else {}


def _fetch_error(error: GatekeeperError) -> GatekeeperError:
    told = error.message.lower()
    if any(sign in told for sign in _GONE):
        return Conflict("the ref has vanished at the remote", code="REF_GONE", found=error.message)
    if any(sign in told for sign in _FSCK):
        return Rejected(
            "git refuses the objects",
            code="ISO_MALFORMED_TREE",
            expected="objects that git fsck accepts",
            found=error.message,
        )
    if any(sign in told for sign in _SHALLOW):
        return Retryable("the remote is shallow", code="ISO_SHALLOW", expected="a complete remote", found=error.message)
    return Retryable("the remote cannot be fetched from", code="GIT_FETCH", found=error.message)
