# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Encryption of secrets on hosts from their first day on: another key, a key in a vault, and in clear again.

Two control planes. Tests go on where the one before has ended, in the order of this file. All the time
secrets are written through one API server and read through the other.
"""

from __future__ import annotations

import collections.abc
import json
import re
import typing as t

import pytest

from tests.integration.conftest import lab_cluster
from tests.support.encrypted_site import CONTROL_PLANES, EncryptedSite, reading
from tests.support.key_vault import NAME, Vault
from tests.support.key_vault import running as running_vault

pytestmark = [pytest.mark.lab, pytest.mark.long]
PLAIN = "open-sesame-8471"
FEW, MANY = 10, 1000
NONE: dict[str, t.Any] = {"control_plane_secrets_encryption": "none"}
SECRETBOX: dict[str, t.Any] = {"control_plane_secrets_encryption": "secretbox"}
FILE = "/etc/kubernetes/ironspan/encryption.json"
CA = "/etc/lab-vault.crt"
STATUS = "/opt/ironspan-kms/bin/ironspan-kms status"
SEEDS = "/var/lib/ironspan-kms/seeds"


class BornEncrypted(EncryptedSite):
    """A cluster whose inventory says so from the first run."""

    wish = SECRETBOX


@pytest.fixture(scope="module")
def site() -> collections.abc.Iterator[EncryptedSite]:
    with lab_cluster(BornEncrypted, "encvault", azure=2, rack=1) as made:
        assert made.first is not None and made.first.status == 0, made.first
        try:
            yield made
        finally:
            made.end_runs()


@pytest.fixture(scope="module")
def vault(site: EncryptedSite, tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[Vault]:
    """A vault on the Azure side; the hosts know its authority."""
    found = re.search(r"site_mirror_url: http://([0-9.]+):", site.inventory.read_text())
    assert found is not None
    with running_vault(tmp_path_factory.mktemp("vault"), found[1]) as made:
        made.rotate()
        for host in CONTROL_PLANES:
            site.on(host, f"cat > {CA} <<'END'\n{made.ca.read_text()}END")
        yield made


def test_a_new_cluster_never_stores_anything_in_clear(site: EncryptedSite) -> None:
    site.make("canary", PLAIN)
    site.make_many(MANY, PLAIN)
    assert set(site.stored()) == {"secretbox-1"}
    assert site.raw("canary").startswith(b"k8s:enc:secretbox:v1:secretbox-1:")
    for file in ("snap/db", "wal/*.wal"):
        assert site.found(PLAIN, file) == 0
        assert site.found("k8s:enc:secretbox:v1:secretbox-1:", file) > MANY
    for host in CONTROL_PLANES:
        assert site.text("canary", host) == PLAIN
    site.settled()


def seen(task: str) -> t.Callable[[str], bool]:
    """Return what tells whether a run has come to a task."""
    return lambda text: f"TASK [{task}" in text


KILLS: tuple[tuple[str, str, bool], ...] = (
    ("read", "Enter the stage", True),
    ("read", "Compare the host", False),
    ("write", "Compare the host", True),
    ("drop", "Converge the control plane", False),
)
"""Stage, the task that has just begun, and whether everything that runs here is killed too."""


def test_another_key_wherever_the_controller_is_killed(site: EncryptedSite) -> None:
    with reading(site):
        for stage in ("read", "write", "drop"):
            for at, task, everything in KILLS:
                if at == stage:
                    text = site.kill(stage, seen(task), everything=everything)
                    assert "PLAY RECAP" not in text
            if stage == "write":
                # A few are written meanwhile.
                site.kill(stage, lambda _: site.stored()["secretbox-2"] > FEW)
                assert site.stored()["secretbox-1"] > 0, "killed too late to prove anything"
                played = site.rotate("drop", status=2)
                assert "is stored with secretbox-1 still, not with secretbox-2" in played.output
            site.rotate(stage)
    assert set(site.stored()) == {"secretbox-2"}
    assert site.store.encryption.state().providers == ("secretbox-2",)
    for host in CONTROL_PLANES:
        assert site.text("canary", host) == PLAIN
        assert "secretbox-1" not in site.on(host, f"cat {FILE}")
    site.settled()


def key_in(vault: Vault) -> dict[str, t.Any]:
    """Return what the inventory says of a vault."""
    place = {"vault_url": vault.url, "key": NAME, "ca": CA, "credential": {"kind": "managed_identity"}}
    return {"control_plane_secrets_encryption": "key_vault", "control_plane_key_vault": place}


def status(site: EncryptedSite, host: str) -> dict[str, str]:
    """Return what a host's plugin says of itself."""
    answer = site.on(host, STATUS, check=False)
    return dict(json.loads(answer)) if answer else {}


def healthy(site: EncryptedSite, host: str) -> bool:
    """Tell whether a host's plugin is well."""
    return status(site, host).get("healthz") == "ok"


def test_the_key_goes_into_a_vault(site: EncryptedSite, vault: Vault) -> None:
    with reading(site):
        site.change(**key_in(vault))
    assert set(site.stored()) == {"kms-1"}
    (version,) = vault.versions
    for host in CONTROL_PLANES:
        found = status(site, host)
        assert found["healthz"] == "ok" and found["key_id"].endswith(f"/keys/{NAME}/{version}"), found
        modes = site.on(host, f"stat -c %a /run/ironspan-kms {SEEDS} /etc/ironspan-kms.key")
        assert modes.split() == ["700", "600", "600"]
        assert site.text("canary", host) == PLAIN
    site.settled()


def test_api_servers_start_while_the_vault_is_away(site: EncryptedSite, vault: Vault) -> None:
    with reading(site):
        vault.away = True
        for host in CONTROL_PLANES:
            site.on(host, "systemctl restart ironspan-kms")
            site.restart_api(host)
            site.make(f"outage-{host}", PLAIN, host)
        for host in CONTROL_PLANES:
            assert healthy(site, host)
            for name in ("canary", *(f"outage-{other}" for other in CONTROL_PLANES)):
                assert site.text(name, host) == PLAIN, (name, host)
        vault.away = False


def test_the_next_version_of_the_key(site: EncryptedSite, vault: Vault) -> None:
    (first,) = vault.versions
    with reading(site):
        second = vault.rotate()
        site.wait(
            lambda: all(status(site, host).get("key_id", "").endswith(second) for host in CONTROL_PLANES)
        )
        # API servers see it a minute later.
        site.wait(lambda: f"/{first})" not in site.rotate("rewrite").output, 900)
    assert set(site.stored()) == {"kms-1"}
    vault.disabled.add(first)
    for host in CONTROL_PLANES:
        site.restart_api(host)
        assert site.text("canary", host) == PLAIN
    vault.disabled.clear()
    site.settled()


def test_a_disabled_key_ends_all_access_and_an_enabled_one_begins_it_again(
    site: EncryptedSite, vault: Vault
) -> None:
    vault.disabled.update(vault.versions)
    for host in CONTROL_PLANES:
        site.wait(lambda host=host: "is disabled" in status(site, host).get("healthz", ""))  # type: ignore[misc]
        assert site.on(host, f"ls {SEEDS}", check=False) == ""
        site.wait(lambda host=host: not site.ready(host))  # type: ignore[misc]
    vault.disabled.clear()
    for host in CONTROL_PLANES:
        site.wait(lambda host=host: healthy(site, host) and site.ready(host))  # type: ignore[misc]
        assert site.text("canary", host) == PLAIN


@pytest.mark.usefixtures("vault")
def test_in_clear_again_and_its_undoing(site: EncryptedSite) -> None:
    with reading(site):
        for stage in ("read", "write"):
            site.rotate(stage, **NONE)
        assert set(site.stored()) == {"k8s"}, "what is in clear begins so"
        site.rotate("back")
        assert set(site.stored()) == {"kms-1"}
        for stage in ("write", "drop"):
            site.rotate(stage)
    assert set(site.stored()) == {"k8s"}
    assert PLAIN.encode() in site.raw("canary")
    for host in CONTROL_PLANES:
        left = "ls -d /opt/ironspan-kms /var/lib/ironspan-kms /etc/ironspan-kms* 2>/dev/null"
        assert site.on(host, left, check=False) == ""
        assert site.on(host, "systemctl is-active ironspan-kms", check=False) == "inactive"
        assert site.text("canary", host) == PLAIN
    site.settled()
