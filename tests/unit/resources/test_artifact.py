# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``artifact``, from a mirror that may be wrong, slow or gone."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import tarfile
import threading
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import backup
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._unpack import select
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

if t.TYPE_CHECKING:
    from tests.unit.conftest import Mirror, Sandbox

Spec = dict[str, t.Any]
DATA = b"\x7fELF tool " * 1000


def tool(offer: Spec, **more: t.Any) -> Spec:
    return {"kind": "artifact", "id": "a", "path": "/opt/tool", **offer, **more}


def tar(*members: tuple[str, t.Any], mode: str = "w:gz") -> bytes:
    """Return an archive; a member is a name with bytes (a file), or with a TarInfo's attributes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, what in members:
            info = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                info.size, info.mode = len(what), 0o755 if name.endswith("x") else 0o640
                archive.addfile(info, io.BytesIO(what))
            else:
                for key, value in what.items():
                    setattr(info, key, value)
                archive.addfile(info)
    return buffer.getvalue()


def unfinished(sandbox: Sandbox) -> list[Path]:
    return list(sandbox.root.rglob(".ironspan-*"))


def test_fetch_and_drift(sandbox: Sandbox, mirror: Mirror) -> None:
    given = tool(mirror.offer("/t", DATA))
    assert sandbox.changed(given) == ["a"]
    path = sandbox.root / "opt/tool"
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o755
    assert sandbox.changed(given) == []
    # Same size and time: only the change time tells, and the digest.
    status = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"X")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    changes = sandbox.run(given)["changes"]
    assert changes[0]["before"] == {"sha256": hashlib.sha256(b"X" + DATA[1:]).hexdigest()}
    assert path.read_bytes() == DATA
    path.chmod(0o644)
    assert sandbox.run(given)["changes"][0]["before"] == {"mode": "0644"}
    path.unlink()
    assert sandbox.changed(given) == ["a"]
    assert path.read_bytes() == DATA


def test_what_matches_is_neither_fetched_nor_read_again(
    sandbox: Sandbox, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tool(mirror.offer("/t", DATA))
    sandbox.put("opt/tool", DATA, 0o755)
    (mirror.folder / "t").unlink()
    assert sandbox.changed(given) == [], "a binary that was there already is adopted"
    monkeypatch.setattr(files, "sha256_of", lambda _: pytest.fail("hashed again"))
    assert sandbox.changed(given) == []
    monkeypatch.undo()
    os.utime(sandbox.root / "opt/tool")
    assert sandbox.changed(given) == [], "touched, hashed once, the same"


def test_a_wrong_byte_is_refused(sandbox: Sandbox, mirror: Mirror) -> None:
    given = tool(mirror.offer("/t", DATA))
    wrong = b"Y" + DATA[1:]
    (mirror.folder / "t").write_bytes(wrong)
    sandbox.put("opt/tool", b"former", 0o755)
    before = sandbox.snapshot()
    result = sandbox.run(given)
    assert result["failed_resource"] == "l/a"
    for part in (f"{mirror.url}/t", hashlib.sha256(DATA).hexdigest(), hashlib.sha256(wrong).hexdigest()):
        assert part in result["msg"]
    assert "ironspan artifacts verify" in result["remedy"]
    assert sandbox.snapshot() == before
    assert unfinished(sandbox) == []


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        ({"size": len(DATA) - 1}, f"has the wrong size: wanted {len(DATA) - 1} bytes", "artifacts verify"),
        ({"size": len(DATA) + 1}, f"got {len(DATA)} bytes", "artifacts verify"),
        ({"size": 1 << 60}, "bytes free", "Make room"),
        ({"url_path": "/missing"}, "the mirror answers 404", "ironspan artifacts build"),
    ],
)
def test_refusals(sandbox: Sandbox, mirror: Mirror, change: Spec, message: str, remedy: str) -> None:
    before = sandbox.snapshot()
    result = sandbox.run(tool({**mirror.offer("/t", DATA), **change}))
    assert message in result["msg"]
    assert remedy in result["remedy"]
    assert sandbox.snapshot() == before
    assert unfinished(sandbox) == []


def test_the_size_is_required(sandbox: Sandbox, mirror: Mirror) -> None:
    """Without it a mirror could fill the disk before the digest is seen to be wrong."""
    given = tool(mirror.offer("/t", DATA))
    del given["size"]
    assert "l/a: kind artifact needs the parameter 'size'" in sandbox.run(given)["msg"]
    assert "size must be the file's bytes" in sandbox.run({**given, "size": -1})["msg"]


def test_no_byte_more_is_written_than_the_size_says(
    sandbox: Sandbox, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tool(mirror.offer("/t", DATA * 1000))
    written: list[int] = []
    write = files.write_all

    def watched(descriptor: int, data: bytes) -> None:
        if bytes(data[:1]) == DATA[:1]:
            written.append(len(data))
        write(descriptor, data)

    monkeypatch.setattr(files, "write_all", watched)
    result = sandbox.run({**given, "size": len(DATA)})
    assert f"wanted {len(DATA)} bytes, got more than {len(DATA)} bytes" in result["msg"]
    assert sum(written) <= len(DATA)
    assert unfinished(sandbox) == []


@pytest.mark.parametrize(
    ("address", "message"), [("", "no mirror was given"), ("file:///", "no address of a mirror")]
)
def test_mirrors_that_are_none(sandbox: Sandbox, mirror: Mirror, address: str, message: str) -> None:
    assert message in sandbox.run(tool(mirror.offer("/t", DATA)), mirror=address)["msg"]


def serve(*answers: bytes) -> str:
    """Answer one connection after the other with these bytes, then close; return the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()
        listener.close()

    threading.Thread(target=work, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(DATA)
CUT = HEAD + DATA[:100]
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("first", [CUT, BUSY, b"", b"rubbish\r\n\r\n"])
def test_another_attempt_begins_from_the_start(
    sandbox: Sandbox, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    given = tool(mirror.offer("/t", DATA))
    assert sandbox.changed(given, mirror=serve(first, first, HEAD + DATA)) == ["a"]
    assert (sandbox.root / "opt/tool").read_bytes() == DATA


def test_three_attempts_are_enough(sandbox: Sandbox, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    result = sandbox.run(tool(mirror.offer("/t", DATA)), mirror=serve(CUT, CUT, CUT, HEAD + DATA))
    assert "/t: " in result["msg"]
    assert "reaches it" in result["remedy"]
    assert unfinished(sandbox) == []


def test_unpack_and_drift(sandbox: Sandbox, mirror: Mirror) -> None:
    link = {"type": tarfile.SYMTYPE, "linkname": "onex"}
    folder = {"type": tarfile.DIRTYPE, "mode": 0o755}
    data = tar(("top", folder), ("top/bin/onex", b"1"), ("top/two", b"22"), ("top/bin/alias", link))
    given = {**tool(mirror.offer("/b", data)), "path": "/opt/b", "unpack": "tar", "strip": 1}
    assert sandbox.changed(given) == ["a"]
    base = sandbox.root / "opt/b"
    assert (base / "bin/onex").stat().st_mode & 0o777 == 0o755
    assert (base / "two").stat().st_mode & 0o777 == 0o644
    assert str((base / "bin/alias").readlink()) == "onex"
    good = sandbox.snapshot()
    assert sandbox.changed(given) == []
    alias = base / "bin/alias"

    def replace(text: str | None) -> None:
        alias.unlink()
        if text is None:
            alias.symlink_to("x")
        else:
            alias.write_text(text)

    drifts: list[tuple[Callable[[], object], dict[str, str]]] = [
        (lambda: (base / "two").write_bytes(b"23"), {"two": "sha256 " + hashlib.sha256(b"23").hexdigest()}),
        (lambda: (base / "bin/onex").unlink(), {"bin/onex": "absent"}),
        (lambda: (base / "bin/onex").chmod(0o700), {"bin/onex": "mode 0700"}),
        (lambda: replace(""), {"bin/alias": "file"}),
        (
            lambda: replace(None),
            {"bin/alias": "link to x"},
        ),
    ]
    for drift, found in drifts:
        drift()
        (change,) = sandbox.run(given)["changes"]
        assert change["before"] == {"members": found}
        assert sandbox.snapshot() == good


def test_members_are_chosen_and_others_left_alone(sandbox: Sandbox, mirror: Mirror) -> None:
    data = tar(("b/onex", b"1"), ("b/twox", b"2"), ("readme", b"r"), mode="w:xz")
    given = {
        **tool(mirror.offer("/b", data)),
        "path": "/opt",
        "unpack": "tar",
        "strip": 1,
        "members": ["onex"],
    }
    sandbox.put("opt/mine", "stays")
    assert sandbox.changed(given) == ["a"]
    assert sorted(path.name for path in (sandbox.root / "opt").iterdir()) == ["mine", "onex"]
    assert sandbox.changed({**given, "members": ["onex", "twox"]}) == ["a"]
    assert sandbox.changed({**given, "members": ["twox"]}) == ["a"]
    assert sorted(path.name for path in (sandbox.root / "opt").iterdir()) == ["mine", "twox"]
    result = sandbox.run({**given, "members": ["three"]})
    assert "the archive has no three" in result["msg"]
    assert sorted(path.name for path in (sandbox.root / "opt").iterdir()) == ["mine", "twox"]


def test_an_upgrade_and_its_rollback(
    sandbox: Sandbox, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "LINK_ABOVE_BYTES", 10)
    old = mirror.offer("/1", tar(("onex", b"1" * 20), ("gone", b"g"), ("deep/file", b"f")))
    new = mirror.offer("/2", tar(("onex", b"2" * 20), ("freshx", b"n"), ("deeper/file", b"f")))
    given = {**tool(old), "path": "/opt/b", "unpack": "tar"}
    sandbox.changed(given)
    before = sandbox.snapshot()
    upgrade = {**given, **new}
    failing = {
        "kind": "symlink",
        "id": "z",
        "path": "/opt/b/onex/deep/link",
        "target": "x",
        "requires": ["l/a"],
    }
    result = sandbox.run(upgrade, failing)
    assert result["failed_resource"] == "l/z", result
    assert sandbox.snapshot() == before
    assert sandbox.changed(given) == []
    assert sandbox.changed(upgrade) == ["a"]
    assert not (sandbox.root / "opt/b/gone").exists()
    assert (sandbox.root / "opt/b/onex").read_bytes() == b"2" * 20


def test_no_archive(sandbox: Sandbox, mirror: Mirror) -> None:
    for data in (b"no archive", tar(("a", b"x" * 5000))[:-40]):
        given = {**tool(mirror.offer("/b", data)), "path": "/opt/b", "unpack": "tar"}
        before = sandbox.snapshot()
        assert "/b cannot be unpacked" in sandbox.run(given)["msg"]
        assert sandbox.snapshot() == before


EVIL = [
    (("/etc/passwd", b""), "has an absolute name"),
    (("../x", b""), "points out of its folder"),
    (("a/../../x", b""), "points out of its folder"),
    (("a/..", b""), "points out of its folder"),
    (("dev", {"type": tarfile.CHRTYPE}), "is a device or pipe"),
    (("pipe", {"type": tarfile.FIFOTYPE}), "is a device or pipe"),
    (("l", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}), "is a link out of its folder"),
    (("l", {"type": tarfile.SYMTYPE, "linkname": "../x"}), "is a link out of its folder"),
    (("a/l", {"type": tarfile.SYMTYPE, "linkname": "../../x"}), "is a link out of its folder"),
]


@pytest.mark.parametrize(("member", "message"), EVIL)
def test_evil_archives_are_refused_whole(
    sandbox: Sandbox, mirror: Mirror, member: tuple[str, t.Any], message: str
) -> None:
    given = {**tool(mirror.offer("/b", tar(("good", b"g"), member))), "path": "/opt/b", "unpack": "tar"}
    before = sandbox.snapshot()
    assert message in sandbox.run(given)["msg"]
    assert sandbox.snapshot() == before


def test_a_link_in_the_folder_does_not_lead_out(sandbox: Sandbox, mirror: Mirror) -> None:
    """The archive is harmless, but somebody put a link where it wants a folder."""
    sandbox.put("etc/secret/keep", "k")
    (sandbox.root / "opt/b").mkdir()
    (sandbox.root / "opt/b/sub").symlink_to("../../etc/secret")
    given = {**tool(mirror.offer("/b", tar(("sub/keep", b"evil")))), "path": "/opt/b", "unpack": "tar"}
    result = sandbox.run(given)
    assert "/opt/b/sub leads out of /opt/b" in result["msg"]
    assert sandbox.read("etc/secret/keep") == "k"


def test_a_link_of_the_archive_is_not_followed_by_its_next_member(sandbox: Sandbox, mirror: Mirror) -> None:
    link = {"type": tarfile.SYMTYPE, "linkname": "inner"}
    data = tar(("inner/x", b"1"), ("link", link), ("link/x", b"2"))
    given = {**tool(mirror.offer("/b", data)), "path": "/opt/b", "unpack": "tar"}
    sandbox.run(given)
    outside = [path for path in sandbox.root.rglob("x") if "opt/b" not in str(path)]
    assert outside == []


def test_hard_links_become_files(sandbox: Sandbox, mirror: Mirror) -> None:
    data = tar(("onex", b"1"), ("twox", {"type": tarfile.LNKTYPE, "linkname": "onex", "mode": 0o755}))
    given = {**tool(mirror.offer("/b", data)), "path": "/opt/b", "unpack": "tar"}
    sandbox.changed(given)
    assert (sandbox.root / "opt/b/twox").read_bytes() == b"1"
    assert sandbox.changed(given) == []


NAME = st.lists(st.sampled_from(["..", ".", "", "a", "b", "..."]), min_size=1, max_size=5).map("/".join)


@given(NAME, st.integers(0, 3), st.none() | NAME)
def test_nothing_leads_out(name: str, strip: int, target: str | None) -> None:
    what: t.Any = b"x" if target is None else {"type": tarfile.SYMTYPE, "linkname": target}
    with tarfile.open(fileobj=io.BytesIO(tar((name, what), mode="w"))) as archive:
        try:
            members = select(archive, strip, [])
        except ResourceError:
            return
    for member in members:
        assert os.path.normpath(member.path) == member.path
        assert not member.path.startswith(("/", "../"))
        reached = os.path.normpath(f"/base/{os.path.split(member.path)[0]}/{member.target or 'a'}")
        assert reached == "/base" or reached.startswith("/base/")


def test_what_is_remembered_holds_no_more_than_needed(sandbox: Sandbox, mirror: Mirror) -> None:
    sandbox.changed(tool(mirror.offer("/t", DATA)))
    state = json.loads(sandbox.read("var/lib/ironspan/state.json"))
    assert set(state["notes"]["l/a"]) == {"sha256", "signature", "url_path"}
    assert "text" not in state["notes"]["l/a"]
