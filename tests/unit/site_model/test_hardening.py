# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what hardens a site: what would break gVisor, lock the operator out, or check nothing."""

from __future__ import annotations

import typing as t

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from .conftest import Example
from .mutations import ALL, Mutation
from .test_mutations import test_mutation as check_mutation


def indented(pem: bytes) -> str:
    """Return a key as a block of a list inside a list's entry."""
    return "".join(f"        {line}\n" for line in pem.decode().splitlines())


SECRET = ec.generate_private_key(ec.SECP256R1())
PUBLIC = indented(SECRET.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
PRIVATE = indented(SECRET.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
ANOTHER_KIND = indented(
    ed25519.Ed25519PrivateKey.generate()
    .public_key()
    .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
)
IMAGES = f"""
containerd_image_policy_mode: enforce
containerd_image_policy:
  - images: [ghcr.io/acme/*, "registry.example.com:5000/app"]
    signed_as: [build.example.com/*]
    keys:
      - |
{PUBLIC}"""
_PATTERNS = 'images: [ghcr.io/acme/*, "registry.example.com:5000/app"]'
_KEYS = f"keys:\n      - |\n{PUBLIC}"


def added(name: str, text: str, at: str, says: str) -> Mutation:
    """Return a mistake made by lines at the end of the inventory."""
    return Mutation(name, ((ALL, "", text),), ALL, at, says)


def wrong(name: str, old: str, new: str, at: str, says: str) -> Mutation:
    """Return a mistake in the rules for images."""
    assert old in IMAGES, name
    return added(name, IMAGES.replace(old, new), at, says)


def kernel(name: str, value: str, says: str) -> Mutation:
    """Return a kernel setting that gVisor does not live with."""
    line = f'{{name: {name}, value: "{value}"}}'
    return added(f"{name} = {value}", f"base_security_sysctls:\n  - {line}\n", line, says)


MISTAKES = (
    kernel("user.max_user_namespaces", "0", "every gVisor sandbox lives in a user namespace"),
    kernel("user.max_user_namespaces", "100", "breaks gVisor on"),
    kernel("kernel.unprivileged_userns_clone", "0", "breaks gVisor on"),
    kernel("kernel.yama.ptrace_scope", "3", "attaches to its own processes"),
    kernel("net.ipv4.ip_forward", "0", "net.ipv4.ip_forward is also in base_sysctls"),
    added(
        "sshd and a password",
        "base_sshd: hardened\nansible_password: x\n",
        "ansible_password: x",
        "is logged in to with a password",
    ),
    added(
        "passwords again",
        "base_sshd: hardened\nbase_sshd_settings: {passwordAuthentication: 'yes'}\n",
        "passwordAuthentication",
        "every run relies on no",
    ),
    added(
        "no keys",
        "base_sshd: hardened\nbase_sshd_settings:\n  PubkeyAuthentication: 'no'\n",
        "PubkeyAuthentication",
        "every run relies on yes",
    ),
    added("no rules", "containerd_image_policy_mode: warn\n", "image_policy_mode", "there is no rule"),
    wrong("a wildcard as registry", _PATTERNS, 'images: ["*/acme/*"]', "*/acme/*", "no repository with its"),
    wrong("everything", _PATTERNS, 'images: ["*"]', 'images: ["*"]', "no repository with its registry"),
    wrong("a tag", _PATTERNS, 'images: ["ghcr.io/acme/a:1"]', "acme/a:1", "no repository with its registry"),
    wrong("no images", _PATTERNS, "images: []", "images: []", "images: is empty"),
    wrong("another name", "build.example.com/*", "build", "signed_as: [build]", "signed_as: 'build' is no"),
    wrong("no keys", _KEYS, "keys: []\n", "keys: []", "so nothing could be signed"),
    wrong("a private key", PUBLIC, PRIVATE, "    keys:", "holds a private key"),
    wrong("Ed25519", PUBLIC, ANOTHER_KIND, "    keys:", "no public EC or RSA key"),
    wrong("no key", PUBLIC, "        AAAA\n", "    keys:", "no public EC or RSA key"),
)


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistakes(example: Example, mutation: t.Any) -> None:
    check_mutation(example, mutation)


def test_a_private_key_is_not_quoted(example: Example) -> None:
    example.append(ALL, IMAGES.replace(PUBLIC, PRIVATE))
    line = PRIVATE.splitlines()[1].strip()
    assert not any(line in str(problem) for problem in example.problems())


RIGHT = (
    IMAGES,
    "base_sshd: hardened\nbase_sshd_settings: {AllowGroups: operators, PermitRootLogin: 'no'}\n",
    "ansible_password: x\n",
    'base_security_sysctls:\n  - {name: kernel.dmesg_restrict, value: "1"}\n'
    '  - {name: user.max_user_namespaces, value: "10000"}\n',
)


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right(example: Example, text: str) -> None:
    example.append(ALL, text)
    assert example.problems() == []


def test_hosts_without_gvisor_may_forbid_namespaces(example: Example) -> None:
    example.append(
        "group_vars/azure.yml",
        'base_security_sysctls:\n  - {name: user.max_user_namespaces, value: "0"}\n',
    )
    assert example.problems() == []
