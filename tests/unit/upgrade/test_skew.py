# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which versions may follow each other and run beside each other."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import skew
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import Version, parse
from hypothesis import example, given
from hypothesis import strategies as st

NUMBERS = st.integers(min_value=0, max_value=60)
VERSIONS = st.builds(Version, st.integers(min_value=1, max_value=3), NUMBERS, NUMBERS)


@given(VERSIONS, st.sampled_from(["", "v"]), st.sampled_from(["", "-rc.1", "+build"]))
def test_a_version_survives_being_written(version: Version, before: str, behind: str) -> None:
    assert parse(f"{before}{version}{behind}") == version


@pytest.mark.parametrize("text", ["", "1.36", "v1", "1.36.x", "latest", "1.36.4 "])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        parse(text)


@pytest.mark.parametrize(
    ("current", "wanted", "says"),
    [
        ("1.36.4", "1.36.4", ""),
        ("1.36.4", "1.36.9", ""),
        ("1.36.4", "1.37.1", ""),
        ("1.36.4", "1.38.0", "go to 1.37 first, one minor version at a time"),
        ("1.36.4", "2.0.0", "one minor version at a time"),
        ("1.36.4", "1.36.3", "going back is not supported"),
        ("1.37.1", "1.36.4", "going back is not supported"),
    ],
)
def test_one_minor_version_at_a_time(current: str, wanted: str, says: str) -> None:
    found = skew.one_minor("Kubernetes", parse(current), parse(wanted))
    assert says in found
    assert bool(found) == bool(says)


@given(VERSIONS, VERSIONS)
def test_a_step_is_never_allowed_both_ways_unless_it_is_none(one: Version, other: Version) -> None:
    both = skew.one_minor("x", one, other) == "" and skew.one_minor("x", other, one) == ""
    assert both == (one == other)


@given(VERSIONS, VERSIONS)
def test_a_way_of_allowed_steps_leads_from_every_version_to_every_later_one_of_its_major(
    one: Version, other: Version
) -> None:
    first, last = sorted((one, other))
    if first.major != last.major:
        assert skew.one_minor("x", first, last)
        return
    steps = 0
    while first != last:
        following = last if last.minor - first.minor <= 1 else Version(first.major, first.minor + 1, 0)
        assert skew.one_minor("x", first, following) == ""
        first, steps = following, steps + 1
        assert steps <= 61


@given(VERSIONS, VERSIONS)
def test_a_kubelet_is_zero_to_three_minor_versions_older(kubelet: Version, server: Version) -> None:
    fits = kubelet.major == server.major and 0 <= server.minor - kubelet.minor <= 3
    assert (skew.kubelet_problem(kubelet, server) == "") == fits


@pytest.mark.parametrize(
    ("kubelet", "server", "says"),
    [
        ("1.36.4", "1.36.0", ""),
        ("1.34.0", "1.37.1", ""),
        ("1.33.9", "1.37.1", "4 minor versions older"),
        ("1.37.0", "1.36.4", "newer than the API server"),
    ],
)
def test_kubelets(kubelet: str, server: str, says: str) -> None:
    found = skew.kubelet_problem(parse(kubelet), parse(server))
    assert says in found
    assert bool(found) == bool(says)


def test_the_arithmetic_is_shown() -> None:
    text = skew.kubelet_arithmetic(parse("1.36.4"), parse("1.37.1"))
    assert text == "kubelet 1.36.4 is 1 minor behind API server 1.37.1, 3 allowed"


@pytest.mark.parametrize(
    ("servers", "kubelets", "wanted", "says"),
    [
        ({"a": "1.36.4", "b": "1.36.4"}, {"w": "1.36.4"}, "1.37.1", []),
        ({"a": "1.37.1", "b": "1.36.4"}, {"w": "1.36.4"}, "1.37.1", []),
        ({"a": "1.36.4"}, {"w": "1.34.0"}, "1.37.1", []),
        ({"a": "1.36.4"}, {"w": "1.33.0"}, "1.37.1", ["w: a kubelet 1.33.0 is 4 minor"]),
        ({"a": "1.35.0"}, {}, "1.37.1", ["a: Kubernetes 1.35.0 cannot become 1.37.1 at once"]),
        (
            {"a": "1.37.1", "b": "1.35.0"},
            {},
            "1.37.1",
            ["b: Kubernetes 1.35.0 cannot", "more than one minor version apart"],
        ),
        ({"a": "1.36.4"}, {"w": "1.38.0"}, "1.37.1", ["w: a kubelet 1.38.0 is newer"]),
    ],
)
def test_control_planes(
    servers: dict[str, str], kubelets: dict[str, str], wanted: str, says: list[str]
) -> None:
    found = skew.kubernetes_problems(
        {name: parse(text) for name, text in servers.items()},
        {name: parse(text) for name, text in kubelets.items()},
        parse(wanted),
    )
    assert len(found) == len(says)
    assert all(part in problem for part, problem in zip(says, found, strict=True))


@pytest.mark.parametrize(
    ("members", "cluster", "wanted", "says"),
    [
        (["3.6.14", "3.6.14", "3.6.14"], "3.6.0", "3.7.3", ""),
        (["3.7.3", "3.6.14", "3.6.14"], "3.6.0", "3.7.3", ""),
        (["3.6.11"], "3.6.0", "3.7.3", ""),
        (["3.6.10"], "3.6.0", "3.7.3", "too old to run beside 3.7.3: bring every member to 3.6.11"),
        (["3.5.26"], "3.5.0", "3.6.14", ""),
        (["3.5.25"], "3.5.0", "3.6.14", "bring every member to 3.5.26"),
        (["3.5.30"], "3.5.0", "3.7.3", "go to 3.6 first"),
        (["3.6.14"], "3.6.0", "3.6.11", ""),
        (["3.7.3", "3.6.14"], "3.6.0", "3.6.14", ""),
        (["3.7.3"], "3.7.0", "3.6.14", "etcdctl downgrade enable 3.6.0"),
        (["3.7.3"], None, "3.6.14", "the cluster's version is not known"),
        (["3.7.3"], "3.5.0", "3.5.30", "etcdctl downgrade enable"),
        (["3.7.3", "3.5.30"], "3.5.0", "3.6.14", "more than one minor version apart"),
    ],
)
def test_members_of_the_store(members: list[str], cluster: str | None, wanted: str, says: str) -> None:
    found = skew.etcd_problems(
        {f"m{number}": parse(text) for number, text in enumerate(members)},
        parse(cluster) if cluster else None,
        parse(wanted),
    )
    assert bool(found) == bool(says)
    assert says in " ".join(found)


@given(st.lists(VERSIONS, min_size=1, max_size=5), VERSIONS)
@example([Version(1, 56, 0), Version(2, 57, 0)], Version(1, 56, 0))
def test_members_never_end_up_more_than_a_minor_version_apart(
    members: list[Version], wanted: Version
) -> None:
    named = {f"m{number}": version for number, version in enumerate(members)}
    if not skew.etcd_problems(named, min(members), wanted):
        # One after the other becomes what is wanted; at no moment are two of them too far apart.
        for number in range(len(members) + 1):
            mixed = [wanted] * number + members[number:]
            assert len({version.major for version in mixed}) == 1
            assert max(mixed).minor - min(mixed).minor <= 1


@pytest.mark.parametrize(
    ("etcd", "kubernetes", "fits"),
    [
        ("3.5.24", "1.37.1", True),
        ("3.5.23", "1.37.1", False),
        ("3.7.3", "1.36.4", True),
        ("3.4.0", "1.20.0", True),
    ],
)
def test_kubernetes_needs_an_etcd(etcd: str, kubernetes: str, fits: bool) -> None:
    assert (skew.etcd_for_kubernetes(parse(etcd), parse(kubernetes)) == "") == fits


@pytest.mark.parametrize(
    ("containerd", "kubernetes", "fits"),
    [("2.3.4", "1.37.1", True), ("1.7.30", "1.36.4", False), ("1.7.30", "1.35.0", True)],
)
def test_kubernetes_needs_a_containerd(containerd: str, kubernetes: str, fits: bool) -> None:
    assert (skew.containerd_for_kubernetes(parse(containerd), parse(kubernetes)) == "") == fits


@pytest.mark.parametrize(
    ("current", "wanted", "fits"),
    [("2.3.4", "2.3.7", True), ("2.3.7", "2.3.4", True), ("2.3.4", "2.4.0", True), ("2.2.1", "2.4.0", False),
     ("2.4.0", "2.3.7", False)],
)  # fmt: skip
def test_containerd(current: str, wanted: str, fits: bool) -> None:
    assert (skew.containerd_problem(parse(current), parse(wanted)) == "") == fits
