"""Every mandatory feature is served, every other named feature is one that exists, and the served shapes bear the words out.

What it checks: each feature of the mandatory list (of the policy and of the repository) stands in ``[features]``; ``refused``
needs a waiver by name; a feature that shows in a shape (query tokens above 1, a parallel group, a range of contexts) agrees
with the served ranges.

Why: silence about a feature is how a fast path breaks a user who was never told.

How to fix: add the named line to ``[features]``, and serve the feature; or ask an owner to waive its refusal.
"""

from __future__ import annotations

from pydantic import Field

from gatekeeper.domain import waivers
from gatekeeper.domain.features import KNOWN_FEATURES, MANDATORY_BY_DEFAULT
from gatekeeper.domain.manifest import FeatureVerdict, Manifest, positions
from gatekeeper.domain.owners import read_owners
from gatekeeper.domain.policy import Check, Parameters, Policy, PolicyInput, Report
from gatekeeper.domain.scope import Declared, declared


class FeatureParameters(Parameters):
    """Which features nobody may leave out."""

    mandatory: tuple[str, ...] = Field(
        default=MANDATORY_BY_DEFAULT, description="features to be served, beside the repository's own"
    )


def judge(subject: PolicyInput, parameters: FeatureParameters) -> Report:
    """Report every feature that is missing, refused, unknown or belied by the served shapes."""
    directories = declared(subject)
    if directories is None:
        return Report(summary="no specialised tree touched", applicable=False)
    return judge_directories(subject, directories, parameters)


def judge_directories(subject: PolicyInput, directories: tuple[Declared, ...], parameters: FeatureParameters) -> Report:
    """Judge directories that were found already."""
    report = Report()
    mandatory = tuple(dict.fromkeys((*parameters.mandatory, *subject.configuration.mandatory_features)))
    readable = [found for found in directories if found.manifest is not None]
    for found in readable:
        assert found.manifest is not None
        _features(report, subject, found, found.manifest, mandatory)
    owners = read_owners(subject.base, subject.configuration)
    report.findings = waivers.apply(
        report.findings, snapshot=subject.snapshot, evidence=subject.evidence, policy=POLICY.id, owners=owners
    )
    if len(readable) < len(directories):
        report.summary = "without a valid manifest the features cannot be judged"
        for missing in set(directories) - set(readable):
            report.add("SCOPE_FEATURE_UNJUDGED", "the features cannot be judged before the manifest is valid",
                       expected=f"a valid manifest that serves {', '.join(mandatory)}",
                       found="one with errors" if missing.tree.entry(missing.path) else "no manifest",
                       path=missing.path)  # fmt: skip
    else:
        report.summary = "a feature is amiss" if report.fails() else f"served: {', '.join(mandatory)}"
    return report


def _features(
    report: Report, subject: PolicyInput, found: Declared, manifest: Manifest, mandatory: tuple[str, ...]
) -> None:
    line = positions(found.tree, manifest).line
    for name in mandatory:
        verdict = manifest.features.get(name)
        if verdict is None:
            report.add("SCOPE_FEATURE_SILENT", f"the manifest does not say whether `{name}` is served",
                       expected=f'{name} = "served"', found="nothing", path=found.path,
                       line=line("features"))  # fmt: skip
        elif verdict is FeatureVerdict.REFUSED:
            report.add("SCOPE_FEATURE_REFUSED", f"the mandatory feature `{name}` is refused", expected="served",
                       found="refused", path=found.path, line=line("features", name),
                       waivable_by=subject.configuration.maintainers)  # fmt: skip
    shown = _shown_in_shapes(manifest)
    for name, verdict in sorted(manifest.features.items()):
        if name not in KNOWN_FEATURES and name not in mandatory:
            report.add("SCOPE_FEATURE_UNKNOWN", f"there is no feature `{name}`", found=name, path=found.path,
                       expected=f"one of {', '.join(sorted(KNOWN_FEATURES))}", line=line("features", name))  # fmt: skip
        elif name in shown and shown[name] is not (verdict is FeatureVerdict.SERVED):
            report.add("SCOPE_FEATURE_CONTRADICTION", f"`{name}` is {verdict.value}, the served ranges say otherwise",
                       expected="served ranges that hold it" if verdict is FeatureVerdict.SERVED else "ranges without it",
                       found="a scope that serves it" if shown[name] else "no served shape that has it",
                       path=found.path, line=line("features", name))  # fmt: skip


def _shown_in_shapes(manifest: Manifest) -> dict[str, bool]:
    """Return for each feature that has a shape whether some served shape has it."""
    return {
        "decode_context_parallel": any(size > 1 for scope in manifest.targets for _, size in scope.groups()),
        "expert_parallel": any(size > 1 for scope in manifest.targets for size in scope.expert_parallel),
        "speculative_decoding": any(tokens > 1 for tokens in manifest.serves.query_tokens),
        "variable_context_length": manifest.serves.context.min < manifest.serves.context.max,
    }


POLICY = Policy(
    id="features_are_declared",
    check=Check.SCOPE,
    title="Mandatory features are served",
    judge=judge,
    parameters=FeatureParameters,
)
