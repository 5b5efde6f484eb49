# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the checks find, on GPUs that answer as real ones would."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Event, shipped

from ironspan.gpud import nvml as reads
from ironspan.gpud.agent import run_checks
from ironspan.gpud.checks import table
from ironspan.gpud.checks.base import Context, Expected, Finding, Gpu, Past
from ironspan.gpud.settings import READINGS, Settings
from tests.support import nvml

HOST: Mapping[str, t.Any] = {
    "module": "580.95.05",
    "switches": 4,
    "services": ["nvidia-fabricmanager"],
    "cdi": None,
}


class Looking:
    """Reads and checks again and again, with a clock of its own."""

    def __init__(self, expected: Expected | None = None, chosen: Settings | None = None) -> None:
        self.now = 1000.0
        self.past, self.expected = Past(), expected or Expected(count=8, model="H100")
        self.host: dict[str, t.Any] = dict(HOST)
        self.seen: frozenset[str] = frozenset()
        self.used: frozenset[str] | None = None
        self.chosen = chosen or Settings()
        self.reader = reads.Reader(lambda name, gpu: None, lambda: self.now)
        self.reader.open()

    def look(self, seconds: float = 2.0) -> list[tuple[str, Finding]]:
        """Return what is found after some seconds."""
        self.now += seconds
        found = self.reader.read(everything=seconds >= reads.SLOW_S)
        gpus = [Gpu(values) for values in found["gpus"]]
        context = Context(
            gpus,
            found["system"],
            self.host,
            self.expected,
            self.seen,
            self.past,
            self.now,
            found["slow"],
            self.used,
        )
        return run_checks(self.chosen, context)


def keys(found: Sequence[tuple[str, Finding]]) -> list[str]:
    return sorted({f"{check} {finding.event}" for check, finding in found})


@pytest.mark.parametrize("profile", nvml.PROFILES)
def test_cards_that_are_well_have_no_finding(profile: str, state: nvml.State) -> None:
    nvml.State(state.path, profile)
    looking = Looking(Expected(count=8, model=profile))
    for _ in range(3):
        assert looking.look(60) == []


AT_ONCE: list[tuple[dict[str, object], str]] = [
    ({"gpus": 7}, "H01 nvml gpu_missing"),
    ({"2.name": "NVIDIA A100-SXM4-80GB"}, "H01 nvml versions_differ"),
    ({"2.fail": 15}, "H02 nvml gpu_lost"),
    ({"2.fail": 999}, "H02 nvml gpu_lost"),
    ({"2.fail.nvmlDeviceGetTemperature": 16}, "H02 nvml recovery_reset"),
    ({"2.inforom_error": 14}, "H02 nvml inforom_corrupt"),
    ({"2.gsp": "570.1.1"}, "H03 nvml versions_differ"),
    ({"2.vbios": "96.00.00.00.00"}, "H03 nvml versions_differ"),
    ({"2.ecc_count.1.0": 1}, "H05 nvml ecc_uncorrected"),
    ({"2.sram": "0 0 0 0 0 0 0 0 0 0 0 1"}, "H06 nvml sram_threshold"),
    ({"2.remapped": "0 1 1 0"}, "H08 nvml remap_pending"),
    ({"2.remapped": "0 1 0 1"}, "H08 nvml remap_failure"),
    ({"2.remapped": "0 512 0 0"}, "H08 nvml remap_limit"),
    ({"2.retired_pages.0": 60, "2.retired_pages.1": 3}, "H09 nvml retired_pages_limit"),
    ({"2.field.230": 1}, "H10 nvml recovery_reset"),
    ({"2.field.230": 2}, "H10 nvml recovery_reboot"),
    ({"2.field.230": 3}, "H10 nvml recovery_drain_p2p"),
    ({"2.field.230": 4}, "H10 nvml recovery_drain_and_reset"),
    ({"2.field.230": 5}, "H10 nvml recovery_recover_imex"),
    ({"2.field.230": 99}, "H10 nvml recovery_reboot"),
    ({"2.margin": 0}, "H12 nvml temperature_margin"),
    ({"2.pcie_width": 8}, "H13 nvml pcie_width"),
    ({"2.pcie_generation": 1, "2.utilization": "90 50"}, "H13 nvml pcie_generation"),
    ({"2.nvlink.7": 0}, "H15 nvml nvlink_inactive"),
    ({"2.fabric": "2 0 0 0"}, "H16 nvml fabric_incomplete"),
    ({"2.fabric": "3 0 0x2a16 2"}, "H16 nvml fabric_incomplete"),
    ({"2.persistence": 0}, "H17 nvml persistence_off"),
    ({"2.compute_mode": 3}, "H17 nvml compute_mode_differs"),
    ({"2.mig": "1 1"}, "H17 nvml mig_differs"),
    ({"2.ecc": "0 0"}, "H17 nvml ecc_off"),
]


@pytest.mark.parametrize(("changes", "expected"), AT_ONCE, ids=lambda value: str(value))
def test_a_fault_is_found_at_once_and_its_end_too(
    changes: dict[str, object], expected: str, state: nvml.State
) -> None:
    looking = Looking()
    looking.look(60)
    state.set(changes)
    found = looking.look(60)
    # How many there are, and whether a card has retired pages, is asked for when NVML starts.
    if "gpus" in changes or "2.retired_pages.0" in changes:
        looking.reader.open()
        found = looking.look(60)
    assert keys(found) == [expected]
    assert {finding.gpu for _, finding in found} == ({""} if "gpus" in changes else {state.uuid(2)})
    state.reset()
    looking.reader.open()
    assert looking.look(60) == []


HARMLESS: list[dict[str, object]] = [
    {"clocks_reasons": "0x5"},  # idle, and the power cap
    {"pcie_generation": 1},  # an idle link
    {"remapped": "3 511 0 0"},
    {"2.ecc_count.0.0": 5_000_000, "2.ecc_count.1.1": 7},  # of before
    {f"nvlink.{number}": 0 for number in range(18)},  # none at all, as in a virtual machine
    {"fabric": "1 0 0 0", "gpus": 8},
    {"margin": "unsupported", "persistence": "unsupported", "mig": "unsupported", "sram": "unsupported"},
]


@pytest.mark.parametrize("changes", HARMLESS, ids=str)
def test_what_is_no_fault(changes: dict[str, object], state: nvml.State) -> None:
    state.set(changes)
    looking = Looking()
    looking.host |= {"switches": 0, "services": []}
    assert [finding for _ in range(4) for finding in looking.look(60)] == []


def test_a_brake_is_a_fault_when_it_lasts(state: nvml.State) -> None:
    looking = Looking()
    state.set({"3.clocks_reasons": 0x48})
    for _ in range(29):
        assert looking.look() == []
    # The slowdown's own bit comes with its cause, which alone is named.
    assert keys(looking.look()) == ["H11 nvml hw_thermal"]
    state.reset()
    for _ in range(25):
        looking.look()
    assert looking.look() == []
    state.set({"3.clocks_reasons": 0x8})
    for _ in range(300):
        found = looking.look()
    assert keys(found) == ["H11 nvml hw_slowdown"]


def test_counters_count_by_their_growth(state: nvml.State) -> None:
    state.set({"1.pcie_replays": 100_000, "1.ecc_count.0.0": 100_000, "1.field.38": "100000 ull"})
    looking = Looking()
    for number in range(1, 6):
        assert looking.look(60) == []
        # 29 a minute on 16 lanes of generation 5, where 30.7 are allowed
        state.set({"1.pcie_replays": 100_000 + 29 * number})
    for number in range(1, 6):
        state.set({"1.pcie_replays": 101_000 + 40 * number, "1.ecc_count.0.0": 100_000 + 500 * number})
        found = looking.look(60)
    assert keys(found) == ["H07 nvml ecc_corrected_rate", "H14 nvml pcie_replay_rate"]
    state.set({"1.pcie_replays": 3, "1.ecc_count.0.0": 0})  # the driver was loaded again
    assert looking.look(60) == []
    state.set({"1.field.38": "112000 ull"})
    assert keys(looking.look(60)) == ["H15 nvml nvlink_errors"]


def test_links_that_were_up_are_missed(state: nvml.State) -> None:
    looking = Looking()
    assert looking.look(60) == []
    state.set({f"4.nvlink.{number}": 0 for number in range(18)})
    assert keys(looking.look(60)) == ["H15 nvml nvlink_inactive"]
    wanted = Looking(Expected(links=18))
    assert keys(wanted.look(60)) == ["H15 nvml nvlink_inactive"]


def test_the_host_s_own_files(state: nvml.State) -> None:
    looking = Looking(Expected(driver="580.95.05"))
    looking.host |= {"module": "570.1.1"}
    assert keys(looking.look(60)) == ["H03 nvml versions_differ"]
    looking.host |= {"module": "580.95.05", "cdi": {"drivers": ["570.1.1"], "nodes": []}, "missing": []}
    assert keys(looking.look(60)) == ["H21 nvml cdi_stale"]
    looking.host |= {
        "cdi": {"drivers": ["580.95.05"], "nodes": ["/dev/nvidia9"]},
        "missing": ["/dev/nvidia9"],
    }
    assert keys(looking.look(60)) == ["H21 nvml cdi_stale"]
    looking.host |= {"cdi": None, "missing": [], "switches": 0}
    state.set({"fabric": "unsupported"})
    looking.reader.open()
    assert keys(looking.look(60)) == ["H16 nvml fabric_manager_without_fabric"]


def test_processes_on_a_gpu_that_no_pod_has(state: nvml.State) -> None:
    state.set({"1.processes": "41:200", "2.processes": "42:3", "3.processes": "43:900"})
    looking = Looking()
    assert looking.look(60) == []  # nobody knows which pod has what
    looking.used = frozenset({state.uuid(3)})
    ((check, finding),) = looking.look(60)
    assert (check, finding.event, finding.gpu) == ("H18", "nvml stray_processes", state.uuid(1))


def test_a_gpu_that_was_there_since_the_boot(state: nvml.State) -> None:
    looking = Looking(Expected())
    looking.seen = frozenset({state.uuid(0), "GPU-gone"})
    ((_, finding),) = looking.look()
    assert (finding.event, finding.gpu) == ("nvml gpu_missing", "GPU-gone")


def test_each_check_can_be_switched_off_and_has_limits_of_the_site(state: nvml.State) -> None:
    state.set({"2.remapped": "0 100 1 0", "2.margin": 3})
    looking = Looking()
    assert keys(looking.look(60)) == ["H08 nvml remap_pending"]
    limits = {**looking.chosen.limits, "H08": {"rows": 100}, "H12": {"degrees": 5}}
    looking.chosen = replace(looking.chosen, limits=limits)
    assert keys(looking.look(60)) == [
        "H08 nvml remap_limit", "H08 nvml remap_pending", "H12 nvml temperature_margin"
    ]  # fmt: skip
    looking.chosen = replace(looking.chosen, off=frozenset({"H08"}))
    assert keys(looking.look(60)) == ["H12 nvml temperature_margin"]


def test_every_event_is_one_of_the_policy_s() -> None:
    rules = shipped().rules
    for check in table():
        for event in check.events:
            assert Event(*event.split(" ", 1)) in rules, (check.name, event)
    tried = {expected.split(" ", 1)[1] for _, expected in AT_ONCE}
    told = {event for check in table() for event in check.events}
    assert tried <= told


def test_the_names_of_readings_are_those_that_are_made() -> None:
    assert set(READINGS) == {*reads.RARE, *reads.ONCE, *reads.SLOW, *reads.FAST}
