# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reading inventories: the typed site, all problems at once, precedence, expressions, other formats."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import origins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Taint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    Place,
    Problem,
    Problems,
    SiteError,
    nearest,
    shown,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .conftest import EXAMPLE, KEY, Example


def test_the_site_is_typed(example: Example) -> None:
    site = example.site()
    assert (site.name, site.api_host, site.api_port) == ("example", "api.example.internal", 6443)
    assert site.api_address == "10.20.0.10"
    assert site.dns_address == "10.96.0.10"
    assert site.kubernetes_service_address == "10.96.0.1"
    assert (site.kubernetes_version, site.node_cidr_mask, site.wan_mtu) == ("1.36.4", 24, 1400)
    assert len(site.hosts) == 13


def test_hosts_are_typed(example: Example) -> None:
    hosts = example.site().hosts
    gpu, plain, plane = hosts["gpu-a-01"], hosts["cpu-c-01"], hosts["az-1"]
    assert gpu.labels == {"example.com/gpu": "true"}
    assert gpu.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert (gpu.rack, gpu.site_group) == ("a", "on_prem")
    assert gpu.mirror_url == "http://mirror.racks.example.internal:8080"
    assert (plain.address, plain.ansible_host) == ("10.30.3.11", "192.168.50.31")
    assert plain.layers == ("base", "egress", "containerd", "flannel", "gvisor", "dns", "node")
    assert plane.layers == (
        "base",
        "egress",
        "containerd",
        "flannel",
        "dns",
        "etcd_disk",
        "etcd",
        "etcd_events",
        "etcd_backup",
        "node",
        "control_plane",
        "access",
        "gpu_repair",
    )
    assert (plane.site_group, plane.rack, plane.labels, plane.taints) == ("azure", "", {}, ())
    assert plane.in_group("etcd") and not plane.in_group("nodes")


def test_groups_keep_the_order_of_the_inventory(example: Example) -> None:
    site = example.site()
    assert [host.name for host in site.group("etcd")] == ["az-1", "az-2", "az-3"]
    assert [host.name for host in site.group("gvisor")] == ["cpu-c-01", "cpu-c-02"]
    assert site.group("haproxy") == []


def test_values_are_plain_python(example: Example) -> None:
    variables = example.site().hosts["gpu-a-01"].variables
    labels = variables["site_labels"]
    for value in (variables["site_name"], labels, next(iter(labels)), variables["site_node_cidr_mask"]):
        assert type(value).__module__ == "builtins"


def test_every_default_is_there(example: Example) -> None:
    variables = example.site().hosts["cpu-c-01"].variables
    assert variables["base_swap_off"] is True
    assert variables["site_cluster_domain"] == "cluster.local"


def test_precedence_is_ansibles(example: Example) -> None:
    example.append("group_vars/rack_a.yml", "base_min_cpus: 2\nbase_min_memory_mib: 2048\n")
    example.append("host_vars/gpu-a-02.yml", "base_min_cpus: 4\n")
    hosts = example.site().hosts
    assert [hosts[name].variables["base_min_cpus"] for name in ("gpu-a-01", "gpu-a-02", "gpu-b-01")] == [
        2,
        4,
        1,
    ]
    assert hosts["gpu-a-02"].variables["base_min_memory_mib"] == 2048
    hosts = example.site(extra_vars={"base_min_cpus": "8"}).hosts
    assert hosts["gpu-a-02"].variables["base_min_cpus"] == 8


def test_expressions_are_resolved_per_host(example: Example) -> None:
    example.append(
        "group_vars/rack_a.yml",
        'site_labels:\n  example.com/host: "{{ inventory_hostname }}"\n'
        "  example.com/first: \"{{ groups['etcd'][0] }}\"\n"
        "base_min_cpus: \"{{ hostvars['az-1'].user_cpus + 1 }}\"\n",
    )
    example.append("group_vars/azure.yml", "user_cpus: 3\n")
    host = example.site().hosts["gpu-a-03"]
    assert host.variables["base_min_cpus"] == 4
    assert dict(host.labels) == {"example.com/host": "gpu-a-03", "example.com/first": "az-1"}


def test_all_problems_come_at_once_in_order(example: Example) -> None:
    example.replace("hosts.yml", "gpu-a-02: {ansible_host: 10.30.1.12}", "gpu-a-02: {ansible_host: nowhere}")
    example.replace("hosts.yml", "    haproxy: {}\n", "    gvizor: {}\n")
    example.replace("group_vars/all.yml", "site_wan_mtu: 1400", "site_wan_mtu: many\nsite_wan_mut: 1")
    example.replace("group_vars/gpu.yml", "effect: NoSchedule", "effect: Never")
    example.replace("group_vars/azure.yml", "http://mirror.azure", "ftp://mirror.azure")
    problems = example.problems()
    said = [(Path(problem.file).name, problem.path) for problem in problems]
    assert said == [
        ("all.yml", "site_wan_mtu"),
        ("all.yml", "site_wan_mut"),
        ("azure.yml", "site_mirror_url"),
        ("gpu.yml", "site_taints[0].effect"),
        ("hosts.yml", "ansible_host"),
        ("hosts.yml", "groups.gvizor"),
    ]
    assert problems == sorted(problems)
    with pytest.raises(SiteError) as raised:
        require_site((None, problems))
    assert str(raised.value).splitlines() == [str(problem) for problem in problems]


def test_a_problem_of_many_hosts_is_said_once(example: Example) -> None:
    example.replace("group_vars/on_prem.yml", "http://mirror", "mirror")
    assert len(example.problems()) == 1


def ini_inventory(folder: Path, example: Example) -> Path:
    """Write the same kind of site as an INI file."""
    file = folder / "hosts"
    file.write_text(
        "[azure]\naz-1 ansible_host=10.1.0.1\n\n[on_prem]\nw-1 ansible_host=10.2.0.1\n\n[etcd]\naz-1\n\n"
        "[control_plane]\naz-1\n\n[nodes]\nw-1\n\n[all:vars]\nsite_name=ini\nsite_api_endpoint=api.ini:6443\n"
        "site_api_address=10.1.0.1\nsite_mirror_url=http://mirror:80\nsite_pki_store=/nonexistent/pki\n"
        "site_node_cidr_mask=24\n"
    )
    return file


def test_ini_inventories_are_read(tmp_path: Path, example: Example) -> None:
    file = ini_inventory(tmp_path, example)
    site, problems = load_site([file], environment=example.environment)
    assert problems == []
    assert site is not None and site.hosts["w-1"].address == "10.2.0.1"


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        (
            "w-1 ansible_host=10.2.0.1",
            "w-1 ansible_host=10.1.0.1",
            "w-1 ansible_host",
            "is the address of host az-1",
        ),
        (
            "site_node_cidr_mask=24",
            "site_node_cidr_mask=ten",
            "site_node_cidr_mask",
            "must be a whole number",
        ),
        ("[nodes]\nw-1", "[nodez]\nw-1", "[nodez]", "unknown group"),
        ("[control_plane]\naz-1", "[control_plane]", "[control_plane]", "the site has no control plane"),
    ],
)
def test_ini_inventories_name_file_and_line(
    tmp_path: Path, example: Example, old: str, new: str, at: str, says: str
) -> None:
    file = ini_inventory(tmp_path, example)
    file.write_text(file.read_text().replace(old, new))
    _site, problems = load_site([file], environment=example.environment)
    found = [problem for problem in problems if says in str(problem)]
    assert found, "\n".join(map(str, problems))
    lines = file.read_text().splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if text.startswith(at)]
    assert (found[0].file, found[0].line) == (str(file), line)


@pytest.mark.parametrize(
    ("file", "old", "new", "at"),
    [
        ("group_vars/all.yml", "site_wan_mtu: 1400", "site_wan_mtu: 12", "site_wan_mtu"),
        ("hosts.yml", "    haproxy: {}\n", "    gvizor: {}\n", "gvizor"),
        (
            "hosts.yml",
            "gpu-a-02: {ansible_host: 10.30.1.12}",
            "Gpu-a-02: {ansible_host: 10.30.1.12}",
            "Gpu-a-02",
        ),
    ],
)
def test_positions_without_ansibles_tags(
    example: Example, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, at: str
) -> None:
    monkeypatch.setattr(origins, "Origin", None)
    example.replace(file, old, new)
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / file), example.line(file, at))


def test_switches_of_playbooks_are_not_variables_of_the_site(example: Example) -> None:
    assert example.problems(extra_vars={"reset_consent": "example", "awx_job_id": 7}) == []
    (problem,) = example.problems(extra_vars={"site_wan_mut": 1})
    assert "unknown variable; write site_wan_mtu" in str(problem)


def test_a_store_of_another_key(example: Example, tmp_path: Path) -> None:
    store = tmp_path / "pki"
    open_store(store, None, {"IRONSPAN_PKI_KEY": base64.b64encode(bytes(32)).decode()}).ensure_cas()
    example.replace(
        "group_vars/all.yml",
        "site_pki_store: ~/.local/share/ironspan/example/pki",
        f"site_pki_store: {store}",
    )
    (problem,) = example.problems()
    assert problem.line == example.line("group_vars/all.yml", "site_pki_store:")
    assert "was made with another key" in problem.message
    example.environment = {"IRONSPAN_PKI_KEY": base64.b64encode(bytes(32)).decode()}
    assert example.problems() == []
    (store / "store.json").write_text("{}")
    (problem,) = example.problems()
    assert "is damaged" in problem.message


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (None, 0o600, "does not exist"),
        ("", 0o600, "is not 32 bytes in base64"),
        ("hunter2", 0o600, "is not 32 bytes in base64"),
        (KEY, 0o644, "can be read by others"),
        (KEY, 0o600, ""),
    ],
    ids=["missing", "empty", "malformed", "open", "right"],
)
def test_the_key_file(example: Example, tmp_path: Path, content: str | None, mode: int, says: str) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
        key.chmod(mode)
    example.environment = {}
    example.append("group_vars/all.yml", f"site_pki_key_file: {key}\n")
    problems = example.problems()
    assert len(problems) == (1 if says else 0)
    for problem in problems:
        assert says in problem.message
        assert problem.line == example.line("group_vars/all.yml", "site_pki_key_file: /")
        assert "hunter2" not in problem.message


SCRIPT = """\
#!/bin/sh
cat <<'END'
{"size_large": {"hosts": ["az-1"]},
 "_meta": {"hostvars": {"az-1": {"vm_size": "large", "site_rak": "a", "site_rack": "from-script"}}}}
END
"""


def test_what_an_inventory_script_says(example: Example, tmp_path: Path) -> None:
    script = tmp_path / "cloud"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    _site, problems = load_site([example.folder, script], environment=example.environment)
    assert [problem.path for problem in problems] == ["site_rak"]
    assert "write site_rack" in problems[0].remedy
    script.write_text(SCRIPT.replace('"site_rak": "a", ', ""))
    site, problems = load_site([example.folder, script], environment=example.environment)
    assert site is not None and site.hosts["az-1"].rack == "from-script"


def test_an_inventory_that_is_not_there(tmp_path: Path) -> None:
    site, (problem,) = load_site([tmp_path / "nothing"])
    assert site is None and problem.file == str(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "says nothing"),
        ("just text\n", "is a text, and an inventory is a dictionary"),
        ("- a\n", "is a list, and an inventory is a dictionary"),
        ("all: {hosts: {h1: [1]}}\n", "has a list in the place of its variables"),
    ],
)
def test_a_file_that_is_no_inventory(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(text)
    site, (problem,) = load_site([file])
    assert site is None
    assert (problem.file, problem.line) == (str(file), 1)
    assert says in problem.message


VARIABLES = sorted(name for name in load_specification().options if name.startswith(("site_", "etcd_")))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["10.0.0.0/8", "a:1", "{{ x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60)
@example({"site_pki_key_file": "\x00"})
@given(st.dictionaries(st.sampled_from(VARIABLES), VALUES, min_size=1, max_size=6))
def test_no_value_breaks_the_reader(values: dict[str, object]) -> None:
    """Whatever somebody writes, the answer is a site or a list of problems."""
    site, problems = load_site([EXAMPLE], extra_vars=values, environment={"IRONSPAN_PKI_KEY": KEY})
    assert (site is None) == bool(problems)
    assert all(problem.file and problem.message and problem.remedy for problem in problems)


def test_a_variables_file_that_is_not_yaml(example: Example) -> None:
    example.append("group_vars/gpu.yml", "a: [\n")
    (problem,) = example.problems()
    assert problem.file == str(example.folder / "group_vars/gpu.yml")
    assert problem.line >= example.line("group_vars/gpu.yml", "a: [")


def test_the_mirrors_index_is_asked(example: Example, tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text('{"schema": 1, "artifacts": {}, "images": {}}')
    example.replace("group_vars/all.yml", "site_wan_mtu: 1400", f"site_artifacts_index: {index}")
    problems = example.problems()
    assert {problem.path for problem in problems} >= {"site_kubernetes_version", "etcd_version"}
    assert all("ironspan artifacts build" in problem.remedy for problem in problems)


def test_a_lab_may_use_loopback(example: Example) -> None:
    example.replace(
        "hosts.yml", "gpu-a-01: {ansible_host: 10.30.1.11}", "gpu-a-01: {ansible_host: 127.0.1.1}"
    )
    assert len(example.problems()) == 1
    example.append("group_vars/all.yml", "site_lab: true\n")
    assert example.problems() == []


def test_one_haproxy_answers_for_the_endpoint(example: Example) -> None:
    example.replace("hosts.yml", "    haproxy: {}\n", "    haproxy:\n      hosts:\n        az-3:\n")
    example.replace("group_vars/all.yml", "site_api_address: 10.20.0.10\n", "")
    example.replace("group_vars/all.yml", "internal:6443", "internal:8443")
    assert example.site().api_address == "10.20.0.13"


def test_problems_are_written_for_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problems = Problems()
    problems.add(Place(str(tmp_path / "inventory" / "a.yml"), 3), "site_name", "is wrong", "write right")
    problems.add(Place("<command line>", 0), "site_name", "is wrong", "write right")
    problems.add(Place("<command line>", 0), "site_name", "is wrong", "write right")
    assert sorted(str(problem) for problem in problems) == [
        "<command line>: site_name: is wrong; write right",
        "inventory/a.yml:3: site_name: is wrong; write right",
    ]
    assert shown("/somewhere/else.yml") == "/somewhere/else.yml"
    assert Problem("/a", 1, "p", "m", "r").as_dict() == {
        "file": "/a", "line": 1, "path": "p", "message": "m", "remedy": "r",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [("gvizor", ["gvisor", "gpu"], "gvisor"), ("zzz", ["gvisor", "gpu"], None), ("nodez", [], None)],
)
def test_nearest(name: str, known: list[str], near: str | None) -> None:
    assert nearest(name, known) == near


def test_a_control_plane_asks_itself_before_a_load_balancer_that_is_no_host(example: Example) -> None:
    site = example.site()
    servers, address = site.group("control_plane"), site.api_address
    worker = site.group("nodes")[0]
    assert {host.name: site.api_addresses(host) for host in servers} == {
        host.name: [host.address, address] for host in servers
    }
    assert site.api_addresses(worker) == [address]
    site.api_address = servers[0].address
    assert site.api_addresses(servers[1]) == [servers[0].address]
