# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""checkov over the deployment of an estate that has something of everything: ``python -m tools.checkov``.

checkov pins what it needs so tightly that it gets an environment of its own, in the cache, from
tools/checkov.lock. It asks nobody but package registries, once.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import typing as t

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template

from tests.unit.estate.conftest import RICH, made
from tools.locked import environment

KNOWN = pathlib.Path(__file__).with_name("checkov.yml")


def judged(programs: pathlib.Path, rendered: t.Mapping[str, t.Any]) -> tuple[int, dict[str, set[str]]]:
    """Return how many checks passed, and those that failed, each with the resources.

    Args:
        programs: of the environment.
        rendered: the template.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "estate.json"
        file.write_text(json.dumps(rendered))
        arguments = [
            "--framework",
            "arm",
            "--file",
            str(file),
            "--output",
            "json",
            "--compact",
            "--skip-download",
        ]
        done = subprocess.run(
            [str(programs / "checkov"), *arguments],
            stdout=subprocess.PIPE,
            check=False,
            cwd=folder,
            text=True,
        )
    report = json.loads(done.stdout)
    failed: dict[str, set[str]] = {}
    for one in report["results"]["failed_checks"]:
        failed.setdefault(one["check_id"], set()).add(one["resource"])
    return report["summary"]["passed"], failed


def main() -> int:
    """Say what failed and is not known, and what is known and did not fail; 0 when nothing is either."""
    known = yaml.safe_load(KNOWN.read_text())
    passed, failed = judged(environment("checkov", "about two minutes"), template(made(**RICH)))
    for check in sorted(set(failed) - set(known)):
        print(f"{check}: {', '.join(sorted(failed[check]))}; correct it, or write why not into {KNOWN.name}")
    for check in sorted(set(known) - set(failed)):
        print(f"{check}: is passed; take it out of {KNOWN.name}")
    skipped = sum(len(failed[check]) for check in failed if check in known)
    print(f"{passed} checks passed, {skipped} are passed over with a reason ({len(known)} kinds)")
    return 0 if set(failed) == set(known) else 1


if __name__ == "__main__":
    sys.exit(main())
