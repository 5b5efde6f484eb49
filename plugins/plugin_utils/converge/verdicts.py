# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the controller makes of a host's answer: is it fit, what is pending, which groups it goes into."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

PENDING_GROUP = "__ironspan_pending"
JOINING_GROUP = "__ironspan_pending_{layer}"
COMPARED_GROUP = "__ironspan_compared_{layer}"
BARE_GROUP = "__ironspan_bare_{layer}"
LATER_GROUP = "__ironspan_joining_{layer}"
STARTING_GROUP = "__ironspan_starting_control_plane"
UNREACHED_GROUP = "__ironspan_unreached"
"""Hosts that should have been reset and did not answer."""
RESTART_GROUP = "__ironspan_restart_{layer}"
REBOOT_GROUP = "__ironspan_reboot"
"""Hosts on which something waits for a boot: an earlier run changed it, and was cut off before the boot."""
EVENTS, RETIRED_GROUP = JOINING_GROUP.format(layer="etcd_events"), "__ironspan_retired_etcd_events"
"""The second one has hosts that only lose their etcd for events: API servers use it until they were told."""
RECOVERY_GROUP = "__ironspan_recovery_changed"
"""Hosts that have just got another copy of the PKI store, for the backup."""
UNMOUNTED = "mount:"
"""What a member waits for whose data are on a disk that is not mounted, before the mount point."""
Verdict = dict[str, t.Any]
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_RELEASES = {
    "etcd/binaries": ("etcd", 2, "etcd_version"),
    "node/kubelet": ("Kubernetes", 3, "site_kubernetes_version"),
}
"""Resource -> what it is, how many numbers of its version may not change, the variable."""
_JOINING = ("node/join", "control_plane/member")
_REMOVAL = re.compile(r"-(removed(-\d+)?|told)\Z")
"""How the engine names what takes something away, and what tells a unit of it (_engine/removal.py)."""


def clock_verdict(host_time: float, started: float, ended: float, largest_skew: float) -> Verdict:
    """Judge a host's clock.

    The host read its clock at some moment between ``started`` and ``ended``, so the skew is only known up to
    half of that time; the host gets the benefit of the doubt.

    Args:
        host_time: the host's clock, seconds since 1970.
        started: the controller's clock before the call.
        ended: the controller's clock after it.
        largest_skew: how much is accepted, in seconds.

    Returns:
        A verdict like those of the module.
    """
    middle = (started + ended) / 2
    uncertain = (ended - started) / 2
    difference = host_time - middle
    least = max(0.0, abs(difference) - uncertain)
    ok = least <= largest_skew
    direction = "ahead of" if difference > 0 else "behind"
    return {
        "check": "clock",
        "ok": ok,
        "found": f"at least {least:.1f} s {direction} the controller" if least else "as the controller's",
        "wanted": f"within {largest_skew:g} s of the controller's",
        "remedy": "" if ok else "Let chrony or systemd-timesyncd set the clock, then run this again.",
    }


def python_verdict(found: str, wanted: Sequence[str]) -> Verdict:
    """Judge a host's Python, which programs of ours run with.

    Args:
        found: its version, such as 3.13.5.
        wanted: versions that there are compiled modules for, such as 3.13.
    """
    ok = ".".join(found.split(".")[:2]) in wanted
    return {
        "check": "Python",
        "ok": ok,
        "found": found,
        "wanted": " or ".join(wanted),
        "remedy": "" if ok else "Use Debian 13 or Ubuntu 24.04 on hosts of the group etcd.",
    }


def release_verdicts(
    changes: Sequence[Mapping[str, t.Any]], pending: Sequence[Mapping[str, t.Any]] = ()
) -> list[Verdict]:
    """Refuse another version of Kubernetes, and another minor version of the store, on a member.

    Members have to follow each other in an order of their own. The kubelet's program tells before kubeadm's
    resource can, which has to be compared again once the kubelet has changed.

    Args:
        changes: of the assessed host.
        pending: what waits for an input there; a host that has not joined may have any version.
    """
    joining = any(entry["resource"] in _JOINING for entry in pending) or any(
        change["resource"] in _JOINING and change["action"] == "run" for change in changes
    )
    verdicts = []
    for change in changes:
        what, digits, variable = _RELEASES.get(str(change["resource"]), ("", 0, ""))
        if not what or change["action"] != "update" or (joining and what == "Kubernetes"):
            continue
        before, after = (
            _RELEASE.search(str((change.get(side) or {}).get("url_path", ""))) for side in ("before", "after")
        )
        if before and after and before.group().split(".")[:digits] != after.group().split(".")[:digits]:
            remedy = "This is an upgrade: run playbooks/upgrade.yml (ironspan apply upgrade), or set "
            remedy += f"{variable} back."
            verdicts.append(
                {
                    "check": f"{what} version",
                    "ok": False,
                    "found": before.group(),
                    "wanted": after.group(),
                    "remedy": remedy,
                }
            )
    return verdicts


def unfit_message(verdicts: Sequence[Verdict]) -> str:
    """Return why a host does not fit, with every reason and remedy; an empty text when it fits."""
    reasons = [_reason(verdict) for verdict in verdicts if not verdict.get("ok")]
    if not reasons:
        return ""
    return "This host does not fit, nothing was changed on it.\n" + "\n".join(reasons)


def _reason(verdict: Verdict) -> str:
    found, wanted, remedy = verdict["found"], verdict["wanted"], verdict.get("remedy", "")
    return f"- {verdict['check']}: found {found}, wanted {wanted}. {remedy}".rstrip()


def within(document: Mapping[str, t.Any], result: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what of a host's answer may decide about groups: what its document has, as the document has it.

    Every group below follows from the changes and the pending resources of this, so a host gets into no group
    that belongs to a layer that the inventory has not given it, whatever it answers.

    Args:
        document: of the host, as the controller sent it.
        result: the module's answer.

    Returns:
        ``changes`` and ``pending`` of resources in the document, with the document's kinds, and the changes
        that take something away from a layer of the document, without one; ``more`` tells that there were
        others.
    """
    kinds = {resource["id"]: resource.get("kind") for resource in document["resources"]}
    prunes = document.get("prunes") or ()
    answered = [*(result.get("changes") or ()), *(result.get("pending") or ())]
    changes = [
        {**entry, "kind": kinds.get(entry["resource"])}
        for entry in result.get("changes") or ()
        if entry["resource"] in kinds or _removes(str(entry["resource"]), prunes)
    ]
    pending = [
        {**entry, "kind": kinds[entry["resource"]]}
        for entry in result.get("pending") or ()
        if entry["resource"] in kinds
    ]
    return {"changes": changes, "pending": pending, "more": len(answered) > len(changes) + len(pending)}


def _removes(resource: str, prunes: t.Collection[str]) -> bool:
    """Tell whether a resource is made by the engine to take away what one of these layers has no more."""
    layer, _, name = resource.partition("/")
    return layer in prunes and _REMOVAL.search(name) is not None


def groups_of_composed(groups: Sequence[str]) -> list[str]:
    """Return the groups of a host whose document is its own making: that it waits, and what restarts."""
    prefix = RESTART_GROUP.format(layer="")
    return [group for group in groups if group == PENDING_GROUP or group.startswith(prefix)]


def groups_for(result: Mapping[str, t.Any]) -> list[str]:
    """Return the groups an assessed host goes into.

    ``__ironspan_pending`` when anything is to be done; ``__ironspan_pending_LAYER`` when that is so of a
    layer with credentials, of ``node`` only when it is the joining itself; ``__ironspan_restart_LAYER`` for
    every layer of which a running service would restart, so that a playbook can take such hosts one by one.
    """
    changes, pending = result.get("changes") or (), result.get("pending") or ()
    if not changes and not pending:
        return [PENDING_GROUP] if result.get("more") else []
    members = {str(entry["resource"]).split("/", 1)[0] for entry in pending} | {
        str(change["resource"]).split("/", 1)[0]
        for change in changes
        if change.get("kind") == "kubeadm" or not str(change["resource"]).startswith("node/")
    }
    restarting = {
        str(change["resource"]).split("/", 1)[0] for change in changes if change.get("action") == "restart"
    }
    joining = [JOINING_GROUP.format(layer=layer) for layer in all_layers().pending if layer in members]
    if EVENTS in joining:
        actions = {
            change.get("action") for change in changes if str(change["resource"]).startswith("etcd_events/")
        }
        if actions <= {"stop", "delete"}:
            joining[joining.index(EVENTS)] = RETIRED_GROUP
    return [PENDING_GROUP, *joining, *(RESTART_GROUP.format(layer=layer) for layer in sorted(restarting))]


def waits_for_boot(result: Mapping[str, t.Any]) -> bool:
    """Tell whether a host says that something of it takes effect with its next boot."""
    return bool((result.get("facts") or {}).get("reboots"))


def membership_groups(layers: Sequence[str], result: Mapping[str, t.Any], assessed: bool) -> list[str]:
    """Return the groups that tell how the host's membership of etcd and the control plane stands.

    A comparison puts it into ``__ironspan_compared_LAYER``, and into ``__ironspan_bare_LAYER`` when it has
    nothing there yet, so that only the controller can say how it starts. Where the disk of its data is not
    mounted yet, neither is known, and it is compared again. A control plane that was
    interrupted while it started the cluster goes on with that: ``__ironspan_starting_control_plane``. What is
    still bare after everything else was applied goes into ``__ironspan_joining_LAYER``.
    """
    needs = {
        (str(entry["resource"]).split("/", 1)[0], str(entry["needs"]))
        for entry in result.get("pending") or ()
    }
    groups = []
    for layer, wanted in all_layers().waits_for.items():
        if layer not in layers:
            continue
        if assessed and not any(name == layer and need.startswith(UNMOUNTED) for name, need in needs):
            groups.append(COMPARED_GROUP.format(layer=layer))
        if any((layer, need) in needs for need in wanted):
            groups.append((BARE_GROUP if assessed else LATER_GROUP).format(layer=layer))
    if any(
        change.get("kind") == "kubeadm"
        and str(change["resource"]).startswith("control_plane/")
        and (change.get("after") or {}).get("action") == "init"
        for change in result.get("changes") or ()
        if assessed
    ):
        groups.append(STARTING_GROUP)
    return groups


def recovery_groups(result: Mapping[str, t.Any]) -> list[str]:
    """Return the group of a host that got another copy of the PKI store, none for one that did not."""
    changed = any(change["resource"] == "etcd_backup/recovery" for change in result.get("changes") or ())
    return [RECOVERY_GROUP] if changed else []


def groups_after_reset(layers: Sequence[str], whole: Sequence[str] = ()) -> list[str]:
    """Return the groups of a host that was reset: it has nothing, so everything of it is to be done.

    Args:
        layers: what was reset.
        whole: all layers of the host. Of those that were left as they were it is not known what is there:
            behind its name there may be another machine. Their phases compare, and do what is to be done.
    """
    found = [PENDING_GROUP]
    for layer in all_layers().pending:
        if layer in layers or (layer in whole and layer not in all_layers().members):
            found.append(JOINING_GROUP.format(layer=layer))
        if layer in layers and layer in all_layers().waits_for:
            found += [COMPARED_GROUP.format(layer=layer), BARE_GROUP.format(layer=layer)]
    return found


def failure_message(result: Mapping[str, t.Any]) -> str:
    """Return a failed result's message with the resource, the remedy and what became of the host."""
    resource = result.get("failed_resource")
    message = str(result.get("msg") or "the module failed without a message")
    if resource and not message.startswith(str(resource)):
        message = f"{resource}: {message}"
    remedy = str(result.get("remedy") or "")
    if remedy and remedy not in message:
        message = f"{message.rstrip('.')}. {remedy}"
    rolled_back = result.get("rolled_back") or ()
    if rolled_back:
        message += f" (put back as before: {', '.join(map(str, rolled_back))})"
    return message
