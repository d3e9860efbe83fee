"""Who owns a path: CODEOWNERS of the base branch, and the members of teams as the repository's configuration lists them."""

from __future__ import annotations

from functools import cached_property, lru_cache

from codeowners import CodeOwners

from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.source import SourceTree

LOCATIONS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_LARGEST = 3 * 1024 * 1024
_MOST_STARS = 3
_LONGEST_NAME = 255


class Owners:
    """Answers for one base tree. ``skipped`` lists (line, reason) of entries that could not be used."""

    def __init__(self, text: str, configuration: RepositoryConfiguration) -> None:
        self._configuration = configuration
        self.skipped: list[tuple[int, str]] = []
        kept = [self._usable(number, line) for number, line in enumerate(text.split("\n"), start=1)]
        self._rules = CodeOwners("\n".join(kept))
        self._of = lru_cache(maxsize=16384)(self._look_up)

    def _usable(self, number: int, line: str) -> str:
        """Return the line without its comment, or an empty line in place of one that GitHub or this program cannot use."""
        words = line.strip().split()
        if not words or words[0].startswith("#"):
            return ""
        comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
        words = words[:comment]
        pattern = words[0]
        reason = None
        if pattern.startswith(("!", "[", "^[")) or "[" in pattern:
            reason = "negation, sections and character classes are not part of the format"
        elif max(part.replace("**", "").count("*") for part in pattern.split("/")) > _MOST_STARS:
            reason = f"more than {_MOST_STARS} '*' in one component would take too long to match"
        elif pattern.count("**") > _MOST_STARS:
            reason = f"more than {_MOST_STARS} '**' would take too long to match"
        if reason:
            self.skipped.append((number, reason))
            return ""
        return " ".join(words)

    def of(self, path: str) -> tuple[str, ...]:
        """Return the owners (``@login``, ``@org/team``, or an e-mail address) of a path.

        The last matching entry of CODEOWNERS decides. Where it names nobody, the configuration's maintainers do.
        """
        return self._of(path)

    def _look_up(self, path: str) -> tuple[str, ...]:
        honest = all(len(name) <= _LONGEST_NAME for name in path.split("/")) and len(path) <= 4096
        named = tuple(owner for _, owner in self._rules.of(path)) if honest else ()
        return named or self._configuration.maintainers

    @property
    def maintainers(self) -> tuple[str, ...]:
        """Who decides what belongs to no path."""
        return self._configuration.maintainers

    def includes(self, owners: tuple[str, ...], login: str) -> bool:
        """Whether ``login`` is one of ``owners`` or a listed member of one of their teams. Letter case does not matter."""
        wanted = "@" + login.removeprefix("@").casefold()
        return any(owner.casefold() == wanted or wanted in self._members.get(owner.casefold(), ()) for owner in owners)

    @cached_property
    def _members(self) -> dict[str, frozenset[str]]:
        teams = self._configuration.teams
        return {team.casefold(): frozenset(name.casefold() for name in members) for team, members in teams.items()}


def read_owners(base: SourceTree, configuration: RepositoryConfiguration) -> Owners:
    """Read CODEOWNERS of a base tree from the first of its places. Without one, the maintainers own everything."""
    for path in LOCATIONS:
        entry = base.entry(path)
        if entry is not None and entry.kind == "blob" and entry.mode in ("100644", "100755"):
            data = base.read(path)
            return Owners(data.decode("utf-8", "replace") if len(data) <= _LARGEST else "", configuration)
    return Owners("", configuration)
