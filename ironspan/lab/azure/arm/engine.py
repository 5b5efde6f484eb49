# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Resources, written and deleted: what is checked, what becomes of them, and how long it takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ironspan.lab.azure.arm import ids, kinds, rules, schema, sizes
from ironspan.lab.azure.arm.bodies import merged, without_secrets
from ironspan.lab.azure.arm.errors import ArmError, not_found
from ironspan.lab.azure.arm.faults import NamedFaults
from ironspan.lab.azure.arm.faults import error as fault_error
from ironspan.lab.azure.arm.guards import Caller, check_busy, check_denied, check_location, check_place
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.machines import Driver, boots, described
from ironspan.lab.azure.arm.rules.common import Write, check_links
from ironspan.lab.azure.arm.rules.compute import DISK, MACHINE
from ironspan.lab.azure.arm.state import Operation, Resource, State

#: What only Azure writes at the top of a document; whoever sends it back is not refused.
_ENVELOPE = ("id", "name", "type", "systemData", "etag", "eTag")
_DELETE_S = 2.0


class Engine:
    """Writes and deletes resources of one state."""

    def __init__(self, state: State, driver: Driver) -> None:
        self.state = state
        self.driver = driver
        self.faults = NamedFaults()
        #: Kind of an operation -> what its next step is.
        self.steps: dict[str, Callable[[Operation], None]] = {
            "put": self._put_done,
            "delete": self._delete_done,
            "answer": self._answered,
            "power": self._power_done,
        }

    def advance(self) -> bool:
        """Do what is due. Returns whether anything was."""
        moved = False
        while True:
            now = self.state.now()
            due = [
                one for one in self.state.operations.values() if one.status == "Running" and one.due <= now
            ]
            if not due:
                return moved
            for operation in sorted(due, key=lambda one: one.due):
                if operation.status == "Running":
                    self.steps[operation.kind](operation)
            moved = True

    # -- writing ---------------------------------------------------------------------------------------------

    def prepare(self, id: ResourceId, version: str, body: dict[str, Any], partial: bool = False) -> Write:
        """Return a checked write, before the rest of the estate is asked.

        Raises:
            ArmError: Type, version, body, region, group or what the type itself refuses.
        """
        kind = kinds.find(id.type)
        kinds.check_version(kind, version, str(body.get("location", "")))
        sent = {name: copy.deepcopy(one) for name, one in body.items() if name not in _ENVELOPE}
        wrong = schema.problems(kind.model, sent, partial)
        if wrong:
            details = [{"code": one.code, "message": one.message, "target": one.path} for one in wrong]
            raise ArmError(
                400, wrong[0].code, wrong[0].message, details if len(wrong) > 1 else (), wrong[0].path
            )
        old = self.state.find(id.text)
        if partial:
            if old is None:
                raise not_found(id.text)
            sent = merged(old.written, sent)
        check_location(kind, id, sent, old)
        if not kind.tagged and sent.get("tags"):
            raise ArmError(
                400, "InvalidRequestContent", f"The type {kind.type} takes no tags.", target="tags"
            )
        document = {
            "id": (old.id if old is not None else id.text),
            "name": id.name,
            "type": kind.type,
            **copy.deepcopy(sent),
        }
        if old is not None:
            document["name"] = old.document["name"]
        write = Write(self.state, id, document, old)
        rules.of(id.type).preflight(write)
        return write

    def write(
        self, id: ResourceId, version: str, body: dict[str, Any], caller: Caller, partial: bool = False
    ) -> tuple[Resource, Operation | None, bool]:
        """Write a resource.

        Args:
            id: Its id.
            version: The api-version.
            body: What was sent.
            caller: Who asks.
            partial: PATCH: what is not sent stays.

        Returns:
            The resource, the operation that finishes it (None: it is done), whether it is new.

        Raises:
            ArmError: It is refused; nothing has changed.
        """
        kind = kinds.find(id.type)
        fault = self.faults.choose("put", id)
        if fault is not None and not (fault.shows_late and kind.seconds):
            raise fault_error(fault, id)
        check_place(self.state, kind, id)
        check_denied(self.state, id, "write", caller)
        check_busy(self.state, id)
        if id.type.lower() == "microsoft.network/virtualnetworks/subnets":
            return self._write_subnet(id, version, body, caller)
        write = self.prepare(id, version, body, partial)
        check_links(write, id)
        own = rules.of(id.type)
        own.check(write)
        if "location" in write.document:
            write.document["location"] = sizes.location(str(write.document["location"]))
        written = {name: copy.deepcopy(one) for name, one in write.document.items() if name not in _ENVELOPE}
        sent = without_secrets(
            {name: copy.deepcopy(one) for name, one in body.items() if name not in _ENVELOPE}
        )
        if partial and write.old is not None:
            sent = merged(write.old.written, sent)
        own.complete(write)
        late = fault_error(fault, id) if fault is not None else None
        return self._store(kind, id, write, sent or written, late)

    def _store(
        self, kind: kinds.Kind, id: ResourceId, write: Write, sent: dict[str, Any], late: ArmError | None
    ) -> tuple[Resource, Operation | None, bool]:
        state, new = self.state, write.old is None
        state.resources.setdefault(id.key, Resource({}))
        resource = state.resources[id.key]
        resource.document, resource.written = write.document, sent
        if new:
            resource.created = state.now()
            delay = (
                state.settings.role_delay_s
                if kind.provider == "Microsoft.Authorization"
                else state.settings.list_delay_s
            )
            resource.visible_at = state.now() + delay
        if not kind.seconds:
            if kind.provider != "Microsoft.Authorization":
                resource.properties["provisioningState"] = "Succeeded"
            rules.of(id.type).done(state, resource)
            return resource, None, new
        resource.properties["provisioningState"] = "Creating" if new else "Updating"
        operation = state.begin("put", resource.id, kind.seconds if new else min(kind.seconds, 5.0))
        operation.data = {"error": late.document()} if late is not None else {}
        resource.operation = operation.id
        return resource, operation, new

    def _write_subnet(
        self, id: ResourceId, version: str, body: dict[str, Any], caller: Caller
    ) -> tuple[Resource, Operation | None, bool]:
        network = self.state.find(id.parent.text) if id.parent is not None else None
        if network is None or id.parent is None:
            raise not_found(id.text)
        sent = copy.deepcopy(network.written)
        subnets = sent.setdefault("properties", {}).setdefault("subnets", [])
        others = [one for one in subnets if str(one.get("name")).lower() != id.name.lower()]
        sent["properties"]["subnets"] = [*others, {"name": id.name, "properties": body.get("properties", {})}]
        resource, operation, _ = self.write(id.parent, version, sent, caller)
        return resource, operation, len(others) == len(subnets)

    def _put_done(self, operation: Operation) -> None:
        resource = self.state.find(operation.target)
        if (
            resource is not None
            and resource.type == MACHINE
            and boots(self.state, self.driver, resource, operation)
        ):
            return
        operation.status = "Succeeded"
        if resource is None:
            return
        resource.operation = ""
        late = operation.data.get("error")
        if late is not None:
            operation.status, operation.error = "Failed", late
            resource.properties["provisioningState"] = "Failed"
            return
        resource.properties["provisioningState"] = "Succeeded"
        before = self._machines()
        rules.of(resource.type).done(self.state, resource)
        operation.result = resource.document
        self._drive(before)

    def _machines(self) -> dict[str, dict[str, Any]]:
        return {one.key: described(self.state, one) for one in self.state.of_type(MACHINE)}

    def _drive(self, before: dict[str, dict[str, Any]]) -> None:
        """Tell the driver of machines that came or went with something else: a scale set, a group."""
        after = self._machines()
        for key, machine in before.items():
            if key not in after:
                self.driver.remove(machine)
        for key, machine in after.items():
            if key not in before:
                self.driver.start(machine)

    # -- deleting --------------------------------------------------------------------------------------------

    def delete(self, id: ResourceId, caller: Caller) -> Operation | None:
        """Delete a resource and what is below it.

        Returns:
            The operation, None when it is gone at once.

        Raises:
            ArmError: It is refused; ResourceNotFound when it is not there.
        """
        kind = kinds.find(id.type)
        resource = self.state.find(id.text)
        subnet = id.type.lower() == "microsoft.network/virtualnetworks/subnets"
        if resource is None and not (subnet and self.state.part(id.text)):
            raise not_found(id.text)
        fault = self.faults.choose("delete", id)
        if fault is not None and not fault.shows_late:
            raise fault_error(fault, id)
        check_denied(self.state, id, "delete", caller)
        check_busy(self.state, id)
        if resource is None:
            return self._delete_subnet(id, caller)
        if kind.type != ids.GROUP_TYPE:
            rules.of(id.type).deletable(self.state, resource)
        group = kind.type == ids.GROUP_TYPE
        if not group and kind.deleted == 200:
            self._remove(resource)
            return None
        resource.properties["provisioningState"] = "Deleting"
        operation = self.state.begin("delete", resource.id, _DELETE_S * (5 if group else 1))
        operation.data = {"error": fault_error(fault, id).document()} if fault is not None else {}
        resource.operation = operation.id
        return operation

    def _delete_subnet(self, id: ResourceId, caller: Caller) -> Operation | None:
        assert id.parent is not None
        network = self.state.find(id.parent.text)
        assert network is not None
        sent = copy.deepcopy(network.written)
        subnets = sent.get("properties", {}).get("subnets") or []
        sent["properties"]["subnets"] = [
            one for one in subnets if str(one.get("name")).lower() != id.name.lower()
        ]
        return self.write(id.parent, kinds.find(id.parent.type).versions[0], sent, caller)[1]

    def _delete_done(self, operation: Operation) -> None:
        operation.status = "Succeeded"
        resource = self.state.find(operation.target)
        if resource is None:
            return
        late = operation.data.get("error")
        if late is not None:
            resource.operation = ""
            resource.properties["provisioningState"] = "Failed"
            operation.status, operation.error = "Failed", late
            return
        self._remove(resource)

    def _remove(self, resource: Resource) -> None:
        """Take a resource and everything in it, with what goes with each."""
        before = self._machines()
        inner = sorted(self.state.inside(resource.id), key=lambda one: -one.key.count("/"))
        for one in [*inner, resource]:
            if self.state.resources.pop(one.key, None) is not None:
                rules.of(one.type).deleted(self.state, one)
                if one.type == DISK:
                    self.driver.forget_disk(str(one.document["name"]))
        for key in [key for key in self.state.deployments if ids.below(key, resource.key)]:
            del self.state.deployments[key]
        self._drive(before)

    # -- machines --------------------------------------------------------------------------------------------

    def power(self, id: ResourceId, action: str) -> Operation:
        """Start, stop, deallocate or restart a machine. Raises ArmError."""
        machine = self.state.find(id.text)
        if machine is None:
            raise not_found(id.text)
        fault = self.faults.choose("action", id)
        if fault is not None:
            raise fault_error(fault, id)
        check_busy(self.state, id)
        operation = self.state.begin("power", machine.id, 5.0, action=action)
        machine.operation = operation.id
        return operation

    def _power_done(self, operation: Operation) -> None:
        operation.status = "Succeeded"
        machine = self.state.find(operation.target)
        if machine is None:
            return
        machine.operation = ""
        about = described(self.state, machine)
        action = operation.data["action"]
        if action in ("start", "restart", "reapply", "redeploy"):
            if action in ("restart", "redeploy"):
                self.driver.stop(about)
            machine.power = "running"
            self.driver.start(about)
        else:
            machine.power = "deallocated" if action == "deallocate" else "stopped"
            self.driver.stop(about)

    def _answered(self, operation: Operation) -> None:
        """What was worked out at the start is shown now."""
        operation.status = "Failed" if operation.data.get("error") else "Succeeded"
        operation.error = operation.data.get("error")
        operation.result = operation.data.get("result")
