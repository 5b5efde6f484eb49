# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hardening that would break what the site needs: user namespaces, the way in over SSH, real keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.ssh_settings import text_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import component_values

POLICY, MODE = "containerd_image_policy", "containerd_image_policy_mode"
PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
REFUSED = {"passwordauthentication": "no", "pubkeyauthentication": "yes"}
"""What may not be set otherwise beside the hardened settings: every run relies on it."""
_PATTERN = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?/[a-z0-9*][a-z0-9._/*-]*")
SUITES = "site_tls_cipher_suites"


def check_cipher_suites(draft: Draft) -> None:
    """An API server or a kubelet with a suite that it does not know does not start."""
    suites, host = draft.site_value(SUITES), draft.writer(SUITES)
    if suites == [] and host:
        draft.problems.add(draft.place(host, SUITES), SUITES, "is empty", "write suites, or take it out")
    given = suites if isinstance(suites, list) and host else []
    is_known = set(given) <= set(component_values.names("suites"))
    if host and given and is_known and not set(given) & set(component_values.NEEDED_SUITES):
        message = "has none of those that HTTP/2 wants, and no API server or kubelet would start"
        remedy = f"write {component_values.NEEDED_SUITES[1]} too"
        draft.problems.add(draft.place(host, SUITES), SUITES, message, remedy)
    for index, suite in enumerate(given):
        if suite is not None and suite not in component_values.names("suites") and host:
            near = nearest(str(suite), component_values.names("suites"))
            draft.problems.add(
                draft.inner_place(host, SUITES, index),
                f"{SUITES}[{index}]",
                f"Kubernetes has no suite {suite}",
                f"write {near}" if near else "write names of the options of kube-apiserver",
            )


def check_ssh(draft: Draft) -> None:
    """Whoever logs in with a password would not come in again."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        if host.values.get("base_sshd") != "hardened":
            continue
        for name in PASSWORDS:
            if name in host.settings:
                message = f"{host.name} is logged in to with a password, which base_sshd: hardened forbids"
                remedy = "give the account a key, and remove the password"
                once.add(draft.place(host, name), name, message, remedy)
        settings = host.values.get("base_sshd_settings")
        for keyword, value in settings.items() if isinstance(settings, Mapping) else ():
            wanted = REFUSED.get(str(keyword).lower())
            if wanted and text_of(value).lower() != wanted:
                place = draft.inner_place(host, "base_sshd_settings", str(keyword))
                message = f"is {text_of(value)}, and every run relies on {wanted}"
                remedy = "remove it, or write base_sshd: unmanaged"
                once.add(place, f"base_sshd_settings.{keyword}", message, remedy)


def check_images(draft: Draft) -> None:
    """Rules name repositories of a registry and public keys, and a policy that is in force has rules."""
    host = draft.writer(POLICY)
    mode = draft.site_value(MODE)
    if host is None:
        if mode not in (None, "disabled"):
            place = draft.site_place(MODE)
            draft.problems.add(place, MODE, f"is {mode}, and there is no rule", f"write '{POLICY}: ...' too")
        return
    value, written = host.values.get(POLICY), host.settings[POLICY].value
    for index, rule in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(rule, Mapping):
            continue
        item = written[index] if isinstance(written, list) else None
        entry = Entry(draft, host, f"{POLICY}[{index}]", rule, item)
        _check_patterns(entry, "images", needed=True)
        _check_patterns(entry, "signed_as", needed=False)
        _check_keys(entry)


def _check_patterns(entry: Entry, name: str, needed: bool) -> None:
    patterns = entry.value.get(name)
    if not isinstance(patterns, list):  # missing, or of another type: that is reported by itself
        return
    if needed and not patterns:
        entry.problem(name, "is empty", "write for example [ghcr.io/acme/*]")
    for pattern in patterns:
        if not _PATTERN.fullmatch(str(pattern)):
            message = f"{pattern!r} is no repository with its registry"
            remedy = "write for example ghcr.io/acme/*, or docker.io/library/busybox; a tag is no part of it"
            entry.problem(name, message, remedy)


def _check_keys(entry: Entry) -> None:
    keys = entry.value.get("keys")
    if not isinstance(keys, list):
        return
    if not keys:
        entry.problem("keys", "is empty, so nothing could be signed", "write a public key")
    for key in keys:
        # Never quoted: somebody may have written the private one.
        if "PRIVATE" in str(key):
            entry.problem("keys", "holds a private key, which is now to be replaced", "write the public key")
        elif not _is_public_key(str(key)):
            message = "holds something that is no public EC or RSA key"
            entry.problem("keys", message, "write the PEM text that `openssl pkey -pubout` prints")


def _is_public_key(text: str) -> bool:
    # Imported here because only sites with such rules need `cryptography` for this.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    return isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)


CHECKS = (check_cipher_suites, check_ssh, check_images)
