# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What secrets are encrypted with: the same for all control planes, and a vault where one is needed."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.backup import (
    NEEDED_BY_KEYS,
    check_credential,
    check_url,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import VARIABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry

VAULT = "control_plane_key_vault"
FLAGS = "control_plane_api_server_args"
OURS = ("encryption-provider-config", "encryption-provider-config-automatic-reload")


def check_control_planes_agree(draft: Draft) -> None:
    """What one API server writes the others read."""
    hosts = draft.members("control_plane")
    for variable in (VARIABLE, VAULT):
        for host in hosts[1:]:
            if host.values.get(variable) != hosts[0].values.get(variable):
                message = f"is another one for {host.name} than for {hosts[0].name}"
                remedy = "write it once, in group_vars/all.yml or group_vars/control_plane.yml"
                draft.problems.add(draft.place(host, variable), variable, message, remedy)
                break


def check_vault(draft: Draft) -> None:
    """A key in a vault needs its address, its name and an identity."""
    for host in draft.members("control_plane")[:1]:
        value, setting = host.values.get(VAULT), host.settings.get(VAULT)
        entry = Entry(
            draft,
            host,
            VAULT,
            value if isinstance(value, Mapping) else {},
            setting.value if setting else None,
        )
        if host.values.get(VARIABLE) == "key_vault":
            _check_needed(entry, host)
        if entry.value:
            check_url(entry, "vault_url", NEEDED_BY_KEYS["key_vault"]["vault_url"])
            check_credential(entry)


def _check_needed(entry: Entry, host: HostDraft) -> None:
    for name, example in NEEDED_BY_KEYS["key_vault"].items():
        if not entry.has(name):
            place = entry.draft.place(host, VARIABLE if not entry.value else VAULT)
            message = f"is missing, and {VARIABLE}: key_vault needs it"
            entry.draft.problems.add(place, f"{VAULT}.{name}", message, f"write '{name}: {example}'")


def check_flags(draft: Draft) -> None:
    """A configuration of one's own would be one that nobody changes in stages."""
    for host in draft.members("control_plane"):
        flags = host.values.get(FLAGS)
        for flag in OURS:
            if isinstance(flags, Mapping) and flag in flags and host.values.get(VARIABLE) != "none":
                draft.problems.add(
                    draft.inner_place(host, FLAGS, flag),
                    f"{FLAGS}.{flag}",
                    f"{VARIABLE} sets it",
                    "remove the one or the other (docs/encryption.md, own configurations)",
                )
                return


CHECKS = (check_control_planes_agree, check_vault, check_flags)
