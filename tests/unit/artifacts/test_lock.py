# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lock file: the real one, wrong ones, paths and the writing of digests."""

from __future__ import annotations

import pathlib
import re
import urllib.parse

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st

from ironspan.artifacts import environments, lock, lock_file, pin, recipes, toolchain
from ironspan.cli.outcome import CommandError, Exit

from .stage import SMALL

SOUND = SMALL.replace("DIGEST", "sha256:" + "0" * 64)
ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_real_lock_file_holds_the_versions_a_site_begins_with() -> None:
    real = lock_file.load(ROOT / "artifacts.lock.yml")
    assert {
        "kubeadm/1.36.4", "kubelet/1.36.4", "kubectl/1.36.4", "etcd/3.6.14", "containerd/2.3.4", "runc/1.4.3",
        "cni-plugins/1.9.1", "runsc/20260817.0", "containerd-shim-runsc-v1/20260817.0",
    } <= set(real.files)  # fmt: skip
    assert {"registry.k8s.io/pause:3.10.2", "registry.k8s.io/coredns/coredns:v1.14.7"} <= set(real.images)
    for item in real.select(None):
        made = isinstance(item, lock.Image) or item.components() or recipes.own_source(item)
        assert made, f"{item.key} cannot be built"
    for file in real.files.values():
        if file.url and not file.set_name:
            assert all(file.digests.get(arch) for arch in environments.MACHINES), f"{file.key} is not pinned"


def test_what_a_site_begins_with_is_no_larger_for_the_versions_to_move_to() -> None:
    real = lock_file.load(ROOT / "artifacts.lock.yml")
    assert set(real.sets()) >= {"cilium", "dns", "upgrade"}
    usual, with_upgrade = real.needed(), real.needed(["upgrade"])
    assert len(usual) == 21
    further = {item.key for item in with_upgrade} - {item.key for item in usual}
    assert {"kubelet/1.37.1", "etcd/3.7.3", "containerd/2.3.7", "runsc/20260701.0"} <= further
    assert not any("v1.37" in item.key or "1.37.1" in item.key or "3.7.3" in item.key for item in usual)
    with pytest.raises(CommandError, match="has no set nightly") as caught:
        real.needed(["upgrade", "nightly"])
    assert "upgrade" in caught.value.remedy


@pytest.mark.parametrize("component", sorted(lock_file.load(ROOT / "artifacts.lock.yml").components))
def test_modules_of_a_component_are_pinned_to_the_lock_files_versions(component: str) -> None:
    folder = toolchain.GOMODS / component
    module, sums = (folder / "go.mod").read_text(), (folder / "go.sum").read_text()
    for path, version in lock_file.load(ROOT / "artifacts.lock.yml").components[component].modules.items():
        assert re.search(rf"(^|\s){re.escape(path)} {re.escape(version)}(\s|$)", module), f"{path} in go.mod"
        assert f"{path} {version} h1:" in sums, f"{path} in go.sum"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schema: 1", "schema: 2", "schema: is 2; this version of ironspan reads 1"),
        ("schema: 1", "", "schema: is None"),
        ("schema: 1", "schema: 1\nextra: 1", "the file: unknown field 'extra'; known: bases, components"),
        ('version: "1.0"', "version: 1.0", "components.etcd.version: must be text, not 1.0"),
        ('version: "1.0"', "", "components.etcd.version: is missing"),
        ("{example.org/etcd: v1.0.0}", "{}", "components.etcd.modules: name at least one Go module"),
        (
            "{example.org/etcd: v1.0.0}",
            "{example.org/etcd: 1.0}",
            "components.etcd.modules.example.org/etcd: must be",
        ),
        ("{example.org/etcd: v1.0.0}", "{example.org/etcd: main}", "'main' is not a Go module version"),
        ("{etcd: example.org/etcd/server, ", "{", "images.registry.example.org/team/etcd:v1.0.go.programs"),
        ("{etcd: example.org/etcd/server, ", "{", "component etcd has no program 'etcd'"),
        (
            "program: runc/runc",
            "program: runk/runc",
            "files.runc/2.0.go.program: there is no component 'runk'",
        ),
        ("pack: file", "pack: zip", "files.runc/2.0.go.pack: is 'zip'; it can be file or tar.gz"),
        (
            '      members: {"etcd-{arch}/etcd": etcd/etcd, "etcd-{arch}/etcdctl": etcd/etcdctl}',
            "",
            "go.members: name at",
        ),
        ("  runc/2.0:", "  runc:", "files.runc: write the key as NAME/VERSION"),
        ("https://files.example.org/v2.0", "http://files.example.org/v2.0", "must be https://HOST/PATH"),
        ("/v2.0/runc", "/../runc", "files.runc/2.0.url: 'https://files.example.org/../runc"),
        ("path: /lab", "path: /../lab", "must begin with / and stay below the mirror"),
        ("path: /lab", "path: lab", "must begin with / and stay below the mirror"),
        ("path: /lab.example", "url: https://x.org/a\n    path: /lab.example", "give either url"),
        (
            "amd64: DIGEST",
            "amd64: md5",
            "files.runc/2.0.digests.amd64: 'md5' is not sha256:HEX, sha512:HEX or null",
        ),
        ("amd64: DIGEST", "riscv: null", "'riscv' is no architecture; it can be amd64 or arm64"),
        (
            "/team/etcd:v1.0:",
            "/team/etcd:",
            "images.registry.example.org/team/etcd: write the key as REGISTRY",
        ),
        ("{/usr/local/bin/etcd:", "{usr/bin/etcd:", "'usr/bin/etcd' must begin with /"),
        ("      entrypoint:", "      base: none\n      entrypoint:", "go.base: there is no base 'none'"),
        ("entrypoint: [/usr/local/bin/etcd]", "entrypoint: /etcd", "go.entrypoint: must be a list of text"),
        (
            "/v2.0/runc.{machine}",
            "/v1.0/etcd-{arch}.tar.gz",
            "files.runc/2.0: lies at the same path as etcd/1.0",
        ),
        (
            "    go: {pack: file, program: runc/runc}\nimages",
            "images",
            "nobody publishes it and it has no go recipe",
        ),
        ("components:\n", "components: []\nfiles_: \n", "components: must be a mapping with text keys"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, problem: str) -> None:
    text = SMALL.replace(old, new, 1)
    assert text != SMALL, "the case changes nothing"
    with pytest.raises(CommandError) as caught:
        lock_file.parse(text.replace("DIGEST", "sha256:" + "0" * 64))
    assert problem in caught.value.message
    assert caught.value.code == Exit.BAD_INPUT


def test_all_problems_are_reported_at_once() -> None:
    text = (
        SOUND.replace("schema: 1", "schema: 9").replace("pack: file", "pack: zip").replace("v1.0.0}", "main}")
    )
    with pytest.raises(CommandError, match=r"has 4 problem\(s\)") as caught:
        lock_file.parse(text)
    assert len(caught.value.message.splitlines()) == 5


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "- 1", "schema: 1\nfiles: {1: {}}", "schema: 1\nimages: {a: 3}"]
)
def test_a_file_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        lock_file.parse(text)
    assert caught.value.code == Exit.BAD_INPUT


def test_a_missing_file_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CommandError, match=r"cannot read .*none\.yml: No such file"):
        lock_file.load(tmp_path / "none.yml")


KEYS = st.sampled_from(
    ["schema", "files", "images", "components", "bases", "go", "url", "digests", "amd64", "a/1", "r.io/a:1"]
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@hypothesis.given(DATA)
def test_any_data_is_read_or_refused_but_never_crashes(data: object) -> None:
    try:
        lock_file.parse(yaml.safe_dump(data))
    except CommandError as error:
        assert error.code == Exit.BAD_INPUT


SEGMENT = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,10}", fullmatch=True)


@hypothesis.given(
    host=st.from_regex(r"[a-z][a-z0-9-]{0,8}(\.[a-z]{2,5}){1,2}", fullmatch=True),
    segments=st.lists(SEGMENT, min_size=1, max_size=6),
    arch=st.sampled_from(sorted(environments.MACHINES)),
)
def test_a_mirror_path_is_host_and_path_of_the_address(host: str, segments: list[str], arch: str) -> None:
    url = f"https://{host}/{'/'.join(segments)}/{{arch}}/{{machine}}"
    text = SOUND.replace("https://files.example.org/v2.0/runc.{machine}", url)
    path = lock_file.parse(text).files["runc/2.0"].mirror_path(arch)
    expected = "/".join(["", *segments, arch, environments.MACHINES[arch]])
    assert urllib.parse.urlsplit(f"https:/{path}").path == expected
    assert path.split("/")[1] == host
    assert ".." not in path.split("/")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (None, ["etcd/1.0", "runc/2.0", "shim-lab/2.0", "registry.example.org/team/etcd:v1.0"]),
        ([], []),
        (["runc"], ["runc/2.0"]),
        (["runc/2.0", "runc"], ["runc/2.0"]),
        (["etcd"], ["etcd/1.0", "registry.example.org/team/etcd:v1.0"]),
        (["registry.example.org/team/etcd"], ["registry.example.org/team/etcd:v1.0"]),
        (
            ["registry.example.org/team/etcd:v1.0", "runc"],
            ["runc/2.0", "registry.example.org/team/etcd:v1.0"],
        ),
    ],
)
def test_items_are_selected_by_name(names: list[str] | None, chosen: list[str]) -> None:
    assert [item.key for item in lock_file.parse(SOUND).select(names)] == chosen


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match=r"not in .*: runk, cni") as caught:
        lock_file.parse(SOUND).select(["runk", "runc", "cni"])
    assert "runc/2.0" in caught.value.remedy
    assert caught.value.code == Exit.BAD_INPUT


@pytest.mark.parametrize(
    ("key", "arch"), [("runc/2.0", "arm64"), ("runc/2.0", "amd64"), ("etcd/1.0", "amd64"), ("image", "arm64")]
)
@pytest.mark.parametrize("comment", ["", "  # a comment {arch} €\n"])
def test_writing_a_digest_changes_nothing_else(key: str, arch: str, comment: str) -> None:
    text = comment + SOUND
    before = lock_file.parse(text)
    item = before.images["registry.example.org/team/etcd:v1.0"] if key == "image" else before.files[key]
    digest = "sha256:" + "ab" * 32
    written = pin.set_digest(text, item, arch, digest)
    old, new = yaml.safe_load(text), yaml.safe_load(written)
    section = "images" if key == "image" else "files"
    assert new[section][item.key]["digests"][arch] == digest
    new[section][item.key]["digests"][arch] = old[section][item.key]["digests"][arch]
    assert new == old
    assert written.count("\n") == text.count("\n")
    assert written.startswith(comment)


@pytest.mark.parametrize("first", ["amd64", "arm64"])
@pytest.mark.parametrize("layout", ["", "sizes: {arm64: 7}\n    ", "sizes:\n      arm64: 7\n    "])
def test_writing_sizes_changes_nothing_else(first: str, layout: str) -> None:
    item = lock_file.parse(SOUND).files["runc/2.0"]
    begin = SOUND.index("digests:", SOUND.index("runc/2.0"))
    text = SOUND[:begin] + layout + SOUND[begin:]
    old = yaml.safe_load(text)
    for arch, size in ((first, 11), ("arm64", 12), ("amd64", 13)):
        text = pin.set_size(text, item, arch, size)
    new = yaml.safe_load(text)
    assert lock_file.parse(text).files["runc/2.0"].sizes == {"amd64": 13, "arm64": 12}
    new["files"]["runc/2.0"].pop("sizes")
    old["files"]["runc/2.0"].pop("sizes", None)
    assert new == old


@pytest.mark.parametrize(
    "sizes", ["{amd64: 0}", "{amd64: -1}", "{amd64: true}", "{amd64: big}", "{mips: 1}", "7"]
)
def test_sizes_are_numbers_of_bytes(sizes: str) -> None:
    begin = SOUND.index("digests:", SOUND.index("runc/2.0"))
    with pytest.raises(CommandError, match=r"files\.runc/2\.0\.sizes"):
        lock_file.parse(f"{SOUND[:begin]}sizes: {sizes}\n    {SOUND[begin:]}")


def test_a_digest_without_a_line_for_it_is_refused() -> None:
    item = lock_file.parse(SOUND).files["shim-lab/2.0"]
    with pytest.raises(CommandError, match="has no digest for amd64"):
        pin.set_digest(SOUND, item, "amd64", "sha256:" + "0" * 64)
