# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who was given what: every binding of the cluster with the rules behind it."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.roles import GROUP
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

Object = dict[str, t.Any]
Key = tuple[str, str, str]
"""Kind, namespace (empty for the whole cluster) and name of a binding."""
_BASE = f"/apis/{GROUP}/v1"
_BUILT_IN = "kubernetes.io/bootstrapping"
_PAGE = "500"
KINDS: Mapping[str, str] = {
    "ClusterRole": f"{_BASE}/clusterroles",
    "Role": f"{_BASE}/roles",
    "ClusterRoleBinding": f"{_BASE}/clusterrolebindings",
    "RoleBinding": f"{_BASE}/rolebindings",
    "ServiceAccount": "/api/v1/serviceaccounts",
}
"""What a review reads."""


class Subject(t.NamedTuple):
    """Whom a binding gives something."""

    kind: str
    """User, Group or ServiceAccount."""
    name: str
    """Of a service account with its namespace, NAMESPACE/NAME."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """One binding.

    Args:
        key: which binding.
        role: kind and name of its role.
        subjects: whom it is for.
        rules: what they may, None when the role does not exist.
        built_in: whether every cluster has it.
    """

    key: Key
    role: tuple[str, str]
    subjects: tuple[Subject, ...]
    rules: tuple[Object, ...] | None
    built_in: bool = False

    @property
    def name(self) -> str:
        """Return kind and name as people write them."""
        kind, namespace, name = self.key
        return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"

    @property
    def where(self) -> str:
        """Return where it holds."""
        return f"namespace {self.key[1]}" if self.key[1] else "the cluster"


def read_cluster(api: Api) -> dict[str, list[Object]]:
    """Read roles, bindings and service accounts.

    Args:
        api: the cluster.

    Returns:
        Kind to objects.
    """
    return {kind: list(_all(api, path)) for kind, path in KINDS.items()}


def _all(api: Api, path: str) -> Iterator[Object]:
    token = ""
    while True:
        page = api.get(path, limit=_PAGE, **({"continue": token} if token else {}))
        yield from page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return


def grants_of(found: Mapping[str, Sequence[Object]]) -> list[Grant]:
    """Put bindings and roles together.

    Args:
        found: kind to objects, as ``read_cluster`` returns them.

    Returns:
        All bindings, those of the whole cluster first, sorted by name.
    """
    rules: dict[Key, tuple[Object, ...]] = {}
    for kind in ("ClusterRole", "Role"):
        for item in found[kind]:
            metadata = item["metadata"]
            rules[kind, metadata.get("namespace", ""), metadata["name"]] = tuple(item.get("rules") or ())
    return [
        _grant(kind, item, rules)
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for item in sorted(found[kind], key=_order)
    ]


def _order(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _grant(kind: str, item: Object, rules: Mapping[Key, tuple[Object, ...]]) -> Grant:
    metadata, role = item["metadata"], item["roleRef"]
    namespace = metadata.get("namespace", "")
    of_role = (role["kind"], namespace if role["kind"] == "Role" else "", role["name"])
    return Grant(
        key=(kind, namespace, metadata["name"]),
        role=(role["kind"], role["name"]),
        subjects=tuple(_subject(entry, namespace) for entry in item.get("subjects") or ()),
        rules=rules.get(of_role),
        built_in=_BUILT_IN in metadata.get("labels", {}),
    )


def _subject(entry: Object, namespace: str) -> Subject:
    if entry["kind"] != "ServiceAccount":
        return Subject(entry["kind"], entry["name"])
    return Subject("ServiceAccount", f"{entry.get('namespace') or namespace}/{entry['name']}")


def allows(rule: Object, verb: str, resource: str) -> bool:
    """Tell whether a rule allows a verb on a resource.

    Args:
        rule: of a role.
        verb: such as ``create``.
        resource: ``RESOURCE``, ``RESOURCE.GROUP``, each perhaps with ``/SUBRESOURCE`` behind it; without a
            group that of every group.
    """
    if not {verb, "*"} & set(rule.get("verbs", ())):
        return False
    plural, slash, sub = resource.partition("/")
    plural, dot, group = plural.partition(".")
    if dot and not {group, "*"} & set(rule.get("apiGroups", ())):
        return False
    names = {"*", plural + slash + sub} | ({f"*/{sub}"} if sub else set())
    return bool(names & set(rule.get("resources", ())))


def shown_rule(rule: Object) -> str:
    """Return a rule in one line, such as ``batch/jobs: get list``."""
    what = [
        resource if group == "" else f"{group}/{resource}"
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
    ]
    what += list(rule.get("nonResourceURLs", ()))
    names = f" named {', '.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
    return f"{', '.join(what)}{names}: {' '.join(rule.get('verbs', ()))}"
