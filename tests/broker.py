"""A Redis database for tests, where a server answers; named by a variable, or a free one of the local server."""

from __future__ import annotations

import fcntl
import os
import tempfile
from functools import cache
from pathlib import Path

import redis
from redis.exceptions import ConnectionError, ResponseError

VARIABLE = "GATEKEEPER_TEST_BROKER_URL"
LOCAL = "redis://127.0.0.1:6379"


@cache
def broker_url() -> str | None:
    """Return the URL of an empty Redis database that no other test run uses, or None if no server answers.

    A server that was named on purpose and does not answer is an error, not an absence; its database is used as it is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        redis.Redis.from_url(named).ping()
        return named
    for number in range(15, 0, -1):
        url = f"{LOCAL}/{number}"
        try:
            if redis.Redis.from_url(url, socket_connect_timeout=2).dbsize() == 0 and _ours(number):
                return url
        except ConnectionError:
            return None
        except ResponseError:  # a server with fewer databases
            continue
    return None


def _ours(number: int) -> bool:
    """Take a database for as long as this process lives: two runs at once would empty each other's queues."""
    lock = os.open(Path(tempfile.gettempdir()) / f"gatekeeper-test-redis-{number}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True
