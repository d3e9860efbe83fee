"""What the check runs of a head should say, and which requests lead there from what they say now. Pure.

Whatever is there is compared with what is wanted, so it does not matter what was lost, repeated or done twice before. A finished
run is never rewritten: GitHub would keep its old annotations. Another answer is a new run of the same name, which replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.context import ShownRun
from gatekeeper.domain.documents import canonical_json, digest_bytes

BATCH = 50
"""Annotations that GitHub takes in one request (REST, Checks); more are added by further requests."""
MOST_ANNOTATIONS = 4 * BATCH
ANNOUNCED = "announced"
BARE = "bare"


@dataclass(frozen=True)
class Wanted:
    """One check run as it should be.

    ``conclusion`` is None while it is not finished. ``speakers`` are those whom it speaks for (:func:`speaker`). ``patient``: it
    waits for machines only, so an announcement that stands there says enough. ``replaces_only``: it is unfinished, and written only
    where a finished run of the same name would say what does not hold any more.
    """

    name: str
    title: str
    summary: str
    text: str
    details_url: str
    speakers: tuple[str, ...]
    conclusion: str | None = None
    annotations: tuple[Mapping[str, Any], ...] = ()
    patient: bool = False
    replaces_only: bool = False

    @property
    def external_id(self) -> str:
        """What tells that this very content was written: the pull requests and a digest of what is to be seen."""
        seen = [
            self.name,
            self.title,
            self.summary,
            self.text,
            self.conclusion or "",
            [dict(a) for a in self.annotations],
        ]
        return mark(self.speakers, digest_bytes(canonical_json(seen)).removeprefix("sha256:")[:24])

    def body(self) -> dict[str, Any]:
        """Return the request's fields, with the first batch of annotations."""
        return {
            "status": "in_progress" if self.conclusion is None else "completed",
            **({} if self.conclusion is None else {"conclusion": self.conclusion}),
            "external_id": self.external_id,
            "details_url": self.details_url,
            "output": self._output(self.annotations[:BATCH]),
        }

    def further(self, shown: int) -> Iterator[dict[str, Any]]:
        """Return the fields of the requests that add the annotations from number ``shown`` on."""
        for start in range(shown, len(self.annotations), BATCH):
            yield {"output": self._output(self.annotations[start : start + BATCH])}

    def bare(self, summary: str) -> dict[str, Any]:
        """Return the fields of the same answer with the fewest words, for where GitHub does not take all of them."""
        body = self.body()
        body["external_id"] = f"{self.external_id} {BARE}"
        title = self.title if self.title.isascii() and self.title.isprintable() else self.name
        body["output"] = {"title": title, "summary": summary}
        return body

    def _output(self, annotations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = {"title": self.title, "summary": self.summary}
        if self.text:
            output["text"] = self.text
        if annotations:
            output["annotations"] = [dict(annotation) for annotation in annotations]
        return output


@dataclass(frozen=True)
class Step:
    """One check run to be written. ``run`` is the one to change, None for a new one; ``shown`` counts the annotations there.

    ``adds_only``: everything else stands there already.
    """

    wanted: Wanted
    run: int | None = None
    shown: int = 0
    adds_only: bool = False


def speaker(number: int, base_ref: str) -> str:
    """Return the name of a pull request onto a base branch: what was decided for one base says nothing about another."""
    return f"{number}.{digest_bytes(base_ref.encode()).removeprefix('sha256:')[:8]}"


def mark(speakers: Iterable[str], what: str) -> str:
    """Return an external id: whom a run speaks for, and what it says."""
    return f"gatekeeper1 {','.join(sorted(speakers))} {what}"


def speaks_for(run: ShownRun) -> frozenset[str]:
    """Return whom a run of ours speaks for; empty for one that does not say."""
    parts = (run.external_id or "").split(" ")
    if len(parts) < 3 or parts[0] != "gatekeeper1":
        return frozenset()
    return frozenset(parts[1].split(",")) - {""}


def steps(shown: Mapping[str, ShownRun], wanted: Iterable[Wanted]) -> list[Step]:
    """Return what has to be written, in the order of ``wanted``; nothing where all is as it should be."""
    return [step for each in wanted if (step := _step(shown.get(each.name), each)) is not None]


def _step(there: ShownRun | None, wanted: Wanted) -> Step | None:
    if there is None:
        return None if wanted.replaces_only else Step(wanted)
    if not there.finished:
        announced = wanted.patient and there.external_id == mark(wanted.speakers, ANNOUNCED)
        says_so = wanted.conclusion is None and (there.external_id == wanted.external_id or announced)
        return None if says_so else Step(wanted, there.id)
    if wanted.conclusion is None or there.conclusion != wanted.conclusion:
        return Step(wanted)
    if there.external_id == f"{wanted.external_id} {BARE}":
        return None
    if there.external_id != wanted.external_id:
        return Step(wanted)
    lacking = there.annotations < len(wanted.annotations)
    return Step(wanted, there.id, there.annotations, adds_only=True) if lacking else None
