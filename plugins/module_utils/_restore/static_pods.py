# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Stops and starts a control plane's programs: the kubelet runs what is in its folder of manifests."""

from __future__ import annotations

import os
import re
import signal
import ssl
import time
import typing as t
import urllib.error
import urllib.request

from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

MANIFESTS = "/etc/kubernetes/manifests"
ASIDE = "/etc/kubernetes/ironspan-restore"
API_SERVER = "kube-apiserver"
PODS = (API_SERVER, "kube-controller-manager", "kube-scheduler")
"""In the order in which they are started."""
STOP_SECONDS = 60.0
"""A process that waits for a disk ends only after it."""
READY_SECONDS = 180.0
FIRST_SECONDS = 15.0
"""For so long another host's API server is waited for; it may be what cannot be fixed now."""
START_SECONDS = 4.0
"""For so long the kubelet is given to start the API server."""
KUBELET = "kubelet.service"
_PORT = re.compile(r"--secure-port=(\d+)")


def present(machine: Machine) -> t.List[str]:
    """Return those of the programs that this host runs, or ran before they were stopped for a restore."""
    return [name for name in PODS if any(os.path.exists(machine.path(path)) for path in _paths(name))]


def take_away(machine: Machine) -> bool:
    """Have the programs ended, and not started again; returns whether any was there.

    The kubelet is restarted when their manifests are gone, and what they run is killed: nothing that they
    could still write has a store. Asked to end them, it would take half a second, and it would remember how
    often they ended for want of a store: started again, they would wait for up to five minutes.
    """
    moved = False
    paths.make_folders(machine.path(ASIDE), 0o700)
    for name in reversed(PODS):
        manifest, aside = _paths(name)
        if os.path.exists(machine.path(manifest)):
            machine.rename(manifest, aside)
            moved = True
    if moved:
        machine.run("systemctl", "restart", KUBELET)
        _kill_all(machine)
    return moved


def wait_until_ended(machine: Machine, begun: float) -> None:
    """Wait until the programs have ended.

    Args:
        machine: the host.
        begun: when they were taken away, in seconds of ``time.monotonic``.

    Raises:
        RestoreError: one does not end.
    """
    while processes := _kill_all(machine):
        if time.monotonic() - begun > STOP_SECONDS:
            raise RestoreError(
                f"The programs of the control plane do not end (processes {processes}).",
                "Look at 'journalctl -u kubelet', and run this again.",
            )
        time.sleep(0.05)


def bring_back(machine: Machine, name: str) -> bool:
    """Let the kubelet start a program, without waiting for it; returns whether it was stopped."""
    manifest, aside = _paths(name)
    stopped = os.path.exists(machine.path(aside))
    if stopped:
        machine.rename(aside, manifest)
    return stopped


def wait_for_first(machine: Machine, host: str) -> None:
    """Wait until another host's API server is ready, if this one is stopped, but not for long.

    Each reads everything from the store when it starts. The first one is ready sooner alone.

    Args:
        machine: this host.
        host: URL of the other one, without a port.
    """
    aside = machine.path(_paths(API_SERVER)[1])
    if os.path.exists(aside):
        url, until = f"{host}:{_port(aside)}/readyz", time.monotonic() + FIRST_SECONDS
        while _not_ready(url) and time.monotonic() < until:
            time.sleep(0.1)


def start(machine: Machine) -> bool:
    """Start the programs, the others once the API server is ready; returns whether any was stopped.

    Raises:
        RestoreError: the API server does not become ready.
    """
    moved = bring_back(machine, API_SERVER)
    manifest = _paths(API_SERVER)[0]
    if os.path.exists(machine.path(manifest)):
        _see_to_it_that_it_starts(machine)
        _wait_until_ready(machine, manifest)
    others = [name for name in PODS if name != API_SERVER and bring_back(machine, name)]
    if others:
        # The kubelet may be about to delete what is left of them: it has just been told what is to run here.
        machine.run("systemctl", "restart", KUBELET)
    if os.path.isdir(machine.path(ASIDE)):
        paths.remove_folder(machine.path(ASIDE))
    return moved or bool(others)


def _see_to_it_that_it_starts(machine: Machine) -> None:
    """Have the API server started soon, also where an earlier run of the restore tried that in vain.

    After each end the kubelet waits longer. Only in memory does it know for how long: restarted, it does
    not wait. Pods do not notice.
    """
    until = time.monotonic() + START_SECONDS
    while not running(machine, API_SERVER):
        if time.monotonic() > until:
            machine.run("systemctl", "restart", KUBELET)
            return
        time.sleep(0.1)


def running(machine: Machine, program: str) -> t.List[int]:
    """Return the ids of the processes that run a program."""
    found = []
    for name in os.listdir(machine.path("/proc")):
        if name.isdigit():
            try:
                with paths.reading(machine.path(f"/proc/{name}/cmdline")) as stream:
                    word = stream.read().split(b"\0")[0].decode(errors="replace")
            except OSError:
                continue
            if os.path.basename(word) == program:
                found.append(int(name))
    return found


def _kill_all(machine: Machine) -> t.List[int]:
    """Kill what the programs run; returns the ids of the processes that there were."""
    processes = [process for name in PODS for process in running(machine, name)]
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return processes


def _paths(name: str) -> t.Tuple[str, str]:
    return f"{MANIFESTS}/{name}.yaml", f"{ASIDE}/{name}.yaml"


def _port(manifest: str) -> str:
    port = _PORT.search(paths.text(manifest))
    return port.group(1) if port else "6443"


def _not_ready(url: str) -> str:
    """Ask an API server; returns why it is not ready, empty when it is."""
    # Nothing is sent, and what answers on this port of this host is the API server or nothing good.
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    # Never through a proxy, which the host's environment may name.
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    )
    try:
        with direct.open(url, timeout=5) as answer:
            return "" if answer.status == 200 else str(answer.status)
    except (OSError, urllib.error.URLError) as error:
        return str(error)


def _wait_until_ready(machine: Machine, manifest: str) -> None:
    url = f"https://127.0.0.1:{_port(machine.path(manifest))}/readyz"
    until = time.monotonic() + READY_SECONDS
    while reason := _not_ready(url):
        if time.monotonic() > until:
            raise RestoreError(
                f"The API server is not ready after {READY_SECONDS:.0f} s ({reason}).",
                "Read its log below /var/log/pods/kube-system_kube-apiserver-*, and run this again.",
            )
        time.sleep(0.1)
