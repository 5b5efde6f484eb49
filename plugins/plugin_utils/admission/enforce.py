# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts declared policies in force: compile, try, apply, and remove what is no longer declared."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import simulate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import is_always
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import RECORD
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    ObjectChange,
    apply_objects,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.owned import Owned

LAYER = "admission"
_RECORD = f"/api/v1/namespaces/kube-system/configmaps/{RECORD}"
TOLD = 20
"""How many pods are named while a run goes on; its result has all of them."""


class Enforced(t.NamedTuple):
    """What was done."""

    changes: list[ObjectChange]
    removed: list[str]
    refused: list[str]


def enforce(
    api: Api,
    declared: Sequence[Object],
    policies: Sequence[Object],
    *,
    check: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    gone: Sequence[Owned] | None = None,
) -> Enforced:
    """Make the cluster's policies those that are declared.

    Args:
        api: the cluster.
        declared: all objects to apply.
        policies: the policies among them, or those that API servers have read from files.
        check: only tell what would change.
        progress: told what goes on.
        gone: what is not declared any more and goes in the end; asked of the cluster when left out.

    Raises:
        ClusterError: the API server does not compile them, or the cluster's own pods do not pass; none but
            those that hold always was changed then.
    """
    first, rest = _parted(declared)
    changes = apply_objects(api, first, dry_run=True)
    if changes:
        simulate.check_expressions(api, first)
        changes = changes if check else apply_objects(api, first)
    later = apply_objects(api, rest, dry_run=True)
    refused = _passed(api, policies, check, progress) if later else []
    if later and not check:
        later = apply_objects(api, rest)
    if gone is None:
        gone = owned.undeclared(owned.found(api), LAYER, declared)
    removed = [one.title for one in gone] if check else owned.remove(api, gone)
    return Enforced([*changes, *later], removed, refused)


def _parted(declared: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """Return what holds always, and the rest; a trial may not come before the first (always.py)."""
    first = [item for item in declared if is_always(item)]
    return first, [item for item in declared if not is_always(item)]


def leave_files(
    api: Api,
    declared: Sequence[Object],
    policies: Sequence[Object],
    progress: Callable[[str], None],
    insist: Callable[[], None] = lambda: None,
    gone: Sequence[Owned] | None = None,
) -> Enforced:
    """Make objects of policies before API servers stop reading them from files, so that some hold always.

    Args:
        api: the cluster.
        declared: all objects to apply.
        policies: the policies among them.
        progress: told what goes on.
        insist: asked before anything is done; raises what forbids it.
        gone: what is not declared any more.

    Returns:
        What was done; nothing where policies are objects already.
    """
    record = api.find(_RECORD) or {}
    if record.get("data", {}).get("kept") != "files":
        return Enforced([], [], [])
    insist()
    return enforce(api, declared, policies, progress=progress, gone=gone)


def try_new(
    api: Api, declared: Sequence[Object], policies: Sequence[Object], progress: Callable[[str], None]
) -> list[str]:
    """Try policies that API servers are about to read from files; nothing when these were tried before.

    Returns:
        Pods of others that could not be made again.
    """
    record = next((item for item in declared if item["kind"] == "ConfigMap"), None)
    if record is None or (api.find(_RECORD) or {}).get("data") == record["data"]:
        return []
    first, _rest = _parted(declared)
    simulate.check_expressions(api, first)
    apply_objects(api, first)
    return _passed(api, policies, False, progress)


def _passed(api: Api, policies: Sequence[Object], check: bool, progress: Callable[[str], None]) -> list[str]:
    simulate.check_expressions(api, policies)
    if check or not policies:
        return []
    outcome = simulate.simulate(api, policies, progress)
    simulate.insist_on_no_lock_out(outcome)
    told = [f"{refused.pod}: {refused.reason}" for refused in outcome.others]
    for line in told[:TOLD]:
        progress(f"could not be made again: {line}")
    if len(told) > TOLD or outcome.left_out:
        progress(f"{max(0, len(told) - TOLD)} more could not, {outcome.left_out} were not tried")
    return told
