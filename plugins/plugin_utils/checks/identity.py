# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may come in: a tenant, what its tokens are for, and who has which named role."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry

TENANT, ISSUER, CA_FILE = "identity_tenant_id", "identity_issuer", "identity_issuer_ca_file"
AUDIENCES, BINDINGS = "identity_audiences", "identity_bindings"
_GUID = re.compile(r"(?!0{8}-0{4}-0{4}-0{4}-0{12})[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_APP_ROLE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,118}[A-Za-z0-9])?")
"""Entra ID allows more; these need no escaping in the names of bindings."""
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OF_MICROSOFT = {
    "00000003-0000-0000-c000-000000000000": "Microsoft Graph",
    "00000002-0000-0000-c000-000000000000": "Azure AD Graph",
    "797f4846-ba00-4fd7-ba43-dac1f8f63013": "Azure Resource Manager",
    "6dae42f8-4368-4678-94ff-3960e28e3630": "AKS",
}
"""Applications for which programs of all kinds have tokens (Microsoft Learn, "Verify first-party Microsoft
applications in sign-in reports")."""


def check_tenant(draft: Draft) -> None:
    """A tenant has a GUID; without one the other variables would do nothing."""
    tenant = draft.site_value(TENANT)
    if not tenant:
        for variable in (AUDIENCES, ISSUER, CA_FILE, BINDINGS):
            if draft.site_value(variable):
                remedy = f"write '{TENANT}: ...', the tenant's GUID, or take this out"
                draft.problems.add(draft.site_place(variable), variable, f"needs {TENANT}", remedy)
    elif isinstance(tenant, str) and not _GUID.fullmatch(tenant):
        message = f"{tenant!r} is no GUID in small letters"
        remedy = "write the Directory (tenant) ID that the Entra admin center shows"
        draft.problems.add(draft.site_place(TENANT), TENANT, message, remedy)


def check_audiences(draft: Draft) -> None:
    """Tokens must be for this cluster, and for nothing that others have tokens for."""
    audiences = draft.site_value(AUDIENCES)
    if not isinstance(audiences, list):
        return
    host = draft.writer(AUDIENCES)
    # Of another type, it is reported by itself.
    lists_none = host is None or host.settings[AUDIENCES].value == []
    if draft.site_value(TENANT) and lists_none:
        draft.problems.add(
            draft.site_place(TENANT),
            AUDIENCES,
            "is empty, so no token would be for this cluster",
            "write the Application (client) ID of the cluster's application",
        )
    for index, audience in enumerate(audiences):
        place = draft.inner_place(host, AUDIENCES, index) if host else draft.home()
        path = f"{AUDIENCES}[{index}]"
        remedy = "write the Application (client) ID of the cluster's own application"
        if not _GUID.fullmatch(str(audience)):
            draft.problems.add(place, path, f"{audience!r} is no GUID in small letters", remedy)
        elif audience == draft.site_value(TENANT):
            draft.problems.add(place, path, f"is the tenant ({TENANT}), and no application", remedy)
        elif audience in _OF_MICROSOFT:
            message = f"is {_OF_MICROSOFT[audience]}, for which other programs have tokens too"
            draft.problems.add(place, path, message, remedy)


def check_issuer(draft: Draft) -> None:
    """The issuer is that of the tenant's tokens of version 2, and its authorities can be read."""
    issuer, tenant = draft.site_value(ISSUER), draft.site_value(TENANT)
    if isinstance(issuer, str) and issuer and tenant:
        url = urllib.parse.urlsplit(issuer)
        wanted = f"https://{url.netloc or 'login.microsoftonline.com'}/{tenant}/v2.0"
        place = draft.site_place(ISSUER)
        if url.hostname == "sts.windows.net":
            remedy = "set requestedAccessTokenVersion to 2 in the application's manifest, and leave this out"
            draft.problems.add(place, ISSUER, "issues tokens of version 1", remedy)
        elif issuer != wanted or "@" in url.netloc:
            message = f"{issuer!r} is not the issuer of this tenant's tokens of version 2"
            draft.problems.add(place, ISSUER, message, f"write {wanted.replace('@', '')}")
    file = draft.site_file(CA_FILE)
    if file is None:
        return
    from cryptography import x509

    place = draft.site_place(CA_FILE)
    try:
        x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        remedy = "name a file that can be read"
        draft.problems.add(place, CA_FILE, f"cannot be read: {error.strerror}", remedy)
    except ValueError:
        draft.problems.add(place, CA_FILE, "holds no certificates", "name a file with certificates in PEM")


def check_bindings(draft: Draft) -> None:
    """Groups are what tokens have, and roles are bound where they mean something."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.roles import (
        BREAK_GLASS,
        named_roles,
    )

    roles, seen = named_roles(), set[tuple[str, str]]()
    of_groups = draft.site_value("identity_groups_claim") == "groups"
    for entry in _entries(draft):
        group, role = entry.text("group"), entry.text("role")
        if group and of_groups and not _GUID.fullmatch(group):
            remedy = "write the group's object ID, or 'identity_groups_claim: roles'"
            entry.problem("group", f"{group!r} is no GUID in small letters", remedy)
        elif _GUID.fullmatch(group) and not of_groups:
            message = f"{group} is an object ID, and tokens have the values of app roles"
            entry.problem("group", message, "write the app role's value, or 'identity_groups_claim: groups'")
        elif group and not _APP_ROLE.fullmatch(group):
            remedy = "use letters, digits and ._:- in the app role's value"
            entry.problem("group", f"{group!r} cannot be part of an object's name", remedy)
        if (group, role) in seen:
            entry.problem("group", f"has {role} twice", "write all its namespaces into one entry")
        seen.add((group, role))
        if role in roles and role != BREAK_GLASS:
            _check_namespaces(entry, roles[role].scope)


def _check_namespaces(entry: Entry, scope: str) -> None:
    namespaces = entry.value.get("namespaces") or []
    if scope == "cluster" and namespaces:
        entry.problem("namespaces", f"{entry.text('role')} holds for the whole cluster", "take this out")
    if scope == "namespace" and not namespaces:
        entry.problem("namespaces", f"{entry.text('role')} is for namespaces", "write at least one")
    for namespace in namespaces:
        if not _DNS_LABEL.fullmatch(str(namespace)):
            entry.problem("namespaces", f"{namespace!r} is no name of a namespace", "write such as research")
        elif str(namespace).startswith("kube-"):
            remedy = "write a namespace for people's jobs"
            entry.problem("namespaces", f"{namespace} is the cluster's own", remedy)


def _entries(draft: Draft) -> Iterator[Entry]:
    host, values = draft.writer(BINDINGS), draft.site_value(BINDINGS)
    if host is None or not isinstance(values, list):
        return
    written: t.Any = host.settings[BINDINGS].value
    for index, value in enumerate(values):
        if isinstance(value, Mapping):
            item = written[index] if isinstance(written, list) else None
            yield Entry(draft, host, f"{BINDINGS}[{index}]", value, item)


CHECKS = (check_tenant, check_audiences, check_issuer, check_bindings)
