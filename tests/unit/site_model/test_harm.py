# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values of the right form that would do harm: of a controller of jobs, an estate, GPUs, servers, Ansible."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, HOSTS

ESTATE = """
azure_subscription: 72f988bf-86f1-41af-91ab-2d7cd011db47
azure_tenant: d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11
azure_region: westeurope
azure_address_space: 10.20.0.0/20
"""
TIME = "RRULE:FREQ=DAILY;INTERVAL=1"
WRONG = (
    ("awx_host: http://awx.example.com", "would send the controller's token unencrypted"),
    ("awx_host: https://u:p@awx.example.com", "is no http or https URL"),
    ("awx_ca_file: /no/such/ca.pem", "/no/such/ca.pem is no file"),
    ("awx_project_url: ftp://x/y", "is no address of a git repository"),
    ("awx_project_url: https://user:secret@git.example/x", "is no address of a git repository"),
    ("awx_playbooks_folder: ../x", "is no path inside of a folder"),
    ("awx_inventory_path: /etc/x", "is no path inside of a folder"),
    ("awx_instance_groups: [a, b, a]", "'a' is there twice"),
    (
        "awx_azure_client_id: 72f988bf-86f1-41af-91ab-2d7cd011db47",
        "one half of an identity without awx_azure_ten",
    ),
    ("awx_notifications: [{name: a, type: webhook, url: 'https://u:p@x'}]", "is no http or https URL"),
    (
        f"awx_schedules: [{{operation: verify, rrule: 'DTSTART;TZID=Mars/X:20260101T020000 {TIME}'}}]",
        "zone Mars/X",
    ),
    (
        f"awx_schedules: [{{operation: verify, rrule: 'DTSTART:20261301T020000Z {TIME}'}}]",
        "a time that there is not",
    ),
    (f"{ESTATE}azure_rack_networks: [10.30.0.0/16, 10.30.1.0/24]", "10.30.1.0/24 overlaps 10.30.0.0/16"),
    (
        f"{ESTATE}azure_rack_networks: [10.30.0.0/16]\nazure_dns_servers: [10.244.0.10]",
        "lies in site_pod_cidr",
    ),
    (
        f"{ESTATE}azure_rack_networks: [10.30.0.0/16]\nazure_image: {{version: latest}}",
        "is latest, another one",
    ),
    (
        f"{ESTATE}azure_tenant: 00000000-0000-0000-0000-000000000000".replace(
            "azure_tenant: d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11\n", ""
        ),
        "is no identifier",
    ),
    ('nvidia_driver_version: "580.159.03"\nnvidia_driver_kernel: "6.8"', "'6.8' is no release of a kernel"),
    ('nvidia_driver_version: "580.159.03"\nnvidia_driver_packages: {cuda: ""}', "cuda has no version"),
    ("nvidia_mig_layouts: [{name: a, gpus: [0, 0], instances: [3g.40gb]}]", "GPU 0 of a is there twice"),
    (
        "nvidia_mig_layouts: [{name: a, instances: []}, {name: a, instances: []}]",
        "all other GPUs of a is there twice",
    ),
    ('gpu_repair_windows: ["mon 22:00-22:00"]', "is no window"),
    ('gpu_repair_windows: ["mon 22:00-24:00"]', "write 00:00 for the end of the day"),
    ("site_plan_unapproved_kinds: [sysctl, hosts_entrys]", "write hosts_entries"),
    ("site_plan_unapproved_kinds: [everything]", "is no kind of resource and no operation"),
    ('site_labels: {ironspan.io/gvisor: "true"}', "are set by ironspan, or mean nothing"),
    ("site_taints: [{key: ironspan.io/gpu-preflight, effect: NoSchedule}]", "are set and taken away"),
    ("awx_plans_folder: /dev/null", "not below /dev, /proc or /sys"),
    ("ironic_address: 127.0.0.1", "127.0.0.1 is a loopback address"),
    ("ironic_address: 10.244.0.5", "10.244.0.5 lies in site_pod_cidr"),
    ("ironic_media_networks: [0.0.0.0/0]", "write the racks' networks"),
    ("site_bare_metal_inventory: servers.txt", "is none that Ansible reads as YAML"),
    ("site_bare_metal_known_hosts: /dev/null", "/dev/null is no file"),
    ("site_bare_metal_erase: []", "what is retired would keep its data"),
    ("site_bare_metal_erase: [erase]", "'erase' is no step with its interface"),
    ("gvisor_gpu_tested: [{driver: x}]", "gvisor: is missing"),
    ("ansible_hots: 10.0.0.1", "unknown variable; write ansible_host"),
    ("ansible_usr: x", "unknown variable; write ansible_user"),
    ("ansible_becom_user: x", "unknown variable; write ansible_become_user"),
    ('ansible_python_interpreter: "python; id"', "is no single word"),
    ('ansible_become_user: ""', "it is empty"),
    (
        "site_tls_cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA25]",
        "write TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    ("control_plane_api_server_args: {etcd-servers: 'http://x'}", "is set by the site's other variables"),
    ("node_kubelet_eviction_hard: {memory.available: 200%}", "is no threshold"),
    ("node_kubelet_settings:\n  memorySwap:\n    swapBehaviour: NoSwap", "write swapBehavior"),
    ("control_plane_scheduler_args: {leader-elect: false}", "is set by the site's other variables"),
    ('base_sysctls:\n  - {name: net.ipv4.ip_forward, value: "0"}', "hosts forward the packets of their pods"),
    ('base_sysctls:\n  - {name: net.ipv4.conf.all.rp_filter, value: "1"}', "a strict filter drops packets"),
    ('base_sysctls:\n  - {name: kernel.panic, value: "60"}', "the kubelet writes 10 at each start"),
    ('base_security_sysctls:\n  - {name: kernle.panic, value: "10"}', "write kernel.panic"),
    ("ansible_connection: docker", "is no way to reach hosts of a site; remove it"),
    ("ansible_connection: ansible.netcommon.network_cli", "is no way to reach hosts of a site"),
    ("ansible_python_interpreter: /usr/bin/python2.7", "is older than Python 3.9"),
    ("ansible_python_interpreter: python3.8", "is older than Python 3.9"),
    ("ansible_become_method: sodu", "write sudo"),
    ("base_kernel_modules: [nvme, nvme]", "'nvme' is there twice"),
    ('base_sshd_settings: {PermitRootLogni: "no"}', "write PermitRootLogin"),
    ("base_sshd_settings: {PermitRootLogin: maybe}", "write yes or no or prohibit-password"),
    ("base_sshd_settings: {AllowGroups: }", "is no text; write one text"),
    ("node_kubelet_system_reserved: {memory: }", "None is no amount of memory; write for example 1Gi"),
    ("node_kubelet_eviction_hard: {memory.available: }", "has no amount; write for example 10%, or 1Gi"),
    ("base_max_clock_skew_seconds: 0", "0 is outside 1 to 86400"),
    (
        "base_packages: [conntrack, containerd.io]",
        "containerd.io brings containerd, which ironspan installs itself",
    ),
    ("control_plane_extra_names: [0.0.0.0]", "0.0.0.0 is unspecified, and nothing answers there"),
    ("control_plane_extra_names: [API.example.com]", "kubeadm takes none; write api.example.com"),
    ("admission_load_balancers: ['system:serviceaccount:metallb_system:x']", "is no name of a user"),
    ("admission_load_balancers: ['system:serviceaccounts:metallb-system']", "is a group, and no user"),
    ("etcd_backup_gc_calendar: '*-02-30'", "'*-02-30' is no time of systemd.time(7)"),
    ("site_cluster_domain: no", "write it in quotes, as it stands there"),
    ("base_min_kernel: 6.10  # not 6.1", 'write it in quotes, for example "6.10"'),
    ("containerd_pause_version: 3.10", 'write it in quotes, for example "3.10"'),
    ("base_sshd_settings: {MaxAuthTries: many}", "write a number from 1 to 1000"),
    ("base_sshd_settings: {ClientAliveInterval: soon}", "write seconds"),
    ("base_sshd_settings: {Match: User a}", "is no setting"),
    ("node_kubelet_system_reserved: {gpu: 1}", "gpu is no resource that a kubelet keeps"),
    ("node_kubelet_system_reserved: {cpu: 100Mi}", "'100Mi' is no amount of cpu"),
    ("node_kubelet_kube_reserved: {memory: 100m}", "'100m' is no amount of memory"),
    ("node_kubelet_eviction_hard: {memory.avail: 1Gi}", "write memory.available"),
    ("node_ignore_preflight: [SystemVerfication]", "write SystemVerification"),
    ("node_cgroup_versions: []", "is empty, so no host would be accepted"),
    ("node_attestation: require\nnode_attestation_tcti: device", "is no way to a TPM"),
    ("egress_node_networks: [10.244.0.0/16]", "overlaps site_pod_cidr"),
    ("ironic_media_networks: [10.96.0.0/24]", "overlaps site_service_cidr"),
    ("egress_proxy_clients: [10.0.0.1/24]", "'10.0.0.1/24' is no network"),
    ("control_plane_kms_metrics_address: 224.0.0.1", "nothing can listen at 224.0.0.1"),
    ("events_address: 224.0.0.1", "nothing can listen at 224.0.0.1"),
    ("events_address: 10.244.0.9", "nothing can listen at 10.244.0.9: it lies in site_pod_cidr"),
    ("nvidia_health_metrics_address: 10.96.0.9", "it lies in site_service_cidr"),
    ("events_metrics_address: 169.254.1.1", "nothing can listen at 169.254.1.1"),
    ("control_plane_extra_names: [1.2.3.4.5]", "'1.2.3.4.5' is no host name or address"),
    ("containerd_cni_plugins: [bridge, hostlocal]", "write host-local"),
    ("etcd_backup_gc_calendar: someday", "'someday' is no time of systemd.time(7)"),
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_a_value_that_would_do_harm(example: Example, lines: str, says: str) -> None:
    example.append(ALL, f"{lines}\n")
    found = [problem for problem in example.problems() if says in str(problem)]
    last = lines.splitlines()[-1]
    assert [(problem.file, problem.line) for problem in found] == [
        (str(example.folder / ALL), example.line(ALL, last))
    ], example.problems()


@pytest.mark.parametrize(
    "url", ["git@git.example.com:a/b.git", "ssh://git@git.example:22/a", "file:///srv/site"]
)
def test_ways_to_a_repository(example: Example, url: str) -> None:
    example.append(ALL, f"awx_project_url: {url}\nawx_host: http://127.0.0.1:8052\n")
    assert example.problems() == []


@pytest.mark.parametrize(
    "line",
    [
        'ansible_python_interpreter: "{{ ansible_playbook_python }}"',
        "ansible_ssh_common_args: -J gate",
        "ansible_facts_parallel: true",
        "ansible_winrm_transport: ntlm",
        "ansible_become_method: ansible.builtin.su",
    ],
)
def test_variables_of_ansible_that_there_are(example: Example, line: str) -> None:
    example.append(ALL, f"{line}\n")
    assert example.problems() == []


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("gpu-a-01: {ansible_host: 10.30.1.11, site_address_ipv6: 10.0.0.1}", "is no IPv6 address"),
        ("gpu-a-01: {ansible_host: 10.30.1.11, site_address_ipv6: 'fe80::1'}", "is reached by no other host"),
        ("'': {ansible_host: 10.30.1.11}", "is empty, and a host has a name"),
    ],
)
def test_a_host_that_cannot_be(example: Example, host: str, says: str) -> None:
    example.replace(HOSTS, "gpu-a-01: {ansible_host: 10.30.1.11}", host)
    found = [problem for problem in example.problems() if says in str(problem)]
    assert [problem.line for problem in found] == [example.line(HOSTS, host)], example.problems()
