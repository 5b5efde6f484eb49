# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program's settings and exit codes."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import typing as t
import urllib.request
from pathlib import Path

import pytest

from ironspan.kms import main, settings
from ironspan.kms.plugin import OK, Plugin
from ironspan.kms.server import serving
from ironspan.lab.ports import free_port
from ironspan.program import command
from ironspan.program.errors import ServiceError
from ironspan.program.settings import SettingsError

VAULT: dict[str, t.Any] = {
    "vault_url": "https://acme.vault.azure.net/",
    "key": "etcd",
    "credential": {"kind": "managed_identity"},
    "cache": "/var/lib/ironspan-kms/wrapping-key.json",
    "asks": False,
}
GOOD: dict[str, t.Any] = {
    "vault": VAULT,
    "socket": "/run/ironspan-kms/kms.sock",
    "seeds": "/var/lib/ironspan-kms/seeds",
    "seal_key": "/etc/ironspan-kms.key",
    "outage_hours": 72,
}


def written(folder: Path, content: object) -> Path:
    """Write settings."""
    path = folder / "kms.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_what_the_role_writes_is_read(tmp_path: Path) -> None:
    read = settings.load(written(tmp_path, GOOD))
    assert (read.place, read.outage_s) == ("acme.vault.azure.net/keys/etcd", 259200)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is []; write a mapping"),
        ({**GOOD, "vault": {}}, "vault.vault_url is missing"),
        (
            {**GOOD, "vault": {**VAULT, "vault_url": "http://acme.vault.azure.net"}},
            "vault.vault_url is 'http://acme.vault.azure.net'; write https://",
        ),
        ({**GOOD, "vault": {**VAULT, "key": ""}}, "vault.key is ''; write the name"),
        ({**GOOD, "vault": {**VAULT, "ask": True}}, "vault.ask is not known; write asks"),
        ({**GOOD, "outage_hours": "many"}, "outage_hours is 'many'; write a whole number"),
        ({**GOOD, "outage_hour": 1}, "outage_hour is not known; write outage_hours"),
        ({name: value for name, value in GOOD.items() if name != "seal_key"}, "seal_key is missing"),
    ],
)
def test_other_settings_are_refused(
    tmp_path: Path, content: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(SettingsError, match="cannot be used") as caught:
        settings.load(path)
    assert caught.value.problems[0].startswith(said)
    assert main.main(["run", "--settings", str(path)]) == command.REFUSED
    told = capsys.readouterr().err
    assert str(path) in told
    assert "playbooks/site.yml" in told


def test_by_itself_the_program_reads_the_file_that_the_role_writes() -> None:
    desired = Path(__file__).parents[3] / "roles/control_plane/desired.yml.j2"
    settings = main.build_parser().parse_args(["status"]).settings
    assert f'"settings": "{settings}"' in desired.read_text()


def test_settings_that_are_not_there(tmp_path: Path) -> None:
    assert main.main(["status", "--settings", str(tmp_path / "none.json")]) == command.REFUSED


class Answers:
    """A plugin that answers one thing."""

    def __init__(self, healthz: str) -> None:
        self.healthz = healthz

    def probe(self) -> None:
        """Ask nobody."""

    def status(self) -> tuple[str, str]:
        """Return it."""
        return self.healthz, "acme.vault.azure.net/keys/etcd/1"


@pytest.mark.parametrize(("healthz", "code"), [(OK, 0), ("the key is disabled", command.FAILED)])
def test_status(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    healthz: str,
    code: int,
) -> None:
    monkeypatch.setattr(main, "STATUS_S", 120.0)
    path = written(tmp_path, {**GOOD, "socket": str(tmp_path / "kms.sock")})
    with serving(t.cast("Plugin", Answers(healthz)), tmp_path / "kms.sock"):
        assert main.main(["status", "--settings", str(path)]) == code
    assert json.loads(capsys.readouterr().out) == {
        "healthz": healthz,
        "key_id": "acme.vault.azure.net/keys/etcd/1",
    }


class Silent:
    """A vault that nobody reaches."""

    def refresh(self) -> None:
        """Fail."""
        raise ServiceError("away", retryable=True)


@pytest.mark.parametrize("taken", [False, True])
def test_api_servers_are_answered_whether_metrics_can_be_served_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers_of_signals: None, taken: bool
) -> None:
    key = tmp_path / "seal.key"
    key.write_bytes(base64.b64encode(bytes(32)))
    key.chmod(0o600)
    port = free_port()
    listening = socket.create_server(("127.0.0.1", port)) if taken else contextlib.nullcontext()
    own = {"socket": str(tmp_path / "kms.sock"), "seeds": str(tmp_path / "seeds"), "seal_key": str(key)}
    path = written(tmp_path, {**GOOD, **own, "metrics": {"port": port}})
    shown = []
    # The machine may name a proxy for everything.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    class Ended:
        def wait(self) -> None:
            assert (tmp_path / "kms.sock").is_socket()
            if not taken:
                with direct.open(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
                    shown.append(answer.read().decode())

    monkeypatch.setattr("ironspan.program.process.ending", Ended)
    monkeypatch.setattr("ironspan.azure.keyvault.open_key_vault", lambda vault: Silent())
    with listening:
        assert main.main(["run", "--settings", str(path)]) == 0
    assert len(shown) == (not taken)
    for text in shown:
        assert '\nironspan_kms_last_success_timestamp_seconds{step="vault"} 0.0\n' in text
        assert '\nironspan_kms_deadline_seconds{step="vault"} 259200.0\n' in text


def test_status_of_a_program_that_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {**GOOD, "socket": str(tmp_path / "kms.sock")})
    assert main.main(["status", "--settings", str(path)]) == command.FAILED
    assert "no answer at" in capsys.readouterr().out
