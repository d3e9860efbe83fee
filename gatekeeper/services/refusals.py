"""Snapshots of pull requests whose commits could not be read: they carry the reason in the place of trees."""

from __future__ import annotations

from gatekeeper.context import Context
from gatekeeper.domain import repository
from gatekeeper.domain.errors import GatekeeperError, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.repository import Fault, RepositoryConfiguration
from gatekeeper.domain.snapshot import NULL_ID, Author, PullFacts, Refusal, Snapshot, SnapshotKey
from gatekeeper.git.mirror import Mirror
from gatekeeper.store.pulls import Pull, Repository

LONGEST = 1000
OF_THE_OBJECTS = ("ISO_", "CI_REF", "GIT_OBJECT_SIZE")
"""How the codes begin of what git or its reader refuses about names and objects, whoever made them."""
NOT_OF_THE_OBJECTS = ("ISO_SHALLOW",)


def is_of_the_objects(error: GatekeeperError) -> bool:
    """Return whether an error says that names or objects are not acceptable, and not that something is out of reach."""
    about = error.code.startswith(OF_THE_OBJECTS) and error.code not in NOT_OF_THE_OBJECTS
    return about and not isinstance(error, Retryable)


def refused(
    ctx: Context, mirror: Mirror, where: RepositoryRef, facts: PullFacts, seen: Pull | None, error: GatekeeperError
) -> tuple[Snapshot, RepositoryConfiguration]:
    """Return the snapshot of a pull request whose objects git refuses, with the configuration of its base.

    The base branch is read by itself first. If that is refused too, the pull request is not to blame and the verdict is
    ``error``; otherwise its head is, and the verdict is ``failed``. The snapshot is bound to the head that the remote names,
    which is the one that was refused.

    Raises:
        Retryable: if the remote cannot be reached any more.
        GatekeeperError: ``error`` itself if neither the remote nor any event names a head.
    """
    head = mirror.remote_head(facts.number) or (seen.head_sha if seen else None)
    if head is None:
        raise error
    base_sha = base_tree = NULL_ID
    by_head, blamed = True, error
    try:
        base_sha = mirror.fetch_branch(facts.base_ref)
        base_tree = mirror.commit_tree(base_sha)
        rules = repository.read(mirror.tree(base_tree))
    except GatekeeperError as of_base:
        if not is_of_the_objects(of_base):
            raise
        # A branch name that git cannot have comes with the pull request; objects behind a good name do not.
        by_head, blamed = of_base.code == "CI_REF", of_base
        base_sha = base_tree = NULL_ID
        rules = _without_base(of_base)
    refusal = Refusal(
        code=blamed.code,
        message=_message(blamed, by_head),
        expected=blamed.expected[:LONGEST],
        found=(blamed.found or blamed.message)[:LONGEST],
        by_head=by_head,
    )
    return _snapshot(ctx, where, facts, refusal, rules, head_sha=head, base_sha=base_sha, base_tree=base_tree)


def unreadable(
    ctx: Context, known: Repository, pull: Pull, error: BaseException
) -> tuple[Snapshot, RepositoryConfiguration]:
    """Return the snapshot of a pull request that could not be looked at, bound to the head that was announced last."""
    code = error.code if isinstance(error, GatekeeperError) else "INTERNAL_ERROR"
    told = error.found or error.message if isinstance(error, GatekeeperError) else f"{type(error).__name__}: {error}"
    reason = error.message if isinstance(error, GatekeeperError) else "gatekeeper stopped with an error"
    refusal = Refusal(
        code=code,
        message=f"the commits could not be read: {reason}; this is tried again from time to time",
        expected=error.expected[:LONGEST] if isinstance(error, GatekeeperError) else "",
        found=told[:LONGEST],
        by_head=False,
    )
    facts = PullFacts(
        number=pull.number,
        title=pull.title,
        author=Author(id=pull.author_id, login=pull.author_login),
        base_ref=pull.base_ref,
        draft=pull.draft,
        open=pull.open,
    )
    where = RepositoryRef(id=known.id, full_name=known.full_name)
    rules = _without_base(Retryable(reason, code=code))
    return _snapshot(ctx, where, facts, refusal, rules, head_sha=pull.head_sha)


def _message(error: GatekeeperError, by_head: bool) -> str:
    if error.code == "CI_REF":
        return "the pull request names a base branch or number that git cannot have"
    if not by_head:
        return f"the base branch could not be read: {error.message}; its owners have to look, the pull request is not to blame"
    return f"{error.message}: the head was not let in; make its commits anew with a current git and push them"


def _without_base(error: GatekeeperError) -> RepositoryConfiguration:
    message = f"the configuration of the base branch could not be read: {error.message}"
    return RepositoryConfiguration(fault=Fault(code=error.code, message=message))


def _snapshot(
    ctx: Context,
    where: RepositoryRef,
    facts: PullFacts,
    refusal: Refusal,
    rules: RepositoryConfiguration,
    *,
    head_sha: str,
    base_sha: str = NULL_ID,
    base_tree: str = NULL_ID,
) -> tuple[Snapshot, RepositoryConfiguration]:
    book = ctx.books.get(rules.policy_set) or ctx.books[ctx.default_policy_set]
    snapshot = Snapshot(
        key=SnapshotKey(
            repository_id=where.id,
            number=facts.number,
            head_sha=head_sha,
            base_sha=base_sha,
            merge_tree=None,
            policy_set=book.digest,
        ),
        repository=where.full_name,
        title=facts.title,
        author=facts.author,
        base_ref=facts.base_ref,
        draft=facts.draft,
        open=facts.open,
        head_tree=NULL_ID,
        base_tree=base_tree,
        merge_bases=(),
        proposed=(),
        merged=None,
        configuration=rules.digest(),
        opened_by_installation=facts.opened_by_installation,
        refusal=refusal,
    )
    return snapshot, rules
