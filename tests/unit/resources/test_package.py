# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``package``, with stand-ins for dpkg and apt that keep a list of packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._apt import parse_listing
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.package import KIND
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

APT = """
import os, sys
root = os.environ["IRONSPAN_ROOT"]
assert os.environ["DEBIAN_FRONTEND"] == "noninteractive"
path = root + "/packages"
packages = dict(line.rstrip("\\n").split("\\t", 1) for line in open(path)) if os.path.exists(path) else {}
verb, names = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("-") and "::" not in a]
simulate = "--simulate" in sys.argv
if verb == "update":
    open(root + "/updated", "w").close()
for name in names:
    name, _, version = name.partition("=")
    if name == "nosuch" or (name == "late" and not os.path.exists(root + "/updated")):
        sys.stderr.write("W: lists are old\\nE: Unable to locate package %s\\n" % name)
        sys.exit(100)
    brought = ["haproxy", "liblua"] if name == "haproxy" else [name]
    if verb == "install":
        for other in brought:
            if simulate:
                print("Inst %s (1.0 Debian:13/stable [amd64])" % other)
            elif name == "broken":
                sys.stderr.write("E: Sub-process /usr/bin/dpkg returned an error code (1)\\n")
                sys.exit(100)
            else:
                packages[other] = "ii \\t" + (version or "1.0")
    elif verb == "remove":
        packages[name] = "rc \\t1.0"
with open(path, "w") as stream:
    stream.writelines("%s\\t%s\\n" % item for item in packages.items())
"""


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.program("dpkg-query", 'cat "$IRONSPAN_ROOT/packages"')
    host.program("dpkg", 'sed -i s/iF/ii/ "$IRONSPAN_ROOT/packages"')
    host.python_program("apt-get", APT)
    host.put("/packages", "bash\tii \t5.2\ncurl\trc \t8.0\nhalf\tiF \t1.0\n")
    return host


def spec(name: str, state: str = "present") -> dict[str, object]:
    return filled(KIND, id=f"base/{name}", name=name, state=state)


@pytest.mark.parametrize(
    ("name", "state", "action"),
    [
        ("bash", "present", None),
        ("bash", "absent", "delete"),
        ("curl", "present", "install"),
        ("curl", "absent", None),
        ("half", "present", "install"),
        ("half", "absent", "delete"),
        ("haproxy", "present", "install"),
        ("haproxy", "absent", None),
    ],
)
def test_compare(host: FakeHost, name: str, state: str, action: str | None) -> None:
    change = KIND.compare(spec(name, state), host)
    assert (change.action if change else None) == action


def test_one_listing_for_all_packages(host: FakeHost) -> None:
    for name in ("bash", "curl", "haproxy"):
        KIND.compare(spec(name), host)
    assert len(host.calls("dpkg-query")) == 1


def test_install_and_undo_take_dependencies_along(host: FakeHost) -> None:
    change = converge(KIND, spec("haproxy"), host)
    assert change is not None
    assert "liblua\tii" in host.text("/packages")
    assert ["dpkg", "--configure", "-a", "--force-confold"] in host.calls()
    KIND.undo(spec("haproxy"), change, host)
    assert host.calls("apt-get")[-1][-2:] == ["haproxy", "liblua"]
    assert "liblua\trc" in host.text("/packages")
    KIND.undo(spec("haproxy"), change, host)


def test_an_installation_that_could_not_begin_takes_nothing_back(host: FakeHost) -> None:
    converge(KIND, spec("haproxy"), host)
    host.put("/packages", "haproxy\trc \t1.0\nliblua\tii \t1.0\n")
    host.forget_all_cached()
    change = KIND.compare(spec("haproxy"), host)
    assert change is not None
    host.program("apt-get", "echo E: no such thing >&2; exit 100")
    with pytest.raises(ResourceError, match="cannot be installed"):
        KIND.apply(spec("haproxy"), change, host)
    KIND.undo(spec("haproxy"), change, host)
    assert not any("remove" in call for call in host.calls("apt-get"))
    assert "liblua\tii" in host.text("/packages")


def test_remove_and_undo_bring_the_same_version(host: FakeHost) -> None:
    change = converge(KIND, spec("bash", "absent"), host)
    assert change is not None
    KIND.undo(spec("bash", "absent"), change, host)
    assert "bash\tii \t5.2" in host.text("/packages")


def test_lists_are_fetched_once_when_a_package_is_not_known(host: FakeHost) -> None:
    converge(KIND, spec("late"), host)
    assert [call[1] for call in host.calls("apt-get")] == ["install", "update", "install", "install"]


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("nosuch", "Unable to locate package nosuch", "Check the name"),
        ("broken", "returned an error code", "apt-get install broken"),
    ],
)
def test_failures_say_why(host: FakeHost, name: str, message: str, remedy: str) -> None:
    change = KIND.compare(spec(name), host)
    assert change is not None
    with pytest.raises(ResourceError, match=message) as caught:
        KIND.apply(spec(name), change, host)
    assert remedy in caught.value.remedy


@given(st.text())
def test_listing_never_fails(text: str) -> None:
    for state, _ in parse_listing(text).values():
        assert state == state.strip()
