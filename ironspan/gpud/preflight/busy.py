# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process that says which processes have a GPU, a JSON list a line; NVML may hang in it."""

from __future__ import annotations

import contextlib
import json
import sys
import time

import pynvml

from ironspan.gpud import nvml
from ironspan.gpud.preflight.children import bound

EVERY_S = 0.5


def main() -> None:
    """Work until the reader is gone."""
    pynvml.nvmlInit()
    cards = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with contextlib.suppress(pynvml.NVMLError):
            cards.append(pynvml.nvmlDeviceGetHandleByIndex(index))
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        while True:
            pids: set[int] = set()
            for card in cards:
                with contextlib.suppress(pynvml.NVMLError):
                    pids |= nvml.computing(card).keys()
            print(json.dumps(sorted(pids)), flush=True)
            time.sleep(EVERY_S)


if __name__ == "__main__":
    bound(int(sys.argv[1]))
    main()
