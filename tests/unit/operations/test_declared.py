# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Declarations of operations, held against playbooks, modules and the command line; and a new operation."""

from __future__ import annotations

import argparse
import ast
import base64
import collections.abc
import functools
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    CONSENT,
    EVERYWHERE,
    PLAN,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption import rotation as encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import cni_migrate, context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    MOVES as ENCRYPTION_MOVES,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import MOVES as AUTHORITY_MOVES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import ROTATABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step

from ironspan.cli.main import build_parser
from tests.support.playbooks import BIN, ROOT

PLAYBOOKS = ROOT / "playbooks"
STEPS = "__ironspan_steps"
IMPORT = "ansible.builtin.import_playbook"
Play = dict[str, t.Any]


@functools.cache
def written(name: str) -> list[Play]:
    return list(yaml.safe_load((PLAYBOOKS / name).read_text()))


def plays(name: str) -> collections.abc.Iterator[Play]:
    """Yield the plays of a playbook and the lines that import others, each followed by what it imports."""
    for entry in written(name):
        yield entry
        if IMPORT in entry:
            yield from plays(entry[IMPORT])


@pytest.mark.parametrize("name", catalogue.PLANNED)
def test_plays_perform_the_steps_that_are_declared(name: str) -> None:
    named = {step for play in plays(f"{name}.yml") for step in play.get("vars", {}).get(STEPS, ())}
    assert named == set(catalogue.OPERATIONS[name].steps)


def test_plays_about_hosts_of_a_step_name_it() -> None:
    for path in PLAYBOOKS.glob("*.yml"):
        known = {step for entry in catalogue.OPERATIONS.values() for step in entry.steps}
        for group in re.findall(r"__ironspan_step_(\w+)", path.read_text()):
            assert group.replace("_", "-") in known, f"{path.name}: {group}"


def test_modules_have_no_step_that_nobody_declares() -> None:
    declared = {step for entry in catalogue.OPERATIONS.values() for step in (*entry.steps, *entry.said)}
    folder = ROOT / "plugins" / "plugin_utils" / "operations"
    for path in folder.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Step":
                words = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "action")]
                found = {
                    word.value for part in words for word in ast.walk(part) if isinstance(word, ast.Constant)
                }
                # Parts of a text that is put together are not whole names.
                whole = {word for word in found if not any(isinstance(p, ast.JoinedStr) for p in words)}
                assert whole <= declared, path.name


def test_a_step_that_is_not_declared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def steps(_: context.Context) -> list[Step]:
            return [Step("explode", "w1", "explode w1")]

    monkeypatch.setattr(context, "module_of", lambda name: Module)
    with pytest.raises(ValueError, match="node_add does not declare explode"):
        context.steps_of("node_add", t.cast("context.Context", None))


def test_every_playbook_is_an_operation_or_a_part_of_one() -> None:
    files = {path.stem for path in PLAYBOOKS.glob("*.yml")}
    assert set(catalogue.OPERATIONS) <= files
    parts = {
        entry[IMPORT].removesuffix(".yml")
        for name in catalogue.OPERATIONS
        for entry in plays(f"{name}.yml")
        if IMPORT in entry
    }
    assert files - set(catalogue.OPERATIONS) <= parts


def taken(playbook: str) -> set[str]:
    """Return the arguments that a playbook takes, with its parts; an imported operation has its own."""
    text = (PLAYBOOKS / playbook).read_text()
    found = set(re.findall(r"\bironspan_[a-z]\w*", re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE)))
    parts = {entry[IMPORT] for entry in plays(playbook) if IMPORT in entry}
    return found.union(
        *(taken(part) for part in parts if part.removesuffix(".yml") not in catalogue.OPERATIONS)
    )


@pytest.mark.parametrize("name", catalogue.OPERATIONS)
def test_a_playbook_takes_no_argument_that_its_operation_does_not_declare(name: str) -> None:
    declared = {argument.name for argument in catalogue.OPERATIONS[name].arguments}
    # A plan is made of any operation, with that one's arguments.
    assert taken(f"{name}.yml") <= (set(catalogue.arguments()) if name == "plan" else declared)


def test_playbooks_write_no_default_of_their_own() -> None:
    for path in PLAYBOOKS.glob("*.yml"):
        for name in re.findall(r"\b(ironspan_\w+) \| default\(", path.read_text()):
            assert catalogue.arguments()[name].default is None, f"{path.name}: {name}"


def test_choices_are_those_of_the_modules() -> None:
    known = catalogue.arguments()
    assert known["ironspan_authority"].choices == ROTATABLE
    assert set(known["ironspan_authority_stage"].choices) == {rotation.GO_ON, *AUTHORITY_MOVES}
    stages = {encryption.GO_ON, encryption.REWRITE, *ENCRYPTION_MOVES}
    assert set(known["ironspan_encryption_stage"].choices) == stages
    assert set(known["ironspan_pod_network"].choices) == {*all_layers().pod_networks, cni_migrate.ONLY}
    assert known["ironspan_token_minutes"].default == rotation.TOKEN_MINUTES


PARSER = build_parser()


def command(words: collections.abc.Sequence[str]) -> argparse.ArgumentParser:
    parser = PARSER
    for word in words:
        (below,) = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
        parser = below.choices[word]
    return parser


GENERATED = [
    name
    for name, operation in catalogue.OPERATIONS.items()
    if operation.command and isinstance(command(operation.command).get_default("operation"), type(operation))
]


COMMANDS = [name for name, operation in catalogue.OPERATIONS.items() if operation.command]
PROGRAMS = ("ironspan_arguments",)
"""What the program on the host takes are options of the command."""
OTHERWISE: dict[str, tuple[str, ...]] = {
    "site": ("ironspan_plan",),  # the plan's file stands for the playbook
    "certs": ("ironspan_fail_when_due",),  # the command always does
    "backup_verify": PROGRAMS,
    "backup_drill": PROGRAMS,
    "backup_gc": PROGRAMS,
    # The command writes the answer itself.
    **dict.fromkeys(("doctor", "net_check", "net_policy", "azure_routes"), ("ironspan_report",)),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_an_option(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A narrow terminal breaks long words.
    monkeypatch.setenv("COLUMNS", "200")
    operation = catalogue.OPERATIONS[name]
    parser = command(operation.command)
    text = " ".join(parser.format_help().split())
    for argument in operation.arguments:
        if argument not in EVERYWHERE and argument.name not in OTHERWISE.get(name, ()):
            shown = argument.option if argument.positional else f"--{argument.word}"
            assert shown in text
            assert argument.what.split(";")[0].split(" (")[0][:30] in text
    assert ("--allow-destructive" in text) == (operation.argument("ironspan_allow_destructive") is not None)


def test_most_operations_have_a_command_of_their_own() -> None:
    assert {"node_remove", "member_add", "upgrade", "reset", "encryption_rotate", "try"} <= set(GENERATED)
    assert set(OTHERWISE) <= set(COMMANDS) - set(GENERATED)
    assert all(PLAN in entry.arguments for entry in catalogue.OPERATIONS.values() if entry.planned)


KEY = base64.b64encode(bytes(32)).decode()
NEW = '''
"""A greeting."""

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="greet",
        summary="say something kind",
        command=("people", "greet"),
        arguments=(
            Argument(name="ironspan_greeting", what="the words", choices=("hello", "bye"), default="hello"),
            Argument(name="ironspan_times", what="how often", type="int", default=1, least=1),
        ),
        changes=False,
    ),
)
'''
PLAYBOOK = """
- name: Check what is asked for
  ansible.builtin.import_playbook: validate.yml
  vars: {__ironspan_purpose: read}
- name: Greet
  hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ lookup('ironspan.hybrid.argument', 'ironspan_greeting') }} it is"
"""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with a new operation: two files, and nothing else."""
    home = tmp_path_factory.mktemp("grown")
    copied = ("plugins", "playbooks", "tools", "ironspan")
    for name in copied:
        shutil.copytree(ROOT / name, home / name)
    for path in ROOT.iterdir():
        if path.name not in (*copied, "collections", ".git"):
            (home / path.name).symlink_to(path)
    (home / "collections" / "ansible_collections" / "ironspan").mkdir(parents=True)
    (home / "collections" / "ansible_collections" / "ironspan" / "hybrid").symlink_to(home)
    (home / "plugins" / "plugin_utils" / "catalogue" / "greeting.py").write_text(NEW)
    (home / "playbooks" / "greet.yml").write_text(PLAYBOOK)
    return home


def run(home: Path, *words: str) -> tuple[int, str]:
    paths = os.pathsep.join([str(home), str(home / "collections")])
    done = subprocess.run(
        words,
        cwd=home,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "ANSIBLE_CONFIG": str(home / "ansible.cfg"),
            "COLUMNS": "200",
            "IRONSPAN_PKI_KEY": KEY,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_new_operation_is_two_files(grown: Path) -> None:
    python = sys.executable
    status, text = run(grown, python, "-m", "ironspan", "people", "greet", "--help")
    assert status == 0, text
    assert "Say something kind." in text
    assert "--times NUMBER how often (1)" in text
    status, text = run(grown, python, "-c", "import tools.reference as r; print(r.operations_page())")
    assert status == 0, text
    assert "## greet Say something kind." in text
    assert (
        '| `ironspan_greeting` | `--greeting` | str | `"hello"` | the words; one of `hello`, `bye` |' in text
    )


def test_a_new_operation_refuses_what_it_does_not_declare(grown: Path) -> None:
    play = (str(BIN / "ansible-playbook"), "-i", "inventories/example", "playbooks/greet.yml")
    status, text = run(grown, *play, "-e", "ironspan_greeting=bye")
    assert status == 0, text
    assert "bye it is" in text
    wrong = ("-e", "ironspan_greting=bye", "-e", "ironspan_times=0")
    problems = (
        "2 problems in what is asked for; no host was contacted.",
        "ironspan_greting: unknown argument of greet; write ironspan_greeting",
        "ironspan_times: 0 is too small; write 1 or more",
    )
    own = (sys.executable, "-m", "ironspan", "people", "greet", "--plain", "-i", "inventories/example")
    for words in (play, own):
        status, text = run(grown, *words, *wrong)
        assert status == 2, text
        assert all(problem in text for problem in problems), text


def test_the_sentence_that_asks_for_consent_is_written_once() -> None:
    folders = (ROOT / "plugins" / "plugin_utils", ROOT / "plugins" / "action", ROOT / "ironspan" / "cli")
    texts = {
        path: path.read_text()
        for folder in folders
        for path in folder.rglob("*.py")
        if path.name != "common.py"
    }
    assert [path.name for path, text in texts.items() if "ironspan_allow_destructive=true" in text] == []
    assert "-e ironspan_allow_destructive=true (ironspan: --allow-destructive)" in CONSENT
