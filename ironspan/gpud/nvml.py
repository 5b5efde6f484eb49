# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked of NVML, and how answers are written as JSON. Only the worker's process uses this.

A value that a card does not have is None. An error is ``{"error": CODE}``: the checks decide what it means.
"""

from __future__ import annotations

import ctypes
import time
import typing as t
from collections.abc import Callable, Iterable

import pynvml

from ironspan.gpud.processes import serves

Value = t.Any
Call = Callable[[t.Any], Value]
RARE_S, ONCE_S, SLOW_S = 3600.0, 300.0, 30.0
"""Seconds between readings: of what is dear, of what a boot or a driver changes, of what changes slowly."""
LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN)
_MISSING = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_NOT_FOUND,
)
RECOVERY_ACTION = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
FIELDS = {
    "recovery_action": RECOVERY_ACTION,
    "memory_temperature": pynvml.NVML_FI_DEV_MEMORY_TEMP,
}
LINK_FIELDS = {
    "nvlink_count": pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,
    "nvlink_crc_flit": pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    "nvlink_crc_data": pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    "nvlink_replay": pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    "nvlink_recovery": pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    "nvlink_tx_kib": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    "nvlink_rx_kib": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
}
_UNIONS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_FABRIC = ("state", "status", "healthMask", "healthSummary")
_SRAM = ("aggregateUncParity", "aggregateUncSecDed", "volatileUncParity", "volatileUncSecDed")
_COUNTERS = ("volatile", "aggregate")


def _fields(wanted: t.Mapping[str, int]) -> Call:
    """Return what reads several fields in one call."""
    names, ids = list(wanted), list(wanted.values())

    def read(gpu: t.Any) -> Value:
        found = pynvml.nvmlDeviceGetFieldValues(gpu, ids)
        return {
            name: getattr(value.value, _UNIONS[value.valueType]) if value.nvmlReturn == 0 else None
            for name, value in zip(names, found, strict=True)
        }

    return read


def _fabric(gpu: t.Any) -> Value:
    found = pynvml.c_nvmlGpuFabricInfo_v3_t()
    try:
        pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(found))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            raise
        # Drivers before 570 know version 2, which has no summary.
        found = pynvml.c_nvmlGpuFabricInfo_v2_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(found))
    return {name: getattr(found, name, 0) for name in _FABRIC}


def _sram(gpu: t.Any) -> Value:
    found = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(found))
    return {**{name: getattr(found, name) for name in _SRAM}, "exceeded": found.bThresholdExceeded}


def _histogram(gpu: t.Any) -> Value:
    found = pynvml.nvmlDeviceGetRowRemapperHistogram(gpu)
    return [getattr(found, name) for name in ("max", "high", "partial", "low", "none")]


def _ecc(kind: int) -> Call:
    return lambda gpu: [pynvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter) for counter in (0, 1)]


def _memory(gpu: t.Any) -> Value:
    found = pynvml.nvmlDeviceGetMemoryInfo(gpu)
    return [found.total >> 20, found.used >> 20]


def _utilization(gpu: t.Any) -> Value:
    found = pynvml.nvmlDeviceGetUtilizationRates(gpu)
    return [found.gpu, found.memory]


def _processes(gpu: t.Any) -> Value:
    return [list(each) for each in computing(gpu).items()]


def computing(gpu: t.Any) -> dict[int, int]:
    """Return the processes that compute on a GPU, clients of MPS among them: MiB of its memory by number.

    Args:
        gpu: handle of NVML.

    Raises:
        pynvml.NVMLError: it does not say. A driver that does not tell clients of MPS apart names no more.
    """
    found = list(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))
    try:
        found += pynvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu)
    except pynvml.NVMLError as error:
        if error.value not in _MISSING:
            raise
    return {each.pid: (each.usedGpuMemory or 0) >> 20 for each in found if not serves(each.pid)}


def _links(gpu: t.Any) -> Value:
    """Return whether each link is up, as far as there are links."""
    found: list[int] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            found.append(pynvml.nvmlDeviceGetNvLinkState(gpu, link))
        except pynvml.NVMLError as error:
            if error.value in _MISSING:
                break
            raise
    return found or None


def _retired(gpu: t.Any) -> Value:
    return [len(pynvml.nvmlDeviceGetRetiredPages(gpu, cause)) for cause in (0, 1)]


def _gsp(gpu: t.Any) -> Value:
    # The one text that the binding leaves as bytes.
    return bytes(pynvml.nvmlDeviceGetGspFirmwareVersion(gpu)).decode("ascii", "replace")


def _inforom(gpu: t.Any) -> Value:
    pynvml.nvmlDeviceValidateInforom(gpu)
    return True


def _asks(name: str, *arguments: Value) -> Call:
    function = getattr(pynvml, name)
    return lambda gpu: function(gpu, *arguments)


def _both(name: str) -> Call:
    function = getattr(pynvml, name)
    return lambda gpu: list(function(gpu))


ONCE: dict[str, Call] = {
    "uuid": _asks("nvmlDeviceGetUUID"),
    "name": _asks("nvmlDeviceGetName"),
    "serial": _asks("nvmlDeviceGetSerial"),
    "pci": lambda gpu: pynvml.nvmlDeviceGetPciInfo(gpu).busId.lower(),
    "minor": _asks("nvmlDeviceGetMinorNumber"),
    "vbios": _asks("nvmlDeviceGetVbiosVersion"),
    "inforom": _asks("nvmlDeviceGetInforomImageVersion"),
    "gsp": _gsp,
    "part_number": _asks("nvmlDeviceGetBoardPartNumber"),
    "compute": _both("nvmlDeviceGetCudaComputeCapability"),
    "max_clock_sm": _asks("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
    "power_limit": _asks("nvmlDeviceGetEnforcedPowerLimit"),
    "pcie_max_generation": _asks("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_max_width": _asks("nvmlDeviceGetMaxPcieLinkWidth"),
    "persistence": _asks("nvmlDeviceGetPersistenceMode"),
    "compute_mode": _asks("nvmlDeviceGetComputeMode"),
    "mig": _both("nvmlDeviceGetMigMode"),
    "ecc_mode": _both("nvmlDeviceGetEccMode"),
}
RARE: dict[str, Call] = {
    # 70 ms of a processor for each GPU (H200, driver 580.159.04); all others together take 10 ms.
    "inforom_valid": _inforom,
}
SLOW: dict[str, Call] = {
    "temperature": _asks("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
    "margin": _asks("nvmlDeviceGetMarginTemperature"),
    "memory": _memory,
    "utilization": _utilization,
    "power": _asks("nvmlDeviceGetPowerUsage"),
    "energy": _asks("nvmlDeviceGetTotalEnergyConsumption"),
    "clock_sm": _asks("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
    "clock_memory": _asks("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
    "pstate": _asks("nvmlDeviceGetPerformanceState"),
    "pcie_generation": _asks("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie_width": _asks("nvmlDeviceGetCurrPcieLinkWidth"),
    "pcie_replays": _asks("nvmlDeviceGetPcieReplayCounter"),
    "ecc_corrected": _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "sram": _sram,
    "row_histogram": _histogram,
    "retired_pages": _retired,
    "processes": _processes,
    "links": _links,
    "link_fields": _fields(LINK_FIELDS),
    "fabric": _fabric,
}
FAST: dict[str, Call] = {
    "fields": _fields(FIELDS),
    "remapped": _both("nvmlDeviceGetRemappedRows"),
    "ecc_uncorrected": _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "throttle": _asks("nvmlDeviceGetCurrentClocksThrottleReasons"),
}
SYSTEM: t.Mapping[str, Callable[[], Value]] = {
    "driver": pynvml.nvmlSystemGetDriverVersion,
    "nvml": pynvml.nvmlSystemGetNVMLVersion,
    "cuda": pynvml.nvmlSystemGetCudaDriverVersion,
}


class Reader:
    """Reads all GPUs, each part as often as it changes.

    Args:
        before: called before each call with its name and the GPU's index (-1 for none), so that a call that
            never returns is known.
        clock: seconds, never set back.
    """

    def __init__(
        self, before: Callable[[str, int], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._before, self._clock = before, clock
        self.handles: list[t.Any] = []
        self.known: list[dict[str, Value]] = []
        self._system: dict[str, Value] = {}
        self._missing: set[tuple[int, str]] = set()
        self._read_at = {"rare": -RARE_S, "once": -ONCE_S, "slow": -SLOW_S}

    def open(self) -> None:
        """Start NVML and find the GPUs.

        Raises:
            pynvml.NVMLError: it does not start.
        """
        self._before("nvmlInit", -1)
        pynvml.nvmlInit()
        self._missing.clear()
        self._system = {}
        for name, call in SYSTEM.items():
            self._before(name, -1)
            self._system[name] = call()
        self.handles, self.known = [], []
        for index in range(pynvml.nvmlDeviceGetCount()):
            self._before("handle", index)
            try:
                self.handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
                self.known.append({"index": index})
            except pynvml.NVMLError as error:
                self.handles.append(None)
                self.known.append({"index": index, "lost": error.value})
        self._read_at = {"rare": -RARE_S, "once": -ONCE_S, "slow": -SLOW_S}

    def read(self, everything: bool = False) -> dict[str, Value]:
        """Return what is known now: ``system``, ``gpus``, and ``slow`` where the slow values are new."""
        now, due = self._clock(), [FAST]
        parts = (("slow", SLOW_S, SLOW), ("rare", RARE_S, RARE), ("once", ONCE_S, ONCE))
        for name, seconds, calls in parts:
            if everything or now - self._read_at[name] >= seconds:
                self._read_at[name] = now
                due.insert(0, calls)
        for index, handle in enumerate(self.handles):
            self._gpu(index, handle, due)
        return {"system": self._system, "gpus": self.known, "slow": SLOW in due}

    def _gpu(self, index: int, handle: t.Any, due: Iterable[t.Mapping[str, Call]]) -> None:
        known = self.known[index]
        if handle is None:
            return
        known.pop("lost", None)
        for calls in due:
            for name, call in calls.items():
                if (index, name) in self._missing:
                    continue
                self._before(name, index)
                try:
                    known[name] = call(handle)
                except pynvml.NVMLError as error:
                    if error.value in _MISSING:
                        self._missing.add((index, name))
                        known[name] = None
                    elif error.value in LOST:
                        known["lost"] = error.value
                        return
                    else:
                        known[name] = {"error": error.value}
