"""``gatekeeper serve``, ``worker`` and ``migrate``: the parts of a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from gatekeeper import bootstrap

if TYPE_CHECKING:
    from fastapi import FastAPI


@click.command()
def serve() -> None:
    """Serve webhooks, pages and the API; without a broker, do the work too."""
    from gatekeeper.web.server import listen, run

    settings = bootstrap.load_settings()
    bootstrap.keyring(settings)  # refuses to start before anything is opened
    bootstrap.configure_logs(settings)
    with listen(
        settings.host, settings.port
    ) as sockets:  # taken first: a port that is not free leaves no database behind
        service = bootstrap.build(settings, serves=True)
        try:
            app = web_app(service)
            service.start()
            run(app, sockets)
        finally:
            service.close()


def web_app(service: bootstrap.Service) -> FastAPI:
    """Return the web application of a service: webhooks, health, pages and API."""
    from gatekeeper.web.app import create_app
    from gatekeeper.web.health import alive_check, directory_check
    from gatekeeper.web.options import Readiness, WebOptions

    settings = service.settings
    mirrors = settings.data_dir / "mirrors"
    mirrors.mkdir(parents=True, exist_ok=True)
    readiness: dict[str, Readiness] = {
        "database": lambda: ", ".join(service.pending_revisions()) or None,
        "mirrors": directory_check(mirrors),
    }
    if service.local is not None:
        readiness["worker"] = alive_check(service.local.alive, "a thread of the embedded worker")
    hosts = {"localhost", "127.0.0.1", "[::1]", urlsplit(settings.base_url).hostname or "localhost"}
    options = WebOptions(
        keyring=bootstrap.keyring(settings),
        quotas=bootstrap.quotas(settings),
        hosts=tuple(sorted(hosts)),
        readiness=readiness,
        queue=service.queue_lines,
        documentation=bootstrap.documented(settings),
    )
    return create_app(service.ctx, options)


@click.command()
@click.option("--target", help="Run races of this target instead of ordinary jobs.")
@click.option("--concurrency", default=1, show_default=True, type=click.IntRange(1, 64), help="Jobs at the same time.")
@click.option("--timer/--no-timer", default=False, help="Also look for lost work regularly (one worker only).")
@click.option("--probes/--no-probes", default=True, help="Also run probes, which need a jail as races do.")
def worker(target: str | None, concurrency: int, timer: bool, probes: bool) -> None:
    """Work for the broker's queues until stopped.

    Races and probes of one machine never run at the same time, whichever of its workers has them.
    """
    from gatekeeper import tasks

    settings = bootstrap.load_settings()
    bootstrap.configure_logs(settings)
    service = bootstrap.build_worker(settings)
    try:
        app = tasks.register(service)
        if target is not None and target not in service.ctx.catalog.targets:
            known = ", ".join(service.ctx.catalog.targets)
            raise click.BadParameter(f"no such target; expected one of {known}", param_hint="--target")
        queues = [*(["probes"] if probes else []), "jobs" if target is None else f"race.{target}"]
        # Threads, because a job waits for a database, for git or for a worker program; nothing here computes.
        app.worker_main([*bootstrap.worker_arguments(queues, concurrency, timer), "--pool", "threads"])
    finally:
        service.close()


@click.command()
def migrate() -> None:
    """Bring the database to the newest schema."""
    applied = bootstrap.upgrade_database(bootstrap.load_settings())
    click.echo(f"applied {', '.join(applied)}" if applied else "nothing to do")
