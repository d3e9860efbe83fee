"""Every text that a person reads about a verdict: what happened, why, what to do next. Small pure functions, snapshot-tested.

Publishers and pages share them, so that GitHub, the log and the page never say different things. Text from a pull request is
passed through :func:`code` before it enters Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.policy import (
    ApprovalRequirement,
    Check,
    Effect,
    Finding,
    LogRequirement,
    Outcome,
    PolicyResult,
    ProbeRequirement,
    RaceRequirement,
    Requirement,
    Severity,
)  # fmt: skip
from gatekeeper.domain.race import RaceOutcome
from gatekeeper.domain.refusals import ENGINE
from gatekeeper.domain.verdict import CheckResult, Verdict
from gatekeeper.texts.strings import GITHUB_SUMMARY_LIMIT, code, cut, fit, percent, plain, plural, printable, sentence

# Beside what this module defines, it offers these.
__all__ = ["GITHUB_SUMMARY_LIMIT", "code", "cut", "fit", "percent", "plain", "plural", "printable", "sentence"]

OUTCOME_WORDS = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.PENDING: "pending",
    Outcome.ERROR: "could not decide",
}
NOT_JUDGED = "nothing to judge"
"""What is said of a check that passed because no policy of it applied."""
OUTCOME_MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.PENDING: "…", Outcome.ERROR: "!"}

CHECK_NAMES = {
    Check.ISOLATION: "Isolation",
    Check.SCOPE: "Scope",
    Check.BENCHMARKS: "Benchmarks",
    Check.CONTRIBUTOR_LOG: "Contributor log",
}
CHECK_QUESTIONS = {
    Check.ISOLATION: "Does the change stay inside the model's own directory?",
    Check.SCOPE: "Does it say what it serves, and refuse the rest loudly?",
    Check.BENCHMARKS: "Is it right, and strictly faster than the stock path?",
    Check.CONTRIBUTOR_LOG: "Is there a verified log for hardware that is not ours?",
}

RACE_SENTENCES = {
    RaceOutcome.BETTER: "The candidate is right and strictly faster on every advertised configuration.",
    RaceOutcome.NOT_BETTER: "The candidate is right, but not faster than the stock path by the margin.",
    RaceOutcome.WORSE: "The candidate is slower than the stock path.",
    RaceOutcome.WRONG: "The candidate gave wrong answers or broke a rule of the race.",
    RaceOutcome.INCONCLUSIVE: "Strictly faster was not shown: all looks were used up.",
    RaceOutcome.DECLINED: "The candidate declined a configuration that its manifest advertises.",
    RaceOutcome.HELD: "The result is not plausible as it stands: a person has to look at it.",
    RaceOutcome.VOID: "The measurement failed; this says nothing about the candidate, and it is repeated.",
}
RACE_OUTCOME = {
    RaceOutcome.BETTER: Outcome.PASSED,
    RaceOutcome.NOT_BETTER: Outcome.FAILED,
    RaceOutcome.WORSE: Outcome.FAILED,
    RaceOutcome.WRONG: Outcome.FAILED,
    RaceOutcome.INCONCLUSIVE: Outcome.FAILED,
    RaceOutcome.DECLINED: Outcome.FAILED,
    RaceOutcome.HELD: Outcome.PENDING,
    RaceOutcome.VOID: Outcome.PENDING,
}
MACHINE = "the machine, which other races or probes have now"
JAIL_WORDS = {
    JailLevel.PROCESS: "as a plain process",
    JailLevel.JAIL: "in a jail",
    JailLevel.CONTAINER_JAIL: "in a jail inside a container",
    JailLevel.VM_JAIL: "in a jail inside a virtual machine",
}
JOB_SENTENCES = {
    JobKind.INTAKE: "read the pull request from git",
    JobKind.EVALUATE: "run the policies",
    JobKind.PUBLISH: "show the verdict",
    JobKind.RACE: "race the candidate against the stock path",
    JobKind.PROBE: "import the directory in a jail and look at what it does",
    JobKind.VERIFY: "verify a contributor's log",
}


def verdict_title(verdict: Verdict) -> str:
    """Return one line for the list of checks, for example ``failed: isolation, 2 findings``.

    A check that had nothing to judge is not counted among those that passed.
    """
    if verdict.outcome is Outcome.PASSED:
        idle = _names(check for check in verdict.checks if not check.judged)
        passed = _names(check for check in verdict.checks if check.judged)
        return f"passed: {passed}; {NOT_JUDGED}: {idle}" if idle else "all four checks passed"
    if verdict.outcome is Outcome.ERROR:
        return "gatekeeper could not decide"
    telling = [check for check in verdict.checks if check.outcome is verdict.outcome]
    names = _names(telling)
    if verdict.outcome is Outcome.PENDING:
        return f"pending: {names}"
    count = sum(len(failing(result)) for result in verdict.results if result.severity is Severity.BLOCKING)
    return f"failed: {names}, {plural(count, 'finding')}" if count else f"failed: {names}"


def _names(checks: Iterable[CheckResult]) -> str:
    return ", ".join(CHECK_NAMES[check.check].lower() for check in checks)


def check_word(result: CheckResult) -> str:
    """Return the outcome of one of the four checks as a word."""
    return OUTCOME_WORDS[result.outcome] if result.judged else NOT_JUDGED


def check_title(result: CheckResult) -> str:
    """Return the title of one of the four checks, for example ``Isolation failed``."""
    if not result.judged:
        return f"{CHECK_NAMES[result.check]}: {NOT_JUDGED}"
    if result.outcome is Outcome.ERROR:
        return f"gatekeeper could not decide: {CHECK_NAMES[result.check].lower()}"
    return f"{CHECK_NAMES[result.check]} {OUTCOME_WORDS[result.outcome]}"


def check_summary(verdict: Verdict, check: Check, *, page: str | None = None) -> str:
    """Return the Markdown summary of one check: what happened, each finding with what to do, what is waited for."""
    result = next(item for item in verdict.checks if item.check is check)
    policies = [item for item in verdict.results if item.check is check and item.severity is not Severity.OFF]
    lines = [f"**{CHECK_QUESTIONS[check]}**", "", sentence(plain(result.summary)), ""]
    if not result.judged:
        lines += [
            "There was nothing to judge, so this says nothing about the change. It is shown as a success because GitHub "
            "would hold up a pull request whose required check gives no answer.",
            "",
        ]
    for policy in policies:
        lines.extend(_policy_lines(policy))
    lines.extend(_closing(verdict, page))
    return cut("\n".join(lines).strip())


def verdict_summary(verdict: Verdict, *, page: str | None = None) -> str:
    """Return the Markdown summary of the whole verdict: one row for each check, then what to do next."""
    lines = [sentence(verdict_title(verdict)), "", "| check | outcome | why |", "|---|---|---|"]
    for result in verdict.checks:
        mark = f"{OUTCOME_MARKS[result.outcome] if result.judged else '–'} {check_word(result)}"
        lines.append(f"| {CHECK_NAMES[result.check]} | {mark} | {plain(result.summary)} |")
    lines.append("")
    for policy in verdict.results:
        if policy.severity is not Severity.OFF and policy.outcome in (Outcome.FAILED, Outcome.PENDING, Outcome.ERROR):
            lines.extend(_policy_lines(policy))
    lines.extend(_closing(verdict, page))
    return cut("\n".join(lines).strip())


def _policy_lines(policy: PolicyResult) -> list[str]:
    if not policy.findings and not policy.requirements:
        return []
    advisory = " (advisory: does not block)" if policy.severity is Severity.ADVISORY else ""
    lines = [f"### {plain(policy.title)}{advisory}", ""]
    lines.extend(f"- {finding_line(finding)}" for finding in policy.findings)
    lines.extend(f"- Waits for {waits_for(requirement)}." for requirement in policy.requirements)
    return [*lines, ""]


def _closing(verdict: Verdict, page: str | None) -> list[str]:
    lines = [f"Policy set `{verdict.policy_set_name}` {code(verdict.policy_set.removeprefix('sha256:')[:12])}."]
    if verdict.mode != "block":
        lines.insert(0, f"This repository runs in {verdict.mode} mode: the outcome is shown and blocks nothing.\n")
    if page:
        lines.append(f"[Everything about this pull request]({page})")
    return lines


def finding_line(finding: Finding) -> str:
    """Return a finding as one line of Markdown: code, place, message, expected and found, what to do next."""
    parts = [f"`{finding.code}`"]
    if finding.path is not None:
        parts.append(code(place(finding)))
    parts.append(sentence(plain(finding.message)))
    if finding.expected:
        parts.append(f"Expected {code(finding.expected)}.")
    if finding.found:
        parts.append(f"Found {code(finding.found)}.")
    parts.append(next_step(finding))
    return " ".join(part for part in parts if part)


def place(finding: Finding) -> str:
    """Return ``path:line`` as far as known, or an empty text."""
    if finding.path is None:
        return ""
    return f"{finding.path}:{finding.line}" if finding.line else finding.path


def next_step(finding: Finding) -> str:
    """Return in Markdown what the author can do about a finding; a note asks for nothing."""
    return _next_step(finding, code)


def next_step_plainly(finding: Finding) -> str:
    """Return in plain text what the author can do about a finding."""
    return _next_step(finding, str)


def _next_step(finding: Finding, quote: Callable[[str], str]) -> str:
    if finding.waived_by:
        return f"Waived by {quote('@' + finding.waived_by.lstrip('@'))}."
    if finding.effect is Effect.NOTE:
        return ""
    if finding.policy == ENGINE:
        return (
            "Nothing in the pull request has to be changed for this: it is tried again, or the operators have to look."
        )
    owners = " or ".join(quote("@" + owner.lstrip("@")) for owner in finding.waivable_by)
    if finding.effect is Effect.HOLD:
        return f"A person has to decide: {owners} may waive it." if owners else "A person has to decide."
    return f"Change it, or ask {owners} for a waiver." if owners else "It has to be changed; nobody may waive it."


def waits_for(requirement: Requirement) -> str:
    """Return what a requirement waits for, as the end of a sentence in Markdown."""
    return _waits_for(requirement, code)


def waits_for_plainly(requirement: Requirement) -> str:
    """Return what a requirement waits for, as the end of a sentence in plain text."""
    return _waits_for(requirement, str)


def _waits_for(requirement: Requirement, quote: Callable[[str], str]) -> str:
    match requirement:
        case RaceRequirement():
            request = requirement.request
            count = plural(len(request.configurations), "configuration")
            return f"a race of {quote(request.model)} on target {quote(request.target.name)}, {count}"
        case ProbeRequirement():
            return "a probe: the directory is imported in a jail, and what it does is compared with its manifest"
        case ApprovalRequirement():
            head, author = quote(requirement.head_sha[:12]), quote(requirement.author)
            return f"a maintainer's approval of head {head}: {author} is new here"
        case LogRequirement():
            return f"a contributor's log from target {quote(requirement.target)}, which is not ours"


def failing(result: PolicyResult) -> list[Finding]:
    """Return the findings of a result that stand in its way: not waived, and more than a note."""
    return [finding for finding in result.findings if finding.effect is not Effect.NOTE and not finding.waived_by]


def log_line(repository: str, number: int, verdict: Verdict) -> str:
    """Return one plain line for a log or a terminal: ``owner/repo#7 failed: isolation, 1 finding (ISO_PATH_OUTSIDE)``."""
    codes = sorted({finding.code for result in verdict.results for finding in failing(result)})
    tail = f" ({', '.join(codes[:5])}{', ...' if len(codes) > 5 else ''})" if codes else ""
    return f"{repository}#{number} {verdict_title(verdict)}{tail}"
