# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan init``: what is answered makes a valid inventory or is refused; nothing is lost."""

from __future__ import annotations

import builtins
import io
import pathlib
import sys
import typing as t

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ironspan.cli import first_site, init
from ironspan.cli.inventory import read_site
from ironspan.cli.main import main
from ironspan.cli.outcome import CommandError

KEY = "Y2hhbmdlIG1lIGNoYW5nZSBtZSBjaGFuZ2UgbWUgY2g="


@pytest.fixture(autouse=True)
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("IRONSPAN_PKI_KEY", raising=False)
    return tmp_path / "home"


def test_the_options_are_the_questions_and_there_are_at_most_ten() -> None:
    assert list(init._OPTIONS) == [question.name for question in first_site.QUESTIONS]
    assert len(first_site.QUESTIONS) <= 10
    for question in first_site.QUESTIONS:
        assert question.default in init._OPTIONS[question.name]


DRAWN = st.fixed_dictionaries(
    {
        "members": st.sampled_from(["1", "3", "5"]),
        "racks": st.integers(1, 20).map(str),
        "nodes": st.integers(1, 40).map(str),
        "gpu": st.sampled_from(["yes", "no"]),
        "name": st.from_regex(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True),
        "azure-first": st.ip_addresses(v=4).map(str) | st.just("10.20.0.11"),
        "rack-first": st.builds("10.{}.{}.{}".format, *[st.integers(0, 255)] * 3),
        "endpoint-address": st.sampled_from(["10.20.0.10", "10.20.0.11", "192.168.7.7", "10.30.1.12"]),
    }
)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers=DRAWN)
@example(answers={"name": "0", "endpoint": "0.0"})
@example(answers={"endpoint": "api.cluster.local"})
@example(answers={"azure-first": "255.255.255.254"})
def test_all_that_can_be_answered_is_valid_or_refused(
    answers: dict[str, str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRONSPAN_PKI_KEY", KEY)
    try:
        found = first_site.checked(answers)
    except CommandError as error:
        assert "answers cannot be used" in error.message
        return
    folder = tmp_path_factory.mktemp("site")
    (folder / "group_vars").mkdir()
    for name, text in first_site.files(found).items():
        if name == "group_vars/all.yml":
            # Its key is made by the command.
            text = text.replace("site_pki_key_file", "# site_pki_key_file")
        (folder / name).write_text(text)
    site = read_site([str(folder)])
    assert len(site.group("nodes")) == found["racks"] * found["nodes"]
    assert len(site.group("etcd")) == found["members"]


def test_the_command_writes_what_validate_takes_and_never_twice(
    tmp_path: pathlib.Path, home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "inventories" / "one"
    answers = tmp_path / "answers.yml"
    answers.write_text("gpu: no\nracks: 2\n")
    assert (
        main(["init", str(folder), "--answers", str(answers), "--yes", "--nodes", "3", "--name", "one"]) == 0
    )
    assert "is written and valid" in capsys.readouterr().out
    assert len(read_site([str(folder)]).group("nodes")) == 6
    package = sys.modules["ansible_collections.ironspan.hybrid"]
    assert vars(package)["plugins"] is sys.modules[f"{package.__name__}.plugins"], "nobody else lost it"
    key = home / ".config" / "ironspan" / "one.key"
    assert key.stat().st_mode & 0o777 == 0o600
    before = {path: path.read_bytes() for path in (*folder.rglob("*.yml"), key)}
    assert main(["init", str(folder), "--yes", "--name", "one"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "other"), "--yes", "--name", "one"]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in folder.parent.iterdir()) == ["one"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"members": "2"}, "members is '2'; write 1, 3, 5"),
        ({"racks": "21", "nodes": "0"}, "nodes is '0'; write 1 to 40"),
        ({"azure-first": "8.8.8.8"}, "an address of a private network"),
        ({"azure-first": "10.244.0.1"}, "which pods and services get"),
        ({"rack-first": "10.20.0.12"}, "two hosts have the same address"),
        ({"rack-first": "10.30.1.254"}, "do not fit into its /24"),
        ({"endpoint-address": "10.20.0.12"}, "is a host's own"),
        ({"name": "Upper"}, "a-z, 0-9 and -"),
        ({"nmae": "x"}, "nmae: there is no such question"),
    ],
)
def test_a_wrong_answer_says_what_to_write(answers: dict[str, str], said: str) -> None:
    with pytest.raises(CommandError) as caught:
        first_site.checked(answers)
    assert said in caught.value.message


def test_nothing_is_left_where_the_inventory_is_refused(
    tmp_path: pathlib.Path, home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"hosts.yml": "all: {children: {odd: {}}}\n"}
    monkeypatch.setattr(first_site, "files", lambda found: broken)
    assert main(["init", str(tmp_path / "in" / "one"), "--yes"]) == 2
    assert list((tmp_path / "in").iterdir()) == []
    assert not list((home / ".config" / "ironspan").iterdir())


def test_without_a_terminal_it_says_what_is_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["init", str(tmp_path / "one"), "--name", "a"]) == 2
    assert "not answered: members, azure-first" in capsys.readouterr().err


def test_on_a_terminal_it_asks_until_an_answer_fits(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    answers: t.Iterator[str] = iter(["", "2", "1", *[""] * 20])
    asked: list[str] = []

    def answered(text: str) -> str:
        asked.append(text)
        return next(answers)

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(builtins, "input", answered)
    assert main(["init", str(tmp_path / "one")]) == 0
    assert len(asked) == len(first_site.QUESTIONS) + 1
    assert "write 1, 3, 5" in capsys.readouterr().out
    hosts = yaml.safe_load((tmp_path / "one" / "hosts.yml").read_text())
    assert list(hosts["all"]["children"]["etcd"]["hosts"]) == ["az-1"]
