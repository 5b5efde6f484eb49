# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One test of this node together with another one: who asks for it is the controller, never a node."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import ipaddress
import json
import logging
import os
import re
import select
import socket
import struct
import subprocess
import tempfile
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.preflight import pair_tests

from ironspan.gpud.agent import boot_id
from ironspan.gpud.events import rfc3339
from ironspan.gpud.preflight import kept, verdict
from ironspan.gpud.preflight.children import Others, command, environment
from ironspan.gpud.preflight.meet import Meeting
from ironspan.gpud.preflight.run import Stop, cards
from ironspan.gpud.preflight.verdict import Result
from ironspan.gpud.settings import Settings
from ironspan.program.errors import ServiceError

LOG = logging.getLogger(__name__)
YIELDED = "ended: "
MOST = 8
"""Results that are remembered."""
WAIT_S, FIRST_LOOK_S = 90.0, 20.0
"""Seconds for which the other node is waited for: its agent looks for requests every ten."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SIOCGIFADDR, _LOOK_S, _KILL_S, _LONGEST = 0x8915, 0.1, 5.0, 1 << 16
Tell = Callable[[str], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Pairing:
    """What the controller asks for.

    Args:
        id: of the request, the same on both nodes.
        peer: name of the other Node.
        address, port: where one of the two listens.
        listens: whether it is this one.
    """

    id: str
    peer: str
    address: str
    port: int
    listens: bool


def read(id: str, data: t.Any) -> Pairing | None:
    """Return what a request says of the pair; None where it cannot be done."""
    try:
        made = Pairing(
            id,
            str(data["with"]),
            str(ipaddress.ip_address(data["address"])),
            int(data["port"]),
            data["listens"],
        )
    except (KeyError, TypeError, ValueError):
        return None
    well = _NAME.fullmatch(made.peer) and 0 < made.port < 65536 and isinstance(made.listens, bool)
    return made if well else None


def path(folder: Path) -> Path:
    """Return the file of the last results."""
    return folder / "pairs.json"


def results(folder: Path) -> list[dict[str, t.Any]]:
    """Return the last results, the newest last; none where the file cannot be used."""
    try:
        found = json.loads(path(folder).read_bytes()[: 1 << 20])
        return [each for each in found if isinstance(each, dict)][-MOST:]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        LOG.warning("%s cannot be used, its results are forgotten: %s", path(folder), error)
        return []


def paired(
    chosen: Settings, asked: Pairing, ended: Callable[[], bool], tell: Tell, boot: str = ""
) -> dict[str, t.Any]:
    """Test this node and another one together, and remember what came out.

    Args:
        chosen: the settings.
        asked: with whom.
        ended: whether this process has to end.
        tell: called with a line for people before each test.
        boot: which boot this is; empty asks the kernel.

    Raises:
        Refused: a preflight runs, or the folder cannot be used.
        ServiceError: NVML does not answer.
    """
    boot = boot or boot_id()
    with kept.held(chosen.state):
        found = _alone(chosen, asked, ended, tell, boot)
        text = json.dumps([*results(chosen.state), found][-MOST:], separators=(",", ":"))
        write_file(path(chosen.state), text.encode(), 0o600)
        return found


def _alone(
    chosen: Settings, asked: Pairing, ended: Callable[[], bool], tell: Tell, boot: str
) -> dict[str, t.Any]:
    start = time.time()
    gpus, parted, driver = cards(chosen)
    found, why = [], ""
    try:
        with _files(chosen, asked.listens) as files, Others(chosen.library) as others:
            others.wait(FIRST_LOOK_S)
            stop = Stop(chosen, others, ended)
            meeting = Meeting(
                **dataclasses.asdict(asked), wait_s=WAIT_S, seconds=pair_tests()["A10"].seconds,
                authority=files[0], certificate=files[1], key=files[2], nccl=not parted,
            )  # fmt: skip
            answers, why = _meet(meeting, chosen.library, list(gpus), stop, tell)
    except ServiceError as error:
        answers, why = {}, str(error)
    for test, answer in answers.items():
        model = next(iter(gpus.values())) if test == "A09" else adapter(asked)
        found.append(verdict.judged(test, "", model, answer, chosen.references))
    bad = [each for each in found if each.passed is False]
    return {
        "id": asked.id,
        "with": asked.peer,
        "boot": boot,
        "driver": driver,
        "started": rfc3339(start),
        "ended": rfc3339(time.time()),
        # Only a test that was not passed is bad: a pair that did not meet says nothing about either.
        "passed": False if bad else None if why else True,
        "why": why[:200],
        # Then the other one may have waited for this one in vain.
        "yielded": why.startswith(YIELDED),
        "results": [_row(each) for each in found],
    }


def _row(each: Result) -> dict[str, t.Any]:
    found = {name: getattr(each, name) for name in ("test", "passed", "measured", "wanted", "unit", "way")}
    return {**found, "detail": each.detail[:160]}


@contextlib.contextmanager
def _files(chosen: Settings, listens: bool) -> Iterator[tuple[str, str, str]]:
    """Give the files of the authority, and of this node's certificate and key.

    Raises:
        ServiceError: the kubelet has none.
    """
    try:
        config = yaml.safe_load(chosen.kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        certificate, key = (user["client-certificate"], user["client-key"])
        if listens:
            certificate = key = str(chosen.serving)
        for each in (certificate, key):
            Path(each).stat()
        with tempfile.NamedTemporaryFile() as made:
            if data := cluster.get("certificate-authority-data"):
                made.write(base64.b64decode(data))
                made.flush()
            yield (made.name if data else str(cluster["certificate-authority"])), certificate, key
    except (OSError, KeyError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ServiceError(
            f"the kubelet's certificates cannot be used: {error}",
            "The node has to have joined.",
            retryable=True,
        ) from error


def _meet(
    meeting: Meeting, library: str, gpus: list[str], stop: Stop, tell: Tell
) -> tuple[dict[str, Mapping[str, t.Any]], str]:
    """Return the answers by test, and why there are no more, empty where all are there."""
    process = subprocess.Popen(
        command("meet"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(library, gpus)
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stop.ours.add(process.pid)
    found: dict[str, Mapping[str, t.Any]] = {}
    running, begun, deadline, out = "", time.monotonic(), meeting.wait_s + 2 * WAIT_S, b""
    try:
        process.stdin.write(json.dumps(dataclasses.asdict(meeting)).encode() + b"\n")
        process.stdin.close()
        while True:
            if why := stop():
                return found, f"{YIELDED}{why}"
            if select.select([process.stdout], [], [], _LOOK_S)[0]:
                more = os.read(process.stdout.fileno(), 4096)
                if not more:
                    # A fault of the driver ends it, and so it is one of the test that ran.
                    if running:
                        found[running] = {"passed": False, "detail": "its process ended and said nothing"}
                        return found, ""
                    return found, "its process ended and said nothing"
                *lines, out = (out + more)[-_LONGEST:].split(b"\n")
                for line in lines:
                    # NCCL writes here too when it is told to.
                    said = _said(line)
                    if "done" in said:
                        return found, str(said["done"])
                    if "begun" in said:
                        running, begun = str(said["begun"]), time.monotonic()
                        deadline = pair_tests()[running].deadline
                        tell(f"{running}  {pair_tests()[running].title}")
                    elif said.get("test") == running:
                        found[running] = said
                        running, begun = "", time.monotonic()
            if time.monotonic() - begun > deadline:
                if not running:
                    return found, "the other node is silent"
                found[running] = {"passed": False, "detail": f"no answer within {deadline:g} s"}
                return found, ""
    finally:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_S)
        process.stdout.close()


def _said(line: bytes) -> Mapping[str, t.Any]:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def adapter(asked: Pairing) -> str:
    """Return the speed and the name of the adapter towards the other node, such as ``25G eth0``.

    Args:
        asked: with whom.
    """
    own = asked.address if asked.listens else _towards(asked)
    for _, name in socket.if_nameindex():
        if own and own in _addresses(name):
            try:
                speed = int(Path("/sys/class/net", name, "speed").read_text())
            except (OSError, ValueError):
                speed = 0
            return f"{speed // 1000}G {name}" if speed >= 1000 else name
    return "?"


def _towards(asked: Pairing) -> str:
    family = socket.AF_INET6 if ":" in asked.address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        # Nothing is sent: the kernel says which way it would go.
        asking.connect((asked.address, asked.port))
        return str(asking.getsockname()[0])
    return ""


def _addresses(name: str) -> list[str]:
    found = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        found.append(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            words = line.split()
            if words[-1] == name:
                found.append(str(ipaddress.ip_address(int(words[0], 16))))
    return found
