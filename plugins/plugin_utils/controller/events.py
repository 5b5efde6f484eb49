# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which alert launches which operation: one table, and what the two programs that act on it read.

What changes nothing, or needs no approval, is launched as a job. What is approved is launched as its
workflow, which plans, waits for a person, and only then changes something. Our templates have no prompt for a
limit, so an empty one cannot mean all hosts; a host is named by the answer ``ironspan_hosts``, and only if it
stands in the inventory.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import ALLOW_DESTRUCTIVE, HOSTS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import (
    Settings,
    settings_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

Content = dict[str, t.Any]
HOUR_S, DAY_S = 3600, 86400
JOB, WORKFLOW = "job", "workflow"
GROUP, RECEIVER = "events", "ironspan-events"
WEBHOOK_PORT = 2397
FOLDER, STATE = "/etc/ironspan/events", "/var/lib/ironspan-events"
"""Secrets and certificates of the program, and what it remembers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reaction:
    """What an alert launches.

    Args:
        operation: of the catalogue.
        cool_down_s: seconds in which the same alert about the same host launches nothing again.
        label: of the alert that names the host that it is about; empty for an operation on the whole site.
        group: of the inventory that such a host is in.
    """

    operation: str
    cool_down_s: int
    label: str = ""
    group: str = ""

    @property
    def kind(self) -> str:
        """Return what is launched: a job, or the workflow that asks for an approval."""
        return WORKFLOW if catalogue.OPERATIONS[self.operation].approved else JOB


_DOCTOR = Reaction("doctor", HOUR_S)
REACTIONS: t.Final[Mapping[str, Reaction]] = {
    "AccessControllerStopped": _DOCTOR,
    "BreakGlassUsed": Reaction("access_review", HOUR_S),
    "EtcdAlarm": _DOCTOR,
    "EtcdBackupBehind": _DOCTOR,
    "EtcdBackupCopyBehind": _DOCTOR,
    "EtcdBackupFarBehind": _DOCTOR,
    "EtcdBackupForged": Reaction("backup_verify", 6 * HOUR_S),
    "EtcdBackupGap": Reaction("backup_list", HOUR_S),
    "EtcdBackupNobodyWrites": _DOCTOR,
    "EtcdBackupNotProven": Reaction("backup_drill", 6 * HOUR_S),
    "EtcdBackupSnapshotOld": Reaction("backup_list", HOUR_S),
    "EtcdCertificateEnds": Reaction("certs_renew", DAY_S),
    "EtcdManyElections": Reaction("net_check", HOUR_S),
    "EtcdMemberUnhealthy": Reaction("member_replace", DAY_S, label="member", group="etcd"),
    "EtcdNoLeader": _DOCTOR,
    "EtcdOlderThanBackup": Reaction("backup_list", HOUR_S),
    "GpuRepairStorm": Reaction("net_check", HOUR_S),
    "GpuRepairStopped": _DOCTOR,
    "GpudSilent": _DOCTOR,
    "KmsNotReady": _DOCTOR,
    "KmsVaultSilent": Reaction("net_check", HOUR_S),
    "RuntimeClassBroken": Reaction("verify", HOUR_S),
    "RuntimeSmokeSilent": Reaction("verify", 6 * HOUR_S),
}
"""Alerts of ``monitoring/`` and what each launches."""

PEOPLE: t.Final[Mapping[str, str]] = {
    "AuditLogUnreadable": "somebody may have changed the log",
    "AuditWatchStopped": "somebody may have stopped the watch",
    "EtcdBackupSpoolLarge": "EtcdBackupFarBehind follows if it lasts",
    "EtcdBackupStepLate": "the agent tries again by itself",
    "EtcdBackupTwoWriters": "the agents settle it by the lease",
    "EtcdQuotaNearlyUsed": "the agent defragments by itself; what fills the database is for people to find",
    "EtcdSlowDisk": "a disk is replaced by people",
    "EventsBreaker": "somebody looks for the one cause of so many alerts",
    "EventsNotReady": "what would launch a job for it is what does not work",
    "GpuNodeInTriage": "the node waits for a person",
    "GpuRepairBreaker": "nodes that are repaired are released by a person",
    "GpuRepairFrozen": "it goes on by itself when its reason is gone",
    "GpuRepairNotReady": "the journal on that host says why",
    "GpuSettingWrong": "nothing is drained for it, and the next run of the site corrects it",
    "GpuThrottled": "cooling and power are looked at by people",
    "GpuUnhealthy": "ironspan-gpu-repair acts on it",
    "GpudNotReady": "the journal on that host says why",
    "KmsKeyRefused": "a key that is refused is given back by people",
}
"""Alerts that launch nothing, and why."""


def launched(settings: Settings) -> list[tuple[str, str]]:
    """Return kind and name of all templates that alerts may launch: what the team ``events`` may."""
    return sorted({(one.kind, template_of(settings, one)) for one in _chosen(settings).values()})


def template_of(settings: Settings, reaction: Reaction) -> str:
    """Return the name of the template that a reaction launches."""
    return settings.name(reaction.operation, *(["workflow"] if reaction.kind == WORKFLOW else []))


def answers_of(reaction: Reaction) -> Content:
    """Return the answers that a reaction always gives.

    Consent is given where it is asked for: only a workflow asks, and its approval stands between the launch
    and the first change.
    """
    operation = catalogue.OPERATIONS[reaction.operation]
    if reaction.kind == WORKFLOW and operation.consent:
        return {ALLOW_DESTRUCTIVE.name: "true"}
    return {}


def _chosen(settings: Settings) -> dict[str, Reaction]:
    return {name: one for name, one in REACTIONS.items() if name not in settings.alerts_left_alone}


def groups_of(site: Site) -> dict[str, list[str]]:
    """Return the hosts of each group of the inventory that an alert may name a host of."""
    named = sorted({one.group for one in REACTIONS.values() if one.group})
    return {group: [host.name for host in site.group(group)] for group in named}


def program_settings(
    settings: Settings, host: str, ca_file: str, groups: Mapping[str, Sequence[str]]
) -> Content:
    """Return the settings of ``ironspan-events`` but for the variables of the role ``events``.

    Args:
        settings: of the site.
        host: URL of the controller.
        ca_file: of the authority of its certificate, on the host of the program; "" for those that it trusts.
        groups: hosts of each group of the inventory.
    """
    reactions = [
        {
            "alert": alert,
            "kind": one.kind,
            "template": template_of(settings, one),
            "cool_down_seconds": one.cool_down_s,
            "answers": answers_of(one),
            "label": one.label,
            "hosts": ",".join(sorted(groups[one.group])) if one.group else "",
        }
        for alert, one in _chosen(settings).items()
        if not one.group or groups.get(one.group)
    ]
    return {
        "controller": {"host": host, "ca_file": ca_file, "token_file": f"{FOLDER}/controller-token"},
        "organization": settings.organization,
        "listen": {"certificate": f"{FOLDER}/tls.crt", "key": f"{FOLDER}/tls.key"},
        "token_file": f"{FOLDER}/token",
        "state": f"{STATE}/launched.json",
        "reactions": reactions,
    }


def of_site(site: Site) -> tuple[Content, str]:
    """Return the settings of the program of a site, and the certificates of its controller's authority.

    They are "" where the host's own authorities are trusted.

    Raises:
        ActionableError: the authority's file cannot be read.
    """
    variables = site.variables
    file, authority = str(variables["awx_ca_file"]), ""
    try:
        if file:
            authority = pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ActionableError(
            f"{file} cannot be read.", "Write the authority's file as awx_ca_file."
        ) from error
    made = program_settings(
        settings_of(variables, len(site.group("nodes"))),
        str(variables["awx_host"]),
        f"{FOLDER}/controller-ca.crt" if authority else "",
        groups_of(site),
    )
    return made, authority


def rulebook(settings: Settings, groups: Mapping[str, Sequence[str]]) -> list[Content]:
    """Return the rulebook for Event-Driven Ansible, made from the same table.

    Args:
        settings: of the site.
        groups: hosts of each group of the inventory.
    """
    rules = [
        _rule(settings, alert, one, sorted(groups.get(one.group, ())))
        for alert, one in _chosen(settings).items()
        if not one.group or groups.get(one.group)
    ]
    source = {
        "name": "alertmanager",
        "eda.builtin.webhook": {
            "host": "0.0.0.0",
            "port": WEBHOOK_PORT,
            "token": "{{ IRONSPAN_EVENTS_TOKEN }}",
            "certfile": f"{FOLDER}/tls.crt",
            "keyfile": f"{FOLDER}/tls.key",
        },
        "filters": [{"eda.builtin.event_splitter": {"splitter_key": "payload.alerts"}}],
    }
    return [{"name": settings.name("alerts"), "hosts": "localhost", "sources": [source], "rules": rules}]


def _rule(settings: Settings, alert: str, one: Reaction, hosts: Sequence[str]) -> Content:
    condition = f'event.status == "firing" and event.labels.alertname == "{alert}"'
    answers = answers_of(one)
    if one.label:
        listed = ", ".join(f'"{host}"' for host in hosts)
        condition += f" and event.labels.{one.label} in [{listed}]"
        answers[HOSTS.name] = f"{{{{ event.labels.{one.label} }}}}"
    return {
        "name": alert,
        "condition": condition,
        "throttle": {
            "once_within": f"{one.cool_down_s} seconds",
            "group_by_attributes": [f"event.labels.{one.label or 'alertname'}"],
        },
        "action": {
            f"run_{one.kind}_template": {
                "name": template_of(settings, one),
                "organization": settings.organization,
                "job_args": {"extra_vars": answers},
                "include_events": False,
            }
        },
    }


def receiver(settings: Settings, address: str, port: int = WEBHOOK_PORT) -> Content:
    """Return the part of Alertmanager's configuration that sends here the alerts that launch something.

    Args:
        settings: of the site.
        address: of the host of the program.
        port: of the program.
    """
    return {
        "route": {
            "routes": [
                {
                    "receiver": RECEIVER,
                    "matchers": [f'alertname =~ "{"|".join(_chosen(settings))}"'],
                    # People are told as before, by the routes that follow.
                    "continue": True,
                }
            ]
        },
        "receivers": [
            {
                "name": RECEIVER,
                "webhook_configs": [
                    {
                        "url": f"https://{address}:{port}/alerts",
                        "send_resolved": True,
                        "http_config": {
                            "authorization": {"credentials_file": "/etc/alertmanager/ironspan-token"},
                            "tls_config": {"ca_file": "/etc/alertmanager/ironspan-ca.crt"},
                        },
                    }
                ],
            }
        ],
    }
