# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Inventories with one text or number that its target would read otherwise than it was meant."""

from __future__ import annotations

from .backup_mutations import AZURE as STORES
from .backup_mutations import VAULT
from .mutations import ALL, Mutation, edit

_MTU = "site_wan_mtu: 1400"


def wrong(name: str, text: str, says: str, at: str = "") -> Mutation:
    """Return a mistake in a variable of the site, which the example does not set."""
    return edit(name, ALL, _MTU, f"{_MTU}\n{text}", says, at=at or text.splitlines()[-1])


FORMATS = (
    wrong(
        "module with an option",
        "base_kernel_modules: [overlay, -r]",
        "base_kernel_modules[1]: '-r' is no name",
    ),
    wrong(
        "module with a command",
        'base_kernel_modules: ["a; reboot"]',
        "'a; reboot' is no name of a kernel module",
    ),
    wrong(
        "sysctl that climbs",
        "base_sysctls:\n  - name: net/../../x\n    value: '1'",
        "base_sysctls[0].name: 'net/../../x' is no name of a kernel setting",
        at="net/../../x",
    ),
    wrong(
        "sysctl with two lines",
        'base_security_sysctls:\n  - name: vm.x\n    value: "1\\nkernel.y = 2"',
        "'1\\nkernel.y = 2' is no value of a kernel setting: it has a line break",
        at="kernel.y",
    ),
    wrong("package from elsewhere", "base_packages: [../x.deb]", "'../x.deb' is no name of a package"),
    wrong(
        "flag with its dashes",
        "control_plane_api_server_args: {--v: '2'}",
        "the key '--v' is no name of a flag",
    ),
    wrong(
        "flag with two lines",
        'control_plane_scheduler_args:\n  v: "2\\n- --x"',
        "control_plane_scheduler_args.v:",
        at="- --x",
    ),
    wrong(
        "keyword with a space", "base_sshd_settings: {'Match User': x}", "the key 'Match User' is no keyword"
    ),
    wrong(
        "quantity with a unit of people",
        "node_kubelet_kube_reserved: {memory: 1 GB}",
        "'1 GB' is no quantity",
    ),
    wrong("share of nothing", "flannel_max_unavailable: 0%", "'0%' is no number or share"),
    wrong("version in digits of another script", 'etcd_version: "3.6.\u0661"', "it has '\u0661' (U+0661)"),
    wrong("a calendar with an option", "ironic_backup_calendar: -1", "must be text, is a whole number"),
    wrong("a calendar with two lines", 'ironic_backup_calendar: "daily\\nX=1"', "it has a line break"),
    wrong(
        "arguments of a kernel", 'ironic_kernel_arguments: "quiet; boot"', "is no line of kernel arguments"
    ),
    wrong(
        "certificate for two names",
        "control_plane_extra_names: ['a, b']",
        "'a, b' is no host name or address",
    ),
    wrong("registry with its scheme", "containerd_registries: ['https://quay.io']", "is no registry"),
    wrong("image in capitals", "node_prepull_images: [ghcr.io/Acme/x:1]", "is no image"),
    wrong("folder that climbs", "gvisor_smoke_folder: /var/../etc", "'/var/../etc' is no folder on a host"),
    wrong(
        "version with a space", 'containerd_runc_version: "1.4.3 "', "is no version: it has a space at an end"
    ),
    wrong("no pods", "node_kubelet_max_pods: 0", "0 is outside 1 to 2500"),
    wrong(
        "a cgroup that is none", "node_cgroup_versions: [3]", "node_cgroup_versions[0]: 3 is outside 1 to 2"
    ),
    wrong("a VNI that is too large", "flannel_vni: 16777216", "outside 1 to 16777215"),
    wrong("an expression", "base_packages: ['{{ site_name }};x']", "'example;x' is no name of a package"),
    wrong("plans that never end", "site_plan_expires_hours: 0", "0 is outside 1 to 8760"),
)

CONTAINER = """
etcd_backup_containers:
  - subscription: 72f988bf-86f1-41af-91ab-2d7cd011db47
    resource_group: rg-backup
    account: contosobackup
    container: etcd
    retention_days: 14
    writers: [72f988bf-86f1-41af-91ab-2d7cd011db48]
"""

_ACCOUNT, _VAULT = (
    "account_url: https://backups.blob.core.windows.net",
    "vault_url: https://keys.vault.azure.net",
)
BACKUPS = STORES + VAULT


def azure(name: str, old: str, new: str, says: str) -> Mutation:
    """Return a mistake in what is declared of a container."""
    text = CONTAINER.replace(old, new)
    assert text != CONTAINER
    return Mutation(name, ((ALL, "", text),), ALL, new.strip(), says)


AZURE = (
    azure(
        "subscription by its name",
        "72f988bf-86f1-41af-91ab-2d7cd011db47",
        "Production",
        "is no identifier of a sub",
    ),
    azure(
        "resource group with a dot", "rg-backup", "rg-backup.", "'rg-backup.' is no name of a resource group"
    ),
    azure(
        "account in capitals",
        "contosobackup",
        "ContosoBackup",
        "'ContosoBackup' is no name of a storage account",
    ),
    azure(
        "account too long", "contosobackup", "contosobackupofthewest001", "is no name of a storage account"
    ),
    azure("container too short", "container: etcd", "container: et", "'et' is no name of a container"),
    azure(
        "container with two hyphens", "container: etcd", "container: a--b", "'a--b' is no name of a container"
    ),
    azure("no retention", "retention_days: 14", "retention_days: 0", "0 is outside 1 to 146000"),
    azure("retention too long", "retention_days: 14", "retention_days: 146001", "outside 1 to 146000"),
    azure(
        "somebody by name",
        "[72f988bf-86f1-41af-91ab-2d7cd011db48]",
        "[admins]",
        "writers[0]: 'admins' is no identifier",
    ),
    *(
        Mutation(
            f"address of {host}",
            ((ALL, "", BACKUPS), (ALL, old, new)),
            ALL,
            new,
            f"{host.partition('.')[0]!r} is no name of a {what}",
        )
        for old, new, host, what in (
            (
                _ACCOUNT,
                "account_url: https://my-backups.blob.core.windows.net",
                "my-backups.blob",
                "storage account",
            ),
            (_ACCOUNT, "account_url: https://ab.blob.core.chinacloudapi.cn", "ab.blob", "storage account"),
            (_VAULT, "vault_url: https://1keys.vault.azure.net", "1keys.vault", "vault"),
            (_VAULT, "vault_url: https://keys--of.vault.usgovcloudapi.net", "keys--of.vault", "vault"),
        )
    ),
)
