# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Compiles components from Go modules, each program once, and keeps what was compiled."""

from __future__ import annotations

import collections.abc
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

from ironspan.artifacts import cache, toolchain
from ironspan.artifacts.lock import Component, CProgram, Lock
from ironspan.cli.outcome import CommandError, Exit

BUILDER = 1
"""Raise it when this file changes what it makes from the same lock file; everything is then built again."""
KEPT_S = 14 * 86400.0
"""Seconds after which programs of a recipe that nobody used are removed; one of Kubernetes has 0.6 GB."""
LAST_LINES = 12
"""Lines of a failed command's output that go into the message."""

Say = collections.abc.Callable[[str], None]
"""Told in a few words what is going on."""


def recipe(component: Component, folder: pathlib.Path = toolchain.GOMODS) -> str:
    """Return a digest of everything that decides what a component's programs are, but for the Go release.

    The Go release is left out on purpose: a newer compiler on the controller must not replace every program
    on every host. ``ironspan artifacts build --rebuild`` does that when it is wanted.
    """
    fields = dataclasses.asdict(component)
    # What a person reads, not what the compiler does.
    del fields["licence"]
    if not component.tests:
        # Only where there are some: the recipes of all other components stay as they were.
        del fields["tests"]
    digest = hashlib.sha256(json.dumps([BUILDER, fields], sort_keys=True).encode())
    for path in sorted((folder / component.name).rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(folder / component.name).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


class Builder:
    """Compiles programs of a lock file; one for a run, shared by its threads.

    Args:
        lock: the lock file.
        place: where compiled programs are kept.
        arch: this machine's architecture.
        gomods: folder with go.mod and go.sum of each component.
        rebuild: compile again what is kept already.
    """

    def __init__(
        self,
        lock: Lock,
        place: cache.Cache,
        arch: str,
        gomods: pathlib.Path = toolchain.GOMODS,
        rebuild: bool = False,
    ) -> None:
        self.lock = lock
        self.place = place
        self.arch = arch
        self.gomods = gomods
        self.rebuild = rebuild
        self._rebuilt: set[str] = set()
        self._compiling = threading.BoundedSemaphore(toolchain.parallel_compiles())
        self._versions: dict[str, str] = {}
        self._running: set[subprocess.Popen[str]] = set()

    def program(self, source: str, say: Say) -> pathlib.Path:
        """Return a compiled program, compiling it if it is not kept yet.

        Args:
            source: COMPONENT/PROGRAM.
            say: told what is going on.

        Returns:
            The program's path; its digest has just been checked.

        Raises:
            CommandError: it does not compile; the message has the end of the compiler's output.
        """
        name, _, program = source.partition("/")
        component = self.lock.components[name]
        kept = self.place.built(name, recipe(component, self.gomods)) / self.arch / program
        # One at a time within a component: two compilations would do the same packages twice.
        with self.place.locked(
            f"compile-{name}", lambda: say(f"waiting for the compilation of {name}")
        ) as scratch:
            if _is_whole(kept) and (not self.rebuild or source in self._rebuilt):
                os.utime(kept.parent.parent)
                return kept
            say(f"waiting to compile {program}")
            with self._compiling:
                if self.place.stopping.is_set():
                    raise KeyboardInterrupt
                say(f"compiling {program}")
                self.place.discard(scratch)
                # A compiler that outlived a killed run must not write into this run's file.
                made = scratch / f"{program}.{os.getpid()}"
                if program in component.c_programs:
                    self._compile_c(component, component.c_programs[program], made)
                else:
                    self._compile_go(component, program, made, say)
            digest = cache.digest_of(made)
            kept.parent.mkdir(parents=True, exist_ok=True)
            # First the program, then its digest: a kill between the two only means compiling once more.
            cache.publish(made, kept)
            cache.publish_text(digest, kept.with_name(f"{program}.digest"), scratch)
            self._rebuilt.add(source)
            os.utime(kept.parent.parent)
            self._forget(kept.parent.parent)
        return kept

    def stop(self) -> None:
        """End what compiles now; nothing else is begun once the cache's ``stopping`` is set."""
        for process in list(self._running):
            process.terminate()

    def source(self, source: str) -> pathlib.Path:
        """Return a file or folder of a Go module's source.

        Args:
            source: COMPONENT/PATH; the component has one module.

        Raises:
            CommandError: the module cannot be had, or has no such file.
        """
        name, _, path = source.partition("/")
        component = self.lock.components[name]
        (module,) = component.modules
        found = self._module(component, module) / path
        if not found.exists():
            raise CommandError(
                f"{component.built_from()} has no {path}", "Correct the lock file.", Exit.BAD_INPUT
            )
        return found

    def compiler(self, component: Component) -> str:
        """Return the Go release that compiles a component, for the record."""
        if component.name not in self._versions:
            self._versions[component.name] = self._run(component, ["go", "env", "GOVERSION"]).strip()
        return self._versions[component.name]

    def _forget(self, current: pathlib.Path) -> None:
        """Remove a component's programs of other recipes that have long not been used."""
        for folder in current.parent.iterdir():
            if folder != current and time.time() - folder.stat().st_mtime > KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)

    def _compile_go(self, component: Component, program: str, made: pathlib.Path, say: Say) -> None:
        tests = program in component.tests
        # Upstream's own checks have vetted the tests, and all that they import: a second time takes minutes.
        verb = ["go", "test", "-c", "-vet=off"] if tests else ["go", "build"]
        command = [*verb, "-ldflags", " ".join(("-s", "-w", *component.ldflags)), "-o", str(made)]
        if component.tags:
            command += ["-tags", ",".join(component.tags)]
        package = component.tests[program] if tests else component.programs[program]
        self._run(component, [*command, package], say)

    def _compile_c(self, component: Component, program: CProgram, made: pathlib.Path) -> None:
        source = self._module(component, program.module) / program.source
        self._run(component, ["gcc", *program.flags, "-s", "-o", str(made), str(source)])

    def _module(self, component: Component, module: str) -> pathlib.Path:
        """Return the folder with a module's source, fetching it when it is not there."""
        self._run(component, ["go", "mod", "download", module])
        answer = json.loads(self._run(component, ["go", "list", "-m", "-json", module]))
        return pathlib.Path(answer["Dir"])

    def _run(self, component: Component, command: list[str], say: Say | None = None) -> str:
        folder = self.gomods / component.name
        environment = toolchain.go_environment(component, self.arch)
        with subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            self._running.add(process)
            if self.place.stopping.is_set():
                # stop() may have looked before this one was there.
                process.terminate()
            lines: list[str] = []
            reader = threading.Thread(target=_follow, args=(process.stderr, lines, say), daemon=True)
            reader.start()
            output = process.stdout.read() if process.stdout else ""
            reader.join()
        self._running.discard(process)
        if self.place.stopping.is_set():
            raise KeyboardInterrupt
        if process.returncode != 0:
            tail = "\n".join(f"  {line}" for line in lines[-LAST_LINES:])
            raise CommandError(
                f"compiling {component.name} failed ({command[0]} ended with {process.returncode}):\n{tail}",
                f"Try it by hand in {folder}.",
            )
        return output


def _follow(stream: collections.abc.Iterable[str], lines: list[str], say: Say | None) -> None:
    for line in stream:
        lines.append(line.rstrip())
        if say is not None and line.startswith("go: downloading "):
            say(f"downloading {line.split()[2]}")


def _is_whole(program: pathlib.Path) -> bool:
    try:
        digest = program.with_name(f"{program.name}.digest").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return False
    return cache.has_digest(program, digest)
