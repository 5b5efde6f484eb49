# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""BMCs of servers: a password and a certificate of the site's own, and few network services.

None is ever removed: what is kept of one stays in the PKI store, by the serial number of its server.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import (
    CLOUD,
    CLOUDS,
    endpoint,
    login_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import accounts, protocols, rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import (
    PORT,
    Endpoint,
    shown_certificate,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import (
    Entered,
    Place,
    Visit,
    enter,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import visit as usual
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError, Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import (
    FactoryAccounts,
    read_factory,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.ironic_login import (
    TELL,
    BmcLogins,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import kept_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    AT_ONCE,
    Found,
    RemoteError,
    State,
    Step,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

STORE, KEY, FACTORY = "site_pki_store", "site_pki_key_file", "ironspan_factory"
VARIABLES = ("site", STORE, KEY, FACTORY, CLOUD, CLOUDS)
RENEW_DAYS = 60
"""A certificate that ends within as many days is signed again."""
_SECONDS = {"rotate": 15, "close": 10, "certify": 60}


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the BMCs of the servers that are expected and asked for.

    Raises:
        BmcError: the file of expected servers has problems, or a name is none of it.
    """
    closed = [str(name) for name in value_of(arguments, "ironspan_close")]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    servers = expected_servers(
        value_of(arguments, "ironspan_expected"),
        names=value_of(arguments, "ironspan_servers"),
        refusal=BmcError,
    )
    return {
        server.name: {
            "address": server.bmc_address,
            "serial": server.serial,
            "slot": server.slot,
            "rack": server.rack,
            "closed": sorted(closed),
            "certificate": bool(value_of(arguments, "ironspan_certify")),
            "rotated_since": now if value_of(arguments, "ironspan_rotate") else "",
        }
        for server in servers
    }


def opened(variables: Mapping[str, t.Any]) -> BmcKind:
    """Return the kind; the store's key is asked for once an account is needed."""
    store = open_store(str(variables[STORE]), variables.get(KEY) or None)
    site = variables.get("site")
    ironic = bool(variables.get(CLOUD)) or bool(site and endpoint(site))
    return BmcKind(
        store.bmcs,
        read_factory(str(variables.get(FACTORY) or "")),
        store.ensure_cas,
        connect=(lambda: connected(**login_of(variables))) if ironic else None,
    )


class BmcKind:
    """The kind.

    Args:
        keeper: where accounts are kept, and what signs certificates.
        factory: what BMCs come with.
        prepare: makes the store where there is none; called before something is kept.
        visit: opens a BMC.
        ports: port of HTTPS by address, where it is another than 443.
        connect: returns the Ironic that has to know these accounts; None for none.
    """

    name = "bmc"
    consent = ""
    at_once = AT_ONCE
    most_failures = 0

    def __init__(
        self,
        keeper: rotation.Authority,
        factory: FactoryAccounts,
        prepare: Callable[[], object] = lambda: None,
        visit: Visit = usual,
        ports: Mapping[str, int] | None = None,
        connect: Callable[[], IronicApi] | None = None,
    ) -> None:
        self._keeper, self._factory, self._prepare, self._visit = keeper, factory, prepare, visit
        self._ports = dict(ports or {})
        self._connect, self._logins = connect, BmcLogins(keeper)
        self._ironic: IronicApi | None = None
        self._nodes: Mapping[str, tuple[Mapping[str, t.Any], Node]] = {}
        self._unasked = ""

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Look at every BMC, many at a time; what is wrong with one is said of that one."""
        asked = {name: state for name, state in wanted.items() if state is not None}
        self._ask_ironic()
        with concurrent.futures.ThreadPoolExecutor(max(1, min(AT_ONCE, len(asked)))) as pool:
            return dict(zip(asked, pool.map(self._found, asked, asked.values()), strict=True))

    def _ask_ironic(self) -> None:
        """Ask which nodes there are, and what they know; that it does not answer is said of each BMC."""
        if self._connect is None:
            return
        try:
            self._ironic = self._connect()
            self._nodes = self._ironic.entries("extra", "driver")
        except RemoteError as error:
            self._unasked = f"the account can only be changed when Ironic hears of it: {error}"

    def _found(self, name: str, wanted: State) -> Found:
        place = self._place(name, wanted)
        try:
            entered = enter(place, self._keeper, self._visit)
            with entered.bmc as bmc:
                if self._unasked and entered.by != "factory":
                    return Found(None, fault=self._unasked)
                found = self._seen(place, entered, bmc, wanted)
                return dataclasses.replace(found, state={**(found.state or {}), **self._told(name, place)})
        except BmcError as error:
            return Found(None, fault=str(error))

    def _seen(self, place: Place, entered: Entered, bmc: Bmc, wanted: State) -> Found:
        kept = kept_of(self._keeper.account(place.serial))
        state: dict[str, t.Any] = {"serial": place.serial, "account": entered.by}
        if entered.identity is None:
            # It says nothing more before its password is changed; the steps after that find the rest.
            return Found({**state, "rotated": "", "open": list(wanted["closed"]), "certificate": ""})
        notes = []
        try:
            on = [name for name, is_on in protocols.enabled(bmc).items() if is_on]
        except Refused as error:
            on = []
            notes.append(str(error))
        others = accounts.others(bmc)
        if others:
            notes.append(f"other accounts may log in: {', '.join(others)}")
        if kept.login and entered.by == "factory":
            notes.append("the site's account is gone: the BMC was exchanged or reset since")
        sha256, _ = shown_certificate(place.endpoint, bmc.deadline.insist(bmc.name))
        ours = bool(kept.ends) and sha256 in kept.pins
        state.update(
            rotated=kept.since if entered.by == "site" else "",
            open=sorted(name for name in on if name in wanted["closed"]),
            certificate=kept.ends if ours else "",
        )
        identity = entered.identity
        more = {"model": identity.model, "bmc": identity.bmc, "bios": identity.bios, "power": identity.power}
        return Found(state, identity=place.serial, notes=tuple(notes), more=more)

    def _told(self, name: str, place: Place) -> State:
        """Return whether Ironic has the account, as part of a state; nothing of a server it does not know."""
        entry = self._nodes[name][0] if name in self._nodes else {}
        if entry.get("driver") != "redfish":
            return {}
        return {"ironic": self._logins.standing(place.serial, entry.get("extra"))}

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps: the password first, because whoever knows the factory's can undo the rest."""
        if wanted is None or found is None:
            return []
        made = []
        if found["account"] != "site" or found["rotated"] < wanted["rotated_since"]:
            again = {"pending": "end the change of the password that a run began"}
            made.append(_step("rotate", again.get(found["account"], "set a password of the site's own")))
        if "ironic" in found and (made or found["ironic"] != "current"):
            made.append(TELL)
        if found["open"]:
            made.append(_step("close", f"switch off {', '.join(found['open'])}"))
        if wanted["certificate"] and _ends_soon(found["certificate"]):
            made.append(
                _step("certify", "install a certificate of the site's authority", "its web server restarts")
            )
        return made

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the BMC as it will be; times are not known before."""
        if wanted is None or found is None:
            return found
        told = {"ironic": "current"} if "ironic" in found else {}
        return {**found, "account": "site", "open": [], **told}

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Take one step; another server in the place is left alone.

        Raises:
            BmcError: it did not come about.
        """
        if wanted is None:
            return
        place = self._place(name, wanted)
        self._prepare()
        if step.verb == "tell" and self._ironic is not None:
            self._logins.tell(self._ironic, str(self._nodes[name][0]["uuid"]), place.serial)
        elif step.verb == "rotate":
            rotation.rotate(place, self._keeper, opened=self._visit)
        elif step.verb == "certify":
            rotation.certify(place, self._keeper, opened=self._visit)
        else:
            with enter(place, self._keeper, self._visit).bmc as bmc:
                protocols.close(bmc, wanted["closed"])

    def lane(self, name: str, wanted: State | None) -> str:
        """Return the same for all: one BMC does not know of the other."""
        return ""

    def _place(self, name: str, wanted: State) -> Place:
        address, serial = str(wanted["address"]), str(wanted["serial"])
        endpoint = Endpoint(name, address, self._ports.get(address, PORT))
        return Place(endpoint, serial, str(wanted["slot"]), self._factory.of(serial))


def _step(verb: str, what: str, disruption: str = "") -> Step:
    return Step(verb, what, disruption=disruption, seconds=_SECONDS[verb])


def _ends_soon(ends: str) -> bool:
    if not ends:
        return True
    left = datetime.datetime.fromisoformat(ends) - datetime.datetime.now(datetime.UTC)
    return left < datetime.timedelta(days=RENEW_DAYS)
