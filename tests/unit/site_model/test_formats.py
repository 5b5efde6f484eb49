# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every option says what its values may be, and grammars take what is right and nothing else."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import (
    AZURE_FILE,
    GRAMMARS,
    fault_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limits import limit_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    Option,
    load_specification,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import check_value


def every_option() -> Iterator[tuple[str, Option]]:
    """Yield all options of all roles, those inside dictionaries too, each with its path."""

    def inside(path: str, option: Option) -> Iterator[tuple[str, Option]]:
        yield path, option
        for name, inner in (option.options or {}).items():
            yield from inside(f"{path}.{name}", inner)

    for name, option in load_specification().options.items():
        yield from inside(name, option)


OPTIONS = dict(every_option())
TEXTS = {path: option for path, option in OPTIONS.items() if option.format}


def is_bounded(option: Option) -> bool:
    """Tell whether not every value of the option's type is taken, or somebody said why."""
    kind = option.elements if option.type == "list" else option.type
    if option.anything or option.choices or option.options is not None or kind == "bool":
        return True
    if kind in ("int", "float"):
        return (option.limit or limit_of(option.name)) is not None
    return bool(option.format)


def test_every_option_says_what_its_values_may_be() -> None:
    assert len(OPTIONS) > 300
    assert [path for path, option in OPTIONS.items() if not is_bounded(option)] == []


def test_an_option_that_takes_anything_is_seen() -> None:
    assert not is_bounded(Option("x", "y"))
    assert not is_bounded(Option("x", "y", type="int"))
    assert not is_bounded(Option("x", "y", type="dict"))
    assert not is_bounded(Option("x", "y", type="list", elements="str"))


def test_every_grammar_is_one_of_some_option() -> None:
    used = {name for option in OPTIONS.values() for name in (option.format, option.keys) if name}
    assert used - set(GRAMMARS) == set()
    # The connection is Ansible's (site/resolve.py); names by rules are of estate/named.py.
    assert set(GRAMMARS) - used == {"azure_identity", "interpreter", "plugin"}


def said_of(option: Option, value: t.Any) -> list[str]:
    """Return what is said of a value."""
    said: list[str] = []
    check_value("x", value, option, "x", lambda _key, _value, *rest: said.append(" ".join(rest)))
    return said


@pytest.mark.parametrize("text", ["a\nb", "a\0b", "a\rb", "a\x1b[0mb", "a\u2028b"])
@pytest.mark.parametrize("path", TEXTS)
def test_no_text_has_two_lines(path: str, text: str) -> None:
    """Whatever is made of a text, a line break in it would begin something else."""
    option = TEXTS[path]
    value: t.Any = [text] if option.type == "list" else {"a": text} if option.type == "dict" else text
    assert said_of(option, value)


LINES = {
    "line",
    "flag_value",
    "setting_value",
    "sysctl_value",
    "path_segment",
    "local_path",
    "kernel_arguments",
}
"""What people write, or what is read as a whole: spaces and most signs are meant."""


@pytest.mark.parametrize(
    "text", ["-x", "a; reboot", "$(id)", "`id`", "a b;c", "/a/../../etc", "\u0661\u0662", "a|b"]
)
@pytest.mark.parametrize("name", sorted(set(GRAMMARS) - LINES - {"interpreter", "word"}))
def test_no_text_does_something_else_where_it_is_used(name: str, text: str) -> None:
    fault = fault_of(text, name)
    if name in ("azure_vault_key", "azure_resource_group") and text == "-x":
        return  # Azure takes a hyphen there, and the name is a part of a URL
    assert fault is not None
    assert all(fault)


GOOD = {
    "line": ["GPU of the night shift", "Größe: 5 %", "a\u00a0b", "mon,tue 22:00-04:00"],
    "word": ["10.0.0.0/8", "fd00::/48", "3g.40gb+me", "kata-qemu*", "deploy.erase_devices"],
    "path": ["/", "/srv/etcd-backup", "/run/user/0/token@2", "/a/..b/c"],
    "local_path": ["/srv/Cloud Files/clouds.yaml", "~/pki", "../keys", "pki", "/srv/Schlüssel"],
    "folder": ["/var/lib/x", "/process/x"],
    "disk": ["/dev/disk/azure/scsi1/lun0", "/dev/disk/by-id/nvme-eui.0025-part1"],
    "ipv4": ["127.0.0.1", "10.20.0.10"],
    "address": ["127.0.0.1", "::", "0.0.0.0", "2001:db8::1"],
    "url": ["https://login.microsoftonline.com", "http://[fd00::1]:8080/a?b=c", "https://a.example/%20"],
    "git_url": [
        "https://git.example.com/site.git",
        "git@git.example.com:a/b.git",
        "ssh://git@git.example:22/a",
        "file:///srv/site",
    ],
    "git_ref": ["main", "v1.2", "feature/rack-b", "3f786850e387550fdab836ed7e6dc881de23001b"],
    "inner_path": ["playbooks", "inventories/production", "a/b.yml"],
    "host_or_address": ["api.example.com", "API", "10.0.0.1", "*.example.com", "fd00::1"],
    "registry": ["registry.k8s.io", "localhost:5000", "10.0.0.1:5000"],
    "label_value": ["", "a", "Rack_7.b"],
    "path_segment": ["system:node", "cluster-admin", "night shift"],
    "version": ["1.36.4", "20260817.0", "v2", "39.0.0", "1:2.3-4ubuntu5~22.04.1+b1"],
    "release": ["5.15", "6", "6.8.0"],
    "account": ["ironspan", "a.b-c", "ops@example.com", "EXAMPLE\\ops", "svc$"],
    "package": ["libssl3t64", "g++", "linux-image-6.1.0-18-amd64", "libc6:i386", "NetworkManager"],
    "package_of_kernel": ["linux-image-{}", "linux-modules-{}-generic", "linux-headers-generic"],
    "package_version": ["", "*", "580.159.03-*", "1:2.3~rc1"],
    "module": ["br_netfilter", "nvme-tcp", "8021q", "xt_CT"],
    "sysctl_key": ["net.ipv4.ip_forward", "net.ipv4.conf.eth0/100.rp_filter", "vm.overcommit_memory"],
    "sysctl_value": ["1", "-1", "4096\t87380 16777216", "|/usr/lib/core %p %u", ""],
    "keyword": ["AllowGroups", "X11Forwarding"],
    "interpreter": ["python3", "/usr/bin/env python3", "auto_silent", "~/venv/bin/python"],
    "plugin": ["ssh", "ansible.builtin.ssh"],
    "option_name": ["maxPods", "NET_ADMIN", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
    "flag_name": ["v", "feature-gates", "memory.available", "host-local", "NumCPU", "net-raw"],
    "flag_value": ["", "-1", "A=true,B=false", "10.0.0.0/8", "--x y"],
    "setting_value": ["", "@sshd users", "~sha1"],
    "quantity": ["100m", "256Mi", "1Gi", "0.5", "2", "1e3", ".5", "1k"],
    "threshold": ["100Mi", "10%", "2.5%", "0%"],
    "share": ["1", "10%", "100%"],
    "calendar": [
        "daily",
        "Sun 03:00",
        "*-*-* 00/6:00",
        "Mon..Fri *-*-1..7 18:00:00",
        "Sat *-*~1 05:00 Europe/Berlin",
        "*:0/15",
        "Mon,Thursday 2027-*-01,15",
        "hourly UTC",
    ],
    "uuid": ["72F988BF-86f1-41af-91ab-2d7cd011db47"],
    "sha256": ["0123456789abcdef" * 4],
    "image": ["registry.k8s.io/pause:3.10", "ghcr.io/a/b_c/d@sha256:" + "0" * 64, "localhost:5000/a:1"],
    "kernel_arguments": ["", "nomodeset console=tty0 console=ttyS0,115200n8", 'a="b c"', "-- single"],
    "azure_storage_account": ["abc", "a" * 24, "123"],
    "azure_container_or_none": ["", "etcd"],
    "azure_container": ["etcd", "a-b-c", "a" * 63, "000"],
    "azure_vault": ["Vault-1", "a" * 24],
    "azure_vault_key": ["etcd-backup", "A1", "a" * 127],
    "azure_resource_group": ["rg_(prod).west-1", "a" * 90],
    "azure_subscription": ["72f988bf-86f1-41af-91ab-2d7cd011db47"],
    "azure_resource": ["ab", "lb.api_1", "a" * 64],
    "azure_any_name": ["a", "lb-api", "(rg)", "_x"],
    "azure_host": ["etcd", "a", "gpu-h100-spot", "a" * 40],
    "azure_region": ["westeurope", "eastus2", "germanywestcentral"],
    "azure_size": ["Standard_D4s_v5", "Standard_ND96isr_H100_v5", "VpnGw2AZ"],
    "azure_id": [
        "/subscriptions/72f988bf-86f1-41af-91ab-2d7cd011db47/resourceGroups/a.b/providers/Microsoft.Network/x/v",
        "/subscriptions/72f988bf-86f1-41af-91ab-2d7cd011db47/resourcegroups/a/providers/Microsoft.Network/x/v",
    ],
    "azure_dns_zone": ["privatelink.blob.core.windows.net", "a.b"],
    "azure_user": ["ironspan", "_a-b9"],
    "azure_tag_name": ["cost-centre", "Owner of it", "a.b:c"],
    "azure_tag_value": ["4711", "team a", "https://wiki.example/a", "a@b.example"],
    "azure_action": ["Microsoft.Compute/virtualMachines/restart/action", "Microsoft.Compute/*/read"],
    "azure_base64": ["A" * 64, "MIIB+/" * 12 + "AA=="],
    "azure_identity": ["abc", "id_1-x", "a" * 128],
    "cidr": ["10.0.0.0/8", "10.20.0.0/20", "192.168.1.1/32"],
}
BAD = {
    "line": ["", " ", "a\tb"],
    "word": ["", "a b", "-a", 'a"b', "a'b"],
    "path": ["", "a", "~/a", "/a b", "/a/../b", "/a;b", "/a%b"],
    "local_path": ["-rf"],
    "folder": ["/", "", "a", "/dev/null", "/proc", "/sys/x"],
    "disk": ["/dev/sdc", "/dev/disk/", "/dev/disk/../sdc", "lun0", ""],
    "ipv4": ["", "localhost", "10.0.0", "10.0.0.1/8", "::1", "fd00::1", "010.0.0.1"],
    "address": ["", "localhost", "10.0.0", "10.0.0.1/8", "fe80::1%eth0", "010.0.0.1"],
    "url": [
        "",
        "ftp://a",
        "https://",
        "https:///a",
        "a.example",
        "https://a.example:99999",
        "https://a b",
        "https://u:p@a.example",
    ],
    "git_url": [
        "",
        "ftp://a/b",
        "https://u:p@a.example/b",
        "a/b",
        "https://a b/c",
        "https://a.example",
        "-x",
    ],
    "git_ref": [
        "",
        "a..b",
        "a/",
        "/a",
        "a.lock",
        "a/b.lock/c",
        "a~1",
        "a:b",
        "a b",
        ".a",
        "-a",
        "a/.b",
        "a//b",
    ],
    "inner_path": ["", "~/a", "/etc", "../x", "a/../../b", "a b", "-x"],
    "host_or_address": ["", "a_b", "a..b", ".a", "a.*.b", "-a.b", "1.2.3.4.5", "10.0.0", "999.0.0.1"],
    "registry": ["", "https://a", "a/b", "a:", "a:b"],
    "label_value": ["-", "a b", "a" * 64],
    "path_segment": ["", ".", "..", "a/b", "a%b"],
    "version": ["", "1 2", "~1", "a" * 129],
    "release": ["", "new", "v5.15", "5.", "6.8.0-60-generic"],
    "account": ["", "a b", "-l", "a;b", ".a"],
    "package": ["", "a b", "a=1", "../a.deb", "_a"],
    "package_of_kernel": ["", "{}", "linux-{}-{}", "Linux-{}"],
    "package_version": ["1 2", "**", "1*2"],
    "module": ["", "a.ko", "a/b", "a" * 56],
    "sysctl_key": ["", "net", "net..ipv4", ".net", "net.ipv4.", "net.ipv4=1"],
    "sysctl_value": ["1\n2"],
    "keyword": ["", "Allow Groups", "1a"],
    "interpreter": ["", "python3 -E", "/usr/bin/env ", "/usr/bin/env a b", "a;b"],
    "plugin": ["", "a b", "A", "a.b.c.d"],
    "option_name": ["", "a-b", "1a"],
    "flag_name": ["", "--v", "a=b", "a b"],
    "flag_value": ["a\nb", " "],
    "setting_value": ["a\nb"],
    "quantity": ["", "1 Gi", "1GB", "-1", "Mi", "10%", "1e"],
    "threshold": ["", "%", "10 %", "200%", "100.1%"],
    "share": ["", "0", "0%", "101%", "1.5", "ten"],
    "calendar": [
        "",
        "-1",
        "daily\n",
        "daily; x",
        "someday",
        "25:00",
        "Mo 03:00",
        "*-13-01",
        "03:60",
        "1 2 3",
    ],
    "uuid": ["", "72f988bf86f141af91ab2d7cd011db47", "{72f988bf-86f1-41af-91ab-2d7cd011db47}"],
    "sha256": ["", "a" * 63, "a" * 65, "A" * 64, "sha256:" + "a" * 64, "g" * 64],
    "image": ["", "pause:3.10", "registry.k8s.io/Pause", "registry.k8s.io/pause@sha256:0", "https://a/b"],
    "kernel_arguments": ["a\nb", "a;b", "$a"],
    "azure_storage_account": ["ab", "a" * 25, "Abc", "a-b"],
    "azure_container_or_none": ["ab", "Abc", " "],
    "azure_container": ["ab", "a--b", "-ab", "ab-", "Abc", "a" * 64, "a_b"],
    "azure_vault": ["1ab", "ab", "a--b", "ab-", "a" * 25, "a_b"],
    "azure_vault_key": ["", "a/0123", "a_b", "a" * 128],
    "azure_resource_group": ["", "a.", "a" * 91, "a b", "a/b"],
    "azure_subscription": ["", "Pay-As-You-Go"],
    "azure_resource": ["", "a", "-a", "a-", "a.", "a b", "a" * 65],
    "azure_any_name": ["", "-a", "a.", "a-", "a/b", "a" * 91],
    "azure_host": ["", "Etcd", "1a", "a-", "a.b", "a_b", "a" * 41],
    "azure_region": ["", "West Europe", "west-europe", "WestEurope"],
    "azure_size": ["", "D4", "Standard D4s v5", "4cores"],
    "azure_id": [
        *("", "vnet", "/subscriptions/0/resourceGroups/a", "https://a.example/subscriptions"),
        f"/subscriptions/{'-' * 36}/resourceGroups/a.b/providers/Microsoft.Network/x/v",
    ],
    "azure_dns_zone": ["", "a", "a..b", "-a.b", "A.b", f"{'a' * 62}.b"],
    "azure_user": ["", "Admin", "1a", "a b", "a" * 33],
    "azure_tag_name": ["", "a/b", "a<b", "a?", "a" * 129],
    "azure_tag_value": ["", "a;b", "a" * 257],
    "azure_action": ["", "*", "Microsoft.Compute", "restart"],
    "azure_base64": ["", "A" * 63, "A" * 65, "-----BEGIN CERTIFICATE-----", "A" * 64 + "\n"],
    "azure_identity": ["ab", "-abc", "a.b", "a" * 129],
    "cidr": ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "fd00::/48", "10.0.0.0/255.0.0.0", "010.0.0.0/8"],
}


def test_every_grammar_is_tried() -> None:
    assert set(GOOD) == set(BAD) == set(GRAMMARS)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in GOOD.items() for text in texts])
def test_right(name: str, text: str) -> None:
    assert fault_of(text, name) is None


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_wrong(name: str, text: str) -> None:
    fault = fault_of(text, name)
    assert fault is not None
    message, remedy = fault
    assert message.startswith("is no ")
    assert remedy


def test_a_secret_is_not_spelled_out() -> None:
    option = Option("x", "y", no_log=True, format="word")
    (said,) = said_of(option, "p\u00e4ss word")
    assert said.startswith("x (secret) is no single word write")


def test_what_cannot_be_seen_is_named() -> None:
    assert "it has a line break" in (fault_of("a\n", "word") or ("",))[0]
    assert "U+0661" in (fault_of("1\u0661", "version") or ("",))[0]
    assert "a space at an end" in (fault_of("a ", "word") or ("",))[0]


def test_rules_of_azure_have_their_sources() -> None:
    for name, entry in yaml.safe_load(AZURE_FILE.read_text()).items():
        assert set(entry) == {"what", "pattern", "instead", "source"}, name
        assert all(entry.values()), name
