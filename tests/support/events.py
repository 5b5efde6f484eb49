# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A controller with what alerts launch, for the programs that take alerts."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import pathlib
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.controller_object import (
    ControllerObjects,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.controller.server import Controller
from tests.support.controller_site import SECRETS, configuration, controller, project, small

LOADED = ("doctor", "net check", "member replace", "member replace (plan)", "member replace (apply plan)")


@contextlib.contextmanager
def controller_of_events(folder: pathlib.Path) -> Iterator[tuple[Controller, str]]:
    """Yield a controller with some of what alerts launch, and a token of the team ``events``."""
    made = controller()
    with made.serving(), pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, f"secret of {name}")
        whole = configuration(awx_project_url=project(folder / "project"))
        wanted = states.wanted_states(small(whole, LOADED, "member replace"))
        kind = ControllerObjects(Api(made.url, made.token(1)), "ironspan", "ironspan")
        assert bring(kind, dict(wanted), Consent(), lambda text: None).problems == []
        token = made.user("alerts")
        made.join("alerts", "ironspan events")
        yield made, token


def alert(name: str, status: str = "firing", **labels: str) -> dict[str, t.Any]:
    """Return an alert as Alertmanager sends it."""
    return {"status": status, "labels": {"alertname": name, **labels}, "fingerprint": "0"}


def certificate(folder: pathlib.Path) -> None:
    """Write a certificate of 127.0.0.1, which signs itself, and its key: tls.crt, tls.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "events")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.key").write_bytes(pem)
