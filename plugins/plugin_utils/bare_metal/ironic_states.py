# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ironic's provision states: what each means, where it leads by itself, and what may be asked of it.

Checked against Ironic 39.0.0's own state machine by a test.
"""

from __future__ import annotations

import typing as t

Sort = t.Literal["settled", "failed", "moving", "waiting", "held"]


class State(t.NamedTuple):
    """A provision state.

    Args:
        sort: ``settled`` and ``failed`` stay until somebody asks for something, ``moving`` and ``waiting``
            (for the agent in the ramdisk) end by themselves, ``held`` waits for a person.
        means: what is going on, for people.
        then: the state it ends in when all goes well; "" where it stays.
        failed: the state it ends in when it is aborted or fails; "" where that cannot be.
    """

    sort: Sort
    means: str
    then: str = ""
    failed: str = ""


STATES: t.Final[dict[str, State]] = {
    "enroll": State("settled", "known to Ironic, its BMC not tried yet"),
    "verifying": State("moving", "its BMC is tried", "manageable", "enroll"),
    "manageable": State("settled", "its BMC answers"),
    "inspecting": State("moving", "it is inspected", "manageable", "inspect failed"),
    "inspect wait": State("waiting", "its agent inspects it", "manageable", "inspect failed"),
    "inspect failed": State("failed", "its inspection failed"),
    "cleaning": State("moving", "it is cleaned", "available", "clean failed"),
    "clean wait": State("waiting", "its agent cleans it", "available", "clean failed"),
    "clean failed": State("failed", "its cleaning failed"),
    "clean hold": State("held", "a clean step holds it"),
    "available": State("settled", "clean, without an operating system"),
    "deploying": State("moving", "an operating system is written", "active", "deploy failed"),
    "wait call-back": State("waiting", "its agent writes an operating system", "active", "deploy failed"),
    "deploy failed": State("failed", "the deployment failed"),
    "deploy hold": State("held", "a deploy step holds it"),
    "deploy complete": State("moving", "an operating system was written", "active"),
    "active": State("settled", "its operating system runs"),
    "deleting": State("moving", "it is taken down", "available", "error"),
    "deleted": State("moving", "it was taken down", "available"),
    "error": State("failed", "taking it down failed"),
    "adopting": State("moving", "its operating system is adopted", "active", "adopt failed"),
    "adopt failed": State("failed", "its operating system was not adopted"),
    "rescuing": State("moving", "it goes into rescue", "rescue", "rescue failed"),
    "rescue wait": State("waiting", "its rescue system starts", "rescue", "rescue failed"),
    "rescue": State("settled", "its rescue system runs"),
    "rescue failed": State("failed", "it did not go into rescue"),
    "unrescuing": State("moving", "it leaves rescue", "active", "unrescue failed"),
    "unrescue failed": State("failed", "it did not leave rescue"),
    "servicing": State("moving", "it is serviced", "active", "service failed"),
    "service wait": State("waiting", "its agent services it", "active", "service failed"),
    "service failed": State("failed", "servicing it failed"),
    "service hold": State("held", "a service step holds it"),
}


class Move(t.NamedTuple):
    """What may be asked of a node in a state.

    Args:
        verb: what Ironic's API is told (``target``).
        to: the state it ends in when all goes well.
        wipes: whether what is on its disks is gone then.
        interrupts: whether an operating system that runs ends, or restarts.
        what: for people.
        minutes: how long it takes, an estimate for a server with eight GPUs.
    """

    verb: str
    to: str
    wipes: bool
    interrupts: bool
    what: str
    minutes: int


_MANAGE = Move("manage", "manageable", False, False, "make it manageable", 1)
_PROVIDE = Move("provide", "available", True, False, "make it available; its disks' metadata are erased", 20)
_DEPLOY = Move("active", "active", True, False, "write the operating system", 25)
_REBUILD = Move("rebuild", "active", True, True, "write the operating system again", 25)
_DELETE = Move(
    "deleted", "available", True, True, "take its operating system down; its disks' metadata are erased", 25
)
_ADOPT = Move("adopt", "active", False, False, "adopt the operating system that runs", 1)
_RESCUE = Move("rescue", "rescue", False, True, "start its rescue system", 15)
_UNRESCUE = Move("unrescue", "active", False, False, "start its operating system again", 10)
_BACK = Move("abort", "active", False, False, "end servicing; its operating system goes on", 1)

MOVES: t.Final[dict[str, tuple[Move, ...]]] = {
    "enroll": (_MANAGE,),
    "manageable": (_PROVIDE, _ADOPT),
    "inspect failed": (_MANAGE,),
    "clean failed": (_MANAGE,),
    "adopt failed": (_MANAGE, _ADOPT),
    "available": (_DEPLOY, _MANAGE),
    "deploy failed": (_DEPLOY, _DELETE),
    "error": (_REBUILD, _DELETE),
    "active": (_REBUILD, _DELETE, _RESCUE),
    "rescue": (_UNRESCUE, _DELETE),
    "rescue failed": (_UNRESCUE, _RESCUE, _DELETE),
    "unrescue failed": (_UNRESCUE, _RESCUE, _DELETE),
    "service failed": (_BACK, _RESCUE, _DELETE),
}
"""What leads on from a state that stays, without the chores: inspection, cleaning by hand, servicing."""

INSPECT = Move("inspect", "manageable", False, False, "inspect it", 15)
CLEAN = Move("clean", "manageable", False, False, "clean it", 30)
SERVICE = Move("service", "active", False, True, "service it", 30)

DELETABLE = ("enroll", "manageable", "adopt failed")
"""States in which Ironic lets go of a node, also where ``allow_deleting_available_nodes`` is off."""
FAULTS: t.Final[dict[str, str]] = {
    "clean failure": "clean failed",
    "rescue abort failure": "rescue failed",
    "service failure": "service failed",
    "power failure": "",
}
"""Why Ironic itself put a node into maintenance, to the state in which it may end; "" for none."""

KEEPING = (
    "bios.apply_configuration", "bios.factory_reset", "firmware.update", "management.update_firmware",
    "management.reset_bmc_to_known_state", "management.clear_job_queue", "management.reset_idrac",
    "management.set_bmc_clock", "power.reboot", "deploy.burnin_cpu", "deploy.burnin_memory",
    "deploy.burnin_network",
)  # fmt: skip
"""Clean and service steps that leave disks alone. Burning in disks does not."""


def erases(steps: t.Iterable[str]) -> bool:
    """Return whether clean or service steps may take what is on disks: all do that are not known not to.

    Args:
        steps: names with their interface, for example ``deploy.erase_devices`` or ``firmware.update``.
    """
    return any(step not in KEEPING for step in steps)
