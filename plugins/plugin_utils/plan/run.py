# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan inside a run of ansible-playbook: checked once, its documents put where every host's action looks.

The variable ``ironspan_plan`` names the file. Workers are separate processes; what they share is in the
folder of the run.
"""

from __future__ import annotations

import json
import time
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import HostNotes, RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.secret_names import named_in_text

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

# Every execution on a host imports this module: what only a planned run needs is imported where it is used.

VARIABLE = "ironspan_plan"
ROLLBACK = "rollback"
"""The operation whose documents the hosts have composed."""


def plan_file(variables: Mapping[str, t.Any]) -> str:
    """Return the plan that this run applies, an empty text when it applies none."""
    return str(variables.get(VARIABLE) or "")


def planned_hosts(variables: Mapping[str, t.Any]) -> set[str]:
    """Return all hosts that the plan of this run knows, whether it changes them or not; empty without a plan.

    The plan is not checked yet: this only tells how much of the site the run can see.
    """
    file = plan_file(variables)
    if not file:
        return set()
    try:
        content = json.loads(Path(file).read_bytes())["plan"]
        return {*content["hosts"], *content["left_out"], *content["cluster"]["nodes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()  # why it is no plan is said where it is checked


def claimed_digest(file: str) -> str:
    """Return the digest that a plan file says it has; whether that is true is checked when it is laid out."""
    try:
        return str(json.loads(Path(file).read_bytes())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


_OF_THE_PLAN = ("cluster", "remote", "operation", "arguments", "bound", "steps", "expires")


class PlannedRun:
    """The plan of this run as its actions see it.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._path = folder.path / "planned"

    def ensure(self, file: str, site: Callable[[], Site]) -> None:
        """Check the plan and lay out its documents, unless another process has.

        Args:
            file: the plan file.
            site: returns the site; called only when there is work.

        Raises:
            PlanError: the plan may not be applied.
            SiteError: the inventory has problems.
        """
        self._folder.once(lambda: self.lay_out(file, site()))

    def lay_out(self, file: str, site: Site, keeping: bool = False, operation: str = "") -> Plan:
        """Check a plan and lay out its documents.

        Args:
            file: the plan file.
            site: from the inventory.
            keeping: keep the plan on the controller, because it is about to be applied.
            operation: what the run does, empty when it does not say.
        """
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import check, keep
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import inventory_digest
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import load
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.members import members_of
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.authorities import (
            StoreAuthorities,
        )

        path = Path(file)
        plan = load(path)
        authorities = StoreAuthorities(site, make=False)
        site.uid_source = authorities.uid
        approved_by = check.check(plan, path, site, time.time(), operation)
        # A slice cannot tell: it sees a part of the inventory.
        moved = not site.is_slice and plan.content["inventory"] != inventory_digest(site)
        head: dict[str, t.Any] = {
            "digest": plan.digest,
            "kept": "",
            "free": check.free_kinds(plan, site.plan, approved_by),
            "slice": site.is_slice,
            "elsewhere": sorted(members_of(plan.hosts) - set(site.hosts)) if site.is_slice else [],
            **{name: plan.content[name] for name in _OF_THE_PLAN},
        }
        if keeping:
            head["kept"] = str(keep.keep(plan, path, approved_by, moved))
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("head.json", {**head, "approved_by": approved_by, "inventory_moved": moved})
        for name, entry in plan.hosts.items():
            self._write(
                f"{name}.host.json", {key: entry[key] for key in ("fingerprint", "changes", "pending")}
            )
        texts = {name: plan.document_text(name) for name in plan.hosts}
        self._folder.put((name, text, _notes(site, plan, name, text)) for name, text in texts.items())
        return plan

    def _write(self, name: str, value: t.Any) -> None:
        (self._path / name).write_text(json.dumps(value), encoding="utf-8")

    def _read(self, name: str) -> t.Any:
        return json.loads((self._path / name).read_text(encoding="utf-8"))

    def head(self) -> dict[str, t.Any]:
        """Return digest, cluster objects, the folder on the controller, and who approved."""
        return t.cast("dict[str, t.Any]", self._read("head.json"))

    def slice_of(self) -> str:
        """Return the plan's digest when this run is one of several slices of it, else an empty text."""
        head = self.head()
        return str(head["digest"]) if head["slice"] else ""

    def operation(self, name: str) -> list[dict[str, t.Any]]:
        """Return the steps of the plan.

        Raises:
            PlanError: they are those of another operation.
        """
        head = self.head()
        if head["operation"] != name:
            raise PlanError(f"the plan is for {head['operation']}.yml, not for {name}.yml", "make a new plan")
        return t.cast("list[dict[str, t.Any]]", head["steps"])

    def host(self, name: str) -> dict[str, t.Any] | None:
        """Return what the plan says of a host, None when the host is not in it."""
        try:
            return t.cast("dict[str, t.Any]", self._read(f"{name}.host.json"))
        except FileNotFoundError:
            return None

    def mark_compared(self, name: str) -> None:
        """Remember that a host is as it was when the plan was made."""
        (self._path / f"{name}.compared").touch()

    def insist_compared(self, name: str) -> None:
        """Refuse to change a host that this run has not compared with the plan.

        Raises:
            PlanError: it was not, or it was found changed.
        """
        if not (self._path / f"{name}.compared").exists():
            raise PlanError(
                f"host {name} was not compared with the plan in this run",
                "apply plans with playbooks/site.yml",
            )

    def report(self, host: str, result: Mapping[str, t.Any]) -> None:
        """Add what became of a host to the plan's report."""
        kept = self.head()["kept"]
        if not kept or not (result.get("changed") or result.get("failed")):
            return
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import keep

        keep.report(
            Path(kept),
            event="host",
            host=host,
            failed=bool(result.get("failed")),
            changes=[entry["resource"] for entry in result.get("changes") or ()],
            **({"message": str(result.get("msg"))} if result.get("failed") else {}),
        )


def _notes(site: Site, plan: Plan, name: str, text: str) -> HostNotes:
    entry = plan.hosts[name]
    fitness = entry["document"].get("fitness", {})
    composed = plan.content["operation"] == ROLLBACK
    return HostNotes(
        mirror=entry["mirror"],
        pki_store=site.pki_store,
        pki_key_file=site.pki_key_file,
        max_clock_skew_s=fitness.get("max_clock_skew_s"),
        pythons=fitness.get("pythons", []),
        approvals=0,
        release={"digest": plan.digest, "time": plan.content["created"]},
        secrets=entry.get("secrets", []) if composed else named_in_text(text),
        composed=composed,
    )


def insist_on_a_plan(approvals: int) -> None:
    """Refuse to change anything without a plan where plans must be approved.

    Raises:
        PlanError: the site wants approvals.
    """
    if approvals:
        raise PlanError(
            f"changes of this site need {approvals} approvals (site_plan_approvals)",
            "make a plan with 'ironspan plan', have it approved, and apply that",
        )
