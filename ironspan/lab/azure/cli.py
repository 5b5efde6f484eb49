# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`ironspan lab store status|fault|heal|policy|clock|requests|person|rotate`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from ironspan.lab.azure import client, settings
from ironspan.lab.azure.config import KINDS, SERVICES, state_folder
from ironspan.lab.errors import LabError
from ironspan.lab.state import lab_folder

#: (parent, name, function, help) -> the subcommand's parser; the lab's own way to make one.
Adder = Callable[..., argparse.ArgumentParser]
_RATE = {"": 1.0, "k": 1e3, "m": 1e6}
#: Options of `fault` that have the name of a fault's field.
_PLAIN = ("service", "method", "prefix", "comp", "count", "probability", "seed", "status")


def register(parent: argparse._SubParsersAction[Any], add: Adder) -> None:
    """Add `store` and its subcommands.

    Args:
        parent: The subcommands of `lab`.
        add: Makes a subcommand that knows --name.
    """
    parser = parent.add_parser("store", help="faults and policies of the emulated Azure")
    actions = parser.add_subparsers(title="store commands", metavar="COMMAND", required=True)
    add(actions, "status", _status, "show faults, policies and where it answers")

    fault = add(actions, "fault", _fault, "let requests meet a fault until `lab store heal`")
    fault.add_argument(
        "kind",
        choices=list(KINDS),
        metavar="KIND",
        help="; ".join(f"{kind}: {text}" for kind, text in KINDS.items()),
    )
    fault.add_argument("--service", choices=SERVICES, default="store", help="which service (default: store)")
    fault.add_argument("--method", default="", help="HTTP method, for example PUT (default: each)")
    fault.add_argument(
        "--prefix", default="", metavar="PATH", help="beginning of the path, for example /etcd/lab-default/"
    )
    fault.add_argument("--comp", help="kind of request, for example appendblock, lease or list")
    fault.add_argument("--count", type=int, metavar="N", help="how many requests (default: all)")
    fault.add_argument(
        "--probability", type=float, default=1.0, metavar="P", help="above 0, at most 1 (default)"
    )
    fault.add_argument("--seed", type=int, default=0, help="of the random numbers")
    fault.add_argument("--status", type=int, default=503, help="for `status`: 500, 503, 429, ...")
    fault.add_argument("--retry-after", type=float, metavar="S", help="for `status`: seconds to ask for")
    fault.add_argument("--delay", type=float, default=0.0, metavar="S", help="seconds to wait first")
    fault.add_argument("--rate", default="1k", metavar="BYTES", help="for `slow`: bytes per second, 1k, 2m")
    fault.add_argument(
        "--after",
        type=int,
        metavar="BYTES",
        help="for `truncated` and `reset`: bytes that pass (default: half)",
    )

    heal = add(actions, "heal", _heal, "end one fault, or all")
    heal.add_argument("id", type=int, nargs="?", metavar="ID")

    policy = add(actions, "policy", _policy, "set a container's policies past the resource manager's rules")
    policy.add_argument("--container", default=settings.CONTAINER, help="default: %(default)s")
    policy.add_argument("--days", type=int, metavar="N", help="retention, from a blob's creation")
    policy.add_argument("--append", choices=("none", "append", "all"), help="protected append writes")
    policy.add_argument("--lock", action="store_true", help="lock the policy")
    policy.add_argument("--remove", action="store_true", help="remove the policy, though it be locked")
    policy.add_argument("--hold", action="append", metavar="TAG", help="legal holds; `none` ends them")
    policy.add_argument("--versioning", choices=("on", "off"), help="keep versions (of the whole account)")

    clock = add(actions, "clock", _clock, "move the clock of retention policies")
    clock.add_argument("offset", metavar="TIME", help="ahead of now: 36h, 8d, 0")

    person = add(actions, "person", _person, "print a person's token for the cluster, good or faulty")
    person.add_argument("person", metavar="NAME", help="whose: decides the object ID")
    person.add_argument("--role", action="append", default=[], help="app role of the person (may repeat)")
    person.add_argument("--group", action="append", default=[], help="object ID of a group (may repeat)")
    person.add_argument("--issuer", default="", metavar="URL", help="issuer to name (default: the lab's)")
    person.add_argument("--fault", default="", metavar="FAULT", help="what is wrong with it, see docs/lab.md")

    rotate = add(actions, "rotate", _rotate, "sign tokens with a new key from now on")
    rotate.add_argument("--withdraw", action="store_true", help="publish the new key only")

    seen = add(actions, "requests", _requests, "show the last requests")
    seen.add_argument("--last", type=int, default=20, metavar="N", help="how many (default: 20)")


def parse_offset(text: str) -> float:
    """Seconds from `90s`, `36h`, `8d` or `0`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if not match or (not match[2] and float(match[1])):
        raise LabError(f"{text!r}: write a number and one of s, m, h, d, for example 36h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def parse_rate(text: str) -> float:
    """Bytes per second from `500`, `1k` or `2m`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.strip().lower())
    if not match:
        raise LabError(f"{text!r}: write bytes per second, for example 500, 1k or 2m")
    return float(match[1]) * _RATE[match[2]]


def _request(arguments: argparse.Namespace, do: str, **more: Any) -> dict[str, Any]:
    return client.request(state_folder(lab_folder(arguments.name)), do, **more)


def _show(arguments: argparse.Namespace, reply: dict[str, Any], text: str) -> int:
    print(json.dumps(reply, indent=1) if arguments.json else text)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    reply = _request(arguments, "status")
    return _show(arguments, reply, status_text(reply))


def _fault(arguments: argparse.Namespace) -> int:
    fields = {name: getattr(arguments, name) for name in _PLAIN}
    reply = _request(
        arguments,
        "fault",
        kind=arguments.kind,
        retry_after=arguments.retry_after,
        delay_s=arguments.delay,
        rate_bytes_s=parse_rate(arguments.rate),
        after_bytes=arguments.after,
        **fields,
    )
    return _show(arguments, reply, f"fault {reply['id']}: {fault_text(reply)}")


def _heal(arguments: argparse.Namespace) -> int:
    reply = _request(arguments, "heal", id=arguments.id)
    return _show(arguments, reply, f"{reply['healed']} healed")


def _policy(arguments: argparse.Namespace) -> int:
    changes: dict[str, Any] = {}
    if arguments.append and arguments.days is None:
        raise LabError("--append is part of a retention policy: give --days, too")
    if arguments.days is not None:
        changes.update(days=arguments.days, append=arguments.append or "none")
    if arguments.hold is not None:
        changes["holds"] = [tag for tag in arguments.hold if tag != "none"]
    changes.update({name: True for name in ("lock", "remove") if getattr(arguments, name)})
    reply = _request(arguments, "policy", container=arguments.container, **changes)
    if arguments.versioning:
        _request(arguments, "policy", versioning=arguments.versioning == "on")
    return _show(arguments, reply, f"{arguments.container}: {policy_text(reply)}")


def _clock(arguments: argparse.Namespace) -> int:
    reply = _request(arguments, "clock", offset_s=parse_offset(arguments.offset))
    return _show(arguments, reply, f"policies see a clock {reply['clock_offset_s'] / 3600:g} h ahead")


def _person(arguments: argparse.Namespace) -> int:
    fields = {"roles": arguments.role, "groups": arguments.group}
    reply = _request(
        arguments, "person", name=arguments.person, issuer=arguments.issuer, fault=arguments.fault, **fields
    )
    return _show(arguments, reply, str(reply["token"]))


def _rotate(arguments: argparse.Namespace) -> int:
    reply = _request(arguments, "rotate", withdraw=arguments.withdraw)
    return _show(arguments, reply, f"a new key signs; {reply['keys']} are published")


def _requests(arguments: argparse.Namespace) -> int:
    found = _request(arguments, "requests")["requests"][-arguments.last :]
    lines = []
    for one in found:
        what = f"{one['method']:<6} {one['path']}" + (f" ({one['comp']})" if one["comp"] else "")
        lines.append(f"{one['service']:<10} {one['identity']:<9} {one['status'] or 'cut':>3} {what}")
    return _show(arguments, {"requests": found}, "\n".join(lines) or "no requests yet")


def fault_text(fault: dict[str, Any]) -> str:
    """A fault for people."""
    where = f"{fault['service']} {fault['method'] or 'each method'} {fault['prefix'] or '/'}*"
    parts = [fault["kind"], where]
    if fault["comp"] is not None:
        parts.append(f"comp={fault['comp']}")
    if fault["kind"] == "status":
        parts.append(f"status {fault['status']}")
    if fault["probability"] < 1:
        parts.append(f"probability {fault['probability']:g}, seed {fault['seed']}")
    if fault["count"] is not None:
        parts.append(f"{fault['count']} more")
    return ", ".join([*parts, f"{fault['hits']} hit so far"])


def policy_text(container: dict[str, Any]) -> str:
    """A container's policies for people."""
    policy, parts = container["policy"], []
    if policy:
        state = "locked" if policy["locked"] else "unlocked"
        parts.append(f"{policy['days']} days, {state}, protected append writes: {policy['append']}")
    if container["holds"]:
        parts.append(f"legal hold {', '.join(container['holds'])}")
    return "; ".join(parts) or "no policy"


def status_text(reply: dict[str, Any]) -> str:
    """The emulated Azure for people."""
    lines = [f"store: {'ready' if reply['ready'] else 'starting'}, account {settings.ACCOUNT}"]
    lines += [f"  {name:<10} {address}:{port}" for name, (address, port) in reply["endpoints"].items()]
    lines.append(f"versions: {'kept' if reply['versioning'] else 'not kept'}")
    if reply["clock_offset_s"]:
        lines.append(f"policies see a clock {reply['clock_offset_s'] / 3600:g} h ahead")
    lines += [f"container {name}: {policy_text(one)}" for name, one in reply["containers"].items()]
    lines += [f"fault {one['id']}: {fault_text(one)}" for one in reply["faults"]] or ["no faults"]
    return "\n".join(lines)
