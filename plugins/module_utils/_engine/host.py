# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The host as resource kinds see it: paths below a root, programs, inputs, memory and backups."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History, Journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State as KeptState
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Pending,
    ResourceError,
    State,
)

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

TEST_PROGRAMS = "/usr/local/ironspan-test-bin"
"""Below a private root programs are looked up here first."""

MACHINE_PROGRAMS = frozenset(
    [
        "apt-get",
        "apt-mark",
        "ctr",
        "dkms",
        "dpkg",
        "dpkg-query",
        "groupadd",
        "groupdel",
        "groupmod",
        "kubeadm",
        "modinfo",
        "modprobe",
        "mount",
        "swapoff",
        "swapon",
        "sysctl",
        "systemctl",
        "systemd-sysusers",
        "systemd-tmpfiles",
        "umount",
        "useradd",
        "userdel",
        "usermod",
    ]
)
"""What would change the machine itself: never run from a private root, where only stand-ins will do."""


class LocalHost:
    """The machine this process runs on; see ``types.Host`` for what each method promises."""

    def __init__(
        self,
        root: str,
        mirror: str,
        check_mode: bool,
        secrets: t.Mapping[str, str],
        certificates: t.Mapping[str, str],
        kept: KeptState,
        history: History,
        crash: CrashPoints,
        folders: t.Collection[str] = (),
    ) -> None:
        self.root = root
        self.mirror = mirror
        self.check_mode = check_mode
        self.current = ""
        """Id of the resource at work."""
        self.planned: t.Set[str] = set()
        """While planning: the resources that would change."""
        self.csrs: t.Dict[str, str] = {}
        self.journal: t.Optional[Journal] = None
        """Open while a transaction is applied."""
        self.backup_folder = ""
        self.unsaved: t.Dict[str, State] = {}
        """What was remembered outside a transaction; state.json does not have it yet."""
        self.history = history
        self.crash = crash
        self._prefix = root.rstrip("/")
        self._secrets = secrets
        self._certificates = certificates
        self._kept = kept
        kept.notes.update(history.notes)
        self._folders = frozenset(folders)
        self._cache: t.Dict[str, t.Any] = {}
        self._programs: t.Dict[str, str] = {}

    def path(self, path: str) -> str:
        return self._prefix + path if self._prefix else path

    def run(
        self,
        argv: t.Sequence[str],
        check: bool = True,
        stdin: t.Optional[bytes] = None,
        timeout: float = 300,
        env: t.Optional[t.Mapping[str, str]] = None,
        pass_fds: t.Sequence[int] = (),
    ) -> t.Tuple[int, str, str]:
        import subprocess

        environment = {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/root", **(env or {})}
        if self._prefix:
            environment["IRONSPAN_ROOT"] = self._prefix
        try:
            done = subprocess.run(
                [self._program(argv[0]), *argv[1:]],
                input=stdin if stdin is not None else b"",
                capture_output=True,
                timeout=timeout,
                env=environment,
                cwd="/",
                pass_fds=pass_fds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = f"{argv[0]} has not ended after {timeout:.0f} s"
            raise ResourceError(text, f"Run it on the host by hand: {' '.join(argv)}") from error
        except OSError as error:
            text = f"{argv[0]} cannot be started: {error.strerror}"
            raise ResourceError(text, "Install the package that provides it.") from error
        output = done.stdout.decode("utf-8", "replace")
        trouble = done.stderr.decode("utf-8", "replace")
        if check and done.returncode != 0:
            lines = (trouble.strip() or output.strip()).splitlines()[-5:]
            text = f"{' '.join(argv)} ended with status {done.returncode}: {' | '.join(lines) or 'no output'}"
            raise ResourceError(text, "Run it on the host by hand to see more.")
        return done.returncode, output, trouble

    def _program(self, name: str) -> str:
        if not self._prefix or "/" in name:
            return name
        stand_in = self.path(f"{TEST_PROGRAMS}/{name}")
        if os.access(stand_in, os.X_OK):
            return stand_in
        if name in MACHINE_PROGRAMS:
            text = f"{name} acts on the whole machine and is not run from the private root {self.root}"
            raise ResourceError(text, f"Put a stand-in into {TEST_PROGRAMS} below the root.")
        return name

    def secret(self, name: str) -> bytes:
        if name not in self._secrets:
            raise Pending(f"secret:{name}")
        return self._secrets[name].encode("utf-8")

    def certificate(self, resource_id: str) -> str:
        if resource_id not in self._certificates:
            raise Pending(f"certificate:{resource_id}")
        return self._certificates[resource_id]

    def changed(self, resource_id: str) -> bool:
        if resource_id in self.planned:
            return True
        history, current = self.history, self.current
        done = history.done.get(current)
        if resource_id in history.started and history.started[resource_id] > (done or 0):
            return True
        # What this resource was told by an earlier transaction is settled once it was done in this one.
        return done is None and self._kept.changed.get(resource_id, 0) > self._kept.settled.get(current, 0)

    def note(self, resource_id: str) -> State:
        return dict(self._kept.notes.get(resource_id, {}))

    def remember(self, resource_id: str, value: State) -> None:
        if self.note(resource_id) == value:
            return
        self._kept.notes[resource_id] = dict(value)
        if self.journal is not None:
            self.write("notes", values={resource_id: value})
        else:
            self.unsaved[resource_id] = dict(value)

    def write(self, step: str, **values: t.Any) -> None:
        """Write a step into the journal of the open transaction."""
        if self.journal is None:
            raise RuntimeError(f"{step}: no transaction is open; kinds change things in apply only")
        self.journal.write(step, **values)
        self.history.add(self.journal.records[-1])

    def backup(self, path: str) -> None:
        if any(record["path"] == path for record in self.history.all_backups()):
            return
        if self.journal is None:
            raise RuntimeError(f"backup of {path}: no transaction is open")
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import backup

        record = backup.take(self.path(path), self.backup_folder, len(self.journal.records))
        self.crash.reach()
        self.write("backup", id=self.current, path=path, **record)

    def set_aside(self, path: str) -> None:
        if self.journal is None:
            raise RuntimeError(f"moving {path} aside: no transaction is open")
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import backup

        real = self.path(path)
        aside = backup.aside_name(path, len(self.journal.records))
        self.write("aside", id=self.current, path=path, to=aside)
        paths.rename(real, self.path(aside))
        paths.sync_folder(os.path.dirname(real))
        self.crash.reach()

    def cached(self, key: str, make: t.Callable[[], t.Any]) -> t.Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def forget_cached(self, key: str) -> None:
        self._cache.pop(key, None)

    def forget_all_cached(self) -> None:
        """Drop everything cached: the host has changed."""
        self._cache.clear()

    def declared(self, path: str) -> bool:
        return path.rstrip("/") in self._folders

    def owned(self, path: str) -> bool:
        path = path.rstrip("/")
        return any(
            path == mine or path.startswith(mine + "/") or mine.startswith(path + "/")
            for paths in self._kept.owned.values()
            for mine in paths
        )

    def offer_csr(self, resource_id: str, pem: str) -> None:
        self.csrs[resource_id] = pem
