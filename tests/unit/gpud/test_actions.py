# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the repair controller asks for is done once, and only where the site lets it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import typing as t
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.gpud import actions, events, watch
from ironspan.gpud.actions import Actions
from ironspan.gpud.events import Record
from ironspan.gpud.store import Store
from tests.support import nvml

from .test_watch import Heard, until

GPU = "GPU-00000001-1111-2222-3333-444444444444"
LATE = "2001-09-09T02:00:00Z"


class Killed(BaseException):
    """The agent ends here."""


class Host:
    """A host whose programs are written down and not run."""

    def __init__(self, folder: Path, boot: str = "boot-1", enabled: bool = True) -> None:
        self.store = Store(folder, boot)
        self.calls: list[list[str]] = []
        self.quiet = False
        self.pids: list[int] = []
        self.fails: BaseException | None = None
        self.now = 1e9
        self.actions = Actions(
            self.store, boot, enabled, lambda gpu: self.pids, self._quietly, lambda: self.now, self._run
        )
        if not self.store.content.gpus:
            fell = Record("xid 79", GPU, 1, 1, boot)
            other = Record("xid 48", "GPU-2", 1, 1, boot)
            records = events.occurred(events.occurred({}, fell), other)
            self.store.change(lambda old: replace(old, gpus={GPU: {"index": 1}}, records=records))

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        self.quiet = True
        yield
        self.quiet = False

    def _run(self, command: Sequence[str]) -> None:
        assert self.quiet or "reboot" in command
        self.calls.append(list(command))
        if self.fails:
            raise self.fails

    def ask(self, do: str = "reset", gpu: str | None = GPU, id: str = "a-1", expires: str = LATE) -> t.Any:
        text = json.dumps({"id": id, "do": do, "gpu": gpu, "expires": expires})
        return json.loads(self.actions.answer(text))


def test_a_reset_is_done_once_and_what_happened_before_counts_no_more(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for _ in range(3):
        assert host.ask() == {"id": "a-1", "ok": True, "detail": "reset", "boot": "boot-1"}
    assert host.calls == [[*actions.reset(GPU, mps=False)]]
    assert [key[0] for key in host.store.content.records] == ["xid 48"]
    again = Host(tmp_path)
    assert again.ask()["ok"]
    assert again.calls == []


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda host: {"do": "dance"}, "cannot 'dance'"),
        (lambda host: {"do": "preflight"}, "cannot 'preflight'"),
        (lambda host: {"expires": "2001-01-01T00:00:00Z"}, "too late"),
        (lambda host: {"gpu": GPU.replace("1111", "9999")}, "no GPU of this host"),
        (lambda host: host.pids.append(41) or {}, "processes use it: 41"),
    ],
)
def test_what_is_refused_runs_nothing(
    change: Callable[[Host], dict[str, str]], detail: str, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    answer = host.ask(**change(host))
    assert not answer["ok"]
    assert detail in answer["detail"]
    assert host.calls == []


@pytest.mark.parametrize(
    ("why", "ok", "detail"), [("", True, "begun"), ("one is running", False, "one is running")]
)
def test_a_preflight_is_begun_once_and_needs_no_leave(
    why: str, ok: bool, detail: str, tmp_path: Path
) -> None:
    host, begun = Host(tmp_path, enabled=False), []

    def begin() -> str:
        begun.append(1)
        return why

    host.actions = Actions(
        host.store, "boot-1", False, lambda gpu: host.pids, host._quietly, lambda: host.now, host._run, begin
    )
    for _ in range(3):
        assert host.ask("preflight", None) == {"id": "a-1", "ok": ok, "detail": detail, "boot": "boot-1"}
    host.pids.append(41)
    assert "processes use it" in host.ask("preflight", None, id="a-2")["detail"]
    assert (begun, host.calls) == ([1], [])


def test_where_the_site_does_not_let_it_nothing_runs(tmp_path: Path) -> None:
    host = Host(tmp_path, enabled=False)
    for do in ("reset", "reboot"):
        assert "is off" in host.ask(do, id=do)["detail"]
    assert host.calls == []


def test_a_reset_that_fails_says_why(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.fails = subprocess.CalledProcessError(255, "nvidia-smi", output="GPU is in use\nby another client")
    assert host.ask() == {
        "id": "a-1",
        "ok": False,
        "detail": "GPU is in use by another client",
        "boot": "boot-1",
    }
    assert len(host.store.content.records) == 2


def test_killed_in_the_middle_it_is_not_begun_again(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.fails = Killed()
    with pytest.raises(Killed):
        host.ask()
    after = Host(tmp_path)
    assert after.ask()["detail"] == "it was interrupted, and is not begun again"
    assert after.calls == []


def test_a_reboot_is_done_when_another_boot_says_so(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.ask("reboot", None)["detail"] == "rebooting"
    after = Host(tmp_path, "boot-2")
    for _ in range(2):
        assert after.ask("reboot", None) == {
            "id": "a-1", "ok": True, "detail": "the host has booted", "boot": "boot-2",
        }  # fmt: skip
    assert host.calls == [list(actions.REBOOT)]
    assert after.calls == []


def test_a_host_that_takes_its_time_to_go_down_is_not_said_to_have_failed(tmp_path: Path) -> None:
    """The Node is looked at every ten seconds; shutting down, pods that end included, takes longer."""
    host = Host(tmp_path)
    for _ in range(3):
        assert host.ask("reboot", None) == {
            "id": "a-1", "ok": True, "detail": "rebooting", "boot": "boot-1",
        }  # fmt: skip
    assert host.calls == [list(actions.REBOOT)]
    assert Host(tmp_path, "boot-2").ask("reboot", None)["detail"] == "the host has booted"


def test_an_agent_that_was_killed_before_it_could_reboot_says_so(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.fails = Killed()
    with pytest.raises(Killed):
        host.ask("reboot", None)
    after = Host(tmp_path)
    assert after.ask("reboot", None)["detail"] == "it was interrupted, and is not begun again"


@given(st.text(max_size=200) | st.from_regex(r'\{"id":.*', fullmatch=True))
def test_any_text_is_answered_or_passed_over(text: str) -> None:
    actions.read(text)


@pytest.mark.parametrize("gpu", ["GPU-1; reboot", "--all", "GPU-00000001-1111-2222-3333-44444444444g"])
def test_what_is_no_gpu_reaches_no_command_line(gpu: str) -> None:
    assert actions.read(json.dumps({"id": "a", "do": "reset", "gpu": gpu, "expires": LATE})) is None


def test_nothing_of_ours_has_a_gpu_open_meanwhile(gpus: nvml.State, library: Path) -> None:
    heard = Heard()
    with heard.watching(library) as watching:
        until(heard.readings)
        with watching.quiet():
            assert not Path(f"/proc/{watching.pid}").exists()
        before = len(heard.readings())
        until(lambda: len(heard.readings()) > before)
    assert isinstance(watching, watch.Watch)
