# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A first inventory: at most ten questions, and the commented files that follow from the answers."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import string
import typing as t
from collections.abc import Callable, Mapping

from ironspan.cli.outcome import CommandError, Exit

POD_CIDR, SERVICE_CIDR, LARGE_POD_CIDR = "10.244.0.0/16", "10.96.0.0/16", "172.16.0.0/13"
_RESERVED = tuple(map(ipaddress.IPv4Network, (SERVICE_CIDR, LARGE_POD_CIDR, POD_CIDR)))
_LARGE = 200
"""Nodes above which a /16 of pods, cut into /24, leaves too little room to grow."""
Answers = Mapping[str, t.Any]


class Wrong(ValueError):
    """An answer cannot be used; the text says what to write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Args:
        name: of the answer, of the option and in the file of answers.
        text: what is asked.
        default: what an empty answer means.
        read: makes a value of a text, or raises Wrong.
    """

    name: str
    text: str
    default: str
    read: Callable[[str], t.Any]


def _pattern(pattern: str, write: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise Wrong(f"write {write}")
        return text

    return read


def _number(*allowed: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) not in allowed:
            few = len(allowed) < 6
            raise Wrong(
                f"write {', '.join(map(str, allowed))}" if few else f"write {allowed[0]} to {allowed[-1]}"
            )
        return int(text)

    return read


def _address(text: str) -> ipaddress.IPv4Address:
    try:
        found = ipaddress.IPv4Address(text)
    except ValueError:
        raise Wrong("write an IPv4 address, such as 10.20.0.11") from None
    special = found.is_loopback or found.is_link_local or found.is_unspecified or found.is_reserved
    if not found.is_private or special:
        raise Wrong("write an address of a private network, such as 10.20.0.11")
    if any(found in network for network in _RESERVED):
        raise Wrong(f"write one outside of {', '.join(map(str, _RESERVED))}, which pods and services get")
    return found


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false"):
        raise Wrong("write yes or no")
    return text.lower() in ("yes", "true")


_LABEL = "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
QUESTIONS: t.Final = (
    Question("name", "Name of the cluster", "first", _pattern(_LABEL, "a-z, 0-9 and -, at most 32 of them")),
    Question("members", "How many control planes in Azure, with etcd (1, 3 or 5)", "3", _number(1, 3, 5)),
    Question("azure-first", "Address of the first of them; the others follow it", "10.20.0.11", _address),
    Question(
        "endpoint",
        "Name under which the API is found, for the life of the cluster",
        "api.example.internal",
        # A last part of digits is taken for an address; localhost and cluster.local are answered on the spot.
        _pattern(
            rf"(?!(?:.*\.)?(?:localhost|cluster\.local)$){_LABEL}(\.{_LABEL}){{0,3}}\.(?=[a-z]){_LABEL}",
            "a DNS name of two parts or more, such as api.example.internal",
        ),
    ),
    Question("endpoint-address", "Address behind it (of a load balancer)", "10.20.0.10", _address),
    Question("racks", "How many racks on premises (1 to 20)", "1", _number(*range(1, 21))),
    Question("nodes", "How many workers in each (1 to 40)", "4", _number(*range(1, 41))),
    Question(
        "rack-first",
        "Address of the first worker; each rack has its own /24, one after the other",
        "10.30.1.11",
        _address,
    ),
    Question("gpu", "Do these workers have NVIDIA GPUs (yes or no)", "yes", _yes),
    Question(
        "mirror",
        "URL of the mirror that hosts fetch from",
        "http://mirror.example.internal:8080",
        _pattern(
            r"https?://[a-z0-9.-]{1,200}(:[0-9]{2,5})?", "a URL, such as http://mirror.example.internal:8080"
        ),
    ),
)


def checked(answers: Mapping[str, str]) -> dict[str, t.Any]:
    """Return all answers as values; a question without one gets its default.

    Raises:
        CommandError: an answer is wrong, or of no question; all of them at once.
    """
    known = {question.name for question in QUESTIONS}
    problems = [f"{name}: there is no such question" for name in answers if name not in known]
    found: dict[str, t.Any] = {}
    for question in QUESTIONS:
        try:
            found[question.name] = question.read(answers.get(question.name, question.default).strip())
        except Wrong as wrong:
            problems.append(f"{question.name} is {answers.get(question.name)!r}; {wrong}")
    if not problems:
        problems = [*_together(found)]
    if problems:
        raise CommandError(
            "answers cannot be used:\n" + "\n".join(f"  {line}" for line in problems), code=Exit.BAD_INPUT
        )
    return found


def _together(found: Answers) -> list[str]:
    """Return what is wrong with answers that are right one by one."""
    azure, racks = _azure(found), _racks(found)
    every = [*azure.values(), *(address for rack in racks.values() for address in rack.values())]
    problems = []
    if len(set(every)) != len(every) or found["endpoint-address"] in every[len(azure) :]:
        problems.append("two hosts have the same address; write other first addresses")
    if found["endpoint-address"] in azure.values() and len(azure) > 1:
        problems.append(
            "endpoint-address is a host's own; with several control planes write that of a load balancer"
        )
    if any(address in network for address in every for network in _RESERVED):
        problems.append(
            "addresses of hosts run into the networks of pods or services; write other first addresses"
        )
    if any(
        len({int(one) >> 8 for one in rack.values()}) > 1 or int(max(rack.values())) & 255 == 255
        for rack in racks.values()
    ):
        problems.append("the workers of a rack do not fit into its /24; write a lower rack-first")
    return problems


def _azure(found: Answers) -> dict[str, ipaddress.IPv4Address]:
    return {f"az-{number + 1}": found["azure-first"] + number for number in range(found["members"])}


def _racks(found: Answers) -> dict[str, dict[str, ipaddress.IPv4Address]]:
    kind = "gpu" if found["gpu"] else "cpu"
    return {
        letter: {
            f"{kind}-{letter}-{number + 1:02}": found["rack-first"] + rack * 256 + number
            for number in range(found["nodes"])
        }
        for rack, letter in enumerate(string.ascii_lowercase[: found["racks"]])
    }


def files(found: Answers) -> dict[str, str]:
    """Return the inventory: path below its folder to text.

    Args:
        found: of ``checked``.
    """
    made = {"hosts.yml": _hosts(found), "group_vars/all.yml": _site(found)}
    if found["gpu"]:
        made["group_vars/gpu.yml"] = _GPU
    return made


def key_file(found: Answers) -> str:
    """Return where the key of the PKI store is, below the home folder."""
    return f"~/.config/ironspan/{found['name']}.key"


def _hosts(found: Answers) -> str:
    azure, racks = _azure(found), _racks(found)
    lines = [
        "# Written by `ironspan init`; it is yours now. inventories/example explains every choice.",
        "# Which groups a host is in decides what it becomes.",
        "---",
        "all:",
        "  children:",
        "    # The two sides of the WAN. Every host is on exactly one.",
        "    azure:",
        "      hosts:",
        *(f"        {name}: {{ansible_host: {address}}}" for name, address in azure.items()),
        "    on_prem:",
        '      # rack_ is a reserved beginning: rack_a makes site_rack "a".',
        "      children:",
    ]
    for letter, hosts in racks.items():
        lines += [f"        rack_{letter}:", "          hosts:"]
        lines += [f"            {name}: {{ansible_host: {address}}}" for name, address in hosts.items()]
    members = [f"        {name}:" for name in azure]
    within = [f"        rack_{letter}:" for letter in racks]
    lines += ["    # etcd members: an odd number, all in Azure.", "    etcd:", "      hosts:", *members]
    lines += ["    # Hosts with an API server.", "    control_plane:", "      hosts:", *members]
    lines += ["    # Workers.", "    nodes:", "      children:", *within]
    if found["gpu"]:
        lines += ["    # Feature: workers with NVIDIA GPUs.", "    gpu:", "      children:", *within]
    return "\n".join(lines) + "\n"


def _site(found: Answers) -> str:
    large = found["racks"] * found["nodes"] + found["members"] > _LARGE
    return _SITE.format(
        name=found["name"],
        endpoint=found["endpoint"],
        address=found["endpoint-address"],
        pods=LARGE_POD_CIDR if large else POD_CIDR,
        services=SERVICE_CIDR,
        mirror=found["mirror"],
        key=key_file(found),
    )


_SITE = """\
# What holds for the whole site. Everything not written here has the default of roles/*/defaults/main.yml.
---
# Names the cluster. `reset.yml` wants to hear it before it removes anything.
site_name: "{name}"

# Where every kubelet and client finds the API, for the life of the cluster: a name that can move.
site_api_endpoint: "{endpoint}:6443"
# The address behind that name. It goes into /etc/hosts.
site_api_address: {address}

# Pods and services. Private networks that nothing else at the company uses, as they cannot be changed later.
# Each node gets a /24 of the pods' network.
site_pod_cidr: {pods}
site_node_cidr_mask: 24
site_service_cidr: {services}

# Programs and images come from here, nothing from the internet. `ironspan artifacts build` fills a mirror.
site_mirror_url: {mirror}

# The VPN between the racks and Azure takes its part of 1,500 bytes.
site_wan_mtu: 1400

# The certificate authorities of this site, encrypted. Keep a backup of the folder, and of its key elsewhere.
# The key is in this file, or in the environment variable IRONSPAN_PKI_KEY.
site_pki_store: ~/.local/share/ironspan/{name}/pki
site_pki_key_file: {key}

# How Ansible logs in.
ansible_user: ironspan
ansible_become: true

# A new site has nothing that the stricter settings of the CIS benchmark could break (docs/hardening.md).
site_cis_benchmark: true
"""
_GPU = """\
# Keeps pods that do not ask for a GPU off the GPU workers.
---
site_taints:
  - key: nvidia.com/gpu
    value: present
    effect: NoSchedule
"""
