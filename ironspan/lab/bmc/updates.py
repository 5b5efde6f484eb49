# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A BMC's UpdateService: takes a firmware file from an address, checks it, and writes it.

It follows DMTF's schemas UpdateService v1.14 and Task v1.7. The BIOS that it writes runs from the next reset
on, its own firmware at once. A file of the lab's firmware is JSON: ``component``, ``version``.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
import urllib.error
import urllib.request

from ironspan.lab.bmc.resources import ROOT, Document, State, error
from ironspan.lab.bmc.servers import Answer

SERVICE = f"{ROOT}/UpdateService"
TASKS = f"{ROOT}/TaskService/Tasks"
_ACTION = f"{SERVICE}/Actions/UpdateService.SimpleUpdate"
_FETCHED_WITHIN_S = 10.0
_LARGEST = 1 << 20
Lie = t.Literal["", "fails", "keeps", "hangs"]
"""How updates go wrong: the task fails, the old version still runs afterwards, the task does not end."""


@dataclasses.dataclass(slots=True)
class Task:
    """One update.

    Args:
        component: ``bios`` or ``bmc``; "" for a file that is no firmware.
        version: that it brings.
        state: as Redfish calls it.
        message: what it says.
    """

    component: str
    version: str
    state: str
    message: str


class Updates:
    """The service of one BMC.

    Args:
        state: what the BMC remembers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.lie: Lie = ""
        self.tasks: list[Task] = []
        self.fetched: list[str] = []
        """The addresses that files were taken from."""

    def answer(self, method: str, path: str, body: Document | None) -> Answer | None:
        """Answer what is about updates; None for anything else."""
        if method == "POST" and path == _ACTION:
            return self._begun(str((body or {}).get("ImageURI") or ""))
        if method != "GET":
            return None
        if path == SERVICE:
            return Answer(200, _service())
        matched = path.removeprefix(f"{TASKS}/") if path.startswith(f"{TASKS}/") else ""
        if not matched.isdecimal() or not 0 < int(matched) <= len(self.tasks):
            return None
        return self._told(int(matched))

    def reset(self) -> None:
        """Go on with what waits for the server's reset."""
        for task in self.tasks:
            if task.component == "bios" and task.state == "Running" and self.lie != "hangs":
                self._end(task)

    def _begun(self, address: str) -> Answer:
        if any(task.state == "Running" for task in self.tasks):
            return Answer(503, error("ServiceTemporarilyUnavailable", "Another update is being installed."))
        self.fetched.append(address)
        task = _task_of(address)
        self.tasks.append(task)
        if task.state == "Running" and self.lie == "fails":
            task.state, task.message = "Exception", f"Writing the {task.component} failed: flash error 0x1f."
        elif task.component == "bmc" and task.state == "Running" and self.lie != "hangs":
            self._end(task)
        return self._told(len(self.tasks), accepted=True)

    def _end(self, task: Task) -> None:
        task.state, task.message = "Completed", "The update was installed."
        if self.lie != "keeps":
            setattr(self._state, {"bios": "bios", "bmc": "firmware"}[task.component], task.version)

    def _told(self, number: int, *, accepted: bool = False) -> Answer:
        path, task = f"{TASKS}/{number}", self.tasks[number - 1]
        document: Document = {
            "@odata.id": path,
            "@odata.type": "#Task.v1_7_4.Task",
            "Id": str(number),
            "Name": "Firmware update",
            "TaskState": task.state,
            "TaskStatus": "Critical" if task.state == "Exception" else "OK",
            "Messages": [{"MessageId": "Update.1.0.Progress", "Message": task.message}],
        }
        return Answer(202 if accepted or task.state == "Running" else 200, document, location=path)


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""What the site serves is asked for without a proxy."""


def _task_of(address: str) -> Task:
    """Fetch a file, as a BMC does, and return what becomes of it."""
    try:
        with _OPENER.open(address, timeout=_FETCHED_WITHIN_S) as answer:
            content = json.loads(answer.read(_LARGEST))
        component, version = str(content["component"]), str(content["version"])
    except (OSError, urllib.error.URLError) as problem:
        return Task("", "", "Exception", f"The image could not be transferred from {address}: {problem}.")
    except (ValueError, KeyError, TypeError):
        return Task("", "", "Exception", "The image is not for this hardware.")
    if component not in ("bios", "bmc"):
        return Task("", "", "Exception", "The image is not for this hardware.")
    return Task(component, version, "Running", "The update is being installed.")


def _service() -> Document:
    return {
        "@odata.id": SERVICE,
        "@odata.type": "#UpdateService.v1_14_0.UpdateService",
        "Id": "UpdateService",
        "Name": "Update Service",
        "ServiceEnabled": True,
        "Actions": {
            "#UpdateService.SimpleUpdate": {
                "target": _ACTION,
                "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
            }
        },
    }
