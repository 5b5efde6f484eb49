# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house, as far as a machine can see them."""

from __future__ import annotations

import ast
import collections.abc
import pathlib
import re
import sys
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COLLECTION = "ansible_collections.ironspan.hybrid.plugins"
LINES = 335
"""What a reader holds in the head is about 300 lines; a tenth is allowance."""
TASKS = 25
WHEN_SHARE = 0.15

PYTHON = sorted(
    path for folder in ("plugins", "ironspan", "tools", "tests") for path in (ROOT / folder).rglob("*.py")
)
CODE = [path for path in PYTHON if not path.is_relative_to(ROOT / "tests")]
YAML = sorted(
    path
    for folder in ("roles", "playbooks", "molecule")
    for path in (ROOT / folder).rglob("*.yml")
    if not path.is_symlink()
)
TASK_FILES = [
    *sorted((ROOT / "roles").glob("*/tasks/*.yml")),
    *sorted((ROOT / "roles").glob("*/handlers/*.yml")),
]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())

FORBIDDEN_MODULES = ("shell", "command", "raw", "script", "expect", "set_fact")
KEYWORDS = {
    "name", "when", "vars", "register", "tags", "become", "become_user", "delegate_to", "run_once", "loop",
    "loop_control", "no_log", "check_mode", "diff", "changed_when", "failed_when", "until", "retries",
    "delay", "notify", "listen", "environment", "args", "any_errors_fatal", "throttle", "timeout",
    "connection", "module_defaults", "ignore_errors", "ignore_unreachable", "async", "poll", "block",
    "rescue", "always",
}  # fmt: skip


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: pathlib.Path) -> set[str]:
    """Return the absolute names a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: relative import; write the absolute name"
            found |= {f"{node.module}.{item.name}" for item in node.names} | {str(node.module)}
    return found


def tasks_of(items: object) -> collections.abc.Iterator[dict[str, t.Any]]:
    """Yield every task in a list of tasks or plays, those in blocks too."""
    for item in t.cast("list[dict[str, t.Any]]", items or []):
        nested = [
            key
            for key in ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks", "handlers")
            if key in item
        ]
        if not nested and "hosts" not in item and not any(key.endswith("import_playbook") for key in item):
            yield item
        for key in nested:
            yield from tasks_of(item[key])


def all_tasks() -> list[tuple[pathlib.Path, dict[str, t.Any]]]:
    return [
        (path, task) for path in TASK_FILES + PLAYBOOKS for task in tasks_of(yaml.safe_load(path.read_text()))
    ]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        (
            "plugins/module_utils",
            (f"{COLLECTION}.modules", f"{COLLECTION}.plugin_utils", f"{COLLECTION}.action", "ironspan."),
        ),
        ("plugins/modules", (f"{COLLECTION}.plugin_utils", f"{COLLECTION}.action", "ironspan.")),
        ("plugins/plugin_utils", (f"{COLLECTION}.modules", f"{COLLECTION}.action", "ironspan.")),
        ("plugins/action", (f"{COLLECTION}.modules", "ironspan.")),
        ("ironspan", (f"{COLLECTION}.modules", f"{COLLECTION}.action", "tests.", "tools.")),
    ],
)
def test_imports_point_one_way(folder: str, forbidden: tuple[str, ...]) -> None:
    wrong = [
        f"{name_of(path)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in imports_of(path)
        if f"{name}.".startswith(tuple(f"{item.rstrip('.')}." for item in forbidden))
    ]
    assert not wrong


@pytest.mark.parametrize("folder", ["plugins/module_utils", "plugins/modules"])
def test_the_host_side_is_standard_library_and_python_3_9(folder: str) -> None:
    allowed = {*sys.stdlib_module_names, "__future__"}
    wrong = []
    for path in (ROOT / folder).rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
        for name in imports_of(path):
            if name.split(".")[0] not in allowed and not name.startswith(
                (f"{COLLECTION}.module_utils", "ansible.module_utils")
            ):
                wrong.append(f"{name_of(path)}: {name}")
    assert not wrong


def test_what_programs_pack_of_the_collection_needs_no_ansible() -> None:
    # The one client, cordon and drain: for the controller and for programs in pods and on hosts.
    allowed = {*sys.stdlib_module_names, "__future__", "urllib3"}
    kubernetes = sorted((ROOT / "plugins/plugin_utils/kubernetes").glob("*.py"))
    wrong = [
        f"{name_of(path)}: {name}"
        for path in (*kubernetes, *(ROOT / f"plugins/plugin_utils/{name}.py" for name in ("errors", "files")))
        for name in imports_of(path)
        if name.split(".")[0] not in allowed
        and not name.startswith(SHARED)
        # It shows differences, which programs do not.
        and (path.name, name) != ("objects.py", "yaml")
    ]
    assert len(kubernetes) > 5
    assert not wrong


def test_no_program_is_a_template() -> None:
    # Python that Jinja reads cannot be checked, tested or imported as what it is.
    assert not [name_of(path) for path in (ROOT / "roles").rglob("*") if ".py" in path.suffixes]


SHARED = (
    *(f"{COLLECTION}.module_utils._programs.{name}" for name in ("_files", "_settings")),
    *(f"{COLLECTION}.plugin_utils.{name}" for name in ("errors", "files", "kubernetes")),
)
"""What programs may pack of the collection."""


@pytest.mark.parametrize(
    ("program", "packages"),
    [
        ("program", ("ironspan.program",)),
        ("azure", ("ironspan.azure", "ironspan.program")),
        ("etcd", ("ironspan.etcd", "ironspan.program")),
        ("kubernetes", ("ironspan.kubernetes", "ironspan.program")),
        ("backup", ("ironspan.azure", "ironspan.backup", "ironspan.etcd", "ironspan.program")),
        ("kms", ("ironspan.azure", "ironspan.kms", "ironspan.program")),
    ],
)
def test_programs_of_hosts_need_nothing_else_of_the_project(program: str, packages: tuple[str, ...]) -> None:
    # Each is packed into one file, and runs on hosts that have nothing else of this.
    allowed = tuple(f"{package}." for package in (*packages, *SHARED))
    wrong = [
        f"{name_of(path)}: {name}"
        for path in (ROOT / "ironspan" / program).rglob("*.py")
        for name in imports_of(path)
        if name.startswith(("ironspan", "ansible", "tests", "tools")) and not f"{name}.".startswith(allowed)
    ]
    assert not wrong


@pytest.mark.parametrize("program", ["etcd-backup", "encryption-kms", "gpu-repair"])
def test_a_program_is_packed_with_what_it_imports(program: str) -> None:
    packed = yaml.safe_load((ROOT / "artifacts.lock.yml").read_text())["environments"][program]["packages"]
    places = [ROOT / package.replace(f"{COLLECTION}.", "plugins.").replace(".", "/") for package in packed]
    files = [path for place in places for path in (*place.rglob("*.py"), place.with_suffix(".py"))]
    imported = {
        next((package for package in packed if f"{name}.".startswith(f"{package}.")), name)
        for path in files
        if path.is_file()
        for name in imports_of(path)
        if name.startswith(("ironspan.", COLLECTION))
    }
    assert imported == set(packed)


@pytest.mark.parametrize("path", PYTHON + YAML, ids=name_of)
def test_every_file_says_its_licence(path: pathlib.Path) -> None:
    head = "\n".join(path.read_text().splitlines()[:4])
    assert not path.read_text() or "SPDX-License-Identifier: Apache-2.0" in head


def test_no_file_is_too_long() -> None:
    long = {name_of(path): len(path.read_text().splitlines()) for path in CODE + YAML}
    assert not {name: count for name, count in long.items() if count > LINES}


def test_python_files_postpone_annotations() -> None:
    assert not [
        name_of(path)
        for path in CODE
        if path.read_text()
        and "import " in path.read_text()
        and "from __future__ import annotations" not in path.read_text()
    ]


def test_tasks_use_full_names_and_no_shell() -> None:
    wrong = []
    for path, task in all_tasks():
        modules = [key for key in task if key not in KEYWORDS and not key.startswith("with_")]
        wrong += [f"{name_of(path)}: {task.get('name')}: {key}" for key in modules if key.count(".") < 2]
        wrong += [
            f"{name_of(path)}: {task.get('name')}: {key}"
            for key in modules
            if key.split(".")[-1] in FORBIDDEN_MODULES
        ]
        wrong += [f"{name_of(path)}: {task.get('name')}: {key}" for key in ("ignore_errors",) if key in task]
    assert not wrong


def test_few_tasks_are_conditional() -> None:
    tasks = all_tasks()
    conditional = [f"{name_of(path)}: {task.get('name')}" for path, task in tasks if "when" in task]
    assert tasks
    assert len(conditional) <= WHEN_SHARE * len(tasks), conditional


def test_task_files_are_short() -> None:
    sizes = {name_of(path): len(list(tasks_of(yaml.safe_load(path.read_text())))) for path in TASK_FILES}
    assert not {name: count for name, count in sizes.items() if count > TASKS}


def test_roles_do_not_set_facts_through_a_back_door() -> None:
    assert not [
        name_of(path)
        for path in TASK_FILES + PLAYBOOKS
        if re.search(r"\b(cacheable|ansible_facts)\b", path.read_text())
    ]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_has_its_parts(role: pathlib.Path) -> None:
    for part in ("defaults/main.yml", "meta/argument_specs.yml", "tasks/main.yml", "README.md"):
        assert (role / part).is_file(), part


def test_nothing_of_one_machine_is_written_down() -> None:
    # assembled, so that this file does not name them either
    hosts = [
        ".".join(parts)
        for parts in (("proxy", "golang", "org"), ("pypi", "org"), ("registry", "npmjs", "org"))
    ]
    folders = [
        "/" + "/".join(parts) + "/" for parts in (("work", "main"), ("work", "shared"), ("root", ".cache"))
    ]
    patterns = re.compile("|".join(re.escape(text) for text in hosts + folders))
    texts = [
        path
        for path in (
            *PYTHON,
            *YAML,
            *ROOT.glob("*.*"),
            *(ROOT / "docs").rglob("*.md"),
            *(ROOT / "roles").rglob("*.j2"),
        )
        # A worktree of git has a file .git with the place of the repository.
        if path.is_file() and path.name != ".git"
    ]
    assert not [name_of(path) for path in texts if patterns.search(path.read_text(errors="replace"))]
