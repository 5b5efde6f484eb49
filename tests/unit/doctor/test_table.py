# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every check: silent about a healthy site, and right about each thing that can be wrong with it."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import table
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption

from ironspan.cli.main import build_parser
from tests.unit.doctor.samples import (
    DAY,
    GIB,
    NOW,
    Change,
    Draft,
    answer,
    host,
    member,
    node,
    pod,
    site,
    site_with,
    unit,
)

ROOT = Path(__file__).resolve().parents[3]
SOON, PAST = int(NOW) + 3 * DAY, int(NOW) - 2 * DAY


def certificate(path: str, not_after: int) -> Change:
    return lambda d: d.hosts["rack-1"]["certificates"].append({"path": path, "not_after": not_after})


def network(what: str, found: t.Any) -> Change:
    return lambda d: d.hosts["rack-1"]["network"].update({what: found})


def slots(slot: str, good: str, **bad: str) -> t.Any:
    return {"slot": slot, "good": good, "trial": "", "bad": bad}


def disk(**values: t.Any) -> Change:
    return lambda d: d.hosts["rack-1"]["disks"][0].update(values)


def drift(**values: t.Any) -> Change:
    return lambda d: d.hosts["rack-1"]["drift"].update(values)


def counted(packets: dict[str, int]) -> Change:
    return lambda d: d.hosts["rack-1"].update(egress=packets)


def condition(kind: str, status: str, message: str = "") -> Change:
    entry = {"type": kind, "status": status, "message": message}
    return lambda d: d.api["nodes"][1]["status"]["conditions"].append(entry)


def unready(d: Draft) -> None:
    d.api["nodes"][1]["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    ]


def information(name: str, value: str) -> Change:
    return lambda d: d.api["nodes"][1]["status"]["nodeInfo"].update({name: value})


def store(**values: t.Any) -> Change:
    def change(d: Draft) -> None:
        d.members = [member(**values)]

    return change


def of_servers(**values: t.Any) -> Change:
    return lambda d: d.ironic.update(values)


def a_server(state: str, maintenance: bool = False, reason: str = "") -> Change:
    said = {"state": state, "maintenance": maintenance, "reason": reason}
    return lambda d: d.ironic["servers"].update({"gpu-2": said})


def of_azure(**values: t.Any) -> Change:
    return lambda d: d.estate.update(values)


def differs(kind: str, change: str = "modify") -> Change:
    place = f"/subscriptions/s/resourceGroups/g/providers/{kind}"
    return lambda d: d.estate["state"]["changes"].append({"id": place, "change": change})


def ends(days: float) -> Change:
    moment = datetime.datetime.fromtimestamp(NOW + days * DAY, datetime.UTC)
    one = {"who": "ops", "role": "Contributor", "scope": "/subscriptions/s", "ends": moment.isoformat()}
    return lambda d: d.estate["ends"].append(one)


def known(**values: t.Any) -> Change:
    def change(d: Draft) -> None:
        d.controller = dataclasses.replace(d.controller, **values)

    return change


def attested(**values: str) -> Change:
    """Return a change by which the TPM of the worker has to prove something, with what is recorded of it."""
    record = Record("ab" * 32, "ecdsa", "00", {0: "cd"}, "anna", "2027-01-01", **values).text()

    def change(d: Draft) -> None:
        d.site = site_with({"node_attestation": "require"})
        known(tpms={"rack-1": record if values else ""})(d)

    return change


def request(user: str) -> Change:
    entry = {"metadata": {"name": "csr-1"}, "spec": {"username": f"system:node:{user}"}, "status": {}}
    return lambda d: d.api["requests"].append(entry)


def waiting(reason: str) -> Change:
    entry = {"restartCount": 3, "state": {"waiting": {"reason": reason}}}
    return lambda d: d.api["pods"][0]["status"].update(containerStatuses=[entry])


def trial(left: int) -> Change:
    found = {"seconds": 60, "steps": 9, "plan": "", "trial_until": NOW + left}
    verdict = {"check": "trial", "found": "on trial", "wanted": "no trial"}

    def change(d: Draft) -> None:
        d.hosts["rack-1"]["transaction"] = found
        d.hosts["rack-1"]["drift"]["verdicts"] = [verdict]

    return change


PLAN: dict[str, t.Any] = {
    "digest": "ab" * 32,
    "file": "/state/plan.json",
    "begun": int(NOW) - 600,
    "expires": int(NOW) + 60,
}
PLANNED = {
    **PLAN,
    "operation": "site",
    "arguments": {},
    "hosts": {"rack-1": {"digest": "d", "fingerprint": "f"}},
}


def planned(begun: dict[str, t.Any], **drift_now: str) -> Change:
    """Return the change to a site on which a plan was cut short, and whose worker is in some state now."""

    def change(d: Draft) -> None:
        known(open_plans=[begun])(d)
        d.hosts["rack-1"]["drift"].update({"digest": "d", "fingerprint": "f", **drift_now})

    return change


def without_data(d: Draft) -> None:
    """The only member lost its disk: etcd cannot start, and nobody reaches the API."""
    waiting_for = {"resource": "etcd/config", "needs": "membership:etcd"}
    d.hosts["az-1"]["drift"]["pending"] = [waiting_for]
    d.hosts["az-1"]["units"]["etcd.service"] = unit("failed")
    d.members = [member(error="Connection refused", healthy=False)]
    d.api = {"error": "https://10.0.0.9:6443 cannot be reached: refused."}


CHANGE = {"resource": "containerd/config", "kind": "file", "action": "update", "reason": "content differs"}

CASES: list[tuple[str, str, Change, str, str]] = [
    ("reachable", "problem", lambda d: d.hosts.update({"rack-1": {"unreachable": "timed out"}}),
     "rack-1: cannot be reached: timed out", "ironspan doctor --limit rack-1"),
    ("reachable", "problem", lambda d: d.hosts.update({"rack-1": {"error": "no python"}}),
     "cannot be looked at: no python", "ironspan doctor --limit rack-1"),
    ("clock", "problem", lambda d: d.hosts["rack-1"].update(skew_s=-3600.0),
     "rack-1: the clock is 60 minutes behind the controller's", "timedatectl set-ntp true"),
    ("disk", "problem", disk(free_bytes=5 * GIB), "/ has 5.0 GiB free, 5% of 100.0 GiB", "ssh rack-1 du"),
    ("disk", "notice", disk(free_bytes=12 * GIB), "/ has 12.0 GiB free", "du -xh"),
    ("disk", "problem", disk(free_inodes=10), "10 of 1000 inodes", "--inodes"),
    ("disk", "problem", disk(read_only=True), "/ is mounted read-only", "journalctl -k"),
    ("services", "problem",
     lambda d: d.hosts["rack-1"]["units"].update({"kubelet.service": unit("inactive")}),
     "rack-1: kubelet.service is inactive", "ironspan apply --limit rack-1"),
    ("services", "problem",
     lambda d: d.hosts["az-1"].update(etcd_closed=True, units={"etcd.service": unit("inactive")}),
     "az-1: etcd is closed: its database is older", "ironspan backup accept --allow-destructive"),
    ("services", "problem", lambda d: d.hosts["az-1"].update(backup_strangers=True),
     "az-1: the backup store has objects that this site did not write", "ironspan backup list"),
    ("services", "notice",
     lambda d: d.hosts["rack-1"]["units"].update({"kubelet.service": unit(restarts="9")}),
     "was started again 9 times", "journalctl"),
    ("services", "notice", lambda d: d.hosts["rack-1"]["failed_units"].append("cron.service"),
     "cron.service failed", "systemctl status --failed"),
    ("drift", "problem", drift(changes=[CHANGE], count=3), "differs in containerd/config and 2 more",
     "ironspan apply --limit rack-1"),
    ("drift", "problem", drift(error="boom"), "cannot be compared with its document: boom", "ironspan apply"),
    ("drift", "problem", drift(verdicts=[{"check": "memory", "found": "1 MiB", "wanted": "2 MiB"}]),
     "does not fit: memory is 1 MiB, wanted 2 MiB", "ironspan apply assess --limit rack-1"),
    ("transaction", "problem",
     lambda d: d.hosts["rack-1"].update(transaction={"seconds": 7200, "steps": 4, "plan": ""}),
     "a change was cut short 2 hours ago", "ironspan apply --limit rack-1; it resumes"),
    ("transaction", "notice", trial(250), "changes are on trial and go back in 4 minutes",
     "ironspan confirm --limit rack-1"),
    ("transaction", "problem", trial(-1000), "should have gone back 17 minutes ago",
     "ironspan confirm --revert --limit rack-1"),
    ("egress", "problem", counted({}),
     "rack-1: the table ironspan-egress is not loaded: pods reach everything",
     "ssh rack-1 systemctl reload ironspan-egress"),
    ("egress", "notice", counted({"spoofed": 3, "metadata": 0}),
     "rack-1: pods sent packets with the address of somebody else; it was dropped", "journalctl -k"),
    ("egress", "notice", counted({"spoofed": 0, "metadata": 1}), "asked for the credentials",
     "journalctl -k"),
    ("certificates", "problem", certificate("/etc/etcd/pki/server.crt", SOON),
     "/etc/etcd/pki/server.crt ends in 3 days", "ironspan apply certs_renew"),
    ("certificates", "problem", certificate("/etc/etcd/pki/server.crt", PAST), "ended 2 days ago", "certs"),
    ("certificates", "notice", certificate("/etc/etcd/pki/server.crt", int(NOW) + 20 * DAY), "in 20 days",
     "ironspan apply certs_renew"),
    ("certificates", "problem",
     certificate("/var/lib/kubelet/pki/kubelet-client-current.pem", int(NOW) + 10 * DAY),
     "the kubelet did not renew it", "systemctl restart kubelet"),
    ("certificates", "problem",
     lambda d: d.hosts["rack-1"]["certificates"].append({"path": "/etc/kubernetes/x.conf", "error": "torn"}),
     "is no certificate: torn", "certs"),
    ("slots", "problem", lambda d: d.hosts["rack-1"].update(slots=slots("b", "", a="ssh: none")),
     "slot b runs and is not known to be good; slot a failed: ssh: none", "sudo ironspan-slot check"),
    ("slots", "notice", lambda d: d.hosts["rack-1"].update(slots=slots("a", "a", b="ssh: none")),
     "slot a runs; slot b failed: ssh: none", "fix the cause"),
    ("reboot", "notice", lambda d: d.hosts["rack-1"].update(reboot_wanted=True), "ask for a reboot", "drain"),
    ("reboot", "notice", lambda d: d.hosts["rack-1"].update(reboots=["the kernel has new arguments"]),
     "it waits for a reboot: the kernel has new arguments", "drain and reboot rack-1"),
    ("mtu", "problem", network("mtu", [{"peer": "az-1", "wanted": 1400, "largest": 1352}]),
     "packets of 1400 bytes (site_wan_mtu) do not pass the WAN", "write site_wan_mtu: 1350"),
    ("mtu", "notice", network("mtu", [{"peer": "az-1", "wanted": 1400, "largest": 0}]),
     "no echo comes back", "let ICMP echo"),
    ("dns", "problem", network("dns", {"error": "no answer within 2 s"}),
     "the cluster's DNS (10.96.0.10) gives no answer within 2 s", "ironspan apply --limit rack-1"),
    ("link", "problem", network("api", {"error": "timed out"}), "10.0.0.9:6443 cannot be reached", "link"),
    ("link", "notice", network("api", {"ms": 200.0}), "a round trip to the API takes 200 ms", "WAN link"),
    ("link", "problem", network("api", {"ms": 900.0}), "takes 900 ms", "WAN link"),
    ("authorities", "notice", known(authorities={"etcd": int(NOW) + 200 * DAY}), "authority etcd ends in 200",
     "ironspan plan ca_rotate -e ironspan_authority=etcd -e ironspan_authority_stage=trust"),
    ("authorities", "notice", known(authorities={"etcd": int(NOW) + 200 * DAY}, rotating={"etcd": "trust"}),
     "authority etcd ends in 200", "ironspan_authority_stage=next"),
    ("authorities", "problem", known(authorities={"etcd": SOON}), "the authority etcd ends in 3 days",
     "ca_rotate"),
    ("encryption", "notice", known(encryption=Encryption(("secretbox-1", "identity"), "write", "2026-11-22")),
     "in the stage write since 2026-11-22",
     "ironspan apply encryption_rotate -e ironspan_encryption_stage=next"),
    ("attestation", "problem", attested(asked="2027-01-02", found="PCR 0 (firmware) is 1"),
     "rack-1: its TPM was asked on 2027-01-02: PCR 0 (firmware) is 1", "ironspan server attest rack-1;"),
    ("attestation", "notice", attested(), "nobody has accepted its TPM", "ironspan server attest rack-1;"),
    ("estate", "notice", of_azure(error="no login"), "could not be asked about: no login", "sign in as"),
    ("estate", "problem", of_azure(fault="the subscription is of the tenant t", state={}), "of the tenant t",
     "correct it"),
    ("estate", "problem", of_azure(state={"exists": False, "state": "", "changes": []}), "was never deployed",
     "ironspan apply azure"),
    ("estate", "notice", of_azure(state={"running": True}), "is being deployed", "wait"),
    ("estate", "problem", of_azure(state={"exists": True, "state": "failed", "changes": []}),
     "ended as failed", "ironspan apply azure"),
    ("estate", "problem", differs("Microsoft.Compute/virtualMachines/etcd-1"),
     "differs from the data: etcd-1", "ironspan apply azure"),
    ("estate", "problem", differs("Microsoft.Compute/virtualMachines/etcd-2", "create"),
     "lacks what the data have: etcd-2", "ironspan apply azure"),
    ("estate", "problem", differs("Microsoft.Compute/disks/old", "detach"),
     "has what the data have no more: old", "ironspan apply azure"),
    ("estate", "problem",
     differs("Microsoft.KeyVault/vaults/v/keys/kms/providers/Microsoft.Authorization/roleAssignments/1",
             "create"),
     "lacks role assignments on kms", "ironspan apply azure"),
    ("estate", "problem", ends(1.2), "the role Contributor of ops on s ends in 29 hours", "extend it"),
    ("estate", "notice", ends(9), "ends in 9 days", "extend it"),
    ("estate", "notice", of_azure(quota=["quota: vCPUs: 90 used + 24 wanted = 114 of 100"]),
     "114 of 100", "more quota"),
    ("endpoints", "problem", network("resolved", {"a.blob.core.windows.net": {"addresses": ["20.60.1.1"]}}),
     "a.blob.core.windows.net has a private endpoint, and resolves publicly, to 20.60.1.1", "168.63.129.16"),
    ("endpoints", "problem", network("resolved", {"a.azurecr.io": {"error": "no such name"}}),
     "a.azurecr.io does not resolve: no such name", "link its private DNS zone"),
    ("latency", "notice", lambda d: d.fsync.update({"az-1": 0.021}), "takes 21 ms for a write",
     "faster disk"),
    ("latency", "problem", lambda d: d.fsync.update({"az-1": 0.4}), "takes 400 ms for a write",
     "faster disk"),
    ("ironic", "problem", of_servers(error="it does not answer: refused"), "Ironic: it does not answer",
     "playbooks/site.yml --limit ironic"),
    ("ironic", "problem", of_servers(conductors=[]), "no conductor of the site's Ironic is alive",
     "journalctl -u ironspan-ironic"),
    ("ironic", "notice", of_servers(changing=True), "a change of Ironic's password was begun",
     "ironspan apply ironic_password"),
    ("ironic", "notice", a_server("deploy failed"), "servers in 'deploy failed' in Ironic: gpu-2",
     "bare_metal.yml"),
    ("ironic", "notice", a_server("active", maintenance=True, reason="fan"), "gpu-2 (fan)",
     "end their maintenance"),
    ("alerts", "problem", lambda d: d.alerts.update(error="connection refused"),
     "no alerts are taken at az-1: connection refused", "journalctl -u ironspan-events"),
    ("alerts", "notice", lambda d: d.alerts.update(account=False), "has no token of the controller",
     "ironspan awx events-account"),
    ("run", "notice", known(lock_holder="process 7 on here"), "process 7 on here", "wait until"),
    ("plans", "problem", known(open_plans=[PLAN]), "the plan abababababab was begun 10 minutes ago",
     "ironspan apply /state/plan.json"),
    ("plans", "notice", known(open_plans=[{**PLAN, "expires": int(NOW) - 1}]), "it has expired",
     "ironspan plan"),
    ("plans", "problem", planned(PLANNED), "was begun 10 minutes ago", "ironspan apply /state/plan.json"),
    ("plans", "problem", planned(PLANNED, fingerprint="g", plan=PLAN["digest"]), "was begun 10 minutes ago",
     "ironspan apply /state/plan.json"),
    ("plans", "notice", planned(PLANNED, fingerprint="g"), "it is out of date, for rack-1 changed since",
     "ironspan plan; if it still has something to do, apply the new one"),
    ("plans", "notice", planned(PLANNED, digest="e"), "it is out of date", "ironspan plan;"),
    ("plans", "notice",
     planned({**PLANNED, "operation": "upgrade", "arguments": {"ironspan_hosts": "rack-1"}}, fingerprint="g"),
     "it is out of date", """ironspan plan upgrade -e '{"ironspan_hosts": "rack-1"}'"""),
    ("etcd", "problem", without_data, "az-1: has lost its data, as 1 of 1 members",
     "ironspan apply etcd_restore --allow-destructive"),
    ("etcd", "problem", store(version="3.5.24"), "az-1 runs version 3.5.24, wanted 3.6.14",
     "ironspan plan upgrade"),
    ("etcd", "problem", store(error="timed out", healthy=False), "az-1 at 10.0.0.1 does not answer",
     "ironspan apply --limit az-1"),
    ("etcd", "problem", store(leader="0"), "there is no leader", "ironspan apply --limit az-1"),
    ("etcd", "problem", store(version="3.6.1"), "az-1 runs version 3.6.1, wanted 3.6.14", "ironspan apply"),
    ("alarms", "problem", store(alarms=("NOSPACE",)), "etcd has the alarm NOSPACE",
     "etcdctl alarm disarm"),
    ("alarms", "problem", store(alarms=("CORRUPT",)), "alarm CORRUPT", "member_replace"),
    ("space", "problem", store(database_bytes=int(7.5 * GIB), used_bytes=7 * GIB),
     "etcd is 94% full (7.5 GiB of 8.0 GiB)", "raise etcd_quota_bytes"),
    ("space", "notice", store(database_bytes=int(6.5 * GIB), used_bytes=GIB), "81% full", "etcdctl defrag"),
    ("space", "notice", store(used_bytes=60 * 2**20), "80% of etcd's 300.0 MiB are holes",
     "ssh az-1 'set -a; . /etc/etcd/etcdctl.env; etcdctl defrag'"),
    ("events", "problem", lambda d: d.events.append(member(leader="0")), "events: there is no leader",
     "playbooks/etcd_events_anew.yml"),
    ("events", "problem", lambda d: d.events.append(member(alarms=("NOSPACE",))),
     "az-1: events: az-1 reports the alarm NOSPACE", "ironspan apply --limit az-1"),
    ("events", "notice", lambda d: setattr(d.site, "planned_nodes", 1001),
     "events share etcd of a site of 1001 nodes", "etcd_events_enabled: true"),
    ("api", "problem", lambda d: d.api.update(ready="[+]ping ok\n[-]etcd failed: reason withheld\n"),
     "the API is not ready: etcd", "ssh az-1 journalctl"),
    ("api", "notice", lambda d: d.api.update(milliseconds=600.0), "takes 600 ms", "WAN link"),
    ("versions", "problem", lambda d: d.api.update(version="v1.36.3"), "the API is version 1.36.3",
     "upgrade"),
    ("versions", "problem", information("kubeletVersion", "v1.36.3"), "rack-1: runs kubelet 1.36.3",
     "upgrade"),
    ("versions", "problem", information("kubeletVersion", "v1.37.0"), "kubelet 1.37.0 is newer than the API",
     "ironspan plan upgrade"),
    ("versions", "problem", information("kubeletVersion", "v1.32.0"), "4 minor versions older", "upgrade"),
    ("versions", "problem", information("containerRuntimeVersion", "containerd://2.3.1"),
     "rack-1: runs containerd 2.3.1, the inventory says 2.3.4", "ironspan apply --limit rack-1"),
    ("nodes", "problem", unready, "rack-1: is not Ready: Kubelet stopped posting",
     "ironspan apply --limit rack-1"),
    ("nodes", "problem", condition("DiskPressure", "True", "low on disk"), "has DiskPressure: low on disk",
     "kubectl describe node rack-1"),
    ("nodes", "problem", lambda d: d.api["nodes"].pop(), "rack-1: is not a node of the cluster", "node_add"),
    ("nodes", "problem", lambda d: d.api["nodes"].append(node("who")), "who: is a node that the inventory",
     "kubectl delete node who"),
    ("nodes", "notice", lambda d: d.api["nodes"][1]["spec"].update(unschedulable=True), "closed for new pods",
     "kubectl uncordon rack-1"),
    ("requests", "problem", request("rack-1"), "rack-1: waits for a certificate",
     "ironspan apply approve_csrs"),
    ("requests", "notice", request("who"), "certificate requests of who", "kubectl certificate deny csr-1"),
    ("pods", "problem", waiting("ImagePullBackOff"), "rack-1: kube-dns does not run: ImagePullBackOff",
     "kubectl -n kube-system describe pod coredns-1"),
    ("pods", "problem", lambda d: d.api["pods"][0]["status"].update(phase="Failed", reason="Evicted"),
     "kube-dns does not run: Evicted", "describe pod"),
    ("pods", "problem", lambda d: d.api["pods"][0]["status"].update(phase="Pending"), "Pending", "describe"),
    ("pods", "problem",
     lambda d: d.api["pods"][0]["status"]["conditions"][0].update(status="False"), "it is not ready",
     "describe"),
    ("pods", "notice",
     lambda d: d.api["pods"][0]["status"]["containerStatuses"][0].update(restartCount=40),
     "was restarted 40 times", "describe pod"),
    ("pods", "notice", lambda d: d.api["pods"].append(pod()), "rack-1: runs all 2 CoreDNS pods",
     "kubectl -n kube-system rollout restart deployment/coredns"),
]  # fmt: skip


def examined(change: Change = lambda d: None) -> dict[str, t.Any]:
    """Return the report on a healthy site after a change."""
    draft = Draft()
    change(draft)
    return table.examine(draft.evidence(), "2026-11-22T00:00:00+00:00", 1.0)


def test_a_healthy_site_is_healthy() -> None:
    report = examined()
    assert [check for check in report["checks"] if check["verdict"] != "ok"] == []
    assert (report["healthy"], report["exit_code"]) == (True, 0)
    assert page(report).startswith("small: healthy   (2 of 2 hosts answered, API asked, etcd asked")
    assert page(report).count("\n") == 1


@pytest.mark.parametrize(
    ("name", "level", "change", "says", "remedy"),
    CASES,
    # A function's text has its address, which is another one in every process.
    ids=lambda value: "" if callable(value) else value[:40],
)
def test_what_is_wrong_is_named_with_its_remedy(
    name: str, level: str, change: Change, says: str, remedy: str
) -> None:
    report = examined(change)
    wrong = {check["name"]: check["verdict"] for check in report["checks"] if check["verdict"] != "ok"}
    assert wrong.get(name) == level, page(report)
    assert report["exit_code"] == (1 if "problem" in wrong.values() else 0)
    lines = page(report).splitlines()
    (at,) = [number for number, line in enumerate(lines) if f" {name}: " in line and says in line]
    assert lines[at].startswith("✗" if level == "problem" else "!")
    assert remedy in lines[at + 1]


def test_every_check_is_in_the_cases() -> None:
    assert {check.name for check in table.CHECKS} == {case[0] for case in CASES}
    assert len({check.name for check in table.CHECKS}) == len(table.CHECKS)
    manual = (ROOT / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ", manual, flags=re.M)
    assert rows == [check.name for check in table.CHECKS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[3][:30]}")
def test_remedies_are_commands_of_this_project(case: tuple[str, str, Change, str, str]) -> None:
    for check in examined(case[2])["checks"]:
        for finding in check["findings"]:
            for command in re.findall(r"ironspan [a-z]+[^;,(:]*", finding["remedy"]):
                words = command.removesuffix(" it").split()[1:]
                build_parser().parse_args(words)
                if words[0] in ("apply", "plan") and len(words) > 1 and not words[1].startswith(("-", "/")):
                    assert (ROOT / "playbooks" / f"{words[1]}.yml").is_file(), finding["remedy"]


UNPLANNED = {"approve_csrs", "assess"}
"""Playbooks that change nothing that approvals are for."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[3][:30]}")
def test_no_remedy_is_refused_for_lack_of_a_plan(case: tuple[str, str, Change, str, str]) -> None:
    def change(d: Draft) -> None:
        d.site = site(approvals=2)
        case[2](d)

    for check in examined(change)["checks"]:
        for finding in check["findings"]:
            for word in re.findall(r"ironspan apply ([^ ,;)]+)", finding["remedy"]):
                assert word.removesuffix(":") in UNPLANNED or word.endswith(".json"), finding["remedy"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[3][:30]}")
def test_operations_that_remedies_name_have_what_they_need(case: tuple[str, str, Change, str, str]) -> None:
    needs = {
        "node_add": ["-e ironspan_hosts="],
        "member_replace": ["-e ironspan_hosts="],
        "ca_rotate": ["-e ironspan_authority=", "-e ironspan_authority_stage="],
        "encryption_rotate": ["-e ironspan_encryption_stage="],
    }
    for check in examined(case[2])["checks"]:
        for finding in check["findings"]:
            for verb, name, rest in re.findall(r"ironspan (apply|plan) (\w+)([^;(]*)", finding["remedy"]):
                assert all(word in rest for word in needs.get(name, [])), finding["remedy"]
                if verb == "apply" and name in ("member_replace", "etcd_restore"):
                    assert "--allow-destructive" in rest, finding["remedy"]


def three(*bare: str, down: tuple[str, ...] = (), serving: tuple[str, ...] = ()) -> Change:
    """Return the change to a site of three members: without data, not reachable, and those that serve."""

    def change(d: Draft) -> None:
        groups = ("etcd", "control_plane")
        hosts = dict(d.site.hosts)
        for number in (2, 3):
            hosts[f"az-{number}"] = host(f"az-{number}", f"10.0.0.{number}", "azure", *groups)
            d.hosts[f"az-{number}"] = answer("etcd.service", "kubelet.service", "containerd.service")
            d.api["nodes"].append(node(f"az-{number}"))
        d.site.hosts = hosts
        for name in bare:
            waits = {"resource": "etcd/config", "needs": "membership:etcd"}
            d.hosts[name]["drift"].update(pending=[waits], changes=[CHANGE], count=1)
        d.hosts.update({name: {"unreachable": "timed out"} for name in down})
        listed = ("1", "2", "3")
        whole = {name: member(listed=listed)._replace(name=name) for name in serving}
        d.members = [
            whole.get(name) or member(error="refused", healthy=False)._replace(name=name)
            for name in ("az-1", "az-2", "az-3")
        ]

    return change


RESTORE, REPLACE = "ironspan apply etcd_restore --allow-destructive", "ironspan apply member_replace"


@pytest.mark.parametrize(
    ("change", "of", "remedy"),
    [
        (three("az-1", "az-2", "az-3"), "az-1, az-2, az-3", f"-> {RESTORE}"),
        (three("az-1", "az-2"), "az-1, az-2", f"-> {RESTORE}"),
        (three("az-1", "az-2", down=("az-3",)), "az-1, az-2", f"-> {RESTORE}"),
        (three("az-3", serving=("az-1", "az-2")), "az-3", f"-> {REPLACE} -e ironspan_hosts=az-3 "),
        (three("az-3"), "az-3", f"-> {REPLACE} -e ironspan_hosts=az-3 "),
        (
            three("az-3", down=("az-2",)),
            "az-3",
            f"-> bring az-2 back (where those data are gone too: {RESTORE})",
        ),
    ],
)
def test_lost_data_are_not_drift(change: Change, of: str, remedy: str) -> None:
    """site.yml refuses a member without data that etcd lists: no finding sends anybody there."""
    lines = page(examined(change)).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "has lost its data" in line]
    assert lines[at].startswith(f"✗ etcd: {of}: ")
    assert remedy in lines[at + 1]
    for line, after in itertools.pairwise(lines):
        if line.startswith("✗ drift: "):
            assert remedy in after
    assert f"--limit {of.replace(', ', ',')}" not in "\n".join(lines)


def test_members_that_begin_or_join_have_lost_nothing() -> None:
    begin = [{"resource": "etcd/config", "needs": "membership:etcd"},
             {"resource": "control_plane/kubeadm", "needs": "cluster:start-or-join"}]  # fmt: skip

    def first(d: Draft) -> None:
        without_data(d)
        d.hosts["az-1"]["drift"]["pending"] = begin

    assert "has lost its data" not in page(examined(first))

    def joins(d: Draft) -> None:
        three("az-3", serving=("az-1", "az-2"))(d)
        d.members = [one._replace(listed=("1", "2")) if not one.error else one for one in d.members]

    assert "has lost its data" not in page(examined(joins))


def test_where_the_store_lost_its_data_the_api_comes_back_with_it() -> None:
    lines = page(examined(without_data)).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "the API gives no answer" in line]
    assert lines[at + 1].endswith(f"etcd comes first: {RESTORE}")


def test_one_line_says_what_is_wrong_with_many_hosts() -> None:
    def change(d: Draft) -> None:
        d.hosts = {f"rack-{n}": {"unreachable": f'no route to "10.0.0.{n}".'} for n in range(200)}

    lines = page(examined(change)).splitlines()
    (line,) = [line for line in lines if "cannot be reached" in line]
    assert line.endswith("rack-7 and 192 more: cannot be reached: no route to the host")


def test_approvals_ask_for_a_plan() -> None:
    def change(d: Draft) -> None:
        d.site = site(approvals=2)
        d.hosts["rack-1"]["drift"]["changes"] = [CHANGE]

    assert "-> ironspan plan --limit rack-1, then let it be approved" in page(examined(change))


def silent(d: Draft) -> None:
    d.hosts = {"az-1": {"unreachable": "timed out"}}


def no_api(d: Draft) -> None:
    d.api = {"error": "https://10.0.0.9:6443 cannot be reached: refused."}


def no_store(d: Draft) -> None:
    d.members = [member(error="refused", healthy=False)]


def not_built(d: Draft) -> None:
    known(built=False)(d)
    d.api, d.members = {"error": "this site was not built yet"}, []


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ([no_api], 1, "the API gives no answer"),
        ([no_api], 1, "? not looked at: api, versions, nodes, requests, pods: https://10.0.0.9:6443 cannot"),
        ([silent], 1, "? not looked at: clock, disk"),
        ([silent, no_api], 1, "cannot be reached"),
        ([silent, no_api, no_store], 4, "small: nobody answered"),
        ([not_built], 0, "This site was not built yet"),
        ([not_built, silent], 4, "nobody answered"),
        ([no_store], 1, "az-1 at 10.0.0.1 does not answer"),
        ([lambda d: setattr(d, "etcd_error", "no key.")], 1, "the store: no key."),
        ([known(no_documents="no index")], 0, "Hosts were not compared with their documents: no index"),
    ],
)
def test_what_cannot_be_asked_is_named_and_the_rest_looked_at(
    changes: list[Change], code: int, says: str
) -> None:
    report = examined(lambda d: [change(d) for change in changes])
    assert report["exit_code"] == code, page(report)
    assert says in page(report)


def test_a_run_at_work_explains_its_open_transaction_and_plan() -> None:
    def change(d: Draft) -> None:
        known(lock_holder="process 7 on here", open_plans=[PLAN])(d)
        d.hosts["rack-1"]["transaction"] = {"seconds": 20, "steps": 4, "plan": ""}

    wrong = {check["name"]: check["verdict"] for check in examined(change)["checks"]}
    assert (wrong["run"], wrong["transaction"], wrong["plans"]) == ("notice", "ok", "ok")


def test_a_cut_short_plan_is_resumed_with_its_file() -> None:
    def change(d: Draft) -> None:
        known(open_plans=[PLAN])(d)
        d.hosts["rack-1"]["transaction"] = {"seconds": 20, "steps": 4, "plan": PLAN["digest"]}

    assert "-> ironspan apply /state/plan.json; it resumes" in page(examined(change))


def test_dns_that_fails_everywhere_is_the_clusters() -> None:
    def change(d: Draft) -> None:
        for said in d.hosts.values():
            said["network"]["dns"] = {"error": "no answer within 2 s"}

    assert "rollout restart deployment/coredns" in page(examined(change))


def test_pods_that_ended_well_are_well() -> None:
    done = pod()
    done["status"] = {"phase": "Succeeded"}
    assert examined(lambda d: d.api["pods"].append(done))["healthy"]


@pytest.mark.parametrize("where", ["az-1", "rack-1"])
def test_coredns_on_several_hosts_or_on_the_only_one_is_well(where: str) -> None:
    def change(draft: Draft) -> None:
        draft.api["pods"].append(pod())
        draft.api["pods"][1]["spec"]["nodeName"] = where
        if where == "rack-1":
            draft.api["nodes"][0]["spec"] = {"unschedulable": True}

    (found,) = [check for check in examined(change)["checks"] if check["name"] == "pods"]
    assert found["verdict"] == "ok"


def test_a_version_that_the_kubelet_could_not_ask_for_is_no_wrong_version() -> None:
    assert examined(information("containerRuntimeVersion", "containerd://Unknown"))["healthy"]
