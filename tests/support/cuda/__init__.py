# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A ``libcuda.so.1`` whose GPUs may be broken: it does what the kernels of ironspan's preflight do, in C.

    library = cuda.built(tmp_path)                    # for LD_LIBRARY_PATH
    state = cuda.State(tmp_path / "cuda")
    state.set({"wrong.mma": 3})                       # block 3 writes a wrong bit
    state.set({f"{uuid}.d2d": 2000})                  # this GPU copies 2000 GB a second
    state.set({"hang.cuLaunchKernel": 1})             # the call does not return
    state.set({"error.cuMemAlloc_v2": 214})

It compiles no PTX and measures no time: only a real GPU shows that the kernels' texts are right. Matrices'
places in registers are worked out here once more, the other way round.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda.c")
VARIABLE = "IRONSPAN_CUDA_STATE"


def built(folder: Path, state: str = "") -> Path:
    """Build the library with gcc into a folder; return ``folder/libcuda.so.1``.

    Args:
        folder: where to; it exists.
        state: the file that it reads in a program whose environment names none.

    Raises:
        subprocess.CalledProcessError: gcc did not compile it.
    """
    target = folder / "libcuda.so.1"
    flags = ["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    flags += [f'-DUSUAL_STATE="{state}"'] if state else []
    subprocess.run(
        ["gcc", *flags, f"-Wl,-soname,{target.name}", "-o", str(target), str(SOURCE)],
        check=True,
        capture_output=True,
        text=True,
    )
    return target


class State:
    """What the GPUs are, in a file that programs read when they start.

    Args:
        path: the file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, object] = {}
        self.set({})

    def set(self, changes: Mapping[str, object]) -> None:
        """Change values: ``KEY`` of all GPUs or ``UUID.KEY``."""
        self._values |= changes
        lines = [f"{key} {value}\n" for key, value in self._values.items()]
        fresh = self.path.with_name(f".{self.path.name}.new")
        fresh.write_text("".join(lines), encoding="utf-8")
        fresh.replace(self.path)
