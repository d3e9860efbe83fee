"""The code does what its manifest says: it imports without side effects, serves the advertised and refuses the rest.

What it checks: for each touched directory a probe of this very tree is there. The entry point imports in the jail and leaves the
process as it was; ``supports()`` returns None for every advertised configuration and a reason for every one just outside the
served ranges; what other files import loads without GPU packages. Dispatch points must be few enough to be judged.

Why: a manifest is a claim. A fast path that accepts what it cannot serve, or patches what it does not own, breaks other users.

How to fix: each finding names the configuration or the object. Make ``supports()`` agree with ``[serves]``, move work out of the
modules' top level, import GPU packages inside functions.
"""

from __future__ import annotations

from pydantic import Field

from gatekeeper.domain.advertised import EnumerationRules, advertised
from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.evidence import Origin, ProbeEvidence, TreeSubject
from gatekeeper.domain.guard_asking import askings
from gatekeeper.domain.guards import guard_of
from gatekeeper.domain.import_graph import package_of
from gatekeeper.domain.manifest import Manifest, positions
from gatekeeper.domain.policy import Check, Effect, Parameters, Policy, PolicyInput, ProbeRequirement, Report
from gatekeeper.domain.race import ProbeRequest, ProbeResult
from gatekeeper.domain.requests import probe_request
from gatekeeper.domain.scope import Declared, declared, outside_imports
from gatekeeper.domain.trust import approval_needed


class ProbeParameters(Parameters):
    """How closely the scope is looked at, and behind which wall."""

    enumeration: EnumerationRules = EnumerationRules()
    minimum_jail: JailLevel = Field(default=JailLevel.JAIL, description="weakest jail whose probe counts")


def judge(subject: PolicyInput, parameters: ProbeParameters) -> Report:
    """Ask for the probes that are missing and report every fault of those that are there."""
    directories = declared(subject)
    if directories is None:
        return Report(summary="no specialised tree touched", applicable=False)
    return judge_directories(subject, directories, parameters)


def judge_directories(subject: PolicyInput, directories: tuple[Declared, ...], parameters: ProbeParameters) -> Report:
    """Judge directories that were found already."""
    report, lines = Report(), []
    for found in directories:
        if found.manifest is None or found.manifest.problem not in subject.catalog.models:
            lines.append(f"{found.directory}: no manifest to probe by")
            report.add("SCOPE_NOT_PROBED", "without a valid manifest nothing can be probed", path=found.path,
                       expected="a valid manifest", found="none", effect=Effect.HOLD)  # fmt: skip
            continue
        _bounded(report, subject, found, found.manifest, parameters)
        lines.append(f"{found.directory}: {_one(report, subject, found, found.manifest, parameters)}")
    report.summary = "; ".join(lines)
    return report


NOTED = frozenset({"SCOPE_GUARD_SILENT"})
"""Faults that a maintainer should read and that stop nothing."""


def _one(report: Report, subject: PolicyInput, found: Declared, manifest: Manifest, parameters: ProbeParameters) -> str:
    if subject.merged is None or found.tree_id is None:
        report.add("SCOPE_NOT_PROBED", "the merge conflicts, so there is no merge result to probe", path=found.path,
                   expected="a merge result", found="a conflict", effect=Effect.HOLD)  # fmt: skip
        return "no merge result"
    modules = {manifest.entry_point.partition(":")[0], *outside_imports(found.tree, found.directory)}
    model = subject.catalog.models[manifest.problem]
    guard = guard_of(manifest.guard, package_of(found.directory))
    request = probe_request(
        subject, found.tree_id, manifest, model, parameters.enumeration, platform_modules=tuple(sorted(modules)),
        askings=askings(found.tree, manifest.hooks, guard) if guard else (),
    )  # fmt: skip
    result = _result(subject, request)
    if result is None:
        approval = approval_needed(subject)
        report.requirements.append(approval or ProbeRequirement(request=request))
        return "waiting for an approval" if approval else "waiting for a probe"
    if result.jail.rank < parameters.minimum_jail.rank:
        report.add("SCOPE_JAIL", "the probe ran behind too weak a wall", expected=parameters.minimum_jail.value,
                   found=result.jail.value, path=found.path, effect=Effect.HOLD)  # fmt: skip
    _report(report, found, request, result)
    refused = sum(bool(reason.strip()) for reason in result.refused)
    seen = [
        f"serves {sum(result.supported)} of {len(request.advertised)} advertised configurations",
        f"refuses {refused} of {len(request.refused)} others",
    ]
    if result.faults:
        seen.append(f"{len(result.faults)} fault{'s' if len(result.faults) > 1 else ''} beside that")
    return ", ".join(seen)


def _result(subject: PolicyInput, request: ProbeRequest) -> ProbeResult | None:
    """Return the newest result of exactly this request over exactly this tree."""
    wanted, digest = TreeSubject(tree=request.source.tree, directory=request.source.directory), request.digest()
    fitting = [
        evidence
        for evidence in subject.evidence
        if evidence.subject == wanted
        and evidence.origin is Origin.OURS
        and isinstance(evidence.body, ProbeEvidence)
        and evidence.body.request == digest
    ]
    if not fitting:
        return None
    body = max(fitting, key=lambda evidence: evidence.recorded_at).body
    assert isinstance(body, ProbeEvidence)
    return body.result


def _report(report: Report, found: Declared, request: ProbeRequest, result: ProbeResult) -> None:
    for fault in result.faults:
        effect = Effect.NOTE if fault.code in NOTED else Effect.FAIL
        report.add(fault.code, fault.where, expected=fault.expected, found=fault.found, path=found.directory,
                   effect=effect)  # fmt: skip
    if not result.entry_point_found and not any(fault.code == "SCOPE_ENTRY_POINT" for fault in result.faults):
        report.add("SCOPE_ENTRY_POINT", "the entry point was not found", expected=request.source.entry_point,
                   found="nothing", path=found.path)  # fmt: skip
    served, outside = len(request.advertised), len(request.refused)
    if (len(result.supported), len(result.refused)) != (served, outside):
        report.add("SCOPE_SUPPORTS", "supports() did not answer for every configuration", path=found.path,
                   expected=f"{served} and {outside} answers",
                   found=f"{len(result.supported)} and {len(result.refused)}")  # fmt: skip
        return
    reasons = result.declined or ("",) * served
    for shape, supported, reason in zip(request.advertised, result.supported, reasons, strict=True):
        if not supported:
            report.add("SCOPE_SUPPORTS", f"an advertised configuration is declined: {shape.label}",
                       expected="None", found=reason[:300], path=found.path)  # fmt: skip
    for shape, reason in zip(request.refused, result.refused, strict=True):
        if not reason.strip():
            report.add("SCOPE_SUPPORTS", f"a configuration outside the served ranges is accepted: {shape.label}",
                       expected="a reason", found="none", path=found.path)  # fmt: skip


def _bounded(
    report: Report, subject: PolicyInput, found: Declared, manifest: Manifest, parameters: ProbeParameters
) -> None:
    for index, scope in enumerate(manifest.targets):
        points = advertised(manifest, scope.name, subject.snapshot.key.policy_set, parameters.enumeration)
        if not points.complete:
            report.add("SCOPE_TOO_WIDE", f"the scope on {scope.name} has more dispatch points than are judged",
                       expected=f"at most {points.most}", found=str(points.needed), path=found.path,
                       line=positions(found.tree, manifest).line("targets", index))  # fmt: skip


POLICY = Policy(
    id="scope_is_probed",
    check=Check.SCOPE,
    title="The code serves what the manifest says, and touches nothing else",
    judge=judge,
    parameters=ProbeParameters,
    static=False,
)
