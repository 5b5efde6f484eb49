# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Filling the mirror: which source, what is left alone, what a killed or a second run does."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tarfile
import threading
import time
import typing as t

import pytest

from ironspan import artifacts
from ironspan.artifacts import cache, download, fill, gobuild, index, inspect, lock, lock_file, recipes
from ironspan.cli.outcome import CommandError, Exit

from .stage import PUBLISHED, Server, small_lock

REF = "registry.example.org/team/etcd:v1.0"
_real_lacks_capability = fill.lacks_capability
ITEMS = ["etcd/1.0", "runc/2.0", REF]

RUN = """
import pathlib, sys
from ironspan.artifacts import cache, fill, lock, lock_file
def progress(*words): print(*words, flush=True)
locked, place = lock_file.load(pathlib.Path(sys.argv[2])), cache.Cache(pathlib.Path(sys.argv[1]))
filling = fill.Filling(locked, place, "go", "amd64", progress)
print([(result.key, result.state) for result in filling.run(sys.argv[3:])])
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test run on an amd64 machine that has all capabilities."""
    for module in (fill, lock):
        monkeypatch.setattr(module, "native_arch", lambda: "amd64")
    monkeypatch.setattr(fill, "lacks_capability", lambda name: False)


@pytest.fixture
def locked(tmp_path: pathlib.Path) -> lock.Lock:
    return small_lock(tmp_path)


def filling(
    locked: lock.Lock,
    place: cache.Cache,
    source: fill.SourceChoice = "go",
    online: bool = False,
    **more: t.Any,
) -> fill.Filling:
    arch = more.pop("arch", "amd64")
    progress = more.pop("progress", lambda *_: None)
    return fill.Filling(locked, place, source, arch, progress, resolves=lambda hosts: online, **more)


def builds(log: pathlib.Path) -> list[str]:
    """Return the packages that were compiled, in order."""
    return [line.split()[-1] for line in log.read_text().splitlines() if line.startswith("build ")]


def undamaged(held: index.Index, place: cache.Cache) -> bool:
    entries: list[index.Entry] = [*held.artifacts.values(), *held.images.values()]
    return not any(recipes.damage(entry, place) for entry in entries)


def states(results: list[fill.Result]) -> dict[str, str]:
    return {result.key: result.state for result in results}


def test_everything_is_built_and_recorded(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path
) -> None:
    told: list[tuple[str, str, str]] = []
    results = filling(locked, place, progress=lambda *words: told.append(words)).run(ITEMS)
    assert states(results) == dict.fromkeys(ITEMS, "done")
    held = index.load(place.index_path)
    runc = held.artifacts["runc/2.0/amd64"]
    assert runc.path == "/files.example.org/v2.0/runc.x86_64"
    assert place.below_mirror(runc.path).read_text() == "#!program example.org/runc\n"
    assert (runc.source, runc.built_from) == ("go", "example.org/runc@v2.0.0 with go1.27.0")
    with tarfile.open(place.below_mirror(held.artifacts["etcd/1.0/amd64"].path)) as archive:
        assert archive.getnames() == ["etcd-amd64", "etcd-amd64/etcd", "etcd-amd64/etcdctl"]
    assert undamaged(held, place)
    assert sorted(builds(go_log)) == ["example.org/etcd/ctl", "example.org/etcd/server", "example.org/runc"]
    assert {(what, state) for what, state, _ in told} >= {(key, "start") for key in ITEMS}
    assert ("runc/2.0", "start", "downloading example.org/one") in told


def test_a_second_run_makes_nothing(locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path) -> None:
    filling(locked, place).run(ITEMS)
    before = place.index_path.read_bytes()
    go_log.write_text("")
    assert states(filling(locked, place).run(ITEMS)) == dict.fromkeys(ITEMS, "skip")
    assert go_log.read_text() == ""
    assert place.index_path.read_bytes() == before


@pytest.mark.parametrize("key", ITEMS)
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_only_what_is_damaged_is_made_again(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, key: str, how: str
) -> None:
    filling(locked, place).run(ITEMS)
    before = place.index_path.read_bytes()
    item = locked.select([key])[-1]
    path = (
        place.below_mirror(item.mirror_path("amd64"))
        if isinstance(item, lock.File)
        else place.below_mirror(item.mirror_folder) / "manifests/v1.0"
    )
    path.unlink()
    if how == "changed":
        path.write_bytes(b"other")
    (row,) = [row for row in inspect.look(locked, place, "amd64", thorough=True) if row.name == key]
    assert row.state == "damaged"
    assert str(path) in row.detail
    assert states(filling(locked, place).run(ITEMS)) == {**dict.fromkeys(ITEMS, "skip"), key: "done"}
    assert place.index_path.read_bytes() == before


def test_a_damaged_program_is_compiled_again(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path
) -> None:
    filling(locked, place).run(["runc"])
    # The kept program and the mirror's file are one file with two names: what harms one harms both.
    place.below_mirror("/files.example.org/v2.0/runc.x86_64").write_text("harmed")
    assert states(filling(locked, place).run(["runc"])) == {"runc/2.0": "done"}
    assert builds(go_log) == ["example.org/runc"] * 2
    assert (
        place.below_mirror("/files.example.org/v2.0/runc.x86_64").read_text()
        == "#!program example.org/runc\n"
    )


def test_another_recipe_is_built(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    filling(locked, place).run(ITEMS)
    changed = small_lock(tmp_path, **{"v2.0.0}": "v2.0.0}\n    ldflags: [-X a.b=c]"})
    rows = {row.name: row.state for row in inspect.look(changed, place, "amd64", thorough=False)}
    assert rows == {
        "etcd/1.0": "present",
        "runc/2.0": "outdated",
        "shim-lab/2.0": "not needed",
        REF: "present",
    }
    assert states(filling(changed, place).run(ITEMS)) == {"etcd/1.0": "skip", "runc/2.0": "done", REF: "skip"}


@pytest.mark.parametrize(("days", "left"), [(1, 2), (20, 1)])
def test_programs_of_old_recipes_are_forgotten(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, tmp_path: pathlib.Path, days: int, left: int
) -> None:
    filling(locked, place).run(["runc"])
    (old,) = (place.root / "build/runc").iterdir()
    os.utime(old, (time.time() - days * 86400,) * 2)
    changed = small_lock(tmp_path, **{"v2.0.0}": "v2.0.0}\n    ldflags: [-X a.b=c]"})
    filling(changed, place).run(["runc"])
    assert len(list((place.root / "build/runc").iterdir())) == left
    assert inspect.look(changed, place, "amd64", thorough=True)[1].state == "present"


def test_a_newer_compiler_alone_builds_nothing(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling(locked, place).run(ITEMS)
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.28.0")
    assert states(filling(locked, place).run(ITEMS)) == dict.fromkeys(ITEMS, "skip")


def test_rebuild_compiles_each_program_once_more(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path
) -> None:
    filling(locked, place).run(ITEMS)
    assert states(filling(locked, place, rebuild=True).run(ITEMS)) == dict.fromkeys(ITEMS, "done")
    once = ["example.org/etcd/ctl", "example.org/etcd/server", "example.org/runc"]
    assert sorted(builds(go_log)) == sorted(once * 2)


def test_one_failure_leaves_the_others_done(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAIL", "etcd/ctl")
    results = filling(locked, place).run(ITEMS)
    assert states(results) == {"etcd/1.0": "fail", "runc/2.0": "done", REF: "done"}
    assert "undefined: everything" in results[0].detail
    assert set(index.load(place.index_path).artifacts) == {"runc/2.0/amd64"}
    monkeypatch.delenv("FAKE_GO_FAIL")
    assert states(filling(locked, place).run(ITEMS)) == {"etcd/1.0": "done", "runc/2.0": "skip", REF: "skip"}
    assert builds(go_log).count("example.org/etcd/server") == 1


def start(place: cache.Cache, locked: lock.Lock, *names: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(place.root), str(locked.path), *names],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_run_goes_on_where_it_stopped(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_SLOW", "etcd/ctl")
    monkeypatch.setenv("FAKE_GO_SECONDS", "20")
    with start(place, locked, "etcd/1.0") as process:
        limit = time.monotonic() + 120
        while not go_log.with_name("log.slow").exists() and time.monotonic() < limit:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not place.index_path.exists()
    # The orphaned compiler still runs for a while, and must not spoil what the next run makes.
    monkeypatch.delenv("FAKE_GO_SLOW")
    assert states(filling(locked, place).run(["etcd/1.0"])) == {"etcd/1.0": "done"}
    assert builds(go_log) == ["example.org/etcd/server", "example.org/etcd/ctl", "example.org/etcd/ctl"]
    time.sleep(0.1)
    (entry,) = index.load(place.index_path).artifacts.values()
    assert recipes.damage(entry, place) == []


def test_an_interrupted_run_ends_at_once_and_its_compiler_with_it(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_SLOW", "etcd")
    monkeypatch.setenv("FAKE_GO_SECONDS", "600")
    with start(place, locked, *ITEMS) as process:
        limit = time.monotonic() + 120
        while not go_log.with_name("log.slow").exists() and time.monotonic() < limit:
            time.sleep(0.02)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=300)[0]
    assert time.monotonic() - begun < 300
    assert process.returncode != 0
    assert "fail" not in output
    assert len(builds(go_log)) <= 2


def test_a_compiler_that_starts_during_an_interrupt_is_ended(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_SLOW", "etcd")
    monkeypatch.setenv("FAKE_GO_SECONDS", "5")
    builder = gobuild.Builder(locked, place, "amd64")
    start_process, started = subprocess.Popen, []

    def interrupted(*args: t.Any, **options: t.Any) -> t.Any:
        process = start_process(*args, **options)
        started.append(process)
        # As if the interrupt came now: stop() does not know this compiler yet.
        place.stopping.set()
        builder.stop()
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        builder.program("etcd/etcd", lambda _text: None)
    assert [process.returncode for process in started] == [-signal.SIGTERM]


def listen(process: subprocess.Popen[str], lines: list[str], said: queue.SimpleQueue[str]) -> None:
    """Keep what a process says, and pass it on."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        said.put(line)


def test_two_runs_at_once_share_the_work(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = go_log.with_name("held")
    held.touch()
    monkeypatch.setenv("FAKE_GO_HELD", str(held))
    # Nothing is compiled before one of them waits for the other.
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    processes = [start(place, locked, *ITEMS) for _ in range(2)]
    lines: list[list[str]] = [[], []]
    readers = [
        threading.Thread(target=listen, args=(process, into, said))
        for process, into in zip(processes, lines, strict=True)
    ]
    for reader in readers:
        reader.start()
    try:
        while "waiting for" not in said.get(timeout=120):
            pass
    finally:
        held.unlink()
        for reader in readers:
            reader.join(120)
        for process in processes:
            process.wait(120)
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(builds(go_log)) == ["example.org/etcd/ctl", "example.org/etcd/server", "example.org/runc"]
    made = [told[-1].count("'done'") for told in lines]
    assert sum(made) == len(ITEMS)
    there = index.load(place.index_path)
    assert len(there.artifacts) + len(there.images) == len(ITEMS)
    assert undamaged(there, place)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, server: Server) -> Server:
    """Publish runc on the file server and send every download there."""
    monkeypatch.setattr("ironspan.artifacts.download.fetch.__defaults__", (server.opener, 2 << 20))
    server.files["/v2.0/runc.x86_64"] = PUBLISHED
    return server


def test_upstream_is_downloaded_by_digest(
    locked: lock.Lock, place: cache.Cache, offline: Server, go_log: pathlib.Path
) -> None:
    assert states(filling(locked, place, "upstream").run(["runc"])) == {"runc/2.0": "done"}
    (entry,) = index.load(place.index_path).artifacts.values()
    assert (entry.source, f"sha256:{entry.sha256}") == ("upstream", locked.files["runc/2.0"].digests["amd64"])
    assert place.below_mirror(entry.path).read_bytes() == PUBLISHED
    assert builds(go_log) == []
    assert states(filling(locked, place, "upstream").run(["runc"])) == {"runc/2.0": "skip"}
    assert len(offline.seen) == 1


def test_upstream_leaves_out_what_nobody_publishes(
    place: cache.Cache, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "lacks_capability", lambda name: True)
    with pytest.raises(CommandError) as caught:
        filling(small_lock(tmp_path), place, "upstream").run()
    assert "shim-lab" not in caught.value.message


def test_a_wrong_byte_from_upstream_leaves_the_mirror_as_it_was(
    locked: lock.Lock, place: cache.Cache, offline: Server
) -> None:
    offline.files["/v2.0/runc.x86_64"] = PUBLISHED + b"\0"
    (result,) = filling(locked, place, "upstream").run(["runc"])
    assert result.state == "fail"
    assert "another digest" in result.detail
    assert not place.index_path.exists()
    assert not place.below_mirror("/files.example.org/v2.0/runc.x86_64").exists()


def test_a_digest_that_nobody_pinned_is_refused_with_the_command(
    locked: lock.Lock, place: cache.Cache
) -> None:
    with pytest.raises(CommandError, match=f"no digest is pinned for amd64 of: etcd/1.0, {REF}") as caught:
        filling(locked, place, "upstream").run(ITEMS)
    assert f"ironspan artifacts pin --arch amd64 etcd/1.0 {REF}" in caught.value.remedy
    assert caught.value.code == Exit.BAD_INPUT
    assert not place.index_path.exists()


@pytest.mark.parametrize(
    ("online", "arch", "sources"),
    [
        (True, "amd64", {"etcd/1.0": "go", "runc/2.0": "upstream", REF: "go"}),
        (False, "amd64", {"etcd/1.0": "go", "runc/2.0": "go", REF: "go"}),
    ],
)
def test_auto_downloads_what_is_pinned_and_builds_the_rest(
    locked: lock.Lock, place: cache.Cache, offline: Server, go_log: pathlib.Path, online: bool, arch: str,
    sources: dict[str, str],
) -> None:  # fmt: skip
    filling(locked, place, "auto", online, arch=arch).run(ITEMS)
    held = index.load(place.index_path)
    found = {f"{entry.name}/{entry.version}": entry.source for entry in held.artifacts.values()}
    found |= {ref: entry.source for ref, entry in held.images.items()}
    assert found == sources


@pytest.mark.parametrize("online", [True, False])
def test_auto_keeps_what_is_there_from_either_source_and_asks_nobody(
    locked: lock.Lock, place: cache.Cache, offline: Server, go_log: pathlib.Path, online: bool
) -> None:
    filling(locked, place, "upstream" if online else "go").run(["runc"])
    offline.seen.clear()

    def never(hosts: set[str]) -> bool:
        raise AssertionError("nothing is missing, so nothing is to be asked")

    again = fill.Filling(locked, place, "auto", "amd64", lambda *_: None, resolves=never)
    assert states(again.run(["runc"])) == {"runc/2.0": "skip"}
    assert offline.seen == []


def test_one_source_does_not_take_what_the_other_made(
    locked: lock.Lock, place: cache.Cache, offline: Server, go_log: pathlib.Path
) -> None:
    filling(locked, place, "go").run(["runc"])
    assert states(filling(locked, place, "upstream").run(["runc"])) == {"runc/2.0": "done"}
    assert place.below_mirror("/files.example.org/v2.0/runc.x86_64").read_bytes() == PUBLISHED
    assert states(filling(locked, place, "go").run(["runc"])) == {"runc/2.0": "done"}
    # The kept program was not the downloaded file's victim: it needed no compiler again.
    assert builds(go_log) == ["example.org/runc"]


@pytest.mark.parametrize(
    ("source", "arch", "names", "problem"),
    [
        ("go", "arm64", ["runc"], "builds for this machine's amd64, not for arm64"),
        ("auto", "arm64", ["etcd/1.0"], "no digest is pinned for arm64 of: etcd/1.0"),
        ("upstream", "amd64", ["shim-lab"], "no digest is pinned for amd64 of: shim-lab/2.0"),
        ("go", "amd64", ["none"], "not in .*: none"),
    ],
)
def test_what_no_source_can_provide_is_refused(
    locked: lock.Lock,
    place: cache.Cache,
    source: fill.SourceChoice,
    arch: str,
    names: list[str],
    problem: str,
) -> None:
    with pytest.raises(CommandError, match=problem) as caught:
        filling(locked, place, source, arch=arch).run(names)
    assert caught.value.code == Exit.BAD_INPUT


def test_an_item_without_a_recipe_is_refused_by_the_source_go(
    place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    bare = small_lock(tmp_path, **{"    go: {pack: file, program: runc/runc}\n  shim": "  shim"})
    with pytest.raises(CommandError, match=r"has no `go` recipe for: runc/2\.0") as caught:
        filling(bare, place, "go").run(["runc"])
    assert "ironspan artifacts fetch runc/2.0" in caught.value.remedy


@pytest.mark.parametrize(
    ("lacking", "names", "expected"),
    [
        (False, None, ["etcd/1.0", "runc/2.0", REF]),
        (True, None, ["etcd/1.0", "runc/2.0", "shim-lab/2.0", REF]),
        (False, ["shim-lab"], ["shim-lab/2.0"]),
    ],
)
def test_a_lab_artefact_is_made_where_a_capability_lacks_or_by_name(
    locked: lock.Lock, place: cache.Cache, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
    lacking: bool,     names: list[str] | None, expected: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(fill, "lacks_capability", lambda name: lacking)
    assert [result.key for result in filling(locked, place).run(names)] == expected


@pytest.mark.parametrize(
    ("bounding", "lacks"),
    [
        ("000001ffffffffff", False),
        ("000001fffeffffff", True),
        ("0000000000000000", True),
        ("0000000001000000", False),
    ],
)
def test_a_capability_is_looked_up_in_the_bounding_set(
    bounding: str, lacks: bool, tmp_path: pathlib.Path
) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapEff:\t{'0' * 16}\nCapBnd:\t{bounding}\n")
    assert _real_lacks_capability("CAP_SYS_RESOURCE", status) is lacks


def test_the_hosts_asked_are_those_of_files_and_registries(locked: lock.Lock) -> None:
    assert fill.upstream_hosts(locked.select(None)) == {"files.example.org", "registry.example.org"}


def test_ensure_raises_for_what_failed(
    locked: lock.Lock, tmp_path: pathlib.Path, go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(lock_file, "default_path", lambda: locked.path)
    monkeypatch.setenv("FAKE_GO_FAIL", "example.org/runc")
    with pytest.raises(
        CommandError, match=r"1 artefact\(s\) could not be made:\n  runc/2.0: compiling runc failed"
    ):
        artifacts.ensure("go", ITEMS)
    monkeypatch.delenv("FAKE_GO_FAIL")
    folder = artifacts.ensure("go", ITEMS)
    assert folder == tmp_path / "xdg/ironspan/mirror"
    assert json.loads((folder / "index.json").read_text())["schema"] == 1


def test_the_real_resolver_is_the_default(locked: lock.Lock, place: cache.Cache) -> None:
    assert fill.Filling(locked, place, "auto", None, lambda *_: None)._resolves is download.resolves
