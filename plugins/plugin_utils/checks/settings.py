# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files that can be read, variables that must be there, and variables that must be the same for all hosts."""

from __future__ import annotations

import collections
import re
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import remote_kinds
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import PLANNED
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import hosts_out_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import unread
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.connection import CONNECTION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers, layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import CLUSTER_OBJECT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, Place, named, nearest

PER_HOST: tuple[str, ...] = ("site_mirror_url",)
"""Variables that every host needs and localhost has not, so argument specifications cannot require them."""
UNAPPROVED = "site_plan_unapproved_kinds"
OUR_CERTIFICATES_DAYS = 365
"""Of pki/profiles.py, which this package does not import; a test compares."""

_KEY = re.compile(r"\s*(ssh-(ed25519|rsa|dss)|ecdsa-sha2-nistp[0-9]+|sk-(ssh|ecdsa)-\S+@openssh\.com)\s")
"""What a line of ~/.ssh/authorized_keys or a file *.pub begins with."""
PACKAGES = "base_packages"
_OURS = {
    "containerd.io": "containerd",
    **{name: name for name in ("containerd", "runc", "kubelet", "kubeadm")},
}
"""Package -> what it brings that every node has from the mirror."""


def check_duplicates(draft: Draft) -> None:
    """No key may be there twice: readers keep the last without a word."""
    for duplicate in draft.marks.duplicates:
        draft.problems.add(
            duplicate.place,
            duplicate.path,
            f"is there twice, first on line {duplicate.first_line}; only the last would count",
            "write it once",
        )


def check_octals(draft: Draft) -> None:
    """A number with a zero in front is one of eight digits to YAML: 06443 would be 3363."""
    options = {**draft.specification.options, **CONNECTION}
    for variable, place, text in draft.marks.octals:
        option = options.get(variable)
        if option is not None and option.type in ("int", "float") and int(text, 8) != int(text):
            message = f"{text} is read as an octal number, {int(text, 8)}"
            draft.problems.add(place, variable, message, f"write {int(text)}")


def check_unread(draft: Draft) -> bool:
    """Every source must have answered: Ansible goes on without one that did not. Tell whether one did not."""
    of_all = draft.inventory.group_layers.get("all", {}).get("inventory", {})
    marks = list(unread.marked({key: setting.value for key, setting in of_all.items()}))
    for file, reason in marks:
        draft.problems.add(Place(file, 1), "(inventory)", reason, "its hosts are not known before it answers")
    return bool(marks)


def check_required(draft: Draft) -> None:
    """Variables without a default must be set for every host whose layers use them."""
    wrong = {problem.path for problem in draft.problems}
    for option in draft.specification.options.values():
        if not option.required and option.name not in PER_HOST:
            continue
        concerned = [
            host
            for host in draft.hosts.values()
            if option.role == "site" or option.role in layers_of(host.groups, draft.site_value("site_cni"))
        ]
        missing = [host for host in concerned if option.name not in host.settings]
        for host in concerned:
            # One without a value, or of another type, was named when it was read.
            if (
                option.name not in wrong
                and option.name in host.settings
                and host.values.get(option.name) == ""
            ):
                draft.problems.add(draft.place(host, option.name), option.name, "is empty", "write its value")
        remedy = f"write '{option.name}: ...' in group_vars/all.yml, or in the variables of a group"
        if missing and len(missing) == len(concerned):
            draft.problems.add(draft.site_place(option.name), option.name, "is not set", remedy)
            continue
        for host in missing:
            message = f"is not set for host {host.name}"
            draft.problems.add(draft.host_place(host.name), option.name, message, remedy)


def check_site_wide(draft: Draft) -> None:
    """What describes the cluster must have one value."""
    once = Once(draft.problems)
    for variable in filter(all_layers().is_site_wide, draft.specification.options):
        # Nearly all hosts share one object.
        shared = [host.values.get(variable) for host in draft.hosts.values()]
        distinct = {id(value): value for value in shared if value is not None}
        if len({str(value) for value in distinct.values()}) < 2:
            continue
        values = draft.values(variable)
        # What most hosts have is meant, the others are the mistake; of as many, the default is meant.
        counts = collections.Counter(map(str, values.values()))
        # What all say is before both: that is where it belongs.
        default, of_all = str(draft.specification.defaults.get(variable)), _said_for_all(draft, variable)
        first = max(counts, key=lambda text: (text in of_all, counts[text], text == default))
        first_host = next(name for name, value in values.items() if str(value) == first)
        for name, value in values.items():
            if str(value) == first:
                continue
            # What has its default was written by nobody: the other value is, for a part of the site.
            written, other = (name, first_host)
            if variable not in draft.hosts[name].settings:
                written, other = first_host, name
            at = draft.place(draft.hosts[other], variable)
            where = f" ({named(at)})" if variable in draft.hosts[other].settings else ", by default"
            once.add(
                draft.place(draft.hosts[written], variable),
                variable,
                f"is {values[written]} for host {written} but {values[other]} for host {other}{where}",
                "write it once, in group_vars/all.yml",
            )


def _said_for_all(draft: Draft, variable: str) -> set[str]:
    """Return what the group all says of a variable, as texts; nothing where that is an expression."""
    layers = draft.inventory.group_layers.get("all", {}).values()
    return {str(settings[variable].value) for settings in layers if variable in settings}


def check_etcd_timing(draft: Draft) -> None:
    """Etcd refuses an election timeout below five heartbeats (server/embed/config.go)."""
    for host in draft.members("etcd"):
        heartbeat = host.values.get("etcd_heartbeat_ms")
        election = host.values.get("etcd_election_ms")
        if not isinstance(heartbeat, int) or not isinstance(election, int) or election >= 5 * heartbeat:
            continue
        variable = "etcd_election_ms" if "etcd_election_ms" in host.settings else "etcd_heartbeat_ms"
        draft.problems.add(
            draft.place(host, variable),
            variable,
            f"an election timeout of {election} ms is less than five heartbeats of {heartbeat} ms",
            f"write etcd_election_ms: {10 * heartbeat}, ten heartbeats",
        )


def check_plan_policy(draft: Draft) -> None:
    """Approvals need to be checked against somebody, and a plan needs time to be approved."""
    approvals, signers = (
        draft.site_value("site_plan_approvals"),
        draft.site_value("site_plan_allowed_signers"),
    )
    if isinstance(approvals, int) and approvals > 0 and not signers:
        draft.problems.add(
            draft.site_place("site_plan_approvals"),
            "site_plan_allowed_signers",
            f"is not set, and {approvals} approvals are wanted",
            "write the path of a file in the form of ssh-keygen(1), ALLOWED SIGNERS",
        )
    elif isinstance(approvals, int) and approvals > 0:
        _check_signers(draft, approvals, Path(str(signers)).expanduser())
    kinds, writer = draft.site_value(UNAPPROVED), draft.writer(UNAPPROVED)
    known = sorted({*_resources.NAMES, *remote_kinds.names(), *PLANNED, CLUSTER_OBJECT})
    for index, kind in enumerate(kinds if isinstance(kinds, list) and writer else ()):
        if kind in known or not writer:
            continue
        near = nearest(str(kind), known)
        draft.problems.add(
            draft.inner_place(writer, UNAPPROVED, index),
            f"{UNAPPROVED}[{index}]",
            f"{kind} is no kind of resource and no operation, so it would allow nothing",
            f"write {near}" if near else "write for example hosts_entries or cluster_object",
        )


def _check_signers(draft: Draft, approvals: int, file: Path) -> None:
    """As many people may approve a plan as have to."""
    variable = "site_plan_allowed_signers"
    place = draft.site_place(variable)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        remedy = "write the path of a file in the form of ssh-keygen(1), ALLOWED SIGNERS"
        draft.problems.add(place, variable, f"{file} cannot be read: {reason}", remedy)
        return
    for number, line in enumerate(lines, 1):
        if _KEY.match(line):
            message = f"line {number} of {file} begins with a key, and not with the name of who has it"
            draft.problems.add(place, variable, message, "write NAME KEY there, as in ssh-keygen(1)")
            return
    # Its first name stands for a line; whoever is a pattern approves nothing.
    firsts = {line.split()[0].split(",")[0] for line in lines if line.strip() and line.lstrip()[0] != "#"}
    people = [name for name in firsts if not set(name) & set("*?!")]
    if len(people) < approvals:
        message = f"{file} names {len(people)} people, and a plan needs {approvals} (site_plan_approvals)"
        draft.problems.add(place, variable, message, "add a line NAME KEY for each who may approve")


def check_certificates(draft: Draft) -> None:
    """What is renewed before it could have got older would be renewed in every run."""
    renew, control_plane = "site_certificate_renew_days", "control_plane_certificate_days"
    before, lifetime = draft.site_value(renew), draft.site_value(control_plane)
    if not isinstance(before, int) or not isinstance(lifetime, int):
        return
    ours = min(lifetime, OUR_CERTIFICATES_DAYS)
    if before >= ours:
        wrong = renew if draft.writer(renew) else control_plane
        draft.problems.add(
            draft.site_place(wrong),
            wrong,
            f"certificates of {ours} days would be renewed {before} days before they end, so always",
            f"write less than {ours}" if wrong == renew else f"write more than {before}, for example 365",
        )


def check_drain_policy(draft: Draft) -> None:
    """Waves need at least one host, and a number or a percentage to count by."""
    value = draft.site_value("site_max_unavailable")
    try:
        hosts_out_of(value, 1)
    except ValueError as error:
        variable = "site_max_unavailable"
        place = draft.site_place(variable)
        draft.problems.add(place, variable, str(error), "write for example 10%, or 2")


def check_packages(draft: Draft) -> None:
    """A package with another containerd or kubelet would put its files and units in the place of ours."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        packages = host.values.get(PACKAGES)
        if not isinstance(packages, list) or not {"nodes", "control_plane"} & set(host.groups):
            continue
        for index, name in enumerate(packages):
            if name in _OURS:
                place = draft.inner_place(host, PACKAGES, index)
                message = f"{name} brings {_OURS[name]}, which ironspan installs itself on {host.name}"
                once.add(place, f"{PACKAGES}[{index}]", message, "take it out")


CHECKS = (
    check_packages,
    check_octals,
    check_required,
    check_site_wide,
    check_etcd_timing,
    check_plan_policy,
    check_certificates,
    check_drain_policy,
)
