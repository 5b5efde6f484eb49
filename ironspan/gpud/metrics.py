# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The GPUs as Prometheus reads them: made from the last reading when it asks."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Policy
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ironspan.gpud import events
from ironspan.gpud.agent import Agent
from ironspan.gpud.checks.base import Gpu
from ironspan.gpud.pods import Pods

LABELS = ("gpu", "uuid", "model", "namespace", "pod", "container")
Value = Callable[[Gpu], float | None]


def _value(name: str, factor: float = 1.0, at: int | None = None) -> Value:
    def value(gpu: Gpu) -> float | None:
        found = gpu.get(name)
        if found is not None and at is not None:
            found = found[at]
        return None if found is None else float(found) * factor

    return value


def _part(name: str, key: str, factor: float = 1.0) -> Value:
    def value(gpu: Gpu) -> float | None:
        found = gpu.part(name, key)
        return None if found is None else float(found) * factor

    return value


def _links(up: bool) -> Value:
    def value(gpu: Gpu) -> float | None:
        links = gpu.get("links")
        return None if links is None else float(sum(links) if up else len(links))

    return value


MIB = float(1 << 20)
GAUGES: t.Mapping[str, tuple[str, Value]] = {
    "utilization_ratio": ("Share of time in which a kernel ran.", _value("utilization", 0.01, 0)),
    "memory_utilization_ratio": (
        "Share of time in which memory was read or written.",
        _value("utilization", 0.01, 1),
    ),
    "memory_total_bytes": ("Memory of the GPU.", _value("memory", MIB, 0)),
    "memory_used_bytes": ("Memory that is used.", _value("memory", MIB, 1)),
    "temperature_celsius": ("Temperature of the GPU.", _value("temperature")),
    "memory_temperature_celsius": ("Temperature of its memory.", _part("fields", "memory_temperature")),
    "temperature_margin_celsius": ("Degrees left before the GPU slows itself down.", _value("margin")),
    "power_watts": ("Power that it draws.", _value("power", 0.001)),
    "power_limit_watts": ("Power that it may draw.", _value("power_limit", 0.001)),
    "clock_sm_hertz": ("Clock of its processors.", _value("clock_sm", 1e6)),
    "clock_memory_hertz": ("Clock of its memory.", _value("clock_memory", 1e6)),
    "pcie_generation": ("Generation of PCIe that its link has now.", _value("pcie_generation")),
    "pcie_width_lanes": ("Lanes of PCIe that its link has now.", _value("pcie_width")),
    "nvlinks": ("NVLinks that it has.", _links(False)),
    "nvlinks_up": ("NVLinks that are up.", _links(True)),
    "remapped_rows_pending": ("1 while a row is replaced with the next reset.", _value("remapped", at=2)),
    "remapped_rows_failed": ("1 when a row could not be replaced.", _value("remapped", at=3)),
    "recovery_action": (
        "What the driver says it needs (NVML field 230), 0 for nothing.",
        _part("fields", "recovery_action"),
    ),
}
COUNTERS: t.Mapping[str, tuple[str, Value]] = {
    "energy_joules": ("Energy since the driver was loaded.", _value("energy", 0.001)),
    "ecc_corrected": (
        "Errors that ECC corrected since the driver was loaded.",
        _value("ecc_corrected", at=0),
    ),
    "ecc_uncorrected": ("Errors that it did not correct.", _value("ecc_uncorrected", at=0)),
    "ecc_uncorrected_lifetime": ("The same since the card was made.", _value("ecc_uncorrected", at=1)),
    "remapped_rows_corrected": ("Rows replaced for errors that were corrected.", _value("remapped", at=0)),
    "remapped_rows_uncorrected": ("Rows replaced for errors that were not.", _value("remapped", at=1)),
    "pcie_replays": ("Packets that PCIe sent again.", _value("pcie_replays")),
    "nvlink_crc_errors": ("CRC errors of its NVLinks.", _part("link_fields", "nvlink_crc_flit")),
    "nvlink_replays": ("Packets that NVLink sent again.", _part("link_fields", "nvlink_replay")),
    "nvlink_recoveries": ("Times that a NVLink had to recover.", _part("link_fields", "nvlink_recovery")),
    "nvlink_sent_bytes": ("Data sent over NVLink.", _part("link_fields", "nvlink_tx_kib", 1024)),
    "nvlink_received_bytes": ("Data received over NVLink.", _part("link_fields", "nvlink_rx_kib", 1024)),
}
THROTTLE: t.Mapping[int, str] = {
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}


class Exported(Collector):
    """What Prometheus gets of the GPUs.

    Args:
        prefix: of all names.
        agent: has the last reading and the events.
        pods: knows who has which GPU.
        policy: has the classes of events.
    """

    def __init__(self, prefix: str, agent: Agent, pods: Pods, policy: Policy) -> None:
        self._prefix, self._agent, self._pods, self._policy = prefix, agent, pods, policy

    def describe(self) -> list[Metric]:
        """Return nothing: what there is depends on the cards."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as they are now."""
        gpus = [Gpu(values) for values in self._agent.reading.get("gpus", ())]
        labels = {gpu.uuid: self._labels(gpu) for gpu in gpus}
        there = [gpu for gpu in gpus if not gpu.lost]
        for name, (text, value) in GAUGES.items():
            gauge = GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=LABELS)
            yield from self._filled(gauge, there, labels, value)
        for name, (text, value) in COUNTERS.items():
            counter = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=LABELS)
            yield from self._filled(counter, there, labels, value)
        throttle = GaugeMetricFamily(
            f"{self._prefix}_throttled",
            "1 while clocks are lowered, by the reason.",
            labels=("gpu", "uuid", "reason"),
        )
        for gpu in there:
            reasons = gpu.get("throttle")
            for bit, reason in THROTTLE.items() if reasons is not None else ():
                throttle.add_metric([str(gpu.index), gpu.uuid, reason], float(bool(reasons & bit)))
        yield throttle
        lost = GaugeMetricFamily(
            f"{self._prefix}_lost", "1 while the GPU does not answer.", labels=("gpu", "uuid")
        )
        for gpu in gpus:
            lost.add_metric([str(gpu.index), gpu.uuid], float(bool(gpu.lost)))
        yield lost
        yield from self._events()

    def _events(self) -> Iterator[Metric]:
        happened = CounterMetricFamily(
            f"{self._prefix}_events",
            "Events since the boot, by the policy's key and class.",
            labels=("event", "class", "uuid"),
        )
        for record in self._agent.store.content.records.values():
            name = events.action(record.event, self._policy)
            happened.add_metric([record.event, name, record.gpu], float(record.count))
        yield happened
        status = self._agent.judged().status
        healthy = GaugeMetricFamily(
            f"{self._prefix}_healthy", "1 while the condition GPUHealthy is True, 0 while False."
        )
        if status != "Unknown":
            healthy.add_metric([], float(status == "True"))
        yield healthy

    def _filled(
        self, family: t.Any, gpus: list[Gpu], labels: dict[str, list[str]], value: Value
    ) -> Iterator[Metric]:
        for gpu in gpus:
            found = value(gpu)
            if found is not None:
                family.add_metric(labels[gpu.uuid], found)
        if family.samples:
            yield family

    def _labels(self, gpu: Gpu) -> list[str]:
        """Return a GPU's labels. One that several containers share has the first one's."""
        owner = next(iter(self._pods.of(gpu.uuid)), ("", "", ""))
        return [str(gpu.index), gpu.uuid, str(gpu.get("name") or ""), *owner]
