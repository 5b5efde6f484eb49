# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a Node object says, and what of it counts; a node may write anything into its own annotations."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import (
    DRIVER_CHANGE,
    cordoned_here,
    is_cordoned,
    is_ready,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import Fate, fate_of, name_of

from ironspan.gpu_repair import records
from ironspan.gpu_repair.model import (
    DONE,
    EVENTS,
    PAIR_EVENTS,
    PREFLIGHT,
    PREFLIGHT_TAINT,
    RECORD,
    RELEASE,
    RELEASED_BY,
    REPAIR_TAINT,
    SEEN,
    Done,
    Event,
    Node,
    Pod,
    Preflight,
    Release,
)

MOST = 64
"""Events and GPUs of one node that are read: none has more."""
MOST_RESULTS = 8 * MOST
"""Results of its preflight: there are eight tests."""
Object = Mapping[str, t.Any]


def node_of(found: Object, rack: str, tests: Sequence[str], pods: Iterable[Object] | None = None) -> Node:
    """Return what a Node object says.

    Args:
        found: the object.
        rack: from the inventory.
        tests: that a preflight has to have passed on each GPU.
        pods: of the node; None where nobody looked.
    """
    metadata, spec = found["metadata"], found.get("spec", {})
    annotations = metadata.get("annotations") or {}
    boot = str(found.get("status", {}).get("nodeInfo", {}).get("bootID", ""))
    taints = tuple(spec.get("taints") or ())
    keys = {taint.get("key") for taint in taints}
    record, unreadable = None, REPAIR_TAINT in keys
    if text := annotations.get(RECORD):
        try:
            record, unreadable = records.loads(text), False
        except ValueError:
            unreadable = True
    seen = _mapping(annotations.get(SEEN))
    now = seen if seen.get("boot") == boot else {}
    gpus = [gpu for gpu in _list(now.get("gpus")) if gpu.get("uuid")]
    driver = _text(now.get("driver"))
    by_change = (
        is_cordoned(dict(found))
        and cordoned_here(dict(found))
        and not (record is not None and record.cordoned)
    )
    return Node(
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        rack=rack,
        version=str(metadata.get("resourceVersion", "")),
        boot=boot,
        ready=is_ready(dict(found)),
        cordoned=is_cordoned(dict(found)),
        by_change=by_change,
        changing=by_change and _is_changing(annotations.get(DRIVER_CHANGE), driver),
        taints=taints,
        gated=PREFLIGHT_TAINT in keys,
        held=REPAIR_TAINT in keys,
        events=tuple(
            event for name in (EVENTS, PAIR_EVENTS) for event in _events(annotations.get(name), boot)
        ),
        driver=driver,
        serials=tuple(_text(gpu.get("serial") or gpu["uuid"]) for gpu in gpus),
        preflight=_preflight(found, boot, driver, [_text(gpu["uuid"]) for gpu in gpus], tests),
        done=_done(annotations.get(DONE)),
        release=_release(annotations),
        record=record,
        unreadable=unreadable,
        pods=None if pods is None else tuple(map(pod_of, pods)),
    )


def _is_changing(text: t.Any, driver: str) -> bool:
    """Tell whether a wave is still changing a node's driver, or taking it back to the one of before."""
    change = _mapping(text)
    is_back = change.get("back") is True and change.get("before") == driver
    return bool(change) and not is_back


def those_that_go(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that a drain would evict."""
    return [pod for pod in pods if fate_of(dict(pod)) is not Fate.STAYS]


def condition(found: Object, kind: str) -> Object:
    """Return a condition of a node, empty when it has none."""
    conditions = found.get("status", {}).get("conditions") or ()
    return next((dict(each) for each in conditions if each.get("type") == kind), {})


def _events(text: t.Any, boot: str) -> Iterable[Event]:
    for entry in _list(text):
        key = _text(entry.get("event"))
        # What happened before the last boot is over.
        if key and entry.get("boot") == boot:
            seen = f"{_text(entry.get('last'))}/{_text(entry.get('count'))}"
            gpu, since = _text(entry.get("gpu")), _text(entry.get("since"))
            yield Event(key, gpu, seen, since, _text(entry.get("detail")))


def _preflight(
    found: Object, boot: str, driver: str, gpus: Sequence[str], tests: Sequence[str]
) -> Preflight | None:
    """Return the preflight of this boot and driver; it passed when condition, verdict and evidence agree."""
    said = _mapping((found["metadata"].get("annotations") or {}).get(PREFLIGHT))
    if not boot or not driver or said.get("boot") != boot or said.get("driver") != driver:
        return None
    passed: set[tuple[str, str]] = set()
    failed = []
    for result in _list(said.get("results"), MOST_RESULTS):
        test, gpu = _text(result.get("test")), _text(result.get("gpu"))
        if result.get("passed") is True:
            passed.add((test, gpu))
        else:
            figures = f"{_text(result.get('measured'))} of {_text(result.get('wanted'))}"
            failed.append(" ".join(filter(None, (test, gpu, figures, _text(result.get("unit"))))))
    missing = [
        f"{test} {gpu}" for test in tests for gpu in gpus if not {(test, gpu), (test, "")} & passed
    ] + ([] if gpus else ["a GPU"])
    status = condition(found, "GPUPreflight").get("status")
    verdict = None
    if status == "False" or said.get("passed") is False:
        verdict = False
    elif status == "True" and said.get("passed") is True:
        verdict = False if failed else None if missing else True
    return Preflight(
        boot,
        driver,
        _seconds(said.get("started")),
        _seconds(said.get("ended")),
        verdict,
        tuple(missing),
        tuple(failed),
    )


def _done(text: t.Any) -> Done | None:
    said = _mapping(text)
    if not said.get("id"):
        return None
    return Done(_text(said["id"]), said.get("ok") is True, _text(said.get("detail")))


def _release(annotations: Mapping[str, t.Any]) -> Release | None:
    said, by = _mapping(annotations.get(RELEASE)), _text(annotations.get(RELEASED_BY))
    if not said.get("id") or not by:
        return None
    to = "rma" if said.get("to") == "rma" else "preflight"
    return Release(_text(said["id"]), by, _text(said.get("reason")), to)


def pod_of(found: Object) -> Pod:
    """Return what counts of a pod."""
    containers = found.get("spec", {}).get("containers") or ()
    wants = [name for each in containers for name in each.get("resources", {}).get("limits") or {}]
    return Pod(name_of(dict(found)), any(name.startswith("nvidia.com/") for name in wants))


def _parsed(text: t.Any) -> t.Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mapping(text: t.Any) -> Mapping[str, t.Any]:
    found = _parsed(text)
    return found if isinstance(found, dict) else {}


def _list(text: t.Any, most: int = MOST) -> Sequence[Mapping[str, t.Any]]:
    found = _parsed(text)
    entries: list[t.Any] = found if isinstance(found, list) else []
    return [each for each in entries if isinstance(each, dict)][:most]


def _text(value: t.Any) -> str:
    return "" if value is None else records.clean(str(value))


def _seconds(value: t.Any) -> float:
    try:
        return records.seconds(value)
    except (ValueError, OverflowError):
        return 0.0
