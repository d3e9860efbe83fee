"""Which modules a directory names, in imports and in texts. Read off its files by the trusted half of the probe."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.zone_texts import text_of

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_MOST_BYTES = 1 << 20
_MOST = 500
_LONGEST = 200


def named_modules(tree: Path, directory: str) -> tuple[str, ...]:
    """Return the dotted names that may be modules: imported anywhere in the files, also in functions, or spelled in a text.

    Of ``from a import b`` only ``a`` is one for certain, as ``b`` may be a class, unless ``a`` is a package around the directory.
    """
    own = directory.replace("/", ".")
    found: dict[str, None] = {}
    for path in sorted((tree / directory).rglob("*.py")):
        data = path.read_bytes()
        try:
            module = parse_python(data) if len(data) <= _MOST_BYTES else ast.Module([], [])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        package = path.relative_to(tree).parent.parts
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                found.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else ()
                name = ".".join([*above, *([node.module] if node.module else [])])
                found[name] = None
                if f"{own}.".startswith(f"{name}."):  # packages above hold modules, as a rule
                    found.update(dict.fromkeys(f"{name}.{alias.name}" for alias in node.names if alias.name != "*"))
            elif isinstance(node, ast.Constant | ast.BinOp | ast.JoinedStr | ast.Call):
                text = text_of(node)
                if text is not None and len(text) <= _LONGEST and _DOTTED.fullmatch(text):
                    found[text] = None
    return tuple(found)[:_MOST]
