"""A Redis database for tests, where a server answers; named by a variable, or the local one."""

from __future__ import annotations

import os
from functools import cache

import redis
from redis.exceptions import ConnectionError, ResponseError

VARIABLE = "GATEKEEPER_TEST_BROKER_URL"
LOCAL = "redis://127.0.0.1:6379"


@cache
def broker_url() -> str | None:
    """Return the URL of an empty Redis database, or None if no server answers.

    A server that was named on purpose and does not answer is an error, not an absence; its database is used as it is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        redis.Redis.from_url(named).ping()
        return named
    for number in range(15, 0, -1):
        url = f"{LOCAL}/{number}"
        try:
            if redis.Redis.from_url(url, socket_connect_timeout=2).dbsize() == 0:
                return url
        except ConnectionError:
            return None
        except ResponseError:  # a server with fewer databases
            continue
    return None
