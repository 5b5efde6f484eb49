# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The engine's code, kept on the host, so that a run which changes nothing need not send it.

The controller names the engine by its digest. What is kept runs only if its bytes have that digest, and if
nobody but root can have put it there: the bytes that were read are the ones that are checked and executed.
Whatever is wrong with them, the host says so, and gets the engine with the next request.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import stat
import sys
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

FOLDER = "/var/lib/ironspan/engine"
LARGEST = 16 << 20
"""Bytes; the engine has some 500 kB."""
HIDDEN = "********"
SHORTEST_SECRET = 8
"""Characters: shorter ones are words such as ``yes``, which a result may well contain."""

Result = t.Dict[str, t.Any]
code: t.Dict[str, str] = {}
"""All texts of the engine at work; empty where it was imported from files."""


def main(request: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any], texts: t.Dict[str, str]) -> Result:
    """Run the program that is asked for, if its code is here.

    Args:
        request: ``program`` and its ``parameters``; ``digest`` of the engine, ``engine`` itself if it is
            sent along, and whether to ``keep`` it then.
        given: what Ansible says of itself: check and diff mode, how to log.
        texts: where the importer looks; the engine is added.

    Returns:
        The program's result; or ``engine`` with ``lacks``, why what is kept cannot be used (empty if
        nothing is).
    """
    parameters = request["parameters"]
    root = str(parameters.get("root") or "/")
    data, sent = b"", request.get("engine")
    trouble = ""
    if sent is None:
        data, lacks = load(root, request["digest"])
        if not data:
            return {"changed": False, "engine": {"lacks": lacks}}
    else:
        data = sent.encode("ascii")
        if hashlib.sha256(data).hexdigest() != request["digest"]:
            return {"changed": False, "failed": True, "msg": "the engine was altered on its way; run again"}
        if request["keep"]:
            trouble = keep(root, request["digest"], data)
    texts.update(json.loads(data))
    code.update(texts)
    entry = importlib.import_module(f"{__name__.rpartition('.')[0]}._entry")
    if not given.get("_ansible_no_log"):
        _log(request["program"], parameters, given)
    check_mode, diff = bool(given.get("_ansible_check_mode")), bool(given.get("_ansible_diff"))
    result: Result = entry.PROGRAMS[request["program"]](parameters, check_mode, diff)
    if trouble:
        result["engine"] = {"trouble": trouble}
    secrets = [str(value) for value in (parameters.get("secrets") or {}).values()]
    shown: Result = hidden(result, [value for value in secrets if len(value) >= SHORTEST_SECRET])
    return shown


def load(root: str, digest: str) -> t.Tuple[bytes, str]:
    """Return the engine that is kept, if it is the one that is asked for and only root can have put it there.

    Args:
        root: the host's root folder.
        digest: SHA-256 of the engine.

    Returns:
        The engine and nothing, or nothing and why it cannot be used. Both are empty if there is none.
    """
    folder = root.rstrip("/") + FOLDER
    path = f"{folder}/{digest}"
    try:
        with paths.place(path) as at:
            wrong = _wrong(folder, os.fstat(at.folder), stat.S_ISDIR)
            if not (wrong or at.kept):
                wrong = f"{folder} lies in a folder that others than root can change"
            here, asked = os.fstat(at.folder), paths.status(folder)
            if asked is None or (here.st_dev, here.st_ino) != (asked.st_dev, asked.st_ino):
                wrong = f"{folder} is a symbolic link"
            if wrong:
                return b"", wrong
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(at.name, flags, dir_fd=at.folder), "rb") as stream:
                found = os.fstat(stream.fileno())
                wrong = _wrong(path, found, stat.S_ISREG)
                if found.st_nlink != 1 or found.st_size > LARGEST:
                    wrong = wrong or f"{path} has other names too, or is too large"
                data = b"" if wrong else stream.read(LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return b"", ""
    except OSError as error:
        return b"", f"{path}: {error.strerror}"
    if not wrong and hashlib.sha256(data).hexdigest() != digest:
        wrong = f"{path} is not what its name says: its SHA-256 is another"
    return (b"", wrong) if wrong else (data, "")


def _wrong(path: str, found: os.stat_result, is_kind: t.Callable[[int], bool]) -> str:
    """Return why a file or folder may be somebody else's work; nothing if only root can write to it."""
    if not is_kind(found.st_mode):
        return f"{path} is not what it should be"
    if found.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {found.st_uid}"
    if found.st_mode & 0o022:
        return f"others than root can write to {path} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def keep(root: str, digest: str, data: bytes) -> str:
    """Keep the engine, and the one before it; what else lies there goes.

    Args:
        root: the host's root folder.
        digest: SHA-256 of the engine.
        data: the engine.

    Returns:
        Why it could not be kept, which is no reason not to use it; nothing as a rule.
    """
    folder = root.rstrip("/") + FOLDER
    try:
        _make_folder(folder)
        unfinished = f"{folder}/.{digest}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            # Of a process with this number that was killed.
            paths.remove_tree(unfinished)
        try:
            with os.fdopen(paths.create(unfinished), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            found = paths.status(f"{folder}/{digest}")
            if found is not None and stat.S_ISDIR(found.st_mode):
                paths.remove_tree(f"{folder}/{digest}")
            paths.rename(unfinished, f"{folder}/{digest}")
        except OSError:
            with contextlib.suppress(OSError):
                paths.remove(unfinished)
            raise
        paths.sync_folder(folder)
        _remove_others(folder, digest)
    except OSError as error:
        if load(root, digest)[0]:
            # Another run was faster.
            return ""
        return f"{error.filename or folder}: {error.strerror}"
    return ""


def _make_folder(folder: str) -> None:
    """Make the folder, in the place of anything that is not root's alone."""
    above = os.path.dirname(folder)
    paths.make_folders(above, 0o700)
    if paths.there(above, follow=False).st_mode & 0o022:
        # As every run that writes does.
        paths.set_owner_and_mode(above, 0o700, follow=False)
    with paths.place(folder) as at:
        if not at.kept:
            raise paths.UnsafePath(folder, "lies in a folder that others than root can change")
    found = paths.status(folder)
    if found is not None and _wrong(folder, found, stat.S_ISDIR):
        paths.remove_tree(folder)
        found = None
    if found is None:
        with contextlib.suppress(FileExistsError):
            paths.make_folder(folder, 0o700)
        paths.sync_folder(above)


def _remove_others(folder: str, digest: str) -> None:
    """Remove all but the engine at work, the newest other, and what other processes are writing."""
    ages = {}
    for name in paths.names(folder, follow=False):
        found = paths.status(f"{folder}/{name}")
        if found is not None and name != digest:
            ages[name] = found.st_mtime
    former = sorted((name for name in ages if not name.startswith(".")), key=lambda name: ages[name])[-1:]
    for name in ages:
        running = name.startswith(".") and os.path.isdir(f"/proc/{name.rpartition('.')[2]}")
        if name not in former and not running:
            with contextlib.suppress(FileNotFoundError):
                paths.remove_tree(f"{folder}/{name}")


def program_text(name: str, texts: t.Mapping[str, str]) -> str:
    """Return the engine as one Python program that needs nothing else.

    Args:
        name: of the module whose ``main`` gets the arguments of the command line.
        texts: ``code``.
    """
    # JSON never has three quotation marks in a row, and ends with a bracket.
    packed = json.dumps(texts)
    last = f'start(json.loads(r"""{packed}"""), {name!r})'
    return f"{texts['_start.py']}\n\nimport json\n\nsys.exit({last}.main(sys.argv))\n"


def hidden(value: t.Any, secrets: t.Sequence[str]) -> t.Any:
    """Return a result in which no secret is left."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        return {hidden(key, secrets): hidden(each, secrets) for key, each in value.items()}
    return [hidden(each, secrets) for each in value] if isinstance(value, list) else value


def _log(program: str, parameters: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Leave a line in the host's log, as every module of Ansible does; not the document, which is long."""
    import syslog

    facility = getattr(syslog, str(given.get("_ansible_syslog_facility")), syslog.LOG_USER)
    syslog.openlog(f"ansible-ironspan.hybrid.{program}", 0, facility)
    mode, check = parameters.get("mode") or "-", bool(given.get("_ansible_check_mode"))
    syslog.syslog(syslog.LOG_INFO, f"mode={mode} check_mode={check}")


def answer(result: Result) -> t.NoReturn:
    """Tell Ansible the result, and end."""
    print(json.dumps(result))
    sys.exit(1 if result.get("failed") else 0)
