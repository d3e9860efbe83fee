"""Finds the policies, runs them all, and turns an exception into the outcome ``error``.

Discovery is loud: a module without ``POLICY``, an id that differs from the file name, two equal ids or a docstring without
its headings stop the process at start. A policy that was forgotten would be a gate with a hole.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gatekeeper.catalog import ROOT, digest_of_files
from gatekeeper.domain.documents import canonical_json, digest_bytes
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.policy import (
    Effect,
    Finding,
    Outcome,
    Parameters,
    Policy,
    PolicyInput,
    PolicyResult,
    Report,
    Severity,
    outcome_of,
)
from gatekeeper.domain.policy_set import PolicySet, parse_policy_set

MERGE_POLICIES = "policies.merge"
HEADINGS = ("What it checks", "Why", "How to fix")


@dataclass(frozen=True)
class Installed:
    """One policy as a policy set applies it: its severity and its parameters with their digest."""

    policy: Policy[Any]
    severity: Severity
    parameters: Parameters
    parameters_digest: str
    explanation: str
    """The policy file's docstring: what it checks, why, how to fix."""


@dataclass(frozen=True)
class PolicyBook:
    """A policy set over the installed policies, with the digest that names it in every verdict."""

    name: str
    digest: str
    installed: tuple[Installed, ...]

    def parameters(self, policy_id: str) -> Parameters:
        """Return the parameters of one policy.

        Raises:
            KeyError: if no such policy is installed.
        """
        for installed in self.installed:
            if installed.policy.id == policy_id:
                return installed.parameters
        raise KeyError(policy_id)


def load_policies(package: str = MERGE_POLICIES) -> dict[str, tuple[Policy[Any], str]]:
    """Import every module of ``package`` and return its policies with their docstrings, by id, sorted.

    Raises:
        ConfigurationError: as the module docstring says.
    """
    found: dict[str, tuple[Policy[Any], str]] = {}
    folder = importlib.import_module(package)
    for module_info in sorted(pkgutil.iter_modules(folder.__path__), key=lambda info: info.name):
        name = f"{package}.{module_info.name}"
        module = importlib.import_module(name)
        policy, explanation = getattr(module, "POLICY", None), inspect.getdoc(module) or ""
        if not isinstance(policy, Policy):
            raise _broken(name, "a constant POLICY of type Policy", type(policy).__name__)
        if policy.id != module_info.name:
            raise _broken(name, f"the id {module_info.name}", policy.id)
        missing = [heading for heading in HEADINGS if heading not in explanation]
        if missing:
            raise _broken(name, f"a docstring with the headings {', '.join(HEADINGS)}", f"none named {missing[0]}")
        found[policy.id] = (policy, explanation)
    if not found:
        raise _broken(package, "at least one policy", "none")
    return found


def open_book(policy_set: PolicySet, policies: Mapping[str, tuple[Policy[Any], str]] | None = None) -> PolicyBook:
    """Apply a policy set to the installed policies.

    The digest covers the text of every policy file, of the domain code that they share, and the set itself: a verdict made
    under one digest is never taken for one made under another.

    Raises:
        ConfigurationError: if the set names a policy or a parameter that does not exist, or a value is out of range.
    """
    known = load_policies() if policies is None else policies
    unknown = sorted(set(policy_set.policies) - set(known))
    if unknown:
        raise ConfigurationError(
            f"policy set {policy_set.name!r} names a policy that is not installed",
            code="CONFIG_POLICY_SET",
            expected=", ".join(sorted(known)),
            found=unknown[0],
        )
    installed = tuple(_install(policy, text, policy_set) for _, (policy, text) in sorted(known.items()))
    sources = [path for folder in ("policies", "gatekeeper/domain") for path in (ROOT / folder).rglob("*.py")]
    parts = {"set": policy_set.model_dump(mode="json"), "files": digest_of_files(sources, ROOT)}
    return PolicyBook(name=policy_set.name, digest=digest_bytes(canonical_json(parts)), installed=installed)


def open_installed_books(root: Path = ROOT) -> dict[str, PolicyBook]:
    """Return every policy set in ``policies/sets/``, applied, by its name, which is its file's name.

    Raises:
        ConfigurationError: if a set is wrong or has another name than its file.
    """
    policies = load_policies()
    books: dict[str, PolicyBook] = {}
    for file in sorted((root / "policies" / "sets").glob("*.toml")):
        policy_set = parse_policy_set(file.read_text(encoding="utf-8"), source=file.name)
        if policy_set.name != file.stem:
            raise ConfigurationError(
                f"{file.name} holds a policy set of another name",
                code="CONFIG_POLICY_SET",
                expected=file.stem,
                found=policy_set.name,
            )
        books[policy_set.name] = open_book(policy_set, policies)
    return books


def run(
    book: PolicyBook, subject: PolicyInput, *, static_only: bool = False, also: Collection[str] = ()
) -> tuple[PolicyResult, ...]:
    """Run every policy that is not switched off, all of them, whatever the others say.

    With ``static_only`` the policies that need evidence are left out, but for those named in ``also``; ``gatekeeper check`` then
    lists them as not checked.
    """
    wanted = [item for item in book.installed if item.severity is not Severity.OFF]
    return tuple(
        _judge(item, subject) for item in wanted if item.policy.static or not static_only or item.policy.id in also
    )


def _judge(item: Installed, subject: PolicyInput) -> PolicyResult:
    policy = item.policy
    try:
        report = policy.judge(subject, item.parameters)
        outcome = outcome_of(report)
    except Exception as error:  # a policy's bug must not become a pass, nor hide what the other policies say
        report = Report(summary="gatekeeper could not decide")
        report.add(
            "ENGINE_POLICY_ERROR",
            f"policy {policy.id} raised {type(error).__name__}",
            expected="a report",
            found=str(error)[:500],
        )
        outcome = Outcome.ERROR
    if outcome is None and not report.summary:
        outcome = Outcome.ERROR
        report.add("ENGINE_POLICY_ERROR", f"policy {policy.id} says that it has nothing to judge, but not why")
    return PolicyResult(
        policy=policy.id,
        check=policy.check,
        severity=item.severity,
        title=policy.title,
        outcome=outcome,
        summary=report.summary or _summary_of(report),
        findings=tuple(_signed(finding, item) for finding in report.findings),
        requirements=tuple(report.requirements),
        parameters=item.parameters_digest,
    )


def _signed(finding: Finding, item: Installed) -> Finding:
    return finding.model_copy(update={"policy": item.policy.id, "severity": item.severity})


def _summary_of(report: Report) -> str:
    telling = [finding for finding in report.findings if finding.effect is not Effect.NOTE]
    if not telling:
        return "nothing found"
    more = f" (and {len(telling) - 1} more)" if len(telling) > 1 else ""
    return f"{telling[0].message}{more}"


def _install(policy: Policy[Any], text: str, policy_set: PolicySet) -> Installed:
    entry = policy_set.policies.get(policy.id)
    severity = entry.severity if entry is not None and entry.severity is not None else policy.severity
    values: Mapping[str, Any] = entry.parameters if entry is not None else {}
    try:
        parameters = policy.parameters(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"policy set {policy_set.name!r}: parameter `{where}` of {policy.id} is wrong",
            code="CONFIG_POLICY_SET",
            expected=first["msg"],
            found=repr(first.get("input"))[:120],
        ) from error
    digest = digest_bytes(canonical_json(parameters.model_dump(mode="json")))
    return Installed(policy, severity, parameters, digest, text)


def _broken(where: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(f"{where} is not a policy module", code="CONFIG_POLICY", expected=expected, found=found)


def not_checked(book: PolicyBook) -> Sequence[Policy[Any]]:
    """Return the active policies that need evidence and so cannot be judged before a push."""
    return [item.policy for item in book.installed if item.severity is not Severity.OFF and not item.policy.static]
