# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates that hosts join with: asked for while a host is prepared, signed when its batch has its turn.

Each is for the node that its host is and for nobody else, and lives for an hour. Signed for the whole batch
by one process, they cost each host no execution more.
"""

from __future__ import annotations

import json
import time
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import attested
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    requests_of_joins,
    sign_all,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder

FRESH_SECONDS = 1800
"""Half of such a certificate's life. A host whose turn comes later than that gets another one."""


def keep_requests(folder: RunFolder, host: str, document: str, requests: Mapping[str, t.Any]) -> None:
    """Keep what a host that is being prepared wants to join with.

    Args:
        folder: of this run.
        host: its name.
        document: its document as JSON.
        requests: resource to request PEM, as the host answered.
    """
    found = requests_of_joins(json.loads(document), requests)
    if found:
        folder.put_join(host, {"requests": found})


def sign_for_batch(folder: RunFolder, hosts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Sign what the hosts of a batch asked for in this run.

    Args:
        folder: of this run.
        hosts: their names.

    Returns:
        The hosts with a certificate now, and why others got none, by name: theirs fails when they join.
    """
    signed: list[str] = []
    refused: dict[str, str] = {}
    stores: dict[tuple[str, str], Credentials] = {}
    for host in hosts:
        requests = folder.join(host).get("requests")
        if not requests:
            continue
        document, notes = folder.read(host)
        if notes["composed"]:
            # The host made the document up: nothing is signed that only the host asks for.
            continue
        if attested.policy_of(json.loads(document), requests):
            # The TPM is asked when the host joins, for a nonce of that moment.
            continue
        where = (notes["pki_store"], notes["pki_key_file"])
        credentials = stores.setdefault(where, Credentials(*where))
        try:
            certificates = sign_all(json.loads(document), requests, credentials.sign)
        except ExchangeError as error:
            refused[host] = str(error)
            continue
        folder.put_join(host, {"requests": requests, "certificates": certificates, "signed": time.time()})
        signed.append(host)
    return signed, refused


def certificates_for(folder: RunFolder, host: str) -> dict[str, t.Any]:
    """Return the certificates that a host got for its join, none when there are none or they are old."""
    kept = folder.join(host)
    if time.time() - float(kept.get("signed") or 0) > FRESH_SECONDS:
        return {}
    return dict(kept["certificates"])
