# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command line's frame."""

from __future__ import annotations

import argparse
import pathlib
import sys
import types
import typing as t

import pytest

from ironspan.cli import main as frame
from ironspan.cli.apply import ansible_arguments
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.playbook import find_playbook, log_file, log_of_user, project_folder


def part_that(action: t.Callable[[argparse.Namespace], int]) -> types.ModuleType:
    module = types.ModuleType("part_for_test")

    def register(subparsers: t.Any) -> None:
        subparsers.add_parser("act").set_defaults(func=action)

    module.register = register  # type: ignore[attr-defined]
    return module


def interrupt(arguments: argparse.Namespace) -> int:
    raise KeyboardInterrupt


def refuse(arguments: argparse.Namespace) -> int:
    raise CommandError("the lock file is missing", "write one", Exit.BAD_INPUT)


@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        (lambda arguments: 4, 4, ""),
        (interrupt, 130, "again resumes"),
        (refuse, 2, "write one"),
    ],
)
def test_how_a_command_ends(
    action: t.Callable[[argparse.Namespace], int],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "part_for_test", part_that(action))
    monkeypatch.setattr(frame.build_parser, "__defaults__", (("part_for_test",),))
    assert frame.main(["act"]) == code
    assert words in capsys.readouterr().err


def test_every_command_is_there_and_takes_json(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("validate", "apply", "verify", "status"):
        with pytest.raises(SystemExit) as ended:
            frame.main([command, "--help"])
        assert ended.value.code == 0
        assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (["certs", "--plain"], True),
        (["certs"], False),
        (["certs", "show", "--plain"], True),
        (["certs", "--plain", "show"], True),
        (["lab", "status"], False),
        (["lab", "status", "--plain"], True),
    ],
    ids=str,
)
def test_whatever_can_be_run_can_be_plain(words: list[str], plain: bool) -> None:
    parsed = frame.build_parser().parse_args(words)
    assert (parsed.plain, parsed.json) == (plain, False)


def test_a_missing_part_leaves_its_command_out_a_broken_one_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame.build_parser(["ironspan.no_such_part.cli"])
    (tmp_path / "broken_part.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError):
        frame.build_parser(["broken_part"])


def test_an_inventory_path_keeps_its_meaning_in_the_project_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts.yml").touch()
    monkeypatch.chdir(tmp_path)
    arguments = argparse.Namespace(
        inventory=["hosts.yml", "a,b,"], limit="rack-1", forks=5, extra_vars=["x=1"], check=True, diff=False
    )
    expected = [
        "-i",
        str(tmp_path / "hosts.yml"),
        "-i",
        "a,b,",
        "--limit",
        "rack-1",
        "--forks",
        "5",
        "-e",
        "x=1",
        "--check",
    ]
    assert ansible_arguments(arguments) == expected


def test_playbooks_are_found_by_name_or_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / "playbooks").mkdir()
    book = tmp_path / "playbooks" / "etcd.yml"
    book.touch()
    for name in ("etcd", "etcd.yml", str(book)):
        assert find_playbook(name, tmp_path) == book
    with pytest.raises(CommandError, match="no playbook ectd") as refused:
        find_playbook("ectd", tmp_path)
    assert refused.value.code == Exit.BAD_INPUT
    assert "etcd" in refused.value.remedy


def test_the_project_is_found_from_a_folder_inside_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "site.yml").touch()
    (tmp_path / "ansible.cfg").touch()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_folder(inner) == tmp_path


def test_old_logs_are_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(25):
        log_file("apply").touch()
    other = log_file("verify")
    other.touch()
    assert len(list(other.parent.glob("apply-*.log"))) == 20
    assert other.exists()


def test_a_state_folder_that_is_none_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        CommandError, match=r"no log can be written to .*/file/ironspan/log: Not a dir"
    ) as refused:
        log_of_user("apply")
    assert refused.value.code is Exit.BAD_INPUT
    assert "XDG_STATE_HOME" in refused.value.remedy
