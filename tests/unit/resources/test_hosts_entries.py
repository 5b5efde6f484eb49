# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``hosts_entries``: every byte outside the block stays."""

from __future__ import annotations

import errno
import os
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.hosts_entries import with_block
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

BEGIN, END = b"# BEGIN ironspan l/h\n", b"# END ironspan l/h\n"

# Lines as editors, people and other tools leave them; the marks of others among them.
LINE = st.one_of(
    st.binary(max_size=12).filter(lambda data: b"\n" not in data),
    st.sampled_from(
        [b"127.0.0.1 localhost", b"# BEGIN ironspan other/h", b"# END ironspan other/h", b"\r", b"\xff"]
    ),
)
TEXT = st.tuples(st.lists(LINE), st.booleans()).map(lambda pair: b"\n".join(pair[0]) + b"\n" * pair[1])
BLOCK = st.lists(st.sampled_from([b"10.0.0.1 a\n", b"fd00::1 b c\n"]), min_size=1).map(b"".join)


@given(TEXT, BLOCK, BLOCK)
def test_every_other_byte_stays(text: bytes, block: bytes, other: bytes) -> None:
    added = with_block(text, "l/h", block)
    assert added.startswith(text)
    assert added[len(text) :] in (BEGIN + block + END, b"\n" + BEGIN + block + END)
    assert with_block(added, "l/h", block) == added
    changed = with_block(added, "l/h", other)
    assert changed == added.replace(BEGIN + block + END, BEGIN + other + END)
    removed = with_block(added, "l/h", b"")
    assert removed in (text, text + b"\n")
    assert with_block(text, "l/h", b"") == text


@given(TEXT, TEXT, BLOCK, BLOCK)
def test_a_block_in_the_middle_keeps_its_place(
    before: bytes, after: bytes, block: bytes, other: bytes
) -> None:
    before = before if not before or before.endswith(b"\n") else before + b"\n"
    text = before + BEGIN + block + END + after
    assert with_block(text, "l/h", other) == before + BEGIN + other + END + after
    assert with_block(text, "l/h", b"") == before + after


@pytest.mark.parametrize(
    "text",
    [BEGIN, END, END + BEGIN, BEGIN + BEGIN + END, BEGIN + END + BEGIN + END, BEGIN + END + END],
)
def test_marks_that_do_not_pair_are_refused(text: bytes) -> None:
    with pytest.raises(ResourceError, match="do not pair"):
        with_block(text, "l/h", b"10.0.0.1 a\n")


def test_the_last_mark_without_its_newline() -> None:
    assert with_block(BEGIN + END.rstrip(), "l/h", b"10.0.0.1 a\n") == BEGIN + b"10.0.0.1 a\n" + END


ENTRIES: dict[str, t.Any] = {
    "kind": "hosts_entries",
    "id": "h",
    "entries": [{"address": "10.0.0.1", "names": ["a", "a.lab"]}, {"address": "fd00::1", "names": ["b"]}],
}
TEXT_OF = "# BEGIN ironspan l/h\n10.0.0.1 a a.lab\nfd00::1 b\n# END ironspan l/h\n"


@pytest.mark.parametrize("there", [None, "", "127.0.0.1 localhost\n", "no newline"])
def test_through_the_engine(sandbox: Sandbox, there: str | None) -> None:
    if there is not None:
        sandbox.put("etc/hosts", there, 0o640)
    assert sandbox.changed(ENTRIES) == ["h"]
    separator = "\n" if there == "no newline" else ""
    assert sandbox.read("etc/hosts") == f"{there or ''}{separator}{TEXT_OF}"
    assert (sandbox.root / "etc/hosts").stat().st_mode & 0o777 == (0o644 if there is None else 0o640)
    assert sandbox.changed(ENTRIES) == []
    assert sandbox.changed({**ENTRIES, "entries": []}) == ["h"]
    assert sandbox.read("etc/hosts") == f"{there or ''}{separator}"
    assert sandbox.changed({**ENTRIES, "entries": []}) == []


def test_a_file_that_cannot_be_replaced_is_written_in_place(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers mount /etc/hosts as a single file: a rename onto it is refused."""
    path = sandbox.put("etc/hosts", "127.0.0.1 localhost\n" * 50)
    inode = path.stat().st_ino
    rename = os.rename

    def busy(source: str, target: str, **folders: int) -> None:
        if target == path.name:
            raise OSError(errno.EBUSY, "Device or resource busy")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", busy)
    assert sandbox.changed(ENTRIES) == ["h"]
    assert path.stat().st_ino == inode
    assert path.read_text().endswith(TEXT_OF)
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".ironspan")] == []
