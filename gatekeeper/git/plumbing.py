"""The one place that starts git: argument arrays, an environment built from nothing, limits on time and output."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.errors import ConfigurationError, GatekeeperError, Rejected, Retryable

MINIMUM_VERSION = (2, 38)
"""``git merge-tree --write-tree`` came with 2.38."""

DEFAULT_SECONDS = 60.0
DEFAULT_OUTPUT_BYTES = 64 * 1024 * 1024
SHOWN_ERROR_CHARACTERS = 600

_FULL_ID = re.compile(r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_CREDENTIALS = (
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=authorization:)[^\r\n]*"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{10,}|github_pat_[A-Za-z0-9_]{10,})"),
)
_NETWORK_VARIABLES = ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")

# Given on the command scope, which wins over every configuration file, a repository's own included.
_CONFIGURATION = {
    "advice.graftFileDeprecated": "false",
    "core.alternateRefsCommand": "true",
    "core.attributesFile": "/dev/null",
    "core.askPass": "",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.sshCommand": "false",
    "core.pager": "cat",
    "credential.helper": "",
    "diff.renames": "false",
    "diff.renameLimit": "1000",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "fetch.writeCommitGraph": "false",
    "gc.auto": "0",
    "http.followRedirects": "false",
    "maintenance.auto": "false",
    "merge.directoryRenames": "conflict",
    "merge.renameLimit": "7000",
    "merge.renames": "true",
    "protocol.version": "2",
    "receive.fsckObjects": "true",
    "safe.bareRepository": "explicit",
    "safe.directory": "*",
    "submodule.recurse": "false",
    "transfer.bundleURI": "false",
    "transfer.fsckObjects": "true",
}


@dataclass(frozen=True)
class Completed:
    """A finished git command: exit status, standard output as bytes, scrubbed standard error as text."""

    status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The output without its last line end. Only for output that is known to be ASCII."""
        return self.output.decode("ascii", "backslashreplace").rstrip("\n")


def full_id(value: str) -> str:
    """Return ``value`` if it is a full-length lower-case hexadecimal object id.

    Raises:
        Rejected: ``ISO_ID`` for anything else. Short ids are refused because a branch of that name would win over them.
    """
    if not _FULL_ID.match(value):
        raise Rejected(
            "not a full object id",
            code="ISO_ID",
            expected="40 or 64 lower-case hexadecimal digits",
            found=repr(value[:80]),
        )
    return value


def scrub(text: str, secrets: Sequence[str] = ()) -> str:
    """Return ``text`` without credentials: known secrets, user parts of URLs, authorization headers, GitHub tokens."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    for pattern in _CREDENTIALS:
        text = pattern.sub("***", text)
    return text


@functools.cache
def executable() -> str:
    """Return the absolute path of git, once its version is known to be good enough.

    Raises:
        ConfigurationError: ``GIT_MISSING`` or ``GIT_TOO_OLD``.
    """
    found = shutil.which("git")
    if found is None:
        raise ConfigurationError("git is not installed", code="GIT_MISSING", expected="git 2.38 or newer", found="none")
    told = subprocess.run([found, "version"], capture_output=True, env={"LC_ALL": "C"}, timeout=20, check=False)
    check_version(told.stdout.decode("utf-8", "replace"))
    return str(Path(found).absolute())


def check_version(told: str) -> tuple[int, int]:
    """Return (major, minor) of what ``git version`` printed.

    Raises:
        ConfigurationError: ``GIT_TOO_OLD`` below :data:`MINIMUM_VERSION`, or if the text holds no version.
    """
    match = re.match(r"git version (\d+)\.(\d+)", told)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < MINIMUM_VERSION:
        raise ConfigurationError(
            "git is too old", code="GIT_TOO_OLD", expected="git 2.38 or newer", found=told.strip()[:80] or "no version"
        )
    return version


def environment(
    git_dir: Path | None,
    *,
    protocol: str = "",
    network: bool = False,
    configuration: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the whole environment of a git process.

    ``protocol`` is the only transport that may be used (none by default); ``network`` lets proxy and certificate settings of
    this process through; ``configuration`` adds command-scope keys, which never show up in a process list.
    """
    settings = _CONFIGURATION | dict(configuration or {})
    made = {
        "PATH": f"{Path(executable()).parent}:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_ALLOW_PROTOCOL": protocol or "none",
        "GIT_ASKPASS": "true",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for number, (key, value) in enumerate(sorted(settings.items())):
        made[f"GIT_CONFIG_KEY_{number}"] = key
        made[f"GIT_CONFIG_VALUE_{number}"] = value
    if git_dir is not None:
        made["GIT_DIR"] = str(
            git_dir.absolute()
        )  # git is run in the repository, from where a relative path leads astray
    if network:
        made |= {name: os.environ[name] for name in _NETWORK_VARIABLES if name in os.environ}
    return made


def run(
    git_dir: Path | None,
    command: str,
    *arguments: str,
    allowed: Sequence[int] = (0,),
    stdin: bytes = b"",
    cwd: Path | None = None,
    seconds: float = DEFAULT_SECONDS,
    output_bytes: int = DEFAULT_OUTPUT_BYTES,
    protocol: str = "",
    configuration: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
) -> Completed:
    """Run ``git <command> <arguments>`` and return what it said.

    Args:
        git_dir: the repository, always explicit; None only for commands that look for one themselves from ``cwd``.
        command: the subcommand, for example ``merge-base``. Callers put ``--`` or ``--end-of-options`` before any value.
        arguments: passed on as they are; there is no shell.
        allowed: exit statuses that are answers; any other raises.
        protocol: the one transport that the command may use.
        secrets: texts that must not appear in an error.

    Raises:
        Retryable: ``GIT_TIMEOUT`` when ``seconds`` have passed, or when the process was killed from outside.
        GatekeeperError: ``GIT_FAILED`` for an exit status that is not allowed; ``GIT_OUTPUT`` for too much output.
    """
    arguments_list = [executable(), "--no-pager", "--no-optional-locks", command, *arguments]
    variables = environment(git_dir, protocol=protocol, network=bool(protocol), configuration=configuration)
    where = cwd or git_dir
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            arguments_list,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=variables,
            cwd=where,
            start_new_session=True,
        )
        try:
            process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Retryable(
                f"git {command} took too long",
                code="GIT_TIMEOUT",
                expected=f"at most {seconds:g} s",
                found="still running",
            ) from None
        finally:
            _end(process)
        told = scrub(_tail(errors.fileno()), secrets)
        size = os.fstat(output.fileno()).st_size
        output.seek(0)
        said = output.read(output_bytes + 1)
    if process.returncode < 0:
        raise Retryable(f"git {command} was killed by signal {-process.returncode}", code="GIT_KILLED")
    if process.returncode not in allowed:
        raise GatekeeperError(
            f"git {command} failed: {told or 'no message'}",
            code="GIT_FAILED",
            expected=f"exit status {' or '.join(map(str, allowed))}",
            found=str(process.returncode),
        )
    if size > output_bytes:
        raise GatekeeperError(
            f"git {command} said too much", code="GIT_OUTPUT", expected=f"at most {output_bytes} bytes", found=str(size)
        )
    return Completed(process.returncode, said, told)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: a transport helper must not outlive its git."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        process.wait()


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    raw = os.pread(descriptor, 4 * SHOWN_ERROR_CHARACTERS, max(0, size - 4 * SHOWN_ERROR_CHARACTERS))
    lines = [line for line in raw.decode("utf-8", "backslashreplace").splitlines() if line.strip()]
    return " / ".join(lines)[-SHOWN_ERROR_CHARACTERS:]
