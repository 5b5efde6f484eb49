# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs that are none, for the tests of the agent."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.support import nvml


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the shim, built once."""
    return nvml.built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nvml.State:
    """Eight GPUs of the profile h100, for programs that are started."""
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / "gpus"))
    return nvml.State(tmp_path / "gpus")


@pytest.fixture
def state(gpus: nvml.State, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nvml.State]:
    """The same, for this process: NVML is started."""
    # nvidia-ml-py asks for the library by its name; this is what it would get.
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    pynvml.nvmlInit()
    yield gpus
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
