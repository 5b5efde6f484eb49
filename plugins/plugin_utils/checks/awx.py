# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a controller: what is needed to render it, known operations, times, values."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.argument_values import (
    Wrong,
    parts_of,
    says_nothing,
    wrong_value,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry, entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

HOST, CA_FILE = "awx_host", "awx_ca_file"
IDENTITY = ("awx_azure_tenant_id", "awx_azure_client_id")
FOLDER = "awx_playbooks_folder"
ANSWERS, NOTIFICATIONS, SCHEDULES = "awx_answers", "awx_notifications", "awx_schedules"
LEFT_ALONE = "awx_alerts_left_alone"
_NEEDED = {
    "webhook": ("url",),
    "slack": ("channels", "secret_variable"),
    "pagerduty": ("subdomain", "secret_variable", "service_key_variable"),
}
"""What each type of notification cannot do without."""
_USED = {
    "webhook": ("url", "username", "secret_variable"),
    "slack": ("channels", "secret_variable"),
    "pagerduty": ("subdomain", "secret_variable", "service_key_variable"),
}
"""What each type of notification does something with."""
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_NAMED = "ironspan_hosts"


def check_names(draft: Draft) -> None:
    """The prefix of names is there: what begins with nothing would be everything."""
    if draft.site_value("awx_prefix") == "":
        place = draft.site_place("awx_prefix")
        draft.problems.add(place, "awx_prefix", "is empty", "write a word that the names begin with")


def check_reached(draft: Draft) -> None:
    """The controller is reached by TLS, with an authority that there is; Azure by a whole identity."""
    host, file = str(draft.site_value(HOST) or ""), str(draft.site_value(CA_FILE) or "")
    name = urllib.parse.urlsplit(host).hostname if fault_of(host, "url") is None else None
    if host.startswith("http://") and name not in (None, "127.0.0.1", "::1", "localhost"):
        message = f"{host} would send the controller's token unencrypted"
        draft.problems.add(draft.site_place(HOST), HOST, message, f"write https://{name}")
    parts = urllib.parse.urlsplit(host) if name else None
    if parts and (parts.query or parts.fragment or re.search(r"/api(/.*)?$", parts.path)):
        message = f"{host} has more than the address that people open"
        address = re.sub(r"/api(/.*)?$", "", f"{parts.scheme}://{parts.netloc}{parts.path}").rstrip("/")
        draft.problems.add(draft.site_place(HOST), HOST, message, f"write {address}")
    if file and (message := _no_authority(Path(file))):
        draft.problems.add(draft.site_place(CA_FILE), CA_FILE, message, "write the authority's file, in PEM")
    written = [bool(draft.site_value(each)) for each in IDENTITY]
    if any(written) and not all(written):
        there, missing = IDENTITY if written[0] else IDENTITY[::-1]
        draft.problems.add(
            draft.site_place(there),
            there,
            f"is one half of an identity without {missing}",
            f"write {missing} too",
        )
    elif all(written) and str(draft.site_value(IDENTITY[0])) == str(draft.site_value(IDENTITY[1])):
        message = f"is the same as {IDENTITY[0]}, and an identity is not its tenant"
        draft.problems.add(
            draft.site_place(IDENTITY[1]), IDENTITY[1], message, "write the identity's client ID"
        )


def _no_authority(file: Path) -> str:
    if not file.is_file():
        return f"{file} is no file"
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    return "" if _CERTIFICATE in text else f"{file} has no certificate in PEM"


def check_repository(draft: Draft) -> None:
    """The folder with the playbooks is a folder."""
    folder = str(draft.site_value(FOLDER) or "")
    if folder.endswith((".yml", ".yaml")):
        message, remedy = f"{folder} is a playbook", f"write {folder.rpartition('/')[0] or '.'}"
        draft.problems.add(draft.site_place(FOLDER), FOLDER, message, remedy)


def check_answers(draft: Draft) -> None:
    """Each answer is one of an argument that there is, and of its type."""
    answers = draft.site_value(ANSWERS)
    host = draft.writer(ANSWERS)
    if not isinstance(answers, Mapping) or host is None:
        return
    known = catalogue.arguments()
    for name, wrong in _wrong_answers(answers, known):
        draft.problems.add(draft.inner_place(host, ANSWERS, name), f"{ANSWERS}.{name}", *wrong)
    for name, value in answers.items():
        message, remedy = "", "leave it out; then a survey asks for it"
        if name == _NAMED:
            message = "would be the same hosts in all templates, also in those that remove hosts"
        elif name in known and known[name].required and says_nothing(known[name], value):
            message = "says nothing, and no survey asks for it any more"
        if message:
            draft.problems.add(draft.inner_place(host, ANSWERS, name), f"{ANSWERS}.{name}", message, remedy)


def _wrong_answers(
    answers: Mapping[str, t.Any], known: Mapping[str, Argument]
) -> Iterator[tuple[str, Wrong]]:
    for name, value in answers.items():
        if name not in known:
            near = nearest(str(name), known)
            yield name, Wrong("no operation has this argument", f"write {near}" if near else "leave it out")
        elif known[name].of_run:
            yield name, Wrong("is about one run", "leave it out; a survey or a workflow says it")
        elif wrong := wrong_value(known[name], value):
            yield name, wrong


def check_notifications(draft: Draft) -> None:
    """Each notification has what its type needs, and a name of its own."""
    seen = set()
    for entry in entries(draft, NOTIFICATIONS):
        kind = entry.text("type")
        for field in _NEEDED.get(kind, ()):
            if not entry.has(field):
                entry.problem(field, f"is empty, and {kind} needs it", f"write '{field}: ...'")
        name = entry.text("name")
        if name in seen:
            entry.problem("name", f"{name} is there twice", "write it once")
        seen.add(name)
        if name != name.strip():
            entry.problem("name", f"{name!r} has a space at an end", f"write {name.strip()}")
        _check_notification(entry, kind)


def _check_notification(entry: Entry, kind: str) -> None:
    for field in sorted({field for fields in _USED.values() for field in fields}) if kind in _USED else ():
        if entry.has(field) and field not in _USED[kind]:
            entry.problem(field, f"does nothing for {kind}", "leave it out")
    if entry.value.get("events") == []:
        entry.problem("events", "is empty, so nobody hears of anything", "write [error, approvals]")
    domain = entry.text("subdomain")
    if domain and not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", domain):
        remedy = f"write what stands before .pagerduty.com, such as {domain.partition('.')[0]}"
        entry.problem("subdomain", f"{domain!r} is no subdomain of PagerDuty", remedy)
    if kind == "webhook" and entry.has("username") and not entry.has("secret_variable"):
        entry.problem("username", "is there without a password", "write secret_variable too, or neither")
    for field in ("secret_variable", "service_key_variable"):
        if entry.text(field).startswith("IRONSPAN_"):
            message = f"{entry.text(field)} is a secret of the site's own, and would be sent to {kind}"
            entry.problem(field, message, "write a variable of its own")
    if kind == "pagerduty" and entry.text("secret_variable") == entry.text("service_key_variable") != "":
        message = "is secret_variable too, and a token is no service's key"
        entry.problem("service_key_variable", message, "write a variable of its own")


def check_schedules(draft: Draft) -> None:
    """Each schedule is of an operation that may run by itself, at a time that controllers take."""
    if not draft.site_value(SCHEDULES):
        return
    # Only sites that have some pay for reading what a controller offers.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.rrule import (
        fault_of as fault_of_time,
    )
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.templates import offered

    fit = {entry.name: entry for entry in offered() if not entry.approved}
    seen = set()
    for entry in entries(draft, SCHEDULES):
        name = entry.text("operation")
        if not name:
            continue  # It has been named as missing, or as no name.
        if name not in fit:
            _unfit(entry, name, fit)
            continue
        if name in seen:
            entry.problem("operation", f"{name} is there twice", "write it once")
        seen.add(name)
        rule = entry.text("rrule")
        if rule and (fault := fault_of_time(rule)):
            entry.problem(
                "rrule", fault, "write it like DTSTART;TZID=UTC:20260101T020000 RRULE:FREQ=DAILY;INTERVAL=1"
            )
        answers = entry.value.get("answers")
        known = {argument.name: argument for argument in fit[name].arguments}
        if isinstance(answers, Mapping):
            for key, wrong in _wrong_answers(answers, known):
                entry.problem("answers", f"{key}: {wrong.message}", wrong.remedy)
        _check_launched(draft, entry, fit[name])


def _check_launched(draft: Draft, entry: Entry, operation: Operation) -> None:
    """What nobody is there to answer at night is answered, about hosts that there are."""
    said, given = draft.site_value(ANSWERS), entry.value.get("answers")
    answers = {**(said if isinstance(said, Mapping) else {}), **(given if isinstance(given, Mapping) else {})}
    for argument in operation.arguments:
        value = answers.get(argument.name)
        if argument.required and says_nothing(argument, value):
            message = f"{operation.name} needs {argument.name}, and a schedule asks nobody"
            entry.problem("operation", message, f"write answers: {{{argument.name}: ...}}")
        elif argument.type == "hosts" and not wrong_value(argument, value) and value:
            for name in parts_of(value):
                if name not in draft.hosts and not (operation.groups and draft.members(name)):
                    near = nearest(name, draft.hosts)
                    message = f"{argument.name}: the inventory has no host {name!r}"
                    entry.problem(
                        "answers", message, f"write {near}" if near else "write hosts that there are"
                    )


def check_alerts(draft: Draft) -> None:
    """Alerts that launch nothing here are such that launch something elsewhere."""
    named = draft.site_value(LEFT_ALONE)
    host = draft.writer(LEFT_ALONE)
    if not isinstance(named, list) or not named or host is None:
        return
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.events import REACTIONS

    for index, name in enumerate(named):
        if isinstance(name, str) and name not in REACTIONS:
            near = nearest(name, REACTIONS)
            remedy = f"write {near}" if near else "leave it out; docs/events.md lists those that do"
            draft.problems.add(
                draft.inner_place(host, LEFT_ALONE, index),
                LEFT_ALONE,
                f"{name} launches nothing anyway",
                remedy,
            )


def _unfit(entry: Entry, name: str, fit: Mapping[str, t.Any]) -> None:
    if name in catalogue.OPERATIONS:
        entry.problem("operation", f"{name} does not run by itself", f"write one of {', '.join(fit)}")
    else:
        near = nearest(name, fit)
        remedy = f"write {near}" if near else f"write one of {', '.join(fit)}"
        entry.problem("operation", f"there is no operation {name!r}", remedy)


CHECKS = (
    check_names,
    check_reached,
    check_repository,
    check_answers,
    check_notifications,
    check_schedules,
    check_alerts,
)
