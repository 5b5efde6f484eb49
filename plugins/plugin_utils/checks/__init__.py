# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What must hold for a site beyond the types of its variables. Each check reads a draft and adds problems."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import (
    access,
    admission,
    alerts,
    attestation,
    awx,
    awx_places,
    azure_estate,
    backup,
    backup_duties,
    bare_metal,
    bare_metal_addresses,
    cilium,
    cni_migration,
    component_options,
    component_relations,
    contradictions,
    dns,
    dual_stack,
    egress,
    encryption,
    endpoints,
    events,
    gpu_alone,
    gpu_device_plugin,
    gpu_driver,
    gpu_fabric,
    gpu_health,
    gpu_host,
    gpu_matrix,
    gpu_mig,
    gpu_mps,
    gpu_policy,
    gpu_repair,
    hardening,
    identity,
    ironic,
    listed_networks,
    listeners,
    membership,
    names,
    networks,
    node_resources,
    proxy,
    registries,
    releases,
    runtime,
    runtime_gpu,
    secrets,
    settings,
    sizes,
    ssh_settings,
    ssh_ways,
    sysctl_values,
    sysctls,
    versions,
    ways_in,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

Check = Callable[[Draft], None]

CHECKS: tuple[Check, ...] = (
    *settings.CHECKS,
    *membership.CHECKS,
    *names.CHECKS,
    *ways_in.CHECKS,
    *networks.CHECKS,
    *listed_networks.CHECKS,
    *contradictions.CHECKS,
    *dual_stack.CHECKS,
    *sizes.CHECKS,
    *proxy.CHECKS,
    *cilium.CHECKS,
    *cni_migration.CHECKS,
    *endpoints.CHECKS,
    *events.CHECKS,
    *versions.CHECKS,
    *releases.CHECKS,
    *registries.CHECKS,
    *component_options.CHECKS,
    *component_relations.CHECKS,
    *backup.CHECKS,
    *backup_duties.CHECKS,
    *bare_metal.CHECKS,
    *bare_metal_addresses.CHECKS,
    *egress.CHECKS,
    *dns.CHECKS,
    *admission.CHECKS,
    *attestation.CHECKS,
    *encryption.CHECKS,
    *access.CHECKS,
    *awx.CHECKS,
    *awx_places.CHECKS,
    *alerts.CHECKS,
    *hardening.CHECKS,
    *sysctls.CHECKS,
    *sysctl_values.CHECKS,
    *ssh_settings.CHECKS,
    *ssh_ways.CHECKS,
    *node_resources.CHECKS,
    *identity.CHECKS,
    *ironic.CHECKS,
    *listeners.CHECKS,
    *runtime.CHECKS,
    *runtime_gpu.CHECKS,
    *gpu_driver.CHECKS,
    *gpu_alone.CHECKS,
    *gpu_device_plugin.CHECKS,
    *gpu_fabric.CHECKS,
    *gpu_health.CHECKS,
    *gpu_host.CHECKS,
    *gpu_matrix.CHECKS,
    *gpu_mig.CHECKS,
    *gpu_mps.CHECKS,
    *gpu_policy.CHECKS,
    *gpu_repair.CHECKS,
    *azure_estate.CHECKS,
    *secrets.CHECKS,
)


SLICE_CHECKS: tuple[Check, ...] = (*settings.CHECKS, *secrets.CHECKS)
"""What can be said of a host without the others."""


def run_slice_checks(draft: Draft) -> None:
    """Run the checks that hold for a part of an inventory too: its plan was made from all of it."""
    run_checks(draft, SLICE_CHECKS)


def run_checks(draft: Draft, checks: tuple[Check, ...] = CHECKS) -> None:
    """Run every check on a draft; none of them stops the others.

    Only a source that cannot be read does: what it would have said is unknown, and every other check would
    complain about its absence.
    """
    settings.check_duplicates(draft)
    if settings.check_unread(draft):
        return
    if not draft.hosts and len(draft.problems):
        return  # A key that is there twice hides them.
    if not draft.hosts:
        draft.problems.add(
            draft.marks.groups.get("all") or draft.home(),
            "(inventory)",
            "no host was read from it",
            "write it like inventories/example/hosts.yml",
        )
        return
    for check in checks:
        check(draft)
