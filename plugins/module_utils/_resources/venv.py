# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``venv``: a Python environment of locked wheels.

An environment lies in a folder of its own beside ``path``, which is a link to it. Other wheels give another
folder; the link is turned when that one is complete, in one step. Programs name the folder and not the link,
so what runs keeps its own files until it is restarted. The folder of before stays until the next change.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _tree
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._wheel import Python

FORM = 1
"""Part of what names an environment's folder: higher when the same wheels are unpacked differently."""
LONGEST_PATH = 90
"""Characters: older kernels read 127 of a program's first line."""
COMPILE_SECONDS = 900

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_WHEEL: t.Mapping[str, type] = {"url_path": str, "path": str, "sha256": str, "size": int}
_PROBE = """
import json, os, platform, sys
libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
glibc = [int(part) for part in (libc or "glibc 0.0").split()[1].split(".")[:2]]
print(json.dumps([sys.version_info[:2], platform.machine(), glibc]))
"""


class VenvKind:
    """Unpacks wheels from the mirror (``url_path``) or from files on the host (``path``); pip is not needed.

    A wheel is a mapping of ``url_path`` or ``path``, ``sha256`` and ``size`` in bytes. The list has to be
    complete: nothing is resolved here, and nothing else is fetched.
    """

    name = "venv"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "wheels": Field((list,), required=True),
        "python": Field((str,), default="/usr/bin/python3"),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Look at every wheel's name, digest and size."""
        mistakes = []
        if len(spec["path"]) > LONGEST_PATH:
            mistakes.append(f"path must have at most {LONGEST_PATH} characters, found {len(spec['path'])}")
        if not spec["python"].startswith("/"):
            mistakes.append(f"python must be an absolute path, found {spec['python']!r}")
        if not spec["wheels"]:
            mistakes.append("wheels is empty; list url_path, sha256 and size of each wheel")
        projects: t.Dict[str, str] = {}
        for number, entry in enumerate(spec["wheels"]):
            wrong = _mistake(entry)
            if wrong:
                mistakes.append(f"wheels[{number}]{wrong}")
                continue
            project = _parsed(entry)["project"]
            if project in projects:
                mistakes.append(
                    f"wheels[{number}]: {_file(entry)} and {projects[project]} are both {project}"
                )
            projects[project] = _file(entry)
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare the list of wheels with the one that was unpacked, and the files with what was unpacked."""
        path = spec["path"].rstrip("/")
        what = files.kind_of(files.status_of(host.path(path)))
        if what not in ("absent", "link"):
            raise ResourceError(
                f"{path} exists and is a {what}", "Move it away on the host, or choose another path."
            )
        accounts.need_folder(path, host)
        known = host.note(spec["id"])
        name = _name(spec, _python_path(spec, host))
        target = paths.link_target(host.path(path)) if what == "link" else ""
        before: State = {}
        after: State = {}
        if what == "absent":
            before, after, reason = {"state": "absent"}, {"state": "link"}, "does not exist"
        elif not known.get("tree", "").startswith(f"{path}-{name}"):
            reason = "other wheels, or another Python"
        elif posixpath.join(posixpath.dirname(path), target) != known["tree"]:
            before, after = {"target": target}, {"target": posixpath.basename(known["tree"])}
            reason = "points elsewhere"
        elif _is_intact(spec["id"], known, host):
            return None
        else:
            reason = "its files differ from those of the wheels"
        wanted = sorted(_file(entry) for entry in spec["wheels"])
        former = known.get("wheels", [])
        if wanted != former:
            before["wheels"] = [wheel for wheel in former if wheel not in wanted]
            after["wheels"] = [wheel for wheel in wanted if wheel not in former]
        # Never where the link leads: what is in use is not touched.
        tree = next(
            f"{path}-{name}{more}"
            for more in ("", "b")
            if f"{posixpath.basename(path)}-{name}{more}" != target
        )
        return Change("create" if what == "absent" else "update", before, {**after, "tree": tree}, reason)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Unpack everything into the new folder, then turn the link."""
        path, tree = spec["path"].rstrip("/"), change.after["tree"]
        known = host.note(spec["id"])
        accounts.need_folder(path, host)
        host.backup(path)
        if files.status_of(host.path(tree)) is not None:
            # Of a run that was killed, or of before the last change.
            paths.remove_tree(host.path(tree))
        python = _probe(spec, host)
        _fill(spec, tree, python, host)
        # One call for thousands of files: all is on the disk before anything leads to it.
        host.run(["sync", "-f", host.path(tree)])
        _turn(host.path(path), posixpath.basename(tree), host)
        former = known.get("tree", "")
        for other in _trees(path, host):
            if other not in (tree, former):
                host.set_aside(other)
        stay = [
            each
            for each in (former,)
            if each != tree and files.status_of(host.path(each or "/none")) is not None
        ]
        note = {
            "tree": tree,
            "former": stay,
            "wheels": sorted(_file(entry) for entry in spec["wheels"]),
            "listing": _tree.listing(host.path(tree)),
            "content": _tree.content(host.path(tree)),
        }
        host.remember(spec["id"], note)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Remove the new folder; the backup turns the link back."""
        tree = host.path(change.after["tree"])
        if files.status_of(tree) is not None:
            paths.remove_tree(tree)

    def owns(self, spec: Spec, note: State) -> t.List[str]:
        """Return the link, the folder that it leads to, and the one of before."""
        return [
            spec["path"].rstrip("/"),
            *([note["tree"]] if "tree" in note else []),
            *note.get("former", ()),
        ]

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Remove the link and the folders with all that is in them."""
        return [{"kind": "absent", "path": path, "recursive": True} for path in paths]


def _mistake(entry: t.Any) -> str:
    """Return what is wrong with an entry of ``wheels``, nothing if all is well."""
    if not isinstance(entry, dict):
        return f" must be a mapping of url_path (or path), sha256 and size, found {entry!r}"
    for key, value in entry.items():
        if key not in _WHEEL:
            return f" has no {key!r}; known are {', '.join(_WHEEL)}"
        if type(value) is not _WHEEL[key]:
            return f": {key} must be {'a whole number' if _WHEEL[key] is int else 'text'}, found {value!r}"
    if ("url_path" in entry) == ("path" in entry) or "sha256" not in entry or "size" not in entry:
        return " needs sha256, size and one of url_path (on the mirror) and path (on the host)"
    where = entry.get("url_path") or entry.get("path") or ""
    if not where.startswith("/"):
        return f": {where!r} must begin with /"
    if not _SHA256.match(entry["sha256"]):
        return f": sha256 must be 64 hexadecimal digits, found {entry['sha256']!r}"
    if entry["size"] <= 0:
        return f": size must be the file's bytes, found {entry['size']}"
    return "" if _parse(_file(entry)) else f": {_file(entry)!r} is no name of a wheel"


def _file(entry: t.Mapping[str, t.Any]) -> str:
    return posixpath.basename(str(entry.get("url_path") or entry["path"]))


def _parse(name: str) -> t.Optional[t.Dict[str, str]]:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _wheel

    return _wheel.parse(name)


def _parsed(entry: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    found = _parse(_file(entry))
    assert found is not None
    return found


def _python_path(spec: Spec, host: Host) -> str:
    """Return the interpreter's path without links: an update to another version has another one."""
    try:
        return paths.real(host.path(str(spec["python"])))
    except (FileNotFoundError, NotADirectoryError) as error:
        remedy = "Require the package that brings it, or write the path of the Python that is there."
        raise ResourceError(f"there is no {spec['python']}", remedy) from error


def _name(spec: Spec, python: str) -> str:
    """Return what tells environments apart: the same wheels in the same order and the same Python."""
    import hashlib

    wheels = [[_file(entry), entry["sha256"]] for entry in spec["wheels"]]
    text = json.dumps([FORM, python, spec["path"].rstrip("/"), wheels])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _probe(spec: Spec, host: Host) -> Python:
    """Ask the interpreter what it can use, and refuse the wheels that are for others, all at once."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _wheel

    path = _python_path(spec, host)
    _, text, _ = host.run([path, "-I", "-S", "-c", _PROBE])
    version, machine, glibc = json.loads(text)
    python = _wheel.Python(path, (version[0], version[1]), machine, (glibc[0], glibc[1]))
    strange = [_file(entry) for entry in spec["wheels"] if not _wheel.fits(_file(entry), python)]
    if strange:
        about = f"Python {version[0]}.{version[1]} on {machine}"
        raise ResourceError(f"{about} cannot use {', '.join(strange)}", f"Lock wheels for {about}.")
    return python


def _fill(spec: Spec, tree: str, python: Python, host: Host) -> None:
    """Make the environment; nothing of it is synced."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _wheel

    real = host.path(tree)
    paths.make_folder(real, 0o755)
    paths.make_folder(f"{real}/bin", 0o755)
    version = ".".join(map(str, python.version))
    for name in ("python", "python3", f"python{version}"):
        paths.make_link(python.path if name == "python" else "python", f"{real}/bin/{name}")
    library = f"{real}/lib/python{version}/site-packages"
    paths.make_folders(library)
    settings = (
        f"home = {os.path.dirname(python.path)}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    files.write_atomically(f"{real}/pyvenv.cfg", settings.encode(), 0o644)
    for entry in spec["wheels"]:
        descriptor, temporary = _bring(entry, f"{real}/wheel", host)
        try:
            # Nothing opens it by its name again: what was checked is what is unpacked.
            os.lseek(descriptor, 0, os.SEEK_SET)
            name = _file(entry)
            with os.fdopen(os.dup(descriptor), "rb") as stream, _wheel.open_wheel(stream, name) as wheel:
                _wheel.unpack(wheel, name, real, tree, python)
        finally:
            os.close(descriptor)
            files.remove_if_there(temporary)
    # For programs that may not write there; what cannot be compiled is a template, or never imported.
    argv = [f"{real}/bin/python", "-I", "-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash"]
    host.run(
        [*argv, "-s", host.root.rstrip("/") or "/", "-p", "/", library], check=False, timeout=COMPILE_SECONDS
    )


def _bring(entry: t.Mapping[str, t.Any], beside: str, host: Host) -> t.Tuple[int, str]:
    """Return a checked wheel as an open temporary file, and its path."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _download

    if "url_path" in entry:
        if not host.mirror:
            raise ResourceError("no mirror was given", "Set site_mirror_url for this host.")
        return _download.fetch(host.mirror + entry["url_path"], beside, entry["sha256"], entry["size"])
    import hashlib

    data = paths.read(host.path(entry["path"]), entry["size"] + 1)
    found = hashlib.sha256(data).hexdigest()
    if len(data) != entry["size"] or found != entry["sha256"]:
        text = (
            f"{entry['path']} is not the wheel that was locked: wanted SHA-256 {entry['sha256']}, got {found}"
        )
        raise ResourceError(text, "Put the locked file there, or lock this one.")
    descriptor, temporary = files.temporary_beside(beside)
    with files.ClosedOnFailure(descriptor):
        files.write_all(descriptor, data)
    return descriptor, temporary


def _turn(path: str, target: str, host: Host) -> None:
    descriptor, temporary = files.temporary_beside(path)
    os.close(descriptor)
    try:
        paths.remove(temporary)
        paths.make_link(target, temporary)
        paths.rename(temporary, path)
    except BaseException:
        files.remove_if_there(temporary)
        raise
    files.sync_folder(os.path.dirname(path))


def _trees(path: str, host: Host) -> t.List[str]:
    """Return the folders of environments that are beside a path."""
    folder, base = posixpath.split(path)
    own = re.compile(re.escape(base) + r"-[0-9a-f]{12}b?\Z")
    return [f"{folder}/{name}" for name in sorted(paths.names(host.path(folder))) if own.match(name)]


def _is_intact(name: str, known: State, host: Host) -> bool:
    """Tell whether the files are those that were unpacked; they are read only if one was touched."""
    tree = host.path(known["tree"])
    if not paths.is_folder(tree):
        return False
    listing = _tree.listing(tree)
    if listing == known["listing"]:
        return True
    if _tree.content(tree) != known["content"]:
        return False
    host.remember(name, {**known, "listing": listing})
    return True


KIND = VenvKind()
