# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The policy file of a site: where it is, what is wrong with it, and what an API server must be able to."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.part import objects_of, of_file

from .conftest import Example
from .mutations import ALL

NAMED = "\nadmission_policy_file: ../../policies/admission.yml\n"


def write(example: Example, text: str, variables: str = NAMED) -> None:
    folder = example.folder.parent / "policies"
    folder.mkdir()
    (folder / "admission.yml").write_text(text)
    example.append(ALL, variables)


def test_without_a_file_there_is_no_policy(example: Example) -> None:
    assert of_file(example.site()) is None


def test_the_path_is_relative_to_the_file_that_names_it(example: Example) -> None:
    write(example, "version: 1\n")
    admission = of_file(example.site())
    assert admission and not admission.from_files
    assert admission.policy.rules["digests"].scope == "high_risk"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("version: 1\nrules:\n  digest: {}\n", 3, "rules.digest: unknown key; write digests"),
        ("version: 1\nhigh_risk_label: x\n", 2, "'x' is not what can stand here"),
    ],
)
def test_a_mistake_is_on_its_line_of_the_policy_file(
    example: Example, text: str, line: int, says: str
) -> None:
    write(example, text)
    (problem,) = example.problems()
    assert problem.file.endswith("policies/admission.yml")
    assert problem.line == line
    assert says in str(problem)


def test_a_missing_file_is_a_mistake_of_the_variable(example: Example) -> None:
    example.append(ALL, NAMED)
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "admission_policy_file")
    assert "cannot be read: No such file" in str(problem)


@pytest.mark.parametrize(
    ("version", "more", "says"),
    [
        ("1.36.4", "", ""),
        ("1.36.4", "admission_from_files: true\n", "admission_from_files: needs Kubernetes 1.37, and"),
        ("1.37.1", "admission_from_files: true\n", ""),
        ("1.35.4", "", "admission_policy_file: needs Kubernetes 1.36, and"),
    ],
)
def test_the_release_must_be_able_to(example: Example, version: str, more: str, says: str) -> None:
    write(example, "version: 1\n", NAMED + more)
    example.replace(ALL, 'site_kubernetes_version: "1.36.4"', f'site_kubernetes_version: "{version}"')
    found = [str(problem) for problem in example.problems() if "admission" in problem.path]
    assert len(found) == bool(says)
    assert all(says in text for text in found)


def test_files_need_a_policy(example: Example) -> None:
    example.append(ALL, "\nadmission_from_files: true\n")
    (problem,) = example.problems()
    assert "admission_from_files: needs admission_policy_file" in str(problem)


def test_it_holds_for_the_whole_site(example: Example) -> None:
    write(example, "version: 1\n")
    example.append("group_vars/gpu.yml", "\nadmission_policy_file: ../../policies/admission.yml2\n")
    assert any("write it once" in str(problem) for problem in example.problems())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("admission_service_addresses: [203.0.113.0/28, 2001:db8::/64]", ""),
        ("admission_service_addresses: [203.0.113.5/28]", "admission_service_addresses[0]: is no network"),
        (
            "admission_service_addresses: ['1.2.3.4/32\") || true']",
            "admission_service_addresses[0]: ",
        ),
        ("admission_load_balancers: [system:serviceaccount:metallb-system:controller]", ""),
        ("admission_load_balancers: ['x\"] || true']", "admission_load_balancers[0]: "),
    ],
)
def test_addresses_that_services_may_have(example: Example, line: str, says: str) -> None:
    """What ends up in an expression is checked, and found on its line."""
    example.append(ALL, f"\n{line}\n")
    problems = example.problems()
    assert len(problems) == bool(says)
    for problem in problems:
        assert says in str(problem)
        assert problem.line == example.line(ALL, line.partition(":")[0])


def test_every_cluster_has_policies_without_a_file(example: Example) -> None:
    example.append(ALL, "\nadmission_service_addresses: [203.0.113.0/28]\n")
    objects = objects_of(example.site())
    assert [item["kind"] for item in objects] == [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    assert "203.0.113.0/28" in str(objects)
