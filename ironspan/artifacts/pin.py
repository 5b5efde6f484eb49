# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pins: writes what upstream publishes into the lock file, and Go modules into go.mod and go.sum."""

from __future__ import annotations

import collections.abc
import json
import pathlib
import shutil
import subprocess
import tempfile

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.artifacts import cache, download, registry, toolchain
from ironspan.artifacts.lock import Component, File, Image, Lock, native_arch
from ironspan.cli.outcome import CommandError, Exit

LEAST_GO = "1.26.0"
"""What go.mod files begin with; a component that needs a newer release raises it."""


def published(item: File | Image, arch: str, place: cache.Cache, say: download.Say) -> tuple[str, int]:
    """Return the digest of what upstream publishes now, and a file's bytes (of an image 0).

    There is nothing yet to check it against: the connection (https) is all that vouches for it, so a person
    should compare it with what the publisher announces before it is committed.
    """
    if isinstance(item, Image):
        return registry.Registry(item).resolve(arch), 0
    if not item.url:
        raise CommandError(f"nobody publishes {item.key}: there is nothing to pin", "", Exit.BAD_INPUT)
    with place.locked(f"pin-{item.key}") as scratch:
        place.discard(scratch)
        target = scratch / "download"
        download.fetch_unchecked(item.upstream_url(arch), target, say)
        found = cache.digest_of(target), target.stat().st_size
        place.discard(scratch)
    return found


def set_digest(text: str, item: File | Image, arch: str, digest: str) -> str:
    """Return the lock file's text with one digest replaced; comments and layout stay as they are.

    Args:
        text: the lock file.
        item: the entry.
        arch: amd64 or arm64.
        digest: sha256:HEX.

    Raises:
        CommandError: the entry has no line for this architecture (write ``ARCH: null`` there).
    """
    _, node = _entry(text, item, "digests", arch)
    if node is None:
        raise CommandError(
            f"{item.key} has no digest for {arch} in the lock file to replace",
            f"Write `digests: {{{arch}: null}}` there first.",
            Exit.BAD_INPUT,
        )
    return text[: node.start_mark.index] + digest + text[node.end_mark.index :]


def set_size(text: str, item: File, arch: str, size: int) -> str:
    """Return the lock file's text with the size of a published file: written anew, or in a line of its own.

    Args:
        text: the lock file; it has a line ``digests`` for this file.
        item: the entry.
        arch: amd64 or arm64.
        size: bytes.
    """
    _, node = _entry(text, item, "sizes", arch)
    if node is not None:
        return text[: node.start_mark.index] + str(size) + text[node.end_mark.index :]
    _, sizes = _entry(text, item, "sizes")
    if isinstance(sizes, yaml.MappingNode) and sizes.value:
        end = sizes.value[-1][1].end_mark.index
        between = ", " if sizes.flow_style else "\n" + " " * sizes.value[-1][0].start_mark.column
        return f"{text[:end]}{between}{arch}: {size}{text[end:]}"
    key, _ = _entry(text, item, "digests")
    assert key is not None
    line = f"sizes: {{{arch}: {size}}}\n{' ' * key.start_mark.column}"
    return text[: key.start_mark.index] + line + text[key.start_mark.index :]


def _entry(text: str, item: File | Image, *path: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return key and value at a path inside an item of the lock file, None where there is nothing."""
    section = "files" if isinstance(item, File) else "images"
    key: yaml.Node | None = None
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for step in (section, item.key, *path):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        key, node = next(((key, value) for key, value in pairs if key.value == step), (None, None))
    return key, node


def pin_digest(
    item: File | Image, arch: str, lock: Lock, place: cache.Cache, replace: bool, say: download.Say
) -> bool:
    """Look up what upstream publishes and write its digest, and of a file its size, into the lock file.

    Args:
        item: the entry.
        arch: amd64 or arm64.
        lock: the lock file; it is written.
        place: the cache.
        replace: whether another digest than the pinned one may take its place.
        say: told what is going on.

    Returns:
        Whether the lock file changed.
    """
    found, size = published(item, arch, place, say)
    pinned = item.digests.get(arch)
    if pinned and not pinned.startswith("sha256:") and not replace:
        raise CommandError(
            f"{item.key} is pinned already, by {pinned.partition(':')[0]}",
            "--replace pins it by sha256.",
            Exit.BAD_INPUT,
        )
    right_size = not isinstance(item, File) or item.sizes.get(arch) == size
    if pinned == found and right_size:
        return False
    if pinned and pinned != found and not replace:
        raise CommandError(
            f"{item.key} is pinned to {pinned}, and upstream now serves {found}",
            "A published version should never change. When you know why it did, use --replace.",
        )
    text = set_digest(lock.path.read_text(encoding="utf-8"), item, arch, found)
    if isinstance(item, File):
        text = set_size(text, item, arch, size)
    write_file(lock.path, text.encode())
    return True


def pin_modules(component: Component, folder: pathlib.Path = toolchain.GOMODS) -> bool:
    """Resolve a component's Go modules again and write its go.mod and go.sum.

    Args:
        component: what to resolve, at the versions of the lock file.
        folder: where components' go.mod files are.

    Returns:
        Whether a file changed.

    Raises:
        CommandError: a ``go`` command failed; the message has the end of its output.
    """
    home = folder / component.name
    with tempfile.TemporaryDirectory(prefix="ironspan-pin-") as name:
        work = pathlib.Path(name)
        for local in (target for target in component.replace.values() if target.startswith("./")):
            shutil.copytree(home / local, work / local)
        if component.staging:
            _staged(component, work)
        else:
            _plain(component, work)
        changed = False
        home.mkdir(parents=True, exist_ok=True)
        for file in ("go.mod", "go.sum"):
            text = (work / file).read_text(encoding="utf-8")
            if not (home / file).exists() or (home / file).read_text(encoding="utf-8") != text:
                write_file(home / file, text.encode())
                changed = True
    return changed


def _plain(component: Component, work: pathlib.Path) -> None:
    """Require the modules, then everything that the programs' packages need."""
    replaced = "".join(f"replace {path} => {target}\n" for path, target in component.replace.items())
    (work / "go.mod").write_text(
        f"module build/{component.name}\n\ngo {LEAST_GO}\n\n{replaced}", encoding="utf-8"
    )
    _go(
        work,
        component,
        ["get", *(f"{path}@{version}" for path, version in sorted(component.modules.items()))],
    )
    # Packages with their module's version: without it Go would upgrade to the newest release there is.
    wanted = [f"{package}@{_version(component, package)}" for package in _packages(component)]
    _go(work, component, ["get", *wanted])


def _packages(component: Component) -> list[str]:
    return sorted({*component.programs.values(), *component.tests.values()})


def _version(component: Component, package: str) -> str:
    """Return the version of a package's module: the one whose path is the longest that it begins with."""
    owners = [path for path in component.modules if f"{package}/".startswith(f"{path}/")]
    if not owners:
        raise CommandError(
            f"component {component.name}: {package} belongs to none of its modules",
            "Add its module.",
            Exit.BAD_INPUT,
        )
    return component.modules[max(owners, key=len)]


def _staged(component: Component, work: pathlib.Path) -> None:
    """Resolve a module whose go.mod replaces modules by folders of its own repository (Kubernetes).

    As a dependency those folders are out of reach; the same modules are published as ``staging`` says.
    The module's own go.sum is the beginning, so that its dependencies are the ones that it was released with.
    """
    ((path, version),) = component.modules.items()
    source = pathlib.Path(
        json.loads(_go(work, component, ["mod", "download", "-json", f"{path}@{version}"]))["Dir"]
    )
    described = json.loads(_go(work, component, ["mod", "edit", "-json", str(source / "go.mod")]))
    lines = [f"module build/{component.name}", f"go {described['Go']}"]
    lines += [f"godebug {item['Key']}={item['Value']}" for item in described.get("GoDebug") or []]
    lines += [f"require {path} {version}"]
    lines += [
        f"replace {item['Old']['Path']} => {item['Old']['Path']} {component.staging}"
        for item in described.get("Replace") or []
        if item["New"]["Path"].startswith("./")
    ]
    lines += [f"tool {package}" for package in _packages(component)]
    (work / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (work / "go.sum").write_bytes((source / "go.sum").read_bytes())
    _go(work, component, ["mod", "tidy"])
    if component.tests:
        # What only tests of a dependency import is not resolved by itself.
        imports = '{{join .TestImports "\\n"}}\\n{{join .XTestImports "\\n"}}'
        named = _go(work, component, ["list", "-f", imports, *sorted(component.tests.values())]).split()
        lines += [f"tool {package}" for package in sorted({one for one in named if "." in one.split("/")[0]})]
        (work / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
        _go(work, component, ["mod", "tidy"])


def _go(work: pathlib.Path, component: Component, arguments: collections.abc.Sequence[str]) -> str:
    # Here, and only here, Go may change which modules are used.
    environment = {**toolchain.go_environment(component, native_arch()), "GOFLAGS": "-mod=mod"}
    answer = subprocess.run(
        ["go", *arguments], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        tail = "\n".join(f"  {line}" for line in answer.stderr.splitlines()[-8:])
        raise CommandError(f"go {arguments[0]} failed for {component.name}:\n{tail}")
    return answer.stdout
