# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``ironspan access`` without a cluster: input, kubeconfigs, sealing and unsealing."""

from __future__ import annotations

import functools
import json
import types
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests, sealed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access.login import personal_api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from ironspan.cli import access, inventory, main, personal
from ironspan.cli.outcome import CommandError

SECRET = "hidden-horse-0123456789"


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("8h", 28800), ("2d", 172800), ("1m", 60)])
def test_durations(text: str, seconds: int) -> None:
    assert requests.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "0h", "-1h", "1.5h", "1h30m", "8 h", "999999h", "1w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        requests.seconds_of(text)


def config(user: dict[str, t.Any]) -> str:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": user}],
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "kind: Config",
        f"token: '{SECRET}",
        config({"client-certificate": "missing"}),
        config({"client-certificate-data": SECRET}),
        config({"tokenFile": "missing"}),
        config({"exec": {"command": "false"}}),
        config({"exec": {"apiVersion": "v1", "command": "false"}}),
        config({"exec": {"apiVersion": "v1", "command": "missing-program"}}),
        config({"exec": {"apiVersion": "v1", "command": "echo", "args": [SECRET]}}),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named_without_its_content(text: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ClusterError) as refused:
        personal_api("", "", environment={"KUBECONFIG": f"{tmp_path}/config:/nowhere"})
    assert SECRET not in str(refused.value)


def test_where_a_kubeconfig_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(config({"token": SECRET}))
    api = personal_api(environment={"KUBECONFIG": f"{tmp_path}/config:/nowhere"})
    assert api.server == "https://127.0.0.1:1"
    with pytest.raises(ClusterError, match="cannot be used: KeyError 'other'"):
        personal_api(str(tmp_path / "config"), "other")
    with pytest.raises(ClusterError, match="/nowhere cannot be used"):
        personal_api("/nowhere")


def test_what_others_wrote_does_not_speak_to_the_terminal() -> None:
    assert personal.printable("a\x1b[31m\nb\u202e") == "a?[31m?b?"


WORDS = {"ada": "correct horse battery staple", "bob": "another four random words"}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a PKI store and its key; making one takes a while."""
    folder = tmp_path_factory.mktemp("pki")
    open_store(folder / "pki", generate_key_file(folder / "key")).ensure_cas()
    return folder


@pytest.fixture
def options(pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A site with a PKI store, and files with everyone's passphrase."""
    site = types.SimpleNamespace(
        pki_store=str(pki / "pki"),
        pki_key_file=str(pki / "key"),
        api_endpoint="api.example.com:6443",
        api_address="192.0.2.1",
        api_host="api.example.com",
    )
    monkeypatch.setattr(inventory, "read_site", lambda given: site)
    monkeypatch.setattr(sealed, "make", functools.partial(sealed.make, work=16))
    for name, passphrase in WORDS.items():
        (tmp_path / name).write_text(passphrase + "\n")
    return ["--passphrase-file", f"ada={tmp_path}/ada", "--passphrase-file", f"bob={tmp_path}/bob"]


def run(*words: object) -> int:
    return main.main(["access", *map(str, words)])


def test_sealing_and_unsealing(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file, opened = tmp_path / "sealed.json", tmp_path / "kubeconfig"
    assert run("seal", file, "--keeper", "ada", "--keeper", "bob", "--days", 7, *options) == 0
    assert run("unseal", file, opened, *options) == 0
    assert json.loads(opened.read_text())["clusters"][0]["cluster"]["server"] == "https://192.0.2.1:6443"
    assert opened.stat().st_mode & 0o777 == 0o600
    assert run("unseal", file, opened, *options) == 2, "nothing is overwritten"
    opened.unlink()
    (tmp_path / "bob").write_text("something else\n")
    assert run("unseal", file, opened, *options) == 2
    assert not opened.exists()
    said = capsys.readouterr()
    assert not any(word in said.out + said.err for word in (*WORDS.values(), "something else", "PRIVATE"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--keeper", "ada"], "bob keeps no passphrase"),
        (["--keeper", "ada", "--keeper", "bob", "--keeper", "eve"], "passphrase of eve is missing"),
        (["--keeper", "ada", "--keeper", "bob", "--days", "91"], "1 to 90 days"),
        (["--keeper", "ada", "--keeper", "bob", "--keeper", "ada"], "ada is named twice"),
        (["--keeper", "ada", "--passphrase-file", "ada"], "lacks a keeper's name"),
        (
            ["--keeper", "ada", "--keeper", "bob", "--passphrase-file", "bob=/no/such"],
            "/no/such: No such file",
        ),
        (["--keeper", "ada", "--keeper", "bob", "--passphrase-file", "bob=/"], "/: Is a directory"),
        (
            ["--keeper", "ada", "--keeper", "bob", "--passphrase-file", "bob=/bin/true"],
            "/bin/true: it is no text",
        ),
    ],
)
def test_what_is_not_sealed(
    tmp_path: Path,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    reason: str,
) -> None:
    monkeypatch.setattr("sys.stdin", (tmp_path / "ada").open())
    assert run("seal", tmp_path / "sealed.json", *options, *words) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "sealed.json").exists()


ROW = requests.Row("r", "ada", "edit", "team", "Waiting", ("bob",), 90, "", "ticket\x1b[2J 7")


@pytest.mark.parametrize(("answer", "approved"), [("y", True), ("YES ", True), ("", False), ("no", False)])
def test_what_is_approved_is_shown_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, approved: bool
) -> None:
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    if approved:
        access._confirm(ROW)
    else:
        with pytest.raises(CommandError, match="not approved"):
            access._confirm(ROW)
    shown = capsys.readouterr().out
    assert "ada: edit in team for 90 minutes, approved by bob" in shown
    assert "ticket?[2J 7" in shown


def test_where_nobody_can_be_asked_nothing_is_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: False))
    with pytest.raises(CommandError, match="nobody can be asked"):
        access._confirm(ROW)
