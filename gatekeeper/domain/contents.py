"""What may lie in a specialised directory: readable source under a name that no tool acts upon by itself."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from gatekeeper.domain.policy import Effect, Finding

ACTING_NAMES = frozenset({
    "conftest.py", "setup.py", "setup.cfg", "sitecustomize.py", "usercustomize.py", "noxfile.py", "tox.ini", "pytest.ini",
    "pyproject.toml", "makefile", "gnumakefile", "dockerfile", "cmakelists.txt", "meson.build", "build.ninja", "justfile",
})  # fmt: skip
DEPENDENCY_NAMES = frozenset(
    {"pipfile", "poetry.lock", "uv.lock", "environment.yml", "environment.yaml", "constraints.txt"}
)
BINARY_SUFFIXES = frozenset({
    ".so", ".pyd", ".dll", ".dylib", ".pyc", ".pyo", ".cubin", ".fatbin", ".ptx", ".o", ".a", ".pt", ".bin", ".npy", ".npz",
    ".pkl", ".pickle", ".safetensors", ".zip", ".tar", ".gz", ".whl", ".egg", ".xz",
})  # fmt: skip
# Marks that make text read in another order than it is stored (U+202A to U+202E, U+2066 to U+2069).
_REORDERING = tuple(chr(code).encode() for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))


def name_faults(
    path: str, *, allowed: Sequence[str], native: Sequence[str], owners: tuple[str, ...], tests: bool
) -> Iterator[Finding]:
    """Yield what is wrong with a file's name. ``tests``: a tests directory may hold a ``conftest.py`` if its owner agrees."""
    name = posixpath.basename(path).casefold()
    stem, suffix = posixpath.splitext(name)
    if name in DEPENDENCY_NAMES or (stem.startswith("requirements") and suffix in (".txt", ".in", "")):
        yield _fault("SRC_NEW_DEPENDENCY", "a list of dependencies", path, "no dependencies of its own", name)
    elif name in ACTING_NAMES or suffix == ".pth":
        held = tests and name == "conftest.py"
        yield Finding(code="SRC_FILE_NAME", message="a file that tools act upon by its name", path=path, found=name,
                      expected="a name that no tool acts upon", effect=Effect.HOLD if held else Effect.FAIL,
                      waivable_by=owners if held else ())  # fmt: skip
    elif suffix in BINARY_SUFFIXES:
        yield _fault("SRC_BINARY", "a file that nobody can read", path, f"one of {' '.join(allowed)}", suffix)
    elif suffix not in allowed:
        yield Finding(code="SRC_FILE_TYPE", message="a type of file that does not belong here", path=path,
                      expected=f"one of {' '.join(allowed)}", found=suffix or "no suffix",
                      waivable_by=owners if suffix in native else ())  # fmt: skip


def content_faults(path: str, data: bytes, largest: int) -> Iterator[Finding]:
    """Yield what is wrong with a file's bytes: too many, not text, or text that reads in another order than it runs."""
    if len(data) > largest:
        yield _fault(
            "SRC_TOO_LARGE", "a file too large to be reviewed", path, f"at most {largest} bytes", f"{len(data)} bytes"
        )
        return
    if b"\0" in data:
        yield _fault("SRC_BINARY", "a file that nobody can read", path, "text in UTF-8", "a NUL byte")
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield _fault(
            "SRC_BINARY", "a file that nobody can read", path, "text in UTF-8", f"byte {error.start}: {error.reason}"
        )
        return
    for mark in _REORDERING:
        if mark in data:
            line = data[: data.index(mark)].count(b"\n") + 1
            yield Finding(code="SRC_HIDDEN_TEXT", message="text that reads in another order than it runs", path=path, line=line,
                          expected="no bidirectional control character", found=f"U+{ord(mark.decode()):04X}")  # fmt: skip
            return


def _fault(code: str, message: str, path: str, expected: str, found: str) -> Finding:
    return Finding(code=code, message=message, path=path, expected=expected, found=found)
