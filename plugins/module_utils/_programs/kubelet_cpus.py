#!/usr/bin/python3
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lets the kubelet of this host start with another policy of its CPU manager.

The kubelet refuses to start while its state is of another policy than its configuration. This runs before
each of its starts and removes a state of another policy in which no pod has CPUs of its own; one in which
pods have some stays, and the kubelet says why it does not start. Written and started by ironspan; Python 3.9
and its standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t

STATE = "/var/lib/kubelet/cpu_manager_state"


def is_void(text: str, policy: str) -> t.Optional[bool]:
    """Tell whether a state is of another policy, and nobody's CPUs hang on it.

    Args:
        text: the state, as the kubelet writes it.
        policy: that the kubelet is to start with.

    Returns:
        None where pods have CPUs of their own by another policy. What cannot be read is left to the kubelet.
    """
    try:
        state = json.loads(text)
    except ValueError:
        return False
    if not isinstance(state, dict) or not state.get("policyName") or state["policyName"] == policy:
        return False
    return None if state.get("entries") else True


def main(arguments: t.Sequence[str], path: str = STATE) -> int:
    """Remove the state if it is void; return the exit status, which never keeps the kubelet from trying."""
    try:
        with open(path, encoding="utf-8") as file:
            void = is_void(file.read(1 << 20), arguments[0])
        if void:
            os.unlink(path)
            print(f"removed {path}, which was of another policy than {arguments[0]}")
        elif void is None:
            print(
                f"{path}: pods have CPUs of their own by another policy: drain the node first",
                file=sys.stderr,
            )
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
