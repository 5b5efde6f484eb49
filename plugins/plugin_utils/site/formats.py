# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Grammars of texts: what a value may be made of, by what it becomes (a path, a flag, a line of a unit).

Role variables name one as their ``format`` in ``meta/argument_specs.yml``. A text that its target would read
otherwise than it was meant (a line break, a space, ``;``, ``$()``, ``..``, a leading ``-``) is refused before
anything is made from it. What a value means beside its form is for the checks of its domain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.calendars import is_calendar
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.judges import (
    HOST,
    Judge,
    is_address,
    is_git_ref,
    is_git_url,
    is_line,
    is_network,
    is_url,
    like,
    no_climbing,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.strict_reader import LOADER

_OF_KERNEL = ("dev", "proc", "sys")


@dataclasses.dataclass(frozen=True, slots=True)
class Grammar:
    """One grammar.

    Args:
        what: what a text of it is, without an article.
        is_right: tells whether a text is one.
        instead: what to write instead, an imperative clause.
    """

    what: str
    is_right: Judge
    instead: str


_WORD = like(r"[A-Za-z0-9_./:@*+%=,~\[\]#][A-Za-z0-9_./:@*+%=,~\[\]#-]*")
_QUALIFIED = like(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_HEX = "[0-9a-fA-F]"
_PATH = like(r"/[A-Za-z0-9._/@:+,=~-]*", 4095)
_REPOSITORY = r"[a-z0-9]+([._/-]+[a-z0-9]+)*"
_SHARE = r"(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?)%"
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"

is_taken_for_address = like(r"(.*\.)?([0-9]+|0[xX][0-9a-fA-F]*)")
"""Tell whether resolvers read a name as an address, as inet_aton(3) does: 1001 is 0.0.3.233."""

AZURE_FILE = Path(__file__).absolute().with_name("azure_names.yml")
"""Names in Azure, and where Azure says how they are made."""


def _of_azure() -> Iterator[tuple[str, Grammar]]:
    for name, entry in yaml.load(AZURE_FILE.read_text(encoding="utf-8"), Loader=LOADER).items():
        yield f"azure_{name}", Grammar(entry["what"], like(entry["pattern"]), entry["instead"])


GRAMMARS: Mapping[str, Grammar] = {
    "line": Grammar("line of text", is_line, "write it in one line, without control characters"),
    "word": Grammar(
        "single word",
        _WORD,
        "write it without spaces, quotes, semicolons, $ or a hyphen in front",
    ),
    "interpreter": Grammar(
        # Ansible gives it to a shell, and its own documentation has /usr/bin/env in front of a name.
        "single word",
        lambda text: _WORD(text.removeprefix("/usr/bin/env ")),
        "write it without spaces, quotes, semicolons, $ or a hyphen in front",
    ),
    "path": Grammar(
        "path on a host",
        no_climbing(_PATH),
        "write it from / on, of letters, digits and ._@:+,=~-, without ..",
    ),
    "local_path": Grammar(
        # Of the controller, which is reached by Python's own calls: spaces are no harm.
        "path",
        lambda text: text.isprintable() and not text.startswith("-"),
        "write a path, without control characters and a hyphen in front",
    ),
    "folder": Grammar(
        "folder on a host",
        no_climbing(lambda text: _PATH(text) and text.strip("/").split("/")[0] not in ("", *_OF_KERNEL)),
        "write it from / on, of letters, digits and ._@:+,=~-, without .. and not below /dev, /proc or /sys",
    ),
    "disk": Grammar(
        # Names such as /dev/sdc are given in the order in which disks are found, anew with each boot.
        "lasting name of a disk",
        no_climbing(like(r"/dev/disk/[A-Za-z0-9._-]+/[A-Za-z0-9._/@:+,=~-]*[A-Za-z0-9._@:+,=~-]", 4095)),
        "write a path below /dev/disk, for example /dev/disk/by-id/..., as 'ls -lR /dev/disk' shows them",
    ),
    "address": Grammar("IP address", is_address, "write one address, for example 10.20.0.10"),
    "ipv4": Grammar(
        "IPv4 address", lambda text: is_address(text) and ":" not in text, "write for example 10.20.0.10"
    ),
    "cidr": Grammar("IPv4 network", is_network, "write it as ADDRESS/LENGTH, for example 10.20.0.0/20"),
    "url": Grammar("http or https URL", is_url, "write https://NAME, without spaces and without a login"),
    "git_url": Grammar(
        "address of a git repository",
        is_git_url,
        "write https://HOST/PATH or ssh://git@HOST/PATH, without a password",
    ),
    "git_ref": Grammar(
        "branch, tag or commit of git", is_git_ref, "write it as git shows it, for example main or v1.2"
    ),
    "inner_path": Grammar(
        "path inside of a folder",
        no_climbing(like(r"[A-Za-z0-9._@:+,=][A-Za-z0-9._/@:+,=~-]*", 4095)),
        "write it without a slash, ~ or hyphen in front and without ..",
    ),
    "host_or_address": Grammar(
        "host name or address",
        lambda text: (
            is_address(text)
            or (like(rf"(\*\.)?{HOST}", 253)(text) and not is_taken_for_address(text))
        ),
        "write a name of letters, digits, '-' and '.', or an address",
    ),
    "registry": Grammar(
        "registry", like(rf"{HOST}(:[0-9]{{1,5}})?", 259), "write NAME or NAME:PORT, without https://"
    ),
    "label_value": Grammar(
        "value of labels",
        lambda text: not text or _QUALIFIED(text),
        "write up to 63 letters, digits, '-', '_' and '.', a letter or digit at both ends",
    ),
    "path_segment": Grammar(
        # apimachinery, pkg/api/validation/path: what RBAC takes for a name.
        "name of RBAC",
        lambda text: is_line(text) and text not in (".", "..") and not set(text) & {"/", "%"},
        "write one line without / and %",
    ),
    "version": Grammar(
        "version",
        like(r"[A-Za-z0-9][A-Za-z0-9.+~:_-]*", 128),
        'write it as it is released, in quotes, for example "1.36.4"',
    ),
    "release": Grammar(
        "release of a kernel",
        like(r"[0-9]{1,4}(\.[0-9]{1,5}){0,3}"),
        'write it in quotes, for example "5.15"',
    ),
    "account": Grammar(
        # Of a directory it may have a domain, in front or behind.
        "name of an account",
        like(r"[A-Za-z0-9_]([A-Za-z0-9_.@\\+-]{0,254}[A-Za-z0-9_$])?"),
        "write the name that ssh takes, without spaces",
    ),
    "package": Grammar(
        "name of a package", like(r"[A-Za-z0-9][A-Za-z0-9+._:-]*", 255), "write it as apt or dnf does"
    ),
    "package_of_kernel": Grammar(
        "name of a package",
        like(r"[a-z0-9][a-z0-9+._-]*(\{\}[a-z0-9+._-]*)?", 255),
        "write for example linux-image-{}",
    ),
    "package_version": Grammar(
        "version of a package",
        like(r"([A-Za-z0-9][A-Za-z0-9.+~:_-]*)?\*?", 255),
        "write it as apt does; a * at its end stands for the rest",
    ),
    "module": Grammar(
        "name of a kernel module", like(r"[A-Za-z0-9_][A-Za-z0-9_-]*", 55), "write it as lsmod does"
    ),
    "sysctl_key": Grammar(
        # Dots in the names of interfaces are slashes there, sysctl.d(5).
        "name of a kernel setting",
        like(r"[A-Za-z0-9_][A-Za-z0-9_/:@-]*(\.[A-Za-z0-9_][A-Za-z0-9_/:@-]*)+", 255),
        "write it with dots, as sysctl prints it",
    ),
    "sysctl_value": Grammar(
        "value of a kernel setting",
        lambda text: all(char.isprintable() or char == "\t" for char in text),
        "write it in one line",
    ),
    "keyword": Grammar("keyword", like(r"[A-Za-z][A-Za-z0-9]*"), "write letters and digits"),
    "plugin": Grammar(
        "name of a plugin",
        like(r"([a-z_][a-z0-9_]*\.){0,2}[a-z_][a-z0-9_]*"),
        "write for example ssh, or ansible.builtin.ssh",
    ),
    "option_name": Grammar(
        "name of an option", like(r"[A-Za-z][A-Za-z0-9_]*"), "write letters, digits and '_'"
    ),
    "flag_name": Grammar(
        "name of a flag",
        like(r"[A-Za-z0-9][A-Za-z0-9_.-]*"),
        "write it without the dashes in front, and its value behind the colon",
    ),
    "flag_value": Grammar(
        "value of a flag", lambda text: not text or is_line(text), "write it in one line"
    ),
    "setting_value": Grammar(
        "value of a setting", lambda text: not text or is_line(text), "write it in one line"
    ),
    "quantity": Grammar(
        # apimachinery, pkg/api/resource: a number with a suffix.
        "quantity",
        like(rf"{_NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{{1,2}})?"),
        "write it as Kubernetes does, for example 100m, 256Mi or 1Gi",
    ),
    "threshold": Grammar(
        "threshold",
        like(rf"{_SHARE}|{_NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{{1,2}})?"),
        "write a quantity or a share, for example 100Mi or 10%",
    ),
    "share": Grammar(
        "number or share",
        like(r"[1-9][0-9]{0,4}|([1-9][0-9]?|100)%"),
        "write for example 10%, or 2",
    ),
    "calendar": Grammar(
        "time of systemd.time(7)",
        is_calendar,
        "write for example daily, or Sun 03:00",
    ),
    "uuid": Grammar(
        "identifier",
        like(rf"(?!0{{8}}-0{{4}}-0{{4}}-0{{4}}-0{{12}}){_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"),
        "write the UUID that Entra or Azure shows",
    ),
    "image": Grammar(
        "image",
        like(rf"{HOST}(:[0-9]{{1,5}})?/{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
              rf"(@sha256:[0-9a-f]{{64}})?"),
        "write REGISTRY/NAME:TAG, or REGISTRY/NAME@sha256:DIGEST",
    ),
    "sha256": Grammar(
        "SHA-256", like(r"[0-9a-f]{64}"), "write 64 hexadecimal digits, in small letters and in quotes"
    ),
    "kernel_arguments": Grammar(
        "line of kernel arguments",
        like(r"[A-Za-z0-9_.,:=/@+%*\"' -]*", 2048),
        "write NAME or NAME=VALUE with spaces between, in one line",
    ),
    **dict(_of_azure()),
}  # fmt: skip


def fault_of(text: str, name: str, secret: bool = False) -> tuple[str, str] | None:
    """Return what is wrong with a text, and what to write instead; None when nothing is.

    Args:
        text: what was written.
        name: of the grammar.
        secret: say nothing that is in the text.
    """
    grammar = GRAMMARS[name]
    if grammar.is_right(text):
        return None
    because = "" if secret else _because(text)
    return f"is no {grammar.what}{because}", grammar.instead


def _because(text: str) -> str:
    """Return what stands out in a refused text, and cannot be seen or is easily passed over."""
    if not text:
        return ", it is empty"
    strange = next((char for char in text if not char.isprintable()), "")
    if strange:
        names = {"\n": "a line break", "\t": "a tab", "\0": "a NUL", "\r": "a carriage return"}
        return f": it has {names.get(strange, f'the character U+{ord(strange):04X}')}"
    foreign = next((char for char in text if not char.isascii()), "")
    if foreign:
        return f": it has {foreign!r} (U+{ord(foreign):04X})"
    if text != text.strip():
        return ": it has a space at an end"
    return ""
