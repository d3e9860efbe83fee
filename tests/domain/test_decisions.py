"""What people decided: whose word counts, for which head, and until when."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from gatekeeper.domain.evidence import Approval, Evidence, PullSubject, Waiver, Withdrawal, in_force
from gatekeeper.domain.owners import Owners
from gatekeeper.domain.policy import Effect, Finding
from gatekeeper.domain.trust import may_run
from gatekeeper.domain.waivers import apply

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEAD, OLD = "a" * 40, "b" * 40
RULES: Any = SimpleNamespace(maintainers=("@sample/maintainers",), teams={"@sample/maintainers": ("@mira", "@ann")})
SNAPSHOT: Any = SimpleNamespace(
    key=SimpleNamespace(repository_id=1, number=2, head_sha=HEAD), author=SimpleNamespace(login="ann", trusted=False)
)


def said(body: Any, *, head: str = HEAD, number: int = 2) -> Evidence:
    subject = PullSubject(repository_id=1, number=number, head_sha=head)
    return Evidence(subject=subject, recorded_at=NOW, body=body)


def waiver(by: str = "mira", path: str | None = "a/model.py") -> Waiver:
    return Waiver(policy="isolation", code="ISO_HOOK_UNGUARDED", path=path, by=by, reason="looked at it together")


def judged(*evidence: Evidence) -> list[Finding]:
    finding = Finding(
        code="ISO_HOOK_UNGUARDED", message="runs for everybody", path="a/model.py", waivable_by=("@sample/maintainers",)
    )
    return apply([finding], snapshot=SNAPSHOT, evidence=evidence, policy="isolation", owners=Owners("", RULES))


@pytest.mark.parametrize(
    ("item", "waived"),
    [
        (said(waiver()), True),
        (said(waiver(by="@Mira")), True),
        (said(waiver(path=None)), True),
        (said(waiver(path="a/other.py")), False),
        (said(waiver(by="ann")), False),
        (said(waiver(by="stranger")), False),
        (said(waiver(), head=OLD), False),
        (said(waiver(), number=3), False),
    ],
)
def test_a_waiver_counts_for_its_head_and_path_and_only_from_another_owner(item: Evidence, waived: bool) -> None:
    finding = judged(item)[0]
    assert (finding.effect is Effect.NOTE, finding.waived_by is not None) == (waived, waived)


def withdrawn(of: Evidence) -> Evidence:
    return said(Withdrawal(of=of.digest(), by="mira", reason="seen too late"))


def test_a_withdrawn_waiver_has_no_effect_and_another_one_keeps_its_own() -> None:
    first, second = said(waiver()), said(waiver(path=None))
    assert judged(first, withdrawn(first))[0].effect is Effect.FAIL
    assert judged(first, second, withdrawn(first))[0].waived_by == "mira"
    assert in_force((first, second, withdrawn(second))) == (first,)


def test_a_withdrawn_approval_lets_nothing_run() -> None:
    subject: Any = SimpleNamespace(
        snapshot=SNAPSHOT, configuration=RULES, base=SimpleNamespace(entry=lambda path: None), evidence=()
    )
    given = said(Approval(by="mira"))
    subject.evidence = (given,)
    assert may_run(subject)
    subject.evidence = (given, withdrawn(given))
    assert not may_run(subject)


@pytest.mark.parametrize("reason", ["", "  ", " x ", "x" * 2001])
def test_a_reason_is_given_and_is_no_novel(reason: str) -> None:
    with pytest.raises(ValidationError):
        Waiver(policy="isolation", code="ISO_HOOK_UNGUARDED", by="mira", reason=reason)
