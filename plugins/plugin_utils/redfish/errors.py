# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a BMC said or failed to say, in an operator's words."""

from __future__ import annotations

import contextlib
import json
import re
import typing as t
from collections.abc import Collection, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

LONGEST = 300
"""Characters of a BMC's own text that a message repeats."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


_OF_ANSWERS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What Python and sushy make of JSON without end, links that are no URL, and values of another type."""


class BmcError(RemoteError):
    """A BMC cannot be asked, or did not do what it was asked for."""


class Unreachable(BmcError):
    """It does not answer: no connection, cut connection, or not in time."""


class Untrusted(BmcError):
    """Its certificate is not the one that is expected. Nothing was sent to it."""


class Denied(BmcError):
    """It does not take the account or the password (401)."""


class Refused(BmcError):
    """It understood the request and refused it (4xx)."""


class PasswordToChange(Refused):
    """It answers nothing until its factory password is changed."""


class Broken(BmcError):
    """It failed (5xx), or its answer is none that Redfish knows."""


class Unproven(BmcError):
    """It said that the power is as wanted, and what else can be read of it does not say so."""


def plain(text: t.Any, hidden: Collection[str] = ()) -> str:
    """Return somebody else's text on one line, short, and without secrets.

    Args:
        text: what a BMC wrote.
        hidden: secrets that it may repeat.
    """
    found = str(text)
    for secret in filter(None, hidden):
        found = found.replace(secret, "***")
    found = _CONTROL.sub(" ", found).strip()
    return found if len(found) <= LONGEST else found[:LONGEST] + "..."


@contextlib.contextmanager
def told(name: str, what: str, hidden: Collection[str] = ()) -> Iterator[None]:
    """Turn what sushy raises into errors for people.

    Args:
        name: of the BMC.
        what: what is being done, a clause.
        hidden: secrets that must not be repeated.

    Raises:
        BmcError: instead of any error of sushy.
    """
    # sushy is part of the extra "metal"; whoever has no BMC needs none of it.
    from sushy import exceptions

    try:
        yield
    except exceptions.AccessError as error:
        raise _no_access(name, what, error, hidden) from None
    except exceptions.ServerSideError as error:
        raise Broken(
            f"{name}: the BMC failed to {what} (HTTP {error.status_code}: {_said(error, hidden)})",
            "run it again; if it stays so, restart the BMC",
        ) from None
    except exceptions.HTTPError as error:
        raise Refused(
            f"{name}: the BMC refused to {what} (HTTP {error.status_code}: {_said(error, hidden)})"
        ) from None
    except exceptions.ConnectionError as error:
        raise Unreachable(
            f"{name}: no answer from the BMC while it was to {what}: {plain(error, hidden)}",
            "look at its network and its power",
        ) from None
    except (exceptions.SushyError, *_OF_ANSWERS) as error:
        raise Broken(
            f"{name}: the BMC's answer is not what Redfish says, while it was to {what}: "
            f"{plain(error, hidden)}",
            "update its firmware",
        ) from None


def _no_access(name: str, what: str, error: t.Any, hidden: Collection[str]) -> BmcError:
    if error.status_code == 401:
        return Denied(f"{name}: the BMC does not take the account or its password (HTTP 401)")
    if "PasswordChangeRequired" in json.dumps(error.extended_info or []):
        return PasswordToChange(f"{name}: the BMC answers nothing until its factory password is changed")
    return Refused(
        f"{name}: the account may not {what} (HTTP {error.status_code}: {_said(error, hidden)})",
        "use an account with the role Administrator",
    )


def _said(error: t.Any, hidden: Collection[str]) -> str:
    """Return the messages of an error, all of them."""
    info = error.extended_info
    entries = info if isinstance(info, list) else [info]
    texts = [str(entry["Message"]) for entry in entries if isinstance(entry, dict) and entry.get("Message")]
    return plain("; ".join(texts) or error.detail or "it does not say why", hidden)
