"""Documents: put once, found by name, never changed; chains and current snapshots."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select, text

from gatekeeper.domain.errors import Conflict, GatekeeperError, Rejected
from gatekeeper.domain.evidence import BudgetReset, Evidence, PullSubject, RaceEvidence, TreeSubject
from gatekeeper.domain.policy import Outcome
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.store import tables
from gatekeeper.store.unit_of_work import Store
from tests import race_samples
from tests.builders import DIGEST, NOW, sha, snapshot, verdict, waiver


def test_a_document_is_stored_once_and_read_back_as_it_was(store: Store) -> None:
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot())
        assert uow.put_snapshot(snapshot()) == digest
        fact = uow.put_evidence(waiver())
        assert uow.put_evidence(waiver()) == fact
        assert uow.put_document("configuration", snapshot()) == uow.put_document("configuration", snapshot()) == digest
    with store.read() as uow:
        assert uow.snapshot(digest) == snapshot()
        assert uow.evidence(fact) == waiver()
        assert uow.document("configuration", digest, Snapshot) == snapshot()
        assert uow.connection.scalar(select(func.count()).select_from(tables.snapshots)) == 1


def test_an_unknown_digest_is_refused_and_a_kind_is_part_of_the_name(store: Store) -> None:
    with store.begin() as uow:
        digest = uow.put_document("configuration", snapshot())
    with store.read() as uow:
        with pytest.raises(Rejected, match="STORE_UNKNOWN_DOCUMENT"):
            uow.snapshot(DIGEST)
        with pytest.raises(Rejected, match="race_request"):
            uow.document("race_request", digest, Snapshot)


def test_a_document_that_was_changed_behind_our_back_is_not_believed(store: Store) -> None:
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot())
        uow.connection.execute(text("UPDATE snapshots SET body = replace(body, 'ada', 'eve')"))
    with store.read() as uow, pytest.raises(GatekeeperError, match="STORE_DOCUMENT_CHANGED"):
        uow.snapshot(digest)


def test_the_latest_snapshot_is_the_one_made_current_last_even_if_it_is_an_old_one(store: Store) -> None:
    with store.begin() as uow:
        first, second = uow.put_snapshot(snapshot(head="a")), uow.put_snapshot(snapshot(head="f"))
        assert uow.latest_snapshot(7, 1) == (second, snapshot(head="f"))
        uow.put_verdict(verdict(first, outcome=Outcome.FAILED))
        pull = uow.pull(7, 1)
        assert pull is not None and pull.outcome is None, "a verdict of a superseded snapshot is not the pull request's"
        uow.put_snapshot(snapshot(head="a"))
        assert uow.latest_snapshot(7, 1) == (first, snapshot(head="a"))
        pull = uow.pull(7, 1)
        assert pull is not None and pull.outcome == "failed", "its verdict comes back with it"
        assert uow.latest_snapshot(7, 2) is None


def test_current_snapshots_are_found_by_tree_and_by_head(store: Store) -> None:
    with store.begin() as uow:
        one, two = uow.put_snapshot(snapshot(1)), uow.put_snapshot(snapshot(2))
        old = uow.put_snapshot(snapshot(3))
        uow.put_snapshot(snapshot(3, head="f", merge_tree="9"))
        uow.note_trees(two, [sha("1")])
    with store.read() as uow:
        assert uow.snapshots_with_tree(sha("d")) == sorted([one, two])
        assert uow.snapshots_with_tree(sha("1")) == [two]
        assert uow.snapshots_with_head(7, sha("a")) == sorted([one, two])
        assert old not in uow.snapshots_with_head(7, sha("a"))


def test_verdicts_form_a_chain_without_forks(store: Store) -> None:
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot())
        first = uow.put_verdict(verdict(digest, outcome=Outcome.PENDING))
        second = uow.put_verdict(verdict(digest, supersedes=first))
        third = uow.put_verdict(verdict(digest, supersedes=second, outcome=Outcome.PENDING))
        assert uow.put_verdict(verdict(digest, supersedes=first)) == second, (
            "putting the same one again changes nothing"
        )
    with store.read() as uow:
        assert [name for name, _ in uow.verdicts(digest)] == [first, second, third]
        latest = uow.latest_verdict(digest)
        assert latest is not None and latest[0] == third
    with pytest.raises(Conflict, match="STORE_VERDICT_CHAIN"), store.begin() as uow:
        uow.put_verdict(verdict(digest, supersedes=second, summary="a fork"))
    with pytest.raises(Rejected, match="STORE_UNKNOWN_DOCUMENT"), store.begin() as uow:
        uow.put_verdict(verdict(DIGEST))


def test_evidence_is_found_for_its_own_head_only(store: Store) -> None:
    with store.begin() as uow:
        mine = uow.put_evidence(waiver())
        uow.put_evidence(waiver(head="f"))
        uow.put_evidence(waiver(2))
        other = uow.put_evidence(waiver(by="barbara"))
    with store.read() as uow:
        assert [name for name, _ in uow.evidence_for(snapshot(), [sha("d")] * 3)] == sorted([mine, other])
        assert uow.evidence_for(snapshot(head="9"), (f"{n:040x}" for n in range(1200))) == ()


def test_a_unit_that_fails_leaves_no_trace(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.begin() as uow:
        uow.put_snapshot(snapshot())
        raise ZeroDivisionError
    with store.read() as uow:
        assert uow.latest_snapshot(7, 1) is None


def race_of(tree: str, minutes: int) -> Evidence:
    subject = TreeSubject(tree=sha(tree), directory="a/b", suite=DIGEST, target="cpu", target_digest=DIGEST)
    body = RaceEvidence(request=DIGEST, result=race_samples.result())
    return Evidence(subject=subject, recorded_at=NOW + timedelta(minutes=minutes), body=body)


def test_races_of_earlier_pushes_stay_with_the_pull_request_whatever_becomes_of_it(store: Store) -> None:
    with store.begin() as uow:
        old, new = uow.put_snapshot(snapshot(1, head="a", merge_tree="1")), None
        uow.note_trees(old, [sha("2")])
        first = uow.put_evidence(race_of("2", 0))
        new = snapshot(1, head="f", merge_tree="3").model_copy(update={"title": "renamed", "open": False})
        uow.note_trees(uow.put_snapshot(new), [sha("4")])
        second = uow.put_evidence(race_of("4", 1))
        other = snapshot(2, merge_tree="5")
        uow.put_snapshot(other)
        third = uow.put_evidence(race_of("5", 2))
        reset = Evidence(
            subject=PullSubject(repository_id=7, number=1, head_sha=sha("a")), recorded_at=NOW,
            body=BudgetReset(by="mira", reason="the noise was ours"),
        )  # fmt: skip
        given = uow.put_evidence(reset)
        uow.put_evidence(waiver(1, head="a"))
    with store.read() as uow:
        assert {name for name, _ in uow.evidence_for(new, [sha("4")])} == {first, second, given}
        assert {name for name, _ in uow.evidence_for(other, [sha("5")])} == {third}
        assert {name for name, _ in uow.evidence_for(other, [sha("5"), sha("2")])} == {first, third}, "a tree is shared"
        current = uow.latest_snapshot(7, 1)
        assert current is not None
        assert uow.snapshots_of_pulls_with_tree(sha("2")) == [current[0]] != uow.snapshots_with_tree(sha("2"))
        assert (
            uow.snapshots_with_tree(sha("4")) == [current[0]]
            and uow.snapshots_with_tree(sha("4"), open_only=True) == []
        )
        assert uow.answers_to(DIGEST) == {first, second, third}
        assert [item.body.kind for _, item in uow.evidence_of_pull(7, 1)] == ["budget_reset", "waiver"]
