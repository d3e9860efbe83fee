"""Text that an attacker chooses, in every place where a page shows some: it stays text, and it cannot leave its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from gatekeeper.domain.evidence import Evidence, PullSubject, Waiver
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.refusals import results_of
from gatekeeper.domain.samples import FaultEffect, RaceFault
from gatekeeper.domain.snapshot import Refusal
from gatekeeper.web import pages
from tests.web import seed

HOSTILE = "\"'><img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3) {{7*7}} </code></li>\u202e"
RACE = seed.request(2).digest().removeprefix("sha256:")
WHERE = (
    "/",
    "/?state=all",
    "/pulls/demo/vllm/8",
    "/pulls/demo/vllm/9",
    f"/races/{RACE}",
    f"/?q={HOSTILE}",
)
KNOWN_TAGS = frozenset(re.findall(r"\w+", """
    a abbr bdi body button caption circle code dd details div dl dt em footer form h1 h2 h3 head header html img input label
    li line link main meta nav ol option p path pre rect section select span strong summary svg table tbody td th thead time title tr ul
"""))  # fmt: skip
VOID = {"img", "input", "link", "meta"}
SVG = {"circle", "line", "path", "rect"}


class Reader(HTMLParser):
    """Reads a page as a browser would, and notes whatever only an attacker could have put there."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note unknown elements, handlers, inline styles and links that lead elsewhere."""
        if tag not in KNOWN_TAGS:
            self.bad.append(f"<{tag}>")
        for name, value in attrs:
            self.text.append(value or "")
            if name.startswith("on") or name == "style":
                self.bad.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action", "formaction") and not re.match(r"(/(?!/)|#|\?)", value or ""):
                self.bad.append(f"{tag} {name}={value}")
        if tag not in VOID | SVG:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note an end that does not belong to the element that is open."""
        if tag not in VOID | SVG and (not self.open or self.open.pop() != tag):
            self.bad.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """Keep the text, as the values of attributes are kept."""
        self.text.append(data)


def read(page: str) -> Reader:
    """Return what a browser would make of a page."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture
def poisoned(make_web: Any, payload: Callable[..., dict[str, Any]]) -> Iterator[Any]:
    """A store in which every text that comes from outside is hostile."""
    web = make_web()
    seed.seed(web.store)
    fault = RaceFault(code="RUN_EXIT", effect=FaultEffect.WRONG, where=HOSTILE, expected=HOSTILE, found=HOSTILE)
    race = seed.race_result(1.2, seed=9)
    environment = race.environment.model_copy(
        update={"device": HOSTILE, "cpu_model": HOSTILE, "machine": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    )
    race = race.model_copy(update={"environment": environment, "faults": (fault,)})
    waived = seed.OUTSIDE.model_copy(
        update=dict.fromkeys(("path", "found", "expected", "message", "waived_by"), HOSTILE)
    )
    held = seed.HOOK.model_copy(update={"path": HOSTILE, "waivable_by": (HOSTILE,), "found": HOSTILE})
    waiver = Evidence(
        subject=PullSubject(repository_id=99, number=9, head_sha="09" * 20), recorded_at=seed.NOW,
        body=Waiver(policy=HOSTILE, code=HOSTILE, path=HOSTILE, by=HOSTILE, reason=HOSTILE),
    )  # fmt: skip
    refusal = Refusal(code="ISO_MALFORMED_TREE", message=HOSTILE, expected=HOSTILE, found=HOSTILE, by_head=True)
    with web.store.begin() as uow:
        evidence = (seed.race_evidence(uow, 2, race), uow.put_evidence(waiver))
        results = (
            seed.result(seed.Check.ISOLATION, seed.Outcome.FAILED, HOSTILE, (waived, held)),
            seed.result(seed.Check.BENCHMARKS, summary=HOSTILE),
        )
        seed.store_verdict(uow, seed.snapshot(9, HOSTILE, HOSTILE), results, evidence)
        refused = seed.snapshot(8, HOSTILE, HOSTILE).model_copy(update={"refusal": refusal})
        seed.store_verdict(uow, refused, results_of(refusal, seed.SET))
        for number in (8, 9):
            claim = uow.claim(uow.enqueue(JobKind.INTAKE, f"99:{number}"), timedelta(seconds=60))
            uow.finish(claim, JobState.FAILED, HOSTILE)
    for number in (8, 9):
        head = {"sha": f"{number:02d}" * 20}
        hints = {"title": HOSTILE, "user": {"id": 5, "login": HOSTILE[:100]}, "base": {"ref": HOSTILE}, "head": head}
        assert web.deliver("pull_request", payload(number=number, action="odd", **hints)).status_code == 202
    yield web


@pytest.mark.parametrize("path", WHERE)
def test_web_xss_context_everywhere(poisoned: Any, path: str) -> None:
    answer = poisoned.client.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    reader = read(answer.text)
    assert reader.bad == [] and reader.open == [], path
    assert any("<script>alert(2)" in text for text in reader.text), "shown, as text"
    assert "{{7*7}}" in answer.text, "never run as a template"


def test_the_reader_of_these_tests_sees_an_attack() -> None:
    for attack in (
        "<img src=x>", "<p onclick='x'>y</p>", "<a href='javascript:x'>y</a>", "<a href='//evil.example'>y</a>",
        "<script>x</script>", "<p style='x'>y</p>", "</li>", "<iframe></iframe>", "<form action='https://evil.example'></form>",
    ):  # fmt: skip
        assert read(f"<div>{attack}</div>").bad, attack
    honest = read("<div><a href='/pulls'>x</a><p>&lt;script&gt;</p></div>")
    assert honest.bad == [] and honest.open == []


@pytest.mark.parametrize("path", ["/pulls/demo/vllm/9", "/pulls/demo/vllm/8"])
def test_the_twin_is_json_that_no_browser_takes_for_a_page(poisoned: Any, path: str) -> None:
    for twin in (f"/api/v1{path}", f"/api/v1{path}/bundle", "/api/v1/pulls?q=%3Cscript%3E"):
        answer = poisoned.client.get(twin)
        if answer.status_code == 404:
            assert twin.endswith("/bundle")
        assert answer.headers["content-type"].split(";")[0] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_text_that_runs_the_other_way_stays_in_its_place(poisoned: Any) -> None:
    style = (pages.STATIC / "gatekeeper.css").read_text(encoding="utf-8")
    assert re.search(r"^code \{[^}]*unicode-bidi: isolate", style, re.MULTILINE)
    assert re.search(r"^\.tag \{[^}]*unicode-bidi: isolate", style, re.MULTILINE)
    text = poisoned.client.get("/pulls/demo/vllm/9").text
    for before in re.findall(r"(.{0,4000})\u202e", text, re.DOTALL):
        opened = re.findall(r"<(/?)(\w+)[^<>]*>(?=[^<>]*$)", before)
        assert opened, "never outside of an element"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://testserver.evil.example"])
def test_web_cors_ws(poisoned: Any, origin: str) -> None:
    for path in ("/", "/api/v1/pulls", "/webhooks/github", "/healthz"):
        for method in ("GET", "OPTIONS", "POST"):
            asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            headers = poisoned.client.request(method, path, headers=asked).headers
            assert not [name for name in headers if name.startswith("access-control-")]


def test_web_token_leak(
    make_web: Any, payload: Callable[..., dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    canary = b"canary-" + b"z" * 40
    web = make_web(webhook_secrets=(canary,))
    answers = [
        web.deliver("pull_request", payload(), secret=canary),
        web.deliver("pull_request", payload(), secret=b"q" * 40),
        web.deliver("pull_request", b"{", secret=canary),
        web.deliver("pull_request", payload(number=0), secret=canary),
        web.client.get("/readyz"),
        web.client.get("/nothing"),
    ]
    assert [answer.status_code for answer in answers] == [202, 401, 400, 422, 200, 404]
    told = "".join(answer.text + repr(answer.headers) for answer in answers) + "".join(capfd.readouterr())
    assert canary.decode() not in told and "z" * 20 not in told
