# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program with shorter pauses, and a lease as long as its first argument says (seconds).

15 s are the shortest lease of the services, which a folder need not keep to. What the program does is the
same; tests of agents that follow each other wait less.
"""

from __future__ import annotations

import sys

from ironspan.backup import file_store, main
from ironspan.backup.agent import run, session
from ironspan.program import leader

if __name__ == "__main__":
    file_store.LEASE_SECONDS = (1, 60)  # type: ignore[attr-defined]
    leader.SECONDS = int(sys.argv.pop(1))
    leader.MARGIN_SECONDS = leader.SECONDS / 3
    leader.RENEW_SECONDS = 1.0
    leader.STANDBY_SECONDS = 0.5
    run.STAND_BACK_SECONDS = 1.0
    session.LOG_PAUSE_SECONDS = 0.5  # type: ignore[attr-defined]
    sys.exit(main.main())
