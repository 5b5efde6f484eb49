# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resources of a program: usual places for a new one, the ids and places that an old one has."""

from __future__ import annotations

import configparser
import json
import typing as t

import jinja2
import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render import programs, services

PACKED = {"path": "/tide", "sha256": "4" * 64, "size": 7}


def resources(text: str) -> dict[str, dict[str, t.Any]]:
    """Return what the engine reads, by id."""
    found = yaml.safe_load(text)
    read_document({"schema": 1, "layers": ["l"], "resources": found})
    return {resource["id"]: resource for resource in found}


def unit_of(found: dict[str, dict[str, t.Any]], id: str = "unit") -> configparser.ConfigParser:
    """Return a unit; no key appears twice in a section."""
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(found[id]["content"])
    return parser


def test_a_packed_program_in_one_line() -> None:
    found = resources(services.service("tide", PACKED, {"a": 1}, description="Watch", restart_on=["x/key"]))
    assert {name: one.get("path") or one["name"] for name, one in found.items()} == {
        "program-root": "/opt/ironspan",
        "program-folder": "/opt/ironspan/tide",
        "program-bin": "/opt/ironspan/tide/bin",
        "program": "/opt/ironspan/tide/bin/ironspan-tide",
        "configuration": "/etc/ironspan",
        "settings": "/etc/ironspan/tide.json",
        "data": "/var/lib/ironspan/tide",
        "unit": "/etc/systemd/system/ironspan-tide.service",
        "service": "ironspan-tide.service",
    }
    assert json.loads(found["settings"]["content"]) == {"a": 1}
    assert found["service"]["restart_on"] == ["program", "settings", "unit", "x/key"]
    unit = unit_of(found)
    assert unit["Service"]["ExecStart"] == "/opt/ironspan/tide/bin/ironspan-tide run"
    assert unit["Service"]["ExecStartPre"] == "+/opt/ironspan/tide/bin/ironspan-tide --unpack"
    assert unit["Service"]["ReadWritePaths"] == "/var/lib/ironspan/tide"
    assert set(programs.sandbox(["/var/lib/ironspan/tide"]).splitlines()) <= set(
        found["unit"]["content"].splitlines()
    )
    assert unit["Unit"]["After"] == "network-online.target"


def test_an_account_of_its_own_has_no_right_of_roots() -> None:
    found = resources(
        services.service(
            "tide", PACKED, "{}", description="Watch", user="tide", secret=True, writable=["/srv"]
        )
    )
    assert found["user"]["name"] == "tide"
    for name in ("data", "settings"):
        assert (found[name]["owner"], found[name]["requires"]) == ("tide", ["user"])
    assert "owner" not in found["program"]
    service = unit_of(found)["Service"]
    assert (service["User"], service["CapabilityBoundingSet"]) == ("tide", "")
    assert service["ReadWritePaths"] == "/var/lib/ironspan-tide /srv"


def test_a_single_file_is_started_with_the_hosts_python() -> None:
    found = resources(services.service("tide", "print(1)\n", "{}", description="Watch"))
    assert found["program"]["content"] == "print(1)\n"
    assert unit_of(found)["Service"]["ExecStart"] == (
        "/usr/bin/python3 -IS /opt/ironspan/tide/bin/ironspan-tide /etc/ironspan/tide.json"
    )


def test_a_program_that_had_its_places_before_keeps_them() -> None:
    places = {"program": "/opt/old/bin/old", "settings": "/etc/old.json", "state": ""}
    found = resources(
        services.service("old", PACKED, "{}", "[Unit]\n", prefix="old-", places=places, ids={"root": "x"})
    )
    assert {name: one.get("path") or one["name"] for name, one in found.items()} == {
        "x": "/opt/old",
        "old-bin": "/opt/old/bin",
        "old-program": "/opt/old/bin/old",
        "old-settings": "/etc/old.json",
        "old-unit": "/etc/systemd/system/ironspan-old.service",
        "old": "ironspan-old.service",
    }
    assert found["old"]["restart_on"] == ["old-program", "old-settings", "old-unit"]
    assert found["old"]["requires"] == []


def test_the_roles_own_resources_are_there_before_the_unit_starts() -> None:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    text = (
        '{% call service("tide", packed, "{}", description="Watch") %}\n'
        "- {kind: directory, id: own, path: /srv/own}\n"
        "{% endcall %}\n"
        "- {kind: directory, id: after, path: /srv/after}\n"
    )
    shown = environment.from_string(text).render(service=services.service, packed=PACKED)
    assert list(resources(shown))[-4:] == ["own", "unit", "service", "after"]


def test_installed_only() -> None:
    assert {"unit", "service", "settings"}.isdisjoint(resources(services.service("tide", PACKED)))


@pytest.mark.parametrize(
    ("second", "refused"),
    [
        ({}, False),
        ({"mode": "0755"}, False),
        ({"mode": "0700"}, True),
        ({"kind": "symlink", "target": "/x"}, True),
    ],
)
def test_layers_share_folders_that_they_want_alike(second: dict[str, t.Any], refused: bool) -> None:
    first = {"kind": "directory", "id": "a/root", "path": "/opt/ironspan"}
    document = {"schema": 1, "layers": ["a", "b"], "resources": [first, {**first, "id": "b/root", **second}]}
    if not refused:
        assert len(read_document(document).resources) == 2
        return
    with pytest.raises(EngineError, match="is also the path of a/root"):
        read_document(document)


@pytest.mark.parametrize("keep", [False, True])
def test_what_the_program_made_goes_with_it(keep: bool) -> None:
    found = resources(services.service("tide", PACKED, keep=keep))
    taken = {one["path"] for one in found.values() if one.get("with_contents")}
    assert taken == {"/opt/ironspan/tide"} | (set() if keep else {"/var/lib/ironspan/tide"})


def test_a_unit_that_always_runs() -> None:
    text = programs.always("Watch", "ExecStart=/x", "A=1\n", before=["kubelet.service"], restart_seconds=2)
    assert text == (
        "# Written by ironspan.\n[Unit]\nDescription=Watch\nAfter=network-online.target\n"
        "Wants=network-online.target\nBefore=kubelet.service\nStartLimitIntervalSec=0\n\n"
        "[Service]\nType=exec\nExecStart=/x\nRestart=always\nRestartSec=2\nA=1\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    assert "After" not in programs.always("Watch", "ExecStart=/x", network=False)
