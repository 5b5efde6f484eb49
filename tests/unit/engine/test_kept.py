# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The engine's code that stays on a host: used if it is the one that is asked for, never otherwise."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _entry, _kept
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload

from tests.support.host_process import MODULE, HostProcess, wire

DOCUMENT = {"schema": 1, "resources": [{"kind": "file", "id": "a", "path": "/etc/a", "content": "x"}]}
OTHERS_USER = 4242
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")


@pytest.fixture
def host(tmp_path: Path) -> HostProcess:
    (tmp_path / "root/etc").mkdir(parents=True)
    return HostProcess(tmp_path / "root")


def folder_of(host: HostProcess) -> Path:
    return host.root / _kept.FOLDER.lstrip("/")


def file_of(host: HostProcess) -> Path:
    return folder_of(host) / payload.engine().digest


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    }


def test_the_engine_is_sent_once_and_then_used(host: HostProcess) -> None:
    assert host.converge(DOCUMENT)["changed"]
    assert [sorted(each) for each in host.sent] == [["request"], ["engine", "request"]]
    assert stat.S_IMODE(file_of(host).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder_of(host).stat().st_mode) == 0o700
    again = host.converge(DOCUMENT)
    assert (again["changed"], "warnings" in again) == (False, False)
    assert len(host.sent) == 1
    # What is asked when nothing changes; the budget with a worker's document is in tests/bench.
    assert len(wire(host.sent[0])) < 20_000


def test_what_is_on_the_host_runs_and_nothing_else_of_the_collection(host: HostProcess) -> None:
    host.converge(DOCUMENT)
    traps = host.root / "ansible_collections/ironspan/hybrid/plugins/module_utils"
    traps.mkdir(parents=True)
    for path in (traps / "__init__.py", host.root / "json.py", host.root / "zlib.py"):
        path.write_text("raise RuntimeError('this is no part of what was sent')")
    # The process starts in that folder.
    assert not host.converge(DOCUMENT)["changed"]


@pytest.mark.parametrize("python", sorted({sys.executable, "/usr/bin/python3"}))
def test_the_same_copy_serves_every_python(host: HostProcess, python: str) -> None:
    host.converge(DOCUMENT)
    other = HostProcess(host.root, python)
    assert not other.converge(DOCUMENT)["changed"]
    assert len(other.sent) == 1


def test_check_mode_works_on_a_bare_host_and_leaves_nothing(host: HostProcess) -> None:
    host.check = True
    before = tree(host.root)
    assert host.converge(DOCUMENT)["changed"]
    assert tree(host.root) == before
    assert len(host.sent) == 2


def test_health_and_certificates_run_from_the_same_copy_and_keep_none(host: HostProcess) -> None:
    variables = {"inventory_hostname": "rack-7"}
    (host.root / "proc").mkdir()
    (host.root / "proc/stat").write_text("btime 1000\n")
    before = tree(host.root)
    for _ in range(2):
        given = {"root": str(host.root)}
        found = payload.execute(host.execute, "certificates", given, variables, keep=False)
        assert found["certificates"] == []
        given = {"root": str(host.root), "document": json.dumps(DOCUMENT)}
        seen = payload.execute(host.execute, "host_health", given, variables, keep=False)
        assert "drift" in seen["health"]
    assert (tree(host.root), len(host.sent)) == (before, 8)
    host.converge(DOCUMENT)
    host.sent.clear()
    payload.execute(host.execute, "host_health", {"root": str(host.root)}, variables, keep=False)
    assert len(host.sent) == 1


def evil(marker: Path) -> bytes:
    """Return an engine that leaves a mark when any of its files is executed."""
    line = f"open({str(marker)!r}, 'w').close()\n"
    texts = json.loads(engine_data())
    for name, text in texts.items():
        texts[name] = text.replace("from __future__ import annotations\n", f"{line}", 1) if text else line
    return json.dumps(texts).encode()


def engine_data() -> bytes:
    import base64
    import zlib

    return zlib.decompress(base64.b64decode(payload.engine().packed))


def another_text(path: Path, marker: Path) -> None:
    path.write_bytes(evil(marker))


def another_owner(path: Path, marker: Path) -> None:
    another_text(path, marker)
    os.chown(path, OTHERS_USER, 0)


def only_the_owner(path: Path, marker: Path) -> None:
    os.chown(path, OTHERS_USER, 0)


def another_owner_of_the_folder(path: Path, marker: Path) -> None:
    os.chown(path.parent, OTHERS_USER, 0)


def writable(path: Path, marker: Path) -> None:
    path.chmod(0o622)


def writable_for_the_group(path: Path, marker: Path) -> None:
    path.chmod(0o660)


def a_writable_folder(path: Path, marker: Path) -> None:
    path.parent.chmod(0o777)


def a_writable_folder_of_the_engine(path: Path, marker: Path) -> None:
    path.parent.parent.chmod(0o1777)


def a_link(path: Path, marker: Path) -> None:
    path.rename(path.parent.parent / "moved")
    path.symlink_to("../moved")


def a_link_to_another(path: Path, marker: Path) -> None:
    (marker.parent / "evil").write_bytes(evil(marker))
    path.unlink()
    path.symlink_to(marker.parent / "evil")


def a_linked_folder(path: Path, marker: Path) -> None:
    shutil.move(path.parent, marker.parent / "engine")
    path.parent.symlink_to(marker.parent / "engine")


def two_names(path: Path, marker: Path) -> None:
    os.link(path, path.parent.parent / "second")


def a_pipe(path: Path, marker: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def a_folder(path: Path, marker: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def a_file_for_a_folder(path: Path, marker: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("x")


def half_of_it(path: Path, marker: Path) -> None:
    path.write_bytes(path.read_bytes()[:100_000])


def nothing_in_it(path: Path, marker: Path) -> None:
    path.write_bytes(b"")


def endless(path: Path, marker: Path) -> None:
    os.truncate(path, 1 << 40)


TAMPERED: list[tuple[Callable[[Path, Path], None], str]] = [
    (another_text, "is not what its name says"),
    (writable, "others than root can write to"),
    (writable_for_the_group, "others than root can write to"),
    (a_writable_folder, "others than root can write to"),
    (a_link, "symbolic link"),
    (a_link_to_another, "symbolic link"),
    (a_linked_folder, "symbolic link"),
    (two_names, "has other names too"),
    (a_pipe, "is not what it should be"),
    (a_folder, "Is a directory"),
    (half_of_it, "is not what its name says"),
    (nothing_in_it, "is not what its name says"),
    (endless, "too large"),
]
OWNED: list[tuple[Callable[[Path, Path], None], str]] = [
    (another_owner, f"belongs to user {OTHERS_USER}"),
    (only_the_owner, f"belongs to user {OTHERS_USER}"),
    (another_owner_of_the_folder, f"belongs to user {OTHERS_USER}"),
]


def insist_on_a_fresh_copy(host: HostProcess, tamper: Callable[[Path, Path], None], why: str) -> None:
    host.converge(DOCUMENT)
    marker = host.root.parent / "elsewhere" / "marker"
    marker.parent.mkdir()
    tamper(file_of(host), marker)
    result = host.converge(DOCUMENT)
    assert len(host.sent) == 2
    assert not result.get("failed")
    (warning,) = result["warnings"]
    assert warning.startswith("rack-7: the engine kept there was not run: ")
    assert str(folder_of(host)) in warning
    assert why in warning
    assert warning.endswith("It is replaced.")
    assert not marker.exists()
    # What is there now is right again.
    assert file_of(host).read_bytes() == engine_data()
    assert not file_of(host).is_symlink() and not folder_of(host).is_symlink()
    assert "warnings" not in host.converge(DOCUMENT)
    assert len(host.sent) == 1
    assert not marker.exists()


@pytest.mark.parametrize(("tamper", "why"), TAMPERED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_tampered_copy_is_not_run_and_is_replaced(
    host: HostProcess, tamper: Callable[[Path, Path], None], why: str
) -> None:
    insist_on_a_fresh_copy(host, tamper, why)


@needs_root
@pytest.mark.parametrize(("tamper", "why"), OWNED, ids=lambda each: getattr(each, "__name__", ""))
def test_somebody_elses_copy_is_not_run_and_is_replaced(
    host: HostProcess, tamper: Callable[[Path, Path], None], why: str
) -> None:
    insist_on_a_fresh_copy(host, tamper, why)


def test_no_copy_with_a_byte_altered_anywhere_is_loaded(host: HostProcess) -> None:
    host.converge(DOCUMENT)
    path, data, digest = file_of(host), engine_data(), payload.engine().digest
    assert _kept.load(str(host.root), digest) == (data, "")
    # In each of the engine's files, and each 4 KiB between.
    texts = json.loads(data)
    starts = [data.index(json.dumps(name).encode() + b": ") for name in texts]
    for at in sorted({*starts, *range(0, len(data), 4096), len(data) - 1}):
        with path.open("r+b") as stream:
            stream.seek(at)
            stream.write(bytes([data[at] ^ 1]))
        found, why = _kept.load(str(host.root), digest)
        assert found == b"" and "is not what its name says" in why, at
        with path.open("r+b") as stream:
            stream.seek(at)
            stream.write(data[at : at + 1])
    assert _kept.load(str(host.root), digest) == (data, "")


def test_each_file_of_the_engine_altered_on_its_way_is_refused(host: HostProcess) -> None:
    texts = json.loads(engine_data())
    for name in texts:
        altered = json.dumps({**texts, name: texts[name] + "\n"}, sort_keys=True)
        request = {"program": "converge", "parameters": {"root": str(host.root)}, "keep": True}
        request |= {"digest": payload.engine().digest, "engine": altered}
        assert "altered on its way" in _kept.main(request, {}, {})["msg"], name
    assert not folder_of(host).exists()


def test_a_way_that_others_can_change_is_said_and_nothing_is_kept(host: HostProcess) -> None:
    host.converge(DOCUMENT)
    (host.root / "var/lib").chmod(0o777)
    trouble = _kept.keep(str(host.root), "0" * 64, b"{}")
    assert "others than root can change" in trouble
    found, why = _kept.load(str(host.root), payload.engine().digest)
    assert found == b"" and "in a folder that others than root can change" in why


def test_the_folder_of_the_engine_gets_its_mode_back(host: HostProcess) -> None:
    host.converge(DOCUMENT)
    folder_of(host).parent.chmod(0o777)
    assert "It is replaced." in host.converge(DOCUMENT)["warnings"][0]
    assert stat.S_IMODE(folder_of(host).parent.stat().st_mode) == 0o700


def test_the_present_and_the_former_stay(host: HostProcess) -> None:
    root, digests = str(host.root), []
    for number in range(4):
        data = json.dumps({"number": number}).encode()
        digests.append(hashlib.sha256(data).hexdigest())
        assert _kept.keep(root, digests[-1], data) == ""
        os.utime(folder_of(host) / digests[-1], (number, number))
    assert sorted(path.name for path in folder_of(host).iterdir()) == sorted(digests[2:])


def test_a_run_that_is_killed_before_the_file_has_its_name_harms_nothing(host: HostProcess) -> None:
    data = engine_data()
    digest = payload.engine().digest
    child = os.fork()
    if child == 0:
        paths.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        _kept.keep(str(host.root), digest, data)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = folder_of(host).iterdir()
    assert left.name == f".{digest}.{child}"
    assert _kept.load(str(host.root), digest) == (b"", "")
    assert "warnings" not in host.converge(DOCUMENT)
    assert [path.name for path in folder_of(host).iterdir()] == [digest]


def test_runs_side_by_side(host: HostProcess) -> None:
    texts = []
    for number in range(6):
        given = {"document": json.dumps(DOCUMENT), "root": str(host.root)}
        question = payload.question("converge", given, keep=True)
        texts.append(wire({**question, "engine": payload.engine().packed, "_ansible_no_log": number > 0}))
    running = [
        subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in texts
    ]
    for process, text in zip(running, texts, strict=True):
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
    for process in running:
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
        assert process.wait() == 0
        assert "engine" not in answer
    assert [path.name for path in folder_of(host).iterdir()] == [payload.engine().digest]


def test_a_reset_takes_it_away(host: HostProcess) -> None:
    host.converge(DOCUMENT)
    assert file_of(host).exists()
    absent = {"schema": 1, "forget": True, "resources": [{"kind": "absent", "id": "a", "path": "/etc/a"}]}
    assert not host.converge(absent).get("failed")
    assert not folder_of(host).parent.exists()
    # And a host that was bare already stays so, although it had to be sent the engine.
    assert not host.converge(absent).get("failed")
    assert len(host.sent) == 2
    assert not folder_of(host).parent.exists()


def test_a_host_that_is_new_gets_the_engine_with_the_first_question(host: HostProcess) -> None:
    given = {"document": json.dumps(DOCUMENT), "root": str(host.root)}
    variables = {"inventory_hostname": "rack-7"}
    result = payload.execute(host.execute, "converge", given, variables, keep=True, at_once=True)
    assert (result["changed"], len(host.sent)) == (True, 1)
    assert not host.converge(DOCUMENT)["changed"]
    assert len(host.sent) == 1


def test_a_host_that_says_it_has_none_when_it_was_sent_one(host: HostProcess) -> None:
    def lying(module_name: str, module_args: t.Any, task_vars: t.Any) -> dict[str, t.Any]:
        host.sent.append(module_args)
        return {"changed": False, "engine": {"lacks": ""}}

    result = payload.execute(lying, "converge", {}, {"inventory_hostname": "h"}, keep=True)
    assert result["failed"] and len(host.sent) == 2


def test_what_a_host_says_of_its_engine_is_one_short_line() -> None:
    answers: t.Iterator[dict[str, t.Any]] = iter(
        [{"engine": {"lacks": "a\n\x1b[31m" + "b" * 5000}}, {"changed": False}]
    )

    def answering(module_name: str, module_args: t.Any, task_vars: t.Any) -> dict[str, t.Any]:
        return next(answers)

    result = payload.execute(answering, "converge", {}, {"inventory_hostname": "h"}, keep=False)
    (warning,) = result["warnings"]
    assert warning.startswith("h: the engine kept there was not run: a??[31mbbb")
    assert warning.isprintable() and len(warning) < 500
    assert warning.endswith("It is left as it is.")


def test_secrets_stay_out_of_what_is_answered() -> None:
    result = {
        "msg": "cannot read s3cret-value",
        "changes": [{"after": {"s3cret-value": ["s3cret-value", 1]}}],
    }
    assert _kept.hidden(result, ["s3cret-value"]) == {
        "msg": "cannot read ********",
        "changes": [{"after": {"********": ["********", 1]}}],
    }


def test_parameters_that_are_wrong() -> None:
    given = {"document": "{", "mode": "undo", "layers": 1, "colour": "red", "root": "/nowhere"}
    message = _entry.converge(given, True, False)["msg"]
    for part in ("colour is no parameter", "document is '{'", "layers is 1", "mode is 'undo'"):
        assert part in message
    assert "needs a document" in _entry.converge({"root": "/nowhere"}, True, False)["msg"]


def test_the_program_without_a_request_says_what_to_use() -> None:
    done = subprocess.run([sys.executable, "-"], input=wire({}), text=True, capture_output=True, check=False)
    assert "ironspan.hybrid.converge" in json.loads(done.stdout)["msg"]
    # A Python that is too old is told so, and does not stumble over the text.
    ast.parse(MODULE.read_text(), feature_version=(3, 7))


PROGRAM = """
import json, sys
from pathlib import Path
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible.executor import module_common
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
built = module_common.modify_module(
    module_name=payload.MODULE,
    module_path=str(Path(payload.__file__).parent.parent / "modules" / "engine.py"),
    module_args=payload.question("converge", json.loads(sys.argv[1]), keep=True),
    templar=Templar(DataLoader()),
    task_vars={"ansible_python_interpreter": "/usr/bin/python3"},
)
print(json.dumps({"style": built.module_style, "text": built.b_module_data.decode()}))
"""


def test_ansible_sends_it_as_it_is(host: HostProcess) -> None:
    """In a process of its own: Ansible's import hooks are not for this one."""
    host.converge(DOCUMENT)
    text = '""" \\ \' \u00e9 \U0001f600 <<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>> syslog.LOG_USER'
    document = {**DOCUMENT, "resources": [{**DOCUMENT["resources"][0], "content": text}]}  # type: ignore[index]
    given = json.dumps({"document": document, "root": str(host.root)})
    done = subprocess.run([sys.executable, "-c", PROGRAM, given], capture_output=True, text=True, check=True)
    built = json.loads(done.stdout)
    # Which means: through the connection's input, without a file on the host.
    assert built["style"] == "new"
    assert len(built["text"]) < 20_000
    ran = subprocess.run(
        [sys.executable, "-"], input=built["text"], text=True, capture_output=True, check=True
    )
    assert json.loads(ran.stdout)["changed"]
    assert (host.root / "etc/a").read_text() == text
