# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts whose GPUs are joined by switches: packages of the driver's version, and what runs."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
DRIVER = {"nvidia_driver_version": "580.159.03", "nvidia_driver_kernel": "6.8.0-60-generic"}


def document(render: Render, model: str, **more: t.Any) -> dict[str, t.Any]:
    variables = {**DRIVER, "nvidia_driver_model": model, **more}
    rendered = render(variables=variables, more=GPUS)
    read_document(rendered.document("rack-1"))
    return rendered.resources("rack-1")


@pytest.mark.parametrize(
    ("model", "imex", "sort", "packages"),
    [
        ("H100", False, "nvswitch", {"nvidia-fabricmanager-580": "580.159.03-*"}),
        ("B200", False, "nvlink5", {"nvidia-fabricmanager-580": "580.159.03-*", "nvlsm": ""}),
        (
            "B200",
            True,
            "nvlink5",
            {"nvidia-fabricmanager-580": "580.159.03-*", "nvlsm": "", "nvidia-imex-580": "580.159.03-*"},
        ),
    ],
)
def test_packages_change_with_the_drivers(
    render: Render, model: str, imex: bool, sort: str, packages: dict[str, str]
) -> None:
    without = document(render, model)
    assert not [name for name in without if name.startswith("nvidia_fabric/")]
    found = document(render, model, nvidia_fabric_enabled=True, nvidia_fabric_imex=imex)
    before, after = (each["nvidia_driver/packages"]["packages"] for each in (without, found))
    assert {name: version for name, version in after.items() if name not in before} == packages
    units = found["nvidia_fabric/units"]
    assert (units["switches"], units["driver"]) == (sort, "580.159.03")
    assert ("nvidia-imex.service" in units["units"]) is imex
    assert units["requires"] == ["nvidia_driver/packages"]


def test_a_site_names_other_versions(render: Render) -> None:
    own = {"nvidia-fabricmanager-580": "580.159.03-0ubuntu1"}
    found = document(render, "H100", nvidia_fabric_enabled=True, nvidia_driver_packages=own)
    assert found["nvidia_driver/packages"]["packages"]["nvidia-fabricmanager-580"] == "580.159.03-0ubuntu1"
