# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host joins with: a key made here, and a certificate for an hour that says which node it is.

kubeadm and the kubelet use it until the kubelet has a certificate of its own, which it asks for as itself. So
nothing that a host ever holds can ask for another's.
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_run import (
    JOIN_KEY,
    write_input,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.certificate import describe
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.key_and_csr import (
    GENERATE,
    certificate_request,
    fingerprint,
    public_key,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Host,
    Pending,
    ResourceError,
    Spec,
)

INPUT = "join"
"""One-time input that lets a host join: only the controller knows when it is its turn."""


def insist_on_credentials(spec: Spec, host: Host) -> None:
    """Return if the host may join and has what it needs; otherwise offer a request for it.

    The key is made here, although nothing else is written while comparing: a resource that waits is not
    applied. It lies below /run, is of no use without a certificate, and is not made in an assessment.

    Args:
        spec: the resource.
        host: the host.

    Raises:
        Pending: it is not its turn, or it has no certificate for its key.
    """
    if _has_all(spec, host):
        return
    # A document of a former release, which joined hosts with tokens, does not say what to ask for.
    if spec["csr"] and not host.check_mode:
        if public_key(host, JOIN_KEY) is None:
            key = host.run(["openssl", "genpkey", *GENERATE["ecdsa-p256"]])[1]
            write_input(host, JOIN_KEY, key)
        host.offer_csr(spec["id"], certificate_request(host, JOIN_KEY, spec["csr"]))
    raise Pending(f"certificate:{spec['id']}")


def _has_all(spec: Spec, host: Host) -> bool:
    try:
        host.secret(INPUT)
        chain = host.certificate(spec["id"])
    except Pending:
        return False
    return _is_for_this_key(chain, host)


def _is_for_this_key(chain: str, host: Host) -> bool:
    key = public_key(host, JOIN_KEY)
    try:
        return key is not None and describe(host, chain)["public"] == fingerprint(key)
    except (ResourceError, ValueError):
        return False
