# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changes the password of one BMC, and is killed at a step: ``killed_rotation.py SITE ADDRESS SERIAL STEP``.

A step is the moment before or after something is kept or said to the BMC.
"""

from __future__ import annotations

import os
import signal
import sys
import typing as t
from collections.abc import Callable
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import Place
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import read_factory


def main(folder: str, address: str, serial: str, step: str) -> None:
    """Rotate, and be killed."""
    site, left = Path(folder), [int(step)]
    store = open_store(site / "pki", site / "key")
    store.ensure_cas()

    def around(do: Callable[..., t.Any]) -> Callable[..., t.Any]:
        def done(*args: t.Any, **more: t.Any) -> t.Any:
            _at(left)
            found = do(*args, **more)
            _at(left)
            return found

        return done

    t.cast("t.Any", store.bmcs).keep_account = around(store.bmcs.keep_account)
    t.cast("t.Any", Bmc).patch = around(Bmc.patch)
    place = Place(Endpoint("gpu-1", address), serial, "", read_factory(site / "factory.yml").of(serial))
    rotation.rotate(place, store.bmcs)


def _at(left: list[int]) -> None:
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1


if __name__ == "__main__":
    main(*sys.argv[1:])
