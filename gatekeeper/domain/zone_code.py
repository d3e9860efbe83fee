"""What Python of a specialised directory does beyond it: changes of foreign objects, code from data, work that nobody called for.

A reading of the text: it names the careless and the plain, early and with a line. Whoever wants to can write around it, which
is why nothing trusted ever shares a process with this code, and why the probe looks at what really happened.
"""

from __future__ import annotations

from collections.abc import Iterator

from gatekeeper.domain.import_graph import imports_of
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.zone_scan import Reading, Scan, Seen
from gatekeeper.domain.zone_texts import odd_names

_MOST = 50


def read_code(source: bytes, path: str, package: str) -> Reading:
    """Read a Python file at ``path`` in the directory of dotted name ``package``.

    One that does not parse shows nothing but why; one nested too deeply to be read shows its imports.
    """
    try:
        reading = Scan(path, package, parse_python(source)).reading
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Reading(imports=list(imports_of(source, path)), unread=_why(error))
    names = [Seen("SRC_HIDDEN_TEXT", line, f"{name} = {name!a}"[:160]) for line, name in odd_names(source)]
    reading.names = names[:_MOST]
    reading.imports.sort(key=lambda each: each[1])
    reading.seen = sorted(set(reading.seen), key=lambda each: (each.line, each.code, each.found))[:_MOST]
    return reading


def _why(error: BaseException) -> str:
    return (
        f"line {error.lineno}: {error.msg}"[:160]
        if isinstance(error, SyntaxError)
        else "nested too deeply, or a zero byte"
    )


EXPLAINED = {
    "ISO_FOREIGN_MUTATION": ("something outside the directory is changed", "changes of one's own objects only"),
    "SRC_DYNAMIC_CODE": ("code that cannot be read here is run", "code that lies in this directory, as Python"),
    "SRC_UNSAFE_LOAD": ("data is loaded in a way that may run code", "data as JSON"),
    "SRC_OPAQUE_DATA": ("a text that nobody can read", "source, or data in a file of its own"),
    "EFF_BACKGROUND_WORK": ("work that goes on after the call", "work that is done when the call returns"),
    "EFF_TORCH_MODE": ("a mode that answers for every operator of the process", "operators as they are"),
    "EFF_IMPORT_SIDE_EFFECT": ("work that is done whenever the file is imported", "definitions; work inside functions"),
}
"""Reason code of what is seen to (message, expected)."""
_CLOSER = {
    "modules": ("modules of others are taken out of the table of all modules", "an import that names the module"),
    "frames": ("what other callers hold is read from their frames", "what a function is given"),
    "switch": (
        "a setting of PyTorch is changed for the whole process",
        "a `with` around the one call, where there is such a one",
    ),
    "held": ("a mode of PyTorch is entered and not left", "a `with` around the one call"),
}
"""The same for those sights that one code alone does not explain, by :attr:`Seen.why`."""
ODD_NAME = ("a name with letters that look like others", "names of ASCII letters")
"""Message and expectation of a ``SRC_HIDDEN_TEXT`` among the names."""


def explained(seen: Seen) -> tuple[str, str]:
    """Return the message of a sight, and what is expected in its place."""
    return _CLOSER.get(seen.why) or EXPLAINED[seen.code]


def fresh(after: list[Seen], before: list[Seen]) -> Iterator[Seen]:
    """Yield what the new text of a file shows and the old one did not."""
    known = {(each.code, each.found) for each in before}
    yield from (each for each in after if (each.code, each.found) not in known)
