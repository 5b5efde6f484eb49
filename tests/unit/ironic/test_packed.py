# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the program imports of this tree is what the lock file packs."""

from __future__ import annotations

import subprocess
import sys

from ironspan.artifacts import lock_file
from tests.support.playbooks import ROOT

ASK = """
import sys
import ironspan.ironic.main, ironspan.ironic.care
ours = ("ironspan.", "ansible_collections.ironspan.hybrid.plugins.")
print("\\n".join(name for name, module in sys.modules.items() if name.startswith(ours) and module.__doc__))
"""


def test_nothing_that_is_imported_is_missing_on_hosts() -> None:
    packed = lock_file.load().environments["ironic"].packages
    done = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "ironspan.ironic.database" in imported
    # Packages above a module are packed with it.
    above = {name for module in packed for name in imported if module.startswith(f"{name}.")}
    missing = [
        name
        for name in imported
        if name not in above and not any(name == one or name.startswith(f"{one}.") for one in packed)
    ]
    assert missing == []
