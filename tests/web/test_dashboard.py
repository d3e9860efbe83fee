"""Pages and their JSON twins over a seeded store, and what text from a pull request cannot do to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.documents import digest_bytes
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import Check, Effect, Finding, Outcome, RaceRequirement
from gatekeeper.services import needs
from gatekeeper.store import tables
from gatekeeper.store.jobs import Spent
from gatekeeper.web import pages
from tests.web import seed

RACE = seed.request(1).digest().removeprefix("sha256:")


@pytest.fixture
def seeded(web: Any) -> Any:
    seed.seed(web.store)
    return web


def test_the_empty_list_says_what_to_expect(web: Any) -> None:
    page = web.client.get("/")
    assert page.status_code == 200 and "No pull request yet" in page.text


def test_the_list_shows_every_outcome_by_word(seeded: Any) -> None:
    text = seeded.client.get("/").text
    for word in ("passed", "failed", "pending", "could not decide", "not judged yet"):
        assert f"<span>{word}</span>" in text
    assert text.count('class="pull ') == 7
    twin = seeded.client.get("/api/v1/pulls").json()
    assert twin["total"] == 7 and [row["number"] for row in twin["pulls"]] == [7, 6, 5, 4, 3, 2, 1]
    assert twin["pulls"][5]["checks"] == {
        "isolation": "failed", "scope": "passed", "benchmarks": "passed", "contributor-log": "passed",
    }  # fmt: skip


def test_a_check_that_had_nothing_to_judge_has_no_green_mark(seeded: Any) -> None:
    idle = ["scope", "benchmarks", "contributor-log"]
    twin = seeded.client.get("/api/v1/pulls/demo/vllm/6").json()
    assert twin["outcome"] == "passed" and [each["check"] for each in twin["checks"] if not each["judged"]] == idle
    assert {each["outcome"] for each in twin["checks"]} == {"passed"}, "what a required check needs stays as it is"
    text = seeded.client.get("/pulls/demo/vllm/6").text
    assert text.count('class="tile none"') == 3 and text.count('class="tile passed"') == 1
    assert "<span>nothing to judge</span>" in text
    row = next(row for row in seeded.client.get("/api/v1/pulls").json()["pulls"] if row["number"] == 6)
    assert row["unjudged"] == idle
    assert 'class="none" title="scope: nothing to judge"' in seeded.client.get("/").text


def test_outcomes_differ_by_shape_too(seeded: Any) -> None:
    text = seeded.client.get("/").text
    shapes = {
        outcome: re.search(rf'class="badge {outcome}"><svg[^>]*>\s*(.*?)\s*</svg>', text, re.DOTALL)[1]  # type: ignore[index]
        for outcome in ("passed", "failed", "pending", "error")
    }
    assert len({re.sub(r"\s+", "", shape) for shape in shapes.values()}) == 4


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("outcome=failed", [3, 2]),
        ("outcome=pending", [7, 4]),
        ("state=closed", []),
        ("q=GRACE", [2]),
        ("q=fused", [3]),
        ("repository=demo/vllm&limit=2&offset=2", [5, 4]),
        ("repository=demo/other", []),
    ],
)
def test_filters_and_paging(seeded: Any, query: str, numbers: list[int]) -> None:
    rows = seeded.client.get(f"/api/v1/pulls?{query}").json()["pulls"]
    assert [row["number"] for row in rows] == numbers
    assert seeded.client.get(f"/?{query}").status_code == 200


def test_pages_link_to_the_next_with_the_same_filters(seeded: Any) -> None:
    text = seeded.client.get("/?state=all&limit=3&offset=3").text
    assert 'rel="prev" href="/?state=all&amp;limit=3"' in text
    assert 'rel="next" href="/?state=all&amp;limit=3&amp;offset=6"' in text
    assert "4 to 6 of 7" in text


def test_a_pull_request_shows_findings_with_place_and_next_step(seeded: Any) -> None:
    text = seeded.client.get("/pulls/demo/vllm/2").text
    for part in (
        "ISO_PATH_OUTSIDE", "vllm/v1/core/sched/scheduler.py:214", "A file outside the model&#39;s own directory was changed.",
        "Change it, or ask @scheduler-owners for a waiver.", "A person has to decide: @kimi-owners may waive it.",
    ):  # fmt: skip
        assert part in text
    twin = seeded.client.get("/api/v1/pulls/demo/vllm/2").json()
    assert twin["outcome"] == "failed"
    assert twin["checks"][0]["policies"][0]["findings"][0]["code"] == "ISO_PATH_OUTSIDE"


def test_a_race_shows_figures_interval_margin_and_whose_word_it_is(seeded: Any) -> None:
    text = seeded.client.get("/pulls/demo/vllm/1").text
    for part in (
        '<svg class="ratio passed"',
        "lower bound",
        "contributed",
        ">ours<",
        "1.050",
        "Ran as a plain process (this target asks for one in a jail)",
    ):
        assert part in text, part
    race = seeded.client.get(f"/api/v1/races/{RACE}").json()
    assert race["outcome"] == "better" and len(race["figures"]) == 2 and race["jail"] == "process"
    assert all(figure["lower"] > figure["margin"] for figure in race["figures"])
    assert {row["tensor"] for row in race["errors"]} == {"out", "layer 0 state"}
    assert seeded.client.get(f"/races/{RACE}").text.count("layer 0 state") == 4, (
        "two configurations, two checks of each"
    )


def test_a_slower_candidate_is_not_drawn_as_passed(seeded: Any) -> None:
    text = seeded.client.get("/pulls/demo/vllm/3").text
    assert '<svg class="ratio open"' in text and '<svg class="ratio passed"' not in text
    assert "The candidate is slower than the stock path." in text


def test_figures_are_recomputed_and_not_believed(web: Any) -> None:
    lie = seed.race_result(0.94).model_copy(update={"outcome": seed.RaceOutcome.BETTER})
    with web.store.begin() as uow:
        seed.race_evidence(uow, 1, lie)
    assert web.client.get(f"/api/v1/races/{RACE}").json()["outcome"] == "worse"


def test_waiting_work_says_what_it_waits_for(seeded: Any) -> None:
    text = seeded.client.get("/pulls/demo/vllm/4").text
    assert "a maintainer&#39;s approval of head 040404040404" in text
    waiting = seed.request(4).digest()
    assert seeded.client.get(f"/api/v1/races/{waiting}").json()["state"] == "waiting"
    assert seeded.client.get(f"/races/{waiting}").status_code == 200


GOOD = (seed.result(Check.ISOLATION), seed.result(Check.SCOPE), seed.result(Check.CONTRIBUTOR_LOG))


def asks_for_a_race(web: Any, number: int, *results: Any, tree: int = 40, shot: Any = None) -> None:
    """Store a pull request whose verdict needs the race of a tree."""
    shot = shot or seed.snapshot(number, f"pull {number}")
    need = RaceRequirement(request=seed.request(tree))
    with web.store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=99, full_name="demo/vllm"), 3)
        asks = seed.result(Check.BENCHMARKS, Outcome.PENDING, "a race is needed", requirements=(need,))
        verdict = seed.store_verdict(uow, shot, (*(results or GOOD), asks))
        uow.note_trees(verdict.snapshot, [f"{tree:040x}"])
        needs.ask(uow, verdict.snapshot, shot, None, verdict, None)


def the_race(web: Any, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the only race of a pull request's page and the page's jobs of that kind."""
    page = web.client.get(f"/api/v1/pulls/demo/vllm/{number}").json()
    (race,) = page["races"]
    return race, [job for job in page["jobs"] if job["kind"] == "race"]


def test_what_is_said_of_many_configurations_is_one_entry_with_all_of_them_behind_it(web: Any) -> None:
    labels = [f"rows={rows} q=1 ctx={context}" for rows in (1, 8) for context in (31, 512, 4097)]
    wrong = [
        Finding(
            code="COR_MISMATCH", message=f"cpu, {label}: the error of {tensor} is too large", expected="at most 3.0e-02",
            found=f"9.{number}e-01",
        )
        for number, label in enumerate(labels)
        for tensor in ("out", "state", "state")
    ]  # fmt: skip
    held = Finding(code="COR_MISMATCH", message="cpu, rows=1 q=1 ctx=31: odd", effect=Effect.HOLD)
    results = (*GOOD, seed.result(Check.BENCHMARKS, Outcome.FAILED, "wrong", (*wrong, held)))
    with web.store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=99, full_name="demo/vllm"), 3)
        seed.store_verdict(uow, seed.snapshot(25, "wrong"), results)
    text = web.client.get("/pulls/demo/vllm/25").text
    assert text.count('<code class="code">COR_MISMATCH</code>') == 2, "what a person decides stays apart"
    assert "18 times, at 6 places" in text and text.count('<div class="place">') == 6
    assert text.count("It has to be changed; nobody may waive it.") == 1
    behind = text[text.index("<details>") :]
    for number, label in enumerate(labels):
        assert f'<code class="path">cpu, {label}</code>' in behind and f"9.{number}e-01" in behind
    assert behind.count('<span class="tag">2 times</span>') == 6, "what is equal is told once"
    assert len(web.client.get("/api/v1/pulls/demo/vllm/25").json()["checks"][2]["policies"][0]["findings"]) == 19


def test_a_race_of_the_same_code_is_not_shown_as_that_of_a_pull_request_that_may_not_have_it(web: Any) -> None:
    asks_for_a_race(web, 20)
    asks_for_a_race(web, 21)
    asks_for_a_race(web, 22, seed.result(Check.ISOLATION, Outcome.FAILED, "outside", (seed.OUTSIDE,)), *GOOD[1:])
    with web.store.begin() as uow:
        job = uow.job_named(JobKind.RACE, seed.request(40).digest())
        assert uow.claim(job.id, timedelta(seconds=60)) is not None
    for number, other in ((20, "#21"), (21, "#20")):
        race, jobs = the_race(web, number)
        assert (race["state"], len(jobs)) == ("running", 1) and f"one race with that of {other}" in race["doing"]
    race, jobs = the_race(web, 22)
    assert (race["state"], jobs) == ("waiting", [])
    assert race["held_back"].startswith("it waits for `isolation`, which has failed")
    assert "The same code is raced for #20 and #21" in race["doing"]
    text = web.client.get("/pulls/demo/vllm/22").text
    assert "<span>held back</span>" in text and "It is being run now." not in text and ">running<" not in text


def test_the_race_of_a_closed_pull_request_has_not_failed(web: Any) -> None:
    asks_for_a_race(web, 23)
    closed = seed.snapshot(23, "pull 23").model_copy(update={"open": False})
    with web.store.begin() as uow:
        uow.cancel(JobKind.RACE, seed.request(40).digest())
    asks_for_a_race(web, 23, shot=closed)
    race, jobs = the_race(web, 23)
    assert jobs == [] and race["doing"] == "It is not run for this pull request: the pull request is closed."
    text = web.client.get("/pulls/demo/vllm/23").text
    assert "JOB_CANCELLED" not in text and "<span>given up</span>" not in text
    alone = web.client.get(f"/api/v1/races/{seed.request(40).digest()}").json()
    assert alone["doing"] == "It is not asked for now."


def test_a_race_that_waits_for_the_machine_says_so_while_it_looks_for_its_turn(web: Any) -> None:
    asks_for_a_race(web, 24)
    seen = []
    for _ in range(2):
        with web.store.begin() as uow:
            job = uow.job_named(JobKind.RACE, seed.request(40).digest())
            claim = uow.claim(job.id, timedelta(seconds=60))
        if seen:
            seen.append((the_race(web, 24), web.client.get("/pulls/demo/vllm/24").text))
        with web.store.begin() as uow:
            uow.release(claim, uow.now, "RUN_MACHINE_TAKEN: a race has to wait for its turn", Spent.NOTHING)
        seen.append((the_race(web, 24), web.client.get("/pulls/demo/vllm/24").text))
    assert len(seen) == 3
    for (race, jobs), text in seen:
        assert (race["state"], jobs[0]["state"], jobs[0]["error"]) == ("waiting", "queued", None)
        assert (
            "Waits for the machine, which other races or probes have now." in text
            and "<span>running</span>" not in text
        )
    with web.store.begin() as uow:
        uow.begun(uow.claim(job.id, timedelta(seconds=60)))
    assert the_race(web, 24)[0]["doing"] == "It is being run now."


def test_a_pull_request_that_could_not_be_read_is_said_to_be_tried_again(web: Any) -> None:
    with web.store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=99, full_name="demo/vllm"), 3)
        for number, is_open in ((30, True), (31, False)):
            uow.remember_pull(
                99, number, title="t", author_id=6, author_login="ada", base_ref="main", draft=False, open=is_open,
                head_sha="7" * 40,
            )  # fmt: skip
            claim = uow.claim(uow.enqueue(JobKind.INTAKE, f"99:{number}"), timedelta(seconds=60))
            uow.finish(claim, JobState.FAILED, "GIT_FETCH: no answer (given up after 5 attempts)")
    text = web.client.get("/pulls/demo/vllm/30").text
    assert "<span>tried again later</span>" in text and "Tried again every 15 minutes." in text
    assert "<span>given up</span>" in web.client.get("/pulls/demo/vllm/31").text


def test_the_verdict_chain_and_its_documents(seeded: Any) -> None:
    twin = seeded.client.get("/api/v1/pulls/demo/vllm/1").json()
    newest, oldest = twin["chain"]
    assert newest["supersedes"] == oldest["digest"] and oldest["supersedes"] is None
    document = seeded.client.get(f"/api/v1/verdicts/{newest['digest']}")
    assert digest_bytes(document.content) == newest["digest"]
    assert seeded.client.get(f"/api/v1/verdicts/{newest['digest'][7:]}").content == document.content
    assert "Shown by <code>page</code>" in seeded.client.get("/pulls/demo/vllm/1").text


def test_no_blank_stands_between_a_piece_and_what_closes_it(seeded: Any) -> None:
    pages = ["/", *(f"/pulls/demo/vllm/{number}" for number in range(1, 8)), f"/races/{RACE}"]
    text = "\n".join(seeded.client.get(page).text for page in pages)
    shown = re.sub(r"<[^>]+>", "", text)
    assert re.search(r"\([0-9a-f]{12}, [-0-9]+ [:0-9]+ UTC\)\.", shown), "a moment in brackets"
    assert re.findall(r"\S+[ \n]+[).,](?=\s)", shown) == []


def test_what_stands_in_backticks_is_shown_as_code_and_an_odd_one_stays(web: Any) -> None:
    def told(number: int, message: str) -> str:
        finding = seed.Finding(code="A_CODE", message=message, path="a.py")
        with web.store.begin() as uow:
            if number == 1:
                uow.remember_repository(seed.RepositoryRef(id=99, full_name="demo/vllm"), 3)
            results = (seed.result(seed.Check.SCOPE, seed.Outcome.FAILED, message, (finding,)),)
            seed.store_verdict(uow, seed.snapshot(number, "A change"), results)
        return str(web.client.get(f"/pulls/demo/vllm/{number}").text)

    paired = told(1, "`switch` is still to be decided, as <b>`a<i>`</b>")
    assert (
        paired.count("<code>switch</code> is still to be decided, as &lt;b&gt;<code>a&lt;i&gt;</code>&lt;/b&gt;.") == 2
    )
    assert "`" not in paired
    assert told(2, "one ` alone").count("One ` alone.") == 2


def test_times_are_machine_readable_and_utc(seeded: Any) -> None:
    assert (
        '<time datetime="2026-11-30T04:17:00Z">2026-11-30 04:17 UTC</time>'
        in seeded.client.get("/pulls/demo/vllm/1").text
    )


HOSTILE = '"><img src=x onerror=alert(1)> onmouseover=alert(2) {{7*7}} javascript:alert(3)'


def test_web_xss_context(web: Any, payload: Callable[..., Any]) -> None:
    web.deliver("pull_request", payload(title=HOSTILE, user={"id": 5, "login": HOSTILE}, base={"ref": HOSTILE}))
    shot = seed.snapshot(9, HOSTILE, HOSTILE)
    finding = seed.OUTSIDE.model_copy(
        update={"path": HOSTILE, "found": HOSTILE, "expected": HOSTILE, "message": HOSTILE, "waived_by": HOSTILE}
    )
    results = (seed.result(seed.Check.ISOLATION, seed.Outcome.FAILED, HOSTILE, (finding,)),)
    with web.store.begin() as uow:
        seed.store_verdict(uow, shot, results)
    for path in (
        "/",
        "/pulls/demo/vllm/7",
        "/pulls/demo/vllm/9",
        f"/?q={HOSTILE}",
        "/?state=all&repository=%22onclick=",
    ):
        text = web.client.get(path).text
        assert "<img src=x" not in text
        if HOSTILE in path or "pulls" in path:
            assert "{{7*7}}" in text, "shown as it is, never run as a template"
        for attribute in re.findall(r"\s(on\w+|style)=", re.sub(r'"[^"]*"', '""', re.sub(r">[^<]*<", "><", text))):
            pytest.fail(f"{path}: attribute {attribute} is in the page")
        assert not re.search(r'href="(?!/|#)', text), path


def test_web_xss_template_name() -> None:
    made = pages.environment()
    for name in ("a.html", "a.html.j2", "a.txt", "a.svg", "a"):
        template = made.from_string("{{ text }}")
        template.name = name
        assert template.render(text="<b>") == "&lt;b&gt;"
    assert made.autoescape is True
    package = Path(pages.__file__).parent
    for source in [*package.rglob("*.py"), *package.rglob("*.html")]:
        code = source.read_text()
        assert not re.search(r"\|\s*safe\b|Markup\(|autoescape\s+false", code), source


def test_templates_quote_every_attribute_that_holds_a_value() -> None:
    for source in pages.TEMPLATES.rglob("*.html"):
        assert not re.search(r"=\s*\{\{", source.read_text()), f"{source.name} has an attribute without quotes"
        assert "<script" not in source.read_text() and " style=" not in source.read_text()


@pytest.mark.parametrize(
    "path",
    [
        "/races/..%2f..%2fetc%2fpasswd", "/races/%252e%252e%252f", "/races/a%00b", "/races/" + "0" * 64, "/races/" + "g" * 64,
        "/races/../../etc/passwd", "/pulls/demo/vllm/0", "/pulls/demo/vllm/99", "/pulls/demo/vllm/1e9", "/pulls/demo/vllm/-1",
        "/pulls/demo/vllm/99999999999999999999", "/pulls/demo/%00/1", "/pulls/de mo/vllm/1", "/pulls/demo/absent/1", "/nothing",
        "/static/../app.py", "/static/%2e%2e/app.py", "/docs/", "/pulls",
    ],
)  # fmt: skip
def test_web_path_param(seeded: Any, path: str) -> None:
    answers = [seeded.client.get(path), seeded.client.get("/api/v1" + path)]
    assert [answer.status_code for answer in answers] in ([404, 404], [404, 200])
    if path != "/pulls":
        absent = seeded.client.get("/api/v1/pulls/never/seen/1").json()
        assert answers[1].json() == absent, "every kind of absence has the same text"


@pytest.mark.parametrize(
    "query",
    [
        "limit=1000000000",
        "limit=0",
        "offset=-1",
        "offset=99999999",
        "limit=x",
        "outcome=good",
        "state=none",
        "q=%00",
        "q=" + "x" * 500,
    ],
)
def test_web_dos_query(seeded: Any, query: str) -> None:
    answer = seeded.client.get(f"/api/v1/pulls?{query}")
    assert answer.status_code == 422 and answer.json()["error"]["code"] in ("QUERY", "TEXT")
    assert seeded.client.get(f"/?{query}").status_code == 422
    assert seeded.client.get("/api/v1/pulls?limit=200").status_code == 200


@pytest.mark.parametrize("text", ["%", "_", "' OR 1=1 --", "'; DROP TABLE pulls; --", "\\"])
def test_web_sqli(seeded: Any, text: str) -> None:
    for name in ("q", "repository"):
        assert seeded.client.get("/api/v1/pulls", params={name: text}).json()["total"] == 0
    assert seeded.count(tables.pulls) == 7
    assert seeded.client.get("/api/v1/pulls", params={"sort": "title; drop table pulls"}).json()["total"] == 7


def test_pages_change_nothing(seeded: Any) -> None:
    for path in ("/", "/pulls/demo/vllm/1", f"/races/{RACE}", "/api/v1/pulls"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert seeded.client.request(method, path).status_code == 405
