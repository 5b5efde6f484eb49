# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Images and archives: valid by the OCI specifications, the same bytes every time, tags that move."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pathlib
import tarfile

import hypothesis
import pytest
from hypothesis import strategies as st

from ironspan.artifacts import cache, debian, image, index, lock, pack, recipes
from ironspan.cli.outcome import CommandError

from .stage import small_lock

REF = "registry.example.org/team/etcd:v1.0"


@pytest.fixture
def entry(tmp_path: pathlib.Path) -> lock.Image:
    return small_lock(tmp_path).images[REF]


def laid_out(entry: lock.Image, place: cache.Cache, scratch: pathlib.Path, content: str = "x") -> image.Laid:
    """Make an image with one program and put it into the mirror."""
    program = scratch / "program"
    program.write_text(content)
    layer = image.program_layer({"/usr/local/bin/etcd": program}, scratch / "layer.tar")
    return image.lay_out(entry, [layer], "amd64", place, scratch)


def check_layout(folder: pathlib.Path, tag: str) -> dict[str, list[str]]:
    """Follow an image as a registry's client does; return its configuration's run section."""
    data = (folder / "manifests" / tag).read_bytes()
    assert (folder / "manifests" / f"sha256:{hashlib.sha256(data).hexdigest()}").read_bytes() == data
    manifest = json.loads(data)
    assert manifest["schemaVersion"] == 2
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    for item in (manifest["config"], *manifest["layers"]):
        blob = (folder / "blobs" / item["digest"]).read_bytes()
        assert item["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
        assert item["size"] == len(blob)
    config = json.loads((folder / "blobs" / manifest["config"]["digest"]).read_bytes())
    assert config["rootfs"]["type"] == "layers"
    # Layers are not compressed, so a layer's digest and its "diff id" are one.
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert len(config["history"]) == len(manifest["layers"])
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    run: dict[str, list[str]] = config["config"]
    return run


def test_an_image_can_be_followed_from_its_tag(
    entry: lock.Image, place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    laid = laid_out(entry, place, tmp_path)
    folder = place.mirror / "v2/registry.example.org/team/etcd"
    run = check_layout(folder, "v1.0")
    assert run["Entrypoint"] == ["/usr/local/bin/etcd"]
    assert run["Env"][0].startswith("PATH=/usr/local/sbin:/usr/local/bin:")
    assert "Cmd" not in run
    assert (
        laid.size
        == sum(path.stat().st_size for path in (folder / "blobs").iterdir())
        + (folder / "manifests/v1.0").stat().st_size
    )
    with tarfile.open(folder / "blobs" / laid.blobs[1]) as layer:
        assert [item.name for item in layer] == ["usr", "usr/local", "usr/local/bin", "usr/local/bin/etcd"]
        member = layer.getmember("usr/local/bin/etcd")
        assert (member.mode, member.uid, member.gid, member.mtime) == (0o755, 0, 0, 0)


def test_the_same_programs_make_the_same_image(
    entry: lock.Image, place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    first = laid_out(entry, place, tmp_path)
    (tmp_path / "again").mkdir()
    assert laid_out(entry, place, tmp_path / "again") == first
    assert laid_out(entry, place, tmp_path, content="y") != first


def test_a_tag_moves_and_the_old_manifest_stays(
    entry: lock.Image, place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    first, second = laid_out(entry, place, tmp_path), laid_out(entry, place, tmp_path, content="y")
    folder = place.mirror / "v2/registry.example.org/team/etcd/manifests"
    assert image.digest((folder / "v1.0").read_bytes()) == second.digest
    assert image.digest((folder / first.digest).read_bytes()) == first.digest


def test_a_tag_lies_in_one_folder_only(entry: lock.Image, place: cache.Cache, tmp_path: pathlib.Path) -> None:
    laid = laid_out(entry, place, tmp_path)
    folder = place.mirror / "v2/registry.example.org/team/etcd"
    data = (folder / "manifests" / laid.digest).read_bytes()
    moved = image.publish_manifest(entry, data, image.DOCKER_MANIFEST, place, tmp_path)
    assert not (folder / "manifests/v1.0").exists()
    assert (folder / "manifests.docker/v1.0").read_bytes() == data
    held = index.ImageEntry(
        REF, "amd64", moved.digest, moved.media_type, moved.blobs, 1, "upstream", "l", "b", "r"
    )
    assert recipes.damage(held, place) == []
    image.publish_manifest(entry, data, image.MANIFEST, place, tmp_path)
    assert not (folder / "manifests.docker/v1.0").exists()
    assert len(recipes.damage(held, place)) == 1


@pytest.mark.parametrize("part", ["manifests/v1.0", "manifests/DIGEST", "blobs/CONFIG", "blobs/LAYER"])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_damage_is_found_wherever_it_is(
    entry: lock.Image, place: cache.Cache, tmp_path: pathlib.Path, part: str, how: str
) -> None:
    laid = laid_out(entry, place, tmp_path)
    held = index.ImageEntry(REF, "amd64", laid.digest, laid.media_type, laid.blobs, 1, "go", "l", "b", "r")
    assert recipes.damage(held, place) == []
    name = (
        part.replace("DIGEST", laid.digest).replace("CONFIG", laid.blobs[0]).replace("LAYER", laid.blobs[1])
    )
    path = place.mirror / "v2/registry.example.org/team/etcd" / name
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    (problem,) = recipes.damage(held, place)
    assert str(path) in problem


@pytest.mark.parametrize(
    "text", ["[]", '{"config": 1}', '{"config": {"digest": "a", "size": 1}}', "{", '"x"']
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        image.references(text.encode())


NAME = st.from_regex(r"[a-z][a-z0-9._-]{0,120}", fullmatch=True).filter(lambda name: ".." not in name)
PATH = st.lists(NAME, min_size=1, max_size=3).map("/".join)


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.dictionaries(PATH, st.binary(max_size=70_000), max_size=5))
def test_an_archive_holds_what_was_put_in(members: dict[str, bytes]) -> None:
    # A name that is a folder of another one cannot be a file as well.
    hypothesis.assume(not any(f"{one}/" == other[: len(one) + 1] for one in members for other in members))
    texts: list[bytes] = []
    for _ in range(2):
        raw = io.BytesIO()
        archive = pack.Archive(raw)
        for name, content in sorted(members.items()):
            archive.stream(name, io.BytesIO(content), len(content), 0o755)
        archive.close()
        texts.append(raw.getvalue())
    assert texts[0] == texts[1]
    with tarfile.open(fileobj=io.BytesIO(texts[0])) as read:
        found = {item.name: read.extractfile(item) for item in read if item.isfile()}
        assert {name: handle.read() for name, handle in found.items() if handle} == members
        folders = [item.name for item in read if item.isdir()]
        assert len(folders) == len(set(folders))


def test_a_compressed_archive_has_no_time_and_no_name(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program"
    program.write_text("x")
    targets = [tmp_path / "one.tgz", tmp_path / "two.tgz"]
    for target in targets:
        pack.tar_gz({"./flannel": program, "bin/other": program}, target)
    assert targets[0].read_bytes() == targets[1].read_bytes()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(targets[0].read_bytes()))) as read:
        assert read.getnames() == ["./flannel", "bin", "bin/other"]


BUSYBOX = "#!/bin/sh\nprintf 'bin/sh\\nsbin/ip\\nusr/bin/wget\\nusr/sbin/httpd\\n'\n"


def debian_tree(path: pathlib.Path) -> None:
    """Write what mmdebstrap would: some files worth keeping, some not."""
    with tarfile.open(path, "w") as tree:
        for name, text in {
            "./usr/bin/busybox": BUSYBOX, "./usr/sbin/nft": "nft", "./usr/sbin/ip": "real ip",
            "./usr/share/doc/nftables/copyright": "GPL", "./usr/share/doc/nftables/changelog.gz": "no",
            "./usr/share/man/man8/nft.8.gz": "no", "./etc/apt/sources.list": "no", "./etc/hostname": "no",
        }.items():  # fmt: skip
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            info.mtime = 1_700_000_000
            tree.addfile(info, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("./usr/lib/libx.so")
        link.type, link.linkname = tarfile.SYMTYPE, "libx.so.1"
        tree.addfile(link)
        hard = tarfile.TarInfo("./usr/bin/hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, "./usr/sbin/nft"
        tree.addfile(hard)


@pytest.mark.parametrize(
    ("applets", "expected"),
    [
        ("all", {"usr/bin/sh", "usr/bin/wget", "usr/sbin/httpd"}),
        (("sh",), {"usr/bin/sh"}),
        ((), set()),
    ],
)
def test_a_base_layer_is_trimmed_and_linked(
    applets: tuple[str, ...], expected: set[str], tmp_path: pathlib.Path
) -> None:
    base = lock.Base("b", "trixie", ("nftables",), "GPL", {"/usr/sbin/iptables": "xtables"}, applets)
    debian_tree(tmp_path / "base.tar")
    for name in ("one", "two"):
        debian._trim(base, tmp_path / "base.tar", tmp_path / name, tmp_path)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as layer:
        names = layer.getnames()
        assert len(names) == len(set(names))
        assert {"usr/share/doc/nftables/copyright", "usr/sbin/nft", "etc/passwd", "tmp", "bin"} <= set(names)
        assert not {name for name in names if "man8" in name or "changelog" in name or "apt" in name}
        assert layer.getmember("bin").linkname == "usr/bin"
        assert layer.getmember("usr/sbin/iptables").linkname == "xtables"
        assert layer.getmember("usr/lib/libx.so").linkname == "libx.so.1"
        assert layer.getmember("tmp").mode == 0o1777
        for name, text in (("usr/bin/hard", b"nft"), ("usr/sbin/ip", b"real ip")):
            content = layer.extractfile(name)
            assert content is not None
            assert content.read() == text
        assert all(member.mtime == 0 and member.uid == 0 for member in layer)
        links = {item.name for item in layer if item.issym() and item.linkname == "/usr/bin/busybox"}
        assert links == expected


def test_a_file_of_our_own_wins_over_a_package_and_an_applet(tmp_path: pathlib.Path) -> None:
    files = {"/usr/bin/sh": "#!/usr/bin/bash\n", "/usr/sbin/ip": "none", "/etc/os-release": "ID=x\n"}
    debian_tree(tmp_path / "base.tar")
    base = lock.Base("b", "trixie", ("nftables",), "GPL", {}, "all", files)
    debian._trim(base, tmp_path / "base.tar", tmp_path / "layer", tmp_path)
    with tarfile.open(tmp_path / "layer") as layer:
        names = layer.getnames()
        assert len(names) == len(set(names))
        for path, text in files.items():
            content = layer.extractfile(path.lstrip("/"))
            assert content is not None
            assert content.read() == text.encode()
            assert layer.getmember(path.lstrip("/")).mode == (0o755 if "bash" in text else 0o644)


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "forky"},
        {"packages": ("a", "b")},
        {"links": {"/a": "b"}},
        {"applets": ("sh",)},
        {"files": {"/usr/bin/sh": "#!/usr/bin/bash\n"}},
    ],
)
def test_a_base_layers_recipe_follows_what_it_is_made_of(change: dict[str, object]) -> None:
    fields = {
        "name": "b",
        "suite": "trixie",
        "packages": ("a",),
        "licence": "GPL",
        "links": {},
        "applets": (),
    }
    assert debian.recipe(lock.Base(**fields)) != debian.recipe(lock.Base(**{**fields, **change}))  # type: ignore[arg-type]
    assert debian.recipe(lock.Base(**fields)) == debian.recipe(lock.Base(**{**fields, "licence": "MIT"}))  # type: ignore[arg-type]


def test_a_failing_mmdebstrap_says_why(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\necho 'E: unable to locate package nothing' >&2\nexit 25\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    base = lock.Base("b", "trixie", ("nothing",), "GPL", {}, ())
    with pytest.raises(CommandError, match="E: unable to locate package nothing") as caught:
        debian.make(base, "amd64", tmp_path / "layer", tmp_path)
    assert "IRONSPAN_DEBIAN_MIRROR" in caught.value.remedy
