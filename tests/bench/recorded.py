# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a worker answers when it is as it should be, and when a file is to be changed, from a real one."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.certificates import new_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import JOINING_GROUP
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from tests.bench import worker
from tests.bench.fleet import Fleet
from tests.bench.replay import Replayed

Answers = dict[str, list[dict[str, t.Any]]]
"""Scene -> answers, in order."""
CHANGE = ("-e", "base_hosts_entries=endpoint")
"""Options that change one file on every host."""


def record(folder: pathlib.Path) -> Answers:
    """Install one simulated worker and return what it says in each scene.

    Args:
        folder: an empty folder with a short path.
    """
    with Fleet(folder, 1) as fleet:
        worker.make_root(fleet.root(fleet.names[0]))
        run = worker.prepare(fleet)
        worker.serve_mirror(fleet)
        answers: Answers = {"ping": [{"ping": "pong", "changed": False}]}
        for scene, options in (("install", ()), ("noop", ()), ("file", CHANGE)):
            said = folder / "answers" / scene
            said.mkdir(parents=True)
            cost = run(*options, environment={"IRONSPAN_BENCH_ANSWERS": str(said)})
            answers[scene] = [json.loads(path.read_text()) for path in sorted(said.iterdir())]
            assert len(answers[scene]) == {"install": 3, "noop": 1, "file": 2}[scene], cost.output
    return answers


def asking_as(name: str, answers: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return answers in which the host asks for the certificate of another one, to join with.

    Args:
        name: of that host.
        answers: recorded.
    """
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, JOINING_GROUP),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.sign(new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    asked = [{**answer, "csrs": dict.fromkeys(answer.get("csrs") or (), request)} for answer in answers]
    assert any(answer["csrs"] for answer in asked), "the recorded host asked for nothing"
    return asked


def replayed(folder: pathlib.Path, count: int, answers: Answers) -> Replayed:
    """Return hosts that give these answers."""
    hosts = Replayed(folder, count)
    for scene, said in answers.items():
        hosts.tell(scene, said)
    return hosts
