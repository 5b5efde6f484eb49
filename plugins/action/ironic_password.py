# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changes the password of the site's own Ironic in the PKI store, and proves that Ironic has it."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import connected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import login_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

PATIENCE_S = 180.0
"""For an Ironic that has just been restarted: half a minute on two busy cores, and some."""
_AGAIN = "run it again: it goes on with the same password"


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.ironic_password``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["changed", "proven"], "required": True}
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Make another password, or prove that it is the one that opens Ironic."""
        secrets = session.store.ironic
        if self._task.check_mode:
            return {"changed": arguments["state"] == "changed"}
        if arguments["state"] == "changed":
            made = secrets.change_password()
            self.say("another password was made" if made else "a change was begun before, and is resumed")
            return {"changed": made}
        login = login_of({"site": session.site})
        _insist_on(login)
        former = secrets.former_password().strip()
        if former and _opens({**login, "auth": {**login["auth"], "password": former}}):
            raise OperationError("the former password still opens Ironic", _AGAIN)
        secrets.password_changed()
        self.say("Ironic has the new password, and the former one opens nothing")
        return {"changed": False}


def _insist_on(login: Result) -> None:
    """Wait for an Ironic that the password opens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connected(**login).conductors()
            return
        except RemoteError as error:
            if time.monotonic() > until:
                raise OperationError(f"Ironic was not seen with its new password: {error}", _AGAIN) from None
        time.sleep(1)


def _opens(login: Result) -> bool:
    try:
        connected(**login).conductors()
    except RemoteError as error:
        if "HTTP 401" in str(error):
            return False
        raise OperationError(
            f"Ironic did not say whether the former password is refused: {error}", _AGAIN
        ) from None
    return True
