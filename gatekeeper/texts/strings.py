"""How a text becomes a sentence, Markdown that nothing from outside can break, and no longer than GitHub takes."""

from __future__ import annotations

import re

GITHUB_SUMMARY_LIMIT = 65_535
"""Characters that GitHub takes in the summary of a check run."""


def plural(count: int, noun: str) -> str:
    """Return ``1 finding`` or ``3 findings``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percent(ratio: float) -> str:
    """Return a ratio of times as a gain: 1.0523 is ``+5.2 %``."""
    return f"{(ratio - 1) * 100:+.1f} %"


def sentence(text: str) -> str:
    """Return a text as a sentence: a capital letter unless it starts with a name, and a full stop."""
    if not text:
        return text
    first = text.split(maxsplit=1)[0].rstrip(".:;")  # before a comma stands the name of a target: `cpu, rows=1`
    start = text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
    return start if start[-1] in ".!?" else start + "."


def code(text: str) -> str:
    """Return text from outside as one Markdown code span on one line that nothing inside it can end."""
    flat = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat[0] == "`" or flat[-1] == "`" else ""
    shown = flat.replace("|", "\\|")  # a table cell ends at a bare bar, inside a code span too
    return f"{fence}{pad}{shown}{pad}{fence}"


def plain(text: str) -> str:
    """Return a text of ours that may quote text from outside, so that no Markdown, HTML or mention in it works."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|#~!])", r"\\\1", flat).replace("@", "@\u200b")


def cut(text: str, limit: int = GITHUB_SUMMARY_LIMIT) -> str:
    """Return the text, shortened at a line end with a remark if it is longer than GitHub takes."""
    if len(text) <= limit:
        return text
    remark = "\n\nThe rest does not fit here; the page of this pull request shows all of it."
    return text[: limit - len(remark)].rsplit("\n", 1)[0] + remark


def printable(text: str) -> str:
    """Return a text without what JSON or GitHub cannot hold: NUL, other control characters, halves of surrogate pairs."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", "\ufffd", text)


def fit(text: str, limit: int = GITHUB_SUMMARY_LIMIT) -> str:
    """Return a printable text that GitHub takes: at most ``limit`` bytes in UTF-8, and so at most as many characters.

    What is too long ends at a line end where there is one near, with a remark; a block of code that was cut open is closed.
    """
    text = printable(text)
    if len(text.encode()) <= limit:
        return text
    remark = "\n\nThe rest does not fit here; the page of this pull request shows all of it."
    if limit < 4 * len(remark):
        return text.encode()[: limit - 3].decode(errors="ignore") + "..."
    kept = text.encode()[: limit - len(remark) - 4].decode(errors="ignore")
    at = kept.rfind("\n")
    kept = kept[:at] if at > len(kept) // 2 else kept
    fences = len(re.findall(r"^```", kept, re.MULTILINE))
    return kept + ("\n```" if fences % 2 else "") + remark
