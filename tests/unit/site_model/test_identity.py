# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where people come from: what a site says of it, and every mistake on its line."""

from __future__ import annotations

import datetime

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.declared import Binding, Identity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates
from cryptography import x509

from .conftest import Example
from .mutations import ALL

TENANT = "11111111-2222-3333-4444-555555555555"
CLIENT = "99999999-8888-7777-6666-555555555555"
GOOD = f"""
identity_tenant_id: {TENANT}
identity_audiences: [{CLIENT}]
identity_bindings:
  - {{group: Researchers, role: researcher, namespaces: [research]}}
  - {{group: Auditors, role: security-auditor}}
"""


def test_without_a_tenant_nobody_comes_in(example: Example) -> None:
    assert example.site().part(Identity) is None


def test_what_is_said(example: Example) -> None:
    example.append(ALL, GOOD)
    identity = example.site().part(Identity)
    assert identity
    assert identity.issuer == f"https://login.microsoftonline.com/{TENANT}/v2.0"
    assert identity.audiences == (CLIENT,)
    assert identity.groups_claim == "roles"
    assert identity.bindings == (
        Binding("Researchers", "researcher", ("research",)),
        Binding("Auditors", "security-auditor"),
    )


def test_authorities_of_the_issuer_are_read(example: Example) -> None:
    key = certificates.new_key()
    made = certificates.self_signed(key, "issuer", "lab", datetime.datetime.now(datetime.UTC))
    pem = certificates.certificate_pem(made)
    (example.folder.parent / "ca.pem").write_text(pem)
    example.append(ALL, GOOD + "identity_issuer_ca_file: ../../ca.pem\n")
    identity = example.site().part(Identity)
    assert identity and x509.load_pem_x509_certificates(identity.issuer_ca.encode()) == [made]


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        (
            TENANT,
            "common",
            "identity_tenant_id:",
            "'common' is no GUID in small letters; write the Directory",
        ),
        (f"[{CLIENT}]", "[]", "identity_tenant_id:", "identity_audiences: is empty"),
        (CLIENT, "api://cluster", "identity_audiences:", "identity_audiences[0]: 'api://cluster' is no GUID"),
        (
            CLIENT,
            "00000003-0000-0000-c000-000000000000",
            "identity_audiences:",
            "is Microsoft Graph, for which",
        ),
        (f"[{CLIENT}]", f"[{CLIENT}, {CLIENT}]", "identity_audiences:", "is there twice"),
        (f"[{CLIENT}]", CLIENT, "identity_audiences:", "must be a list"),
        ("role: researcher", "role: reader", "role: reader", "'reader' is not one of researcher"),
        ("role: researcher", "role: break-glass", "role: break-glass", "'break-glass' is not one of"),
        (
            ", namespaces: [research]",
            "",
            "group: Researchers",
            "namespaces: researcher is for namespaces; write",
        ),
        ("[research]", "[kube-system]", "kube-system]", "kube-system is the cluster's own"),
        ("[research]", "[Res_1]", "[Res_1]", "'Res_1' is no name of a namespace"),
        ("group: Researchers", "group: a/b", "group: a/b", "'a/b' cannot be part of an object's name"),
        (
            "group: Researchers",
            f"group: {TENANT}",
            f"group: {TENANT}",
            "is an object ID, and tokens have the values of app roles; write the app role's value",
        ),
        (
            "role: security-auditor",
            "role: security-auditor, namespaces: [research]",
            "group: Auditors",
            "security-auditor holds for the whole cluster; take this out",
        ),
        (
            "group: Auditors, role: security-auditor",
            "group: Researchers, role: researcher, namespaces: [other]",
            "[other]",
            "has researcher twice",
        ),
        (
            "identity_bindings:",
            "identity_groups_claim: teams\nidentity_bindings:",
            "teams",
            "not one of roles",
        ),
        (
            "identity_bindings:",
            "identity_binding: 1\nidentity_bindings:",
            "binding: 1",
            "write identity_bindings",
        ),
        (
            "identity_bindings:",
            "identity_issuer: https://sts.windows.net/x/\nidentity_bindings:",
            "sts.windows",
            "issues tokens of version 1; set requestedAccessTokenVersion to 2",
        ),
        (
            "identity_bindings:",
            "identity_issuer: https://login.microsoftonline.us/common/v2.0\nidentity_bindings:",
            "login.microsoftonline.us",
            f"write https://login.microsoftonline.us/{TENANT}/v2.0",
        ),
        (
            "identity_bindings:",
            "identity_issuer: http://a\nidentity_bindings:",
            "http://a",
            f"write https://a/{TENANT}/v2.0",
        ),
        (
            "identity_bindings:",
            "identity_issuer_ca_file: gone.pem\nidentity_bindings:",
            "gone.pem",
            "cannot be read: No such file",
        ),
        (
            "identity_bindings:",
            "identity_issuer_ca_file: all.yml\nidentity_bindings:",
            "all.yml",
            "holds no certificates",
        ),
    ],
)
def test_a_mistake_is_on_its_line(example: Example, old: str, new: str, at: str, says: str) -> None:
    assert GOOD.count(old) == 1
    example.append(ALL, GOOD.replace(old, new))
    (problem,) = example.problems()
    assert problem.file.endswith(ALL)
    assert problem.line == example.line(ALL, at)
    assert says in str(problem)


def test_groups_have_object_ids(example: Example) -> None:
    example.append(ALL, GOOD + "identity_groups_claim: groups\n")
    assert [str(p).split(": ", 1)[1] for p in example.problems()] == [
        f"identity_bindings[{index}].group: {group!r} is no GUID in small letters; "
        "write the group's object ID, or 'identity_groups_claim: roles'"
        for index, group in enumerate(("Researchers", "Auditors"))
    ]


def test_nothing_of_it_does_anything_without_a_tenant(example: Example) -> None:
    example.append(ALL, GOOD.replace(f"identity_tenant_id: {TENANT}", ""))
    assert [p.path for p in example.problems()] == ["identity_audiences", "identity_bindings"]
    assert all("needs identity_tenant_id" in p.message for p in example.problems())


def test_it_is_one_tenant_for_all(example: Example) -> None:
    example.append(ALL, GOOD)
    example.append("group_vars/azure.yml", f"\nidentity_tenant_id: {CLIENT}\n")
    assert any(p.path == "identity_tenant_id" and "write it once" in p.remedy for p in example.problems())
