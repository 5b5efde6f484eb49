# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The messages are etcd's: the code is what the .proto gives, and the .proto is what etcd's own says."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping

import pytest

from ironspan.artifacts import lock_file, toolchain
from tools import protocol

MESSAGE = re.compile(r"^\s*(message|enum|oneof)\s+(\w+)\s*\{")
FIELD = re.compile(r"^\s*((?:repeated\s+)?[\w.]+)\s+(\w+)\s*=\s*(\d+)\s*(?:\[.*\])?;")
VALUE = re.compile(r"^\s*(\w+)\s*=\s*(-?\d+)\s*(?:\[.*\])?;")


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


def locked_versions() -> list[str]:
    """Return the versions of etcd's API that the components of the lock file are built with."""
    found: set[str] = set()
    for component in lock_file.load().components.values():
        if any(module.startswith("go.etcd.io/etcd/") for module in component.modules):
            text = (toolchain.GOMODS / component.name / "go.mod").read_text(encoding="utf-8")
            found |= set(re.findall(r"^\s*go\.etcd\.io/etcd/api/v3 (v\S+)", text, re.MULTILINE))
    return sorted(found)


def module_cache(variables: Mapping[str, str]) -> pathlib.Path:
    """Return Go's module cache, as `go env GOMODCACHE` finds it without a file of settings."""
    if named := variables.get("GOMODCACHE"):
        return pathlib.Path(named)
    first = variables.get("GOPATH", "").split(os.pathsep)[0]
    return pathlib.Path(first or pathlib.Path.home() / "go") / "pkg/mod"


def test_the_lock_file_says_which_etcd() -> None:
    assert len(locked_versions()) >= 2


def test_the_module_cache_is_where_go_has_it(tmp_path: pathlib.Path) -> None:
    assert module_cache({}) == pathlib.Path.home() / "go/pkg/mod"
    assert module_cache({"GOPATH": "/a:/b"}) == pathlib.Path("/a/pkg/mod")
    assert module_cache({"GOPATH": "/a", "GOMODCACHE": "/c"}) == pathlib.Path("/c")


@pytest.mark.parametrize("version", locked_versions())
def test_every_field_has_etcds_number_and_type(version: str) -> None:
    # The cache is the user's: what other builds brought says nothing about this project.
    module = module_cache(os.environ) / f"go.etcd.io/etcd/api/v3@{version}"
    if not module.is_dir():
        pytest.skip(f"{module} is not there: `ironspan artifacts build --source go` brings it")
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
