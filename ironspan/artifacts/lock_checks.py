# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the YAML of a lock file into its types and collects everything that is wrong with it."""

from __future__ import annotations

import pathlib
import typing as t
import urllib.parse

from ironspan.artifacts import environments
from ironspan.artifacts.environments import MACHINES
from ironspan.artifacts.fields import Fields
from ironspan.artifacts.lock import (
    DIGEST,
    IMAGE_REF,
    PACKS,
    SCHEMA,
    Base,
    Chart,
    Component,
    CProgram,
    File,
    Image,
    Lock,
)
from ironspan.artifacts.system import declared as systems


class Reader(Fields):
    """Turns plain data into a ``Lock``; what is wrong goes to ``problems``."""

    def lock(self, data: t.Any, source: pathlib.Path) -> Lock:
        """Read a whole lock file."""
        top = self.mapping(data, "the file", "lock")
        if top.get("schema") != SCHEMA:
            self.problem("schema", f"is {top.get('schema')!r}; this version of ironspan reads {SCHEMA}")
        components = {
            name: self.component(name, value, f"components.{name}")
            for name, value in self.mapping(top.get("components", {}), "components").items()
        }
        bases = {
            name: self.base(name, value, f"bases.{name}")
            for name, value in self.mapping(top.get("bases", {}), "bases").items()
        }
        files = {
            key: self.file(key, value, f"files.{key}")
            for key, value in self.mapping(top.get("files", {}), "files").items()
        }
        images = {
            key: self.image(key, value, f"images.{key}")
            for key, value in self.mapping(top.get("images", {}), "images").items()
        }
        programs = {
            name: environments.read(self, name, value, f"environments.{name}")
            for name, value in self.mapping(top.get("environments", {}), "environments").items()
        }
        whole = {
            name: systems.read(self, name, systems.based(value, top["systems"]), f"systems.{name}")
            for name, value in self.mapping(top.get("systems", {}), "systems").items()
        }
        lock = Lock(source, components, bases, files, images, programs, whole)
        self.references(lock)
        return lock

    def references(self, lock: Lock) -> None:
        """Check that programs and bases that are named exist, and that no two files share a path."""
        for key, file in lock.files.items():
            for member, program in file.members.items():
                self.program(lock, program, f"files.{key}.go.{member or 'program'}")
            if file.chart:
                self.program(lock, file.chart.program, f"files.{key}.go.program")
                self.source(lock, file.chart.folder, f"files.{key}.go.chart")
            if file.environment and file.environment not in lock.environments:
                self.problem(f"files.{key}.environment", f"there is no environment {file.environment!r}")
            if file.system:
                self.system(lock, file.system, f"files.{key}.system")
        for key, image in lock.images.items():
            for member, program in image.programs.items():
                self.program(lock, program, f"images.{key}.go.programs.{member}")
            for place, folder in image.sources.items():
                self.source(lock, folder, f"images.{key}.go.sources.{place}")
            if image.base and image.base not in lock.bases:
                self.problem(f"images.{key}.go.base", f"there is no base {image.base!r}")
        seen: dict[str, str] = {}
        for key, file in lock.files.items():
            # A file that has lost its address to another problem is not reported twice.
            path = file.mirror_path("amd64") if file.url or file.path else ""
            if path and path in seen:
                self.problem(f"files.{key}", f"lies at the same path as {seen[path]}: {path}")
            seen[path] = key

    def program(self, lock: Lock, source: str, where: str) -> None:
        """Check that COMPONENT/PROGRAM exists."""
        name, _, program = source.partition("/")
        component = lock.components.get(name)
        if component is None:
            self.problem(where, f"there is no component {name!r}")
        elif program not in {**component.programs, **component.c_programs, **component.tests}:
            self.problem(where, f"component {name} has no program {program!r}")

    def system(self, lock: Lock, source: str, where: str) -> None:
        """Check that SYSTEM/FILE exists."""
        name, _, member = source.partition("/")
        system = lock.systems.get(name)
        if system is None:
            self.problem(where, f"there is no system {name!r}; known: {', '.join(lock.systems)}")
        elif member not in system.members:
            self.problem(where, f"a {system.kind} has no {member!r}; it has {', '.join(system.members)}")

    def source(self, lock: Lock, source: str, where: str) -> None:
        """Check that COMPONENT/PATH names a component of one module, and stays inside of it."""
        name, _, path = source.partition("/")
        component = lock.components.get(name)
        if component is None:
            self.problem(where, f"there is no component {name!r}")
        elif len(component.modules) != 1:
            self.problem(where, f"component {name} has several modules; name one that has a single one")
        if not path or ".." in path.split("/"):
            self.problem(where, f"{source!r} is not COMPONENT/PATH")

    def component(self, name: str, data: t.Any, where: str) -> Component:
        """Read one component."""
        fields = self.mapping(data, where, "component")
        modules = self.strings(fields.get("modules", {}), f"{where}.modules")
        if not modules:
            self.problem(f"{where}.modules", "name at least one Go module and its version")
        for module, version in modules.items():
            if not version.startswith("v"):
                self.problem(f"{where}.modules.{module}", f"{version!r} is not a Go module version (v1.2.3)")
        return Component(
            name=name,
            version=self.text(fields, "version", where),
            licence=self.text(fields, "licence", where),
            modules=modules,
            programs=self.strings(fields.get("programs", {}), f"{where}.programs"),
            c_programs={
                program: self.c_program(value, f"{where}.c_programs.{program}")
                for program, value in self.mapping(
                    fields.get("c_programs", {}), f"{where}.c_programs"
                ).items()
            },
            replace=self.strings(fields.get("replace", {}), f"{where}.replace"),
            staging=self.text(fields, "staging", where, required=False),
            cgo=self.flag(fields, "cgo", where),
            libraries=self.listing(fields.get("libraries", []), f"{where}.libraries"),
            tags=self.listing(fields.get("tags", []), f"{where}.tags"),
            ldflags=self.listing(fields.get("ldflags", []), f"{where}.ldflags"),
            tests=self.strings(fields.get("tests", {}), f"{where}.tests"),
        )

    def c_program(self, data: t.Any, where: str) -> CProgram:
        """Read one C program."""
        fields = self.mapping(data, where, "c_program")
        return CProgram(
            self.text(fields, "module", where),
            self.text(fields, "source", where),
            self.listing(fields.get("flags", []), f"{where}.flags"),
        )

    def base(self, name: str, data: t.Any, where: str) -> Base:
        """Read one base layer."""
        fields = self.mapping(data, where, "base")
        applets = fields.get("applets", [])
        return Base(
            name=name,
            suite=self.text(fields, "suite", where),
            packages=self.listing(fields.get("packages"), f"{where}.packages"),
            licence=self.text(fields, "licence", where),
            links=self.strings(fields.get("links", {}), f"{where}.links"),
            applets="all" if applets == "all" else self.listing(applets, f"{where}.applets"),
            files=self.strings(fields.get("files", {}), f"{where}.files"),
        )

    def file(self, key: str, data: t.Any, where: str) -> File:
        """Read one file."""
        fields = self.mapping(data, where, "file")
        name, _, version = key.partition("/")
        if not name or not version:
            self.problem(where, "write the key as NAME/VERSION")
        url = self.text(fields, "url", where, required=False)
        path = self.text(fields, "path", where, required=False)
        if bool(url) == bool(path):
            self.problem(where, "give either url (where upstream publishes it) or path (nobody publishes it)")
        self.url(url, f"{where}.url")
        if path and (not path.startswith("/") or ".." in path.split("/")):
            self.problem(f"{where}.path", f"{path!r} must begin with / and stay below the mirror")
        pack, members = self.file_go(fields.get("go"), f"{where}.go")
        chart = self.chart(fields["go"], f"{where}.go") if pack == "chart" else None
        environment = self.text(fields, "environment", where, required=False)
        system = self.text(fields, "system", where, required=False)
        if path and fields.get("go") is None and not environment and not system:
            self.problem(where, "nobody publishes it and it has no go recipe: it could never be made")
        return File(
            name=name,
            version=version,
            licence=self.text(fields, "licence", where),
            url=url,
            path=path,
            digests=self.digests(fields.get("digests", {}), f"{where}.digests"),
            only_without_capability=self.text(fields, "only_without_capability", where, required=False),
            pack=pack,
            members=members,
            set_name=self.text(fields, "set", where, required=False),
            environment=environment,
            chart=chart,
            system=system,
            sizes=self.sizes(fields.get("sizes", {}), f"{where}.sizes"),
        )

    def file_go(self, data: t.Any, where: str) -> tuple[str, dict[str, str]]:
        """Read how a file is packed from programs."""
        if data is None:
            return "", {}
        fields = self.mapping(data, where, "file.go")
        pack = self.text(fields, "pack", where)
        if pack not in PACKS:
            self.problem(f"{where}.pack", f"is {pack!r}; it can be {' or '.join(PACKS)}")
            return "", {}
        if pack == "chart":
            return pack, {}
        if pack == "file":
            return pack, {"": self.text(fields, "program", where)}
        members = self.strings(fields.get("members", {}), f"{where}.members")
        if not members:
            self.problem(f"{where}.members", "name at least one member")
        return pack, members

    def chart(self, fields: dict[str, t.Any], where: str) -> Chart:
        """Read how manifests are rendered from a chart."""
        sha256 = self.text(fields, "sha256", where, required=False)
        if sha256 and not DIGEST.match(f"sha256:{sha256}"):
            self.problem(f"{where}.sha256", f"{sha256!r} is not 64 hexadecimal digits")
        return Chart(
            program=self.text(fields, "program", where),
            folder=self.text(fields, "chart", where),
            values=self.text(fields, "values", where),
            namespace=self.text(fields, "namespace", where),
            kube_version=self.text(fields, "kube_version", where),
            sha256=sha256,
        )

    def image(self, key: str, data: t.Any, where: str) -> Image:
        """Read one image."""
        fields = self.mapping(data, where, "image")
        if not IMAGE_REF.match(key):
            self.problem(where, "write the key as REGISTRY/REPOSITORY:TAG")
        digests = self.digests(fields.get("digests", {}), f"{where}.digests")
        for arch, digest in digests.items():
            if digest and not digest.startswith("sha256:"):
                self.problem(f"{where}.digests.{arch}", "an image's digest is a sha256")
        go = fields.get("go")
        recipe = self.mapping(go, f"{where}.go", "image.go") if go is not None else {}
        programs = self.strings(recipe.get("programs", {}), f"{where}.go.programs")
        for part in ("programs", "sources"):
            for place in recipe.get(part, {}):
                if not str(place).startswith("/"):
                    self.problem(f"{where}.go.{part}", f"{place!r} must begin with /")
        return Image(
            ref=key,
            licence=self.text(fields, "licence", where),
            digests=digests,
            base=self.text(recipe, "base", f"{where}.go", required=False),
            programs=programs,
            entrypoint=self.listing(recipe.get("entrypoint", []), f"{where}.go.entrypoint"),
            command=self.listing(recipe.get("command", []), f"{where}.go.command"),
            user=self.text(recipe, "user", f"{where}.go", required=False),
            buildable=go is not None,
            set_name=self.text(fields, "set", where, required=False),
            sources=self.strings(recipe.get("sources", {}), f"{where}.go.sources"),
        )

    def digests(self, data: t.Any, where: str) -> dict[str, str | None]:
        """Read architecture -> digest or null."""
        result: dict[str, str | None] = {}
        for arch, digest in self.mapping(data, where).items():
            if arch not in MACHINES:
                self.problem(where, f"{arch!r} is no architecture; it can be {' or '.join(MACHINES)}")
            elif digest is not None and not (isinstance(digest, str) and DIGEST.match(digest)):
                self.problem(f"{where}.{arch}", f"{digest!r} is not sha256:HEX, sha512:HEX or null")
            else:
                result[arch] = digest
        return result

    def sizes(self, data: t.Any, where: str) -> dict[str, int]:
        """Read architecture -> bytes of what is published."""
        result: dict[str, int] = {}
        for arch, size in self.mapping(data, where).items():
            if arch not in MACHINES:
                self.problem(where, f"{arch!r} is no architecture; it can be {' or '.join(MACHINES)}")
            elif type(size) is not int or size < 1:
                self.problem(f"{where}.{arch}", f"{size!r} is no number of bytes")
            else:
                result[arch] = size
        return result

    def url(self, url: str, where: str) -> None:
        """Check an address: https, a host, a path that stays below it."""
        parts = urllib.parse.urlsplit(url)
        if url and (
            parts.scheme != "https" or not parts.netloc or ".." in parts.path.split("/") or parts.query
        ):
            self.problem(where, f"{url!r} must be https://HOST/PATH without a query")
