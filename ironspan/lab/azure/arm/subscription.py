# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The paths of the subscription itself: operations, providers, regions, usages, sizes, lists, names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids, kinds, sizes
from ironspan.lab.azure.arm.errors import ArmError, failure, not_found
from ironspan.lab.azure.arm.rules import services
from ironspan.lab.azure.arm.state import State, subscription_scope
from ironspan.lab.azure.arm.web import Answer, Asked

_SUBSCRIPTION = r"/subscriptions/[^/]+"
_PROVIDER = _SUBSCRIPTION + r"/providers/(?P<provider>[^/]+)"
_PLACE = r"/subscriptions/[^/]+/providers/{}/locations/(?P<location>[^/]+)"
_FILTER = re.compile(
    r"(?P<name>resourceType|tagName|tagValue|name|resourceGroup|location) eq '(?P<value>[^']*)'", re.I
)


class Subscription:
    """Answers requests about the subscription."""

    def __init__(self, state: State) -> None:
        self._state = state
        vault, storage = _PLACE.format(r"Microsoft\.KeyVault"), _PLACE.format(r"Microsoft\.Storage")
        paths: dict[tuple[str, str], Callable[[Asked, dict[str, str]], Answer]] = {
            ("GET", r"/subscriptions"): self._all,
            ("GET", _SUBSCRIPTION): self._one,
            ("GET", _SUBSCRIPTION + "/locations"): self._locations,
            ("GET", _PLACE.format("[^/]+") + "/operations/(?P<id>[^/]+)"): self._status,
            ("GET", _PLACE.format("[^/]+") + "/operationResults/(?P<id>[^/]+)"): self._result,
            ("GET", _SUBSCRIPTION + "/providers"): self._providers,
            ("GET", _PROVIDER): self._provider,
            ("POST", _PROVIDER + "/register"): self._register,
            ("GET", _PROVIDER + "/features/(?P<feature>[^/]+)"): self._no_feature,
            ("GET", _SUBSCRIPTION + r"/providers/Microsoft\.Features/providers/(?P<provider>[^/]+)"
             "/features/(?P<feature>[^/]+)"): self._feature,
            ("POST", _SUBSCRIPTION + r"/providers/Microsoft\.Features/providers/(?P<provider>[^/]+)"
             "/features/(?P<feature>[^/]+)/register"): self._register_feature,
            ("GET", _PLACE.format(r"Microsoft\.Compute") + "/usages"): self._compute_usages,
            ("GET", _PLACE.format(r"Microsoft\.Network") + "/usages"): self._network_usages,
            ("GET", _SUBSCRIPTION + r"/providers/Microsoft\.Compute/skus"): self._skus,
            ("GET", _SUBSCRIPTION + "/resources"): self._resources,
            ("GET", _SUBSCRIPTION + "/resourceGroups"): self._groups,
            ("GET", _SUBSCRIPTION + r"/providers/Microsoft\.KeyVault/deletedVaults"): self._deleted_vaults,
            ("GET", vault + "/deletedVaults/(?P<name>[^/]+)"): self._deleted_vault,
            ("POST", vault + "/deletedVaults/(?P<name>[^/]+)/purge"): self._purge,
            ("POST", _SUBSCRIPTION + r"/providers/Microsoft\.KeyVault/checkNameAvailability"):
            self._vault_name,
            ("POST", _SUBSCRIPTION + r"/providers/Microsoft\.Storage/checkNameAvailability"):
            self._account_name,
            ("GET", storage + "/usages"): self._no_usages,
        }  # fmt: skip
        self._paths = [
            (method, re.compile(path + r"\Z", re.IGNORECASE), answer)
            for (method, path), answer in paths.items()
        ]

    def answer(self, asked: Asked) -> Answer | None:
        """Answer a request; None when it is about something else."""
        for method, path, answer in self._paths:
            found = path.match(asked.path)
            if method == asked.method and found is not None:
                return answer(asked, found.groupdict())
        return None

    def _all(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, {"value": [self._document()]})

    def _one(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, self._document())

    def _document(self) -> dict[str, Any]:
        return {
            "id": subscription_scope(), "subscriptionId": settings.SUBSCRIPTION, "tenantId": settings.TENANT,
            "displayName": "lab", "state": "Enabled", "authorizationSource": "RoleBased",
        }  # fmt: skip

    def _locations(self, asked: Asked, found: dict[str, str]) -> Answer:
        value = [
            {
                "id": f"{subscription_scope()}/locations/{name}", "name": name, "displayName": name,
                "type": "Region",
                "availabilityZoneMappings": [
                    {"logicalZone": zone, "physicalZone": f"{name}-az{zone}"} for zone in zones
                ],
            }
            for name, zones in sizes.REGIONS.items()
        ]  # fmt: skip
        return Answer(200, {"value": value})

    # -- operations ------------------------------------------------------------------------------------------

    def _status(self, asked: Asked, found: dict[str, str]) -> Answer:
        operation = self._state.operations.get(found["id"].lower())
        if operation is None:
            raise ArmError(404, "OperationNotFound", f"The operation '{found['id']}' was not found.")
        status = operation.status
        document: dict[str, Any] = {"id": asked.path, "name": operation.id, "status": status}
        if operation.error is not None:
            document["error"] = operation.error
        elif operation.data.get("output") is not None and status == "Succeeded":
            document["properties"] = {"output": operation.data["output"]}
        return Answer(200, document, self._again(status))

    def _result(self, asked: Asked, found: dict[str, str]) -> Answer:
        operation = self._state.operations.get(found["id"].lower())
        if operation is None:
            raise ArmError(404, "OperationNotFound", f"The operation '{found['id']}' was not found.")
        if operation.status == "Running":
            return Answer(
                202,
                None,
                {
                    **self._again("Running"),
                    "location": f"{asked.base}{asked.path}?api-version={asked.version}",
                },
            )
        if operation.error is not None:
            raise failure(operation.error)
        return Answer(200 if operation.result is not None else 204, operation.result)

    def _again(self, status: str) -> dict[str, str]:
        return {"retry-after": f"{self._state.settings.retry_after_s:g}"} if status == "Running" else {}

    # -- providers and features ------------------------------------------------------------------------------

    def _shown(self, name: str) -> dict[str, Any]:
        types = [one for one in kinds.every() if one.provider == name]
        registered = name in self._state.registered or name in kinds.ALWAYS_REGISTERED
        return {
            "id": f"{subscription_scope()}/providers/{name}", "namespace": name,
            "registrationState": "Registered" if registered else "NotRegistered",
            "registrationPolicy": "RegistrationRequired",
            "resourceTypes": [
                {
                    "resourceType": one.type.partition("/")[2], "locations": list(sizes.REGIONS),
                    "apiVersions": list(one.versions),
                    "zoneMappings": [
                        {"location": region, "zones": list(zones)} for region,
                        zones in sizes.REGIONS.items() if zones
                    ],
                }
                for one in types
            ],
        }  # fmt: skip

    def _providers(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, {"value": [self._shown(one) for one in kinds.PROVIDERS]})

    def _name(self, text: str) -> str:
        for one in kinds.PROVIDERS:
            if one.lower() == text.lower():
                return one
        raise ArmError(404, "InvalidResourceNamespace", f"The resource namespace '{text}' is invalid.")

    def _provider(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, self._shown(self._name(found["provider"])))

    def _register(self, asked: Asked, found: dict[str, str]) -> Answer:
        name = self._name(found["provider"])
        self._state.registered.add(name)
        return Answer(200, self._shown(name))

    def _no_feature(self, asked: Asked, found: dict[str, str]) -> Answer:
        raise not_found(asked.path)

    def _feature(self, asked: Asked, found: dict[str, str]) -> Answer:
        name = f"{found['provider']}/{found['feature']}"
        missing = name.lower() in (one.lower() for one in self._state.settings.features)
        return Answer(
            200,
            {
                "id": asked.path, "name": name, "type": "Microsoft.Features/providers/features",
                "properties": {"state": "NotRegistered" if missing else "Registered"},
            },
        )  # fmt: skip

    def _register_feature(self, asked: Asked, found: dict[str, str]) -> Answer:
        name = f"{found['provider']}/{found['feature']}".lower()
        kept = self._state.settings.features
        self._state.settings.features = [one for one in kept if one.lower() != name]
        return self._feature(
            Asked(asked.method, asked.path.rpartition("/")[0], {}, {}, "", asked.caller), found
        )

    # -- usages and sizes ------------------------------------------------------------------------------------

    def _region(self, text: str) -> str:
        region = sizes.location(text)
        if region not in sizes.REGIONS:
            raise ArmError(
                400,
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location '{text}'.",
            )
        return region

    def _compute_usages(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, {"value": sizes.compute_usages(self._state, self._region(found["location"]))})

    def _network_usages(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, {"value": sizes.network_usages(self._state, self._region(found["location"]))})

    def _no_usages(self, asked: Asked, found: dict[str, str]) -> Answer:
        there = [
            one
            for one in self._state.of_type(services.ACCOUNT)
            if one.document.get("location") == sizes.location(found["location"])
        ]
        name = {"value": "StorageAccounts", "localizedValue": "Storage Accounts"}
        return Answer(
            200, {"value": [{"unit": "Count", "currentValue": len(there), "limit": 250, "name": name}]}
        )

    def _skus(self, asked: Asked, found: dict[str, str]) -> Answer:
        wanted = _FILTER.search(asked.query.get("$filter", ""))
        regions = [self._region(wanted["value"])] if wanted is not None else list(sizes.REGIONS)
        return Answer(200, {"value": [one for region in regions for one in sizes.skus(self._state, region)]})

    # -- lists and names -------------------------------------------------------------------------------------

    def _resources(self, asked: Asked, found: dict[str, str]) -> Answer:
        wanted = {
            one["name"].lower(): one["value"] for one in _FILTER.finditer(asked.query.get("$filter", ""))
        }
        value = []
        for one in self._state.resources.values():
            child = one.type.count("/") > 1 or one.type == ids.GROUP_TYPE
            if child or one.type.startswith("Microsoft.Authorization/") or one.visible_at > self._state.now():
                continue
            tags = one.document.get("tags") or {}
            group = (ids.parse(one.id) or ids.ResourceId("", "", ("",), ("",))).group
            about = {
                "resourcetype": one.type, "name": str(one.document["name"]), "resourcegroup": group,
                "location": str(one.document.get("location", "")), "tagname": wanted.get("tagname", ""),
                "tagvalue": str(tags.get(wanted.get("tagname", ""), "")),
            }  # fmt: skip
            named = "tagname" not in wanted or wanted["tagname"] in tags
            if named and all(about[name].lower() == text.lower() for name, text in wanted.items()):
                value.append(
                    {name: x for name, x in one.document.items() if name not in ("properties", "etag")}
                )
        return Answer(200, {"value": value})

    def _groups(self, asked: Asked, found: dict[str, str]) -> Answer:
        now = self._state.now()
        value = [one.document for one in self._state.of_type(ids.GROUP_TYPE) if one.visible_at <= now]
        return Answer(200, {"value": value})

    def _deleted_vaults(self, asked: Asked, found: dict[str, str]) -> Answer:
        kept = self._state.deleted_vaults
        value = [
            services.deleted_vault(self._state, name, str(one["document"].get("location")))
            for name, one in kept.items()
        ]
        return Answer(200, {"value": value})

    def _deleted_vault(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, services.deleted_vault(self._state, found["name"], found["location"]))

    def _purge(self, asked: Asked, found: dict[str, str]) -> Answer:
        services.purge(self._state, found["name"], found["location"])
        done = self._state.begin("answer", asked.path, 5.0)
        return Answer(202, None, asked.polled(done, True, self._state.settings.retry_after_s, False))

    def _vault_name(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, _availability(services.vault_problem(self._state, str(asked.body.get("name")))))

    def _account_name(self, asked: Asked, found: dict[str, str]) -> Answer:
        return Answer(200, _availability(services.account_problem(self._state, str(asked.body.get("name")))))


def _availability(problem: tuple[str, str] | None) -> dict[str, Any]:
    if problem is None:
        return {"nameAvailable": True}
    return {"nameAvailable": False, "reason": problem[0], "message": problem[1]}
