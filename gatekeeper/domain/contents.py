"""What the bytes of a source file must be: few enough to be read, text, and the same text to a reader as to Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gatekeeper.domain.policy import Finding
from gatekeeper.domain.python_source import foreign_encoding

# Marks that turn text around (bidirectional controls), and characters that move the cursor or end a line for some programs
# only: a carriage return alone, backspace, escape, vertical tab, C1 controls, the line and paragraph separators.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MOVING = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f-\x9f\u2028\u2029]|\r(?!\n)")
# Characters that take no room. Emoji in prose are joined by some of these, so prose may hold them.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200d\u2060-\u2064\ufeff\uffa0\U000e0000-\U000e007f]"
)


def content_faults(path: str, data: bytes, largest: int) -> Iterator[Finding]:
    """Yield what is wrong with a file's bytes: too many, not text, or text that people and Python read differently."""
    if len(data) > largest:
        yield _fault(
            "SRC_TOO_LARGE", "a file too large to be reviewed", path, f"at most {largest} bytes", f"{len(data)} bytes"
        )
        return
    if b"\0" in data:
        yield _fault("SRC_BINARY", "a file that nobody can read", path, "text in UTF-8", "a NUL byte")
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {error.start}: {error.reason}"
        yield _fault("SRC_BINARY", "a file that nobody can read", path, "text in UTF-8", found)
        return
    yield from _hidden(path, text.removeprefix("\ufeff"))
    if path.endswith(".py") and (cookie := foreign_encoding(data)):
        yield _fault("SRC_HIDDEN_TEXT", "Python reads this file in another encoding than people do", path, "UTF-8", cookie[1],
                     cookie[0])  # fmt: skip


def _hidden(path: str, text: str) -> Iterator[Finding]:
    for pattern, message, prose in (
        (_TURNING, "text that reads in another order than it runs", True),
        (_MOVING, "a character that moves the cursor, or ends a line for some programs only", True),
        (_UNSEEN, "a character that nobody sees", False),
    ):
        found = pattern.search(text)
        if found and (prose or not path.endswith(".md")):
            line = text[: found.start()].count("\n") + 1
            yield _fault("SRC_HIDDEN_TEXT", message, path, "visible characters", f"U+{ord(found.group()):04X}", line)
            return


def _fault(code: str, message: str, path: str, expected: str, found: str, line: int | None = None) -> Finding:
    return Finding(code=code, message=message, path=path, expected=expected, found=found, line=line)
