# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The image that jobs run in: its lock is fresh, wheels are unpacked as pip would, and it works."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import pathlib
import subprocess
import tarfile
import zipfile

import pytest
import yaml

from ironspan.artifacts import jobs_image, pack
from ironspan.cli.outcome import CommandError
from tests.support.jobs_image import JobsRoot
from tests.support.playbooks import ROOT
from tests.support.small_plays import mirror_index
from tools import execution_environment
from tools.locked import environment

FOLDER = ROOT / "execution-environment"


def test_the_wheels_of_jobs_are_those_of_the_lock() -> None:
    text = execution_environment.FILE.read_text()
    assert text == execution_environment.text()
    names = set(execution_environment.locked(text))
    assert {"ansible-core", "ansible-runner", "cryptography", "urllib3", "openstacksdk"} <= names
    assert not {"pytest", "mypy", "ironic"} & names
    assert all("--hash=sha256:" in entry for entry in execution_environment.locked(text).values())


def test_the_definition_names_what_is_there() -> None:
    definition = yaml.safe_load((FOLDER / "execution-environment.yml").read_text())
    assert definition["version"] == 3
    files = [one["src"] for one in definition["additional_build_files"]]
    for name in (*files, definition["dependencies"]["system"]):
        assert (FOLDER / name).is_file()


def wheel(folder: pathlib.Path, **members: str) -> pathlib.Path:
    path = folder / "one-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def unpacked(path: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    stream = io.BytesIO()
    archive = pack.Archive(stream)
    jobs_image.unpack(archive, path)
    archive.close()
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as made:
        files = [one for one in made if one.isfile()]
        contents = [made.extractfile(one) for one in files]
        return {
            one.name: (one.mode, content.read())
            for one, content in zip(files, contents, strict=True)
            if content
        }


def test_a_wheel_is_unpacked_with_its_programs(tmp_path: pathlib.Path) -> None:
    entries = "[console_scripts]\none = one.main:Top.run [extra]\n[gui_scripts]\nother = one:gui\n"
    found = unpacked(
        wheel(
            tmp_path,
            **{
                "one/__init__.py": "a",
                "one-1.0.data/platlib/one/fast.so": "b",
                "one-1.0.data/scripts/run.sh": "c",
                "one-1.0.dist-info/entry_points.txt": entries,
                "ansible_collections/kubernetes/core/README.md": "kept",
                "ansible_collections/cisco/ios/README.md": "not kept",
            },
        )
    )
    stub = b"#!/usr/bin/python3\nimport sys\nfrom one.main import Top\nsys.exit(Top.run())\n"
    assert found == {
        f"{jobs_image.PACKAGES}/one/__init__.py": (0o644, b"a"),
        f"{jobs_image.PACKAGES}/one/fast.so": (0o644, b"b"),
        f"{jobs_image.PACKAGES}/one-1.0.dist-info/entry_points.txt": (0o644, entries.encode()),
        f"{jobs_image.PACKAGES}/ansible_collections/kubernetes/core/README.md": (0o644, b"kept"),
        "usr/local/bin/one": (0o755, stub),
    }


@pytest.mark.parametrize("name", ["../evil", "/evil", "one/../../evil"])
def test_a_wheel_that_leaves_its_folder_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(CommandError, match="outside of its folder"):
        unpacked(wheel(tmp_path, **{name: "x"}))


def test_an_entry_point_that_is_code_is_refused() -> None:
    with pytest.raises(CommandError, match="is no entry point"):
        jobs_image.stub("os; import evil")


@pytest.mark.long
def test_ansible_builder_takes_the_definition(tmp_path: pathlib.Path) -> None:
    programs = environment("builder", "half a minute")
    subprocess.run(
        [programs / "ansible-builder", "create", "-f", FOLDER / "execution-environment.yml", "-c", tmp_path],
        check=True,
    )
    made = next(tmp_path.glob("*file")).read_text()
    assert "--require-hashes -r /tmp/requirements.txt" in made
    assert (
        tmp_path / "_build" / "locked" / "requirements.txt"
    ).read_bytes() == execution_environment.FILE.read_bytes()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="root for a container's file system")
def test_a_job_runs_in_the_image_as_somebody_else_than_root(tmp_path: pathlib.Path) -> None:
    root = JobsRoot(tmp_path / "root")
    listed = {one["name"] for one in json.loads(root.bill.read_text())["components"]}
    assert {"ansible_core", "openssh-client", "python3-minimal"} <= listed
    job = root.job
    for name in ("project", "env", "inventory"):
        (job / name).mkdir()
    # As an operator's project would be: playbooks that import those of the collection, and an inventory.
    subprocess.run(["cp", "-r", str(ROOT / "playbooks"), str(job / "project")], check=True)
    subprocess.run(["cp", "-r", str(ROOT / "inventories" / "example"), str(job / "inventory")], check=True)
    index = job / ".cache" / "ironspan" / "mirror" / "index.json"
    index.parent.mkdir(parents=True)
    index.write_text(mirror_index())
    root.hand_over()
    # As a credential gives it to a job.
    inside = functools.partial(root.inside, IRONSPAN_PKI_KEY=base64.b64encode(bytes(32)).decode())

    said = inside("ironspan", "--version")
    assert said.returncode == 0, said.stderr
    assert "ssh" in inside("ssh", "-V").stderr.lower()
    # A user that nobody knew has a line afterwards, as in a pod.
    known = inside("sh", "-c", "id -un && id -u", user=123456)
    assert known.stdout.split() == ["runner", "123456"], known.stderr
    done = inside(
        "ansible-runner", "run", "/runner", "--playbook", "/opt/ironspan/playbooks/validate.yml",
        "--inventory", "/runner/inventory/example",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    site = (
        "cd /opt/ironspan && ansible-playbook --syntax-check -i /runner/inventory/example playbooks/site.yml"
    )
    assert inside("sh", "-c", site).returncode == 0
