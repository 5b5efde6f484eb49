# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where a controller and what it needs are: addresses, a repository, folders, names, identities."""

from __future__ import annotations

import posixpath
import re
import urllib.parse

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import out_of_reach
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed

HOST, NOTIFICATIONS, API = "awx_host", "awx_notifications", "site_api_endpoint"
PROJECT, SERVICE = "awx_project_url", "awx_webhook_service"
FOLDER, INVENTORY, PLANS = "awx_playbooks_folder", "awx_inventory_path", "awx_plans_folder"
TENANT, CLIENT = "awx_azure_tenant_id", "awx_azure_client_id"
_NAMES = ("awx_organization", "awx_project_credential", "awx_project_signature_credential")
_GROUPS = "awx_instance_groups"
_SERVICES = {"github.com": "github", "gitlab.com": "gitlab", "bitbucket.org": ""}
"""Where everybody's repositories are, and whose pushes they send; bitbucket_dc is a server of one's own."""
_PAGE = re.compile(r"https://(github\.com/[^/]+/[^/]+/[^/]+|[^/]+/.+/-/(tree|blob)/)")
_NOT_SHARED = (
    "/bin", "/boot", "/etc", "/lib", "/lib64", "/run", "/sbin", "/tmp", "/usr", "/var", "/runner",
    "/runner/artifacts", "/runner/env", "/runner/inventory", "/runner/project",
)  # fmt: skip
"""Folders of the system that a job's container has for itself, and those that ansible-runner makes anew."""


def check_addresses(draft: Draft) -> None:
    """The controller, and those who are notified, are somewhere else than pods, services and the API."""
    host = str(draft.site_value(HOST) or "")
    message = _unreachable(draft, host)
    parts, endpoint = urllib.parse.urlsplit(host), str(draft.site_value(API) or "")
    if not message and endpoint and parts.netloc.lower() == endpoint.lower():
        message = f"{host} is the cluster's own API ({API})"
    if message:
        draft.problems.add(draft.site_place(HOST), HOST, message, "write the address that people open")
    for entry in entries(draft, NOTIFICATIONS):
        if message := _unreachable(draft, entry.text("url")):
            entry.problem("url", message, "write the address of who is notified")
        channels = entry.value.get("channels")
        for channel in channels if isinstance(channels, list) else ():
            if "://" in str(channel):
                remedy = "write its name, such as '#ops'; the token of secret_variable says who speaks"
                entry.problem("channels", f"{channel} is an address, and no channel", remedy)


def _unreachable(draft: Draft, url: str) -> str:
    try:
        address = parsed(urllib.parse.urlsplit(url).hostname or "")
    except ValueError:
        return ""  # It has been named as no URL.
    return out_of_reach(draft, address, lab=True)


def check_repository(draft: Draft) -> None:
    """A repository is one, sends its own service's pushes, and has an inventory beside the playbooks."""
    url, service = str(draft.site_value(PROJECT) or ""), str(draft.site_value(SERVICE) or "")
    if _PAGE.match(url):
        remedy = f"write {url.partition('/-/')[0] if '/-/' in url else '/'.join(url.split('/')[:5])}"
        draft.problems.add(draft.site_place(PROJECT), PROJECT, f"{url} is a page of a repository", remedy)
    match = re.match(r"(?:https://|ssh://)?(?:[^@/]+@)?([^:/]+)", url)
    own = _SERVICES.get(match[1].lower()) if match else None
    if service and own is not None and own != service:
        remedy = f"write {own}" if own else "leave it out: it can run the check by a schedule"
        message = f"is {service}, and {url} sends no pushes of that kind"
        draft.problems.add(draft.site_place(SERVICE), SERVICE, message, remedy)
    folder, path = (posixpath.normpath(str(draft.site_value(name) or ".")) for name in (FOLDER, INVENTORY))
    parts = path.split("/")
    if inner := next((part for part in parts if part in ("group_vars", "host_vars")), ""):
        before = "/".join(parts[: parts.index(inner)]) or "."
        message = f"{path} has variables, and no hosts"
        draft.problems.add(draft.site_place(INVENTORY), INVENTORY, message, f"write {before}")
    elif path == folder != ".":
        message = f"{path} is {FOLDER} too, and playbooks are no hosts"
        draft.problems.add(draft.site_place(INVENTORY), INVENTORY, message, "write where the inventory is")


def check_plans(draft: Draft) -> None:
    """Plans are where the next job sees them too."""
    folder = posixpath.normpath(str(draft.site_value(PLANS) or "."))
    if folder in _NOT_SHARED:
        message = f"{folder} is each job's own, and the next one would see no plan"
        draft.problems.add(
            draft.site_place(PLANS), PLANS, message, "write where a shared volume is, such as /plans"
        )


def check_names(draft: Draft) -> None:
    """Names are those that the controller has: it takes a space at an end for another one."""
    for variable in _NAMES:
        name = str(draft.site_value(variable) or "")
        if name != name.strip():
            place, message = draft.site_place(variable), f"{name!r} has a space at an end"
            draft.problems.add(place, variable, message, f"write {name.strip()}")
    names, host = draft.site_value(_GROUPS), draft.writer(_GROUPS)
    for index, name in enumerate(names if isinstance(names, list) and host else ()):
        if host and isinstance(name, str) and name != name.strip():
            place = draft.inner_place(host, _GROUPS, index)
            message = f"{name!r} has a space at an end"
            draft.problems.add(place, f"{_GROUPS}[{index}]", message, f"write {name.strip()}")


def check_identity(draft: Draft) -> None:
    """Jobs have an identity of the tenant that the estate is in."""
    subscription, tenant = (
        str(draft.site_value(name) or "") for name in ("azure_subscription", "azure_tenant")
    )
    theirs, client = (str(draft.site_value(name) or "") for name in (TENANT, CLIENT))
    if not subscription or not theirs or not client:
        return
    if tenant and theirs.lower() != tenant.lower():
        message = f"is another tenant than azure_tenant ({tenant}), whose tokens are refused"
        draft.problems.add(draft.site_place(TENANT), TENANT, message, f"write {tenant}")
    if client.lower() == subscription.lower():
        message = "is the identifier of the subscription, and no identity"
        draft.problems.add(draft.site_place(CLIENT), CLIENT, message, "write the identity's client ID")


CHECKS = (check_addresses, check_repository, check_plans, check_names, check_identity)
