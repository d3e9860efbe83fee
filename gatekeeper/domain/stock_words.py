"""Does the rest of the repository speak of a name? Asked of what a change wants to add to a stock class or object.

A new attribute is new only if nobody looks it up (``hasattr``), sets it, or inherits a method of that name from elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

from gatekeeper.domain.globs import matched_directory
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.source import SourceTree
from gatekeeper.domain.zones import FastTrack, Zone, ZoneMap


class StockWords:
    """Answers for the Python files of one base tree, except the change's own zones and the directories of other models.

    Other models are left out because they hold call-ins of the same shape and names, and none of this model's objects.
    """

    def __init__(
        self, base: SourceTree, configuration: RepositoryConfiguration, track: FastTrack, zones: ZoneMap
    ) -> None:
        self._base = base
        self._roots = tuple(model.root for model in configuration.models)
        self._track = track
        self._zones = zones
        self.speak_of = lru_cache(maxsize=1024)(self._speak_of)

    def _speak_of(self, name: str) -> bool:
        return any(self._counts(path) for path in self._base.grep(name.encode(), whole_word=True))

    def _counts(self, path: str) -> bool:
        if self._zones.zone(path) in (Zone.FREE, Zone.HOOK, Zone.TESTS):
            return False
        owner = next((found for root in self._roots if (found := matched_directory(root, path))), None)
        return owner in (None, self._track.root)
