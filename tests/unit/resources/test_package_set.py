# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``package_set``, with stand-ins for dpkg and apt that know versions, files, holds and needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._apt import Planned, parse_simulation
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.package_set import (
    KEPT,
    KIND,
    matches,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import holders
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

APT = """
import fnmatch, json, os, sys
root = os.environ["IRONSPAN_ROOT"]
world = json.load(open(root + "/world.json"))
packages, offered = world["packages"], world["offered"]
words, archives, simulate = [], "", "--simulate" in sys.argv
arguments = iter(sys.argv[2:])
for word in arguments:
    if word == "-o":
        key, _, value = next(arguments).partition("=")
        archives = value if key == "Dir::Cache::archives" else archives
    elif not word.startswith("-"):
        words.append(word)
verb = sys.argv[1]
if verb == "update":
    world["offered"].update(world.pop("new", {}))
wanted = {}
for word in words:
    if word.startswith("/"):
        name, version, _ = os.path.basename(word).split("_")
        wanted[name] = version.replace("%3a", ":")
        continue
    if word.endswith("-") and word[:-1] in packages:
        wanted[word[:-1]] = ""
        continue
    name, _, version = word.partition("=")
    have = [each for each in offered.get(name, []) if fnmatch.fnmatch(each, version or "*")]
    if not have and not (version and packages.get(name, ["", ""])[1] == version):
        sys.stderr.write("E: Version '%s' for '%s' was not found\\n" % (version, name))
        sys.exit(100)
    wanted[name] = have[-1] if have else version
for name, version in list(wanted.items()):
    if name == "tool" and version:
        wanted.setdefault("libtool", version)
    if name == "other" and version and "tool" in packages:
        wanted.setdefault("tool", "")
    if name == "modules" and version and version.partition("+")[2] != wanted["tool"]:
        sys.stderr.write("E: Unable to correct problems, you have held broken packages.\\n")
        sys.exit(100)
for name, version in wanted.items():
    before = packages.get(name, ["", ""])
    installed = before[0][1:2] == "i"
    if installed and before[1] == version and before[0][2:] != "R":
        continue
    if simulate:
        old = " [%s]" % before[1] if installed else ""
        new = " (%s Debian:13/stable [amd64])" % version
        print("Inst " + name + old + new if version else "Remv " + name + old)
        continue
    if world.get("breaks") == name:
        packages[name] = ["iF", version]
        json.dump(world, open(root + "/world.json", "w"))
        sys.stderr.write("E: Sub-process /usr/bin/dpkg returned an error code (1)\\n")
        sys.exit(100)
    if version:
        packages[name] = ["hi" if before[0][:1] == "h" else "ii", version]
        if archives:
            open("%s/%s_%s_amd64.deb" % (archives, name, version.replace(":", "%3a")), "w").close()
    else:
        packages.pop(name)
json.dump(world, open(root + "/world.json", "w"))
"""
CACHE = """
import json, os, sys
offered = json.load(open(os.environ["IRONSPAN_ROOT"] + "/world.json"))["offered"]
for version in reversed(offered.get(sys.argv[2], [])):
    print(" %s | %s | http://mirror ./ Packages" % (sys.argv[2], version))
"""
MARK = """
import json, os, sys
path = os.environ["IRONSPAN_ROOT"] + "/world.json"
world = json.load(open(path))
for name in sys.argv[2:]:
    state, version = world["packages"][name]
    world["packages"][name] = [{"hold": "h", "unhold": "i"}[sys.argv[1]] + state[1:], version]
json.dump(world, open(path, "w"))
"""
QUERY = """
import json, os
world = json.load(open(os.environ["IRONSPAN_ROOT"] + "/world.json"))
for name, (state, version) in world["packages"].items():
    print("%s\\t%s\\t%s" % (name, state.ljust(3), version))
"""
CONFIGURE = """
import json, os
path = os.environ["IRONSPAN_ROOT"] + "/world.json"
world = json.load(open(path))
for name, (state, version) in world["packages"].items():
    if state[1:2] in "UF":
        world["packages"][name] = [state[0] + "i", version]
json.dump(world, open(path, "w"))
"""
OLD, NEW = "550.1-2", "550.1-4"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.python_program("apt-get", APT)
    host.python_program("apt-cache", CACHE)
    host.python_program("apt-mark", MARK)
    host.python_program("dpkg-query", QUERY)
    host.python_program("dpkg", CONFIGURE)
    offers(host, tool=[OLD], libtool=[OLD], helper=["1:9"])
    return host


def world(host: FakeHost) -> dict[str, Any]:
    path = host.folder / "world.json"
    return dict(json.loads(path.read_text())) if path.exists() else {"packages": {}, "offered": {}}


def put(host: FakeHost, **values: Any) -> None:
    (host.folder / "world.json").write_text(json.dumps({**world(host), **values}))
    host.forget_all_cached()


def offers(host: FakeHost, **offered: list[str]) -> None:
    put(host, offered=offered)


def versions(host: FakeHost) -> dict[str, str]:
    return {name: version for name, (_, version) in world(host)["packages"].items()}


def spec(version: str, **values: Any) -> dict[str, Any]:
    packages = {"tool": version, "helper": ""}
    return filled(KIND, id="gpu/driver", **{"packages": packages, "hold": True, **values})


def test_exact_versions_are_installed_and_held(host: FakeHost) -> None:
    change = converge(KIND, spec(OLD), host)
    assert change is not None and change.action == "install"
    assert versions(host) == {"tool": OLD, "libtool": OLD, "helper": "1:9"}
    assert world(host)["packages"]["tool"][0] == "hi"


def test_one_run_of_apt_changes_all(host: FakeHost) -> None:
    converge(KIND, spec(OLD), host)
    runs = [call for call in host.calls("apt-get") if "--simulate" not in call]
    assert len(runs) == 1


def test_the_way_back_needs_no_mirror(host: FakeHost) -> None:
    converge(KIND, spec(OLD), host)
    offers(host, tool=[NEW], libtool=[NEW])
    change = converge(KIND, spec(NEW), host)
    assert change is not None and change.action == "upgrade"
    assert change.before == {"tool": OLD}
    assert versions(host)["libtool"] == NEW
    assert host.note("gpu/driver")["previous"] == {"tool": OLD, "libtool": OLD}
    offers(host)
    converge(KIND, spec(OLD), host)
    assert versions(host)["tool"] == versions(host)["libtool"] == OLD


def test_of_a_package_without_a_version_that_one_is_taken_which_goes_with_the_others(host: FakeHost) -> None:
    both = [f"6.8-60+{OLD}", f"6.8-60+{NEW}"]
    offers(host, tool=[OLD, NEW], libtool=[OLD, NEW], modules=both)
    for version in (OLD, NEW, OLD):
        wanted = spec(version, packages={"tool": version, "modules": ""})
        converge(KIND, wanted, host)
        assert versions(host) == {"tool": version, "libtool": version, "modules": f"6.8-60+{version}"}
    with pytest.raises(ResourceError, match="held broken packages"):
        offers(host, tool=["550.1-6"], libtool=["550.1-6"], modules=both)
        converge(KIND, spec("550.1-6", packages={"tool": "550.1-6", "modules": ""}), host)


def test_only_files_of_the_present_and_the_former_version_are_kept(host: FakeHost) -> None:
    for version in (OLD, NEW, "550.1-6"):
        offers(host, tool=[version], libtool=[version], helper=["1:9"])
        converge(KIND, spec(version), host)
    kept = {path.name for path in Path(host.path(f"{KEPT}/gpu-driver")).glob("*.deb")}
    assert "helper_1%3a9_amd64.deb" in kept
    assert {name for name in kept if name.startswith("tool")} == {
        f"tool_{NEW}_amd64.deb",
        "tool_550.1-6_amd64.deb",
    }


@pytest.mark.parametrize("first", [True, False])
def test_undo_brings_back_what_was(host: FakeHost, first: bool) -> None:
    if not first:
        converge(KIND, spec(OLD, hold=False), host)
    before = world(host)["packages"]
    offers(host, tool=[NEW], libtool=[NEW], helper=["1:9"])
    change = converge(KIND, spec(NEW), host)
    assert change is not None
    for _ in range(2):
        KIND.undo(spec(NEW), change, host)
        assert world(host)["packages"] == before


def test_a_change_that_could_not_begin_takes_nothing_back(host: FakeHost) -> None:
    for version in (OLD, NEW):
        offers(host, tool=[version], libtool=[version], helper=["1:9"])
        converge(KIND, spec(version), host)
    before = world(host)["packages"]
    change = KIND.compare(spec("9"), host)
    assert change is not None
    with pytest.raises(ResourceError, match="cannot be installed"):
        KIND.apply(spec("9"), change, host)
    KIND.undo(spec("9"), change, host)
    assert world(host)["packages"] == before
    converge(KIND, spec(OLD), host)
    assert versions(host)["libtool"] == OLD


@pytest.mark.parametrize("breaks", ["tool", "libtool"])
def test_undo_after_a_run_that_was_cut_off_goes_back_to_before_it(host: FakeHost, breaks: str) -> None:
    converge(KIND, spec(OLD), host)
    before = world(host)["packages"]
    put(host, offered={"tool": [NEW], "libtool": [NEW]}, breaks=breaks)
    wanted = spec(NEW)
    change = KIND.compare(wanted, host)
    assert change is not None
    with pytest.raises(ResourceError, match="returned an error code"):
        KIND.apply(wanted, change, host)
    assert versions(host)["tool"] == NEW
    put(host, breaks="")
    again = KIND.compare(wanted, host)
    if again is not None:
        KIND.apply(wanted, again, host)
    KIND.undo(wanted, change, host)
    assert world(host)["packages"] == before


@pytest.mark.parametrize(
    ("found", "action", "reason"),
    [
        (["ii", OLD], "update", "not held"),
        (["hi", OLD], None, ""),
        (["hi", NEW], "upgrade", "another version"),
        (["iF", OLD], "upgrade", "half installed"),
        (["iHR", OLD], "upgrade", "half installed"),
        (["hiR", OLD], "upgrade", "half installed"),
        (["rc", OLD], "install", "not installed"),
    ],
)
def test_compare(host: FakeHost, found: list[str], action: str | None, reason: str) -> None:
    put(host, packages={"tool": found})
    change = KIND.compare(spec(OLD, packages={"tool": OLD}), host)
    assert (change.action, change.reason) == (action, reason) if change else action is None


def test_a_hold_of_somebody_else_is_let_go(host: FakeHost) -> None:
    put(host, packages={"tool": ["hi", OLD]})
    converge(KIND, spec(OLD, packages={"tool": OLD}, hold=False), host)
    assert world(host)["packages"]["tool"] == ["ii", OLD]


def test_lists_are_fetched_when_a_version_is_not_known(host: FakeHost) -> None:
    put(host, new={"tool": [NEW], "libtool": [NEW]})
    converge(KIND, spec(NEW), host)
    assert versions(host)["tool"] == NEW


def test_nothing_is_removed_that_nobody_named(host: FakeHost) -> None:
    put(host, packages={"tool": ["ii", OLD]}, offered={"other": ["2"]})
    wanted = spec("", packages={"other": "2"})
    change = KIND.compare(wanted, host)
    assert change is not None
    with pytest.raises(ResourceError, match="would remove tool"):
        KIND.apply(wanted, change, host)
    assert versions(host) == {"tool": OLD}
    converge(KIND, {**wanted, "without": ["tool"]}, host)
    assert versions(host) == {"other": "2"}


def test_versions_do_not_change_under_a_process(host: FakeHost) -> None:
    converge(KIND, spec(OLD), host)
    offers(host, tool=[NEW], libtool=[NEW])
    folder = Path(host.path("/proc/4711/fd"))
    folder.mkdir(parents=True)
    host.put("/proc/4711/comm", "train\n")
    (folder / "7").symlink_to("/dev/nvidia-uvm")
    (folder / "8").symlink_to("/dev/null")
    wanted = spec(NEW, idle=["/dev/nvidia-uvm"])
    change = KIND.compare(wanted, host)
    assert change is not None
    with pytest.raises(ResourceError, match=r"train \(4711\) have /dev/nvidia-uvm open") as caught:
        KIND.apply(wanted, change, host)
    assert "Drain" in caught.value.remedy
    assert versions(host)["tool"] == OLD
    (folder / "7").unlink()
    assert holders.holders(host, ["/dev/nvidia-uvm"]) == []
    KIND.undo(wanted, change, host)
    assert versions(host)["tool"] == OLD
    KIND.apply(wanted, change, host)
    assert versions(host)["tool"] == NEW


def test_undo_gives_holds_back(host: FakeHost) -> None:
    converge(KIND, spec(OLD), host)
    change = converge(KIND, spec(OLD, hold=False), host)
    assert change is not None and change.action == "update"
    KIND.undo(spec(OLD, hold=False), change, host)
    assert world(host)["packages"]["tool"] == ["hi", OLD]


def test_nothing_known_says_what_and_where(host: FakeHost) -> None:
    wanted = spec("9", packages={"tool": "9"})
    change = KIND.compare(wanted, host)
    assert change is not None
    with pytest.raises(ResourceError, match="tool=9 cannot be installed: Version '9' for 'tool'"):
        KIND.apply(wanted, change, host)


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"packages": {}}, "packages is empty"),
        ({"packages": {"a b": ""}}, "no name of a package"),
        ({"packages": {"-tool": ""}}, "no name of a package"),
        ({"packages": {"tool": "1 2"}}, "version of tool"),
        ({"packages": {"tool": 5}}, "version of tool"),
        ({"packages": {"tool": "*1"}}, "version of tool"),
        ({"without": ["tool"]}, "tool is wanted and unwanted"),
    ],
)
def test_mistakes(values: dict[str, Any], mistake: str) -> None:
    (found,) = KIND.check(spec(OLD, **values))
    assert mistake in found


def test_a_simulation_of_apt_is_read() -> None:
    text = """\
NOTE: This is only a simulation!
Remv nvidia-kernel-dkms [550.163.01-2]
Inst libcuda1 [550.163.01-2] (550.163.01-4~bpo13+1 Debian Backports:stable-backports [amd64]) []
Inst dkms (3.2.2-1~deb13u1 Debian:13.1/stable [all])
Inst libc6:i386 [2.41-1] (2.41-2 Debian:13/stable [i386])
Conf dkms (3.2.2-1~deb13u1 Debian:13.1/stable [all])
"""
    assert parse_simulation(text) == [
        Planned("nvidia-kernel-dkms", "550.163.01-2", ""),
        Planned("libcuda1", "550.163.01-2", "550.163.01-4~bpo13+1"),
        Planned("dkms", "", "3.2.2-1~deb13u1"),
        Planned("libc6", "2.41-1", "2.41-2"),
    ]


@given(st.text(alphabet="0123456789.-+~*", max_size=8), st.text(alphabet="0123456789.-+~", max_size=8))
def test_a_star_stands_for_any_rest(head: str, rest: str) -> None:
    head = head.replace("*", "")
    assert matches(head + rest, head + "*")
    assert matches(head, head)
    assert matches(head, head + rest) == (not head + rest or not rest)
