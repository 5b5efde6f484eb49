# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an operation may look at while it works out its steps."""

from __future__ import annotations

import importlib
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import ALLOW_DESTRUCTIVE, HOSTS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import OPERATIONS, SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import renamed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object

HOSTS_VARIABLE = HOSTS.name
CONSENT_VARIABLE = ALLOW_DESTRUCTIVE.name


class Context:
    """Inventory and live state, asked for only when needed.

    Args:
        session: the site's cluster.
        arguments: the variables of the run.
        operation: whose steps are worked out; it says whether groups can be named.
    """

    def __init__(self, session: Session, arguments: Mapping[str, t.Any], operation: str = SITE) -> None:
        self.session = session
        self.arguments = arguments
        self._groups = operation in OPERATIONS and OPERATIONS[operation].groups
        self._api: Api | None = None
        self._members: list[Member] | None = None

    @property
    def site(self) -> Site:
        """The site as the inventory has it."""
        return self.session.site

    @property
    def hosts(self) -> list[Host]:
        """The hosts that the operator named, in the order given; empty when none was.

        Raises:
            OperationError: the inventory has no such host.
        """
        return named_hosts(self.site, self.arguments.get(HOSTS_VARIABLE), self._groups)

    def api(self) -> Api:
        """Return a client of the API."""
        if self._api is None:
            self._api = self.session.api()
        return self._api

    def nodes(self) -> dict[str, Object]:
        """Return all Node objects of the cluster by their names, by one request."""
        return {str(node["metadata"]["name"]): node for node in self.api().get("/api/v1/nodes")["items"]}

    def etcd_members(self) -> list[Member]:
        """Return what every host of the group etcd says of itself, asked once."""
        if self._members is None:
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import ask_settled

            addresses = {host.name: host.address for host in self.site.group("etcd")}
            self._members = ask_settled(addresses, self.session.etcd_context())
        return self._members


def arguments_of(operation: str, extra_variables: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what the operator asks of an operation, which its plan fixes, under the names of today.

    Args:
        operation: its name.
        extra_variables: of the command line.
    """
    declared = catalogue.OPERATIONS.get(operation)
    if declared is None:
        return {}
    own = {entry.name for entry in declared.arguments if not entry.of_run and not entry.secret}
    return {name: value for name, value in sorted(renamed(extra_variables, declared).items()) if name in own}


def insist_on_the_same(given: Mapping[str, t.Any], planned: Mapping[str, t.Any]) -> None:
    """Refuse to apply a plan with other arguments than it was made with.

    Raises:
        OperationError: they differ.
    """
    if {name: str(value) for name, value in given.items()} == {n: str(v) for n, v in planned.items()}:
        return
    options = " ".join(f"-e {name}={value}" for name, value in planned.items())
    raise OperationError(
        f"the plan was made {f'with {options}' if planned else 'without arguments'}, "
        f"this run has {', '.join(given) or 'none'}",
        "give the same ones; 'ironspan apply PLAN' does so by itself",
    )


def named_hosts(site: Site, value: t.Any, groups: bool = False) -> list[Host]:
    """Return the hosts of a list, or of a text with commas.

    Args:
        site: from the inventory.
        value: the list or text.
        groups: whether a name may also be that of a group, which stands for all its hosts.

    Raises:
        OperationError: the inventory has no such host.
    """
    parts = value.split(",") if isinstance(value, str) else list(value or ())
    given = [name for part in parts if (name := str(part).strip())]
    if groups:
        given = [host for name in given for host in _hosts_of(site, name) or [name]]
    names = list(dict.fromkeys(given))
    unknown = [name for name in names if name not in site.hosts]
    if unknown:
        raise OperationError(
            f"{HOSTS_VARIABLE} names {', '.join(unknown)}, which the inventory of {site.name} does not have",
            "write names of hosts as the inventory has them, with commas between",
        )
    return [site.hosts[name] for name in names]


def _hosts_of(site: Site, group: str) -> list[str]:
    if group in site.hosts:
        return [group]
    return [host.name for host in site.hosts.values() if group == "all" or group in host.groups]


def module_of(operation: str) -> t.Any:
    """Return the module that knows the steps of an operation; None for one that has none.

    Such are ``site``, and those whose every change is of a remote thing: it stands with that in the plan.

    Raises:
        OperationError: there is no such operation.
    """
    if operation == SITE:
        return None
    declared = OPERATIONS.get(operation)
    if declared is None:
        raise OperationError(
            f"there is no operation {operation!r}", f"write one of {', '.join(sorted([SITE, *OPERATIONS]))}"
        )
    if not declared.steps:
        return None
    package = __name__.rpartition(".")[0]
    return importlib.import_module(f"{package}.{operation}")


def steps_of(operation: str, context: Context) -> list[Step]:
    """Return the steps of an operation, see ``module_of``.

    Raises:
        OperationError: it is refused.
        ValueError: it has a step that it does not declare, so that no play is known to perform it.
    """
    module = module_of(operation)
    if module is None:
        return []
    steps: list[Step] = list(module.steps(context))
    declared = {*OPERATIONS[operation].steps, *OPERATIONS[operation].said}
    if undeclared := {step.action for step in steps} - declared:
        raise ValueError(f"{operation} does not declare {', '.join(sorted(undeclared))} among its steps")
    return steps


def left_for_site(operation: str, steps: Sequence[Step]) -> list[str]:
    """Return what an operation leaves for the next run of site.yml, by the module's ``left_for_site``.

    Args:
        operation: its name.
        steps: what it does; of one that does nothing nothing is said.
    """
    tell = getattr(module_of(operation), "left_for_site", None)
    return list(tell(steps)) if tell and steps else []


def hosts_in_any_order(operation: str) -> bool:
    """Tell whether hosts may come in another order than in the plan, see ``unplanned``."""
    return operation != SITE and OPERATIONS[operation].any_order


def bound_to(operation: str, context: Context) -> dict[str, t.Any]:
    """Return the state that a plan is for, by the operation's ``bound_to``; empty when it has none."""
    bound = getattr(module_of(operation), "bound_to", None)
    return dict(bound(context)) if bound is not None else {}


def insist_on_the_state(operation: str, context: Context, planned: Mapping[str, t.Any]) -> None:
    """Refuse a plan that is for another state than there is, by the operation's ``insist_on_bound``.

    Raises:
        OperationError: the plan was applied before, or something else was done meanwhile.
    """
    insist = getattr(module_of(operation), "insist_on_bound", None)
    if insist is not None:
        insist(context, planned)


def compared_hosts(operation: str, context: Context, steps: Sequence[Step]) -> list[str]:
    """Return the hosts whose documents a plan of the operation compares, as it declares."""
    site = context.site
    if operation == SITE:
        return list(site.hosts)
    choices: dict[str, list[str]] = {
        "all": list(site.hosts),
        "none": [],
        "named": [host.name for host in context.hosts],
        "targets": targets_of(steps),
        "others": [name for name in targets_of(steps) if name not in {host.name for host in context.hosts}],
    }
    return choices[OPERATIONS[operation].compared]


def remote_kinds(operation: str) -> tuple[str, ...]:
    """Return the kinds of remote things that an operation is about."""
    return () if operation == SITE else OPERATIONS[operation].remote


def touches_cluster(operation: str) -> bool:
    """Tell whether a plan of the operation compares the cluster."""
    return operation == SITE or OPERATIONS[operation].cluster


def step_groups(operation: str, steps: Sequence[Step]) -> dict[str, list[str]]:
    """Return groups of hosts by what is done on them, for operations whose plays are about such groups.

    Args:
        operation: it declares itself so.
        steps: what is done.

    Returns:
        ``__ironspan_step_`` and the action -> hosts, in the order of the steps.
    """
    if operation == SITE or not OPERATIONS[operation].grouped:
        return {}
    actions = dict.fromkeys(step.action for step in steps)
    return {
        f"__ironspan_step_{action.replace('-', '_')}": targets_of([s for s in steps if s.action == action])
        for action in actions
    }


def targets_of(steps: Sequence[Step]) -> list[str]:
    """Return the hosts that the steps are about, in their order."""
    return list(dict.fromkeys(step.target for step in steps if step.target))
