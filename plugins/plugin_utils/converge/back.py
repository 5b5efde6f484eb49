# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ways back: changes on trial, and the rollback to a document that a host has kept.

Imported only by runs that try something or roll something back.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import Verdict
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

OPERATION = "rollback"
DIGEST_VARIABLE = "ironspan_digest"
TRY_VARIABLE = "ironspan_try"
SHORTEST_S, LONGEST_S = 30, 86_400
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_MINOR = re.compile(r"v?(\d+)\.(\d+)\.\d+")


def seconds_of(text: t.Any) -> int:
    """Return how long a trial lasts, in seconds.

    Args:
        text: a number of seconds, or a number with s, m or h behind it.

    Raises:
        ExchangeError: it is neither, or out of range.
    """
    match = re.fullmatch(r"([0-9]{1,6})([smh]?)", str(text).strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ExchangeError(
            f"{text!r} is no time for a trial",
            f"write seconds, or a time such as 90s or 5m, of at least {SHORTEST_S} s and at most a day",
        )
    return seconds


def trial_of(variables: Mapping[str, t.Any], folder: RunFolder) -> dict[str, t.Any]:
    """Return what the module needs to know of this run's trial, nothing if it has none."""
    if not variables.get(TRY_VARIABLE):
        return {}
    # The folder of a run has a name of its own.
    identity = hashlib.sha256(str(folder.path).encode()).hexdigest()[:16]
    return {"id": identity, "seconds": seconds_of(variables[TRY_VARIABLE])}


def unlike(document: Mapping[str, t.Any], asked: str) -> dict[str, t.Any]:
    """Return the field of a resource that is to have another value than in the inventory's document.

    Args:
        document: of the inventory.
        asked: the resource's id and the field's name, with a slash between.

    Raises:
        ExchangeError: the document has no such resource.
    """
    name, _, field = asked.rpartition("/")
    for resource in document["resources"]:
        if resource["id"] == name:
            return {"resource": name, "field": field, "value": resource.get(field)}
    raise ExchangeError(f"the inventory declares no {name} for this host", "there is nothing to go back from")


def lay_out(result: dict[str, t.Any], host: str, to: str, folder: RunFolder) -> str:
    """Put the document that a host composed in the place of the inventory's, for the plays that follow.

    Args:
        result: of the module; verdicts are added, the document is taken out.
        host: its name.
        to: which document was asked for; empty where it is the one before the site's last change.
        folder: of the run.

    Returns:
        The document.
    """
    document = result.pop("document")
    facts = result["rollback"]
    result.setdefault("verdicts", []).extend(verdicts(facts))
    left = [f"{entry['resource']}: {entry['why']}" for entry in facts["left"]]
    left += [f"{entry['resource']}: needs {entry['needs']}" for entry in result.get("pending") or ()]
    if left:
        # Not into the result: beside the module's own warnings, a text ends the callbacks that show it.
        Display().warning(f"{host} keeps what cannot be taken back: {'; '.join(left)}")
    text = json.dumps(document)
    folder.replace(host, text)
    if not to:
        marks = _marks(folder)
        marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        (marks / _mark(facts["undoes"], host)).touch()
    return text


def verdicts(facts: Mapping[str, t.Any]) -> list[Verdict]:
    """Judge whether going back is safe.

    Args:
        facts: ``rollback`` of the module's result.
    """
    found: list[Verdict] = []
    members = [layer for layer in facts["removed_layers"] if layer in all_layers().members]
    if members:
        found.append(
            {
                "check": "rollback",
                "ok": False,
                "found": f"the earlier document has no layer {', '.join(members)}",
                "wanted": "a host that stays the member that it is",
                "remedy": "Take the host out of the cluster first: node_remove.yml or member_remove.yml.",
            }
        )
    for entry in facts["replaced_artifacts"]:
        now, then = _MINOR.search(entry["from"]), _MINOR.search(entry["to"])
        older = now and then and (int(then[1]), int(then[2])) < (int(now[1]), int(now[2]))
        if older and now and then and entry["resource"].split("/", 1)[0] in all_layers().members:
            found.append(
                {
                    "check": "rollback",
                    "ok": False,
                    "found": f"{entry['resource']} would go from {now[0]} back to {then[0]}",
                    "wanted": "the same minor version: neither etcd nor Kubernetes go back from one",
                    "remedy": "Roll back to a later document (--to), or restore a snapshot of etcd.",
                }
            )
    return found


def _marks(folder: RunFolder) -> Path:
    return folder.path / "rollback"


def _mark(release: Mapping[str, t.Any], host: str) -> str:
    # By name, in the order of time: every host looks at all of them, and opens none.
    return f"{int(release.get('time', 0)):012d}-{release.get('digest', '')!s:.64}-{host}"


def left_alone(document: Mapping[str, t.Any], host: str, folder: RunFolder) -> str:
    """Return why a host takes no part in a rollback of several, an empty text when it does.

    The last change is rolled back: hosts whose last change is an earlier one of the site stay as they are.
    """
    mine = _mark(document["rollback"]["undoes"], host)
    try:
        marks = {path.name for path in _marks(folder).iterdir()}
    except FileNotFoundError:
        return ""
    if mine not in marks or max(marks).split("-")[1] == mine.split("-")[1]:
        return ""
    return "Its last change is older than that of other hosts of this run; name it alone to roll it back."


def of_the_last_release(entries: Mapping[str, Mapping[str, t.Any]], to: t.Any) -> dict[str, t.Any]:
    """Return the hosts that a plan of a rollback is about; see ``left_alone``."""
    if to or not entries:
        return dict(entries)
    releases = {name: entry["document"]["rollback"]["undoes"] for name, entry in entries.items()}
    newest = max(releases.values(), key=lambda release: int(release.get("time", 0)))
    return {
        name: entry for name, entry in entries.items() if releases[name].get("digest") == newest.get("digest")
    }
