# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The example of a kind in docs/contributing.md is one."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change, Field

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

PAGE = Path(__file__).parents[3] / "docs/contributing.md"
BANNER: dict[str, t.Any] = {"kind": "banner", "id": "b", "path": "/etc/motd", "line": "hello"}


@pytest.fixture
def box(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """A sandbox whose engine has the kind."""
    (source,) = re.findall(r"## A new resource kind\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, t.Any] = {"Change": Change, "Field": Field, "files": files, "paths": paths}
    exec(source, names)
    monkeypatch.setattr(_resources, "NAMES", (*_resources.NAMES, "banner"))
    monkeypatch.setitem(_resources._loaded, "banner", names["KIND"])
    return sandbox


def test_it_does_what_the_page_says(box: Sandbox) -> None:
    assert box.changed(BANNER) == ["b"]
    assert box.read("etc/motd") == "hello"
    assert box.changed(BANNER) == []
    box.put("etc/motd", "altered")
    assert box.run(BANNER, check=True)["changes"][0]["before"] == {"line": "altered"}
    assert "line must be one line" in box.run({**BANNER, "line": "a\nb"})["msg"]
    fails = {"kind": "systemd_unit", "id": "u", "name": "nothing", "requires": ["l/b"]}
    assert box.run(BANNER, fails)["rolled_back"]
    assert box.read("etc/motd") == "altered"
    assert box.changed(BANNER) == ["b"]
    assert box.changed(document=box.document(prunes=["l"])) == ["b-removed"]
    assert not (box.root / "etc/motd").exists()
