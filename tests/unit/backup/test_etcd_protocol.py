# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The messages are etcd's: the code is what the .proto gives, and the .proto is what etcd's own says."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from tools import protocol

MESSAGE = re.compile(r"^\s*(message|enum|oneof)\s+(\w+)\s*\{")
FIELD = re.compile(r"^\s*((?:repeated\s+)?[\w.]+)\s+(\w+)\s*=\s*(\d+)\s*(?:\[.*\])?;")
VALUE = re.compile(r"^\s*(\w+)\s*=\s*(-?\d+)\s*(?:\[.*\])?;")
MODULES = "pkg/mod/go.etcd.io/etcd/api"


def fields(text: str) -> dict[str, str]:
    """Return every field and enum value of a .proto file: ``Message.field`` and ``number type``."""
    found: dict[str, str] = {}
    path: list[str] = []
    for line in re.sub(r"//[^\n]*", "", text).splitlines():
        opened = MESSAGE.match(line)
        if opened and not line.rstrip().endswith("}"):
            path.append("" if opened[1] == "oneof" else opened[2])
        elif field := FIELD.match(line):
            kind = field[1].replace("mvccpb.", "")
            found[".".join([*filter(None, path), field[2]])] = f"{field[3]} {kind}"
        elif value := VALUE.match(line):
            found[".".join([*filter(None, path), value[1]])] = value[2]
        elif line.strip() == "}" and path:
            path.pop()
    return found


def test_the_generated_code_is_fresh() -> None:
    stale = [
        str(path) for path, text in protocol.generated().items() if (protocol.ROOT / path).read_text() != text
    ]
    assert not stale, "run python -m tools.protocol"


def etcd_modules() -> list[pathlib.Path]:
    folder = pathlib.Path(os.environ.get("GOPATH") or pathlib.Path.home() / "go") / MODULES
    return sorted(folder.glob("v3@*"))


@pytest.mark.parametrize("module", etcd_modules() or [None], ids=lambda path: path.name if path else "none")
def test_every_field_has_etcds_number_and_type(module: pathlib.Path | None) -> None:
    if module is None:
        pytest.skip("etcd's API module is not in the Go module cache of this machine")
    etcd: dict[str, str] = {}
    for name in ("etcdserverpb/rpc.proto", "mvccpb/kv.proto"):
        etcd |= fields((module / name).read_text())
    ours = fields((protocol.ROOT / protocol.SOURCE).read_text())
    assert len(ours) > 100
    assert not {name: text for name, text in ours.items() if etcd.get(name) != text}


def test_the_comparison_sees_a_wrong_number() -> None:
    text = (protocol.ROOT / protocol.SOURCE).read_text()
    assert fields(text.replace("repeated Event events = 11", "repeated Event events = 12")) != fields(text)
    assert fields(text)["WatchResponse.events"] == "11 repeated Event"
    assert fields(text)["Compare.lease"] == "8 int64"
    assert fields(text)["AlarmType.CORRUPT"] == "2"
