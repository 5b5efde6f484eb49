# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documents: their form, what hosts share, and where a template's mistake is reported."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import (
    FILTERS,
    Templates,
    to_json,
    to_yaml,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.fitness import merge_fitness
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.kinds import RESET
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, SiteError
from hypothesis import given
from hypothesis import strategies as st

from .support import ROLES, renderer, small_site


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """Return a copy of the fixture roles that a test may change."""
    folder = tmp_path / "roles"
    shutil.copytree(ROLES, folder)
    return folder


def problem_of(tmp_path: Path, roles: Path, host: str = "w1") -> Problem:
    """Return the only problem that rendering has."""
    site = small_site(tmp_path, roles)
    with pytest.raises(SiteError) as raised:
        renderer(site, roles).document(site.hosts[host])
    (problem,) = raised.value.problems
    return problem


def test_the_form_of_a_document(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    document = renderer(site).document(site.hosts["a1"])
    assert (document["schema"], document["site"], document["host"]) == (1, "small", "a1")
    assert "forget" not in document
    layers = [
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
    ]
    assert document["layers"] == layers
    assert document["fitness"] == {"max_clock_skew_s": 5, "min_memory_bytes": 0}
    assert [resource["id"] for resource in document["resources"]] == [
        "base/folder", "base/motd", "etcd/folder", "etcd/key", "etcd/server",
    ]  # fmt: skip


def test_references_get_their_layer(tmp_path: Path, roles: Path) -> None:
    template = roles / "etcd" / "desired.yml.j2"
    template.write_text(template.read_text() + "  requires: [folder, base/motd]\n")
    site = small_site(tmp_path, roles)
    resources = {r["id"]: r for r in renderer(site, roles).document(site.hosts["a1"])["resources"]}
    assert resources["base/motd"]["requires"] == ["base/folder"]
    assert resources["etcd/server"]["requires"] == ["etcd/folder", "base/motd"]
    assert resources["etcd/server"]["key"] == "etcd/key"
    assert resources["etcd/server"]["issuer_sha256"] == "1" * 64


def test_the_engine_takes_it(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    for host in site.hosts.values():
        document = renderer(site).document(host)
        assert len(read_document(document).resources) == len(document["resources"])


def test_templates_see_host_site_and_resolved_defaults(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    resources = renderer(site).document(site.hosts["w2"])["resources"]
    assert resources[1]["content"] == "Welcome to small, w2 of small.\n"


def test_only_some_layers(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    document = renderer(site).document(site.hosts["a1"], ["etcd", "gvisor"])
    assert document["layers"] == ["etcd"]
    assert {resource["id"].split("/")[0] for resource in document["resources"]} == {"etcd"}


def test_the_way_back_is_in_reverse(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    document = renderer(site).document(site.hosts["a1"], template=RESET)
    assert document["layers"][0] == "gpu_repair" and document["layers"][-1] == "base"
    assert document["fitness"] == {} and document["forget"] is True
    assert [resource["kind"] for resource in document["resources"]] == ["absent"]


def test_rendering_is_repeatable(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    one, other = renderer(site), renderer(site)
    hosts = list(site.hosts.values())
    assert [one.document_text(host) for host in hosts] == [
        other.document_text(host) for host in reversed(hosts)
    ][::-1]


def test_hosts_share_what_does_not_differ(tmp_path: Path, roles: Path) -> None:
    (roles / "containerd").mkdir()
    counted = roles / "containerd" / "desired.yml.j2"
    for text, wanted in (
        ("- {kind: file, id: x, path: /x, content: {{ site.name | to_json }}}", 1),
        ("- {kind: file, id: x, path: /x, content: {{ host.site_group | to_json }}}", 2),
        ("- {kind: file, id: x, path: /x, content: {{ host.name | to_json }}}", 3),
        ("{% set me = host %}\n- {kind: file, id: x, path: /x, content: {{ me.site_group | to_json }}}", 3),
        ("- {kind: file, id: x, path: /x, content: {{ base_motd | to_json }}}", 3),
    ):
        counted.write_text(text + "\n")
        folder = tmp_path / str(hash(text))
        folder.mkdir()
        site = small_site(folder, roles)
        rendering = renderer(site, roles)
        contents = {
            host.name: [r for r in rendering.document(host)["resources"] if r["id"] == "containerd/x"]
            for host in site.hosts.values()
        }
        assert len([key for key in rendering._pieces if key[0] == "containerd/desired.yml.j2"]) == wanted, (
            text
        )
        alone = {
            host.name: [
                r for r in renderer(site, roles).document(host)["resources"] if r["id"] == "containerd/x"
            ]
            for host in site.hosts.values()
        }
        assert contents == alone


def test_a_host_of_its_own_is_not_mixed_up(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    site = small_site(folder)
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / "w2.yml").write_text("base_motd: Mine\n")
    other = tmp_path / "b"
    other.mkdir()
    (other / "host_vars").mkdir()
    (other / "host_vars" / "w2.yml").write_text("base_motd: Mine\n")
    site = small_site(other)
    rendering = renderer(site)
    contents = [rendering.document(host)["resources"][1]["content"] for host in site.hosts.values()]
    assert contents == [
        "Welcome to small, a1 of small.\n", "Welcome to small, w1 of small.\n", "Mine, w2 of small.\n",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "line", "text", "says"),
    [
        ("base/desired.yml.j2", 2, "- {kind: file, id: {{ no_such_name }}}", "'no_such_name' is undefined"),
        ("base/desired.yml.j2", 2, "- {kind: file, id: {{ site.nmae }}}", "has no attribute 'nmae'"),
        ("base/desired.yml.j2", 2, "- {kind: file, id: {{ 1 // 0 }}}", "ZeroDivisionError"),
        ("base/desired.yml.j2", 2, "{% for x in %}", "Expected"),
        ("base/templates/motd.j2", 2, "{{ no_such_name }}", "'no_such_name' is undefined"),
        ("base/templates/motd.j2", 2, "{% if %}", "Expected"),
        ("base/desired.yml.j2", 2, '- {kind: x, id: {{ template("nothing.j2") }}}', "there is no template"),
        (
            "base/desired.yml.j2",
            2,
            '- {kind: x, id: {{ artifact("runc", "9").path }}}',
            "there is no mirror index",
        ),
        ("base/fitness.yml.j2", 2, "min_cpus: {{ no_such_name }}", "'no_such_name' is undefined"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(
    tmp_path: Path, roles: Path, monkeypatch: pytest.MonkeyPatch, file: str, line: int, text: str, says: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = (roles / file).read_text().splitlines()[0]
    first = "{# first #}" if first.startswith(("-", "{#")) else first
    keep = (roles / "base/desired.yml.j2").read_text()
    (roles / file).write_text(f"{first}\n{text}\n")
    if "templates" in file:
        (roles / "base/desired.yml.j2").write_text(keep)
    problem = problem_of(tmp_path, roles)
    assert says in problem.message
    assert (problem.file, problem.line) == (str(roles / file), line)
    assert problem.remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- kind: [\n", "renders to text that is not YAML"),
        ("kind: file\n", "does not render to a list of resources"),
        ("- kind: file\n", "does not render to a list of resources"),
        ("text\n", "does not render to a list of resources"),
    ],
)
def test_a_template_of_another_form(tmp_path: Path, roles: Path, text: str, says: str) -> None:
    (roles / "base" / "desired.yml.j2").write_text(text)
    problem = problem_of(tmp_path, roles)
    assert says in problem.message
    assert problem.file == str(roles / "base" / "desired.yml.j2")


def test_an_empty_template_is_an_empty_layer(tmp_path: Path, roles: Path) -> None:
    (roles / "base" / "desired.yml.j2").write_text("{# nothing today #}\n")
    site = small_site(tmp_path, roles)
    assert renderer(site, roles).document(site.hosts["w1"])["resources"] == []


def test_objects_of_a_layer(tmp_path: Path, roles: Path) -> None:
    (roles / "base" / "objects.yml.j2").write_text("- kind: Namespace\n  metadata: {name: {{ site.name }}}\n")
    rendering = renderer(small_site(tmp_path, roles), roles)
    labels = {"ironspan.io/layer": "base", "ironspan.io/site": "small"}
    assert rendering.objects("base") == [
        {"kind": "Namespace", "metadata": {"name": "small", "labels": labels}}
    ]


def test_the_run_folder(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    folder = RunFolder(tmp_path / "run")
    made: list[int] = []

    def make() -> tuple[t.Any, t.Any]:
        made.append(1)
        return site, renderer(site)

    for _turn in range(3):
        folder.ensure("desired.yml.j2", make)
    assert made == [1]
    text, notes = folder.read("w1")
    assert json.loads(text) == renderer(site).document(site.hosts["w1"])
    assert notes["mirror"] == "http://127.0.0.1:1"
    assert notes["max_clock_skew_s"] == 5
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0
    with pytest.raises(KeyError):
        folder.read("nobody")


def test_the_run_folder_keeps_nothing_half_written(tmp_path: Path, roles: Path) -> None:
    (roles / "etcd" / "desired.yml.j2").write_text("{{ nothing }}")
    (roles / "base" / "templates" / "motd.j2").write_text("{{ nothing }}")
    site = small_site(tmp_path, roles)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(SiteError) as raised:
        folder.write(site, renderer(site, roles))
    assert {Path(problem.file).name for problem in raised.value.problems} >= {"motd.j2"}
    assert not folder.has()
    assert list(tmp_path.glob("run/*")) == []


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        ([{"min_cpus": 1}, {"min_cpus": 4}, {}], {"min_cpus": 4}),
        ([{"min_kernel": "5.15"}, {"min_kernel": "5.6"}], {"min_kernel": "5.15"}),
        ([{"max_clock_skew_s": 5}, {"max_clock_skew_s": 2}], {"max_clock_skew_s": 2}),
        ([{"cgroup_versions": [1, 2]}, {"cgroup_versions": [2]}], {"cgroup_versions": [2]}),
        (
            [{"ports_free": [{"port": 1}]}, {"ports_free": [{"port": 1}, {"port": 2}]}],
            {"ports_free": [{"port": 1}, {"port": 2}]},
        ),
        ([], {}),
    ],
)
def test_fitness_is_the_strictest(parts: list[dict[str, t.Any]], merged: dict[str, t.Any]) -> None:
    assert merge_fitness(parts) == merged


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXT)
def test_json_in_a_template_survives_yaml(text: str) -> None:
    import yaml

    assert yaml.safe_load(f"- content: {to_json(text)}") == [{"content": text}]
    assert yaml.safe_load(to_yaml({"a": text})) == {"a": text}


@pytest.mark.parametrize(
    "text",
    ["12e34", "0123456789e12345", "1.e5", ".5e-1", "-1E+2", "08", "1_0e2", "0o17", "-0X1f", "0b2", "y", "N"],
)
def test_a_text_that_is_a_number_to_etcd_and_kubernetes_is_quoted(text: str) -> None:
    assert to_yaml({"a": text}) == f"a: '{text}'\n"


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (5, "5"),
        (0.5, "0.5"),
        (True, "true"),
        ("100m", "100m"),
        ("10.244.0.0/16", "10.244.0.0/16"),
        ("0x", "0x"),
    ],
)
def test_whatever_nobody_misreads_stays_plain(value: t.Any, result: str) -> None:
    assert to_yaml({"a": value}) == f"a: {result}\n"


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("b64encode", "ä", "w6Q="),
        ("sha256", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("to_json", {"b": 1, "a": [None, True]}, '{"b": 1, "a": [null, true]}'),
        ("to_yaml", {"b": 1, "a": ["x"]}, "b: 1\na:\n- x\n"),
    ],
)
def test_filters(name: str, value: t.Any, result: str) -> None:
    assert FILTERS[name](value) == result


@pytest.mark.parametrize(
    ("text", "names", "attributes", "whole"),
    [
        ("{{ site.name }}", {"site"}, set(), False),
        ("{{ host.name }}{{ host.groups }}", set(), {"name", "groups"}, False),
        ("{{ host }}", set(), set(), True),
        ("{{ host.variables }}", set(), {"variables"}, True),
        ('{{ template("a.j2") }}', {"template", "inner"}, {"rack"}, False),
        ('{{ template("a.j2" if x else "b.j2") }}', {"template", "inner", "x"}, {"rack"}, False),
        ("{{ template(name) }}", {"template", "name"}, set(), True),
        ('{% include "x/templates/a.j2" %}', set(), set(), True),
    ],
)
def test_what_a_template_reads(
    tmp_path: Path, text: str, names: set[str], attributes: set[str], whole: bool
) -> None:
    (tmp_path / "x" / "templates").mkdir(parents=True)
    (tmp_path / "x" / "t.j2").write_text(text)
    (tmp_path / "x" / "templates" / "a.j2").write_text("{{ inner }}{{ host.rack }}")
    reads = Templates(tmp_path).reads("x/t.j2")
    assert (set(reads.names), set(reads.attributes), reads.whole_host) == (names, attributes, whole)
