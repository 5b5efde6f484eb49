# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The cache folder: locks between processes, whole files, digests; and the index that runs share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import hypothesis
import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import artifacts_index
from hypothesis import strategies as st

from ironspan.artifacts import cache, index
from ironspan.cli.outcome import CommandError

FILE = index.FileEntry("etcd", "1.0", "amd64", "/a/b", "00" * 32, 7, "go", "Apache-2.0", "x@v1", "r")
IMAGE = index.ImageEntry(
    "r.io/a:1", "amd64", "sha256:1", "m", ("sha256:2",), 9, "go", "Apache-2.0", "x@v1", "r"
)

COUNT = """
import pathlib, sys, time
from ironspan.artifacts import cache
place, counter = cache.Cache(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
for _ in range(20):
    with place.locked("count"):
        seen = int(counter.read_text())
        time.sleep(0.002)
        counter.write_text(str(seen + 1))
"""
RECORD = """
import dataclasses, pathlib, sys
from ironspan.artifacts import cache, index
place = cache.Cache(pathlib.Path(sys.argv[1]))
entry = index.FileEntry("", "1", "amd64", "/p", "00", 1, "go", "l", "b", "r")
for number in range(15):
    index.record(place, [dataclasses.replace(entry, name=f"{sys.argv[2]}{number}")])
"""
HOLD = """
import pathlib, sys, time
from ironspan.artifacts import cache
with cache.Cache(pathlib.Path(sys.argv[1])).locked("step") as scratch:
    (scratch / "half").write_text("done")
    print("held", flush=True)
    time.sleep(600)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_a_lock_holds_between_processes(place: cache.Cache, tmp_path: pathlib.Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [start(COUNT, place.root, counter) for _ in range(2)]
    assert [process.wait(300) for process in processes] == [0, 0]
    assert counter.read_text() == "40"


def test_a_lock_holds_between_threads(place: cache.Cache) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with place.locked("same"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_a_killed_holder_leaves_its_work_and_no_lock(place: cache.Cache) -> None:
    with start(HOLD, place.root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        waited: list[bool] = []

        def waiting() -> None:
            waited.append(True)
            process.send_signal(signal.SIGKILL)

        with place.locked("step", waiting) as scratch:
            assert (scratch / "half").read_text() == "done"
        assert waited == [True]


def test_who_waits_for_a_lock_can_be_told_to_stop(place: cache.Cache) -> None:
    other = cache.Cache(place.root)
    with place.locked("step"):
        threading.Timer(0.2, other.stopping.set).start()
        with pytest.raises(KeyboardInterrupt), other.locked("step"):
            pytest.fail("the lock was given twice")


def test_steps_with_odd_names_get_folders_below_the_cache(place: cache.Cache) -> None:
    with place.locked("../../registry.io/a b:v1/\u20ac") as scratch:
        assert scratch.resolve().parent == (place.root / "tmp").resolve()


@pytest.mark.parametrize(
    ("variable", "folder"),
    [("/x/cache", "/x/cache/ironspan"), ("", "HOME/.cache/ironspan"), ("relative", "HOME/.cache/ironspan")],
)
def test_the_cache_lies_where_the_base_directory_specification_says(
    variable: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", variable)
    assert str(cache.default_root()) == folder.replace("HOME", str(pathlib.Path.home()))


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@hypothesis.given(data=st.binary(max_size=3000))
def test_digests_are_those_of_the_bytes(
    algorithm: str, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("digest") / "file"
    path.write_bytes(data)
    right = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    assert cache.digest_of(path, algorithm) == right
    assert cache.has_digest(path, right)
    path.write_bytes(data + b"x")
    assert not cache.has_digest(path, right)


def test_a_missing_file_has_no_digest(tmp_path: pathlib.Path) -> None:
    assert not cache.has_digest(tmp_path / "none", "sha256:" + "0" * 64)


def test_publishing_replaces_a_file_whole(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "deep" / "er" / "file"
    for text in ("old", "new"):
        made = tmp_path / "made"
        made.write_text(text)
        cache.publish(made, target)
        assert target.read_text() == text
        assert not made.exists()


def test_a_second_name_leaves_no_temporary_one(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.write_text("x")
    for _ in range(2):
        cache.link_or_copy(source, target, tmp_path)
    assert target.samefile(source)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["deep", "source"]


def test_a_file_system_without_links_gets_a_copy(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "source").write_text("x")
    cache.link_or_copy(tmp_path / "source", tmp_path / "target", tmp_path)
    assert (tmp_path / "target").read_text() == "x"
    assert not (tmp_path / "target").samefile(tmp_path / "source")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (961_200_000, "961.2 MB"),
        (12e9, "12.0 GB"),
    ],
)
def test_sizes_read_well(count: float, text: str) -> None:
    assert cache.readable_size(count) == text


def test_two_processes_record_into_one_index(place: cache.Cache) -> None:
    processes = [start(RECORD, place.root, name) for name in "ab"]
    assert [process.wait(300) for process in processes] == [0, 0]
    held = index.load(place.index_path).artifacts
    assert set(held) == {f"{name}{number}/1/amd64" for name in "ab" for number in range(15)}


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
FILES = st.builds(index.FileEntry, TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(0), TEXT, TEXT, TEXT, TEXT)
IMAGES = st.builds(
    index.ImageEntry,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    st.lists(TEXT).map(tuple),
    st.integers(0),
    TEXT,
    TEXT,
    TEXT,
    TEXT,
)


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.lists(FILES, max_size=4), st.lists(IMAGES, max_size=4))
def test_an_index_is_read_as_it_was_written(
    files: list[index.FileEntry], images: list[index.ImageEntry]
) -> None:
    held = index.Index({entry.key: entry for entry in files}, {entry.ref: entry for entry in images})
    data = json.loads(index.render(held))
    assert data["schema"] == 1
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "index.json"
        path.write_text(index.render(held), encoding="utf-8")
        assert index.load(path) == held


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 2, "artifacts": {}, "images": {}}',
     '{"schema": 1, "artifacts": {"a": {"name": "a"}}, "images": {}}',
     '{"schema": 1, "artifacts": [], "images": {}}', '{"schema": 1, "artifacts": {}, "images": {"a": {}}}'],
)  # fmt: skip
def test_a_damaged_index_says_what_to_do(text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "index.json"
    path.write_text(text)
    with pytest.raises(CommandError) as caught:
        index.load(path)
    assert "ironspan artifacts build" in caught.value.remedy


def test_an_index_that_is_not_there_is_empty(tmp_path: pathlib.Path) -> None:
    assert index.load(tmp_path / "index.json") == index.Index({}, {})


@pytest.fixture
def reader(place: cache.Cache) -> artifacts_index.ArtifactsIndex:
    index.record(place, [FILE, dataclasses.replace(FILE, arch="arm64"), IMAGE])
    return artifacts_index.load_index(place.index_path)


def test_the_collection_reads_what_the_mirror_wrote(reader: artifacts_index.ArtifactsIndex) -> None:
    assert reader.artifact("etcd", "1.0") == {"path": "/a/b", "sha256": "00" * 32, "size": 7}
    assert reader.image("r.io/a:1") == {"ref": "r.io/a:1", "digest": "sha256:1", "size": 9}


@pytest.mark.parametrize(
    ("name", "version", "arch", "held"),
    [
        ("etcd", "2.0", "amd64", "it holds etcd/1.0/amd64, etcd/1.0/arm64"),
        ("runc", "1.0", "amd64", "run `ironspan"),
    ],
)
def test_a_missing_file_names_the_command(
    reader: artifacts_index.ArtifactsIndex, name: str, version: str, arch: str, held: str
) -> None:
    with pytest.raises(artifacts_index.ArtifactsIndexError) as caught:
        reader.artifact(name, version, arch)
    assert held in str(caught.value)
    assert f"ironspan artifacts build {name}/{version}" in str(caught.value)


def test_a_missing_image_names_the_command(reader: artifacts_index.ArtifactsIndex) -> None:
    with pytest.raises(
        artifacts_index.ArtifactsIndexError, match=r"it holds r\.io/a:1; run `ironspan artifacts build r"
    ):
        reader.image("r.io/a:2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no mirror index at"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"schema": 1}', "is damaged"),
        ('{"schema": 7, "artifacts": {}, "images": {}}', "has schema 7"),
    ],
)
def test_an_unreadable_index_names_the_command(
    text: str | None, problem: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "index.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(artifacts_index.ArtifactsIndexError, match=problem) as caught:
        artifacts_index.load_index(path)
    assert "ironspan artifacts build" in str(caught.value)


def test_an_index_that_is_a_folder_is_no_index(tmp_path: pathlib.Path) -> None:
    with pytest.raises(artifacts_index.ArtifactsIndexError, match="cannot read the mirror index"):
        artifacts_index.load_index(tmp_path)
