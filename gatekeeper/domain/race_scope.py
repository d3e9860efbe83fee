"""Which races a snapshot needs: one for each target that a touched directory's manifest advertises."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.domain import manifest as manifests
from gatekeeper.domain.advertised import EnumerationRules
from gatekeeper.domain.manifest import Manifest
from gatekeeper.domain.policy import PolicyInput
from gatekeeper.domain.race import RaceRequest, RaceRules
from gatekeeper.domain.repository import MANIFEST_NAME
from gatekeeper.domain.requests import race_request
from gatekeeper.domain.zones import fast_track


@dataclass(frozen=True)
class Contest:
    """One manifest and the races that it calls for. Targets that the catalogue does not know are left to the scope check."""

    manifest: Manifest
    requests: tuple[RaceRequest, ...]


def contests(subject: PolicyInput, rules: RaceRules, enumeration: EnumerationRules) -> tuple[Contest, ...] | None:
    """Return the contests of a snapshot; None where it touches no specialised directory.

    A directory without a readable manifest has no contest: the scope check fails it, and nothing can be raced. The same holds
    for a merge that conflicts.
    """
    subject.configuration.demand_sound()
    touched = fast_track(subject)
    if touched is None:
        return None
    found = []
    for directory in touched.directories if subject.merged is not None else ():
        assert subject.merged is not None
        manifest, _ = manifests.load(subject.merged, f"{directory}/{MANIFEST_NAME}")
        if manifest is None or manifest.problem not in subject.catalog.models:
            continue
        names = [scope.name for scope in manifest.targets if scope.name in subject.catalog.targets]
        found.append(
            Contest(manifest, tuple(race_request(subject, manifest, name, rules, enumeration) for name in names))
        )
    return tuple(found)
