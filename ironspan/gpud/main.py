# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-gpud``."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import re
import sys
import time
import typing as t
from collections.abc import Sequence
from pathlib import Path

from ironspan.gpud import settings
from ironspan.gpud.settings import Settings
from ironspan.program import command, process
from ironspan.program.errors import Refused

LOG = logging.getLogger(__name__)
READ_LATE_S = 60.0
LOG_S, LOG_LATE_S = 30.0, 120.0
"""Seconds for which the kernel's log is followed in one step."""
GIVE_UP_S = 300.0
"""Seconds for which NVML does not start before the program ends, to be started again by its unit."""
PUBLISH_S, PUBLISH_LATE_S = 1.0, 900.0


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="ironspan-gpud",
        description="Watch the GPUs of this host, and say on its Node how they are.",
        epilog="Exit codes: 0 done or healthy, 1 failed or not healthy, 2 refused.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, text in (
        ("run", serve, "watch until ended"),
        ("check", check, "run all checks once and print what they find"),
        ("dump", dump, "print all that NVML says once, without serial numbers"),
        ("preflight", preflight, "test the GPUs; ended at once when something else uses one"),
        ("pair", pair, "test this node together with another one, which does the same"),
        ("events", show, "print what happened to the GPUs since this boot"),
        ("clear", clear, "forget XIDs of a GPU that was reset by hand, or of all"),
    ):
        commands.add_parser(name, help=text).set_defaults(func=run)
    commands.choices["clear"].add_argument("--gpu", default="", metavar="UUID", help="one GPU; default: all")
    commands.choices["preflight"].add_argument(
        "--quick", action="store_true", help="shorter tests, whose verdict the Node does not get"
    )
    pairing = commands.choices["pair"]
    pairing.add_argument("--id", required=True, help="the same on both nodes")
    pairing.add_argument("--with", required=True, dest="peer", metavar="NODE", help="the other node")
    pairing.add_argument("--address", required=True, help="where one of the two listens")
    pairing.add_argument("--port", required=True, type=int, help="of that")
    pairing.add_argument("--listen", action="store_true", help="it is this one that listens")
    command.add_common(commands, settings.DEFAULT_PATH)
    return parser


def load(path: Path) -> Settings:
    """Return the settings; on a host without the role, what the agent does without any."""
    if path == settings.DEFAULT_PATH and not path.exists():
        return Settings()
    return settings.load(path)


def serve(chosen: Settings, asked: argparse.Namespace) -> None:
    """Watch until SIGTERM or SIGINT."""
    from ironspan.gpud.actions import Actions
    from ironspan.gpud.agent import Agent, boot_id
    from ironspan.gpud.metrics import Exported
    from ironspan.gpud.node import Node
    from ironspan.gpud.pods import Pods
    from ironspan.gpud.preflight.ask import Asking
    from ironspan.gpud.publish import Publisher
    from ironspan.gpud.watch import Watch
    from ironspan.program.metrics import Metrics
    from ironspan.program.service import Step, repeating

    ending, metrics = process.ending(), Metrics("ironspan_gpud")
    bell: list[t.Callable[[], None]] = []
    pods = Pods(chosen.pod_resources)
    boot = boot_id()
    agent = Agent(chosen, boot, lambda: [ring() for ring in bell], pods.gpus)
    # A driver that was loaded since: the unit is let to devices that were there when it started.
    fresh = Step("driver", lambda: ending.set() if agent.failing_s() > GIVE_UP_S else None, 10.0, 120.0)
    steps = [
        fresh,
        Step("log", lambda: agent.follow_log(ending.is_set, LOG_S), 0.1, LOG_LATE_S),
        Step("requests", agent.take_request, 2.0, 60.0),
    ]
    if chosen.pod_resources:
        steps.append(Step("pods", pods.ask, 15.0, 300.0))
    watch = Watch(agent.heard, agent.hung, chosen.every_s, chosen.hang_s, chosen.left_out, chosen.library)
    if chosen.node:
        tests = Asking(chosen.state, asked.settings, boot)
        does = Actions(
            agent.store,
            boot,
            chosen.acts,
            agent.processes,
            watch.quiet,
            time.time,
            preflight=tests.begin,
            mps=chosen.mps,
            paired=tests.begin_pair,
        )
        to = Node(chosen.kubeconfig, chosen.node)
        publisher = Publisher(agent, to, chosen.heartbeat_s, does=does, tests=tests)
        steps.append(Step("publish", publisher.one_pass, PUBLISH_S, PUBLISH_LATE_S))
    with contextlib.ExitStack() as stack:
        stack.enter_context(metrics.serving(chosen.metrics))
        threads = stack.enter_context(repeating(metrics, *steps))
        if chosen.node:
            bell.append(threads[-1].wake)
        stack.enter_context(watch)
        metrics.watch("nvml", watch.age, chosen.hang_s + READ_LATE_S)
        metrics.registry.register(Exported(metrics.prefix, agent, pods, chosen.policy))
        ending.wait()


def check(chosen: Settings, asked: argparse.Namespace) -> int:
    """Print what each check finds."""
    from ironspan.gpud.agent import run_checks
    from ironspan.gpud.checks import table
    from ironspan.gpud.checks.base import Context, Finding, Gpu
    from ironspan.gpud.events import UNHEALTHY, action
    from ironspan.gpud.watch import Hung, read_once

    found: list[tuple[str, Finding]] = []
    reading: dict[str, t.Any] = {}
    try:
        line = read_once(chosen.hang_s, chosen.left_out, chosen.library)
        reading = line.get("reading") or {}
        if not reading:
            text = str(line.get("text") or "no answer")
            found.append(("H01", Finding("nvml gpu_missing", "", f"NVML does not start: {text}")))
    except Hung as error:
        found.append(("H02", Finding("nvml hung", "", error.message)))
    if reading:
        gpus = [Gpu(values) for values in reading["gpus"]]
        context = Context(gpus, reading["system"], reading.get("host") or {}, chosen.expected)
        found += run_checks(chosen, context)
    rows: list[dict[str, t.Any]] = []
    for each in table():
        findings = [
            {
                "event": finding.event,
                "class": action(finding.event, chosen.policy),
                "gpu": finding.gpu,
                "detail": finding.detail,
            }
            for name, finding in found
            if name == each.name
        ]
        state = "off" if each.name in chosen.off else "found" if findings else "ok" if reading else "unknown"
        rows.append({"check": each.name, "title": each.title, "state": state, "findings": findings})
    names = [str(gpu.get("name")) for gpu in reading.get("gpus", ())]
    healthy = bool(reading) and not any(
        finding["class"] in UNHEALTHY for row in rows for finding in row["findings"]
    )
    result = {"healthy": healthy, "system": reading.get("system") or {}, "gpus": names, "checks": rows}
    lines = [f"{row['check']}  {row['state']:8}{row['title']}" for row in rows]
    lines += [
        f"{finding['class']}  {finding['event']}  {finding['gpu']}  {finding['detail']}"
        for row in rows
        for finding in row["findings"]
    ]
    command.answer(asked, result, "\n".join([f"{len(names)} GPUs: {', '.join(sorted(set(names)))}", *lines]))
    return 0 if healthy else command.FAILED


def preflight(chosen: Settings, asked: argparse.Namespace) -> int:
    """Test the GPUs and print what came out."""
    from ironspan.gpud.preflight import run

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    report = run.preflight(chosen, process.ending().is_set, tell, asked.quick)
    status, _, message = report.condition
    data = {
        "verdict": report.how,
        "why": report.why,
        "results": run.as_rows(report.results),
        "annotation": report.said,
        "condition": {"status": status, "message": message},
    }
    command.answer(asked, data, "\n".join([*run.as_lines(report.results), f"{report.how}: {message}"]))
    return 0 if report.how == "passed" else command.FAILED


def pair(chosen: Settings, asked: argparse.Namespace) -> int:
    """Test this node and another one together, and print what came out."""
    from ironspan.gpud.preflight import pair as pairs

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    told = {"with": asked.peer, "address": asked.address, "port": asked.port, "listens": asked.listen}
    pairing = pairs.read(asked.id, told)
    if pairing is None:
        raise Refused("NODE, address or port is none.", "Write them as the Node has them.")
    found = pairs.paired(chosen, pairing, process.ending().is_set, tell)
    lines = [
        f"{each['test']}  {each['passed']}  {each['measured']} {each['unit']} {each['detail']}"
        for each in found["results"]
    ]
    command.answer(asked, found, "\n".join([*lines, f"passed: {found['passed']} {found['why']}".rstrip()]))
    return 0 if found["passed"] else command.FAILED


def dump(chosen: Settings, asked: argparse.Namespace) -> int:
    """Print everything that NVML says, fit for a file that others see."""
    from ironspan.gpud.watch import read_once

    line = read_once(chosen.hang_s, chosen.left_out, chosen.library)
    text = json.dumps(line, indent=1, sort_keys=True)
    for number, gpu in enumerate((line.get("reading") or {}).get("gpus", ())):
        for name, instead in (
            ("uuid", f"GPU-{number:08d}-0000-0000-0000-000000000000"),
            ("serial", f"{number:013d}"),
        ):
            if gpu.get(name):
                text = text.replace(json.dumps(gpu[name]), json.dumps(instead))
    # Processes are the host's own affair.
    text = re.sub(r'("processes": )\[[^}]*?\],(?=\n\s+"[a-z])', r"\1[],", text)
    print(text)
    return 0 if "reading" in line else command.FAILED


def show(chosen: Settings, asked: argparse.Namespace) -> int:
    """Print what the agent remembers."""
    from ironspan.gpud.agent import boot_id
    from ironspan.gpud.events import UNHEALTHY, action, as_data, rfc3339
    from ironspan.gpud.store import Store

    content = Store(chosen.state, boot_id(), only_read=True).content
    shown = [
        {**as_data(record), "class": action(record.event, chosen.policy)}
        for record in sorted(content.records.values(), key=lambda record: record.since)
    ]
    lines = [
        "  ".join(
            [rfc3339(row["since"]), row["class"], row["event"], row["gpu"], f"x{row['count']}", row["detail"]]
        )
        for row in shown
    ]
    command.answer(asked, {"boot": content.boot, "events": shown}, "\n".join(lines) or "no event")
    return command.FAILED if any(row["class"] in UNHEALTHY for row in shown) else 0


def clear(chosen: Settings, asked: argparse.Namespace) -> None:
    """Ask the running agent to forget what happened to a GPU."""
    from ironspan.gpud.store import ask_to_clear

    ask_to_clear(chosen.state, asked.gpu)
    command.answer(asked, {"asked": asked.gpu or "all"}, "The agent forgets it within seconds.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return command.run(build_parser(), load, arguments)


if __name__ == "__main__":
    sys.exit(main())
