# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What GPUs can be divided into, and where instances go."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig, nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected
from hypothesis import given
from hypothesis import strategies as st

CARDS = [(model, card) for model, cards in mig._cards().items() for card in cards]


def test_every_model_is_one_that_drivers_are_judged_for() -> None:
    assert set(mig.models()) <= set(nvproxy.data()["models"])


@pytest.mark.parametrize(("model", "card"), CARDS)
def test_each_profile_fits_as_often_as_it_says_and_no_more(model: str, card: str) -> None:
    for profile in mig._cards()[model][card].values():
        assert len(mig.placed(model, [profile.name] * profile.most)) == profile.most
        assert mig._fit([profile] * (profile.most + 1)) is None


def test_an_h200_says_the_same() -> None:
    """What nvidia-smi of driver 580.159.04 printed on a real H200 (mig -lgip, mig -lgipp; 2026-11-26)."""
    golden = Path(__file__).parent / "golden"
    rows = re.findall(
        r"^\|\s+0\s+MIG (\S+)\s+(\d+)\s+\d+/(\d+)", (golden / "h200_profiles.txt").read_text(), re.MULTILINE
    )
    places = re.findall(
        r"Profile ID\s+(\d+) Placements? ?: \{([0-9,]+)\}:(\d+)", (golden / "h200_placements.txt").read_text()
    )
    at = {number: (tuple(map(int, starts.split(","))), int(size)) for number, starts, size in places}
    said = {name: (int(most), *at[number]) for name, number, most in rows}
    known = mig._cards()["H200"]["141 GB"].values()
    assert {each.name: (each.most, each.starts, each.memory) for each in known} == said


@pytest.mark.parametrize(
    ("model", "instances", "where"),
    [
        ("A100", ["3g.20gb", "4g.20gb"], ["4g.20gb:0", "3g.20gb:4"]),
        ("H100", ["1g.10gb"] * 4 + ["3g.40gb"], [*(f"1g.10gb:{start}" for start in range(4)), "3g.40gb:4"]),
        ("H200", ["2g.35gb", "2g.35gb", "3g.71gb"], ["2g.35gb:0", "2g.35gb:2", "3g.71gb:4"]),
        ("B200", ["7g.180gb"], ["7g.180gb:0"]),
        ("H100", [], []),
    ],
)
def test_instances_go_where_all_of_them_fit(model: str, instances: list[str], where: list[str]) -> None:
    for order in set(itertools.permutations(instances)):
        assert mig.placed(model, order) == where


@pytest.mark.parametrize(
    ("model", "instances", "says"),
    [
        ("H100", ["4g.40gb", "4g.40gb"], "2 of 4g.40gb do not fit on one H100 with 80 GB"),
        ("H100", ["4g.40gb", "2g.20gb", "2g.20gb"], "do not fit on one H100"),
        ("H200", ["3g.40gb"], "H200 with 141 GB has no 3g.40gb"),
        ("A100", ["1g.5gb", "3g.40gb"], "A100 with 40 GB has no 3g.40gb; A100 with 80 GB has no 1g.5gb"),
        ("B200", ["1g.23gb+me", "1g.23gb+me"], "2 of 1g.23gb+me do not fit"),
        ("T4", ["1g.5gb"], "how T4 can be divided is not known"),
    ],
)
def test_what_is_impossible_is_refused_with_what_is_possible(
    model: str, instances: list[str], says: str
) -> None:
    with pytest.raises(Rejected) as refused:
        mig.placed(model, instances)
    assert says in refused.value.message
    first = next(iter(mig._cards().get(model, {"": {"A100": None}}).values()))
    assert next(iter(first)) in refused.value.remedy


@given(
    st.sampled_from(CARDS).flatmap(
        lambda each: st.tuples(
            st.just(each), st.lists(st.sampled_from(sorted(mig._cards()[each[0]][each[1]])), max_size=7)
        )
    )
)
def test_no_two_instances_share_a_slice(each: tuple[tuple[str, str], list[str]]) -> None:
    (model, _), instances = each
    try:
        where = mig.placed(model, instances)
    except Rejected:
        return
    profiles = {name: profile for card in mig._cards()[model].values() for name, profile in card.items()}
    assert sorted(instance.partition(":")[0] for instance in where) == sorted(instances)
    slices: list[int] = []
    for instance in where:
        name, _, start = instance.partition(":")
        assert int(start) in profiles[name].starts
        slices += range(int(start), int(start) + profiles[name].memory)
    assert len(slices) == len(set(slices))
    assert all(number < mig.MEMORY for number in slices)
    assert sum(profiles[name].compute for name in instances) <= mig.COMPUTE


@pytest.mark.parametrize(
    ("entries", "strategy"),
    [
        ([{"instances": ["3g.40gb", "3g.40gb"]}], "single"),
        ([{"instances": ["3g.40gb", "4g.40gb"]}], "mixed"),
        ([{"gpus": [0], "instances": ["3g.40gb"]}], "mixed"),
        ([{"gpus": [0], "instances": ["1g.10gb"]}, {"instances": ["1g.10gb"] * 7}], "single"),
        ([{"gpus": [0], "instances": []}, {"instances": ["1g.10gb"]}], "mixed"),
        ([{"instances": []}], "none"),
    ],
)
def test_how_the_device_plugin_offers_them(entries: list[dict[str, object]], strategy: str) -> None:
    assert mig.strategy(mig.layout("H100", entries)) == strategy


def test_a_gpu_is_divided_once() -> None:
    with pytest.raises(Rejected, match="GPU 1 is divided twice"):
        mig.layout("H100", [{"gpus": [0, 1], "instances": []}, {"gpus": [1], "instances": []}])
    with pytest.raises(Rejected, match="all other GPUs is divided twice"):
        mig.layout("H100", [{"instances": []}, {"instances": []}])
