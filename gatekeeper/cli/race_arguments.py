"""What ``gatekeeper race`` is asked for, held against what is installed and what its problem defines, before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from gatekeeper.catalog import ROOT
from gatekeeper.cli.proposing import limits_of
from gatekeeper.domain.boundary_pool import branching_contexts
from gatekeeper.domain.catalog import HardwareTarget, ModelUnderTest, OnArchitecture
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import ENTRY_POINT, CodeSource, InstalledSource, LocalSource

MODULE_SUFFIXES = (".py", ".so", ".pyc")


def known(option: str, name: str, names: Iterable[str]) -> str:
    """Return ``name`` if it is one of ``names``.

    Raises:
        click.UsageError: if it is not.
    """
    if name not in names:
        raise click.UsageError(f"expected {option} as one of {', '.join(sorted(names))}; found {name!r}")
    return name


def parts_on(model: ModelUnderTest, target: HardwareTarget) -> OnArchitecture:
    """Return what of a model is raced on a target.

    Raises:
        click.UsageError: if it has nothing for the target's architecture.
    """
    parts = model.parts(target)
    if parts is None:
        raise click.UsageError(
            f"expected --target of an architecture that {model.name} can be raced on, "
            f"{', '.join(['cpu', *sorted(model.on)])}; found {target.name!r} of {target.architecture}"
        )
    return parts


def source(spec: str) -> CodeSource:
    """Return the code that ``module:attribute`` or ``PATH::module:attribute`` names.

    Raises:
        click.UsageError: if it names nothing like that, or a module that is not there.
    """
    path, _, entry_point = spec.rpartition("::")
    if not re.match(ENTRY_POINT, entry_point):
        raise click.UsageError(f"expected module:attribute or PATH::module:attribute; found {spec!r}")
    module = entry_point.partition(":")[0]
    if path:
        base = Path(path).absolute()
        if not base.is_dir():
            raise click.UsageError(f"expected PATH of {spec!r} as a directory that is there; found none")
        if not _holds(base, module):
            raise click.UsageError(f"cannot find the module of {spec!r}: expected {_file(base, module)}; found none")
        return LocalSource(path=str(base), entry_point=entry_point)
    if not _holds(ROOT, module):
        hint = f"; did you mean .::{entry_point}?" if _holds(Path.cwd(), module) else ", or PATH::module:attribute"
        raise click.UsageError(f"{module} is not installed: expected {_file(ROOT, module)}{hint}")
    return InstalledSource(entry_point=entry_point)


def _file(base: Path, module: str) -> str:
    return f"{base.joinpath(*module.split('.'))}.py"


def _holds(base: Path, module: str) -> bool:
    """Whether there is something to import under this name. A look at names only: nothing is imported or run."""
    place = base.joinpath(*module.split("."))
    if place.is_dir():
        return True
    return any(file.suffix in MODULE_SUFFIXES for file in place.parent.glob(f"{place.name}.*"))


def row_counts(text: str) -> list[int]:
    """Return the numbers of a list such as ``1,8``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise click.UsageError(f"expected --rows as positive whole numbers between commas; found {text!r}")
    return sorted({int(part) for part in parts})


def configurations(
    model: ModelUnderTest,
    parts: OnArchitecture,
    problem: str,
    *,
    rows: str,
    context: int,
    page_size: int,
    ranks: int,
    steps: int,
) -> tuple[Configuration, ...]:
    """Return the configurations that are asked for; a run has at least ``steps`` steps, so a context has as many tokens.

    Raises:
        click.UsageError: for a size that no configuration has, or that the problem's file does not list.
    """
    limits, counts = limits_of(model, problem=problem, folder=parts.folder), row_counts(rows)
    of = f"problem {problem}"
    for count in counts:
        _within("--rows", count, 1, limits.rows or _most("rows"), of)
    _within("--context", context, steps, limits.context or _most("context"), of)
    _among("--page-size", page_size, limits.page_sizes or (1, _most("page_size")), of, ranged=not limits.page_sizes)
    sizes = limits.decode_context_parallel
    _among("--dcp", ranks, sizes or (1, _most("decode_context_parallel")), of, ranged=not sizes)
    return tuple(
        Configuration(
            rows=count,
            context=context,
            page_size=page_size,
            tensor_parallel=parts.tensor_parallel,
            decode_context_parallel=ranks,
        )
        for count in counts
    )


def _most(name: str) -> int:
    """Largest size that a configuration may have at all."""
    return int(next(rule.le for rule in Configuration.model_fields[name].metadata if hasattr(rule, "le")))


def _within(option: str, value: int, least: int, most: int, of: str) -> None:
    if not least <= value <= most:
        raise click.UsageError(f"expected {option} from {least} to {most} ({of}); found {value}")


def _among(option: str, value: int, sizes: tuple[int, ...], of: str, *, ranged: bool) -> None:
    if ranged:
        _within(option, value, sizes[0], sizes[-1], of)
    elif value not in sizes:
        raise click.UsageError(f"expected {option} as one of {', '.join(map(str, sizes))} ({of}); found {value}")


def edges_of(asked: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """Return what a boundary search below the context asked for draws from: contexts that code may branch on, each with one number of
    rows."""
    one = asked[0]
    marks = branching_contexts(1, one.context, one.page_size, one.decode_context_parallel)
    inner = [mark for mark in marks if mark != one.context]
    return tuple(asked[index % len(asked)].model_copy(update={"context": mark}) for index, mark in enumerate(inner))
