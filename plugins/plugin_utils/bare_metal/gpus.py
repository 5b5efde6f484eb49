# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPU models by PCI device id; the table and its source are in ``gpu_ids.yml``."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

import yaml

NVIDIA = "10de"
_TABLE = Path(__file__).with_name("gpu_ids.yml")


class Gpu(t.NamedTuple):
    """A GPU as the table knows it.

    Args:
        model: what people order, for example ``H100``.
        variant: the exact one, for example ``H100 SXM5 80GB``.
    """

    model: str
    variant: str


@functools.cache
def known_gpus() -> dict[str, Gpu]:
    """Return device id (four lower-case digits) to GPU."""
    content = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return {device: Gpu(entry["model"], entry["variant"]) for device, entry in content["gpus"].items()}


@functools.cache
def model_names() -> dict[str, str]:
    """Return every model and variant that can be declared, by its name without case and spaces."""
    names = [name for gpu in known_gpus().values() for name in gpu]
    return {folded(name): name for name in names}


def folded(name: str) -> str:
    """Return a name of a GPU as it is compared: capitals, separators and the maker do not count."""
    return "".join(char for char in name.lower().removeprefix("nvidia") if char.isalnum())


def accelerators() -> dict[str, list[dict[str, str]]]:
    """Return the table as Ironic reads it (``[inspector]known_accelerators``); its own ends with L40S."""
    return {
        "pci_devices": [
            {
                "vendor_id": NVIDIA,
                "device_id": device,
                "type": "GPU",
                "device_info": f"NVIDIA Corporation {gpu.variant}",
            }
            for device, gpu in known_gpus().items()
        ]
    }
