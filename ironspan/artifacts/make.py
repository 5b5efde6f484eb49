# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes one item of the mirror by one source and says what the index shall record about it."""

from __future__ import annotations

import json
import pathlib
import time

from ironspan.artifacts import (
    cache,
    chart,
    debian,
    download,
    gobuild,
    image,
    index,
    pack,
    recipes,
    registry,
    wheels,
)
from ironspan.artifacts.lock import Base, File, Image, Lock, expand
from ironspan.artifacts.system import build
from ironspan.cli.outcome import CommandError


class Maker:
    """Knows how each kind of item comes from each source.

    Args:
        lock: the lock file.
        place: the cache.
        arch: amd64 or arm64.
        rebuild: compile again what is kept already.
    """

    def __init__(self, lock: Lock, place: cache.Cache, arch: str, rebuild: bool = False) -> None:
        self.lock = lock
        self.place = place
        self.arch = arch
        self.builder = gobuild.Builder(lock, place, arch, rebuild=rebuild)
        self._newer_than = time.time() if rebuild else 0.0

    def make(
        self, item: File | Image, source: recipes.Source, scratch: pathlib.Path, say: gobuild.Say
    ) -> index.Entry:
        """Put an item into the mirror.

        Args:
            item: the file or image.
            source: upstream or go.
            scratch: the step's own folder; may hold what a killed run left.
            say: told what is going on.

        Returns:
            The entry for the index. Everything it names is in its place.
        """
        if source != "upstream":
            self.place.discard(scratch)
        if isinstance(item, File) and source == "wheels":
            return self._packed(item, scratch, say)
        if isinstance(item, File) and source == "debian":
            return self._of_system(item, scratch, say)
        if isinstance(item, File):
            return (
                self._file_from_go(item, scratch, say) if source == "go" else self._file(item, scratch, say)
            )
        return self._image_from_go(item, scratch, say) if source == "go" else self._image(item, scratch, say)

    def stop(self) -> None:
        """End what runs now, because the operator wants the run to end."""
        self.place.stopping.set()
        self.builder.stop()

    def _file(self, item: File, scratch: pathlib.Path, say: gobuild.Say) -> index.FileEntry:
        digest = self._pinned(item)
        url = item.upstream_url(self.arch)
        part = scratch / "download"
        largest = item.sizes.get(self.arch, download.LARGEST_BYTES)
        download.fetch(url, digest, part, say, largest=largest)
        return self._file_entry(item, part, scratch, "upstream", url)

    def _file_from_go(self, item: File, scratch: pathlib.Path, say: gobuild.Say) -> index.FileEntry:
        if item.chart is not None:
            program = self.builder.program(item.chart.program, say)
            say("rendering")
            chart.render(item.chart, program, self.builder.source(item.chart.folder), scratch / "packed")
            return self._file_entry(item, scratch / "packed", scratch, "go", self._built_from(item))
        programs = {
            expand(member, self.arch): self.builder.program(source, say)
            for member, source in item.members.items()
        }
        made = scratch / "packed"
        if item.pack == "file":
            cache.link_or_copy(next(iter(programs.values())), made, scratch)
        else:
            say("packing")
            pack.tar_gz(programs, made)
        return self._file_entry(item, made, scratch, "go", self._built_from(item))

    def _packed(self, item: File, scratch: pathlib.Path, say: gobuild.Say) -> index.FileEntry:
        environment = self.lock.environments[item.environment]
        if not environment.wheels_for(self.arch):
            raise CommandError(
                f"no wheels of {environment.name} are pinned for {self.arch}",
                f"Pin them: ironspan artifacts pin --wheels {environment.name}",
            )
        say("fetching wheels")
        brought = wheels.fetch(environment, self.arch, self.place, scratch)
        say("packing")
        wheels.pack(environment, brought, scratch / "packed")
        built_from = ", ".join(sorted({wheel.requirement for wheel in environment.wheels_for(self.arch)}))
        return self._file_entry(item, scratch / "packed", scratch, "wheels", built_from)

    def _of_system(self, item: File, scratch: pathlib.Path, say: gobuild.Say) -> index.FileEntry:
        name, _, member = item.system.partition("/")
        built = build.build(self.lock.systems[name], self.arch, self.place, say, self._newer_than)
        return self._file_entry(item, built.folder / member, scratch, "debian", built.made_from)

    def _file_entry(
        self, item: File, made: pathlib.Path, scratch: pathlib.Path, source: recipes.Source, built_from: str
    ) -> index.FileEntry:
        digest = cache.digest_of(made)
        size = made.stat().st_size
        path = item.mirror_path(self.arch)
        # One more name rather than a rename: a compiled program stays where it is kept.
        cache.link_or_copy(made, self.place.below_mirror(path), scratch)
        return index.FileEntry(
            name=item.name,
            version=item.version,
            arch=self.arch,
            path=path,
            sha256=digest.removeprefix("sha256:"),
            size=size,
            source=source,
            licence=item.licence,
            built_from=built_from,
            recipe=recipes.recipe(item, source, self.lock, self.arch),
        )

    def _image(self, item: Image, scratch: pathlib.Path, say: gobuild.Say) -> index.ImageEntry:
        digest = self._pinned(item)
        laid = registry.pull(item, digest, self.place, scratch, say)
        return self._image_entry(item, laid, "upstream", f"{item.registry}/{item.repository}@{digest}")

    def _image_from_go(self, item: Image, scratch: pathlib.Path, say: gobuild.Say) -> index.ImageEntry:
        layers: list[image.Layer] = []
        built_from = self._built_from(item)
        if item.base:
            layer, packages = self._base(self.lock.bases[item.base], say)
            layers.append(layer)
            built_from = ", ".join(filter(None, [built_from, f"Debian {' '.join(packages)}"]))
        if item.programs or item.sources:
            programs = {place: self.builder.program(source, say) for place, source in item.programs.items()}
            sources = {place: self.builder.source(source) for place, source in item.sources.items()}
            say("packing")
            layers.append(image.program_layer(programs, scratch / "programs.tar", sources))
        laid = image.lay_out(item, layers, self.arch, self.place, scratch)
        return self._image_entry(item, laid, "go", built_from)

    def _base(self, base: Base, say: gobuild.Say) -> tuple[image.Layer, list[str]]:
        """Return a base layer and its packages, making it when it is not kept yet."""
        folder = self.place.root / "base" / f"{base.name}-{self.arch}-{debian.recipe(base)}"
        layer, record = folder / "layer.tar", folder / "layer.json"
        with self.place.locked(
            f"base-{base.name}", lambda: say(f"waiting for the base layer {base.name}")
        ) as scratch:
            if record.exists():
                known = json.loads(record.read_text(encoding="utf-8"))
                if cache.has_digest(layer, known["digest"]):
                    return image.existing_layer(layer), known["packages"]
            say(f"base layer {base.name}: unpacking {len(base.packages)} Debian packages")
            self.place.discard(scratch)
            packages = debian.make(base, self.arch, scratch / "layer.tar", scratch)
            made = image.existing_layer(scratch / "layer.tar")
            cache.publish(made.path, layer)
            cache.publish_text(json.dumps({"digest": made.digest, "packages": packages}), record, scratch)
            return image.Layer(layer, made.digest, made.size), packages

    def _image_entry(
        self, item: Image, laid: image.Laid, source: recipes.Source, built_from: str
    ) -> index.ImageEntry:
        return index.ImageEntry(
            ref=item.ref,
            arch=self.arch,
            digest=laid.digest,
            media_type=laid.media_type,
            blobs=laid.blobs,
            size=laid.size,
            source=source,
            licence=item.licence,
            built_from=built_from,
            recipe=recipes.recipe(item, source, self.lock, self.arch),
        )

    def _built_from(self, item: File | Image) -> str:
        parts: list[str] = []
        for name in sorted(item.components()):
            component = self.lock.components[name]
            parts.append(f"{component.built_from()} with {self.builder.compiler(component)}")
        return ", ".join(parts)

    def _pinned(self, item: File | Image) -> str:
        digest = item.digests.get(self.arch)
        if not digest:
            raise CommandError(
                f"no digest is pinned for {item.key} on {self.arch}",
                f"Pin it: ironspan artifacts pin {item.key}",
            )
        return digest
