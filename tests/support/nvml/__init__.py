# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A ``libnvidia-ml.so.1`` that answers from a file: GPUs for programs on machines that have none.

It serves nvidia-ml-py and, in Go, go-nvml (the device plugin, nvidia-ctk). What it answers is data
(``profiles/``), one ``KEY VALUE`` a line; ``3.KEY`` is GPU 3's alone. The file is looked at before each
answer, so a test changes what GPUs are while programs run:

    library = nvml.built(tmp_path)                # for LD_LIBRARY_PATH
    state = nvml.State(tmp_path / "gpus", "h100", gpus=8)
    state.set({"3.fail": 15})                     # GPU 3 is lost
    state.set({"hang.nvmlDeviceGetTemperature": 1})   # the call does not return until this is taken back
    state.set({"2.remapped": "0 1 1 0"})          # a row remap is pending
    state.xid(5, 79)                              # an event of the event set
    state.reset()                                 # all well again

It stands in for the real library's answers, not for its timing or its locks. Its figures are those of
NVIDIA's data sheets.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
PROFILES = ("a100", "h100", "h200", "b200")
VARIABLE = "IRONSPAN_NVML_STATE"
XID = 0x8
RECOVERY_ACTION = 0x8000
_FIRST_VERSIONS = (
    "nvmlComputeInstanceGetInfo",
    "nvmlDeviceGetAttributes",
    "nvmlDeviceGetGpuInstancePossiblePlacements",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetGridLicensableFeatures",
    "nvmlDeviceGetGridLicensableFeatures_v2",
    "nvmlDeviceGetGridLicensableFeatures_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlDeviceRemoveGpu_v2",
    "nvmlVgpuInstanceGetLicenseInfo",
)
"""Functions that go-nvml asks for and nvidia-ml-py does not have any more."""


def _functions() -> list[str]:
    """Return the names of NVML's functions: those that nvidia-ml-py looks up, and first versions."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise RuntimeError("nvidia-ml-py is missing: make venv")
    source = Path(found.origin).read_text(encoding="utf-8")
    return sorted({*re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', source), *_FIRST_VERSIONS})


def built(folder: Path, state: str = "") -> Path:
    """Build the library with gcc.

    Args:
        folder: where to.
        state: the file that it reads in a program whose environment names none.

    Returns:
        ``folder/libnvidia-ml.so.1``.

    Raises:
        subprocess.CalledProcessError: gcc did not compile it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Go programs end when a function is missing that they call. What the shim does not know is not supported.
    stubs = "".join(f"__attribute__((weak)) int {name}(void) {{ return 3; }}\n" for name in _functions())
    (folder / "stubs.c").write_text(stubs, encoding="utf-8")
    target = folder / "libnvidia-ml.so.1"
    sources = [*(str(HERE / f"{name}.c") for name in ("state", "calls", "errors")), str(folder / "stubs.c")]
    flags = ["-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    flags += [f'-DUSUAL_STATE="{state}"'] if state else []
    subprocess.run(
        ["gcc", *flags, f"-Wl,-soname,{target.name}", "-o", str(target), *sources],
        check=True,
        capture_output=True,
        text=True,
    )
    return target


def _profile(name: str) -> dict[str, str]:
    lines = (HERE / "profiles" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}


class State:
    """What the GPUs are, in a file that programs see at once.

    Args:
        path: the file; its folder exists.
        profile: which cards, one of ``PROFILES``.
        gpus: how many.
    """

    def __init__(self, path: Path, profile: str = "h100", gpus: int = 8) -> None:
        self.path, self.gpus = path, gpus
        self._well = {**_profile("common"), **_profile(profile), "gpus": str(gpus)}
        for index in range(gpus):
            self._well |= {
                f"{index}.uuid": f"GPU-{index:08x}-1111-2222-3333-444444444444",
                f"{index}.serial": f"16500000000{index:02d}",
                f"{index}.pci": f"00000000:{0x0F + 0x10 * index:02X}:00.0",
                f"{index}.minor": str(index),
            }
        self._different: dict[str, str] = {}
        self._events: list[str] = []
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment, beside LD_LIBRARY_PATH."""
        return {VARIABLE: str(self.path)}

    @property
    def driver(self) -> str:
        """Its version."""
        return self._different.get("driver", self._well["driver"])

    def uuid(self, index: int) -> str:
        """Return the UUID of a GPU."""
        return self._well[f"{index}.uuid"]

    def pci(self, index: int) -> str:
        """Return the address of a GPU, as the kernel's log has it."""
        return self._well[f"{index}.pci"].lower()[4:-2]

    def set(self, changes: Mapping[str, object]) -> None:
        """Change values: ``KEY`` of all GPUs or ``INDEX.KEY``. None takes a change back."""
        for key, value in changes.items():
            if value is None:
                self._different.pop(key, None)
            else:
                self._different[key] = str(value)
        self._write()

    def xid(self, index: int, code: int) -> None:
        """Raise an XID through event sets that exist."""
        self.event(index, XID, code)

    def event(self, index: int, kind: int, content: int) -> None:
        """Raise an event of any type through event sets that exist."""
        self._events.append(f"event {len(self._events) + 1} {index} {kind:#x} {content}")
        self._write()

    def reset(self) -> None:
        """Make all well again. Events stay: they have happened."""
        self._different.clear()
        self._write()

    def boot(self) -> None:
        """Make all well as a boot does, before which no event has happened."""
        self._events.clear()
        self.reset()

    def _write(self) -> None:
        values = {**self._well, **self._different}
        lines = [*(f"{key} {value}" for key, value in values.items()), *self._events]
        fresh = self.path.with_name(f".{self.path.name}.new")
        fresh.write_text("\n".join([*lines, ""]), encoding="utf-8")
        fresh.replace(self.path)
