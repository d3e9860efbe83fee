"""How the parts are put together: which mode follows from which settings, what stops a start, whose turn a job is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gatekeeper import bootstrap, tasks
from gatekeeper.backends.celery import CeleryQueue
from gatekeeper.backends.local import JOBS, RACES
from gatekeeper.config import Settings
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.race import ProbeRequest, TreeSource
from gatekeeper.services.needs import PROBE_REQUEST, PROBES_FIRST, RACE_REQUEST
from tests import race_samples
from tests.builders import sha

BROKER = SecretStr("redis://127.0.0.1:1/0")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}", data_dir=tmp_path / "data", policy_set="demo"
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[bootstrap.Service]:
    made = bootstrap.build(settings)
    yield made
    made.close()


def changed(settings: Settings, **values: Any) -> Settings:
    return settings.model_copy(update=values)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "PORT",
            "eighty",
            "(expected a whole number from 1 to 65535: port that `gatekeeper serve` listens on; found 'eighty')",
        ),
        (
            "PORT",
            "70000",
            "(expected a whole number from 1 to 65535: port that `gatekeeper serve` listens on; found '70000')",
        ),
        ("LEASE_SECONDS", "0", "(expected a number of at least 1: how long a silent worker keeps a job; found '0')"),
        ("LOG_FORMAT", "xml", "(expected 'json' or 'plain': form of the log lines on standard error; found 'xml')"),
        (
            "BASE_URL",
            "me:hush@gate",
            "(expected http:// or https:// with a host, and a port where it has one, without a path:",
        ),
        ("TRUSTED_AUTHORS", '{"ada": 1}', "JSON list of logins"),
        ("DOCUMENTATION", "perhaps", "whether /docs and /openapi.json are served"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_expected_and_no_secret_is_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(f"GATEKEEPER_{name}", value)
    with pytest.raises(ConfigurationError) as refused:
        bootstrap.load_settings()
    assert refused.value.code == f"CONFIG_{name}" and f"GATEKEEPER_{name}" in refused.value.message
    assert told in str(refused.value) and "pydantic" not in str(refused.value)
    assert (value in str(refused.value)) == (name in ("PORT", "LEASE_SECONDS", "LOG_FORMAT"))


def test_every_setting_says_what_it_is_for_and_secrets_are_not_printed() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
    shown = repr(
        Settings(webhook_secret=SecretStr("a secret of some length"), broker_url=SecretStr("redis://:word@host/0"))
    )
    assert "a secret" not in shown and "word@host" not in shown


def test_without_a_broker_the_process_works_itself_and_migrates_its_database(service: bootstrap.Service) -> None:
    assert service.local is not None and service.broker is None
    assert service.pending_revisions() == []
    assert service.ctx.queue is service.local


def test_a_worker_without_a_broker_is_refused_before_anything_is_opened(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="CONFIG_BROKER_URL"):
        bootstrap.build_worker(settings)
    assert not settings.data_dir.exists()


def test_with_a_broker_it_does_not_and_an_old_database_stops_the_start(settings: Settings) -> None:
    over_broker = changed(settings, broker_url=BROKER)
    with pytest.raises(ConfigurationError, match="gatekeeper migrate"):
        bootstrap.build(over_broker)
    assert bootstrap.upgrade_database(over_broker)[0] == "0001"
    assert bootstrap.upgrade_database(over_broker) == []
    service = bootstrap.build(over_broker, serves=True)
    try:
        assert service.local is None and isinstance(service.ctx.queue, CeleryQueue)
        conf = service.broker.conf
        assert (conf.accept_content, conf.task_acks_late, conf.task_ignore_result) == (["json"], True, True)
        longest = max(target.longest_race_seconds for target in service.ctx.catalog.targets.values())
        assert conf.broker_transport_options["visibility_timeout"] > longest, "or Redis hands a running race out again"
        assert Path(conf.beat_schedule_filename).parent == settings.data_dir
        service.start()
        assert set(tasks.register(service).tasks) >= {"gatekeeper.run_job", "gatekeeper.reconcile"}
    finally:
        service.close()


def test_a_second_service_on_the_same_directory_is_refused_until_the_first_one_ends(settings: Settings) -> None:
    first = bootstrap.build(settings, serves=True)
    with pytest.raises(ConfigurationError, match="CONFIG_DATA_DIR"):
        bootstrap.build(settings, serves=True)
    bootstrap.build(settings).close()  # a command may look at it beside the service
    first.close()
    bootstrap.build(settings, serves=True).close()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("policy_set", "nothing", "CONFIG_POLICY_SET: GATEKEEPER_POLICY_SET"),
        ("git_base_url", "ftp://example.org", "CONFIG_GIT_BASE_URL: GATEKEEPER_GIT_BASE_URL"),
        ("git_base_url", "https://me:hush@example.org", "CONFIG_GIT_BASE_URL: GATEKEEPER_GIT_BASE_URL"),
        ("github_app", "Iv1", "CONFIG_GITHUB_PRIVATE_KEY: the App of GATEKEEPER_GITHUB_APP"),
        ("data_dir", Path("/dev/null/data"), "CONFIG_DATA_DIR: the folder of GATEKEEPER_DATA_DIR"),
    ],
)
def test_what_the_settings_have_wrong_is_told_before_anything_is_written(
    settings: Settings, tmp_path: Path, name: str, value: Any, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        bootstrap.build(changed(settings, **{name: value}), serves=True)
    assert told in str(refused.value) and "hush" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_fails_leaves_no_lock_behind(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="CONFIG_DATABASE"):
        bootstrap.build(changed(settings, database_url="sqlite://"), serves=True)
    bootstrap.build(settings, serves=True).close()


def test_an_embedded_service_works_off_its_queue_and_stops(settings: Settings) -> None:
    service = bootstrap.build(changed(settings, reconcile_seconds=0.1))
    service.start()
    assert service.local is not None and service.local.alive()
    with service.ctx.store.begin() as uow:
        job_id = uow.enqueue(JobKind.INTAKE, "1:1")
    for _ in range(200):
        with service.ctx.store.read() as uow:
            row = uow.job(job_id)
        if row is not None and row.state is JobState.FAILED:
            break
        service.local._stopping.wait(0.05)
    assert row is not None and "INTAKE_REPOSITORY" in (row.error or "")
    service.close()
    assert not service.local.alive()


def test_what_another_process_enqueued_is_done_long_before_the_next_reconcile(settings: Settings) -> None:
    settings = changed(settings, reconcile_seconds=3600)
    service, command = bootstrap.build(settings), bootstrap.build(settings)
    service.start()
    time.sleep(0.2)  # the first look is over
    with command.ctx.store.begin() as uow:
        job_id = uow.enqueue(JobKind.INTAKE, "1:1")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with command.ctx.store.read() as uow:
            row = uow.job(job_id)
        if row is not None and row.state is JobState.FAILED:
            break
        time.sleep(0.05)
    command.close()
    service.close()
    assert row is not None and row.state is JobState.FAILED


def race(service: bootstrap.Service, tree: str, priority: int, target: str = "cpu") -> str:
    source = TreeSource(repository_id=7, tree=sha(tree), directory="a/b", entry_point="a.b.gate:candidate")
    request = race_samples.request(candidate=source, target=race_samples.target(name=target))
    with service.ctx.store.begin() as uow:
        uow.put_document(RACE_REQUEST, request)
        return uow.enqueue(JobKind.RACE, request.digest(), payload={"alpha": 0.01}, priority=priority)


def probe(service: bootstrap.Service) -> str:
    source = TreeSource(repository_id=7, tree=sha("1"), directory="a/b", entry_point="a.b.gate:candidate")
    request = ProbeRequest(source=source)
    with service.ctx.store.begin() as uow:
        uow.put_document(PROBE_REQUEST, request)
        return uow.enqueue(JobKind.PROBE, request.digest(), priority=PROBES_FIRST)


def test_races_go_to_the_queue_of_their_target_and_probes_to_their_own(service: bootstrap.Service) -> None:
    raced, probed = race(service, "1", -2), probe(service)
    with service.ctx.store.begin() as uow:
        ordinary = uow.enqueue(JobKind.INTAKE, "1:1", priority=3)
    found = [service.lane_of(job_id) for job_id in (raced, probed, ordinary, "no such id")]
    assert found == ["race.cpu", "probes", "jobs", "jobs"]
    store = service.ctx.store
    places = [bootstrap.place_of(store, job_id) for job_id in (raced, probed, ordinary, "no such id")]
    assert places == [(RACES, -2), (RACES, PROBES_FIRST), (JOBS, 3), (JOBS, 0)], "embedded, the two share a lane"


def test_a_message_is_a_turn_and_the_database_says_whose(
    service: bootstrap.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, fair, elsewhere = race(service, "1", -5), race(service, "2", 0), race(service, "3", 9, target="h200")
    ran: list[str] = []

    def run_job(self: bootstrap.Service, job_id: str) -> None:
        with self.ctx.store.begin() as uow:
            if uow.claim(job_id, timedelta(seconds=60)) is not None:
                ran.append(job_id)

    monkeypatch.setattr(bootstrap.Service, "run_job", run_job)
    assert service.run_next(first) == (fair, None)
    assert service.run_next(fair) == (first, None)
    assert service.run_next(first) == (first, None), "nothing else is due in this lane"
    assert ran == [fair, first]
    with service.ctx.store.begin() as uow:
        job = uow.enqueue(JobKind.INTAKE, "1:1")
        uow.enqueue(JobKind.INTAKE, "1:2", priority=50)
    assert service.run_next(job)[0] == job, "ordinary jobs come as they are"
    assert service.run_next(elsewhere)[0] == elsewhere


def test_worker_arguments() -> None:
    assert bootstrap.worker_arguments(["probes", "jobs"], 3, True)[-5:] == [
        "--concurrency",
        "3",
        "--queues",
        "probes,jobs",
        "--beat",
    ]
    assert "--beat" not in bootstrap.worker_arguments(["jobs"], 1, False)
