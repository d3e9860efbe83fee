"""What a repository's maintainers decided: ``.github/gatekeeper.toml`` of the base branch, never of the head."""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from gatekeeper.domain.documents import Document, Value
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.globs import components, pattern_fault
from gatekeeper.domain.source import SourceTree

CONFIGURATION_PATH = ".github/gatekeeper.toml"
MANIFEST_NAME = "fast_track.toml"
_LARGEST = 256 * 1024
_DIRECTORY = "a directory below the repository root, such as 'vllm/models/kimi_k3/nvidia'"
_OPENS_THE_GATE = "CONFIG_ALLOWED_DIR: "


def _pattern(text: str) -> str:
    fault = pattern_fault(text)
    if fault:
        raise ValueError(f"expected a path pattern such as 'csrc/**' or '**/*.cu'; found {text!r}: {fault}")
    return text


def _directory(text: str) -> str:
    fault = pattern_fault(text.rstrip("/") if text != "/" else text)
    if fault is None and "**" in components(text):
        fault = "'**', which would leave the depth open"
    if fault is None and all(set(part) <= {"*", "?"} for part in components(text.rstrip("/"))):
        fault = "no literal name at all, so that every directory would be taken in; below a name it may stand: 'ops/*'"
    if fault:
        raise ValueError(f"{_OPENS_THE_GATE}{fault}")
    return text.rstrip("/")


Pattern = Annotated[str, AfterValidator(_pattern)]
Directory = Annotated[str, AfterValidator(_directory)]
Login = Annotated[str, Field(pattern=r"^@[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?$")]


class ModelRules(Value):
    """One ``[[models]]`` table: where one model of one vendor lives and which of its files are open to the fast track.

    ``root`` may hold ``*`` components (``vllm/models/*/*``): each directory that it matches is a model of its own. ``free`` and
    ``hooks`` are relative to ``root``; ``tests`` is relative to the repository root.
    """

    name: str = Field(min_length=1)
    vendor: str = ""
    root: Directory
    free: tuple[Directory, ...] = Field(min_length=1)
    tests: tuple[Directory, ...] = ()
    hooks: tuple[Pattern, ...] = ()
    hook_budget: int = Field(default=70, ge=0, le=10_000)
    """Largest number of lines that a change may add over all hook files together."""


class Fault(Value):
    """Why no configuration could be read. A configuration with a fault decides nothing: every policy raises it."""

    code: str
    message: str
    expected: str = ""
    found: str = ""


class RepositoryConfiguration(Document):
    """The maintainers' choices for one repository. ``docs/gatekeeper.example.toml`` shows every key."""

    schema_version: Literal[1] = 1
    policy_set: str = Field(default="default", pattern=r"^[a-z][a-z0-9_-]*$")
    mode: Literal["shadow", "warn", "block"] = "block"
    models: tuple[ModelRules, ...] = ()
    references: tuple[Pattern, ...] = ()
    """What a kernel is judged by: reference, problems, tolerances, baselines, mutants. Wins over ``free``."""
    escalate: tuple[Pattern, ...] = ()
    """Paths that wait for their owner instead of being refused."""
    refuse: tuple[Pattern, ...] = ()
    """Paths that are refused whatever else covers them."""
    mandatory_features: tuple[str, ...] = ("decode_context_parallel", "variable_context_length")
    maintainers: tuple[Login, ...] = ()
    """Who may decide where CODEOWNERS names nobody."""
    teams: dict[Login, tuple[Login, ...]] = {}
    """Members of the teams that CODEOWNERS or ``maintainers`` name: membership is read from here, not from a server."""
    fault: Fault | None = None

    @field_validator("models")
    @classmethod
    def _distinct(cls, models: tuple[ModelRules, ...]) -> tuple[ModelRules, ...]:
        seen: set[tuple[str, str]] = set()
        for model in models:
            if (model.name, model.vendor) in seen:
                raise ValueError(
                    f"expected one table per model and vendor; found {model.name!r}, {model.vendor!r} twice"
                )
            seen.add((model.name, model.vendor))
        return models

    @model_validator(mode="after")
    def _something_to_guard(self) -> RepositoryConfiguration:
        if self.fault is None and not self.models:
            raise ValueError("expected at least one [[models]] table; found none, so nothing would ever be judged")
        return self

    def demand_sound(self) -> None:
        """Refuse to decide anything with a configuration that could not be read.

        Raises:
            ConfigurationError: if the file was missing or faulty on the base branch.
        """
        if self.fault is not None:
            fault = self.fault
            raise ConfigurationError(fault.message, code=fault.code, expected=fault.expected, found=fault.found)


def parse(data: bytes, source: str = CONFIGURATION_PATH) -> RepositoryConfiguration:
    """Read a configuration file's bytes.

    Raises:
        ConfigurationError: with code ``CONFIG_SYNTAX``, ``CONFIG_UNKNOWN_KEY``, ``CONFIG_ALLOWED_DIR`` or ``CONFIG_VALUE``; the
            message names the file, and the line where that is known.
    """
    if len(data) > _LARGEST:
        raise ConfigurationError(
            f"{source} is too large", code="CONFIG_VALUE", expected=f"at most {_LARGEST} bytes", found=str(len(data))
        )
    try:
        text = data.decode("utf-8")
        table = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"{source} cannot be read", code="CONFIG_SYNTAX", expected="TOML in UTF-8", found=str(error)
        ) from error
    return _validated(table, text, source)


def _validated(table: dict[str, Any], text: str, source: str) -> RepositoryConfiguration:
    if "fault" in table or "schema_version" in table:
        key = "fault" if "fault" in table else "schema_version"
        raise _unknown(key, RepositoryConfiguration, source, _line_of(text, key))
    values = dict(table)
    if "schema" not in values:
        raise ConfigurationError(
            f"{source} does not say which schema it follows",
            code="CONFIG_VALUE",
            expected="schema = 1",
            found="no such key",
        )
    values["schema_version"] = values.pop("schema")
    try:
        return RepositoryConfiguration.model_validate(values)
    except ValidationError as error:
        raise _first_fault(error, text, source) from error


def _first_fault(error: ValidationError, text: str, source: str) -> ConfigurationError:
    details = error.errors(include_url=False)
    # The allowed directory first: it is the fault that would open the gate.
    detail = next((each for each in details if _OPENS_THE_GATE in each["msg"]), details[0])
    location = tuple(part for part in detail["loc"] if isinstance(part, str))
    key = "schema" if location[-1:] == ("schema_version",) else (location[-1] if location else "")
    line = _line_of(text, key)
    if detail["type"] == "extra_forbidden":
        return _unknown(key, ModelRules if location[:1] == ("models",) else RepositoryConfiguration, source, line)
    where = ".".join(str(part) for part in detail["loc"]).replace("schema_version", "schema") or "the file"
    message = detail["msg"].removeprefix("Value error, ")
    directory = "root" in location or "free" in location or "tests" in location
    if _OPENS_THE_GATE in message or directory:
        fault = message.removeprefix(_OPENS_THE_GATE)
        return ConfigurationError(
            f"{source}{line}: {where}: a directory that would open the gate: {fault}",
            code="CONFIG_ALLOWED_DIR", expected=_DIRECTORY, found=_found(detail),
        )  # fmt: skip
    return ConfigurationError(
        f"{source}{line}: {where}: {message}", code="CONFIG_VALUE", expected=message, found=_found(detail)
    )


def _found(detail: Any) -> str:
    return "no such key" if detail["type"] == "missing" else repr(detail["input"])[:200]


def _unknown(key: str, owner: type[Value], source: str, line: str) -> ConfigurationError:
    known = sorted("schema" if name == "schema_version" else name for name in owner.model_fields if name != "fault")
    return ConfigurationError(
        f"{source}{line}: unknown key", code="CONFIG_UNKNOWN_KEY", expected="one of " + ", ".join(known), found=key
    )


def _line_of(text: str, key: str) -> str:
    """Return ``:LINE`` of the first place that sets ``key``, or nothing. For people; nothing is decided by it."""
    wanted = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=\].]")
    for number, line in enumerate(text.split("\n"), start=1):
        if key and wanted.match(line):
            return f":{number}"
    return ""


def read(tree: SourceTree) -> RepositoryConfiguration:
    """Read the configuration of a base tree. A missing or faulty file gives a configuration that carries the fault.

    With such a configuration no policy decides anything: the verdict is ``error`` with the fault's code (``CONFIG_MISSING`` for
    a repository that has no file). Passing everything would let whoever deletes the file switch the gate off.
    """
    entry = tree.entry(CONFIGURATION_PATH)
    if entry is None or entry.kind != "blob" or entry.mode == "120000":
        found = "no such file" if entry is None else f"a {entry.kind} with mode {entry.mode}"
        return _faulty(
            ConfigurationError(
                f"the base branch has no {CONFIGURATION_PATH}, so nobody has said what may be changed",
                code="CONFIG_MISSING", expected=f"a plain file {CONFIGURATION_PATH} on the base branch", found=found,
            )
        )  # fmt: skip
    try:
        return parse(tree.read(CONFIGURATION_PATH))
    except ConfigurationError as error:
        return _faulty(error)


def _faulty(error: ConfigurationError) -> RepositoryConfiguration:
    return RepositoryConfiguration(
        fault=Fault(code=error.code, message=error.message, expected=error.expected, found=error.found)
    )
