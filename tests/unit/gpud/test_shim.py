# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The library that stands in for NVML, asked through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from tests.support import nvml

STRUCTURES = {
    "pci_info": pynvml.nvmlPciInfo_t,
    "memory_info": pynvml.c_nvmlMemory_t,
    "memory_info_v2": pynvml.c_nvmlMemory_v2_t,
    "utilization": pynvml.c_nvmlUtilization_t,
    "temperature_v1": pynvml.c_nvmlTemperature_v1_t,
    "margin_v1": pynvml.c_nvmlMarginTemperature_v1_t,
    "row_histogram": pynvml.c_nvmlRowRemapperHistogramValues,
    "process_v2": pynvml.c_nvmlProcessInfo_v2_t,
    "repair_status": pynvml.c_nvmlRepairStatus_t,
    "versioned_value": pynvml.c_nvmlDeviceAddressingMode_t,
    "sram_status": pynvml.c_nvmlEccSramErrorStatus_v1_t,
    "field_value": pynvml.c_nvmlFieldValue_t,
    "fabric_info": pynvml.c_nvmlGpuFabricInfo_t,
    "fabric_info_v": pynvml.c_nvmlGpuFabricInfo_v3_t,
    "event_data": pynvml.c_nvmlEventData_t,
}


def refused(call: Callable[..., object], *arguments: object) -> int:
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*arguments)
    return int(caught.value.value)


@pytest.mark.parametrize("ours", STRUCTURES)
def test_structures_are_as_large_as_those_of_the_binding(library: Path, ours: str) -> None:
    size = ctypes.CDLL(str(library)).ironspan_size_of
    size.restype = ctypes.c_size_t
    assert size(ours.encode()) == ctypes.sizeof(STRUCTURES[ours])


@pytest.mark.parametrize("profile", nvml.PROFILES)
def test_a_profile_answers_what_the_card_has(profile: str, state: nvml.State, tmp_path: Path) -> None:
    nvml.State(tmp_path / "gpus", profile, gpus=4)
    assert pynvml.nvmlDeviceGetCount() == 4
    gpu = pynvml.nvmlDeviceGetHandleByIndex(2)
    assert profile.upper() in pynvml.nvmlDeviceGetName(gpu)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    assert (major, minor) == {"a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "b200": (10, 0)}[profile]
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu).total >> 30 > 70
    assert [pynvml.nvmlDeviceGetNvLinkState(gpu, link) for link in range(12)] == [1] * 12
    assert pynvml.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    assert list(pynvml.nvmlDeviceGetEccMode(gpu)) == [1, 1]
    if profile == "a100":
        assert refused(pynvml.nvmlDeviceGetNvLinkState, gpu, 12) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_a_gpu_is_found_by_each_of_its_names(state: nvml.State) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByUUID(state.uuid(3))
    assert pynvml.nvmlDeviceGetIndex(gpu) == 3
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(state.pci(5))) == 5
    assert pynvml.nvmlDeviceGetPciInfo(gpu).busId == "00000000:3F:00.0"
    assert pynvml.nvmlDeviceGetMinorNumber(gpu) == 3
    assert refused(pynvml.nvmlDeviceGetHandleByUUID, "GPU-none") == pynvml.NVML_ERROR_NOT_FOUND
    assert refused(pynvml.nvmlDeviceGetHandleByIndex, 8) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_structures_with_a_version(state: nvml.State) -> None:
    state.set({"1.sram": "0 0 0 1 2 3 4 5 6 7 8 1", "1.margin": "-3", "1.fabric": "2 0 0x55 2"})
    gpu = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert pynvml.nvmlDeviceGetMarginTemperature(gpu) == -3
    sram = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(sram))
    assert (sram.volatileUncParity, sram.aggregateUncBucketOther, sram.bThresholdExceeded) == (1, 8, 1)
    fabric = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(fabric))
    assert (fabric.state, fabric.healthMask, fabric.healthSummary) == (2, 0x55, 2)
    fabric.version = 0x0900_0000
    mismatch = refused(pynvml.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(fabric))
    assert mismatch == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_fields_have_types_and_scopes(state: nvml.State) -> None:
    state.set(
        {"0.field.230": 2, "0.field.165.3": 1, "0.field.138": "5000000000 ull", "0.field.1": "1.5 double"}
    )
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    values = pynvml.nvmlDeviceGetFieldValues(gpu, [230, (165, 3), (165, 4), 138, 1])
    assert [value.nvmlReturn for value in values] == [0, 0, 3, 0, 0]
    assert (values[0].value.uiVal, values[1].value.uiVal) == (2, 1)
    assert (values[3].valueType, values[3].value.ullVal) == (3, 5_000_000_000)
    assert (values[4].valueType, values[4].value.dVal) == (0, 1.5)


def test_processes_and_retired_pages_are_lists(state: nvml.State) -> None:
    state.set({"0.processes": "41:100 42:2000", "0.retired_pages.1": 3})
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert [(process.pid, process.usedGpuMemory >> 20) for process in found] == [(41, 100), (42, 2000)]
    assert len(pynvml.nvmlDeviceGetRetiredPages(gpu, 1)) == 3
    assert refused(pynvml.nvmlDeviceGetRetiredPages, gpu, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(1)) == []
    state.set({"0.mps_processes": "43:10"})
    assert [process.pid for process in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu)] == [43]


def test_faults_come_and_go_while_it_runs(state: nvml.State) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(3)
    state.set({"3.fail": pynvml.NVML_ERROR_GPU_IS_LOST, "fail.nvmlDeviceGetSerial": 999})
    assert refused(pynvml.nvmlDeviceGetUUID, gpu) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert refused(pynvml.nvmlDeviceGetHandleByIndex, 3) == pynvml.NVML_ERROR_GPU_IS_LOST
    other = pynvml.nvmlDeviceGetHandleByIndex(2)
    assert pynvml.nvmlDeviceGetUUID(other) == state.uuid(2)
    assert refused(pynvml.nvmlDeviceGetSerial, other) == pynvml.NVML_ERROR_UNKNOWN
    state.reset()
    assert pynvml.nvmlDeviceGetUUID(gpu) == state.uuid(3)
    state.path.unlink()
    assert refused(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_function_that_the_shim_does_not_know_is_not_supported(state: nvml.State) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert refused(pynvml.nvmlDeviceGetVgpuHeterogeneousMode, gpu) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_events_come_through_sets_that_asked_for_them(state: nvml.State) -> None:
    state.xid(3, 13)
    events = pynvml.nvmlEventSetCreate()
    for index in range(4):
        pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(index), nvml.XID, events)
    assert refused(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT
    state.xid(5, 31)  # of a GPU that is not registered
    state.event(3, nvml.RECOVERY_ACTION, 1)  # of a type that is not
    state.xid(3, 79)
    state.xid(2, 48)
    for index, code in ((3, 79), (2, 48)):
        event = pynvml.nvmlEventSetWait_v2(events, 1000)
        assert (event.eventType, event.eventData) == (nvml.XID, code)
        assert pynvml.nvmlDeviceGetUUID(event.device) == state.uuid(index)
    assert refused(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT
    state.set({"1.fail": pynvml.NVML_ERROR_GPU_IS_LOST})
    assert refused(pynvml.nvmlEventSetWait_v2, events, 1000) == pynvml.NVML_ERROR_GPU_IS_LOST
    pynvml.nvmlEventSetFree(events)


def test_a_call_that_hangs_returns_when_it_is_let_go(state: nvml.State, library: Path) -> None:
    state.set({"hang.nvmlDeviceGetTemperature": 1})
    script = (
        "import pynvml as n; n.nvmlInit(); g = n.nvmlDeviceGetHandleByIndex(0); print('asks', flush=True);"
        "print(n.nvmlDeviceGetTemperature(g, 0))"
    )
    environment = {**os.environ, **state.environment, "LD_LIBRARY_PATH": str(library.parent)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as asker:
        try:
            assert asker.stdout is not None
            assert asker.stdout.readline() == b"asks\n"
            time.sleep(0.2)
            assert asker.poll() is None
            state.reset()
            assert asker.communicate(timeout=120)[0] == b"33\n"
        finally:
            asker.kill()
