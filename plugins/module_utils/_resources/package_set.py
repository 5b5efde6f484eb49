# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``package_set``: Debian packages that belong together are there in exact versions, and stay there.

All of them change in one run of apt, so that packages which ask for each other's exact version never stand in
each other's way. What was there before is kept, as versions and as files: the way back needs no mirror.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _apt
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import holders, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

KEPT = "/var/cache/ironspan/packages"
"""A folder for each set: files of the installed versions and of those before them, as apt downloaded them."""
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VERSION = re.compile(r"[0-9A-Za-z.+:~-]*\*?")
TIMEOUT = 3 * 3600.0
"""Seconds for one change: packages may build kernel modules, which took 40 minutes on a small, busy host."""
_FREE = ["--allow-downgrades", "--allow-change-held-packages"]

Versions = t.Mapping[str, str]


def matches(version: str, wanted: str) -> bool:
    """Tell whether a version is any (empty), this one, or one that begins so (``550.163.01-*``)."""
    if wanted.endswith("*"):
        return version.startswith(wanted[:-1])
    return not wanted or version == wanted


class PackageSetKind:
    """Installs, changes and holds packages together; adds no sources."""

    name = "package_set"
    stays = "packages stay, others may have come to rely on them"
    fields: t.Mapping[str, Field] = {
        "packages": Field((dict,), required=True),
        "without": Field((list,), default=()),
        "hold": Field((bool,), default=False),
        "idle": Field((list,), default=()),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Names and versions have the form that Debian gives them."""
        mistakes = [] if spec["packages"] else ["packages is empty; name those that belong together"]
        for name in [*spec["packages"], *spec["without"]]:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                mistakes.append(f"{name!r} is no name of a package")
        for name, version in spec["packages"].items():
            if not isinstance(version, str) or not _VERSION.fullmatch(version):
                mistakes.append(f"version of {name} is {version!r}; write one, '550.163.01-*' or ''")
        mistakes += [f"{name} is wanted and unwanted" for name in spec["without"] if name in spec["packages"]]
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare states, versions and holds with dpkg's list; what is half configured counts as missing."""
        listed = _apt.installed(host)
        before: State = {}
        after: State = {}
        reasons: t.Dict[str, None] = {}
        for name, wanted in sorted(spec["packages"].items()):
            state, version = listed.get(name, ("", ""))
            there = state[1:2] == "i" and state[2:3] != "R"
            held = state[:1] == "h"
            if not there:
                before[name] = "absent" if state[1:2] in _apt.GONE else f"{version} ({state})"
                reasons["not installed" if state[1:2] in _apt.GONE else "half installed"] = None
            elif not matches(version, wanted):
                before[name] = version
                reasons["another version"] = None
            elif held != spec["hold"]:
                before[name] = f"{version}{', held' if held else ''}"
                reasons["held" if held else "not held"] = None
            else:
                continue
            after[name] = f"{wanted or version or 'present'}{', held' if spec['hold'] else ''}"
        for name in _unwanted(spec, listed):
            before[name], after[name] = listed[name][1], "absent"
            reasons["not wanted beside them"] = None
        if not after:
            return None
        if reasons.keys() <= {"held", "not held"}:
            action = "update"
        else:
            action = "install" if all(value == "absent" for value in before.values()) else "upgrade"
        return Change(action, before, after, ", ".join(reasons))

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Change all packages in one run of apt, then hold them."""
        try:
            note = host.note(spec["id"])
            if note.get("done", True):
                # What an earlier change noted is not this one's: should it fail, that must not be taken back.
                held = _held(spec, _apt.installed(host))
                note = {"previous": note.get("previous", {}), "held": held, "done": True}
                host.remember(spec["id"], note)
            if change.action != "update":
                self._install(spec, host, note)
            _hold(host, [name for name in spec["packages"] if spec["hold"]], spec["packages"])
        finally:
            _apt.forget(host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Bring back each package's version of before, and remove what came with the change."""
        note = host.note(spec["id"])
        _apt.forget(host)
        try:
            if change.action != "update":
                _apt.go_on(host)
                listed = _apt.installed(host)
                former = {**note.get("before", {}), **note.get("removed", {})}
                words = [
                    f"{name}={version}"
                    for name, version in former.items()
                    if listed.get(name, ("", ""))[1] != version or listed[name][0][1:] != "i"
                ]
                brought = note.get("brought", [])
                words += [f"{name}-" for name in brought if listed.get(name, ("",))[0][1:2] not in _apt.GONE]
                if words:
                    words, _ = _simulated(host, spec, words)
                    _apt.run(host, "install", *_kept_options(host, spec), *_FREE, *words, timeout=TIMEOUT)
                host.remember(spec["id"], {**note, "done": True})
            _hold(host, note.get("held", []), spec["packages"])
        finally:
            _apt.forget(host)

    def _install(self, spec: Spec, host: Host, note: State) -> None:
        _insist_on_idle(spec, host, _apt.installed(host))
        _apt.go_on(host)
        listed = _apt.installed(host)
        words = _words(spec, note["previous"])
        words += [f"{name}-" for name in _unwanted(spec, listed)]
        words, planned = _simulated(host, spec, words)
        surprise = [each.name for each in planned if not each.after and each.name not in spec["without"]]
        if surprise:
            raise ResourceError(
                f"these packages would remove {', '.join(surprise)}",
                "Correct the versions, or list what may go under 'without'.",
            )
        host.remember(spec["id"], _note(spec, note, planned, listed))
        status, _, problem = _apt.run(
            host, "install", *_kept_options(host, spec), *_FREE, *words, check=False, timeout=TIMEOUT
        )
        if status != 0:
            raise ResourceError(
                f"{', '.join(spec['packages'])} were not installed: {_apt.last_error(problem)}",
                f"Run 'apt-get install {' '.join(words)}' on the host to see the whole output.",
            )
        _apt.forget(host)
        host.remember(spec["id"], {**host.note(spec["id"]), "done": True})
        _tidy(host, spec)


def _unwanted(spec: Spec, listed: t.Mapping[str, t.Tuple[str, str]]) -> t.List[str]:
    return [name for name in spec["without"] if listed.get(name, ("",))[0][1:2] not in _apt.GONE]


def _held(spec: Spec, listed: t.Mapping[str, t.Tuple[str, str]]) -> t.List[str]:
    return [name for name in spec["packages"] if listed.get(name, ("",))[0][:1] == "h"]


def _words(spec: Spec, previous: Versions) -> t.List[str]:
    """Return what apt is asked for; on the way back to the versions of before, all that changed with them."""
    wanted = spec["packages"]
    back = all(name in previous and matches(previous[name], version) for name, version in wanted.items())
    versions: Versions = previous if back and any(wanted.values()) else wanted
    return [f"{name}={version}" if version else name for name, version in sorted(versions.items())]


def _simulated(host: Host, spec: Spec, words: t.List[str]) -> t.Tuple[t.List[str], t.List[_apt.Planned]]:
    """Return the words with which apt would do it, and what it would do.

    Raises:
        ResourceError: neither the host's sources nor the files that were kept have these versions.
    """
    first = ""
    for tried in _attempts(host, spec, words):
        status, planned, problem = _apt.run(host, "install", "--simulate", *_FREE, *tried, check=False)
        if status == 0:
            return tried, _apt.parse_simulation(planned)
        first = first or _apt.last_error(problem)
    raise ResourceError(
        f"{' '.join(words)} cannot be installed: {first}",
        "Check names and versions, and that /etc/apt/sources.list.d on the host names a mirror with them.",
    )


def _attempts(host: Host, spec: Spec, words: t.List[str]) -> t.Iterator[t.List[str]]:
    """Yield what apt is asked for, in turn, until it can do it."""
    yield words
    _apt.update(host)
    yield words
    yield from _apt.choices(host, words)
    yield [_kept_file(host, spec, word) or word for word in words]


def _note(
    spec: Spec,
    former: State,
    planned: t.Sequence[_apt.Planned],
    listed: t.Mapping[str, t.Tuple[str, str]],
) -> State:
    """Return what the way back needs; of a run that was cut off, what was there before the first one."""
    before = {each.name: each.before for each in planned if each.before and each.after}
    brought = {each.name for each in planned if each.after and not each.before}
    removed = {each.name: each.before for each in planned if not each.after and each.before}
    held = _held(spec, listed)
    if former.get("to") == spec["packages"] and not former.get("done"):
        brought |= set(former["brought"])
        before = {**{n: v for n, v in before.items() if n not in brought}, **former["before"]}
        removed = {**removed, **former["removed"]}
        held = former["held"]
    wanted = spec["packages"].items()
    changed = any(not matches(before.get(name, version), version) for name, version in wanted)
    return {
        "to": dict(spec["packages"]),
        "before": before,
        "brought": sorted(brought),
        "removed": removed,
        "held": held,
        "previous": before if changed else former.get("previous", {}),
        "done": False,
    }


def _insist_on_idle(spec: Spec, host: Host, listed: t.Mapping[str, t.Tuple[str, str]]) -> None:
    """Refuse to change the version under something that runs; what is not there yet nobody can use."""
    others = [name for name in spec["packages"] if listed.get(name, ("",))[0][1:2] not in _apt.GONE]
    users = holders.holders(host, spec["idle"]) if spec["idle"] and others else []
    if users:
        shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
        raise ResourceError(
            f"{', '.join(others)} are in use: {shown} have {' or '.join(spec['idle'])} open",
            "Drain the node and wait until these processes have ended, then run again.",
        )


def _hold(host: Host, held: t.Sequence[str], packages: t.Iterable[str]) -> None:
    """Hold these of some packages, and let go of the others."""
    _apt.forget(host)
    listed = _apt.installed(host)
    there = [name for name in packages if listed.get(name, ("",))[0][1:2] == "i"]
    for verb, names in (
        ("hold", [name for name in there if name in held and listed[name][0][:1] != "h"]),
        ("unhold", [name for name in there if name not in held and listed[name][0][:1] == "h"]),
    ):
        if names:
            host.run(["apt-mark", verb, *names], env=_apt.ENVIRONMENT)


def _folder(spec: Spec) -> str:
    return f"{KEPT}/{spec['id'].replace('/', '-')}"


def _kept_options(host: Host, spec: Spec) -> t.List[str]:
    """Have apt download into the folder of kept files, and leave them there."""
    folder = host.path(_folder(spec))
    paths.make_folders(f"{folder}/partial")
    return ["-o", f"Dir::Cache::archives={folder}/", "-o", "APT::Keep-Downloaded-Packages=true"]


def _kept(host: Host, spec: Spec) -> t.Iterator[t.Tuple[str, str, str]]:
    """Yield path, package and version of the files that were kept."""
    folder = host.path(_folder(spec))
    for file in sorted(paths.names(folder)) if paths.is_folder(folder) else ():
        parts = file[: -len(".deb")].split("_")
        if file.endswith(".deb") and len(parts) == 3:
            yield f"{folder}/{file}", parts[0], parts[1].replace("%3a", ":")


def _kept_file(host: Host, spec: Spec, word: str) -> str:
    name, _, wanted = word.partition("=")
    return next(
        (path for path, *kept in _kept(host, spec) if kept[0] == name and matches(kept[1], wanted)), ""
    )


def _tidy(host: Host, spec: Spec) -> None:
    """Remove kept files of versions that are neither installed nor the ones to go back to."""
    listed, note = _apt.installed(host), host.note(spec["id"])
    for path, name, version in list(_kept(host, spec)):
        if version not in (
            listed.get(name, ("", ""))[1],
            note["previous"].get(name),
            note.get("before", {}).get(name),
        ):
            paths.remove(path)


KIND = PackageSetKind()
