"""The composition root: settings in, a running set of parts out. Nothing else knows which mode this is."""

from gatekeeper.bootstrap.database import upgrade_database
from gatekeeper.bootstrap.github import github_app
from gatekeeper.bootstrap.service import Service, build, build_worker, lane_of, load_books, place_of, worker_arguments
from gatekeeper.bootstrap.settings import (
    configure_logs,
    documented,
    keyring,
    load_settings,
    nearest_setting,
    quotas,
    unknown_settings,
)

__all__ = [
    "configure_logs", "documented", "keyring", "load_settings", "nearest_setting", "quotas", "unknown_settings",
    "upgrade_database",
    "github_app",
    "Service", "build", "build_worker", "lane_of", "load_books", "place_of", "worker_arguments",
]  # fmt: skip
