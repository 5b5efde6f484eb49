# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer ``events``: what its host gets, and the sites that are refused."""

from __future__ import annotations

import json
import pathlib
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import events
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError

from ironspan.events import settings
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
HOST = "https://awx.example.com"
TWO = "        desk-2: {}\n"
MORE = """\
all:
  children:
    on_prem:
      hosts:
        desk-1: {}
    events:
      hosts:
        desk-1: {ansible_host: 10.98.0.77, site_mirror_url: "http://10.98.0.1:8080"}
"""


def rendered(render: Render, more: str = MORE, **variables: t.Any) -> Rendered:
    return render(variables={"awx_host": HOST, **variables}, more=more)


def test_a_site_without_the_group_has_nothing_of_it(render: Render) -> None:
    found = render()
    assert not [
        one for host in found.site.hosts for one in found.resources(host) if one.startswith("events/")
    ]


def test_the_program_reads_what_the_role_writes(render: Render, tmp_path: pathlib.Path) -> None:
    found = rendered(render, events_port=2400, events_most_per_hour=9)
    assert found.document("desk-1")["layers"] == ["base", "events"]
    read_document(found.document("desk-1"))
    resources = found.resources("desk-1")
    file = tmp_path / "events.json"
    file.write_text(found.content("desk-1", "events/settings"))
    read = settings.load(file)
    assert str(settings.DEFAULT_PATH) == resources["events/settings"]["path"]
    assert (read.host, read.ca_file, read.most_per_hour) == (HOST, "", 9)
    assert (read.listen.address, read.listen.port) == ("10.98.0.77", 2400)
    assert (read.metrics.address, read.metrics.port) == ("127.0.0.1", 2398)
    assert read.state.parent == pathlib.Path(resources["events/data"]["path"])
    members = {host.name for host in found.site.group("etcd")}
    assert members and read.reactions["EtcdMemberUnhealthy"].hosts == members
    assert set(read.reactions) == set(events.REACTIONS)
    named = {
        "token": str(read.token_file), "controller-token": str(read.controller_token_file),
        "certificate": read.listen.certificate,
    }  # fmt: skip
    assert {name: resources[f"events/{name}"]["path"] for name in named} == named
    assert resources["events/key"]["key_path"] == read.listen.key


def test_it_has_an_account_of_its_own_and_two_secrets(render: Render) -> None:
    resources = rendered(render).resources("desk-1")
    secrets = {name: one["secret"] for name, one in resources.items() if "secret" in one}
    assert secrets == {"events/token": "events-token-2", "events/controller-token": "events-account-2"}
    for name in (*secrets, "events/key"):
        assert (resources[name]["mode"], resources[name]["group"]) == ("0640", "ironspan-events")
    unit = resources["events/unit"]["content"]
    assert "User=ironspan-events\n" in unit and "CapabilityBoundingSet=\n" in unit
    assert "ReadWritePaths=/var/lib/ironspan-events\n" in unit
    # Another token is read without a restart, another certificate is not.
    restarts = resources["events/service"]["restart_on"]
    assert "events/certificate" in restarts and not {*secrets} & {*restarts}


def test_its_certificate_is_a_servers_for_where_it_listens(render: Render) -> None:
    resources = rendered(render, events_address="10.98.0.78").resources("desk-1")
    assert resources["events/certificate"]["profile"] == "events-server"
    csr = resources["events/key"]["csr"]
    assert (csr["dns"], sorted(csr["ips"])) == (["desk-1"], ["10.98.0.77", "10.98.0.78"])


def test_the_controllers_authority_goes_with_it(render: Render, tmp_path: pathlib.Path) -> None:
    authority_text = "-----BEGIN CERTIFICATE-----\n"
    (tmp_path / "ca.crt").write_text(authority_text)
    found = rendered(render, awx_ca_file=str(tmp_path / "ca.crt"))
    authority = found.resources("desk-1")["events/controller-ca"]
    written = json.loads(found.content("desk-1", "events/settings"))
    assert (authority["path"], authority["content"]) == (written["controller"]["ca_file"], authority_text)


@pytest.mark.parametrize(
    ("more", "variables", "said"),
    [
        (MORE, {"awx_host": ""}, "desk-1 is in the group events"),
        (MORE.replace("    events:", f"{TWO}    events:") + TWO, {}, "launch every job"),
        (MORE, {"events_port": 2398, "events_metrics_address": "10.98.0.77"}, "2398"),
        (MORE, {"events_address": "desk.example"}, "events_address"),
        (MORE, {"events_most_per_hour": 0}, "launches in an hour"),
    ],
)  # fmt: skip
def test_what_is_refused(render: Render, more: str, variables: dict[str, t.Any], said: str) -> None:
    with pytest.raises(SiteError, match=said):
        rendered(render, more, **variables)
