"""Names of files: which tools act upon by themselves, which name dependencies, which hold what nobody can read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from gatekeeper.domain.policy import Effect, Finding

_IMPORTED = ("conftest.py", "sitecustomize.py", "usercustomize.py")
_BUILDS = (
    "setup.py", "setup.cfg", "pyproject.toml", "hatch_build.py", "hatch.toml", "build.rs", "cargo.toml", "cmakelists.txt",
    "cmakepresets.json", "cmakeuserpresets.json", "meson.build", "build.ninja", "vcpkg.json", "makefile", "gnumakefile",
    "justfile", "sconstruct", "wscript", "tasks.py", "fabfile.py", "dodo.py", "versioneer.py",
)  # fmt: skip
_TOOLS = (
    "noxfile.py", "tox.ini", "toxfile.py", "tox.toml", "pytest.ini", "pytest.toml", "ruff.toml", "mypy.ini", "bandit.toml",
    "pyrightconfig.json", "pdm.toml", "poetry.toml", "uv.toml", "pixi.toml", "mise.toml", "tsconfig.json", "renovate.json",
    "devcontainer.json", "rust-toolchain.toml", "rustfmt.toml", "clippy.toml", "taplo.toml", "typos.toml", "_typos.toml",
    "dockerfile", "netlify.toml", "fly.toml", "vercel.json", "firebase.json", "composer.json", "deno.json", "nx.json",
)  # fmt: skip
_ASSISTANTS = ("agents.md", "claude.md", "gemini.md", "copilot-instructions.md", "skill.md", "mcp.json")
ACTING_NAMES = frozenset((*_IMPORTED, *_BUILDS, *_TOOLS, *_ASSISTANTS))
"""Read, imported or obeyed by some tool only because of how they are called. Names that begin with a dot are refused anyway."""

DEPENDENCY_NAMES = frozenset({
    "pipfile", "pipfile.lock", "poetry.lock", "uv.lock", "pdm.lock", "pixi.lock", "cargo.lock", "environment.yml",
    "environment.yaml", "constraints.txt", "package.json", "package-lock.json", "yarn.lock", "pylock.toml", "conda-lock.yml",
})  # fmt: skip
BINARY_SUFFIXES = frozenset({
    ".so", ".pyd", ".dll", ".dylib", ".pyc", ".pyo", ".cubin", ".fatbin", ".ptx", ".o", ".a", ".pt", ".pth.tar", ".bin",
    ".npy", ".npz", ".pkl", ".pickle", ".safetensors", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".zst", ".whl", ".egg", ".xz",
    ".hsaco", ".onnx", ".h5", ".joblib", ".jar", ".exe",
})  # fmt: skip


def name_faults(
    path: str, *, allowed: Sequence[str], native: Sequence[str], owners: tuple[str, ...], tests: bool
) -> Iterator[Finding]:
    """Yield what is wrong with a file's name. ``tests``: a tests directory may hold a ``conftest.py`` if its owner agrees."""
    name = posixpath.basename(path).casefold()
    stem, suffix = posixpath.splitext(name)
    lock = name.startswith("pylock.") and suffix == ".toml"
    if name in DEPENDENCY_NAMES or lock or (stem.startswith("requirements") and suffix in (".txt", ".in", "")):
        yield _fault("SRC_NEW_DEPENDENCY", "a list of dependencies", path, "no dependencies of its own", name)
    elif name in ACTING_NAMES or suffix == ".pth":
        held = tests and name == "conftest.py"
        yield Finding(code="SRC_FILE_NAME", message="a file that tools act upon by its name", path=path, found=name,
                      expected="a name that no tool acts upon", effect=Effect.HOLD if held else Effect.FAIL,
                      waivable_by=owners if held else ())  # fmt: skip
    elif suffix in BINARY_SUFFIXES:
        yield _fault("SRC_BINARY", "a file that nobody can read", path, f"one of {' '.join(allowed)}", suffix)
    elif posixpath.splitext(path)[1] not in allowed:
        # In its own spelling: `K.PY` is Python on some machines and no module on others.
        yield Finding(code="SRC_FILE_TYPE", message="a type of file that does not belong here", path=path,
                      expected=f"one of {' '.join(allowed)}", found=posixpath.splitext(path)[1] or "no suffix",
                      waivable_by=owners if suffix in native else ())  # fmt: skip


def _fault(code: str, message: str, path: str, expected: str, found: str) -> Finding:
    return Finding(code=code, message=message, path=path, expected=expected, found=found)
