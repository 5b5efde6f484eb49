# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`ironspan lab up|down|status|ssh|link|store`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

from ironspan import lab as labs
from ironspan.cli import console
from ironspan.cli.outcome import Exit
from ironspan.lab.azure import cli as store_cli
from ironspan.lab.errors import LabError
from ironspan.lab.layout import SIZES
from ironspan.lab.virtual import cli as servers_cli
from ironspan.lab.wan.control import parse_loss, parse_rate, parse_time

_ESTATE, _MEMBERS = "estate", 3
Command = Callable[[argparse.Namespace], int]


def register(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the `lab` command and its subcommands."""
    parser = subparsers.add_parser("lab", help="a two-site test world on this machine")
    commands = parser.add_subparsers(title="lab commands", metavar="COMMAND", required=True)

    up = _command(commands, "up", _up, "bring a lab up, or make one that is partly up whole")
    up.add_argument("--size", choices=sorted(SIZES), help="tiny: 1 + 1 hosts; small: 3 + 2 (default)")
    up.add_argument(
        "--azure",
        type=_azure,
        metavar="N|estate",
        help="hosts on the Azure side; or an empty subscription and the inventory of an estate in it, whose "
        "machines `ironspan azure` makes hosts of the lab (3 for etcd and a control plane; tiny: 1 for both)",
    )
    up.add_argument("--rack", type=int, metavar="M", help="hosts on the rack side")
    up.add_argument("--wan-mtu", type=int, metavar="BYTES", help="largest packet on the WAN (default 1400)")
    up.add_argument(
        "--azure-services",
        action=argparse.BooleanOptionalAction,
        help="emulate Azure's blob store, identities and resource manager (default)",
    )
    up.add_argument(
        "--etcd-backup",
        action=argparse.BooleanOptionalAction,
        help="write an inventory with which etcd is backed up to the emulated blob store",
    )
    up.add_argument(
        "--bare-metal",
        type=int,
        metavar="N",
        help="virtual servers without a system, powered off, each with a BMC, and an Ironic; 0 removes them",
    )
    up.add_argument("--build-artifacts", action="store_true", help="fill an empty mirror first")

    down = _command(commands, "down", _down, "remove a lab and everything it made")
    down.add_argument("--purge-cache", action="store_true", help="remove the shared base image too")

    _command(commands, "status", _status, "show the machine, the hosts and the link")

    ssh = _command(commands, "ssh", _ssh, "log in to a host, or run a command there")
    ssh.add_argument("host", metavar="HOST")
    ssh.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")

    link = commands.add_parser("link", help="change or show the WAN link")
    actions = link.add_subparsers(title="link commands", metavar="COMMAND", required=True)
    change = _command(actions, "set", _link_set, "change delay, jitter, loss, rate or seed while it runs")
    change.add_argument("--rtt", metavar="TIME", help="round-trip time, for example 30ms")
    change.add_argument("--jitter", metavar="TIME", help="random extra round-trip time, for example 2ms")
    change.add_argument("--loss", metavar="PERCENT", help="lost packets in each direction, for example 0.1%%")
    change.add_argument(
        "--rate", metavar="RATE", help="each direction's rate, for example 500mbit; 0: no limit"
    )
    change.add_argument("--seed", type=int, help="of the random numbers; setting it starts them again")
    _command(actions, "cut", lambda a: _link(a, cut=True), "cut the link; what is under way is lost")
    _command(actions, "heal", lambda a: _link(a, cut=False), "join the link again")
    _command(actions, "show", _link, "show settings and counters")
    store_cli.register(commands, _command)
    servers_cli.register(commands)


def _command(
    parent: argparse._SubParsersAction[Any], name: str, func: Command, text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parent.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.add_argument("--name", default="default", metavar="LAB", help="which lab (default: default)")
    parser.set_defaults(func=func)
    return parser


def _azure(text: str) -> int | str:
    """Read the value of --azure."""
    try:
        return text if text == _ESTATE else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hosts, and not {_ESTATE}") from None


def _up(arguments: argparse.Namespace) -> int:
    azure, rack = SIZES[arguments.size] if arguments.size else (None, None)
    estate = 0
    if arguments.azure == _ESTATE:
        estate, azure = (1 if arguments.size == "tiny" else _MEMBERS), None
    elif arguments.azure is not None:
        azure = arguments.azure
    lab = labs.Lab(arguments.name)
    with console.from_arguments(arguments) as display:
        lab.up(
            azure,
            rack if arguments.rack is None else arguments.rack,
            estate=estate,
            wan_mtu=arguments.wan_mtu,
            azure_services=arguments.azure_services,
            etcd_backup=arguments.etcd_backup,
            bare_metal=arguments.bare_metal,
            build_artifacts=arguments.build_artifacts,
            progress=display.step,
        )
        display.note(f"inventory: {lab.inventory_path}")
    return Exit.OK


def _down(arguments: argparse.Namespace) -> int:
    with console.from_arguments(arguments) as display:
        labs.Lab(arguments.name).down(purge_cache=arguments.purge_cache, progress=display.step)
    return Exit.OK


def _status(arguments: argparse.Namespace) -> int:
    found = labs.Lab(arguments.name).status()
    print(json.dumps(found, indent=1) if arguments.json else status_text(found))
    return Exit.OK if not found["exists"] or found["up"] else Exit.HOSTS


def _ssh(arguments: argparse.Namespace) -> int:
    wanted = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    command = labs.Lab(arguments.name).ssh_command(arguments.host, wanted)
    os.execvp(command[0], command)


def _link_set(arguments: argparse.Namespace) -> int:
    changes: dict[str, Any] = {}
    if arguments.rtt is not None:
        changes["rtt_s"] = parse_time(arguments.rtt)
    if arguments.jitter is not None:
        changes["jitter_s"] = parse_time(arguments.jitter)
    if arguments.loss is not None:
        changes["loss"] = parse_loss(arguments.loss)
    if arguments.rate is not None:
        changes["rate_bit_s"] = parse_rate(arguments.rate)
    if arguments.seed is not None:
        changes["seed"] = arguments.seed
    if not changes:
        raise LabError("nothing to set: give --rtt, --jitter, --loss, --rate or --seed")
    return _link(arguments, **changes)


def _link(arguments: argparse.Namespace, **changes: Any) -> int:
    reply = labs.Lab(arguments.name).link(**changes)
    print(json.dumps(reply, indent=1) if arguments.json else link_text(reply))
    return Exit.OK


def link_text(reply: dict[str, Any]) -> str:
    """The link's settings and counters for people."""
    settings, lines = reply["settings"], []
    rate = f"{settings['rate_bit_s'] / 1e6:g} Mbit/s" if settings["rate_bit_s"] else "no rate limit"
    state = "CUT" if settings["cut"] else "joined"
    lines.append(
        f"link {state}: RTT {settings['rtt_s'] * 1e3:g} ms, jitter {settings['jitter_s'] * 1e3:g} ms, "
        f"loss {settings['loss'] * 100:g} %, {rate}, seed {settings['seed']}"
    )
    for way, count in reply["counters"].items():
        dropped = {
            kind: count[f"{kind}_packets"]
            for kind in ("lost", "overflow", "cut", "refused")
            if count[f"{kind}_packets"]
        }
        lines.append(
            f"  {way.replace('_', ' ')}: {count['delivered_packets']} of {count['offered_packets']} packets, "
            f"{count['delivered_bytes'] / 1e6:.1f} MB"
            + "".join(f", {number} {kind}" for kind, number in dropped.items())
            + (f", {count['in_flight_packets']} under way" if count["in_flight_packets"] else "")
        )
    return "\n".join(lines)


def status_text(found: dict[str, Any]) -> str:
    """What `lab status` prints for people."""
    machine = found["machine"]
    lines = [
        f"machine: kernel {machine['kernel']}, {machine['cpus']} CPUs, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, cgroup v{machine['cgroup_version']}, hosts started "
        + ("as systemd units" if machine["launcher"] == "unit" else "in cgroups of the lab's own"),
        "differs from production:",
        *(f"  - {c['what']}: {c['effect']}" for c in found["concessions"]),
        *(f"warning: {text}" for text in found["warnings"]),
    ]
    if machine["missing_programs"]:
        lines.append(f"missing programs: {', '.join(machine['missing_programs'])}")
    base = found["base_image"]
    lines.append(f"base image: {base['path']}" + ("" if base["built"] else " (not built yet)"))
    if not found["exists"]:
        lines.append(f"lab {found['name']}: not up; labs here: {', '.join(found['labs']) or 'none'}")
        return "\n".join(lines)
    lines.append(f"lab {found['name']}: {'up' if found['up'] else 'NOT WHOLE, run `ironspan lab up`'}")
    for one in found["hosts"]:
        state = "answers SSH" if one["ssh"] else ("running, no SSH" if one["pid"] else "OFF")
        lines.append(
            f"  {one['name']:<8} {one['address']:<13} {one['site']:<6} {state}, init pid {one['init_pid']}"
        )
    for one in found.get("machines", ()):
        state = "answers SSH" if one["ssh"] else ("running, no SSH" if one["pid"] else "off")
        lines.append(f"  {one['name']:<15} {one['address']:<13} virtual machine, {state}")
    link = found["link"]
    lines.append(link.get("error") or link_text(link) + f"\n  MTU {link['mtu']}")
    azure = found["azure"]
    if azure is not None:
        works = "answers" if azure["ready"] else ("no answer" if azure["installed"] else "not installed")
        lines.append(f"emulated Azure {azure['url']} ({azure['address']}): {works}")
        lines += [f"  fault {one['id']}: {store_cli.fault_text(one)}" for one in azure["faults"]]
    if metal := found["bare_metal"]:
        ironic = metal["ironic"]
        lines.append(f"Ironic {ironic['url']}: {'runs' if ironic['pid'] else 'DOES NOT RUN'}")
        lines += [
            f"  {one['name']:<8} BMC {one['bmc']}{'' if metal['bmcs'] else ' (no answer)'}, "
            f"power {'on' if one['on'] else 'off'}, {one['address']} once it is deployed; {one['console']}"
            for one in metal["servers"]
        ]
    for what, answering in (("name server", found["dns"]), ("mirror", found["mirror"]["serving"])):
        lines += [
            f"{what} {where}: {'answers' if works else 'no answer'}" for where, works in answering.items()
        ]
    if not found["mirror"]["filled"]:
        lines.append("the mirror is empty: run `ironspan artifacts build`")
    lines.append(f"inventory: {found['inventory']}")
    return "\n".join(lines)
