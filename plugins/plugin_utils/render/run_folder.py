# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The folder in which one run of ansible-playbook keeps its documents.

Ansible makes a temporary folder per run, readable by its user only, and removes it at the end. Documents are
written there once, for all hosts, by whoever needs them first: the validate action as a rule, or the first
worker of a play that uses a role alone. Workers are separate processes: this is how they share the work.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from ansible import constants
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.kinds import DESIRED, RESET
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.secret_names import named_in_text
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, SiteError

if t.TYPE_CHECKING:  # rendering is imported only by the process that renders
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer

_FOLDERS = {DESIRED: "documents", RESET: "reset"}


class HostNotes(t.TypedDict):
    """What the controller needs to know about a host beside its document.

    ``secrets`` are the names that the document of the inventory has; ``composed`` says that the host made up
    the one that stands in its place, from which nothing follows but what is done on that host.
    """

    mirror: str
    pki_store: str
    pki_key_file: str
    max_clock_skew_s: float | None
    pythons: list[str]
    approvals: int
    release: Release
    secrets: list[str]
    composed: bool


class Release(t.TypedDict):
    """What the documents of all hosts are together: by this, hosts know a change that they have in common."""

    digest: str
    time: int


class RunFolder:
    """Documents of this run.

    Args:
        path: the folder; by default below Ansible's temporary folder of this run.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(constants.DEFAULT_LOCAL_TMP) / "ironspan"

    def has(self, template: str = DESIRED) -> bool:
        """Tell whether the documents are there, for all hosts."""
        return self._folder(template).is_dir()

    def ensure(
        self,
        template: str,
        make: Callable[[], tuple[Site, Renderer]],
        only: Collection[str] | None = None,
    ) -> None:
        """Write the documents unless another process has.

        Args:
            template: ``DESIRED`` or ``RESET``.
            make: returns the site and its renderer; called only when there is work.
            only: names of the hosts that this run is about; all by default.

        Raises:
            SiteError: the site or a template has problems.
        """
        self.once(lambda: self.write(*make(), template, only), template)

    def once(self, write: Callable[[], t.Any], template: str = DESIRED) -> None:
        """Let ``write`` put the documents there unless another process has."""
        if self.has(template):
            return
        with self._locked():
            if not self.has(template):
                write()

    def write(
        self,
        site: Site,
        renderer: Renderer,
        template: str = DESIRED,
        only: Collection[str] | None = None,
    ) -> int:
        """Render and write the documents of all hosts.

        Args:
            site: the site.
            renderer: of its documents.
            template: ``DESIRED`` or ``RESET``.
            only: names of the hosts that this run is about; all by default.

        Returns:
            How many there are.

        Raises:
            SiteError: with the problems of all hosts and layers.
        """
        problems: dict[Problem, None] = {}
        found: list[tuple[str, str, HostNotes]] = []
        release = Release(digest="", time=int(time.time()))
        for host in site.hosts.values():
            if only is not None and host.name not in only:
                continue
            try:
                text = renderer.document_text(host, template=template)
                fitness = renderer.fitness(host)
            except SiteError as error:
                problems.update(dict.fromkeys(error.problems))
                continue
            notes = HostNotes(
                mirror=host.mirror_url,
                pki_store=site.pki_store,
                pki_key_file=site.pki_key_file,
                max_clock_skew_s=fitness.get("max_clock_skew_s"),
                pythons=fitness.get("pythons", []),
                approvals=site.plan.approvals,
                release=release,
                secrets=named_in_text(text),
                composed=False,
            )
            found.append((host.name, text, notes))
        if problems:
            raise SiteError(sorted(problems))
        together = hashlib.sha256()
        for _, text, _ in found:
            together.update(text.encode())
        release["digest"] = together.hexdigest()
        self.put(found, template)
        return len(found)

    def put(self, documents: Iterable[tuple[str, str, HostNotes]], template: str = DESIRED) -> None:
        """Write documents, all in one step, in the place of those that are there.

        Args:
            documents: host name, document as JSON, and notes.
            template: ``DESIRED`` or ``RESET``.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        building = self.path / f".{_FOLDERS[template]}-{os.getpid()}"
        building.mkdir(mode=0o700)
        for name, text, notes in documents:
            (building / f"{name}.json").write_text(text, encoding="utf-8")
            (building / f"{name}.notes").write_text(json.dumps(notes), encoding="utf-8")
        shutil.rmtree(self._folder(template), ignore_errors=True)
        building.rename(self._folder(template))

    def replace(self, host: str, text: str) -> None:
        """Put a document that a host composed in the place of its own, for the rest of this run."""
        notes: HostNotes = {**self.read(host)[1], "composed": True}
        # The notes first: a document of the host's making is never taken for one of the inventory's.
        for file, content in ((f"{host}.notes", json.dumps(notes)), (f"{host}.json", text)):
            temporary = self._folder(DESIRED) / f"{file}.{os.getpid()}"
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(self._folder(DESIRED) / file)

    def put_assessment(self, host: str, entry: Mapping[str, t.Any]) -> None:
        """Keep what a plan says of a host until the plan is written."""
        folder = self.path / "assessed"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / f"{host}.json").write_text(json.dumps(entry), encoding="utf-8")

    def put_join(self, host: str, entry: Mapping[str, t.Any]) -> None:
        """Keep what a host wants to join with, or the certificates that it got for it, for its turn."""
        folder = self.path / "joins"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".{host}-{os.getpid()}"
        temporary.write_text(json.dumps(entry), encoding="utf-8")
        temporary.replace(folder / f"{host}.json")

    def join(self, host: str) -> dict[str, t.Any]:
        """Return what ``put_join`` kept last, nothing when nothing was."""
        try:
            text = (self.path / "joins" / f"{host}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        return t.cast("dict[str, t.Any]", json.loads(text))

    def put_operation(self, entry: Mapping[str, t.Any]) -> None:
        """Keep what an operation will do until the plan is written.

        Args:
            entry: ``name``, ``steps``, and ``hosts`` whose documents are compared.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / "operation.json").write_text(json.dumps(entry), encoding="utf-8")

    def put_remote(self, things: list[dict[str, t.Any]]) -> None:
        """Keep the remote things of an operation until the plan is written."""
        (self.path / "remote.json").write_text(json.dumps(things), encoding="utf-8")

    def remote(self) -> list[dict[str, t.Any]]:
        """Return what ``put_remote`` kept, nothing when nothing was."""
        try:
            text = (self.path / "remote.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return t.cast("list[dict[str, t.Any]]", json.loads(text))

    def operation(self) -> dict[str, t.Any] | None:
        """Return what ``put_operation`` kept, None when nothing was."""
        try:
            text = (self.path / "operation.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return t.cast("dict[str, t.Any]", json.loads(text))

    def expect_bare_hosts(self) -> None:
        """Note that the hosts of this run have had nothing to do with ironspan so far, as a rule."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / "bare-hosts").touch()

    def bare_hosts_expected(self) -> bool:
        """Tell whether ``expect_bare_hosts`` noted that."""
        return (self.path / "bare-hosts").exists()

    def assessments(self) -> dict[str, dict[str, t.Any]]:
        """Return what the plan will say, by host."""
        return {
            file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8"))
            for file in (self.path / "assessed").glob("*.json")
        }

    def read(self, host: str, template: str = DESIRED) -> tuple[str, HostNotes]:
        """Return a host's document as JSON, and the notes beside it.

        Raises:
            KeyError: the site has no such host.
        """
        folder = self._folder(template)
        try:
            text = (folder / f"{host}.json").read_text(encoding="utf-8")
            notes = json.loads((folder / f"{host}.notes").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise KeyError(host) from None
        return text, t.cast(HostNotes, notes)

    def _folder(self, template: str) -> Path:
        return self.path / _FOLDERS[template]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
