"""A policy set: which policies count, and with which parameters. One TOML file in ``policies/sets/``.

A set may only override what a policy file declares. Names of policies and parameters are checked where the set is applied to
the installed policies (``gatekeeper.engine``), so that a misspelt one stops the process instead of weakening the gate.
"""

from __future__ import annotations

import tomllib
from typing import Any

from pydantic import Field, ValidationError

from gatekeeper.domain.documents import Document, Value
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.policy import Severity


class PolicySettings(Value):
    """What a set says about one policy."""

    severity: Severity | None = None
    """None keeps the severity that the policy file declares."""
    parameters: dict[str, Any] = {}


class PolicySet(Document):
    """A named choice of severities and parameters."""

    schema_version: int = Field(default=1, alias="schema", ge=1, le=1)
    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    title: str = ""
    policies: dict[str, PolicySettings] = {}


def parse_policy_set(text: str, *, source: str) -> PolicySet:
    """Read a policy set from TOML; ``source`` names the file in errors.

    Raises:
        ConfigurationError: ``CONFIG_POLICY_SET`` for TOML errors, unknown keys or values out of range.
    """
    try:
        return PolicySet(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{source} is not TOML", code="CONFIG_POLICY_SET", expected="a TOML document", found=str(error)
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"{source}: `{where}` is wrong",
            code="CONFIG_POLICY_SET",
            expected=first["msg"],
            found=repr(first.get("input"))[:120],
        ) from error
