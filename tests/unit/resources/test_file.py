# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``file``, through the engine."""

from __future__ import annotations

import os
import typing as t

import pytest

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

Spec = dict[str, t.Any]
PATH = "etc/a"


def spec(**more: t.Any) -> Spec:
    return {"kind": "file", "id": "a", "path": f"/{PATH}", "content": "text\n", **more}


def one(sandbox: Sandbox, given: Spec, **params: t.Any) -> dict[str, t.Any]:
    """Return the only change that a resource needs."""
    result = sandbox.run(given, **params)
    assert not result.get("failed"), result["msg"]
    (change,) = result["changes"]
    return t.cast("dict[str, t.Any]", change)


CASES = [
    ("absent", {}, "create", "does not exist", {"state"}),
    ("same", {}, None, "", set()),
    ("other", {}, "update", "content differ", {"sha256"}),
    ("other", {"force_replace": False}, None, "", set()),
    ("absent", {"force_replace": False}, "create", "does not exist", {"state"}),
    ("mode", {}, "update", "mode differ", {"mode"}),
    ("mode", {"force_replace": False}, "update", "mode differ", {"mode"}),
    ("link", {}, "update", "is a link", {"state", "target"}),
    ("link", {"force_replace": False}, None, "", set()),
    ("binary", {}, "update", "content differ", {"sha256"}),
    ("large", {}, "update", "content differ", {"sha256"}),
    ("longer", {}, "update", "content differ", {"sha256"}),
]


def prepare(sandbox: Sandbox, there: str) -> None:
    contents = {
        "same": b"text\n",
        "mode": b"text\n",
        "other": b"else\n",
        "binary": b"\xff\0\n",
        "longer": b"text\n\n",
    }
    if there in contents:
        sandbox.put(PATH, contents[there], 0o600 if there == "mode" else 0o644)
    elif there == "large":
        with sandbox.put(PATH, b"").open("wb") as stream:
            stream.truncate(1 << 30)
    elif there == "link":
        sandbox.put("etc/target", "text\n")
        (sandbox.root / PATH).symlink_to("target")


@pytest.mark.parametrize(("there", "more", "action", "reason", "before"), CASES)
def test_compare_and_apply(
    sandbox: Sandbox, there: str, more: Spec, action: str | None, reason: str, before: set[str]
) -> None:
    prepare(sandbox, there)
    planned = sandbox.run(spec(**more), check=True)["changes"]
    assert [entry["action"] for entry in planned] == ([action] if action else [])
    if action:
        assert reason in planned[0]["reason"]
        assert set(planned[0]["before"]) == before
        assert one(sandbox, spec(**more)) == planned[0]
        assert (sandbox.root / PATH).stat().st_mode & 0o7777 == 0o644
        if there != "mode":
            assert sandbox.read(PATH) == "text\n"
            assert not (sandbox.root / PATH).is_symlink()
    assert sandbox.changed(spec(**more)) == []


def test_the_target_of_a_link_is_not_written_through(sandbox: Sandbox) -> None:
    sandbox.put("etc/target", "mine\n")
    (sandbox.root / PATH).symlink_to("target")
    sandbox.changed(spec())
    assert sandbox.read("etc/target") == "mine\n"


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_is_in_the_way_is_refused(sandbox: Sandbox, what: str) -> None:
    if what == "folder":
        (sandbox.root / PATH).mkdir()
    else:
        os.mkfifo(sandbox.root / PATH)
    result = sandbox.run(spec())
    assert "/etc/a exists and is" in result["msg"]
    assert "Move it away" in result["remedy"]


def test_the_folder_must_be_there_or_declared(sandbox: Sandbox) -> None:
    inner = spec(path="/srv/new/deep/a")
    result = sandbox.run(inner)
    assert "the folder /srv/new/deep does not exist and the document does not make it" in result["msg"]
    assert "Declare a directory resource with path /srv/new/deep" in result["remedy"]
    folder = {"kind": "directory", "id": "f", "path": "/srv/new/deep"}
    assert sandbox.changed(inner, folder) == ["f", "a"]


def test_a_running_reader_keeps_its_version(sandbox: Sandbox) -> None:
    """Replaced by rename: whoever has the file open reads the former one to its end."""
    sandbox.put(PATH, "former\n")
    with (sandbox.root / PATH).open() as reader:
        sandbox.changed(spec())
        assert reader.read() == "former\n"


def test_only_owner_and_mode_keep_the_same_file(sandbox: Sandbox) -> None:
    sandbox.changed(spec())
    inode = (sandbox.root / PATH).stat().st_ino
    assert sandbox.changed(spec(mode="0600")) == ["a"]
    assert (sandbox.root / PATH).stat().st_ino == inode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_by_name_of_the_hosts_own_accounts(sandbox: Sandbox) -> None:
    sandbox.put("etc/passwd", "root:x:0:0::/:/bin/sh\nservice:x:4711:4712::/:/bin/sh\n")
    sandbox.put("etc/group", "root:x:0:\nservice:x:4712:\n")
    change = one(sandbox, spec(owner="service", group="service"))
    assert change["after"]["owner"] == "service"
    status = (sandbox.root / PATH).stat()
    assert (status.st_uid, status.st_gid) == (4711, 4712)
    assert sandbox.changed(spec(owner="4711", group="4712")) == []
    os.chown(sandbox.root / PATH, 0, 0)
    change = one(sandbox, spec(owner="service", group="service"))
    assert (change["before"], change["reason"]) == (
        {"owner": "root", "group": "root"},
        "owner and group differ",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_unknown_owner_is_named(sandbox: Sandbox) -> None:
    result = sandbox.run(spec(owner="nobody-here"))
    assert "there is no user 'nobody-here'" in result["msg"]
    assert "kind user" in result["remedy"]
    assert not (sandbox.root / PATH).exists()


@pytest.mark.parametrize("content", ["", "no newline", "ü\u2028\r\n", "\0"])
def test_contents(sandbox: Sandbox, content: str) -> None:
    sandbox.changed(spec(content=content))
    assert (sandbox.root / PATH).read_bytes() == content.encode()
    assert sandbox.changed(spec(content=content)) == []


def test_a_secret_is_shown_as_such(sandbox: Sandbox) -> None:
    given = {"kind": "file", "id": "a", "path": f"/{PATH}", "secret": "s", "mode": "0600"}
    assert one(sandbox, given, secrets={"s": "hush"})["after"]["content"] == "(secret)"
    change = one(sandbox, given, secrets={"s": "hush again"})
    assert change["before"] == {"content": "(another secret)"}
    assert change["after"] == {"content": "(secret)"}
    assert (sandbox.root / PATH).stat().st_mode & 0o777 == 0o600


def test_it_does_not_change_under_a_process(sandbox: Sandbox) -> None:
    processes = sandbox.root / "proc"
    for pid, name in (("4711", "train"), ("4712", "nvidia-cuda-mps")):
        sandbox.put(f"proc/{pid}/comm", f"{name}\n")
        (processes / pid / "fd").mkdir()
        (processes / pid / "fd" / "7").symlink_to("/dev/nvidia-uvm")
    wanted = spec(idle=["/dev/nvidia-uvm"])
    result = sandbox.run(wanted)
    # A server of MPS stays when its last client has ended: it is nobody who would have to end first.
    assert "does not change while train (4711) have /dev/nvidia-uvm open" in result["msg"]
    assert not (sandbox.root / PATH).exists()
    (processes / "4711" / "fd" / "7").unlink()
    one(sandbox, wanted)
    assert (sandbox.root / PATH).read_text() == "text\n"
