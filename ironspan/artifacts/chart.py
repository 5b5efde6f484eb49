# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Manifests that Helm renders from a chart in a Go module, with reviewed values.

The chart is nobody's copy: it comes with the module, whose digest go.sum pins. What is ours is a small file
of values, and the digest of what comes out: whoever changes a version, a value or Helm sees that digest move,
and reads what changed before writing the new one into the lock file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess

from ironspan.artifacts import cache
from ironspan.artifacts.lock import Chart
from ironspan.cli.outcome import CommandError

VALUES = pathlib.Path(__file__).resolve().parent / "charts"
"""Where the files with values are."""
RECIPE = 1
"""Raise it when this file makes other manifests from the same chart and values."""


def recipe(chart: Chart, folder: pathlib.Path = VALUES) -> str:
    """Return a digest of what decides the manifests, but for Helm and the chart themselves.

    Args:
        chart: the entry of the lock file.
        folder: where the values are.
    """
    path = folder / chart.values
    values = path.read_text(encoding="utf-8") if path.is_file() else ""
    text = json.dumps([RECIPE, dataclasses.asdict(chart), values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def render(
    chart: Chart,
    helm: pathlib.Path,
    source: pathlib.Path,
    target: pathlib.Path,
    folder: pathlib.Path = VALUES,
) -> None:
    """Render a chart into one file of YAML documents.

    Args:
        chart: the entry of the lock file.
        helm: the program.
        source: the chart's folder.
        target: the file to write.
        folder: where the values are.

    Raises:
        CommandError: Helm refuses, or what it renders is not what was reviewed; then the file is kept and
            named, to be compared.
    """
    home = target.with_name("helm")
    command = [
        str(helm), "template", source.name, str(source), "--namespace", chart.namespace,
        "--kube-version", chart.kube_version, "--values", str(folder / chart.values),
    ]  # fmt: skip
    # Helm reads and writes settings below these; none of a person's own may decide what comes out.
    places = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    own = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    answer = subprocess.run(
        command,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**own, **places, "LC_ALL": "C"},
    )
    if answer.returncode != 0:
        said = answer.stderr.decode(errors="replace").strip().splitlines()[-8:]
        raise CommandError(
            f"helm does not render {chart.folder}:\n" + "\n".join(f"  {line}" for line in said),
            f"Check the values in {folder / chart.values}.",
        )
    target.write_bytes(answer.stdout)
    found = cache.digest_of(target).removeprefix("sha256:")
    if chart.sha256 and found != chart.sha256:
        raise CommandError(
            f"{chart.folder} renders to {found}, and {chart.sha256} was reviewed",
            f"Read {target}, then write its digest into the lock file (go.sha256).",
        )
