# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A job builds a cluster: site.yml in the file system of the jobs image, by ansible-runner, not as root."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
import yaml

from ironspan.artifacts import cache, jobs_image
from ironspan.lab import Lab
from tests.support.jobs_image import JobsRoot
from tests.support.playbooks import recap_of

from .conftest import Cluster, lab_name

pytestmark = [pytest.mark.lab, pytest.mark.long]
KEYS = ("id_ed25519", "known_hosts")


class Jobs(Cluster):
    """A lab, and the image whose jobs work on it."""

    root: JobsRoot

    def prepare(self) -> None:
        """Lay into /runner what a controller mounts there: project, inventory, key, secrets, store."""
        job = self.root.job
        for name in ("env", "inventory", "ssh", "reports"):
            (job / name).mkdir()
        source = self.inventory.parent
        shutil.copytree(source / "group_vars", job / "inventory" / "group_vars")
        content = yaml.safe_load(self.inventory.read_text())
        variables = content["all"]["vars"]
        keys = pathlib.Path(variables["ansible_ssh_private_key_file"]).parent
        for name in KEYS:
            shutil.copy(keys / name, job / "ssh")
        for name in ("ansible_ssh_private_key_file", "ansible_ssh_common_args"):
            variables[name] = variables[name].replace(str(keys), "/runner/ssh")
        variables["site_pki_store"] = "/runner/pki"
        del variables["site_pki_key_file"]
        (job / "inventory" / "hosts.yml").write_text(yaml.safe_dump(content))
        index = job / ".cache" / "ironspan" / "mirror"
        index.mkdir(parents=True)
        shutil.copy(cache.Cache().mirror / "index.json", index)
        # As the controller's settings and a credential give them to each job.
        environment = {
            "IRONSPAN_PKI_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
            "ANSIBLE_CALLBACKS_ENABLED": "ironspan_report",
            "ANSIBLE_CALLBACK_PLUGINS": f"/{jobs_image.PROJECT}/ironspan/callbacks",
            "IRONSPAN_REPORT_FOLDER": "/runner/reports",
            "ANSIBLE_HOST_KEY_CHECKING": "True",
        }
        (job / "env" / "envvars").write_text(json.dumps(environment))
        self.root.hand_over()

    def launch(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run site.yml as a controller does, in the project that the image has."""
        return self.root.inside(
            "ansible-runner", "run", "/runner", "--project-dir", f"/{jobs_image.PROJECT}",
            "--playbook", "playbooks/site.yml", "--inventory", "/runner/inventory", *options, timeout=1800,
        )  # fmt: skip


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    made = Jobs(
        Lab(lab_name("isjob")),
        pathlib.Path(tempfile.mkdtemp(prefix="isj-", dir="/tmp")),
    )
    try:
        made.root = JobsRoot(made.folder / "root")
        made.lab.up(azure=1, rack=1, azure_services=False)
        made.prepare()
        yield made
    finally:
        made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_a_job_builds_the_cluster_and_the_next_one_changes_nothing(jobs: Jobs) -> None:
    done = jobs.launch()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert jobs.ready_nodes() == {"az-1", "rack-1"}
    (told,) = re.findall(r"report: /runner/(reports/\S+\.html)", done.stdout)
    page = jobs.root.job / told
    assert page.stat().st_uid == jobs_image.USER
    record = json.loads(page.with_suffix(".json").read_text())
    assert (record["playbook"], record["state"]) == ("site", "done")
    assert record["changes_made"] > 50 and record["verify"]["ok"] is True
    again = jobs.launch()
    assert again.returncode == 0, again.stdout[-6000:] + again.stderr
    assert not any(row["changed"] for row in recap_of(again.stdout).values()), again.stdout[-6000:]
