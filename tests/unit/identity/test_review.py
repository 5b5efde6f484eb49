# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The review of rights: who can do what, what is remarkable, and what audit logs say was used."""

from __future__ import annotations

import gzip
import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import read_policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.findings import findings_of, who_can
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.grants import (
    KINDS,
    Grant,
    Object,
    allows,
    grants_of,
    shown_rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.review import review
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.roles import named_roles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.used import Usage, read_usage
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from hypothesis import given, settings
from hypothesis import strategies as st

READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def role(name: str, *rules: Object, namespace: str = "") -> Object:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **where}, "rules": list(rules)}


def binding(name: str, to: str, *subjects: str, namespace: str = "", built_in: bool = False) -> Object:
    kind, _, of = to.partition(" ")
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    if built_in:
        metadata["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    whom = [dict(zip(("kind", "name"), subject.split(" "), strict=True)) for subject in subjects]
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": of}, "subjects": whom}


def cluster(
    roles: t.Sequence[Object] = (), wide: t.Sequence[Object] = (), narrow: t.Sequence[Object] = ()
) -> dict[str, list[Object]]:
    """Return what a cluster holds: roles, bindings of the whole cluster, bindings of namespaces."""
    found: dict[str, list[Object]] = {kind: [] for kind in KINDS}
    for item in roles:
        found["Role" if "namespace" in item["metadata"] else "ClusterRole"].append(item)
    found["ClusterRoleBinding"], found["RoleBinding"] = list(wide), list(narrow)
    found["ServiceAccount"] = [{"metadata": {"name": "default", "namespace": "a"}}]
    return found


def kinds(found: dict[str, list[Object]], usage: Usage | None = None) -> list[tuple[str, str]]:
    return [(one.kind, one.binding) for one in findings_of(grants_of(found), {"a/default"}, usage)]


class FakeApi:
    """A cluster that answers in pages of one object."""

    def __init__(self, found: dict[str, list[Object]], guarded: bool = False) -> None:
        self._lists = {KINDS[kind]: items for kind, items in found.items()}
        self._guarded = guarded

    def get(self, path: str, **query: str) -> Object:
        items, start = self._lists[path], int(query.get("continue", "0"))
        more = {"continue": str(start + 1)} if start + 1 < len(items) else {}
        return {"items": items[start : start + 1], "metadata": more}

    def find(self, path: str) -> Object | None:
        return {} if self._guarded else None


def reviewed(found: dict[str, list[Object]], **options: t.Any) -> t.Any:
    guarded = options.pop("guarded", False)
    return review(t.cast("Api", FakeApi(found, guarded)), options.pop("usage", None), **options)


# -- what a rule allows ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "asked", "holds"),
    [
        (READ, "get pods", True),
        (READ, "list pods", False),
        (READ, "get pods/log", False),
        (READ, "get pods.apps", False),
        ({**READ, "verbs": ["*"]}, "list pods", True),
        ({**READ, "resources": ["*"]}, "get pods/log", True),
        ({**READ, "resources": ["*/log"]}, "get pods/log", True),
        ({**READ, "resources": ["*/log"]}, "get pods", False),
        ({**READ, "apiGroups": ["batch"], "resources": ["jobs"]}, "get jobs", True),
        ({**READ, "apiGroups": ["batch"], "resources": ["jobs"]}, "get jobs.batch", True),
        ({**READ, "apiGroups": ["batch"], "resources": ["jobs"]}, "get jobs.apps", False),
        ({**READ, "apiGroups": ["*"], "resources": ["jobs"]}, "get jobs.apps", True),
        ({**READ, "apiGroups": ["a.b"], "resources": ["c", "c/d"]}, "get c.a.b/d", True),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, "get pods", False),
    ],
)
def test_what_a_rule_allows(rule: Object, asked: str, holds: bool) -> None:
    verb, _, resource = asked.partition(" ")
    assert allows(rule, verb, resource) is holds


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (READ, "pods: get"),
        ({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}, "batch/jobs: get list"),
        ({**READ, "resources": ["secrets"], "resourceNames": ["a", "b"]}, "secrets named a, b: get"),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, "/metrics: get"),
    ],
)
def test_a_rule_in_one_line(rule: Object, text: str) -> None:
    assert shown_rule(rule) == text


# -- findings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (READ, []),
        ({**READ, "verbs": ["*"]}, ["wildcard"]),
        ({**READ, "resources": ["*"]}, ["wildcard"]),
        ({"nonResourceURLs": ["*"], "verbs": ["get"]}, ["wildcard"]),
        ({**READ, "verbs": ["bind"]}, ["escalation"]),
        ({**READ, "verbs": ["impersonate:user-info"]}, ["escalation"]),
        ({**READ, "resources": ["secrets"]}, ["leads_further"]),
        ({**READ, "resources": ["pods/exec"], "verbs": ["create"]}, ["leads_further"]),
    ],
)
def test_what_is_remarkable_of_a_role(rule: Object, expected: list[str]) -> None:
    found = cluster([role("r", rule)], [binding("b", "ClusterRole r", "User u")])
    assert kinds(found) == [(kind, "ClusterRoleBinding b") for kind in expected]


def test_bindings_that_lead_nowhere_and_everywhere() -> None:
    found = cluster(
        [role("r", READ)],
        [
            binding("a", "ClusterRole gone", "User u"),
            binding("b", "ClusterRole r", "Group system:authenticated"),
        ],
        [
            binding("c", "ClusterRole r", "ServiceAccount default", namespace="a"),
            binding("c", "ClusterRole r", "ServiceAccount default", namespace="b"),
        ],
    )
    assert kinds(found) == [
        ("no_role", "ClusterRoleBinding a"),
        ("everybody", "ClusterRoleBinding b"),
        ("no_account", "RoleBinding b/c"),
    ]


def test_a_role_of_a_namespace_is_not_that_of_another() -> None:
    found = cluster(
        [role("r", {**READ, "verbs": ["*"]}, namespace="a")],
        narrow=[
            binding("x", "Role r", "User u", namespace="a"),
            binding("y", "Role r", "User u", namespace="b"),
        ],
    )
    assert kinds(found) == [("wildcard", "RoleBinding a/x"), ("no_role", "RoleBinding b/y")]


def test_what_every_cluster_has_is_not_remarkable() -> None:
    found = cluster(
        [role("all", {**READ, "verbs": ["*"]})],
        [
            binding("cluster-admin", "ClusterRole all", "Group system:masters", built_in=True),
            binding("kubeadm:cluster-admins", "ClusterRole all", "Group kubeadm:cluster-admins"),
        ],
    )
    (one,) = findings_of(grants_of(found), ())
    assert (one.kind, one.expected) == ("wildcard", "the site's controller")
    assert reviewed(found).unexpected == []
    assert "(expected: the site's controller)" in reviewed(found).as_text()


def test_no_named_role_but_break_glass_is_remarkable() -> None:
    roles = [item.as_object() for item in named_roles().values()]
    bound = [
        binding(item.name, f"ClusterRole {item.object_name}", "User u") for item in named_roles().values()
    ]
    assert kinds(cluster(roles, bound)) == [("wildcard", "ClusterRoleBinding break-glass")]


# -- use -------------------------------------------------------------------------------------------


def event(time: str, reason: str = "") -> str:
    annotations = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": reason}
    return json.dumps({"kind": "Event", "requestReceivedTimestamp": time, "annotations": annotations})


LOG = "\n".join(
    [
        event(
            "2026-11-03T00:00:00Z", 'RBAC: allowed by RoleBinding "b/jobs" of ClusterRole "r" to Group "g"'
        ),
        event(
            "2026-11-01T00:00:00Z", 'RBAC: allowed by ClusterRoleBinding "a" of ClusterRole "r" to User "u"'
        ),
        event(
            "2026-11-02T00:00:00Z", 'RBAC: allowed by ClusterRoleBinding "a" of ClusterRole "r" to User "u"'
        ),
        event("2026-11-04T00:00:00Z"),
        "",
        '{"kind": "Event", "requestRec',
    ]
)


@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_what_a_log_says(tmp_path: Path, pack: t.Callable[[str], bytes]) -> None:
    (tmp_path / "audit.log").write_bytes(pack(LOG))
    usage = read_usage([tmp_path / "audit.log"])
    assert (usage.events, usage.unread) == (4, 1)
    assert (usage.since, usage.until) == ("2026-11-01T00:00:00Z", "2026-11-04T00:00:00Z")
    assert {key: (use.count, use.last) for key, use in usage.bindings.items()} == {
        ("RoleBinding", "jobs", "b"): (1, "2026-11-03T00:00:00Z"),
        ("ClusterRoleBinding", "", "a"): (2, "2026-11-02T00:00:00Z"),
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: No such file"), (b"", "no audit event"), (b"x\n", "no audit event"),
     (b"\x1f\x8b\x00", "cannot be read"),
     (gzip.compress(b"{}\n" * 999)[:10] + b"\xff" * 99, "cannot be read: Error -3")],
)  # fmt: skip
def test_a_log_that_is_none(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "audit.log").write_bytes(content)
    with pytest.raises(ClusterError, match=says):
        read_usage([tmp_path / "audit.log"])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["annotations", "requestReceivedTimestamp", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@settings(max_examples=50)
@given(line=st.binary(max_size=40) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_no_line_is_too_strange(line: bytes) -> None:
    usage = Usage()
    usage.add(line)
    assert usage.events + usage.unread == 1
    assert usage.bindings == {}


def test_what_was_not_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_text(LOG)
    usage = read_usage([tmp_path / "audit.log"])
    found = cluster(
        [role("r", READ)],
        [binding("a", "ClusterRole r", "User u"), binding("gone", "ClusterRole none", "User u")],
        [binding("b", "ClusterRole r", "Group g", namespace=name) for name in ("jobs", "other")],
    )
    assert kinds(found, usage) == [("no_role", "ClusterRoleBinding gone"), ("unused", "RoleBinding other/b")]
    made = reviewed(found, usage=usage)
    assert {one["binding"]: one["requests"] for one in made.as_json()["bindings"]} == {
        "ClusterRoleBinding a": 2,
        "ClusterRoleBinding gone": 0,
        "RoleBinding jobs/b": 1,
        "RoleBinding other/b": 0,
    }
    assert "audit log: 4 events from 2026-11-01T00:00:00Z to 2026-11-04T00:00:00Z" in made.as_text()
    assert "  1 lines are no audit events" in made.as_text()


# -- the report ------------------------------------------------------------------------------------


def sample() -> dict[str, list[Object]]:
    return cluster(
        [role("r", READ), role("w", {**READ, "verbs": ["*"]})],
        [
            binding("a", "ClusterRole r", "User anna", "Group team"),
            binding("basic", "ClusterRole r", "Group system:authenticated", built_in=True),
        ],
        [binding("b", "ClusterRole w", "User anna", namespace="jobs")],
    )


def test_as_text() -> None:
    assert reviewed(sample()).as_text() == (
        "Group team\n"
        "  the cluster: ClusterRole r\n"
        "    pods: get\n"
        "User anna\n"
        "  the cluster: ClusterRole r\n"
        "    pods: get\n"
        "  namespace jobs: ClusterRole w\n"
        "    pods: *\n"
        "wildcards: 1\n"
        "  RoleBinding jobs/b: User anna: ClusterRole w in namespace jobs has * in verbs\n"
        "what is unused is not known: give the audit logs of all API servers\n"
        "wildcards in new roles and bindings are not refused: turn on the admission rule grants"
    )


@pytest.mark.parametrize("scope", ["everywhere", "nowhere"])
@pytest.mark.parametrize("from_files", [True, False])
def test_a_rule_that_api_servers_read_from_files_counts(tmp_path: Path, scope: str, from_files: bool) -> None:
    """The API has no object of it."""
    (tmp_path / "policy.yml").write_text(f"version: 1\nrules: {{grants: {{scope: {scope}}}}}\n")
    admission = Admission(read_policy(tmp_path / "policy.yml"), from_files)
    made = reviewed(sample(), admission=admission)
    assert made.guarded == (from_files and scope == "everywhere")


def test_as_json_is_json() -> None:
    made = json.loads(json.dumps(reviewed(sample(), guarded=True).as_json()))
    assert (made["ok"], made["guarded"], made["audit"]) == (False, True, None)
    assert made["findings"] == [
        {
            "kind": "wildcard",
            "binding": "RoleBinding jobs/b",
            "text": "User anna: ClusterRole w in namespace jobs has * in verbs",
            "expected": "",
        }
    ]
    assert [one["binding"] for one in made["bindings"]] == ["ClusterRoleBinding a", "RoleBinding jobs/b"]


def test_only_some_subjects_or_all_bindings() -> None:
    text = reviewed(sample(), subject="team").as_text()
    assert "Group team" in text and "\nUser anna" not in text
    # A review of some is still one of all.
    assert "wildcards: 1" in text
    assert "Group system:authenticated" in reviewed(sample(), everything=True).as_text()


def test_who_can() -> None:
    grants: list[Grant] = grants_of(sample())
    asked = [str(subject) for subject, _ in who_can(grants, "get", "pods", "jobs")]
    assert asked == ["User anna", "Group team", "Group system:authenticated", "User anna"]
    assert [str(subject) for subject, _ in who_can(grants, "delete", "pods", "other")] == []
    text = reviewed(sample(), can=("delete", "pods")).as_text()
    assert text.startswith("who can delete pods:\n  User anna, by RoleBinding jobs/b\nwildcards")
    assert (
        reviewed(sample(), can=("delete", "nodes")).as_text().startswith("who can delete nodes:\n  nobody\n")
    )
