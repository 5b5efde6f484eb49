# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may do what in the stand-in: roles of AWX 24.6.1, and what each brings along."""

from __future__ import annotations

import typing as t

from tests.support.controller.store import Content, Refusal, Store

FORBIDDEN: t.Final = {"detail": "You do not have permission to perform this action."}
_BRINGS: t.Final = {
    "execute_role": ("admin_role",),
    "approval_role": ("admin_role",),
    "read_role": ("execute_role", "approval_role", "admin_role", "use_role", "update_role"),
}
"""Role to those that bring it along, on the same object."""
_OF_ORGANIZATION: t.Final = {
    "admin_role": ("admin_role",),
    "execute_role": ("execute_role",),
    "approval_role": ("approval_role",),
    "read_role": ("auditor_role",),
}
"""Role on an object to the roles on its organization that bring it along."""


class Access:
    """Answers who may do what.

    Args:
        store: of all objects.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def has(self, user: Content, path: str, there: Content, role: str) -> bool:
        """Tell whether somebody has a role on an object, however it came."""
        if user["is_superuser"] or (role == "read_role" and user["is_system_auditor"]):
            return True
        if self._holds(user, path, int(there["id"]), role):
            return True
        if any(self.has(user, path, there, other) for other in _BRINGS.get(role, ())):
            return True
        organization = int(there.get("organization") or 0)
        return organization > 0 and any(
            self._holds(user, "organizations", organization, other)
            or self._holds(user, "organizations", organization, "admin_role")
            for other in _OF_ORGANIZATION.get(role, ())
        )

    def _holds(self, user: Content, path: str, number: int, role: str) -> bool:
        for found, owner in self._store.roles.items():
            if owner == (path, number, role):
                holders = self._store.granted.get(found, set())
                return ("users", user["id"]) in holders or any(
                    kind == "teams" and self._in_team(user, team) for kind, team in holders
                )
        return False

    def _in_team(self, user: Content, team: int) -> bool:
        return self._holds(user, "teams", team, "member_role")

    def insist(self, user: Content, path: str, there: Content, role: str) -> None:
        """Refuse with 403 whoever has not a role on an object."""
        if not self.has(user, path, there, role):
            raise Refusal(403, FORBIDDEN)

    def insist_on_writing(self, user: Content, path: str, there: Content | None) -> None:
        """Refuse whoever is no administrator of the organization, or of the system where there is none."""
        number = (there or {}).get("organization")
        organization = self._store.objects["organizations"].get(number or 0)
        if user["is_superuser"] or (
            organization and self.has(user, "organizations", organization, "admin_role")
        ):
            return
        raise Refusal(403, FORBIDDEN)
