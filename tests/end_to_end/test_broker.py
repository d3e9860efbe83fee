"""The production path: a webhook to one process, the work in another, ids over a real broker. Skipped without Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from fastapi.testclient import TestClient

from gatekeeper import bootstrap
from gatekeeper.catalog import ROOT
from gatekeeper.cli import main
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.upstream import Upstream, build
from gatekeeper.domain.errors import ConfigurationError
from tests.broker import broker_url
from tests.database import create_database, drop_database, server_url

pytestmark = [pytest.mark.services, pytest.mark.skipif(broker_url() is None, reason="no Redis answers")]

SECRET = "s" * 40
UNGUARDED = next(pull for pull in sample_pulls() if "ISO_HOOK_UNGUARDED" in pull.codes)
PATIENCE = 240.0


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    place = tmp_path_factory.mktemp("remote") / delivery.OWNER / f"{delivery.NAME}.git"
    place.parent.mkdir()
    return build(place, {UNGUARDED.number: (UNGUARDED.title, UNGUARDED.changes)})


@pytest.fixture
def database_url(backend: str, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind, not migrated."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'gatekeeper.db'}"
        return
    server = server_url()
    assert server is not None
    url = create_database(server)
    yield url
    drop_database(server, url)


@dataclass
class Plant:
    """A web process (this one), the environment of workers, and the broker between them."""

    environment: dict[str, str]
    broker: redis.Redis
    client: TestClient
    upstream: Upstream

    def deliver(self) -> None:
        head = self.upstream.heads[UNGUARDED.number]
        content = delivery.payload(UNGUARDED.number, UNGUARDED.title, UNGUARDED.author, head, self.upstream.base_sha)
        delivery.deliver(self.client, SECRET, content)

    def page(self) -> dict[str, Any]:
        answer = self.client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{UNGUARDED.number}")
        return answer.json() if answer.status_code == 200 else {}

    def isolation(self) -> str | None:
        return next(
            (check["outcome"] for check in self.page().get("checks", ()) if check["check"] == "isolation"), None
        )

    @contextmanager
    def worker(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of its own, killed at the end however it is doing."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gatekeeper", "worker", *options], cwd=ROOT, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.2)


@pytest.fixture
def plant(database_url: str, tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    url = broker_url()
    assert url is not None
    values = {
        "DATABASE_URL": database_url,
        "BROKER_URL": url,
        "DATA_DIR": str(tmp_path / "data"),
        "WEBHOOK_SECRET": SECRET,
        "GIT_BASE_URL": f"file://{upstream.path.parent.parent}",
        "POLICY_SET": "demo",
        "TRUSTED_AUTHORS": '["ada", "ben"]',
        "RECONCILE_SECONDS": "1",
        "LOG_FORMAT": "plain",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"GATEKEEPER_{name}", value)
    with pytest.raises(ConfigurationError, match="CONFIG_MIGRATION"):
        bootstrap.build(Settings())
    assert main(["migrate"]) == 0
    service = bootstrap.build(Settings())
    assert service.local is None, "this process does no work itself"
    with redis.Redis.from_url(url) as broker:
        broker.flushdb()
        # A machine of their own for the workers: a race that somebody runs here must not hold up their probes.
        with tempfile.TemporaryDirectory(prefix="gatekeeper-test-") as scratch:
            Path(scratch).chmod(0o711)
            environment = {**os.environ, "TMPDIR": scratch}
            yield Plant(environment, broker, TestClient(web_app(service), base_url="http://127.0.0.1"), upstream)
        broker.flushdb()
    service.close()


def test_a_webhook_becomes_a_verdict_in_another_process_and_a_decision_is_judged_there_too(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    with plant.worker("--no-probes", "--concurrency", "2"):
        plant.deliver()
        until(lambda: plant.page().get("published"), "a published verdict")
        assert (plant.page()["outcome"], plant.isolation()) == ("failed", "failed")
        until(lambda: plant.broker.llen("jobs") == 0, "an empty queue of jobs")
        assert plant.broker.llen("probes") == 1, "the probe waits for a worker that has a jail"
        head = plant.upstream.heads[UNGUARDED.number]
        place = f"{delivery.REPOSITORY}#{UNGUARDED.number}"
        options = ["--policy=isolation", "--code=ISO_HOOK_UNGUARDED", "--by=k3-owner", "--reason=looked at together"]
        assert main(["waive", place, "--head", head, *options]) == 0
        assert "is being judged anew" in capsys.readouterr().out
        until(lambda: plant.isolation() == "passed", "the verdict with the waiver")
    queue = plant.client.get("/readyz").json()["queue"]
    assert queue["probe"]["due"] == 1 and "evaluate" not in queue


def test_a_lost_message_is_sent_again_by_the_timer(plant: Plant) -> None:
    plant.deliver()
    assert plant.broker.llen("jobs") == 1
    plant.broker.delete("jobs")
    with plant.worker("--no-probes", "--timer"):
        until(lambda: plant.isolation() == "failed", "a verdict although the message was lost")


def test_a_probe_is_run_by_a_worker_of_its_own_queue_and_its_evidence_wakes_the_verdict(plant: Plant) -> None:
    plant.deliver()
    with plant.worker("--concurrency", "2"):
        until(lambda: any(row["kind"] == "probe" for row in plant.page().get("evidence", ())), "evidence of the probe")
    assert plant.broker.llen("probes") == 0


def test_a_webhook_is_accepted_while_the_broker_is_down(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEKEEPER_BROKER_URL", "redis://127.0.0.1:1/0")
    service = bootstrap.build(Settings())
    try:
        plant.client = TestClient(web_app(service), base_url="http://127.0.0.1")
        plant.deliver()
        with service.ctx.store.read() as uow:
            assert len(uow.due_jobs(10)) == 1, "the work is committed; the timer will find it"
    finally:
        service.close()
