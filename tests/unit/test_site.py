# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: navigation by task, links, and the whole build."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from tests.support.playbooks import ROOT
from tools import site


def pages(entries: list[t.Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += pages(value) if isinstance(value, list) else [value]
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = site.navigation((ROOT / "docs" / "index.md").read_text())
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    roles = [f"roles/{path.parent.name}.md" for path in ROOT.glob("roles/*/README.md")]
    assert sorted(pages(navigation)) == sorted([*there, *roles])
    # By task: the rows of the table of guides.
    assert [next(iter(entry)) for entry in navigation][:3] == ["Overview", "Build and change", "Hosts"]


def test_the_index_leads_to_every_role() -> None:
    led = re.findall(r"\]\(\.\./roles/([a-z_]+)/README\.md\)", (ROOT / "docs" / "index.md").read_text())
    assert sorted(led) == sorted(path.parent.name for path in ROOT.glob("roles/*/README.md"))


@pytest.mark.parametrize(
    ("text", "folder", "made"),
    [
        ("[a](../roles/awx/README.md#x)", "", "[a](roles/awx.md#x)"),
        ("[a](../../docs/events.md)", "roles/", "[a](../events.md)"),
        ("[a](../Makefile), `[b, c]`", "", "a, `[b, c]`"),
        ("[a](events.md)", "", "[a](events.md)"),
        ("[a](desired.yml.j2)", "roles/", "a"),
        ("[a](../base/README.md)", "roles/", "[a](../roles/base.md)"),
    ],
)
def test_links_out_of_the_folder_lead_to_pages_or_are_text(text: str, folder: str, made: str) -> None:
    assert site.page(text, folder) == made


@pytest.mark.long
def test_the_site_is_built_and_a_dead_link_fails(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["site", str(tmp_path / "site")])
    assert site.main() == 0
    assert (tmp_path / "site" / "search" / "search_index.json").is_file()
    for name in ("index", "events", "roles/awx", "reference/commands"):
        text = (tmp_path / "site" / f"{name}.html").read_text()
        assert 'src="http' not in text and 'rel="stylesheet" href="http' not in text
    monkeypatch.setattr(site, "page", lambda text, folder: text + "\n[dead](nowhere.md)\n")
    assert site.main() != 0
