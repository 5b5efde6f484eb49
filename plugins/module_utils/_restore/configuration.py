# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""etcd's configuration on this host, and the other ones that a restore lets the same unit run with."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths

PATH = "/etc/etcd/etcd.yaml"
CLIENT_SETTINGS = "/etc/etcd/etcdctl.env"
OTHER_PATH = "/etc/etcd/etcd-restore.yaml"
DROP_IN = "/etc/systemd/system/etcd.service.d/ironspan-restore.conf"
UNIT = "etcd.service"
_DROP_IN = (
    "# Written by ironspan: a restore is under way, and only this host may talk to etcd.\n"
    "[Service]\n"
    "ExecStart=\n"
    f"ExecStart=/usr/local/bin/etcd --config-file {OTHER_PATH}\n"
)
# A cluster of one: nobody else could be the leader, so there is no second of waiting for one.
_QUICK = {"heartbeat-interval": "10", "election-timeout": "100"}


class Configuration(t.NamedTuple):
    """What a restore needs of etcd's configuration."""

    text: str
    name: str
    data_dir: str
    peer_url: str
    client_urls: str
    peer_urls: str

    def loopback_url(self, urls: str) -> str:
        """Return the URL on loopback with the port of the first of these URLs."""
        return f"https://127.0.0.1:{urls.split(',')[0].rpartition(':')[2]}"

    def quarantined(self) -> str:
        """Return the configuration with which nobody but this host reaches the store."""
        return replaced(self.text, {"listen-client-urls": self.loopback_url(self.client_urls), **_QUICK})

    def alone(self, data_dir: str) -> str:
        """Return the configuration with which other data serve as a cluster of one, for this host only."""
        lines = {
            "data-dir": data_dir,
            "listen-client-urls": self.loopback_url(self.client_urls),
            "listen-peer-urls": self.loopback_url(self.peer_urls),
            "force-new-cluster": "true",
            **_QUICK,
        }
        return replaced(self.text, lines)


def replaced(text: str, lines: t.Mapping[str, str]) -> str:
    """Return a configuration with other values for some settings of its top level."""
    kept = [line for line in text.splitlines() if line.split(":", 1)[0] not in lines]
    return "\n".join([*kept, *(f"{name}: {value}" for name, value in lines.items())]) + "\n"


def read(machine: Machine) -> t.Optional[Configuration]:
    """Return this host's configuration, None where the layer etcd was never applied.

    Raises:
        RestoreError: it lacks a setting that every member has.
    """
    try:
        text = paths.text(machine.path(PATH))
    except FileNotFoundError:
        return None
    pairs = (line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] not in " #")
    values = {name: value.strip().strip('"') for name, value in pairs}
    try:
        return Configuration(
            text,
            values["name"],
            values["data-dir"],
            values["initial-advertise-peer-urls"],
            values["listen-client-urls"],
            values["listen-peer-urls"],
        )
    except KeyError as error:
        raise RestoreError(f"{PATH} does not set {error.args[0]}.", "Run site.yml for this host.") from error


def divert(machine: Machine, text: str) -> None:
    """Let the unit start with another configuration, also after a reboot, until ``straighten``."""
    paths.make_folders(machine.path(os.path.dirname(DROP_IN)))
    for path, content in ((OTHER_PATH, text), (DROP_IN, _DROP_IN)):
        machine.crash.reach()
        files.write_atomically(machine.path(path), content.encode(), 0o644)
    machine.crash.reach()
    machine.run("systemctl", "daemon-reload")


def is_diverted(machine: Machine) -> bool:
    """Tell whether the unit would start with the other configuration."""
    return os.path.exists(machine.path(DROP_IN))


def straighten(machine: Machine) -> bool:
    """Let the unit start as it is written again; returns whether it did not."""
    found = is_diverted(machine)
    if found:
        machine.crash.reach()
        paths.remove(machine.path(DROP_IN))
        folder = machine.path(os.path.dirname(DROP_IN))
        files.sync_folder(folder)
        if not paths.names(folder):
            paths.remove_folder(folder)
        machine.crash.reach()
        machine.run("systemctl", "daemon-reload")
    files.remove_if_there(machine.path(OTHER_PATH))
    return found
