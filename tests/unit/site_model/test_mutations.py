# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every mistake is named with its file and line, and nothing else is."""

from __future__ import annotations

import pytest

from .backup_mutations import AZURE, BACKUP, FILE, KEY_FILES, VAULT
from .conftest import Example
from .format_mutations import AZURE as AZURE_NAMES
from .format_mutations import CONTAINER, FORMATS
from .mutations import ALL, Mutation
from .mutations import MUTATIONS as OTHERS

MUTATIONS = (*OTHERS, *BACKUP, *FORMATS, *AZURE_NAMES)


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 60
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_the_example_itself_is_right(example: Example) -> None:
    assert example.problems() == []


@pytest.mark.parametrize("stores", [AZURE, FILE])
@pytest.mark.parametrize("keys", ["", KEY_FILES, VAULT])
def test_what_says_where_backups_go_rightly(example: Example, stores: str, keys: str) -> None:
    example.append(ALL, stores + keys)
    assert example.problems() == []


UNUSUAL = """
base_packages: [g++, "libc6:i386"]
base_sysctls:
  - {name: net.ipv4.conf.eth0/100.rp_filter, value: "0"}
  - {name: net.ipv4.tcp_rmem, value: "4096\\t87380 16777216"}
  - {name: vm.x, value: "-1"}
base_kernel_modules: [nvme-tcp, 8021q]
base_sshd_settings: {AllowGroups: "admins ops@10.0.0.0/8", MaxAuthTries: 3}
control_plane_api_server_args:
  {feature-gates: "AllAlpha=false,kube:AllBeta=true", cors-allowed-origins: "", event-ttl: 1h0m0s}
control_plane_extra_names: ["*.example.com", api, 10.0.0.1, "fd00::1"]
node_kubelet_eviction_hard: {memory.available: 1.5Gi, nodefs.available: 5%}
node_kubelet_settings:
  {allowedUnsafeSysctls: [net.core.somaxconn], shutdownGracePeriod: 1m, featureGates: {AllAlpha: false}}
flannel_max_unavailable: "3"
ironic_kernel_arguments: ""
ironic_backup_calendar: "Mon..Fri *-*-* 18:00:00 Europe/Berlin"
site_plan_allowed_signers: ~/Approvers and Others/signers
user_anything: "a; $(b)\\n-x"
"""


def test_what_is_unusual_and_right(example: Example) -> None:
    example.append(ALL, UNUSUAL + CONTAINER)
    assert example.problems() == []


@pytest.mark.parametrize(
    "url",
    [
        "https://ContosoBackups.blob.core.usgovcloudapi.net",
        "https://backups.z12.blob.storage.azure.net",
        "https://my-backups.example.internal:8443",
        "https://10.20.0.9/devstoreaccount1",
    ],
)
def test_addresses_of_accounts_that_are_right(example: Example, url: str) -> None:
    example.append(ALL, AZURE.replace("https://backups.blob.core.windows.net", url))
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation(example: Example, mutation: Mutation) -> None:
    for file, old, new in mutation.changes:
        if old:
            example.replace(file, old, new)
        else:
            example.append(file, new)
    problems = example.problems()
    found = [problem for problem in problems if mutation.says in str(problem)]
    everything = "\n".join(map(str, problems))
    assert found, f"nothing says {mutation.says!r}:\n{everything}"
    places = [(problem.file, problem.line) for problem in found]
    wanted = (str(example.folder / mutation.file), example.line(mutation.file, mutation.at))
    assert wanted in places, f"expected {wanted}:\n{everything}"
    assert len(problems) == mutation.problems, everything
    assert all(problem.remedy for problem in problems)
