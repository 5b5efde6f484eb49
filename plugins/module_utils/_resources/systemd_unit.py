# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``systemd_unit``: a unit is enabled, runs, and runs with its current files."""

from __future__ import annotations

import calendar
import os
import re
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "NeedDaemonReload",
    "FragmentPath",
    "DropInPaths",
    "ActiveEnterTimestamp",
)
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
CACHE = "systemctl show"
SETTLE_SECONDS = 0.3
"""A service of Type=simple counts as started at once; one that dies right away is seen after this wait."""
JOURNAL_LINES = 20

RUNNING = ("active", "activating", "reloading")

Properties = t.Dict[str, str]


def parse_show(text: str) -> t.List[Properties]:
    """Read the output of ``systemctl show`` for several units: blocks of Key=Value, separated by empty lines.

    Args:
        text: the output.

    Returns:
        One dictionary a block, in the order of the output.
    """
    blocks: t.List[Properties] = [{}]
    for line in text.split("\n"):
        if not line:
            blocks.append({})
            continue
        key, equals, value = line.partition("=")
        if equals:
            blocks[-1][key] = value
    return [block for block in blocks if block]


def parse_time(text: str) -> int:
    """Return the Unix time in seconds of systemd's "Sat 2026-11-21 20:19:58 UTC", 0 for anything else."""
    parts = text.split()
    if len(parts) != 4 or parts[3] != "UTC":
        return 0
    try:
        year, month, day = (int(part) for part in parts[1].split("-"))
        hour, minute, second = (int(part) for part in parts[2].split(":"))
    except ValueError:
        return 0
    return calendar.timegm((year, month, day, hour, minute, second))


def full_name(name: str) -> str:
    """Return a unit's name with its type; without one it is a service."""
    types = (".service", ".socket", ".target", ".timer", ".mount", ".path", ".slice", ".automount", ".swap")
    return name if name.endswith(types) else name + ".service"


def read_unit(host: Host, name: str) -> Properties:
    """Return a unit's properties. All units of the document are read in the first call, with one program run.

    Args:
        host: the host.
        name: the unit's name, with or without ".service".
    """
    units, wanted = t.cast(t.Dict[str, Properties], host.cached(CACHE, dict)), full_name(name)
    if wanted not in units:
        names = [wanted, *sorted(KIND.names - {wanted})]
        _, text, _ = host.run(
            ["systemctl", "show", "--property=" + ",".join(PROPERTIES), "--", *names], env=ENVIRONMENT
        )
        blocks = parse_show(text)
        if len(blocks) != len(names):
            raise ResourceError(
                f"systemctl described {len(blocks)} of {len(names)} units",
                "Run 'systemctl status' on the host; is systemd running there?",
            )
        # By order, not by Id: an alias is shown with the Id of what it stands for.
        units.update(zip(names, blocks))
    return units[wanted]


def is_enabled(unit: Properties) -> bool:
    """Tell whether a unit starts at boot, or is of a kind that enabling cannot change."""
    return unit.get("UnitFileState", "") in ("enabled", "static", "indirect", "generated", "alias")


def is_running(unit: Properties) -> bool:
    """Tell whether a unit is up or coming up; one that crashed and waits for its restart is not."""
    state = unit.get("ActiveState", "")
    if state == "activating":
        return unit.get("SubState", "") != "auto-restart"
    return state in ("active", "reloading")


def has_newer_file(unit: Properties, host: Host) -> bool:
    """Tell whether a unit file or drop-in was written after the unit became active."""
    started = parse_time(unit.get("ActiveEnterTimestamp", ""))
    if not started or unit.get("ActiveState") != "active":
        return False
    for path in [unit.get("FragmentPath", ""), *unit.get("DropInPaths", "").split()]:
        try:
            # Whole seconds, as systemd prints them: a file written in the start's own second is not newer.
            if path and int(os.stat(host.path(path)).st_mtime) > started:
                return True
        except OSError:
            continue
    return False


class Plan(t.NamedTuple):
    """What to ask systemd for, in this order; empty strings and False ask for nothing."""

    reload_manager: bool
    enabling: str
    running: str
    reason: str


def plan(spec: Spec, unit: Properties, host: Host) -> Plan:
    """Decide what a unit needs.

    Args:
        spec: the resource.
        unit: its properties.
        host: asked which resources changed, and for the age of the unit's files.

    Returns:
        ``enabling`` is "", unmask, enable or disable; ``running`` is "", start, stop, restart or reload.
    """
    reasons = []
    # systemd keeps a unit that failed after its file was removed; one that is off need not be read again.
    off = not spec.get("enabled", True) and spec.get("state") == "stopped"
    reload_manager = unit.get("NeedDaemonReload") == "yes" and not off
    if reload_manager:
        reasons.append("its files changed on disk")
    enabling = ""
    if spec.get("enabled", True) and not is_enabled(unit):
        enabling = "unmask" if unit.get("UnitFileState", "").startswith("masked") else "enable"
        reasons.append("not enabled")
    elif not spec.get("enabled", True) and unit.get("UnitFileState", "").startswith("enabled"):
        enabling = "disable"
        reasons.append("enabled")
    running = ""
    state = spec.get("state", "started")
    if state == "stopped" and unit.get("ActiveState") not in ("inactive", "failed"):
        running = "stop"
        reasons.append("running")
    elif state == "started" and not is_running(unit):
        running = "start"
        reasons.append("failed" if unit.get("ActiveState") == "failed" else "not running")
    elif state != "stopped" and is_running(unit):
        restarts = [other for other in spec.get("restart_on") or [] if host.changed(other)]
        reloads = [other for other in spec.get("reload_on") or [] if host.changed(other)]
        if restarts:
            running = "restart"
            reasons.append("required by " + ", ".join(restarts))
        elif reload_manager or has_newer_file(unit, host):
            running = "restart"
            reasons.append("runs with older unit files")
        elif reloads:
            running = "reload"
            reasons.append("reload required by " + ", ".join(reloads))
    return Plan(reload_manager, enabling, running, ", ".join(reasons))


class SystemdUnitKind:
    """Drives systemctl; unit files themselves are ``file`` resources."""

    name = "systemd_unit"
    fields: t.Mapping[str, Field] = {
        "name": Field((str,), required=True),
        "enabled": Field((bool,), default=True),
        "state": Field((str,), default="started", choices=("started", "stopped", "unchanged")),
        "restart_on": Field((list,), default=()),
        "reload_on": Field((list,), default=()),
        "no_block": Field((bool,), default=False),
    }

    def __init__(self) -> None:
        # The units of the document, learnt while it is checked, so that one call can ask for all of them.
        self.names: t.Set[str] = set()

    def check(self, spec: Spec) -> t.List[str]:
        """Check the unit's name."""
        if not re.fullmatch(r"[A-Za-z0-9:_.@\\-]+", spec["name"]):
            return [f"name: {spec['name']!r} is no name of a unit"]
        self.names.add(full_name(spec["name"]))
        return []

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare with what systemd says; a unit that does not exist yet is one to enable and start."""
        unit = read_unit(host, spec["name"])
        needed = plan(spec, unit, host)
        if not (needed.reload_manager or needed.enabling or needed.running):
            return None
        before, after = t.cast(State, {}), t.cast(State, {})
        if needed.enabling:
            before["enabled"] = unit.get("UnitFileState", "") or "absent"
            after["enabled"] = "disabled" if needed.enabling == "disable" else "enabled"
        if needed.running:
            before["state"] = unit.get("ActiveState", "inactive")
            after["state"] = "inactive" if needed.running == "stop" else "active"
        if needed.reload_manager:
            before["manager"], after["manager"] = "older unit files", "current unit files"
        action = needed.running or needed.enabling
        if action not in ("start", "stop", "restart", "enable"):
            action = "update"
        return Change(action, before, after, needed.reason)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Reload the manager, enable or disable, then start, stop, restart or reload; once each."""
        name = full_name(spec["name"])
        host.forget_cached(CACHE)
        unit = read_unit(host, name)
        if unit.get("NeedDaemonReload") == "yes" or unit.get("LoadState") != "loaded":
            _systemctl(host, "daemon-reload")
            host.forget_cached(CACHE)
        unit = read_unit(host, name)
        if unit.get("LoadState") == "not-found":
            raise ResourceError(
                f"there is no unit {name}",
                "Declare its unit file, or the package that brings it, before the unit.",
            )
        if unit.get("LoadState") in ("bad-setting", "error"):
            raise ResourceError(
                f"systemd cannot load {name} ({unit['LoadState']})",
                f"Run 'systemd-analyze verify {name}' on the host and correct the unit file.",
            )
        needed = plan(spec, unit, host)
        if needed.enabling == "unmask":
            _systemctl(host, "unmask", name)
        if needed.enabling:
            _systemctl(host, "disable" if needed.enabling == "disable" else "enable", name)
        # What was planned holds even if the unit's own state moved since: a reload of the manager, for
        # example, hides that the unit runs with older files.
        running = needed.running
        if not running and change.action == "restart":
            running = "restart"
        if running:
            self._run(spec, running, host)
        host.forget_cached(CACHE)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Stop what was started and take back what was enabled, while the unit's files are still there."""
        name = full_name(spec["name"])
        enabled = change.before.get("enabled")
        if enabled is not None:
            _systemctl(host, "enable" if enabled.startswith("enabled") else "disable", name, check=False)
            if enabled.startswith("masked"):
                _systemctl(host, "mask", name, check=False)
        if change.before.get("state") in ("inactive", "failed"):
            _systemctl(host, "stop", name, check=False)
        host.forget_cached(CACHE)

    def settle(self, spec: Spec, change: Change, host: Host) -> None:
        """Run again, with its former files, what ran before."""
        _systemctl(host, "daemon-reload", check=False)
        name = full_name(spec["name"])
        if change.before.get("state") in RUNNING:
            _systemctl(host, "reset-failed", name, check=False)
            verb = "reload-or-restart" if change.action == "update" else "restart"
            argv = ["systemctl", *(["--no-block"] if spec.get("no_block", False) else []), verb, "--", name]
            host.run(argv, check=False, env=ENVIRONMENT)
        host.forget_cached(CACHE)

    def _run(self, spec: Spec, verb: str, host: Host) -> None:
        name = full_name(spec["name"])
        no_block = bool(spec.get("no_block", False))
        # A unit that failed too often in a row would be refused; this run is a fresh attempt.
        if verb in ("start", "restart") and read_unit(host, name).get("ActiveState") == "failed":
            _systemctl(host, "reset-failed", name, check=False)
        argv = ["systemctl", *(["--no-block"] if no_block else []), verb, "--", name]
        began = int(time.time())
        status, _, problem = host.run(argv, check=False, env=ENVIRONMENT)
        host.forget_cached(CACHE)
        if verb == "stop" or no_block:
            if status != 0:
                remedy = f"Run 'systemctl status {name}' on the host."
                raise ResourceError(f"{name} did not {verb}: {problem.strip()}", remedy)
            return
        unit = read_unit(host, name)
        if status == 0 and unit.get("ActiveState") == "active" and unit.get("SubState") == "running":
            time.sleep(SETTLE_SECONDS)
            host.forget_cached(CACHE)
            unit = read_unit(host, name)
        if status != 0 or not is_running(unit):
            raise ResourceError(
                f"{name} did not {verb} ({unit.get('ActiveState')}/{unit.get('SubState')})"
                f"; the end of its journal:\n{_journal(host, name, began)}",
                f"Correct what the journal names; 'journalctl -u {name}' on the host shows all of it.",
            )

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Stop and disable the unit; its file is a resource of its own."""
        return [{"kind": self.name, "name": full_name(spec["name"]), "enabled": False, "state": "stopped"}]


def _systemctl(host: Host, verb: str, *names: str, check: bool = True) -> None:
    argv = ["systemctl", verb, *(["--", *names] if names else [])]
    host.run(argv, check=check, env=ENVIRONMENT)


def _journal(host: Host, name: str, since: int) -> str:
    argv = ["journalctl", "--no-pager", "--quiet", "-o", "cat", "-n", str(JOURNAL_LINES), f"--since=@{since}"]
    argv += ["-u", name]
    status, text, _ = host.run(argv, check=False, env=ENVIRONMENT)
    return text.strip() if status == 0 and text.strip() else "(no journal)"


KIND = SystemdUnitKind()
