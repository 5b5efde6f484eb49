# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What goes together, the nearest that does, and the order of upgrades."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import matrix, nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix.matrix import Together
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected
from hypothesis import given
from hypothesis import strategies as st

from ironspan.cli.main import main

SUPPORTED = nvproxy.known_releases()
OLD, NEW = sorted(SUPPORTED)
FINE = Together("580.159.03", "open", "H100", "13.0", "6.8.0-60-generic", OLD)
FABRIC = {"nvidia-fabricmanager-580": "580.159.03-*", "nvlsm": "2025.06.6-1"}


def said(wanted: Together) -> list[str]:
    """Return the findings as texts."""
    return [f"{field}: {message}" for field, message in matrix.findings(wanted, SUPPORTED, frozenset())]


def test_the_data_are_whole() -> None:
    data = nvproxy.data()
    assert set(data["models"].values()) == set(data["generations"])
    for generation in data["generations"].values():
        assert set(generation["modules"]) <= {"open", "proprietary"}
        assert generation["first"] <= generation.get("last", 999)
    for driver in [*data["kernels"], *(each for drivers in SUPPORTED.values() for each in drivers)]:
        assert nvproxy.is_driver(driver), driver
    assert set(data["gvisor"]["models"]) <= set(data["models"])


def test_what_goes_together() -> None:
    assert said(FINE) == []
    assert said(dataclasses.replace(FINE, packages=FABRIC)) == []
    assert said(Together("580.159.03")) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "H1000"}, "model: H1000 is no GPU that is known; write H100"),
        ({"model": "V100"}, "modules: V100 (Volta) takes proprietary modules only"),
        ({"model": "V100", "modules": "proprietary", "driver": "590.48.01"}, "driver: drivers for V100"),
        ({"model": "B200", "modules": "proprietary"}, "modules: B200 (Blackwell) takes open modules only"),
        ({"model": "B200", "driver": "550.90.12"}, "driver: B200 (Blackwell) needs a driver of branch 570"),
        ({"driver": "470.256.02"}, "modules: branch 470 has no open modules"),
        ({"cuda": "14.0"}, "cuda: nothing is known of CUDA 14.0"),
        (
            {"driver": "570.195.03"},
            "driver: programs of CUDA 13.0 need a driver of branch 580, or the package",
        ),
        ({"driver": "550.163.01", "kernel": "6.18.1"}, "kernel: modules of the driver 550.163.01 compile"),
        ({"driver": "580.173.02"}, f"driver: gVisor {OLD} does not know the driver 580.173.02"),
        (
            {"packages": {"nvidia-imex-580": "580.159.04-1"}},
            "packages: nvidia-imex-580 580.159.04-1 is not of",
        ),
        ({"packages": {"nvidia-fabricmanager-580": ""}}, "packages: nvidia-fabricmanager-580 of any version"),
        ({"packages": {"nvidia-fabricmanager-580": "580.159.0*"}}, "580.159.0* is not of the driver"),
    ],
)
def test_what_does_not(changes: dict[str, object], says: str) -> None:
    wanted = dataclasses.replace(FINE, **changes)  # type: ignore[arg-type]
    assert any(says in text for text in said(wanted)), said(wanted)


def test_a_package_for_compatibility_is_enough() -> None:
    older = dataclasses.replace(FINE, driver="570.195.03", packages={"cuda-compat-13-0": ""})
    assert said(older) == []


def test_what_a_site_has_seen_working_is_taken() -> None:
    wanted = dataclasses.replace(FINE, driver="580.173.02")
    seen = frozenset({nvproxy.Triple("580.173.02", OLD, "H100")})
    assert list(matrix.findings(wanted, SUPPORTED, seen)) == []


@pytest.mark.parametrize(
    ("wanted", "driver", "gvisor", "modules"),
    [
        (Together("580.173.02", "open", "H100", gvisor=OLD), "580.173.02", NEW, "open"),
        (Together("610.57.04", "open", "H100", gvisor=OLD), "610.57.04", NEW, "open"),
        (Together("550.90.12", "open", "B200"), "570.124.06", "", "open"),
        (Together("580.159.03", "open", "V100"), "580.159.03", "", "proprietary"),
        (Together("570.195.03", "open", "H100", "13.0"), "580.65.06", "", "open"),
        (Together("590.48.01", "open", "V100"), "580.173.02", "", "proprietary"),
    ],
)
def test_the_nearest_that_goes_together(wanted: Together, driver: str, gvisor: str, modules: str) -> None:
    found = matrix.good(wanted, SUPPORTED, frozenset())
    assert found is not None
    assert (found.driver, found.gvisor, found.modules) == (driver, gvisor, modules)


def test_packages_follow_the_driver() -> None:
    wanted = dataclasses.replace(FINE, packages={**FABRIC, "nvidia-fabricmanager-580": "580.159.04-1"})
    found = matrix.good(wanted, SUPPORTED, frozenset())
    assert found is not None
    assert (found.driver, found.packages) == (FINE.driver, FABRIC)


DRIVERS = sorted({each for drivers in SUPPORTED.values() for each in drivers} | {"470.256.02", "580.1.01"})


@given(
    st.builds(
        Together,
        driver=st.sampled_from(DRIVERS),
        modules=st.sampled_from(["open", "proprietary"]),
        model=st.sampled_from(["", *matrix.models()]),
        cuda=st.sampled_from(["", "11.8", "12.8", "13.1"]),
        kernel=st.sampled_from(["", "6.1.0-1-amd64", "6.18.2"]),
        gvisor=st.sampled_from(["", OLD, NEW]),
        packages=st.sampled_from([{}, FABRIC]),
    )
)
def test_what_is_named_goes_together(wanted: Together) -> None:
    found = matrix.good(wanted, SUPPORTED, frozenset())
    assert found is None or said(found) == []
    if not said(wanted):
        assert found == wanted


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ((FINE.driver, OLD), (FINE.driver, OLD), []),
        ((FINE.driver, OLD), (FINE.driver, NEW), [(FINE.driver, NEW)]),
        (("580.159.03", OLD), ("610.57.04", NEW), [("580.159.03", NEW), ("610.57.04", NEW)]),
        (("610.57.04", NEW), ("580.159.03", OLD), [("580.159.03", NEW), ("580.159.03", OLD)]),
        (("580.159.03", OLD), ("590.48.01", NEW), [("580.159.03", NEW), ("590.48.01", NEW)]),
    ],
)
def test_order(before: tuple[str, str], after: tuple[str, str], steps: list[tuple[str, str]]) -> None:
    assert list(matrix.upgrade_order(before, after, SUPPORTED)) == steps


def test_a_way_around() -> None:
    supported = {"1": ("550.1", "560.1"), "2": ("560.1", "570.1")}
    assert matrix.upgrade_order(("550.1", "1"), ("570.1", "2"), supported) == (
        ("560.1", "1"),
        ("560.1", "2"),
        ("570.1", "2"),
    )


def test_no_way() -> None:
    with pytest.raises(Rejected, match="there is no way") as caught:
        matrix.upgrade_order(("550.1", "1"), ("570.1", "2"), {"1": ("550.1",), "2": ("570.1",)})
    assert "drain" in caught.value.remedy
    with pytest.raises(Rejected, match=r"gVisor 2 does not know the driver 550.1"):
        matrix.upgrade_order(("550.1", "1"), ("550.1", "2"), {"1": ("550.1",), "2": ("570.1",)})
    with pytest.raises(Rejected, match=r"gVisor 3 does not know"):
        matrix.upgrade_order(("550.1", "1"), ("550.1", "3"), {"1": ("550.1",), "2": ("570.1",)})


PAIRS = [(driver, release) for release, drivers in SUPPORTED.items() for driver in drivers]


@given(st.sampled_from(PAIRS), st.sampled_from(PAIRS))
def test_each_step_changes_one_side_and_works(before: tuple[str, str], after: tuple[str, str]) -> None:
    at = before
    for step in matrix.upgrade_order(before, after, SUPPORTED):
        assert (step[0] == at[0]) != (step[1] == at[1])
        assert step in PAIRS
        at = step
    assert at == after


def test_the_command_says_the_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "order", "--from", "580.159.03", OLD, "--to", "610.57.04", NEW]) == 0
    assert capsys.readouterr().out == f"1. gVisor {OLD} -> {NEW}\n2. driver 580.159.03 -> 610.57.04\n"
    assert main(["gpu", "order", "--from", "580.159.03", OLD, "--to", "610.57.04", OLD]) == 2
    assert "does not know the driver 610.57.04" in capsys.readouterr().err
