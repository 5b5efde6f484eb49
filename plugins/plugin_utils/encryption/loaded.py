# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which configuration each API server has loaded, as it says itself in its metrics.

An API server looks at its file once a minute (apiserver, encryptionconfig/controller) and tells the SHA-256
of what it has loaded in ``apiserver_encryption_config_controller_last_config_info``. A file that it cannot
use leaves it with the one before.
"""

from __future__ import annotations

import hashlib
import re
import time
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

LONGEST_WAIT_S = 180
"""Three of its looks."""
PAUSE_S = 2
_METRIC = re.compile(
    r'^apiserver_encryption_config_controller_last_config_info\{.*?[,{]hash="sha256:([0-9a-f]{64})"', re.M
)

Apis = Mapping[str, Callable[[], Api]]
"""What makes a client of each API server, by the name of its host."""


def not_loaded(apis: Apis, configuration: str) -> list[str]:
    """Return the API servers that have not loaded a configuration, a sentence each.

    Args:
        apis: the API servers.
        configuration: the text of the file.
    """
    wanted = hashlib.sha256(configuration.encode()).hexdigest()
    return [reason for host, api in apis.items() if (reason := _reason(host, api, wanted))]


def _reason(host: str, api: Callable[[], Api], wanted: str) -> str:
    try:
        found = _METRIC.search(api().text("/metrics"))
    except ClusterError as error:
        return f"{host}: nobody knows what its API server has loaded: {error}"
    if found is None:
        return f"{host}: its API server has not loaded any encryption configuration"
    if found[1] != wanted:
        return f"{host}: its API server has loaded another encryption configuration than the store has"
    return ""


def wait(
    apis: Apis,
    configuration: str,
    seconds: float = LONGEST_WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], t.Any] = time.sleep,
) -> list[str]:
    """Wait until all API servers have loaded a configuration; return what is missing in the end."""
    end = clock() + seconds
    while reasons := not_loaded(apis, configuration):
        if clock() > end:
            break
        sleep(PAUSE_S)
    return reasons
