# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A new program as docs/contributing.md writes it out: packed, installed by its role, started, asked, ended.

What is real: the pack, the launcher, the role's document, the engine on a host that is a folder, the process
and its answers. systemd is a stand-in; the unit's own lines are started in its place.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
import yaml

from ironspan.artifacts import environments, wheels
from ironspan.lab.ports import free_port
from tests.support.playbooks import ROOT
from tests.support.recipes import files_of
from tests.support.small_plays import mirror_index
from tests.support.stand_ins import SYSTEMCTL
from tests.unit.conftest import Mirror
from tests.unit.layers.test_new_layer import RESET, House, converging

FILES = files_of("A new program")
LOCK = yaml.safe_load(FILES["artifacts.lock.yml"])
ROLE = "roles/sweeper/"
WHEEL = "prometheus_client-0.26.0-py3-none-any.whl"


def packed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Pack the program as `ironspan artifacts` does, with the wheel that it needs."""
    tree = folder / "tree"
    (tree / "ironspan" / "sweeper").mkdir(parents=True)
    for name in ("collections", "ironspan/program", "ironspan/__init__.py"):
        (tree / name).symlink_to(ROOT / name)
    (tree / "ironspan/sweeper/__init__.py").write_text("")
    (tree / "ironspan/sweeper/main.py").write_text(FILES["ironspan/sweeper/main.py"])
    source = Path(prometheus_client.__file__).parent
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for path in source.rglob("*.py"):
            archive.write(path, f"prometheus_client/{path.relative_to(source)}")
    ((name, entry),) = LOCK["environments"].items()
    monkeypatch.setattr(environments, "ROOT", tree)
    environment = environments.Environment(
        name, entry["module"], tuple(entry["packages"]), entry["extra"], tuple(entry["pythons"]), ()
    )
    wheels.pack(environment, [folder / WHEEL], folder / "packed")
    return (folder / "packed").read_bytes()


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The machine may name a proxy for everything."""


class Installed(t.NamedTuple):
    """The program on a host: its house, the host's root, and where it answers."""

    house: House
    root: Path
    port: int

    def lines(self) -> dict[str, str]:
        """Return what the unit's section Service says."""
        unit = (self.root / "etc/systemd/system/ironspan-sweeper.service").read_text()
        return dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))

    def command(self, name: str) -> list[str]:
        """Return a command of the unit, for a host below a folder, with nothing of this machine's Python."""
        program, *arguments = self.lines()[name].lstrip("+").split()
        return [sys.executable, "-I", "-S", f"{self.root}{program}", *arguments]


@pytest.fixture
def installed(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Install it by its role."""
    ((file, places),) = LOCK["files"].items()
    offered = mirror.offer(places["path"].format(arch="amd64"), packed(tmp_path, monkeypatch))
    entry = {"path": offered["url_path"], "sha256": offered["sha256"], "size": offered["size"]}
    index = json.loads(mirror_index())
    index["artifacts"][f"{file}/amd64"] = entry
    (tmp_path / "index.json").write_text(json.dumps(index))
    port = free_port()
    role = {name.removeprefix(ROLE): text for name, text in FILES.items() if name.startswith(ROLE)}
    variables = f"\n    site_artifacts_index: {tmp_path}/index.json\n    sweeper_metrics_port: {port}"
    house = House(tmp_path / "house", {"sweeper": role}, "sweeper", variables)
    lock = yaml.safe_load((ROOT / "artifacts.lock.yml").read_text())
    (house.home / "artifacts.lock.yml").unlink()
    merged = lock | {part: {**lock[part], **entries} for part, entries in LOCK.items()}
    (house.home / "artifacts.lock.yml").write_text(yaml.safe_dump(merged))
    hosts = house.folder / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("http://127.0.0.1:1\n", f"{mirror.url}\n"))
    root = house.folder / "roots" / "w2"
    for name, text in (("systemctl", SYSTEMCTL), ("journalctl", "#!/bin/sh\n")):
        program = root / "usr/local/ironspan-test-bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    for place in ("etc/systemd/system", "run/units", "opt", "proc", "var/lib", "var/tmp"):
        (root / place).mkdir(parents=True, exist_ok=True)
    said = house.done(converging("prepare", "prepare"))
    assert "changed=1" in said
    yield Installed(house, root, port)


def asked(port: int, path: str) -> tuple[int, str]:
    """Return status and body of what the program answers; 0 while it does not."""
    try:
        with DIRECT.open(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def until(found: t.Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for something as long as a process runs."""
    while not found():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a_new_program_is_packed_installed_started_asked_and_ended(installed: Installed) -> None:
    root, ask = installed.root, functools.partial(asked, installed.port)
    file = root / "etc/ironspan/sweeper.json"
    settings = json.loads(file.read_text())
    assert settings["metrics"] == {"address": "127.0.0.1", "port": installed.port}
    assert "changed=0" in installed.house.done(converging("prepare", "prepare"))
    assert installed.lines()["ProtectSystem"] == "strict"
    assert "/var/tmp/scratch" in installed.lines()["ReadWritePaths"].split()

    # On the host the folder is at its own path.
    scratch = root / "var/tmp/scratch"
    file.write_text(json.dumps({**settings, "folder": str(scratch)}))
    for name, age in (("old", 2 * 86400), ("new", 0)):
        (scratch / name).write_text("")
        os.utime(scratch / name, (time.time() - age,) * 2)
    subprocess.run(installed.command("ExecStartPre"), check=True, timeout=120)
    command = [*installed.command("ExecStart"), "--settings", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: ask("/healthz") == (200, "ok\n"), process)
        assert [path.name for path in scratch.iterdir()] == ["new"]
        text = ask("/metrics")[1]
        for line in ("removed_files_total 1.0", "ready 1.0", 'errors_total{kind="system"} 0.0'):
            assert f"\nironspan_sweeper_{line}\n" in text
        rules = yaml.safe_load(FILES["monitoring/sweeper-alerts.yml"])["groups"][0]["rules"]
        for name in re.findall(r"ironspan_\w+", rules[0]["expr"]):
            assert f"\n{name} " in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.communicate()
    finally:
        process.kill()
        process.communicate()

    file.write_text(json.dumps({**settings, "keep_second": 5, "keep_seconds": "5"}))
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 2
    assert "keep_seconds is '5'; write a whole number" in refused.stderr
    assert "keep_second is not known; write keep_seconds" in refused.stderr

    installed.house.done(RESET)
    for path in ("opt/ironspan/sweeper", "etc/ironspan/sweeper.json", "var/lib/ironspan/sweeper"):
        assert not (root / path).exists(), path


@pytest.mark.parametrize(
    ("written", "due"),
    [({}, []), ({"a": 39.0, "b": 40.0, "c": 99.0}, ["a"]), ({"b": 1.0, "a": 2.0}, ["a", "b"])],
)
def test_what_it_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: dict[str, float], due: list[str]
) -> None:
    (tmp_path / "sweeper_of_the_page.py").write_text(FILES["ironspan/sweeper/main.py"])
    monkeypatch.syspath_prepend(tmp_path)
    page = importlib.import_module("sweeper_of_the_page")
    monkeypatch.delitem(sys.modules, "sweeper_of_the_page")
    assert page.decide(written, 60, 100) == due
