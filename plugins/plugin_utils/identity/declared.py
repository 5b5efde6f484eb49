# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site's identity variables make of the API servers' authentication file and of the cluster."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.roles import (
    GROUP,
    LABEL,
    NamedRole,
    Object,
    named_roles,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

GroupsClaim = t.Literal["roles", "groups"]
PREFIX = "entra:"
"""Before every user and group that comes from Entra ID, so that none is taken for one of Kubernetes."""
_OBJECT_ID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Who has a named role.

    Args:
        group: value of an app role, or object ID of a group.
        role: a named role.
        namespaces: where, for roles that are bound in namespaces.
    """

    group: str
    role: str
    namespaces: tuple[str, ...] = ()

    def objects(self) -> list[Object]:
        """Return its bindings."""
        role = named_roles()[self.role]
        if role.scope == "cluster":
            return [self._object("ClusterRoleBinding", role, {})]
        return [self._object("RoleBinding", role, {"namespace": name}) for name in self.namespaces]

    def _object(self, kind: str, role: NamedRole, where: Object) -> Object:
        name = f"{role.object_name}:{self.group}"
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": kind,
            "metadata": {"name": name, **where, "labels": dict(LABEL)},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role.object_name},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": PREFIX + self.group}],
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Where people come from and which roles they have.

    Args:
        tenant_id: GUID of the Entra ID tenant.
        audiences: what tokens must be for, application (client) IDs.
        issuer: URL that tokens name as their issuer.
        issuer_ca: PEM of the authorities to trust for it, empty for those of the API server's host.
        groups_claim: where groups come from.
        bindings: who has which role.
    """

    DOMAIN: t.ClassVar[str] = "identity"

    tenant_id: str
    audiences: tuple[str, ...]
    issuer: str
    issuer_ca: str = ""
    groups_claim: GroupsClaim = "roles"
    bindings: tuple[Binding, ...] = ()

    def authenticators(self) -> list[Object]:
        """Return the field ``jwt`` of the AuthenticationConfiguration (apiserver.config.k8s.io/v1)."""
        issuer: Object = {"url": self.issuer, "audiences": list(self.audiences)}
        issuer["audienceMatchPolicy"] = "MatchAny"
        if self.issuer_ca:
            issuer["certificateAuthority"] = self.issuer_ca
        return [
            {
                "issuer": issuer,
                "claimValidationRules": self._rules(),
                "claimMappings": {
                    "username": {"expression": f"'{PREFIX}' + claims.?oid.orValue('')"},
                    "groups": {
                        "expression": f"dyn(claims.?{self.groups_claim}.orValue([])).map(g, '{PREFIX}' + g)"
                    },
                    # For readers of the audit log only: people can change it, so nothing decides by it.
                    "extra": [
                        {
                            "key": "ironspan.io/preferred-username",
                            "valueExpression": "claims.?preferred_username.orValue('')",
                        }
                    ],
                },
            }
        ]

    def _rules(self) -> list[Object]:
        rules: list[Object] = [
            {
                "expression": f"claims.?tid.orValue('') == '{self.tenant_id}'",
                "message": "the token is of another tenant",
            },
            {
                "expression": f"claims.?oid.orValue('').matches('{_OBJECT_ID}')",
                "message": "the token names nobody: it has no object ID (oid)",
            },
        ]
        if self.groups_claim == "groups":
            rules.append(
                {
                    "expression": "!has(claims.hasgroups) && "
                    "!('groups' in dyn(claims.?_claim_names.orValue({})))",
                    "message": "the token lists no groups because there are too many of them: "
                    "use app roles, or assign groups to the application",
                }
            )
        return rules

    def objects(self) -> list[Object]:
        """Return the objects of the cluster: all named roles, and who has them."""
        bindings = [item for binding in self.bindings for item in binding.objects()]
        return [*(role.as_object() for role in named_roles().values()), *bindings]


def default_issuer(tenant_id: str) -> str:
    """Return the issuer of a tenant's tokens of version 2 in Azure's public cloud."""
    return f"https://login.microsoftonline.com/{tenant_id}/v2.0"


def identity_of(draft: Draft) -> Identity:
    """Return the part of a site that names a tenant.

    Args:
        draft: one that passed every check.
    """
    value = draft.site_value
    tenant = value("identity_tenant_id")
    authorities = draft.site_file("identity_issuer_ca_file")
    return Identity(
        tenant_id=tenant,
        audiences=tuple(value("identity_audiences")),
        issuer=value("identity_issuer") or default_issuer(tenant),
        issuer_ca=authorities.read_text(encoding="utf-8") if authorities else "",
        groups_claim=value("identity_groups_claim"),
        bindings=tuple(
            Binding(entry["group"], entry["role"], tuple(entry.get("namespaces") or ()))
            for entry in value("identity_bindings")
        ),
    )
