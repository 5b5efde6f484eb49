# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A lab as a whole: up, down, status."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ironspan.lab import (
    base_image,
    files,
    host,
    inotify,
    inventory,
    keys,
    mirror,
    mounts,
    names,
    network,
    processes,
    removal,
    report,
    resize,
    state,
    surroundings,
)  # fmt: skip
from ironspan.lab.azure import install, machine_hosts, service, settings
from ironspan.lab.errors import LabError
from ironspan.lab.layout import SIZES, LabHost, check_name
from ironspan.lab.machine import Machine, detect
from ironspan.lab.state import Resource, State
from ironspan.lab.virtual import rack as racks
from ironspan.lab.virtual import variables, world
from ironspan.lab.wan import control

Progress = Callable[[str, str, str], None]
#: What an IPsec tunnel to Azure leaves of 1,500 bytes (Azure VPN Gateway documentation, "About VPN devices").
WAN_MTU = 1400
_WAN = "wan"


def quiet(what: str, step: str, detail: str) -> None:
    """Progress nobody reads."""


class Lab:
    """The lab called `name`; making the object does nothing."""

    def __init__(self, name: str = "default") -> None:
        self.name = check_name(name)
        self.folder = state.lab_folder(name)

    @property
    def inventory_path(self) -> Path:
        """The lab's Ansible inventory: a file, or the folder of a lab with an estate."""
        current = state.load(self.name)
        return inventory.source(current.layout, self.folder) if current else inventory.path(self.folder)

    def up(
        self,
        azure: int | None = None,
        rack: int | None = None,
        *,
        estate: int = 0,
        wan_mtu: int | None = None,
        azure_services: bool | None = None,
        etcd_backup: bool | None = None,
        bare_metal: int | None = None,
        build_artifacts: bool = False,
        progress: Progress = quiet,
    ) -> None:
        """Bring the lab up, or make a lab that is partly up whole; returns when every host answers SSH.

        A lab that is there gets more rack hosts, or loses those with the highest numbers, as `rack` says.

        Args:
            azure: Hosts on the Azure side; default 3, or what the lab has.
            rack: Hosts on the rack side; default 2, or what the lab has.
            estate: Members of etcd, 1 or 3, of an estate in the emulated Azure, in the place of hosts on the
                Azure side; nothing of it is made yet.
            wan_mtu: Bytes per packet on the WAN; default 1400, or what the lab has.
            azure_services: Emulate blob store, identities and resource manager; default yes, or what the
                lab has.
            etcd_backup: Write an inventory with which etcd is backed up to that store; default no, or what
                the lab has.
            bare_metal: Virtual servers without a system, each with a BMC, and an Ironic; default none, or
                what the lab has. 0 removes them.
            build_artifacts: Fill an empty mirror first, which takes minutes.
            progress: Called with (what, state, detail).

        Raises:
            LabError: The machine lacks something, the lab has another size, or a step failed.
        """
        if estate and azure_services is False:
            raise LabError("an estate is made in the emulated Azure: not with --no-azure-services")
        machine = detect()
        machine.require()
        for warning in machine.warnings():
            progress("machine", "skip", warning)
        busy = f"another `lab up` or `lab down` of {self.name!r} is running"
        with surroundings.ordinary(), files.locked(state.lab_lock(self.name), busy):
            current = self._open(azure, rack, wan_mtu, azure_services, estate)
            current.bare_metal = current.bare_metal if bare_metal is None else racks.checked_count(bare_metal)
            if current.bare_metal:
                world.require(racks.of(current.layout))
            current.save()
            inotify.ensure()
            if build_artifacts and not mirror.filled():
                self._build_artifacts(progress)
            building = base_image.building_path(self.name)
            if not base_image.tree_path().is_dir():
                current.record([Resource("tree", str(building))])
            base = base_image.ensure(self.name, self.folder, progress)
            keys.ensure(self.folder, current.layout)
            if etcd_backup and not current.azure_services:
                raise LabError("etcd is backed up to the emulated Azure: not with --no-azure-services")
            if etcd_backup is not None:
                current.etcd_backup = etcd_backup
                current.save()
            inventory.write(
                current.layout, self.folder, current.wan_mtu, current.etcd_backup, current.bare_metal > 0
            )
            progress("network", "start", "")
            current.record(
                [*network.resources(current.layout), Resource("process", _WAN), *names.resources()]
            )
            network.ensure(current.layout, current.wan_mtu)
            self._start_wan(current)
            names.ensure(self.folder, current.layout)
            progress("network", "done", " | ".join(f"{s.key} {s.network}" for s in current.layout.sites))
            current.record(mirror.resources())
            mirror.start(self.folder, current.layout, progress)
            services = current.azure_services and self._start_services(current, progress)
            resize.remove_surplus(machine, current, progress)
            self._start_hosts(machine, current, base, progress)
            if services:
                service.wait(self.folder)
                progress("azure", "done", f"https://{settings.BLOB_HOST}")
            self._serve_bare_metal(current, progress)

    def _serve_bare_metal(self, current: State, progress: Progress) -> None:
        """Bring the virtual servers up; or take away what an earlier `up` made, if there shall be none."""
        wanted = [Resource("servers", variables.FOLDER)]
        if current.bare_metal:
            current.record(wanted)
            place = self.folder / variables.FOLDER
            world.up(place, racks.of(current.layout), current.bare_metal, progress)
        elif wanted[0] in current.resources:
            removal.remove_each(self.folder, wanted, lambda _: None, again="lab up --bare-metal 0")
            mounts.remove_tree(self.folder / variables.FOLDER)
            variables.hosts(self.folder).unlink(missing_ok=True)
            current.forget(wanted)
            progress("servers", "done", "virtual servers and their Ironic removed")

    def _start_services(self, current: State, progress: Progress) -> bool:
        current.record(service.resources())
        service.prepare(self.folder, current.layout)
        return service.start(self.folder, current.layout, progress)

    def _open(
        self,
        azure: int | None,
        rack: int | None,
        wan_mtu: int | None,
        azure_services: bool | None,
        estate: int = 0,
    ) -> State:
        current = state.load(self.name)
        if current is None:
            small = SIZES["small"]
            hosts = 0 if estate else azure or small[0]
            return state.create(
                self.name, hosts, rack or small[1], wan_mtu or WAN_MTU, network.taken_indexes(),
                azure_services=azure_services is not False, estate=estate,
            )  # fmt: skip
        if estate and estate != current.layout.estate:
            what = (
                f"with an estate of {current.layout.estate} members of etcd"
                if current.layout.estate
                else "without"
            )
            raise LabError(
                f"lab {self.name!r} is there {what}; take it down first: ironspan lab down --name {self.name}"
            )
        if azure_services is not None and azure_services != current.azure_services:
            raise LabError(
                f"lab {self.name!r} is there with{'' if current.azure_services else 'out'} Azure's services; "
                f"take it down first: ironspan lab down --name {self.name}"
            )
        have = (current.layout.azure, current.wan_mtu)
        if have != (azure or have[0], wan_mtu or have[1]):
            raise LabError(
                f"lab {self.name!r} is there with {have[0]}+{current.layout.rack} hosts "
                f"and WAN MTU {have[1]}: "
                "the number of rack hosts alone can change while it is up; "
                f"take it down first: ironspan lab down --name {self.name}"
            )
        if rack and rack != current.layout.rack:
            resize.resize(current, rack)
        return current

    def _build_artifacts(self, progress: Progress) -> None:
        progress("artifacts", "start", "ironspan artifacts build, about 25 minutes on 2 cores, once")
        command = [sys.executable, "-m", "ironspan.cli.main", "artifacts", "build"]
        if subprocess.run(command, check=False).returncode != 0:
            raise LabError("`ironspan artifacts build` failed; see above", exit_code=1)

    def _start_wan(self, current: State) -> None:
        if processes.running(self.folder, _WAN) is None:
            azure, rack = current.layout.sites
            command = [
                sys.executable,
                "-m",
                "ironspan.lab.wan",
                str(self.folder),
                azure.namespace,
                rack.namespace,
            ]
            processes.spawn(command, self.folder, _WAN)
        control.wait_ready(self.folder)

    def _start_hosts(self, machine: Machine, current: State, base: Path, progress: Progress) -> None:
        hosts = current.layout.hosts
        for one in hosts:
            current.record(host.resources(machine, self.folder, one))
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
            jobs = [pool.submit(self._start_host, machine, base, one, progress, stop) for one in hosts]
            try:
                wait(jobs)
            except BaseException:  # Ctrl-C: the pool waits for its threads, so they must not wait on
                stop.set()
                raise
        problems = [str(job.exception()) for job in jobs if job.exception() is not None]
        if problems:
            raise LabError("\n".join(problems), exit_code=1)

    def _start_host(
        self, machine: Machine, base: Path, one: LabHost, progress: Progress, stop: threading.Event
    ) -> None:
        began = time.monotonic()
        try:
            started = host.start(machine, self.folder, base, one)
            if started:
                progress(one.name, "start", f"{one.address}")
            report.wait_ssh(self.folder, one, machine, stop)
        except BaseException as error:
            progress(one.name, "fail", str(error))
            raise
        detail = f"{one.address} answers SSH after {time.monotonic() - began:.1f} s" if started else "is up"
        progress(one.name, "done" if started else "skip", detail)

    def down(self, *, purge_cache: bool = False, progress: Progress = quiet) -> None:
        """Remove the lab and all it made; only base image and Azurite stay, unless `purge_cache`.

        Works from what `up` wrote down before making it, so also after a `up` killed at any point.
        """
        if not detect().root:
            raise LabError("run it as root (sudo)")
        busy = f"another `lab up` or `lab down` of {self.name!r} is running"
        if self.folder.is_dir():
            with files.locked(state.lab_lock(self.name), busy) as lock:
                current = state.load(self.name)
                progress("lab", "start", f"taking down {self.name}")
                resources = current.resources if current else []
                removal.remove_all(
                    self.folder, resources, lambda r: progress(f"{r.kind} {r.name}", "done", "removed")
                )
                mounts.remove_tree(self.folder)
                lock.forget()
        else:
            state.lab_lock(self.name).unlink(missing_ok=True)
            progress("lab", "skip", f"there is no lab {self.name!r}")
        inotify.restore()
        removal.tidy_run_folders()
        state.tidy_root()
        if purge_cache:
            for path in [*base_image.purge(), *install.purge()]:
                progress(path, "done", "removed")
        elif base_image.tree_path().is_dir():
            progress(
                "base image", "skip", f"stays at {base_image.tree_path()} (lab down --purge-cache removes it)"
            )

    def status(self) -> dict[str, Any]:
        """What the machine is and what of the lab is up; see `report.status`."""
        return report.status(self.name)

    def ssh_command(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """The `ssh` command line that reaches the host called `name`."""
        layout = self._require().layout
        for machine in machine_hosts.known(layout, self.folder):
            if machine.name == name:
                known = keys.know(self.folder, machine)
                return ["ssh", *keys.ssh_options(self.folder, known), f"root@{machine.address}", *command]
        one = layout.host(name)
        return ["ssh", *keys.ssh_options(self.folder), f"root@{one.address}", *command]

    def link(self, **changes: Any) -> dict[str, Any]:
        """Change the WAN link (fields of wan.queue.Settings) and return settings and counters."""
        self._require()
        return control.request(self.folder, changes)

    def _require(self) -> State:
        current = state.load(self.name)
        if current is None:
            there = ", ".join(state.all_labs()) or "none"
            raise LabError(f"there is no lab {self.name!r} (labs: {there}); bring it up: ironspan lab up")
        return current
