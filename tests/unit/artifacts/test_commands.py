# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The commands, what they need on a machine, and the resolution of Go modules."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest

from ironspan.artifacts import cache, fill, index, lock, lock_file, pin, toolchain
from ironspan.cli.main import main
from ironspan.cli.outcome import CommandError, Exit

from .stage import PUBLISHED, Server, small_lock


@pytest.fixture
def locked(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> lock.Lock:
    """Let the commands use the small lock file and an empty cache on an amd64 machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    for module in (fill, lock):
        monkeypatch.setattr(module, "native_arch", lambda: "amd64")
    monkeypatch.setattr(fill, "lacks_capability", lambda name: False)
    return small_lock(tmp_path)


def run(locked: lock.Lock, *arguments: str) -> int:
    return main(["artifacts", arguments[0], "--lock", str(locked.path), *arguments[1:]])


def test_build_then_list_then_verify(
    locked: lock.Lock, go_log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(locked, "verify") == Exit.FAILED
    assert "runc/2.0 is missing; run `ironspan artifacts build runc/2.0`" in capsys.readouterr().out
    assert run(locked, "build", "--source", "go", "--plain") == Exit.OK
    assert "3 made, 0 were there, 0 failed" in capsys.readouterr().out
    assert run(locked, "build", "--source", "go", "--plain") == Exit.OK
    assert "0 made, 3 were there, 0 failed" in capsys.readouterr().out
    assert run(locked, "list") == Exit.OK
    table = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:3] for line in table.splitlines() if line}
    assert rows["runc/2.0"] == ["present", "go"]
    assert rows["shim-lab/2.0"] == ["not", "needed"]
    assert run(locked, "verify") == Exit.OK
    assert "everything is there and right" in capsys.readouterr().out


def test_verify_finds_a_changed_byte(
    locked: lock.Lock, go_log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(locked, "build", "--source", "go")
    place = cache.Cache()
    path = place.below_mirror("/files.example.org/v2.0/runc.x86_64")
    path.write_bytes(path.read_bytes().replace(b"runc", b"rung"))
    capsys.readouterr()
    assert run(locked, "verify", "--json") == Exit.FAILED
    report = json.loads(capsys.readouterr().out)
    states = {item["name"]: item["state"] for item in report["items"]}
    assert states["runc/2.0"] == "damaged"
    assert states["etcd/1.0"] == "present"
    assert len(report["problems"]) == 1
    # The list believes the index: it does not read a gigabyte.
    assert run(locked, "list", "--json") == Exit.OK
    listed = json.loads(capsys.readouterr().out)
    assert {item["name"]: item["state"] for item in listed["items"]}["runc/2.0"] == "present"
    assert listed["mirror"] == str(place.mirror)


def test_list_shows_digests_licences_and_origins(
    locked: lock.Lock, go_log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(locked, "build", "--source", "go", "runc")
    capsys.readouterr()
    run(locked, "list", "--json")
    (item,) = [one for one in json.loads(capsys.readouterr().out)["items"] if one["name"] == "runc/2.0"]
    entry = index.load(cache.Cache().index_path).artifacts["runc/2.0/amd64"]
    assert item["digest"] == f"sha256:{entry.sha256}"
    assert item["pinned"] == locked.files["runc/2.0"].digests["amd64"]
    assert (item["licence"], item["source"], item["path"]) == ("Apache-2.0", "go", entry.path)
    assert item["built_from"] == "example.org/runc@v2.0.0 with go1.27.0"


def test_a_failed_item_ends_with_1(
    locked: lock.Lock,
    go_log: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAKE_GO_FAIL", "runc")
    assert run(locked, "build", "--source", "go", "--plain") == Exit.FAILED
    output = capsys.readouterr().out
    assert "2 made, 0 were there, 1 failed; run the same command again to go on" in output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["fetch"], "ironspan artifacts pin --arch amd64 etcd/1.0"),
        (["fetch", "--arch", "arm64", "etcd/1.0"], "ironspan artifacts pin --arch arm64 etcd/1.0"),
        (["build", "--source", "go", "runk"], "not in "),
        (["pin", "runk"], "not in "),
        (["pin", "--modules", "runk"], "no such component: runk"),
        (["pin", "shim-lab"], "nobody publishes shim-lab/2.0"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_do(
    locked: lock.Lock, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(locked, *arguments) == Exit.BAD_INPUT
    assert problem in capsys.readouterr().err
    assert not cache.Cache().index_path.exists()


def test_fetch_downloads_and_pin_writes(
    locked: lock.Lock, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    download = "ironspan.artifacts.download"
    monkeypatch.setattr(f"{download}.fetch.__defaults__", (server.opener, 2 << 20))
    monkeypatch.setattr(f"{download}.fetch_unchecked.__defaults__", (server.opener,))
    server.files["/v2.0/runc.x86_64"] = server.files["/v1.0/etcd-amd64.tar.gz"] = PUBLISHED
    assert run(locked, "fetch", "runc") == Exit.OK
    assert run(locked, "pin", "etcd/1.0", "--plain") == Exit.OK
    assert "pinned" in capsys.readouterr().out
    assert run(locked, "pin", "etcd/1.0", "--plain") == Exit.OK
    assert "unchanged" in capsys.readouterr().out
    server.files["/v1.0/etcd-amd64.tar.gz"] = PUBLISHED + b"x"
    assert run(locked, "fetch", "etcd/1.0") == Exit.FAILED
    assert f"is larger than the {len(PUBLISHED)} bytes that it may have" in "".join(capsys.readouterr())
    server.files["/v1.0/etcd-amd64.tar.gz"] = PUBLISHED
    assert run(locked, "fetch", "etcd/1.0") == Exit.OK
    assert set(index.load(cache.Cache().index_path).artifacts) == {"runc/2.0/amd64", "etcd/1.0/amd64"}


@pytest.mark.parametrize("command", ["build", "fetch", "verify", "list", "pin"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["artifacts", command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 10
    assert "--lock FILE" in text
    assert "--arch" in text


REAL = lock_file.load(pathlib.Path(__file__).resolve().parents[3] / "artifacts.lock.yml").components


@pytest.fixture
def bare(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Leave nothing on PATH and no library; return the folder that is PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchain, "_has_library", lambda name: False)
    monkeypatch.setattr(toolchain, "DEBIAN_KEYRING", tmp_path / "keyring")
    return folder


def test_everything_that_is_missing_is_named_at_once(bare: pathlib.Path) -> None:
    with pytest.raises(CommandError) as caught:
        toolchain.require([REAL["runc"], REAL["kubernetes"]], debian_bases=True)
    message = caught.value.message
    assert "there is no Go on PATH; install Go 1.26" in message
    assert (
        "apt-get install -y debian-archive-keyring gcc libc6-dev libseccomp-dev mmdebstrap pkg-config"
        in message
    )
    assert caught.value.code == Exit.BAD_INPUT


@pytest.mark.parametrize(
    ("components", "bases", "packages"),
    [
        ([], False, set()),
        ([], True, {"mmdebstrap", "debian-archive-keyring"}),
        (["etcd"], False, set()),
        (["kubernetes"], False, {"gcc", "libc6-dev"}),
        (["flannel"], False, {"gcc", "libc6-dev"}),
        (["runc"], False, {"gcc", "libc6-dev", "libseccomp-dev", "pkg-config"}),
    ],
)
def test_only_what_is_needed_is_asked_for(
    bare: pathlib.Path, components: list[str], bases: bool, packages: set[str]
) -> None:
    problems = [
        line for line in toolchain.missing([REAL[name] for name in components], bases) if "apt-get" in line
    ]
    named = set(problems[0].partition("apt-get install -y ")[2].split()) if problems else set()
    assert named == packages


@pytest.mark.parametrize(
    ("version", "switching", "answer"),
    [
        ("go1.26.8", "local", ""),
        ("go1.27.0", "local", ""),
        ("go2.0", "local", ""),
        ("go1.27-devel_abc", "local", ""),
        ("go1.25.9", "local", "Go on PATH is go1.25.9, too old"),
        ("go1.24.4", "auto", ""),
        ("go1.19.8", "auto", "Go on PATH is go1.19.8, too old"),
        ("", "local", "there is no Go on PATH"),
    ],
)
def test_go_must_be_new_enough_or_able_to_fetch_a_newer_one(
    go_log: pathlib.Path, monkeypatch: pytest.MonkeyPatch, version: str, switching: str, answer: str
) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", version)
    monkeypatch.setenv("FAKE_GO_TOOLCHAIN", switching)
    if not version:
        monkeypatch.setenv("PATH", "/nowhere")
    problems = toolchain.missing([REAL["etcd"]], debian_bases=False)
    assert (problems[0] if problems else "").startswith(answer) and bool(problems) == bool(answer)


def test_the_release_needed_is_the_highest_of_the_modules(tmp_path: pathlib.Path) -> None:
    for name, text in {"etcd": "go 1.26.3", "runc": "module x\n\ngo 1.28\n", "flannel": "go 1.5"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "go.mod").write_text(text)
    needed = [REAL[name] for name in ("etcd", "runc", "flannel")]
    assert toolchain.go_required(needed, tmp_path) == (1, 28)
    assert toolchain.go_required([REAL["flannel"]], tmp_path) == (1, 26)


@pytest.mark.parametrize(("component", "cgo"), [("etcd", "0"), ("runc", "1"), (None, "0")])
def test_a_build_does_not_depend_on_the_machines_go_settings(
    component: str | None, cgo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    monkeypatch.setenv("GOWORK", "/some/go.work")
    monkeypatch.setenv("GO111MODULE", "off")
    monkeypatch.setenv("GOAMD64", "v4")  # runs on this machine, and on no host that is older
    monkeypatch.setenv("GOEXPERIMENT", "arenas")
    monkeypatch.setenv("CGO_LDFLAGS", "-L/some")
    environment = toolchain.go_environment(REAL[component] if component else None, "arm64")
    assert environment["CGO_ENABLED"] == cgo
    assert environment["GOFLAGS"] == "-buildvcs=false -trimpath -mod=readonly"
    assert (environment["GOWORK"], environment["GOARCH"]) == ("off", "arm64")
    assert (environment["GO111MODULE"], environment["GOAMD64"]) == ("on", "v1")
    assert not {"GOEXPERIMENT", "CGO_LDFLAGS"} & set(environment)


@pytest.mark.parametrize(("cores", "gibibytes", "answer"), [(1, 2, 1), (2, 24, 1), (8, 32, 4), (64, 256, 4), (16, 7, 2)])  # fmt: skip  # noqa: E501
def test_few_compilations_run_at_once(
    cores: int, gibibytes: int, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else gibibytes << 18)
    assert toolchain.parallel_compiles() == answer


def test_a_package_belongs_to_its_longest_module() -> None:
    etcd = REAL["etcd"]
    assert pin._version(etcd, "go.etcd.io/etcd/etcdctl/v3") == "v3.6.14"
    with pytest.raises(CommandError, match="belongs to none of its modules"):
        pin._version(etcd, "go.etcd.io/etcd/etcdctlx/v3")


GO_GET = """#!/bin/sh
# Writes what `go get` would: the versions asked for, and a sum for each.
[ "$1" = get ] || exit 3
[ "$GOFLAGS" = -mod=mod ] || exit 4
shift
for wanted in "$@"; do echo "require $wanted" >> go.mod; echo "$wanted h1:x=" >> go.sum; done
"""


def test_modules_are_resolved_at_the_lock_files_versions(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "go").write_text(GO_GET)
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    folder = tmp_path / "gomods"
    shutil.copytree(toolchain.GOMODS / "gvisor-lab" / "userns", folder / "gvisor-lab" / "userns")
    component = REAL["gvisor-lab"]
    assert pin.pin_modules(component, folder) is True
    text = (folder / "gvisor-lab/go.mod").read_text()
    assert "module build/gvisor-lab\n" in text
    assert "replace github.com/moby/sys/userns => ./userns\n" in text
    assert f"require gvisor.dev/gvisor/shim@{component.modules['gvisor.dev/gvisor']}\n" in text
    assert pin.pin_modules(component, folder) is False
    (tmp_path / "go").write_text("#!/bin/sh\necho 'go: no such module' >&2\nexit 1\n")
    with pytest.raises(CommandError, match=r"go get failed for gvisor-lab:\n  go: no such module"):
        pin.pin_modules(component, folder)
    assert (folder / "gvisor-lab/go.mod").read_text() == text
