# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values for a controller that have the right form, and that it would refuse, or fail with at night."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import bmcs, common
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import protocols

from .conftest import Example
from .mutations import ALL
from .test_harm import ESTATE

ONE, OTHER = "72f988bf-86f1-41af-91ab-2d7cd011db47", "d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11"

CLIENT, ESTATES = "0a1b2c3d-0000-4000-8000-00000000000e", f"{ESTATE}azure_rack_networks: [10.30.0.0/16]\n"


def scheduled(rule: str, begin: str = "DTSTART:20260101T020000Z") -> str:
    """Return a schedule with a rule."""
    return f"awx_schedules: [{{operation: verify, rrule: '{begin} RRULE:{rule}'}}]"


def launched(operation: str, answers: str = "") -> str:
    """Return a schedule of an operation."""
    rule = "DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1"
    return f"awx_schedules: [{{operation: {operation}, rrule: '{rule}', answers: {{{answers}}}}}]"


def notified(fields: str) -> str:
    """Return a notification."""
    return f"awx_notifications: [{{name: a, {fields}}}]"


WRONG = (
    ("awx_host: https://awx.example/api/v2/", "write https://awx.example"),
    ("awx_host: https://example.com/awx/api", "write https://example.com/awx"),
    ("awx_host: 'https://awx.example/#/login'", "write https://awx.example"),
    ("awx_host: https://10.244.0.1", "10.244.0.1 lies in site_pod_cidr"),
    ("awx_host: https://0.0.0.0", "0.0.0.0 is unspecified"),
    ("awx_host: https://169.254.1.1:8043", "169.254.1.1 is link-local"),
    ("awx_host: https://api.example.internal:6443", "is the cluster's own API"),
    ("awx_organization: ' ironspan'", "has a space at an end; write ironspan"),
    ("awx_project_credential: 'git '", "has a space at an end; write git"),
    ("awx_instance_groups: ['racks ']", "has a space at an end; write racks"),
    (
        "awx_project_url: https://github.com/a/b/tree/main",
        "is a page of a repository; write https://github.com/a/b",
    ),
    ("awx_project_url: https://git.example/a/b/-/tree/main", "write https://git.example/a/b"),
    ("awx_inventory_path: inventories/west/group_vars/all.yml", "write inventories/west"),
    ("awx_playbooks_folder: west/\nawx_inventory_path: west", "playbooks are no hosts"),
    ("awx_plans_folder: /runner/project", "is each job's own"),
    ("awx_plans_folder: /tmp/", "is each job's own"),
    ("awx_project_url: https://github.com/a/b.git\nawx_webhook_service: gitlab", "write github"),
    ("awx_project_url: git@gitlab.com:a/b.git\nawx_webhook_service: github", "write gitlab"),
    (
        f"{ESTATES}awx_azure_client_id: {CLIENT}\nawx_azure_tenant_id: {ONE}",
        "is another tenant than azure_tenant",
    ),
    (
        f"{ESTATES}awx_azure_tenant_id: {OTHER}\nawx_azure_client_id: {ONE}",
        "is the identifier of the subscription",
    ),
    (notified("type: webhook, url: 'https://10.96.0.7/x'"), "10.96.0.7 lies in site_service_cidr"),
    (
        notified("type: slack, secret_variable: T, channels: ['https://hooks.slack.com/x']"),
        "is an address, and no channel",
    ),
    ("awx_ca_file: /etc/hostname", "has no certificate in PEM"),
    ("awx_project_url: ssh://git@git.example:99999/x", "is no address of a git repository"),
    ("awx_project_url: https://git.example:0/x.git", "is no address of a git repository"),
    ("awx_project_branch: a..b", "is no branch, tag or commit"),
    ("awx_project_branch: main.lock", "is no branch, tag or commit"),
    ("awx_project_branch: /main", "is no branch, tag or commit"),
    ("awx_project_branch: refs/heads/", "is no branch, tag or commit"),
    ("awx_project_branch: main:x", "is no branch, tag or commit"),
    ("awx_project_branch: main~1", "is no branch, tag or commit"),
    ("awx_playbooks_folder: playbooks/site.yml", "is a playbook; write playbooks"),
    ("awx_inventory_path: ~/inventory", "is no path inside of a folder"),
    ("awx_ssh_user: root:secret", "is no name of an account"),
    (f"awx_azure_tenant_id: {ONE}\nawx_azure_client_id: {ONE}", "an identity is not its tenant"),
    ("awx_answers: {ironspan_expected: ''}", "says nothing, and no survey asks for it"),
    ("awx_answers: {ironspan_servers: []}", "says nothing, and no survey asks for it"),
    ("awx_answers: {ironspan_hosts: gpu-a-01}", "would be the same hosts in all templates"),
    ("awx_answers: {ironspan_try: 0}", "too short; write 30s or more"),
    ("awx_answers: {ironspan_try: 48h}", "too long; write 86400s or less"),
    ("awx_answers: {ironspan_close: [IPMI, ipmi]}", "'ipmi' is none of its values"),
    ("awx_answers: {ironspan_close: IPMI SNMP}", "'IPMI SNMP' is none of its values"),
    ("awx_answers: {ironspan_snapshot_directory: /a/../b}", "not of its form"),
    ("awx_answers: {ironspan_snapshot_directory: /}", "not of its form"),
    ("awx_answers: {ironspan_snapshots_kept: 1000000}", "1000000 is too large"),
    ("awx_answers: {ironspan_days: 100000}", "100000 is too large"),
    ("awx_answers: {ironspan_namespace: A_B}", "not of its form"),
    (notified("type: webhook, url: 'https://h', username: bob"), "is there without a password"),
    (notified("type: webhook, url: 'https://h', channels: [ops]"), "does nothing for webhook"),
    (notified("type: webhook, url: 'https://h', events: []"), "nobody hears of anything"),
    (notified("type: slack, channels: [ops], secret_variable: A, url: 'https://h'"), "nothing for slack"),
    (notified("type: slack, channels: [ops], secret_variable: IRONSPAN_AWX_TOKEN"), "would be sent to slack"),
    (
        notified("type: pagerduty, subdomain: x.pagerduty.com, secret_variable: A, service_key_variable: B"),
        "write what stands before .pagerduty.com, such as x",
    ),
    (
        notified("type: pagerduty, subdomain: x, secret_variable: A, service_key_variable: A"),
        "a token is no service's key",
    ),
    ("awx_notifications: [{name: 'a ', type: webhook, url: 'https://h'}]", "has a space at an end; write a"),
    (scheduled("FREQ=DAILY;INTERVAL=0"), "has no INTERVAL, or none of 1 or more"),
    (scheduled("FREQ=DAILY;INTERVAL=1;INTERVAL=2"), "says a part of its RRULE twice"),
    (scheduled("FREQ=WEEKLY;INTERVAL=1;BYDAY=MON"), "has a BYDAY that is none of MO"),
    (scheduled("FREQ=WEEKLY;INTERVAL=1;WKST=XX"), "has a WKST that is none of MO"),
    (scheduled("FREQ=DAILY;INTERVAL=1;BYHOUR=24"), "has a BYHOUR that is not between 0 and 23"),
    (scheduled("FREQ=DAILY;INTERVAL=1;BYMINUTE=-1"), "has a BYMINUTE that is not between 0 and 59"),
    (scheduled("FREQ=MONTHLY;INTERVAL=1;BYMONTHDAY=32"), "has a BYMONTHDAY that is not between 1 and 31"),
    (scheduled("FREQ=YEARLY;INTERVAL=1;BYMONTH=2;BYMONTHDAY=30"), "a day that its months do not have"),
    (scheduled("FREQ=DAILY;INTERVAL=1;BYHUOR=3"), "has BYHUOR, which no RRULE has, and BYHOUR may be meant"),
    (scheduled("FREQ=DAILY;INTERVAL=1;UNTIL=20271301T000000Z"), "has an UNTIL that is no time"),
    (scheduled("FREQ=DAILY;INTERVAL=1;UNTIL=20260101T010000Z"), "ends before it begins"),
    (
        scheduled("FREQ=DAILY;INTERVAL=1;UNTIL=20251231T230000Z", "DTSTART;TZID=UTC:20260101T020000"),
        "ends before it begins",
    ),
    (launched("net_policy"), "net_policy needs ironspan_from, and a schedule asks nobody"),
    (launched("bmc_log", "ironspan_servers: gpu-1"), "bmc_log needs ironspan_expected"),
    (launched("backup_verify", "ironspan_hosts: [az-9]"), "the inventory has no host 'az-9'; write az-"),
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_what_a_controller_cannot_use(example: Example, lines: str, says: str) -> None:
    example.insist_refused(ALL, lines, says)


RIGHT = (
    "awx_host: https://example.com/awx",
    "awx_host: http://127.0.0.1:8052",
    "awx_host: https://[2001:db8::5]:8043",
    "awx_project_url: https://github.com/a/b\nawx_webhook_service: github",
    "awx_project_url: https://git.example/group/inner/site.git\nawx_webhook_service: bitbucket_dc",
    "awx_playbooks_folder: .\nawx_inventory_path: .",
    "awx_plans_folder: /var/lib/plans",
    "awx_organization: GPU operations",
    "awx_project_branch: feature/rack-b@2",
    "awx_project_branch: 3f786850e387550fdab836ed7e6dc881de23001b",
    "awx_project_url: ssh://git@git.example:7999/gpu/site.git",
    "awx_project_url: git@git.example:gpu/site.git",
    "awx_playbooks_folder: ./collections/playbooks",
    "awx_ssh_user: EXAMPLE\\ops",
    f"awx_azure_tenant_id: {ONE}\nawx_azure_client_id: {OTHER}",
    "awx_answers: {ironspan_try: 24h, ironspan_close: 'IPMI, SNMP', ironspan_fail_when_due: 'yes'}",
    "awx_answers: {ironspan_expected: servers/expected.yml, ironspan_mapping: ''}",
    notified("type: webhook, url: 'http://10.20.0.9:8080/hook?x=1', secret_variable: TOKEN"),
    notified("type: webhook, url: 'https://h', username: bob, secret_variable: HOOK, events: [approvals]"),
    notified("type: pagerduty, subdomain: example-ops, secret_variable: A, service_key_variable: B"),
    notified("type: slack, channels: ['#ops', '@anna'], secret_variable: SLACK_TOKEN"),
    scheduled("FREQ=MONTHLY;INTERVAL=1;BYMONTHDAY=-1"),
    scheduled("FREQ=MONTHLY;INTERVAL=1;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"),
    scheduled("INTERVAL=2;FREQ=WEEKLY;WKST=MO;BYDAY=SA,SU;BYHOUR=3;BYMINUTE=30"),
    scheduled("FREQ=YEARLY;INTERVAL=1;BYMONTH=1,7;BYMONTHDAY=31"),
    scheduled("FREQ=YEARLY;INTERVAL=1;BYMONTH=2;BYMONTHDAY=29"),
    scheduled("FREQ=DAILY;INTERVAL=1;UNTIL=20260101T030000Z", "DTSTART;TZID=UTC:20260101T020000"),
    launched("net_policy", "ironspan_from: web/shop-0, ironspan_to: '10.0.0.1:443'"),
    launched("backup_verify", "ironspan_hosts: az-1"),
)


@pytest.mark.parametrize("lines", RIGHT)
def test_what_a_controller_can_use(example: Example, lines: str) -> None:
    example.append(ALL, f"{lines}\n")
    assert example.problems() == []


def test_what_is_missing_of_a_schedule_is_said_once(example: Example) -> None:
    example.append(ALL, "awx_schedules: [{playbook: doctor}]\n")
    assert [problem.path for problem in example.problems()] == [
        f"awx_schedules[0].{field}" for field in ("operation", "playbook", "rrule")
    ]


def test_an_authority_of_a_controller(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("An authority.\n-----BEGIN CERTIFICATE-----\n")
    example.append(ALL, f"awx_ca_file: {file}\n")
    assert example.problems() == []


def test_arguments_are_bounded_as_those_who_read_them_say() -> None:
    closed = next(entry for entry in bmcs.OPERATIONS[0].arguments if entry.name == "ironspan_close")
    assert (closed.default, closed.choices) == (protocols.CLOSED, protocols.KNOWN)
    assert (common.TRY.least, common.TRY.most) == (back.SHORTEST_S, back.LONGEST_S)
