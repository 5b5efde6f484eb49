# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The image that jobs run in as a folder, and commands inside of it as somebody else than root."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tarfile
from collections.abc import Mapping

from ironspan.artifacts import cache, jobs_image
from ironspan.artifacts.lock import native_arch
from tests.support.playbooks import ROOT

ENTER = (
    'set -e; mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/tmp"; '
    'chmod 1777 "$0/tmp"; user=$1; root=$0; shift; '
    'exec chroot --userspec="$user:0" "$root" /usr/local/bin/entrypoint "$@"'
)
"""What runs in namespaces of its own: all mounts go with it."""
LOCK = ROOT / "execution-environment" / "requirements.txt"


class JobsRoot:
    """The image, built and unpacked. Needs root, mmdebstrap, PyPI and a Debian mirror.

    Args:
        folder: is made.

    Attributes:
        bill: its bill of materials.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        laid, self.bill = jobs_image.build(native_arch(), cache.Cache(), LOCK, print)
        image = self.bill.parent
        manifest = json.loads((image / "manifests" / laid.digest).read_text())
        for layer in manifest["layers"]:
            with tarfile.open(image / "blobs" / layer["digest"]) as archive:
                # Ours; other filters take the group's right to write.
                archive.extractall(folder, filter="fully_trusted")
        for name in ("dev", "proc"):
            (folder / name).mkdir(exist_ok=True)

    @property
    def job(self) -> pathlib.Path:
        """Return what is /runner inside."""
        return self.folder / "runner"

    def hand_over(self) -> None:
        """Give all of /runner to the user of jobs, as a controller's mounts are."""
        for path in (self.job, *self.job.rglob("*")):
            os.chown(path, jobs_image.USER, 0, follow_symlinks=False)

    def inside(
        self, *command: str, user: int = jobs_image.USER, timeout: float = 300, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside.

        Args:
            command: program and arguments.
            user: its number; the group is root.
            timeout: seconds.
            more: variables of the environment.
        """
        environment: Mapping[str, str] = {
            "PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin",
            "LC_ALL": "C.UTF-8",
        }
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, self.folder, str(user), *command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            env={**environment, **more},
            check=False,
        )
