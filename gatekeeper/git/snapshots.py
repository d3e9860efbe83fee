"""From two commits to a snapshot: merge bases, the merge result, both comparisons and every malformed tree."""

from __future__ import annotations

from gatekeeper.domain.documents import Digest
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.snapshot import Comparison, PullFacts, Snapshot, SnapshotKey, TreeDefect
from gatekeeper.git.comparing import Difference, compare
from gatekeeper.git.repository import Merge, Repository

MAX_CONFLICTS = 100
"""Paths of conflicts that a snapshot keeps; a person looks at the first few."""


def build(
    repository_id: int,
    full_name: str,
    facts: PullFacts,
    repository: Repository,
    *,
    head_sha: str,
    base_sha: str,
    policy_set: Digest,
    configuration: Digest,
) -> Snapshot:
    """Return the snapshot of a pull request at ``head_sha`` on the base tip ``base_sha``.

    A conflict, no merge base or a malformed head give no merge tree. These and empty comparisons are represented, not judged:
    the policies judge. Trees beyond any honest size are represented as a defect with an empty comparison, which no policy can
    pass.

    Raises:
        Rejected: for ids that are not full or name no commit.
        ConfigurationError: ``ISO_SHALLOW`` for a shallow or partial repository.
        GatekeeperError, Retryable: if git fails.
    """
    repository.require_complete()
    head_tree, base_tree = repository.commit_tree(head_sha), repository.commit_tree(base_sha)
    bases = repository.merge_bases(base_sha, head_sha)
    proposed = [_difference(repository, repository.commit_tree(base), head_tree) for base in bases]
    defects = [defect for difference in proposed for defect in difference.defects]
    # Malformed or monstrous trees are not given to the merge machinery: the defects already refuse them.
    merge = repository.merge(base_sha, head_sha) if bases and not defects else Merge(None)
    merged = _difference(repository, base_tree, merge.tree) if merge.tree else None
    defects.extend(merged.defects if merged else ())
    return Snapshot(
        key=SnapshotKey(
            repository_id=repository_id,
            number=facts.number,
            head_sha=head_sha,
            base_sha=base_sha,
            merge_tree=merge.tree,
            policy_set=policy_set,
        ),
        repository=full_name,
        title=facts.title,
        author=facts.author,
        base_ref=facts.base_ref,
        draft=facts.draft,
        open=facts.open,
        head_tree=head_tree,
        base_tree=base_tree,
        merge_bases=bases,
        proposed=tuple(difference.comparison for difference in proposed),
        merged=merged.comparison if merged else None,
        conflicts=merge.conflicts[:MAX_CONFLICTS],
        defects=tuple(dict.fromkeys(defects)),
        configuration=configuration,
        opened_by_installation=facts.opened_by_installation,
    )


def _difference(repository: Repository, base_tree: str, head_tree: str) -> Difference:
    try:
        return compare(repository.store, base_tree, head_tree)
    except Rejected as error:
        defect = TreeDefect(tree=head_tree, path="", defect=str(error))
        return Difference(Comparison(base_tree=base_tree, head_tree=head_tree), (defect,))
