# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Speaks to Azure's resource manager about the containers of backups."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.account import faults, plain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection, sdk
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import (
    Found,
    Policy,
    Step,
    StoreSetupError,
    Wanted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import Allowed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version

_ASSIGNMENTS = api_version("Microsoft.Authorization")


class Management:
    """The resource manager, for the containers of one subscription.

    Args:
        connection: how it is spoken to.
        subscription: its id.

    Raises:
        RemoteError: the SDK is missing.
    """

    def __init__(self, connection: Connection, subscription: str) -> None:
        self._models = sdk("azure.mgmt.storage").models
        self._rest = sdk("azure.core.rest")
        self._errors = sdk("azure.core.exceptions")
        self._url = connection.url
        self._client = connection.client("azure.mgmt.storage", "StorageManagementClient", subscription)

    def account_faults(self, wanted: Wanted) -> list[str]:
        """Return what is wrong with the account. Raises StoreSetupError when it cannot be read."""
        account = self._ask(
            wanted,
            lambda: self._client.storage_accounts.get_properties(wanted.resource_group, wanted.account),
        )
        if account is None:
            raise StoreSetupError(
                f"there is no storage account {wanted.account} in the resource group {wanted.resource_group}",
                "create it (docs/backup-store.md), or correct subscription, resource_group and account",
            )
        return faults(wanted.account, account)

    def find(self, wanted: Wanted) -> Found | None:
        """Return the container as it is, None when it is not there."""
        where = (wanted.resource_group, wanted.account, wanted.container)
        container = self._ask(wanted, lambda: self._client.blob_containers.get(*where))
        if container is None:
            return None
        policy = self._ask(wanted, lambda: self._client.blob_containers.get_immutability_policy(*where))
        days = getattr(policy, "immutability_period_since_creation_in_days", None)
        public = plain(container.public_access).lower() not in ("", "none")
        if not days:
            # What the service answers for a container without a policy.
            return Found(public, None)
        append = policy.allow_protected_append_writes or policy.allow_protected_append_writes_all
        locked = plain(policy.state).lower() == "locked"
        return Found(public, Policy(int(days), bool(append), locked, str(policy.etag or "")))

    def apply(self, wanted: Wanted, step: Step) -> None:
        """Make one change. Raises StoreSetupError."""
        where = (wanted.resource_group, wanted.account, wanted.container)
        containers, models = self._client.blob_containers, self._models
        policy = models.ImmutabilityPolicy(
            properties=models.ImmutabilityPolicyProperty(
                immutability_period_since_creation_in_days=wanted.retention_days,
                # Only where the policy is made: the service does not let an extension name it.
                **({} if step.verb == "extend" else {"allow_protected_append_writes": True}),
            )
        )
        private = models.BlobContainer(public_access="None")

        def same() -> dict[str, t.Any]:
            """The policy that was looked at, so that nobody's later change is overwritten or locked."""
            found = self.find(wanted)
            etag = found.policy.etag if found and found.policy else ""
            return {"etag": etag, "match_condition": sdk("azure.core").MatchConditions.IfNotModified}

        requests: dict[str, t.Callable[[], t.Any]] = {
            "create": lambda: containers.create(*where, private),
            "close": lambda: containers.update(*where, private),
            "protect": lambda: containers.create_or_update_immutability_policy(*where, policy),
            "change": lambda: containers.create_or_update_immutability_policy(*where, policy, **same()),
            "extend": lambda: containers.extend_immutability_policy(*where, policy, **same()),
            "lock": lambda: containers.lock_immutability_policy(*where, **same()),
        }
        if self._ask(wanted, requests[step.verb]) is None:
            raise StoreSetupError(f"{wanted.name} went away while it was set up", "run it again")

    def assigned(self, wanted: Wanted, principal: str) -> list[Allowed] | None:
        """Return the role definitions that an identity has on the container, inherited ones too.

        None when the controller's identity may not read role assignments.
        """
        filtered = f"assignedTo('{principal}')"
        listed = self._get(f"{wanted.scope}/providers/Microsoft.Authorization/roleAssignments", filtered)
        if listed is None:
            return None
        found = []
        for one in listed.get("value", []):
            definition = self._get(one["properties"]["roleDefinitionId"])
            for permission in (definition or {}).get("properties", {}).get("permissions", []):
                found.append(
                    Allowed(
                        tuple(permission.get("dataActions") or ()),
                        tuple(permission.get("notDataActions") or ()),
                    )
                )
        return found

    def _get(self, path: str, filtered: str = "") -> dict[str, t.Any] | None:
        query = {"api-version": _ASSIGNMENTS, **({"$filter": filtered} if filtered else {})}
        request = self._rest.HttpRequest("GET", f"{self._url}{path}", params=query)
        response = self._client.send_request(request)
        return t.cast("dict[str, t.Any]", response.json()) if response.status_code == 200 else None

    def _ask(self, wanted: Wanted, request: t.Callable[[], t.Any]) -> t.Any:
        """Make a request; None when what it is about is not there."""
        try:
            return request()
        except self._errors.ResourceNotFoundError:
            return None
        except self._errors.ClientAuthenticationError as error:
            raise StoreSetupError(
                f"the controller could not prove to Azure who it is ({_code(error)})",
                "log in (az login), or set etcd_backup_management to an identity that this controller has",
            ) from None
        except self._errors.HttpResponseError as error:
            raise _explained(wanted, error) from None
        except self._errors.AzureError as error:
            raise StoreSetupError(
                f"Azure's resource manager does not answer ({type(error).__name__})",
                "check the way from the controller to management.azure.com, and proxies",
            ) from None


def _explained(wanted: Wanted, error: t.Any) -> StoreSetupError:
    said = f"{error.status_code} {_code(error)}".strip()
    if error.status_code == 403:
        return StoreSetupError(
            f"the controller's identity may not manage {wanted.name} ({said})",
            "assign it Storage Account Contributor on the account",
        )
    if error.status_code == 412:
        return StoreSetupError(f"somebody else changes {wanted.name} right now ({said})", "run it again")
    return StoreSetupError(f"Azure refused what was asked of {wanted.name} ({said}): {_message(error)}")


def _code(error: t.Any) -> str:
    return str(getattr(getattr(error, "error", None), "code", "") or "")


def _message(error: t.Any) -> str:
    return str(getattr(getattr(error, "error", None), "message", "") or error.reason or "").splitlines()[0][
        :300
    ]
