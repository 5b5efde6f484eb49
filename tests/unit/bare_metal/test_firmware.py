# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Firmware of servers that run, against an Ironic in memory: what is asked for, waited for, proven and held.

What Ironic's own driver makes of it is in tests/integration/test_server_firmware.py.
"""

from __future__ import annotations

import dataclasses
import http.server
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import firmware
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.firmware_served import (
    Served,
    asked_of,
    missing_files,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import digest_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.begun import Begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.compare import compared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import (
    Consent,
    Outcome,
    bring,
    bring_as_planned,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bare_metal_firmware
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_firmware import (
    BareMetalFirmware,
)

from tests.support import racks
from tests.support.ironic_in_memory import Answer, MemoryIronic

BASE = "http://10.2.0.5:8088/images"
ENTRIES: list[dict[str, t.Any]] = [
    {"component": "bios", "version": "1.6.7", "file": "firmware/bios.bin", "sha256": "a1" * 32, "size": 9},
    {"component": "bios", "version": "1.6.7", "file": "firmware/dgx.bin", "sha256": "a2" * 32, "size": 9,
     "model": "dgx h100"},
    {"component": "bmc", "version": "24.09.17", "file": "bmc.fwpkg", "sha256": "b1" * 32, "size": 9},
]  # fmt: skip
SERVER = racks.server(0)
OLD = {"bios": "1.5.0", "bmc": "24.01.01"}
WRITTEN = "Node uuid-1 failed step {'args': {'settings': [{'url': 'http://x'}]}, 'priority': 0}: HTTP 400: "


class Serviced(MemoryIronic):
    """An Ironic that services nodes.

    Attributes:
        ends: ``well``; ``refused`` by the BMC; ``kept``, the old version runs on; ``later``, it goes on until
            somebody has looked twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends = "well"
        self.steps: list[t.Any] = []
        self._looks = 0

    def _of_node(self, method: str, node: dict[str, t.Any], rest: list[str], body: t.Any) -> Answer:
        if [method, *rest] == ["DELETE", "maintenance"]:
            node.update(maintenance=False, fault=None, maintenance_reason=None)
            return Answer(202, None)
        if [method, *rest] == ["PUT", "states", "provision"] and body["target"] == "service":
            return self._serviced(node, body)
        if (method, rest) == ("GET", []) and node["provision_state"] == "service wait":
            self._looks += 1
            if self._looks > 2:
                self._written(node)
        return super()._of_node(method, node, rest, body)

    def _serviced(self, node: dict[str, t.Any], body: t.Any) -> Answer:
        if node["provision_state"] != "active":
            return Answer(400, {"error_message": "service can not be performed on node"})
        self.steps.append(body["service_steps"])
        if self.ends == "refused":
            node.update(provision_state="service failed", maintenance=True, fault="service failure",
                        last_error=f"{WRITTEN}the image is not signed")  # fmt: skip
        elif self.ends == "later":
            node["provision_state"] = "service wait"
        else:
            self._written(node)
        return Answer(202, None)

    def _written(self, node: dict[str, t.Any]) -> None:
        node["provision_state"] = "active"
        for entry in self.firmware[node["uuid"]]["firmware"]:
            for update in self.steps[-1][0]["args"]["settings"]:
                if entry["component"] == update["component"] and self.ends != "kept":
                    entry["current_version"] = dict(SERVER.firmware)[update["component"]]


def ironic(versions: t.Mapping[str, str] = OLD, **node: t.Any) -> Serviced:
    made = Serviced()
    body = {"name": SERVER.name, "driver": "redfish", "firmware_interface": "redfish"}
    entry = made.request("/nodes", "POST", json=body).json()
    made.nodes[entry["uuid"]].update({"provision_state": "active", **node})
    old = dataclasses.replace(SERVER, firmware=tuple(versions.items()))
    made.firmware[entry["uuid"]] = racks.firmware(old)
    return made


def wanted(entries: t.Sequence[t.Mapping[str, t.Any]] = ENTRIES) -> dict[str, State | None]:
    files = firmware.files_of(list(entries))
    plain = {
        **dataclasses.asdict(SERVER),
        "nics": [], "disks": [], "firmware": [list(pair) for pair in SERVER.firmware],
    }  # fmt: skip
    del plain["origin"]
    return {
        SERVER.name: {
            "goal": "active", "inspect": False, "service": ["firmware.update"],
            "firmware": firmware.wanted_firmware(SERVER, files, BASE), "expected": plain,
        }
    }  # fmt: skip


def kind(session: Serviced, served: Served = lambda url: "") -> BareMetalFirmware:
    return BareMetalFirmware(lambda: IronicApi(session, sleep=lambda seconds: None), served=served)


def brought(
    session: Serviced,
    states: t.Mapping[str, State | None] | None = None,
    served: Served = lambda url: "",
) -> Outcome:
    return bring(kind(session, served), states or wanted(), Consent(), lambda text: None)


def only(session: Serviced) -> dict[str, t.Any]:
    return next(iter(session.nodes.values()))


def test_the_bmc_comes_first_files_by_digest_and_a_second_run_does_nothing() -> None:
    session = ironic()
    first = brought(session)
    assert first.problems == []
    assert first.done[0] == (
        "bring its firmware to what is declared: bios 1.5.0 -> 1.6.7, bmc 24.01.01 -> 24.09.17"
    )
    settings = [
        {"component": "bmc", "url": f"{BASE}/{'b1' * 32}/bmc.fwpkg"},
        {"component": "bios", "url": f"{BASE}/{'a2' * 32}/dgx.bin"},
    ]
    step = {"interface": "firmware", "step": "update", "args": {"settings": settings}}
    assert session.steps == [[step]]
    again = brought(session)
    assert (again.done, again.problems, len(session.steps)) == ([], [], 1)


def test_only_what_differs_is_written() -> None:
    session = ironic({"bios": "1.6.7", "bmc": "24.01.01"})
    assert brought(session).problems == []
    assert [one["component"] for one in session.steps[0][0]["args"]["settings"]] == ["bmc"]


def test_a_bmc_that_refuses_is_named_with_its_slot_and_its_own_words_and_tried_again() -> None:
    session = ironic()
    session.ends = "refused"
    (problem,) = brought(session).problems
    assert problem.startswith(f"{SERVER.name}: rack-1 U1-8: its firmware was not updated, 'service failed'")
    assert "the image is not signed" in problem and "settings" not in problem
    session.ends = "well"
    again = brought(session)
    assert again.problems == []
    assert again.done[:2] == [
        "end its maintenance, which Ironic began for a service failure",
        "end servicing; its operating system goes on",
    ]
    assert only(session)["provision_state"] == "active" and not only(session)["maintenance"]


def test_a_server_that_still_runs_the_old_version_is_held_with_its_slot() -> None:
    session = ironic()
    session.ends = "kept"
    outcome = brought(session)
    assert "rack-1 U1-8: the update ended well, and bios 1.5.0 runs, 1.6.7 is declared" in outcome.problems[0]
    assert list(outcome.failed) == [SERVER.name]


def test_a_killed_run_is_gone_on_with_by_its_plan_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    session = ironic()
    session.ends = "later"
    (thing,) = compared(kind(session), wanted())
    # The run is killed when Ironic has begun.
    Begun(tmp_path).mark(thing)
    updates = t.cast("t.Any", thing.wanted)["firmware"]
    IronicApi(session).take(only(session)["uuid"], "service", firmware.service_steps(updates))
    assert only(session)["provision_state"] == "service wait"
    planned = [thing.as_dict()]
    outcome = bring_as_planned(kind(session), planned, False, Begun(tmp_path), lambda text: None)
    assert outcome.problems == []
    assert (len(session.steps), only(session)["provision_state"]) == (1, "active")


@pytest.mark.parametrize(
    ("node", "versions", "entries", "reason"),
    [
        ({"provision_state": "available"}, OLD, ENTRIES, "firmware is updated on servers that run"),
        ({"firmware_interface": "no-firmware"}, OLD, ENTRIES, "write firmware_interface: redfish"),
        ({}, OLD, ENTRIES[:1], "bmc 24.01.01 runs, 24.09.17 is declared, and no file has it"),
        ({}, {"bios": "1.5.0"}, ENTRIES, "Ironic has not read the version of its bmc"),
        ({"maintenance": True, "maintenance_reason": "fan"}, OLD, ENTRIES, "it is in maintenance: fan"),
        ({"provision_state": "service hold"}, OLD, ENTRIES, "it is 'service hold'"),
    ],
)
def test_what_cannot_be_brought_is_held_with_its_slot_and_nothing_is_asked(
    node: dict[str, t.Any], versions: dict[str, str], entries: list[dict[str, t.Any]], reason: str
) -> None:
    session = ironic(versions, **node)
    (problem,) = brought(session, wanted(entries)).problems
    assert f"{SERVER.name}: rack-1 U1-8: " in problem, problem
    assert reason in problem, problem
    assert not any(asked.startswith("PUT") for asked in session.asked)


def test_a_file_that_is_not_served_is_named_with_its_remedy_before_anything_is_done() -> None:
    """Each file is asked for once, and only those of firmware that does not run."""
    session, asked = ironic({**OLD, "bmc": dict(SERVER.firmware)["bmc"]}), []

    def served(url: str) -> str:
        asked.append(url)
        return "answers 404"

    (problem,) = brought(session, served=served).problems
    (address,) = asked
    bios = dict(SERVER.firmware)["bios"]
    assert f"rack-1 U1-8: the file for bios {bios} is not there, {address} answers 404; site.yml" in problem
    assert not any(asked.startswith("PUT") for asked in session.asked)
    asked.clear()
    done = ironic(dict(SERVER.firmware))
    assert (brought(done, served=served).problems, asked) == ([], [])


@pytest.mark.parametrize(
    ("answer", "said"),
    [(200, ""), (404, "answers 404"), (403, "answers 403"), (302, ""), (405, ""), (500, "")],
)
def test_only_an_answer_that_a_file_is_not_there_says_so(answer: int, said: str) -> None:
    asked: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append((self.command, self.path))
            self.send_response(answer)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: t.Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/images/aa/bios.bin"
        found = missing_files([url, "", url], asked_of())
        server.shutdown()
    assert found == ({url: said} if said else {})
    assert asked == [("HEAD", "/images/aa/bios.bin")]
    # Who cannot be reached from here may still be there for a BMC.
    assert missing_files([url], asked_of()) == {}


def test_a_server_that_ironic_does_not_know_is_named() -> None:
    session = Serviced()
    assert "Ironic does not know it" in brought(session).problems[0]


def test_another_baseline_takes_no_server_out_of_the_inventory() -> None:
    other = dataclasses.replace(SERVER, firmware=(("bios", "9"),))
    assert digest_of(other) == digest_of(SERVER)
    assert digest_of(dataclasses.replace(SERVER, serial="X")) != digest_of(SERVER)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"component": "gpu"}, "[0].component is 'gpu'; write bios or bmc"),
        ({"version": 1.6}, "[0].version is 1.6; write it in quotes"),
        ({"version": " "}, "[0].version is ' '"),
        ({"file": "../bios.bin"}, "[0].file is '../bios.bin'"),
        ({"file": "https://vendor.example/bios.bin"}, "[0].file is 'https://vendor.example/bios.bin'"),
        ({"file": "/bios.bin"}, "[0].file is '/bios.bin'"),
        ({"sha256": "A1" * 32}, "[0].sha256 is"),
        ({"size": True}, "[0].size is True"),
        ({"size": 0}, "[0].size is 0"),
        ({"model": 7}, "[0].model is 7"),
        ({"url": "http://x"}, "[0] has url; write component, version, file, sha256, size, model"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused(entry: dict[str, t.Any], said: str) -> None:
    with pytest.raises(RemoteError) as refusal:
        firmware.files_of([{**ENTRIES[0], **entry}])
    assert said in str(refusal.value)


def test_all_problems_come_at_once_and_two_files_for_the_same_are_one_too_many() -> None:
    with pytest.raises(RemoteError) as refusal:
        firmware.files_of([ENTRIES[0], {**ENTRIES[0], "version": "1.6.7 "[:-1]}, "bios", {}])
    said = str(refusal.value)
    for part in ("[1] is for the same servers as [0]", "[2] is 'bios'", "[3].component", "[3].size is None"):
        assert part in said, said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (f"{WRITTEN}not signed", "HTTP 400: not signed"),
        ("Firmware update failed for node u-1, firmware http://a/b.bin. Error: flash error", "flash error"),
        ("Timeout", "Timeout"),
        ("", ""),
    ],
)
def test_what_ironic_says_around_a_bmcs_words_is_left_out(error: str, said: str) -> None:
    assert firmware.own_words(error) == said


@pytest.mark.parametrize("extra", [None, [], {"ironspan_firmware": 7}, {"ironspan_firmware": {"at": "soon"}}])
def test_a_record_that_somebody_else_wrote_is_none(extra: t.Any) -> None:
    assert firmware.asked_at({"extra": extra}) == ""
    (fields,) = firmware.asked_fields([{"component": "bios", "version": "2"}]).values()
    assert firmware.asked_at({"extra": {firmware.RECORD: fields}}) == fields["at"]


def test_a_site_without_an_image_server_has_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "racks.csv").write_text(
        "name,bmc_address,rack,position,firmware_bios\ng1,192.0.2.1,a,1,2.0\n"
    )
    arguments = {"ironspan_expected": str(tmp_path / "racks.csv")}
    settings = {firmware.FILES: [{**ENTRIES[0], "version": "2.0"}]}
    with pytest.raises(RemoteError, match="nobody serves the files"):
        bare_metal_firmware.declared(settings, arguments)
    found = bare_metal_firmware.declared({**settings, firmware.URL: "https://10.0.0.1/fw/"}, arguments)
    (update,) = t.cast(t.Any, found["g1"])["firmware"]
    assert update["url"] == f"https://10.0.0.1/fw/{'a1' * 32}/bios.bin"
