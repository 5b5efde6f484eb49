# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``user``, with stand-ins for useradd and its family that edit the private root's files."""

from __future__ import annotations

import typing as t

import pytest

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

FAMILY = r"""#!/usr/bin/env python3
import os, sys
root = os.environ["IRONSPAN_ROOT"]
program, name, args = os.path.basename(sys.argv[0]), sys.argv[-1], sys.argv[1:-1]
with open(root + "/run/accounts", "a") as log:
    print(program, *sys.argv[1:], file=log)
option = lambda key, other: args[args.index(key) + 1] if key in args else other
def load(path):
    return [line.split(":") for line in open(root + path).read().splitlines()]
def store(path, lines):
    open(root + path, "w").write("".join(":".join(line) + "\n" for line in lines))
users, groups = load("/etc/passwd"), load("/etc/group")
number = lambda group: next(line[2] for line in groups if line[0] == group)
if name == "unwanted":
    sys.exit("useradd: refused")
if program == "groupadd":
    groups.append([name, "x", option("--gid", "901"), ""])
elif program == "groupdel":
    groups = [line for line in groups if line[0] != name]
elif program == "useradd":
    home, shell = option("--home-dir", "/"), option("--shell", "/bin/sh")
    users.append([name, "x", option("--uid", "900"), number(option("--gid", name)), "", home, shell])
elif program == "userdel":
    users = [line for line in users if line[0] != name]
elif program == "usermod":
    line = next(line for line in users if line[0] == name)
    line[2], line[5] = option("--uid", line[2]), option("--home", line[5])
    line[6] = option("--shell", line[6])
    line[3] = number(option("--gid", "")) if "--gid" in args else line[3]
store("/etc/passwd", users)
store("/etc/group", groups)
"""

USER: dict[str, t.Any] = {"kind": "user", "id": "u", "name": "etcd", "home": "/var/lib/etcd"}
FAILING = {
    "kind": "artifact",
    "id": "z",
    "path": "/opt/x",
    "url_path": "/none",
    "sha256": "0" * 64,
    "size": 1,
}


@pytest.fixture
def host(sandbox: Sandbox) -> Sandbox:
    """A host with root, a group of its own, and a service that is not quite right."""
    for name in ("useradd", "userdel", "usermod", "groupadd", "groupdel"):
        sandbox.put(f"usr/local/ironspan-test-bin/{name}", FAMILY, 0o755)
    sandbox.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nold:x:50:60::/srv:/bin/sh\n")
    sandbox.put("etc/group", "root:x:0:\nold:x:60:\nothers:x:61:\n")
    return sandbox


def calls(host: Sandbox) -> list[str]:
    path = host.root / "run/accounts"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_create(host: Sandbox) -> None:
    assert host.changed({**USER, "uid": 777}) == ["u"]
    assert calls(host) == [
        "groupadd --system --gid 777 etcd",
        "useradd --no-user-group --no-create-home --gid etcd --shell /usr/sbin/nologin --system"
        " --home-dir /var/lib/etcd --uid 777 etcd",
    ]
    assert "etcd:x:777:777::/var/lib/etcd:/usr/sbin/nologin" in host.read("etc/passwd")
    assert host.changed({**USER, "uid": 777}) == []
    assert calls(host) == []


def test_an_existing_group_is_used(host: Sandbox) -> None:
    assert host.changed({**USER, "group": "others"}) == ["u"]
    assert [line.split()[0] for line in calls(host)] == ["useradd"]


@pytest.mark.parametrize(
    ("more", "before"),
    [
        ({"shell": "/bin/sh", "home": "/srv"}, None),
        ({"home": "/srv"}, {"shell": "/bin/sh"}),
        ({"shell": "/bin/sh", "home": "/new"}, {"home": "/srv"}),
        ({"shell": "/bin/sh", "home": "/srv", "uid": 51}, {"uid": 50}),
        ({"shell": "/bin/sh", "home": "/srv", "group": "others"}, {"group": "old"}),
    ],
)
def test_update_and_rollback(host: Sandbox, more: dict[str, t.Any], before: dict[str, t.Any] | None) -> None:
    given = {"kind": "user", "id": "u", "name": "old", **more}
    former = host.read("etc/passwd"), host.read("etc/group")
    planned = host.run(given, check=True)["changes"]
    assert [entry["before"] for entry in planned] == ([before] if before else [])
    assert host.run(given, FAILING)["failed"]
    assert (host.read("etc/passwd"), host.read("etc/group")) == former
    assert len(host.changed(given)) == len(planned)
    assert host.changed(given) == []


def test_a_rollback_removes_only_what_was_made(host: Sandbox) -> None:
    former = host.read("etc/passwd"), host.read("etc/group")
    for given in (USER, {**USER, "group": "others"}, {**USER, "group": "fresh"}):
        assert host.run(given, FAILING)["failed_resource"] == "l/z"
        assert (host.read("etc/passwd"), host.read("etc/group")) == former


def test_a_half_made_account_is_removed(host: Sandbox) -> None:
    former = host.read("etc/passwd"), host.read("etc/group")
    result = host.run({**USER, "name": "unwanted", "group": "fresh"})
    assert "useradd: refused" in result["msg"]
    assert (host.read("etc/passwd"), host.read("etc/group")) == former


def test_files_of_a_new_user_can_be_planned(host: Sandbox) -> None:
    owned = {
        "kind": "directory",
        "id": "d",
        "path": "/srv",
        "owner": "etcd",
        "group": "etcd",
        "requires": ["l/u"],
    }
    (host.root / "srv").mkdir()
    planned = host.run(USER, owned, check=True)
    assert [entry["resource"] for entry in planned["changes"]] in (["l/u", "l/d"], ["l/u"])
    assert host.changed(USER, owned) == [entry["resource"][2:] for entry in planned["changes"]]


def test_machine_programs_are_never_run_from_a_private_root(sandbox: Sandbox) -> None:
    sandbox.put("etc/passwd", "")
    sandbox.put("etc/group", "")
    result = sandbox.run(USER)
    assert "groupadd acts on the whole machine" in result["msg"]
