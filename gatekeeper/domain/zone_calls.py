"""What a call in a specialised directory does to others: its reason code, where it has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gatekeeper.domain import risky_names as risky
from gatekeeper.domain.risky_attributes import SCOPED, kind_of, torch_switch
from gatekeeper.domain.zone_names import Meanings
from gatekeeper.domain.zone_texts import text_of

_WRITING = re.compile("[wax+]")
MUTATION, CODE, MODE = "ISO_FOREIGN_MUTATION", "SRC_DYNAMIC_CODE", "EFF_TORCH_MODE"
LAST_NAMES = frozenset(
    name.rpartition(".")[2] for name in (*risky.UNSAFE_LOADS, *risky.RUNS_CODE, *risky.PROCESS_WIDE, *risky.BACKGROUND)
) | {*risky.CHANGES_CONTAINER, "run", "call", "check_call", "check_output", "Popen", "Process", "Pool", "spawn"}
"""Last names of what is risky to hand on: most attributes among arguments have others."""
Told = tuple[str, str]
"""Reason code, and which of its explanations fits; an empty text for the usual one."""


def code_of(called: str, node: ast.Call, meanings: Meanings, *, awake: bool, scoped: bool) -> Told | None:
    """Return what is to be told of a call of the foreign ``called``. ``awake``: it runs as the file is imported; ``scoped``: a
    ``with`` or a decorator takes it back."""
    base, _, last = called.rpartition(".")
    if last in risky.CHANGES_BY_HAND and node.args and meanings.foreign(node.args[0]):
        return MUTATION, ""
    if listed(called, risky.UNSAFE_LOADS):
        return "SRC_UNSAFE_LOAD", ""
    if listed(called, risky.RUNS_CODE):
        return CODE, ""
    if told := switch_of(called, scoped=scoped):
        return told
    if (
        called in risky.PROCESS_WIDE
        or _overrides(called, node, meanings)
        or _changes_container(node, base, last, meanings)
    ):
        return MUTATION, ""
    if (
        last in risky.CHANGES_CONTAINER
        and base.startswith("collections.")
        and node.args
        and meanings.foreign(node.args[0])
    ):
        return MUTATION, ""
    if called == "operator.methodcaller":
        return _by_name(text_of(node.args[0]) if node.args else None)
    if listed(called, risky.BACKGROUND):
        return "EFF_BACKGROUND_WORK", ""
    if called in risky.TORCH_MODES:
        return MODE, ""
    return ("EFF_IMPORT_SIDE_EFFECT", "") if awake and _works(called, node) else None


def switch_of(dotted: str, *, scoped: bool) -> Told | None:
    """Return what is to be told of a setting of PyTorch that is named outside a ``with``."""
    kind = torch_switch(dotted)
    if kind is None or (scoped and (kind == "guard" or dotted.rpartition(".")[2] in SCOPED)):
        return None
    return (MODE, "held") if kind == "guard" else (MUTATION, "switch")


def risky_value(dotted: str, meanings: Meanings) -> str | None:
    """Return the code of something that runs code or changes others, where it is handed to somebody who will call it."""
    base, _, last = dotted.rpartition(".")
    if last in risky.CHANGES_CONTAINER:
        foreign = (
            bool(base)
            and not meanings.own(base)
            and base.partition(".")[0] not in ("dict", "list", "set", "object", "type")
        )
        by_hand = last in risky.CHANGES_BY_HAND
        return MUTATION if foreign and (by_hand or ("." in base and base not in meanings.modules)) else None
    if listed(dotted, risky.UNSAFE_LOADS):
        return "SRC_UNSAFE_LOAD"
    if listed(dotted, risky.RUNS_CODE):
        return CODE
    if dotted in risky.PROCESS_WIDE:
        return MUTATION
    return "EFF_BACKGROUND_WORK" if listed(dotted, risky.BACKGROUND) else None


def _by_name(name: str | None) -> Told | None:
    """A method that is called by a text: one that cannot be read here, or that changes what it is called on."""
    if name is None:
        return CODE, ""
    changing = name in risky.CHANGES_BY_HAND or kind_of(name) in ("switch", "enter")
    return (MUTATION, "") if changing else None


def listed(called: str, names: frozenset[str]) -> bool:
    """Whether a dotted name, or one that it lies below, is among ``names``."""
    parts = called.split(".")
    return any(".".join(parts[:depth]) in names for depth in range(1, len(parts) + 1))


def flat(values: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield expressions, and in place of a written-out list its members."""
    for each in values:
        yield from each.elts if isinstance(each, ast.Tuple | ast.List) else (each,)


def _changes_container(node: ast.Call, base: str, method: str, meanings: Meanings) -> bool:
    """Whether a call looks like one of a list's or table's methods on something foreign that is no module itself."""
    fewest, most = risky.CHANGES_CONTAINER.get(method, (1, 0))
    if not fewest <= len(node.args) <= most or meanings.own(base):
        return False
    return bool(base) and (method in risky.CHANGES_BY_HAND or ("." in base and base not in meanings.modules))


def _overrides(called: str, node: ast.Call, meanings: Meanings) -> bool:
    """Whether a call gives one of PyTorch's own operators another implementation."""
    if called.endswith(".py_impl"):
        return _stock_operator(called.removeprefix("torch.ops.").replace(".", "::", 1), called)
    if not called.startswith("torch.library."):
        return False
    named = [keyword.value for keyword in node.keywords if keyword.arg in ("ns", "qualname", "name", "op", "lib")]
    for each in (*node.args[:1], *named):
        dotted = meanings.dotted(each) or ""
        text = text_of(each) or dotted.removeprefix("torch.ops.").replace(".", "::", 1)
        if _stock_operator(text, dotted or "torch.ops."):
            return True
    return False


def _stock_operator(name: str, dotted: str) -> bool:
    return dotted.startswith("torch.ops.") and name.partition("::")[0] in risky.STOCK_OPERATORS


def _works(called: str, node: ast.Call) -> bool:
    """Whether a call does something that nobody who only imports the file has asked for."""
    if called in ("open", "io.open"):
        given = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        return any(isinstance(each, ast.Constant) and _WRITING.search(str(each.value)) for each in given)
    if called in risky.TENSOR_MAKERS:
        devices = (keyword.value for keyword in node.keywords if keyword.arg == "device")
        return any(isinstance(each, ast.Constant) and str(each.value).startswith("cuda") for each in devices)
    return listed(called, risky.IMPORT_WORK)
