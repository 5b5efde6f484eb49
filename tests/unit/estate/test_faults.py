# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Data of an estate with one mistake each: refused before anybody is asked, with file, line and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import faults
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import EstateError

from tests.unit.site_model.conftest import Example
from tests.unit.site_model.mutations import ALL, HOSTS

from .mistakes import _CIRCUIT as CIRCUIT
from .mistakes import _VAULT_ID as VAULT
from .mistakes import MISTAKES, Mistake
from .mistakes_reached import MORE
from .mistakes_unused import UNUSED


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Example:
    """Return a copy of the example inventory whose estate is not commented out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    example = Example(tmp_path / "inventory")
    text = (example.folder / ALL).read_text()
    lines, inside = [], False
    for line in text.splitlines():
        inside = inside or line.startswith("# azure_subscription")
        lines.append(line.removeprefix("# ") if inside else line)
    (example.folder / ALL).write_text("\n".join(lines) + "\n")
    return example


def test_the_estate_of_the_example_is_right(estate: Example) -> None:
    assert estate.problems() == []


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake.name for mistake in (*MISTAKES, *MORE, *UNUSED)}) == len(MISTAKES) + len(MORE) + len(
        UNUSED
    )


@pytest.mark.parametrize("mistake", (*MISTAKES, *MORE, *UNUSED), ids=lambda mistake: mistake.name)
def test_mistake(estate: Example, mistake: Mistake) -> None:
    for old, new in mistake.changes:
        if old:
            estate.replace(ALL, old, new)
        else:
            estate.append(ALL, new + "\n")
    problems = estate.problems()
    assert len(problems) == 1, "\n".join(map(str, problems))
    (problem,) = problems
    assert mistake.says in f"{problem.path}: {problem.message}", str(problem)
    assert problem.remedy
    assert Path(problem.file) == estate.folder / ALL
    assert problem.line == estate.line(ALL, mistake.at), str(problem)


def test_a_host_with_another_address_than_its_machine(estate: Example) -> None:
    estate.replace(HOSTS, "ansible_host: 10.20.0.12", "ansible_host: 10.20.0.22")
    (problem,) = estate.problems()
    assert "az-2 gets 10.20.0.12, and the inventory says 10.20.0.22" in problem.message


def test_a_rack_that_security_groups_would_keep_out(estate: Example) -> None:
    estate.replace(HOSTS, "ansible_host: 10.30.1.11", "ansible_host: 10.40.1.11")
    (problem,) = estate.problems()
    assert "host gpu-a-01 (10.40.1.11) is in none of them" in problem.message
    assert problem.line == estate.line(ALL, "azure_rack_networks:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", 'azure_backup: {container: ""}\nazure_vault: {keys: [kms]}'),
        ("", f"azure_gateway: {{kind: express_route, circuit: {CIRCUIT}, size: ErGwScale}}"),
        ("[etcd, control_plane]", "[etcd, control_plane, user_quiet]"),
        ("azure_administrator_networks: [10.31.0.0/24]", "azure_administrator_networks: [10.0.0.0/8]"),
        ("azure_region: westeurope", "azure_region: polandcentral\nazure_backup: {redundancy: ZRS}"),
        ("", f"azure_existing: {{vault: {VAULT.replace('resourceGroups', 'resourcegroups')}}}"),
        ("", "azure_existing: {dns_zones: {privatelink.azurecr.io: ZONES/privatelink.azurecr.io}}"),
        ("", "azure_outbound: {kind: firewall, next_hop: 100.64.1.4}\nazure_dns_servers: [168.63.129.16]"),
        ("", "azure_management: {kind: workload_identity, url: 'https://management.chinacloudapi.cn/'}"),
        ("", "azure_resource_groups: {network: one, data: one, machines: one, nodes: one}"),
    ],
)
def test_what_is_unusual_and_right(estate: Example, old: str, new: str) -> None:
    new = new.replace("ZONES", f"{CIRCUIT.rpartition('/expressRoute')[0]}/privateDnsZones")
    if old:
        estate.replace(ALL, old, new)
    else:
        estate.append(ALL, f"{new}\n")
    assert estate.problems() == []


def test_what_nothing_can_be_made_of_is_refused_where_no_judge_knows_why(
    estate: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_variables: object) -> None:
        raise EstateError("no estate can be made of the data: 7", "run ironspan validate, which says where")

    monkeypatch.setattr(faults, "declared", fails)
    (problem,) = estate.problems()
    assert (problem.path, problem.line) == ("azure_subscription", estate.line(ALL, "azure_subscription: "))
    assert problem.message == "no estate can be made of the data: 7"


@pytest.mark.parametrize("value", ["10.244.0.1/16", "fd00::/48", "''"])
@pytest.mark.parametrize("variable", ["site_pod_cidr: 10.244.0.0/16", "site_service_cidr: 10.96.0.0/16"])
def test_a_wrong_network_of_the_site_is_named_alone(estate: Example, variable: str, value: str) -> None:
    estate.replace(ALL, f"{variable}\n", f"{variable.partition(':')[0]}: {value}\n")
    problems = estate.problems()
    assert problems
    assert not any(problem.path.startswith("azure_") for problem in problems), problems


def test_a_host_of_a_rack_with_an_address_of_azure(estate: Example) -> None:
    estate.replace(HOSTS, "gpu-a-01: {ansible_host: 10.30.1.11}", "gpu-a-01: {ansible_host: 10.20.9.11}")
    (problem,) = estate.problems()
    assert (problem.line, problem.path) == (estate.line(HOSTS, "10.20.9.11"), "ansible_host")
