# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A ``libnccl.so.2`` for two processes of one machine, which may be broken: see ``State``.

It knows what a test of two nodes calls, and nothing else of NCCL: no network is between the two.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nccl.c")
VARIABLE = "IRONSPAN_NCCL_STATE"
"""File of lines ``KEY VALUE``: speed (GB/s), wrong (an element), hang.CALL, ends.CALL, error.CALL."""
MARK = "IRONSPAN_NCCL_MARK"
"""What the name of the memory that both processes share has in it: /dev/shm is everybody's."""


def built(folder: Path) -> Path:
    """Build the library with gcc beside the stand-in of libcuda; return ``folder/libnccl.so.2``.

    Raises:
        subprocess.CalledProcessError: gcc did not compile it.
    """
    target = folder / "libnccl.so.2"
    flags = ["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [
            "gcc",
            *flags,
            f"-Wl,-soname,{target.name}",
            "-o",
            str(target),
            str(SOURCE),
            str(folder / "libcuda.so.1"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return target
