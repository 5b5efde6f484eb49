# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``artifact``: a file from the mirror, or the members of an archive from it."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")


class ArtifactKind:
    """Fetches what is missing or differs. Hashing is skipped for files that nobody touched since."""

    name = "artifact"
    fields: t.Mapping[str, Field] = {
        "url_path": Field((str,), required=True),
        "sha256": Field((str,), required=True),
        "size": Field((int,), required=True),
        "path": Field((str,), required=True),
        "mode": Field((str,), default="0755"),
        "unpack": Field((str,), default="none", choices=("none", "tar")),
        "strip": Field((int,), default=0),
        "members": Field((list,), default=()),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Look at the forms of digest, address and mode."""
        mistakes = accounts.mode_mistakes(spec)
        if not _SHA256.match(spec["sha256"]):
            mistakes.append(f"sha256 must be 64 hexadecimal digits, found {spec['sha256']!r}")
        if not spec["url_path"].startswith("/"):
            mistakes.append(f"url_path must begin with /, found {spec['url_path']!r}")
        if any(not isinstance(name, str) for name in spec["members"]):
            mistakes.append("members must be a list of names")
        if spec["size"] < 0:
            mistakes.append(f"size must be the file's bytes, found {spec['size']}")
        if spec["strip"] < 0:
            mistakes.append("strip must not be negative")
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare digests and modes."""
        return _compare_members(spec, host) if spec["unpack"] == "tar" else _compare_file(spec, host)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Fetch, check, and rename into place; or only set the mode."""
        if spec["unpack"] == "tar":
            _apply_archive(spec, host)
        elif list(change.after) == ["mode"]:
            host.backup(spec["path"])
            accounts.set_ownership(host.path(spec["path"]), spec, host)
            _sees(spec["path"], spec["sha256"].lower(), host, spec["id"], {})
        else:
            _apply_file(spec, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""

    def owns(self, spec: Spec, note: State) -> t.List[str]:
        """Return the file, or what was unpacked: a folder such as /usr/local is shared."""
        path = spec["path"].rstrip("/")
        if spec.get("unpack", "none") == "none":
            return [path]
        return [f"{path}/{name}" for name in sorted(note.get("members", {}))]


def _compare_file(spec: Spec, host: Host) -> t.Optional[Change]:
    path = spec["path"]
    status = files.status_of(host.path(path))
    what = files.kind_of(status)
    sha256 = spec["sha256"].lower()
    if what in ("folder", "other"):
        raise ResourceError(
            f"{path} exists and is no file", "Move it away on the host, or choose another path."
        )
    if status is None or what == "link":
        if status is None:
            accounts.need_folder(path, host)
        after: State = {"state": "file", "sha256": sha256, "mode": spec["mode"]}
        return Change("create", {"state": what}, after, "does not exist" if status is None else "is a link")
    before, after = accounts.differences(spec, status, host)
    found = _digest(path, status, host, spec["id"], "")
    if found != sha256:
        before["sha256"], after["sha256"] = found, sha256
        _show_release(spec, host, before, after)
        return Change("update", before, after, "content differs")
    return Change("update", before, after, "mode or owner differs") if after else None


def _digest(path: str, status: os.stat_result, host: Host, name: str, member: str) -> str:
    """Return a file's SHA-256, from memory when its size, times and inode are those of the last time."""
    known = host.note(name)
    entry = known.get("members", {}).get(member, {}) if member else known
    if entry.get("signature") == files.signature(status):
        return str(entry["sha256"])
    found = files.sha256_of(host.path(path))
    if found == entry.get("sha256") or not member:
        # Same content, touched: remember the new signature, so that it is not read again next time.
        fresh = {**entry, "sha256": found, "signature": files.signature(status)}
        host.remember(name, {**known, "members": {**known["members"], member: fresh}} if member else fresh)
    return found


def _sees(path: str, sha256: str, host: Host, name: str, note: State) -> None:
    status = paths.there(host.path(path), follow=False)
    host.remember(name, {**note, "sha256": sha256, "signature": files.signature(status)})


def _apply_file(spec: Spec, host: Host) -> None:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _download

    path, sha256 = spec["path"], spec["sha256"].lower()
    accounts.need_folder(path, host)
    owner = accounts.resolve(spec, host)
    host.backup(path)
    descriptor, temporary = _download.fetch(_url(spec, host), host.path(path), sha256, spec["size"])
    try:
        files.finish(descriptor, temporary, host.path(path), int(spec["mode"], 8), owner)
    except BaseException:
        files.remove_if_there(temporary)
        raise
    _sees(path, sha256, host, spec["id"], {"url_path": spec["url_path"]})


def _show_release(spec: Spec, host: Host, before: State, after: State) -> None:
    """Say where the former and the wanted content come from: the paths name the releases."""
    former = host.note(spec["id"]).get("url_path", spec["url_path"])
    if former != spec["url_path"]:
        before["url_path"], after["url_path"] = former, spec["url_path"]


def _url(spec: Spec, host: Host) -> str:
    if not host.mirror:
        raise ResourceError("no mirror was given", "Set site_mirror_url for this host.")
    return host.mirror.rstrip("/") + str(spec["url_path"])


def _recipe(spec: Spec) -> State:
    """Return what decides which files an archive gives."""
    return {"sha256": spec["sha256"].lower(), "strip": spec["strip"], "members": sorted(spec["members"])}


def _compare_members(spec: Spec, host: Host) -> t.Optional[Change]:
    folder = spec["path"].rstrip("/")
    known = host.note(spec["id"])
    after: State = {"sha256": spec["sha256"].lower()}
    if not paths.is_folder(host.path(folder)) and paths.status(host.path(folder)) is not None:
        raise ResourceError(
            f"{folder} exists and is no folder", "Move it away on the host, or choose another path."
        )
    if known.get("folder") != folder or known.get("recipe") != _recipe(spec):
        before = {"sha256": known["recipe"]["sha256"]} if "recipe" in known else {"state": "absent"}
        _show_release(spec, host, before, after)
        return Change("create" if "recipe" not in known else "update", before, after, "not unpacked yet")
    wrong = {}
    for member, entry in known["members"].items():
        state = _member_state(f"{folder}/{member}", member, entry, spec, host)
        if state:
            wrong[member] = state
    if not wrong:
        return None
    return Change("update", {"members": wrong}, {**after, "members": sorted(wrong)}, "unpacked files differ")


def _member_state(path: str, member: str, entry: State, spec: Spec, host: Host) -> str:
    """Return how an unpacked file differs from what was unpacked, "" if it does not."""
    status = files.status_of(host.path(path))
    what = files.kind_of(status)
    if status is None or what != ("link" if "target" in entry else "file"):
        return what
    if what == "link":
        target = paths.link_target(host.path(path))
        return "" if target == entry["target"] else f"link to {target}"
    before, _ = accounts.differences({"mode": entry["mode"]}, status, host)
    if before:
        return ", ".join(f"{key} {value}" for key, value in before.items())
    found = _digest(path, status, host, spec["id"], member)
    return "" if found == entry["sha256"] else f"sha256 {found}"


def _apply_archive(spec: Spec, host: Host) -> None:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _download, _unpack

    folder = spec["path"].rstrip("/")
    known = host.note(spec["id"])
    host.backup(folder)
    accounts.make_folders(folder, host)
    inside = host.path(f"{folder}/archive")
    descriptor, temporary = _download.fetch(_url(spec, host), inside, spec["sha256"], spec["size"])
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        entries: t.Dict[str, State] = {}
        with os.fdopen(os.dup(descriptor), "rb") as stream, _open_archive(stream, spec) as archive:
            try:
                # The whole list is checked before the first file is written.
                members = _unpack.select(archive, spec["strip"], spec["members"])
                for member in members:
                    entries[member.path] = _unpack_member(archive, member, folder, host)
            except _unpack.UNREADABLE as error:
                raise _not_an_archive(spec, error) from error
    finally:
        os.close(descriptor)
        files.remove_if_there(temporary)
    if known.get("folder") == folder:
        for member in sorted(set(known["members"]) - set(entries)):
            # An earlier version of the archive brought it, this one does not.
            host.backup(f"{folder}/{member}")
            files.remove_if_there(host.path(f"{folder}/{member}"))
    note = {"folder": folder, "recipe": _recipe(spec), "members": entries, "url_path": spec["url_path"]}
    host.remember(spec["id"], note)


def _open_archive(stream: t.BinaryIO, spec: Spec) -> t.Any:
    import tarfile

    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _unpack

    try:
        return tarfile.open(fileobj=stream, mode="r:*")
    except _unpack.UNREADABLE as error:
        raise _not_an_archive(spec, error) from error


def _not_an_archive(spec: Spec, error: Exception) -> ResourceError:
    text = f"{spec['url_path']} cannot be unpacked: {error}"
    return ResourceError(text, "Write unpack: none if it is a plain file, or replace it on the mirror.")


def _unpack_member(archive: t.Any, member: t.Any, folder: str, host: Host) -> State:
    """Write one file or link below the folder, atomically, and describe it for the next comparison."""
    path = f"{folder}/{member.path}"
    real = host.path(path)
    parent = os.path.dirname(path)
    accounts.make_folders(parent, host)
    resolved, base = paths.real(host.path(parent)), paths.real(host.path(folder))
    if resolved != base and not resolved.startswith(base.rstrip("/") + "/"):
        raise ResourceError(
            f"{parent} leads out of {folder}", "Remove the link that is in the way on the host."
        )
    host.backup(path)
    descriptor, temporary = files.temporary_beside(real)
    try:
        if member.target:
            os.close(descriptor)
            paths.remove(temporary)
            paths.make_link(member.target, temporary)
            paths.rename(temporary, real)
            return {"target": member.target}
        mode = "0755" if member.info.mode & 0o111 else "0644"
        with files.ClosedOnFailure(descriptor):
            sha256 = _copy(archive.extractfile(member.info), descriptor)
        files.finish(descriptor, temporary, real, int(mode, 8), accounts.resolve({"mode": mode}, host))
        return {"sha256": sha256, "mode": mode, "signature": files.signature(paths.there(real, follow=False))}
    except BaseException:
        files.remove_if_there(temporary)
        raise


def _copy(source: t.Any, descriptor: int) -> str:
    import hashlib

    digest = hashlib.sha256()
    while True:
        chunk = source.read(1 << 18)
        if not chunk:
            return digest.hexdigest()
        digest.update(chunk)
        files.write_all(descriptor, chunk)


KIND = ArtifactKind()
