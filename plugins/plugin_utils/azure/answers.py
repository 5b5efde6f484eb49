# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure's resource manager says when it refuses: errors inside errors, some of them JSON in a text."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import sdk
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

TRANSIENT = frozenset(
    {
        "anotheroperationinprogress",
        "retryableerror",
        "retryableerrorduetoanotheroperation",
        "deploymentactive",
        "deploymentstackinnonterminalstate",
        "principalnotfound",
        "toomanyrequests",
        "internalservererror",
        "serverbusy",
        "operationpreempted",
        "inusesubnetcannotbeupdated",
    }
)
"""Codes, in lower case, after which the same request may succeed a little later."""
UNPROVEN = frozenset({"authorizationfailed", "linkedauthorizationfailed", "forbiddenbyrbac", "forbidden"})
"""Codes of a right that is missing, or that was given so lately that it is not seen everywhere yet."""
_WRAPPERS = frozenset(
    {
        "deploymentfailed",
        "deploymentstackdeploymentfailed",
        "deploymentstackvalidationfailed",
        "resourcedeploymentfailure",
        "invalidtemplatedeployment",
        "multipleerrorsoccurred",
        "conflict",
        "badrequest",
        "",
    }
)
"""Codes that say that something is in them, and nothing else."""
_DEPTH = 12
_TEXT = 300
_MOST = 8


class Said(t.NamedTuple):
    """One thing that went wrong.

    Args:
        code: Azure's.
        message: for people.
        target: what it is about, "" when that is not said.
    """

    code: str
    message: str
    target: str = ""

    def text(self) -> str:
        """Return it in one line."""
        where = f" ({self.target})" if self.target and self.target not in self.message else ""
        line = " ".join(self.message.split())
        return f"{self.code}{where}: {line[:_TEXT]}" if line else f"{self.code}{where}"


class Refused(RemoteError):
    """Azure refused something.

    Args:
        what: that was asked of it.
        said: what it says about that.
        status: of the answer.
    """

    def __init__(self, what: str, said: t.Sequence[Said], status: int = 0) -> None:
        lines = "; ".join(one.text() for one in said[:_MOST])
        more = f"; and {len(said) - _MOST} more" if len(said) > _MOST else ""
        super().__init__(f"Azure refused {what}: {lines}{more}", remedy_of(said))
        self.said = tuple(said)
        self.status = status

    @property
    def codes(self) -> frozenset[str]:
        """The codes, in lower case."""
        return frozenset(one.code.lower() for one in self.said)

    @property
    def transient(self) -> bool:
        """Whether nothing of it stays so: the same request may succeed a little later."""
        return bool(self.codes) and self.codes <= TRANSIENT


_REMEDIES: t.Final[t.Mapping[str, str]] = {
    "authorizationfailed": "give the controller's identity what docs/azure-apply.md lists under Rights",
    "linkedauthorizationfailed": "give the controller's identity what docs/azure-apply.md lists under Rights",
    "quotaexceeded": "ask for more quota in the portal, or write smaller numbers",
    "operationnotallowed": "ask for more quota in the portal, or write smaller numbers",
    "skunotavailable": "write another size or other zones",
    "overconstrainedzonalallocationrequest": "write another size or other zones, or try it later",
    "allocationfailed": "write another size or other zones, or try it later",
    "requestdisallowedbypolicy": "the message names the policy: comply with it, or have an exemption made",
    "denyassignmentauthorizationfailed": "a deny assignment of another stack or a managed app is in the way",
    "storageaccountalreadytaken": "write another name for the storage account",
    "propertychangenotallowed": "what cannot be changed in place has to be replaced",
    "roleassignmentupdatenotpermitted": "delete the role assignment of the former identity, run it again",
}


def remedy_of(said: t.Iterable[Said]) -> str:
    """Return what to do about the first code that something is known about."""
    return next((_REMEDIES[one.code.lower()] for one in said if one.code.lower() in _REMEDIES), "")


def leaves(body: t.Any) -> list[Said]:
    """Return what an answer says went wrong, without what only wraps it; each once.

    Args:
        body: of the answer, or a part of it, as JSON.
    """
    found = dict.fromkeys(_leaves(body, 0))
    inner = [one for one in found if one.code.lower() not in _WRAPPERS]
    return inner or list(found)


def _leaves(body: t.Any, depth: int) -> Iterator[Said]:
    if depth > _DEPTH:
        return
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return
    if isinstance(body, list):
        for one in body:
            yield from _leaves(one, depth + 1)
    if not isinstance(body, Mapping):
        return
    inner: list[Said] = []
    for key in ("error", "details", "innererror", "statusMessage", "properties"):
        inner += _leaves(body.get(key), depth + 1)
    message = body.get("message")
    if isinstance(message, str) and message.lstrip().startswith("{"):
        inner += _leaves(message, depth + 1)
    inner += _policies(body.get("additionalInfo"))
    yield from inner
    code = body.get("code")
    if isinstance(code, str) and code and (not inner or code.lower() not in _WRAPPERS):
        text = "" if inner and isinstance(message, str) and message.lstrip().startswith("{") else message
        yield Said(code, str(text or ""), str(body.get("target") or ""))


def _policies(info: t.Any) -> Iterator[Said]:
    """Return the policies that refuse something, which Azure keeps beside the message."""
    for one in info if isinstance(info, list) else ():
        said = one.get("info") if isinstance(one, Mapping) else None
        if isinstance(said, Mapping) and (name := said.get("policyDefinitionDisplayName")):
            yield Said("RequestDisallowedByPolicy", str(name), str(said.get("policyAssignmentName") or ""))


def asked(what: str, request: t.Callable[[], t.Any]) -> t.Any:
    """Make a request.

    Args:
        what: for messages: what is asked of Azure.
        request: makes it.

    Returns:
        Its answer; None when what it is about is not there.

    Raises:
        Refused: Azure refused it; an operation that failed while it ran is refused too, whatever its status.
        RemoteError: it could not be asked.
    """
    errors = sdk("azure.core.exceptions")
    try:
        return request()
    except errors.ClientAuthenticationError as error:
        reason = " ".join(str(error.message).split())[:_TEXT]
        raise RemoteError(
            f"the controller could not prove to Azure who it is: {reason}",
            "log in (az login), or set azure_management to an identity that this controller has",
        ) from None
    except errors.HttpResponseError as error:
        said = leaves(_body(error))
        if error.status_code == 404 and not {one.code.lower() for one in said} - _ABSENT:
            return None
        if not said:
            said = [Said(f"HTTP {error.status_code}", str(error.reason or ""))]
        raise Refused(what, said, int(error.status_code or 0)) from None
    except errors.AzureError as error:
        raise RemoteError(
            f"Azure's resource manager does not answer ({type(error).__name__})",
            "check the way from the controller to management.azure.com, and proxies",
        ) from None


_ABSENT = frozenset(
    {
        "resourcenotfound",
        "notfound",
        "resourcegroupnotfound",
        "deploymentnotfound",
        "deploymentstacknotfound",
        "deletedvaultnotfound",
        "vaultnotfound",
    }
)


def _body(error: t.Any) -> t.Any:
    try:
        return json.loads(error.response.text())
    except (AttributeError, ValueError):
        code = getattr(getattr(error, "error", None), "code", "")
        return {"error": {"code": code or "", "message": str(error.message or "")}}
