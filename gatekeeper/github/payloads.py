"""JSON from outside, parsed with every limit that ``json`` does not have: depth, duplicate keys, number sizes, UTF-8 only."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from gatekeeper.domain.errors import Rejected

MAXIMUM_DEPTH = 64
"""GitHub's own payloads reach 10 levels; the parser itself gives up near 1,000."""
MAXIMUM_DIGITS = 19
"""Enough for every 64-bit id."""
LARGEST = (1 << 63) - 1
"""The largest id that a database holds; GitHub's own are far below."""
MAXIMUM_FLOAT_TEXT = 64


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``.

    Raises:
        Rejected: ``HOOK_MEDIA`` for anything but UTF-8, ``HOOK_JSON`` for what is not one JSON object within the limits.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejected(
            "the body is not UTF-8", code="HOOK_MEDIA", expected="UTF-8", found=f"byte {error.start}"
        ) from None
    if "\x00" in text or text.startswith("\ufeff"):
        raise Rejected("the body is not plain UTF-8", code="HOOK_MEDIA", expected="UTF-8 without a byte order mark")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        where = (
            f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "a bad number"
        )
        raise Rejected(
            "the body is not valid JSON", code="HOOK_JSON", expected="one JSON object", found=where
        ) from None
    if not isinstance(value, dict):
        raise Rejected("the body is not a JSON object", code="HOOK_JSON", expected="an object", found=_kind(value))
    _check_depth(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Rejected(
            "a JSON object names a key twice", code="HOOK_JSON", expected="each key once", found="a repeated key"
        )
    return result


def _constant(text: str) -> NoReturn:
    raise Rejected("the body holds a number that JSON does not have", code="HOOK_JSON", expected="finite", found=text)


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MAXIMUM_DIGITS:
        raise Rejected(
            "the body holds an integer that is too long",
            code="HOOK_JSON", expected=f"at most {MAXIMUM_DIGITS} digits", found=f"{len(text)} characters",
        )  # fmt: skip
    value = int(text)
    if not -LARGEST <= value <= LARGEST:
        raise Rejected(
            "the body holds an integer that is too large", code="HOOK_JSON", expected=f"at most {LARGEST}", found=text
        )
    return value


def _float(text: str) -> float:
    value = float(text) if len(text) <= MAXIMUM_FLOAT_TEXT else math.inf
    if not math.isfinite(value):
        raise Rejected(
            "the body holds a number that is too long or too large", code="HOOK_JSON", expected="a finite number"
        )
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAXIMUM_DEPTH):
        children: list[Any] = []
        for item in level:
            inner = item.values() if isinstance(item, dict) else item
            children.extend(child for child in inner if isinstance(child, dict | list))
        if not children:
            return
        level = children
    raise _too_deep()


def _too_deep() -> Rejected:
    return Rejected("the body is nested too deeply", code="HOOK_JSON", expected=f"at most {MAXIMUM_DEPTH} levels")


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(type(value), "a number")
