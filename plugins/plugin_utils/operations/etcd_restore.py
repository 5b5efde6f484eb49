# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""etcd is rebuilt from its backup, or from a member's data when these are newer.

What hosts have was read from them before (playbooks/etcd_survey.yml); what members say of themselves is asked
here. The first of them is made on one host, the others join it.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.quorum import quorum
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    HOSTS_VARIABLE,
    Context,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

SURVEY = "etcd_restore_survey"
"""The variable that the survey's task registers on each host."""
FORCE_VARIABLE = "ironspan_force_restore"
LATEST = "latest"
REBUILD_SECONDS, RESTORE_SECONDS, API_SECONDS, JOIN_SECONDS = 10, 5, 15, 15
"""Seen in the lab with a tiny store; a GiB adds about a minute to the first two."""
Survey = Mapping[str, t.Any]


def steps(context: Context) -> list[Step]:
    """Return what is done, in order.

    Raises:
        OperationError: the store has its quorum, members cannot be stopped, the arguments are wrong, or a
            host lacks what it needs.
    """
    point, source = _point(context), _source(context)
    surveys = _surveys(context, "etcd")
    silent = [host for host in context.site.group("etcd") if host.name not in surveys]
    chosen, survivor = _choose(context, surveys, point, source)
    going_on: Survey = surveys[chosen.name]["going_on"]
    _insist_that_it_is_needed(context, bool(going_on))
    _insist_that_all_can_be_stopped(context, silent)
    _insist_that_hosts_are_fit(surveys, chosen, source)
    planes = [name for name, survey in _surveys(context, "control_plane").items() if survey["pods"]]
    others = [name for name in surveys if name != chosen.name]
    old = [name for name in others if _has_old_data(surveys[name], going_on)]
    fetched = source == "survivor" or "bump" in going_on
    return [
        *([] if fetched else [_rebuilding(chosen, point)]),
        *(_stopping(name) for name in planes if not going_on.get("released")),
        *(_setting_aside(name, surveys[name], name == chosen.name) for name in (*old, chosen.name)),
        *(_leaving_out(host) for host in silent),
        Step(
            "etcd-restore",
            chosen.name,
            f"rebuild etcd on {chosen.name} from {_words(point, source, survivor)}, as a new cluster, "
            "and check it while nobody else can reach it",
            disruption="all members of before are shut out; revisions go on beyond the last one",
            seconds=RESTORE_SECONDS,
            destructive=True,
        ),
        *(
            Step(
                "start-control-plane",
                name,
                f"start the API server and the controllers of {name}",
                seconds=API_SECONDS,
            )
            for name in planes
        ),
        *_joining(context, others),
    ]


def bound_to(context: Context) -> dict[str, t.Any]:
    """Return what a plan is for: the clusters whose data the hosts hold. A restore makes another."""
    return {"clusters": sorted(_clusters(_surveys(context, "etcd")))}


def insist_on_bound(context: Context, planned: Mapping[str, t.Any]) -> None:
    """Refuse a plan when etcd was rebuilt since: by this plan, which is used up, or another run.

    A restore that was cut short is still going on, and its plan finishes it.

    Raises:
        OperationError: the hosts hold data of a cluster that the plan does not know.
    """
    surveys = _surveys(context, "etcd")
    others = _clusters(surveys) - set(planned.get("clusters") or ())
    if others and not any(survey["going_on"] for survey in surveys.values()):
        raise OperationError(
            f"etcd was rebuilt after this plan was made: it is cluster {', '.join(sorted(others))} "
            "now, so the plan was applied already, or another restore came first",
            "if it has to be restored once more, make a new plan",
        )


def _clusters(surveys: Mapping[str, Survey]) -> set[str]:
    return {
        str(survey["data"]["cluster"])
        for survey in surveys.values()
        if survey["data"] and survey["data"]["cluster"]
    }


def _point(context: Context) -> str:
    return str(value_of(context.arguments, "ironspan_point"))


def _source(context: Context) -> str:
    source = str(value_of(context.arguments, "ironspan_source"))
    if source == "survivor" and _point(context) != LATEST:
        raise OperationError(
            "a member's data are restored as they are, not as they were at some point",
            "leave ironspan_point out, or take ironspan_source=backup",
        )
    return source


def _forced(context: Context) -> bool:
    return bool(value_of(context.arguments, FORCE_VARIABLE))


def _surveys(context: Context, group: str) -> dict[str, Survey]:
    variables = context.arguments.get("hostvars") or {}
    found: dict[str, Survey] = {}
    for host in context.site.group(group):
        survey = variables[host.name].get(SURVEY) if host.name in variables else None
        if survey and not survey.get("unreachable") and not survey.get("failed"):
            found[host.name] = survey
    return found


def _choose(
    context: Context, surveys: Mapping[str, Survey], point: str, source: str
) -> tuple[Host, Survey | None]:
    """Return the host on which etcd is rebuilt, and the data there if they may be taken."""
    if not surveys:
        names = ", ".join(host.name for host in context.site.group("etcd"))
        raise OperationError(
            f"no host of the group etcd can be reached ({names})",
            "bring one of them up, or put another machine in its place",
        )
    unfinished = [name for name, survey in surveys.items() if survey["unfinished"]]
    survivors = {
        name: survey["data"]
        for name, survey in surveys.items()
        if survey["data"] and survey["data"]["cluster"] and source != "backup" and point == LATEST
    }
    named = [host.name for host in context.hosts]
    if len(named) > 1 or any(name not in surveys for name in named):
        raise OperationError(
            f"{HOSTS_VARIABLE} is {', '.join(named)}",
            f"name the one host on which etcd is rebuilt: {', '.join(surveys)}",
        )
    if named and unfinished and named != unfinished:
        raise OperationError(
            f"a restore on {unfinished[0]} is not finished",
            f"leave {HOSTS_VARIABLE} out: it is finished there",
        )
    clusters = {data["cluster"] for name, data in survivors.items() if not named or name in named}
    if unfinished:
        survivors = {}
    elif len(clusters) > 1:
        listed = "; ".join(f"{name}: cluster {data['cluster']}" for name, data in survivors.items())
        raise OperationError(
            f"the hosts hold data of different clusters ({listed})",
            f"say whose to take with -e {HOSTS_VARIABLE}=HOST, or -e ironspan_source=backup",
        )
    if source == "survivor" and not survivors and not unfinished:
        raise OperationError("no host has data of a member", "take ironspan_source=backup")
    furthest = sorted(survivors, key=lambda name: -survivors[name]["commit"])
    name = [*unfinished, *named, *furthest, *surveys][0]
    return context.site.hosts[name], survivors.get(name)


def _insist_that_it_is_needed(context: Context, going_on: bool) -> None:
    count = quorum(context.etcd_members())
    if count.kept and not going_on and not _forced(context):
        raise OperationError(
            f"etcd has its quorum ({count}), so nothing has to be restored",
            "a member that is broken is fixed with member_replace; to go back to a backup all the same, "
            f"add -e {FORCE_VARIABLE}=true: what was written since then is lost",
        )


def _insist_that_all_can_be_stopped(context: Context, silent: list[Host]) -> None:
    names = {host.name for host in silent}
    running = [member.name for member in context.etcd_members() if member.name in names and not member.error]
    if running:
        raise OperationError(
            f"etcd still runs on {', '.join(running)}, which cannot be reached over SSH to stop it",
            "fix SSH to it, or switch the machine off",
        )


def _insist_that_hosts_are_fit(surveys: Mapping[str, Survey], chosen: Host, source: str) -> None:
    problems = [f"{name}: {text}" for name, survey in surveys.items() for text in survey["problems"]]
    if not surveys[chosen.name]["configured"]:
        problems.append(f"{chosen.name} was never a member: build it with site.yml first, then restore")
    if source != "survivor" and not surveys[chosen.name]["backup"]:
        problems.append(
            f"{chosen.name} has no backup program (etcd_backup_stores), so there is nothing to restore from"
            + (": take ironspan_source=survivor" if surveys[chosen.name]["data"] else "")
        )
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise OperationError(f"etcd cannot be restored like this:\n{listed}", "fix these")


def _has_old_data(survey: Survey, going_on: Survey) -> bool:
    """Tell whether a host has data, or may begin to have some, that are not of the cluster rebuilt."""
    if not going_on.get("released"):
        return bool(survey["configured"])
    return bool(survey["data"]) and survey["data"]["cluster"] != going_on["cluster"]


def _rebuilding(chosen: Host, point: str) -> Step:
    what = f"fetch the backup ({point}) to {chosen.name}, verify it and replay its log"
    return Step("etcd-rebuild", chosen.name, what, seconds=REBUILD_SECONDS)


def _stopping(name: str) -> Step:
    what = f"stop the API server and the controllers of {name}"
    return Step("stop-control-plane", name, what, seconds=10)


def _setting_aside(name: str, survey: Survey, chosen: bool) -> Step:
    data = survey["data"]
    whose = f"cluster {data['cluster']}" if data and data["cluster"] else "of no cluster"
    held = f" ({whose}, {data['bytes'] >> 20} MiB)" if data else ", if there are any"
    return Step(
        "etcd-begin" if chosen else "etcd-set-aside",
        name,
        f"stop etcd on {name} and set its data aside{held}; they are not deleted",
        disruption="the API does not answer until it is started again",
        seconds=2,
        destructive=True,
    )


def _joining(context: Context, others: list[str]) -> list[Step]:
    if not others:
        return []
    if {"ironspan_plan", "ironspan_planned"} & context.arguments.keys():
        # A plan fixes documents by what hosts have; these have nothing then.
        what = f"afterwards, by a plan of member_add, {', '.join(others)} join etcd"
        return [Step("etcd-join-later", "", what)]
    what = "joins etcd without data, first as a learner"
    return [Step("etcd-join", name, f"{name} {what}", seconds=JOIN_SECONDS) for name in others]


def _leaving_out(host: Host) -> Step:
    return Step(
        "etcd-leave-out",
        "",
        f"{host.name} does not answer and is no member any more: keep it off until it can be rebuilt with "
        "member_replace",
        destructive=True,
    )


def _words(point: str, source: str, survivor: Survey | None) -> str:
    if source == "survivor":
        return "its data"
    if survivor is None:
        return f"the backup ({point})"
    return f"the backup or its own data (commit index {survivor['commit']}), whichever is newer"
