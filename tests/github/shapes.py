"""Whole answers of GitHub's REST API, with every field that its description demands. Only what a test is about has meaning."""

from __future__ import annotations

from typing import Any

API = "https://api.github.invalid"
WEB = "https://github.invalid"
TIME = "2026-11-30T04:15:00Z"
USER_ADDRESSES = (
    "avatar", "events", "followers", "following", "gists", "html", "organizations", "received_events", "repos", "starred",
    "subscriptions",
)  # fmt: skip
REPOSITORY_ADDRESSES = (
    "archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare", "contents", "contributors",
    "deployments", "downloads", "events", "forks", "git_commits", "git_refs", "git_tags", "hooks", "html", "issue_comment",
    "issue_events", "issues", "keys", "labels", "languages", "merges", "milestones", "notifications", "pulls", "releases",
    "stargazers", "statuses", "subscribers", "subscription", "tags", "teams", "trees", "clone", "git", "ssh", "svn",
)  # fmt: skip


def user(login: str, number: int = 3) -> dict[str, Any]:
    """Return an account."""
    addresses = {f"{name}_url": f"{API}/users/{login}/{name}" for name in USER_ADDRESSES}
    return {
        "login": login, "id": number, "node_id": "U_1", "gravatar_id": "", "type": "User", "site_admin": False,
        "url": f"{API}/users/{login}", **addresses,
    }  # fmt: skip


def repository(number: int, full_name: str, *, fork: bool = False) -> dict[str, Any]:
    """Return a repository."""
    owner, name = full_name.split("/")
    addresses = {f"{each}_url": f"{API}/repos/{full_name}/{each}" for each in REPOSITORY_ADDRESSES}
    counts = dict.fromkeys(
        ("forks", "forks_count", "open_issues", "open_issues_count", "size", "stargazers_count", "watchers", "watchers_count"),
        0,
    )  # fmt: skip
    switches = {f"has_{each}": False for each in ("downloads", "issues", "projects", "wiki", "pages", "discussions")}
    return {
        "id": number, "node_id": "R_1", "name": name, "full_name": full_name, "owner": user(owner), "private": False,
        "description": None, "fork": fork, "url": f"{API}/repos/{full_name}", **addresses, **counts, **switches,
        "default_branch": "main", "homepage": None, "language": None, "license": None, "mirror_url": None, "archived": False,
        "disabled": False, "pushed_at": TIME, "created_at": TIME, "updated_at": TIME,
    }  # fmt: skip


def pull(
    number: int, base: dict[str, Any], head: dict[str, Any] | None, *, head_sha: str, base_ref: str, title: str,
    author: dict[str, Any], state: str, draft: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return a pull request; ``head`` is the head's repository, None for a fork that was deleted."""
    where = f"{API}/repos/{base['full_name']}/pulls/{number}"
    page = f"{WEB}/{base['full_name']}/pull/{number}"
    links = ("comments", "commits", "statuses", "html", "issue", "review_comments", "review_comment", "self")
    addresses = ("comments", "commits", "issue", "review_comment", "review_comments", "statuses")
    counts = ("additions", "changed_files", "comments", "commits", "deletions", "review_comments")
    return {
        "url": where, "id": 1000 + number, "node_id": "PR_1", "html_url": page, "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch", **{f"{each}_url": f"{where}/{each}" for each in addresses},
        **dict.fromkeys(counts, 1), "_links": {each: {"href": f"{where}/{each}"} for each in links},
        "number": number, "state": state, "locked": False, "title": title, "user": author, "body": None, "labels": [],
        "milestone": None, "created_at": TIME, "updated_at": TIME, "closed_at": None if state == "open" else TIME,
        "merged_at": None, "merge_commit_sha": None, "assignee": None, "assignees": [], "requested_reviewers": [],
        "requested_teams": [], "author_association": "NONE", "auto_merge": None, "active_lock_reason": None, "draft": draft,
        "merged": False, "mergeable": None, "rebaseable": None, "mergeable_state": "unknown", "merged_by": None,
        "maintainer_can_modify": False,
        "head": {
            "label": "ada:topic", "ref": "topic", "sha": head_sha, "user": head["owner"] if head else user("ada"),
            "repo": head,
        },
        "base": {"label": f"x:{base_ref}", "ref": base_ref, "sha": "b" * 40, "user": base["owner"], "repo": base},
    }  # fmt: skip


def app(number: int, permissions: dict[str, str]) -> dict[str, Any]:
    """Return a GitHub App."""
    return {
        "id": number, "slug": "gatekeeper", "node_id": "A_1", "client_id": "Iv23liGatekeeper", "owner": user("acme"),
        "name": "gatekeeper", "description": None, "external_url": WEB, "html_url": f"{WEB}/apps/gatekeeper",
        "created_at": TIME, "updated_at": TIME, "permissions": permissions, "events": ["pull_request"],
    }  # fmt: skip


def installation(
    number: int, app_id: int, owner: str, *, permissions: dict[str, str], suspended: bool
) -> dict[str, Any]:
    """Return an installation."""
    return {
        "id": number, "account": user(owner), "repository_selection": "selected", "app_id": app_id, "app_slug": "gatekeeper",
        "access_tokens_url": f"{API}/app/installations/{number}/access_tokens", "html_url": f"{WEB}/installations/{number}",
        "repositories_url": f"{API}/installation/repositories", "target_id": 3, "target_type": "Organization",
        "permissions": permissions, "events": ["pull_request"], "created_at": TIME, "updated_at": TIME,
        "single_file_name": None, "has_multiple_single_files": False, "single_file_paths": [],
        "suspended_by": user("root") if suspended else None, "suspended_at": TIME if suspended else None,
    }  # fmt: skip


def run(number: int, owner: dict[str, Any], full_name: str, said: dict[str, Any]) -> dict[str, Any]:
    """Return a check run; ``said`` holds what was written, with ``annotations`` as their list."""
    where = f"{API}/repos/{full_name}/check-runs/{number}"
    output = said.get("output", {})
    finished = said["status"] == "completed"
    return {
        "id": number, "head_sha": said["head_sha"], "node_id": "CR_1", "external_id": said.get("external_id", ""), "url": where,
        "html_url": f"{WEB}/{full_name}/runs/{number}", "details_url": said.get("details_url", WEB), "status": said["status"],
        "conclusion": said.get("conclusion"), "started_at": TIME, "completed_at": TIME if finished else None,
        "output": {
            "title": output.get("title"), "summary": output.get("summary"), "text": output.get("text"),
            "annotations_count": len(said["annotations"]), "annotations_url": f"{where}/annotations",
        },
        "name": said["name"], "check_suite": {"id": 5}, "app": owner, "pull_requests": [],
    }  # fmt: skip


def file(path: str, content: str, size: int, full_name: str) -> dict[str, Any]:
    """Return a file of a repository; ``content`` is its base64 text."""
    where = f"{API}/repos/{full_name}/contents/{path}"
    return {
        "type": "file", "encoding": "base64", "size": size, "name": path.rsplit("/", 1)[-1], "path": path, "content": content,
        "sha": "c" * 40, "url": where, "git_url": where, "html_url": f"{WEB}/{full_name}/blob/main/{path}",
        "download_url": None, "_links": {"git": where, "self": where, "html": f"{WEB}/{full_name}/blob/main/{path}"},
    }  # fmt: skip


def fault(message: str, **more: Any) -> dict[str, Any]:
    """Return the body of an answer that says what is wrong."""
    return {"message": message, "documentation_url": "https://docs.github.com/rest", **more}
