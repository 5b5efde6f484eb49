# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Settings of sshd that lock out whoever runs the site, and values that a kernel does not take."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL

WAYS = (
    ("Port: 2222", "az-1 is reached at port 22"),
    ("ListenAddress: 127.0.0.1", "is the host itself alone"),
    ("ListenAddress: 'localhost:22'", "is the host itself alone"),
    ("ListenAddress: 10.20.0.999", "is no address"),
    ("AllowUsers: admin", "lacks ironspan, as whom every run logs in to az-1"),
    ("AllowUsers: 'ironspan,admin'", "write spaces between names"),
    ("DenyUsers: guest ironspan", "has ironspan"),
    ("AuthenticationMethods: password", "lets nobody in by a key alone"),
    ("AuthenticationMethods: 'publickey,keyboard-interactive'", "lets nobody in by a key alone"),
    ("ForceCommand: /bin/false", "in the place of what every run asks for"),
    ("ForceCommand: internal-sftp", "in the place of what every run asks for"),
    ("ChrootDirectory: /srv", "hides the host from every run"),
    ("MaxSessions: 0", "0 lets nobody do anything"),
    ("AuthorizedKeysFile: none", "is none, so nobody has a key"),
    ("MaxAuthTries: 3, maxauthtries: 4", "is MaxAuthTries in another spelling"),
    ("AllowUsers: [ironspan, admin]", "is no text"),
    ("AllowGroups: ''", "write names with spaces between"),
    ("Ciphers: aes256", "write aes256-ctr"),
    ("Ciphers: 'aes256-ctr, aes128-ctr'", "without spaces between"),
    ("X11Forwarding: 'true'", "write yes or no"),
)
RIGHT = (
    "AllowUsers: 'iron* admin@10.0.0.0/8', DenyUsers: guest",
    "AllowUsers: 'ironspan@10.0.0.0/8'",
    "ListenAddress: '0.0.0.0:22', Port: 22",
    "ListenAddress: 'bastion.example.com', AuthenticationMethods: 'publickey,password publickey'",
    "ForceCommand: /usr/local/bin/logged, AuthorizedKeysFile: none, AuthorizedKeysCommand: /usr/bin/keys",
    "X11Forwarding: false, PermitRootLogin: no, KexAlgorithms: +ecdh-sha2-nistp384",
)
VALUES = (
    ("vm.swappiness", "300", "write 0 to 200"),
    ("vm.swappiness", "-10", "write 0 to 200"),
    ("vm.max_map_count", "many", "write a number"),
    ("vm.max_map_count", "", "write 1 number"),
    ("kernel.pid_max", "99999999", "write 301 to 4194304"),
    ("fs.file-max", "0", "write 1 or more"),
    ("net.ipv4.ip_local_port_range", "65000 32768", "write them in ascending order"),
    ("net.ipv4.ip_local_port_range", "32768-60999", "write numbers"),
    ("net.ipv4.ip_local_port_range", "1024 70000", "write 1 to 65535"),
    ("net.ipv4.tcp_rmem", "4096 87380", "write 3 numbers"),
    ("net.ipv4.conf.all.rp_filter", "7", "write 0 to 2"),
    ("kernel.kptr_restrict", "5", "write 0 to 2"),
    ("kernel.dmesg_restrict", "yes", "write a number"),
)


@pytest.mark.parametrize(("settings", "says"), WAYS)
def test_nobody_would_come_in_again(example: Example, settings: str, says: str) -> None:
    example.append(ALL, f"base_sshd: hardened\nbase_sshd_settings: {{{settings}}}\n")
    problems = example.problems()
    assert [says in str(problem) for problem in problems] == [True], problems
    assert problems[0].line == example.line(ALL, "base_sshd_settings")


@pytest.mark.parametrize("settings", RIGHT)
def test_somebody_would(example: Example, settings: str) -> None:
    example.append(ALL, f"base_sshd: hardened\nbase_sshd_settings: {{{settings}}}\n")
    assert example.problems() == []


def test_root_that_may_not_log_in(example: Example) -> None:
    lines = "ansible_user: root\nbase_sshd: hardened\nbase_sshd_settings: {PermitRootLogin: no}\n"
    example.put(ALL, lines)
    (problem,) = example.problems()
    assert "every run logs in to az-1 as root" in problem.message


@pytest.mark.parametrize(("name", "value", "remedy"), VALUES)
def test_a_value_that_no_kernel_takes(example: Example, name: str, value: str, remedy: str) -> None:
    example.append(ALL, f'base_security_sysctls:\n  - {{name: {name}, value: "{value}"}}\n')
    (problem,) = example.problems()
    assert (problem.line, problem.remedy) == (example.line(ALL, f"name: {name}"), remedy)


def test_values_that_kernels_take(example: Example) -> None:
    values = {
        "net.ipv4.ip_local_port_range": "1024 65535",
        "kernel.printk": "4 4 1 7",
        "kernel.core_pattern": "|/bin/false",
        "net.ipv4.tcp_congestion_control": "bbr",
        "kernel.perf_event_paranoid": "-1",
        "kernel.sem": "32000 1024000000 500 32000",
        "net.ipv4.ip_local_reserved_ports": "",
        "net.ipv4.neigh.default.gc_thresh1": "4096",
        "net.ipv4.neigh.default.gc_thresh3": "16384",
        "vm.lowmem_reserve_ratio": "256 256 32",
    }
    lines = "".join(f'  - {{name: {name}, value: "{value}"}}\n' for name, value in values.items())
    example.append(ALL, f"base_security_sysctls:\n{lines}")
    assert example.problems() == []


def test_thresholds_that_the_kernel_never_gets_to(example: Example) -> None:
    example.append(
        ALL,
        'base_security_sysctls:\n  - {name: net.ipv4.neigh.default.gc_thresh1, value: "8192"}\n'
        '  - {name: net.ipv4.neigh.default.gc_thresh2, value: "4096"}\n',
    )
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "gc_thresh2")
