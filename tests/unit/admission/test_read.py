# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The policy file: what is understood, and that every mistake is named with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import policy_objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Exemption, Policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import (
    built_in_policy,
    read_policy,
    schema,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import admission_cases as cases

ROOT = Path(__file__).resolve().parents[3]


def read(folder: Path, text: str) -> Policy:
    file = folder / "admission.yml"
    file.write_text(text)
    return read_policy(file)


def test_a_file_that_says_nothing_is_the_built_in_policy(tmp_path: Path) -> None:
    assert read(tmp_path, "version: 1\n") == built_in_policy()


def test_what_is_said(tmp_path: Path) -> None:
    policy = read(tmp_path, cases.POLICY)
    assert policy.rules["registries"].values["allowed"][0] == "registry.example.com"
    assert policy.rules["latest_tag"] == built_in_policy().rules["latest_tag"]
    assert policy.exempt("host_access") == ["kube-flannel", "kube-system", "monitoring"]
    assert policy.exempt("privilege") == ["kube-flannel", "kube-system"]
    own = next(entry for entry in policy.exemptions if entry.namespace == "monitoring")
    assert own.owner == "platform team"


def test_an_own_entry_stands_for_the_built_in_one(tmp_path: Path) -> None:
    entry = "{namespace: kube-system, rules: [host_access], owner: a, reason: b}"
    policy = read(tmp_path, f"version: 1\nexemptions: [{entry}]\n")
    assert Exemption("kube-system", "a", "b", ("host_access",)) in policy.exemptions
    assert policy.exempt("privilege") == ["kube-flannel"]


ENTRY = "exemptions:\n  - namespace: a\n    owner: b\n    reason: c\n"
GRANT = "grant_exceptions:\n  - kind: ClusterRole\n    name: a\n    owner: b\n"
SPACE = "pod_security:\n  exemptions:\n    - {namespace: a, owner: b, reason: ''}\n"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "version: is missing; write 'version: ...' here"),
        ("[]\n", 1, "policy: must be a dictionary, is a list"),
        ("version: 2\n", 1, "version: 2 is not one of 1; write 1"),
        ("version: 1\nrule: {}\n", 2, "rule: unknown key; write rules"),
        ("version: 1\nrules:\n  digest: {}\n", 3, "rules.digest: unknown key; write digests"),
        (
            "version: 1\nrules:\n  digests:\n    Scope: x\n",
            4,
            "rules.digests.Scope: unknown key; write scope",
        ),
        (
            "version: 1\nrules: {digests: {scope: all}}\n",
            2,
            "'all' is not one of nowhere, high_risk, everywhere",
        ),
        ("version: 1\nrules: {digests: {scope: off}}\n", 2, "must be text, is a boolean (False)"),
        ("version: 1\nrules: {digests: everywhere}\n", 2, "must be a dictionary, is text"),
        ("version: 1\nkeepers: admins\n", 2, "keepers: must be a list, is text"),
        ('version: 1\nkeepers:\n  - a\n  - "b\'c"\n', 4, 'keepers[1]: "b\'c" is not what can stand here'),
        ("version: 1\nhigh_risk_label: risk\n", 2, "write KEY=VALUE, such as ironspan.io/risk=high"),
        ("version: 1\nrules: {registries: {scope: everywhere}}\n", 2, "is empty: no image could be used"),
        ("version: 1\nrules: {registries: {allowed: ['https://a']}}\n", 2, "write HOST or HOST/FOLDER"),
        ("version: 1\nrules: {runtime_class: {default: runc}}\n", 2, "runc is not allowed"),
        ("version: 1\nrules: {privilege: {capabilities: [cap_x]}}\n", 2, "a capability without CAP_"),
        ("version: 1\nrules: {gpu_queue: {label: 'a b'}}\n", 2, "'a b' is not what can stand here"),
        (
            f"version: 1\n{ENTRY.replace('    owner: b', '    rules: []')}",
            3,
            "exemptions[0].owner: is missing",
        ),
        (
            f"version: 1\n{ENTRY.replace('reason: c', 'reason: []')}",
            5,
            "exemptions[0].reason: must be text, is a list",
        ),
        (f"version: 1\n{ENTRY}    expires: x\n", 6, "exemptions[0].expires: unknown key"),
        (f"version: 1\n{ENTRY}    rules: [digest]\n", 6, "'digest' is no rule; write digests"),
        (
            "version: 1\nrules: {grants: {scope: high_risk}}\n",
            2,
            "'high_risk' is not one of nowhere, everywhere",
        ),
        ("version: 1\nrules:\n  grants:\n    roles: ['a\"b']\n", 4, "write the name of a role or a binding"),
        (f"version: 1\n{GRANT}", 3, "grant_exceptions[0].reason: is missing"),
        (f"version: 1\n{GRANT}    reason: ' '\n", 6, "grant_exceptions[0].reason: is empty; write who"),
        (
            f"version: 1\n{GRANT.replace('ClusterRole', 'Group')}    reason: c\n",
            3,
            "'Group' is not one of ClusterRole",
        ),
        (
            f"version: 1\n{GRANT.replace('name: a', 'name: a b')}    reason: c\n",
            4,
            "'a b' is not what can stand here",
        ),
        (f"version: 1\n{ENTRY.replace(': a', ': A')}", 3, "'A' is not what can stand here"),
        (
            f"version: 1\n{ENTRY}  - {{namespace: a, owner: x, reason: y}}\n",
            6,
            "is there twice; write one entry",
        ),
        (f"version: 1\n{SPACE}", 4, "pod_security.exemptions[0].reason: is empty"),
        ("version: 1\nkeepers: []\nkeepers: [a]\n", 3, "keepers: is there twice, first on line 2"),
        ("version: 1\nrules: {\n", 2, "is not valid YAML"),
        ("version: 1\nkeepers: ['a\u0000']\n", 2, "is not valid YAML"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(SiteError) as caught:
        read(tmp_path, text)
    (problem,) = caught.value.problems
    assert says in str(problem)
    assert (problem.file, problem.line) == (str(tmp_path / "admission.yml"), line)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    with pytest.raises(SiteError) as caught:
        read(tmp_path, "version: 1\nrule: 1\nkeepers: 1\nrules: {digests: {x: 1, scope: y}}\n")
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content:
        (tmp_path / "admission.yml").write_bytes(content)
    with pytest.raises(SiteError, match="cannot be read"):
        read_policy(tmp_path / "admission.yml")


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
_SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), _TEXT, st.just("everywhere"), st.just("a"))
_ANY = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)
)
_RULE = st.dictionaries(st.sampled_from(["scope", "allowed", "label", "default", "x"]), _ANY, max_size=3)
_FILE = st.fixed_dictionaries(
    {"version": st.just(1)},
    optional={
        "high_risk_label": _SCALAR | st.just("a/b=c"),
        "keepers": st.lists(_SCALAR, max_size=2),
        "gpu_resources": st.lists(_SCALAR | st.just("a.b/"), max_size=2),
        "rules": st.dictionaries(st.sampled_from(sorted(built_in_policy().rules)), _RULE, max_size=3) | _ANY,
        "exemptions": st.lists(
            st.fixed_dictionaries(
                {name: st.just("a") | _SCALAR for name in ("namespace", "owner", "reason")},
                optional={"rules": st.lists(st.just("digests") | _SCALAR, max_size=2)},
            ),
            max_size=2,
        ),
        "pod_security": _ANY,
    },
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=_FILE)
def test_any_content_is_understood_or_refused_with_lines(tmp_path: Path, content: object) -> None:
    text = yaml.safe_dump(content, allow_unicode=True)
    try:
        policy = read(tmp_path, text)
    except SiteError as error:
        lines = len(text.splitlines())
        assert error.problems
        assert all(1 <= problem.line <= lines and problem.remedy for problem in error.problems)
    else:
        objects = policy_objects(policy)
        assert json.loads(json.dumps(objects)) == objects
        # Nothing of the file ends a text in an expression: what is quoted there is never escaped.
        assert "\\" not in "".join(
            expression["expression"] for item in objects for expression in item["spec"].get("validations", ())
        )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60))
def test_any_text_is_understood_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "admission.yml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SiteError):
        read_policy(tmp_path / "admission.yml")


def test_the_manual_names_every_rule_and_field() -> None:
    manual = (ROOT / "docs" / "admission.md").read_text()
    options = schema().options or {}
    rules = options["rules"].options or {}
    assert [name for name in (*options, *rules) if f"`{name}`" not in manual] == []
