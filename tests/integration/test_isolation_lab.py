# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Everything that keeps people and pods in bounds, switched on together: two control planes and a worker.

The parts have tests of their own; here they meet: policies, people from Entra ID, access for a limited time,
the audit log, the hosts' tables, the forward proxy. The tests tell one story, in this order.
"""

from __future__ import annotations

import base64
import collections
import functools
import hashlib
import json
import re
import shlex
import subprocess
import time
import typing as t
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access.login import personal_api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

from ironspan.lab.azure import client, people, settings
from tests.integration.conftest import Cluster, lab_cluster
from tests.integration.test_admission import DEFAULT_DENY
from tests.integration.test_egress_lab import PROBE
from tests.support.debian_packages import collect
from tests.support.playbooks import ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
PLANES = ("az-1", "az-2")
PROXY = "az-2"
"""It has a kubelet as well, which a site would rather avoid; a host of its own would make the lab larger."""
FEATURES = ("identity", "access", "admission", "egress")
BUSYBOX = "docker.io/library/busybox"
REQUESTS = "/apis/access.ironspan.io/v1/accessrequests"
POLICY: Object = {
    "version": 1,
    "rules": {
        "registries": {"scope": "everywhere", "allowed": [BUSYBOX.rpartition("/")[0]]},
        "grants": {"scope": "everywhere"},
        # The lab's overlayfs cannot map users.
        "user_namespaces": {"scope": "nowhere"},
    },
}
CLAIM = """\
import datetime, json, sys
sys.path.insert(0, "/usr/local/lib/ironspan-access")
import controller
with open("/etc/ironspan-access.json") as file:
    settings = controller.Settings(**json.load(file))
cluster = controller.Cluster(settings)
now = datetime.datetime.now(datetime.timezone.utc)
due = controller.decide(cluster.every("/apis/access.ironspan.io/v1/accessrequests"), [], settings, now)
(claim,) = [action for action in due if action.then]
cluster.ask(claim.method, claim.path, claim.body)
"""
"""What a controller does that is killed between the claim of a request and its binding."""


class Site(Cluster):
    """The cluster with a choice of the features, and the people who use it."""

    proxied = False

    @property
    def inventory(self) -> Path:
        """Return the lab's inventory with the features."""
        return self.folder / "inventory"

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        if not self.inventory.exists():
            self._prepare()
        return super().site(*options)

    def _prepare(self) -> None:
        self.inventory.mkdir()
        (self.inventory / "hosts.yml").write_text(self.lab.inventory_path.read_text())
        (self.inventory / "group_vars").symlink_to(ROOT / "inventories" / "lab" / "group_vars")
        (self.folder / "policy.yml").write_text(json.dumps(POLICY))
        packages = self.folder / "packages"
        packages.mkdir()
        self.proxied = collect(["squid-openssl"], packages)
        if self.proxied:
            files = subprocess.run(
                ["tar", "-C", str(self.folder), "--exclude", "apt", "-c", "packages"],
                check=True,
                capture_output=True,
            ).stdout
            source = "deb [trusted=yes] file:/root/packages ./"
            unpack = f"tar -C /root -xf - && echo {shlex.quote(source)} > /etc/apt/sources.list"
            subprocess.run(self.lab.ssh_command(PROXY, [unpack]), input=files, check=True, timeout=60)
        self.switch(FEATURES)

    @functools.cached_property
    def mirrors(self) -> dict[str, str]:
        """Return the machine's address on each side, where a mirror answers: no host of the inventory."""
        text = self.lab.inventory_path.read_text()
        found = re.findall(r"site_mirror_url: http://([0-9.]+):8080", text)
        return dict(zip(("azure", "on_prem"), found, strict=True))

    def switch(self, features: Iterable[str]) -> None:
        """Write the variables of some of the features, and of no others."""
        last_day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * 86_400))
        who = {"owner": "tests", "reason": "ticket 4711", "expires": last_day}
        named = {"destination": settings.LOGIN_HOST, "through": "proxy", "ports": [443], **who}
        variables: dict[str, Object] = {
            "identity": {
                "identity_tenant_id": settings.TENANT,
                "identity_audiences": [people.APPLICATION],
                "identity_issuer_ca_file": str(self.lab.folder / "azure" / "ca.crt"),
                "identity_bindings": [
                    {"group": "Researchers", "role": "researcher", "namespaces": ["research"]},
                    {"group": "Operators", "role": "node-operator"},
                ],
            },
            "access": {
                "access_enabled": True,
                "access_break_glass": True,
                "access_roles": [{"role": "edit", "approvals": 2, "longest_hours": 4}],
                "access_requester_groups": ["entra:Researchers"],
                "access_approver_groups": ["entra:Leads"],
            },
            "admission": {"admission_policy_file": "../policy.yml"},
            "egress": {
                "egress_enabled": True,
                "egress_resolvers": list(self.mirrors.values()),
                "egress_namespaces": [{"name": "research", "within": True}, {"name": "wild"}],
                "egress_allow": [
                    {"destination": self.mirrors["on_prem"], "ports": [8080], **who},
                    *([named] if self.proxied else []),
                ],
            },
        }
        chosen = {key: value for name in features for key, value in variables[name].items()}
        groups: Object = {}
        if self.proxied and "egress" in features:
            groups = {"egress_proxy": {"hosts": {PROXY: {}}}}
        file = self.inventory / "features.yml"
        file.write_text(json.dumps({"all": {"vars": chosen, "children": groups}}))

    # -- people ------------------------------------------------------------------------------------

    def login(self, name: str, role: str, fault: str = "") -> Path:
        """Return the kubeconfig of somebody with a token of the lab's Entra ID."""
        asked: Object = {"name": name, "roles": [role], "groups": [], "issuer": "", "fault": fault}
        token = client.request(self.lab.folder / "azure", "person", **asked)["token"]
        return self.kubeconfig(f"{name}{fault}", {"token": token})

    def kubeconfig(self, name: str, user: Object) -> Path:
        """Write a kubeconfig that leads to the load balancer."""
        authority = self.on("az-1", "cat /etc/kubernetes/pki/ca.crt")
        cluster = {
            "server": f"https://{self.address(PROXY)}:8443",
            "tls-server-name": "api.lab.internal",
            "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "me", "user": user}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        }
        file = self.folder / f"{name}.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config))
        return file

    def api(self, kubeconfig: Path) -> Api:
        """Return a client with somebody's kubeconfig."""
        return personal_api(str(kubeconfig), folder=self.folder)

    def access(self, *arguments: str) -> str:
        """Run `ironspan access`."""
        done = self.command("access", *arguments, "--plain")
        assert done.returncode == 0, done.stdout
        return done.stdout

    # -- what the cluster says ---------------------------------------------------------------------

    def apply(self, item: Object, dry_run: bool = False) -> str:
        """Make an object as administrator; returns what kubectl says, also when it is refused."""
        option = " --dry-run=server" if dry_run else ""
        text = shlex.quote(json.dumps(item))
        return self.on("az-1", f"echo {text} | {KUBECTL} apply{option} -f - 2>&1", check=False)

    def apply_as(self, name: str, item: Object) -> str:
        """Try to make an object as somebody with the role edit, as a dry run; returns what kubectl says."""
        space = item["metadata"]["namespace"]
        bind = f"-n {space} create rolebinding {name} --clusterrole=edit --user={name}"
        self.on("az-1", f"{KUBECTL} {bind} 2>&1", check=False)
        text = shlex.quote(json.dumps(item))
        make = f"{KUBECTL} --as={name} create --dry-run=server -f - 2>&1"
        return self.on("az-1", f"echo {text} | {make}", check=False)

    def admin(self, command: str) -> str:
        """Run kubectl as administrator."""
        return self.on("az-1", f"{KUBECTL} {command}")

    def events(self, text: str) -> list[Object]:
        """Return the events of all audit logs that contain a text."""
        files = "/var/log/kubernetes/audit/audit*.log"
        logs = [self.on(host, f"grep -hF {shlex.quote(text)} {files}", check=False) for host in PLANES]
        return [json.loads(line) for log in logs for line in log.splitlines()]


def wait(done: Callable[[], object], what: str, seconds: float = 240) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, what
        time.sleep(1)


def refusal(call: Callable[[], object]) -> int:
    """Return the status with which the API refuses, 0 when it does not."""
    try:
        call()
    except ApiError as error:
        return error.status
    return 0


def pod(name: str, namespace: str, command: str, **spec: t.Any) -> Object:
    """Return a pod that keeps to the policy of namespaces without a label, and to Pod Security."""
    container = {
        "name": "main",
        "image": spec.pop("image", f"{BUSYBOX}:1.37.0"),
        "command": ["/bin/sh", "-c", command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "securityContext": security,
            "containers": [container],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A cluster that was built with everything on."""
    with lab_cluster(Site, "isolation", azure=2, rack=1) as made:
        yield made


@pytest.fixture(scope="module")
def digest(site: Site) -> str:
    """Return busybox by its digest, as the mirror has it."""
    url = f"http://{site.mirrors['azure']}:8080/v2/{BUSYBOX}/manifests/1.37.0"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return f"{BUSYBOX}@sha256:{hashlib.sha256(answer.read()).hexdigest()}"


# -- on --------------------------------------------------------------------------------------------


def test_a_cluster_is_built_with_everything_on(site: Site) -> None:
    assert site.first is not None
    assert site.first.status == 0, site.first.output
    assert site.ready_nodes() == {"az-1", "az-2", "rack-1"}
    for host in (*PLANES, "rack-1"):
        assert site.on(host, "systemctl --failed --no-legend") == ""


def test_the_second_run_changes_nothing(site: Site) -> None:
    played = site.site()
    assert played.status == 0, played.output
    assert played.changed == {}, played.output


# -- people ----------------------------------------------------------------------------------------


def job(image: str) -> Object:
    """Return a job that says hello."""
    made = pod("", "research", "echo hello", image=image)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "hello"},
        "spec": {"backoffLimit": 0, "template": {"spec": made["spec"]}},
    }


def test_a_researcher_runs_a_job_and_reads_its_log(site: Site) -> None:
    anna = site.api(site.login("anna", "Researchers"))
    site.admin("-n research delete job hello --ignore-not-found --wait")
    anna.request("POST", "/apis/batch/v1/namespaces/research/jobs", job(f"{BUSYBOX}:1.37.0"))
    path = "/apis/batch/v1/namespaces/research/jobs/hello"
    wait(lambda: anna.get(path)["status"].get("succeeded"), "the job does not end")
    pods = anna.get("/api/v1/namespaces/research/pods", labelSelector="job-name=hello")["items"]
    log = f"/api/v1/namespaces/research/pods/{pods[0]['metadata']['name']}/log"
    assert anna.text(log).strip() == "hello"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/wild/pods",
        "/api/v1/namespaces/research/secrets",
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/metrics",
    ],
)
def test_a_researcher_reads_nothing_else(site: Site, path: str) -> None:
    assert refusal(lambda: site.api(site.login("anna", "Researchers")).text(path)) == 403


def test_a_researcher_makes_no_pods_and_gives_nothing_away(site: Site) -> None:
    anna = site.api(site.login("anna", "Researchers"))
    made = pod("mine", "research", "true")
    assert refusal(lambda: anna.request("POST", "/api/v1/namespaces/research/pods", made)) == 403
    rbac = "rbac.authorization.k8s.io"
    given = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "ironspan-researcher"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "ada"}],
    }
    bindings = f"/apis/{rbac}/v1/namespaces/research/rolebindings"
    assert refusal(lambda: anna.request("POST", bindings, given)) == 403


@pytest.mark.parametrize(
    "fault", ["wrong_tenant", "wrong_audience", "expired", "unknown_key", "shared_secret"]
)
def test_a_token_that_is_none_is_refused(site: Site, fault: str) -> None:
    faulty = site.api(site.login("anna", "Researchers", fault))
    assert refusal(lambda: faulty.get("/api/v1/namespaces/research/pods")) == 401


# -- access for a limited time ---------------------------------------------------------------------


def asked(site: Site, how_long: str) -> str:
    """Let anna ask for a role, and return the request's name."""
    mine = ("-n", "research", "--for", how_long, "--reason", "ticket 4711")
    said = site.access("request", "edit", *mine, "--kubeconfig", str(site.login("anna", "Researchers")))
    found = re.search(r"\d{8}-[0-9a-f]{8}", said)
    assert found, said
    return found[0]


def approve(site: Site, name: str, who: str) -> None:
    site.access("approve", name, "--yes", "--kubeconfig", str(site.login(who, "Leads")))


def state(site: Site, name: str) -> str:
    """Return a request's state."""
    item = site.kubectl("get", "accessrequest", name)
    return str(item.get("status", {}).get("state", ""))


def binding(site: Site, name: str) -> str:
    """Return the name of a request's binding, if there is one."""
    return site.admin(f"-n research get rolebinding ironspan-access-{name} --ignore-not-found -o name")


def changes(site: Site, name: str) -> collections.Counter[tuple[str, str, str]]:
    """Return what was changed for a request: resource, verb and who, from the audit logs."""
    return collections.Counter(
        (event["objectRef"]["resource"], event["verb"], event["user"]["username"].partition(":")[0])
        for event in site.events(name)
        if event["responseStatus"]["code"] < 300 and event["verb"] not in ("get", "list", "watch")
    )


def test_what_two_people_approved_is_bound_once_and_ends_by_itself(site: Site) -> None:
    anna = site.api(site.login("anna", "Researchers"))
    secrets = "/api/v1/namespaces/research/secrets"
    name = asked(site, "1m")
    approve(site, name, "lea")
    assert state(site, name) == ""
    approve(site, name, "leo")
    wait(lambda: binding(site, name), "nobody binds")
    wait(lambda: not refusal(lambda: anna.get(secrets)), "the binding gives nothing", 40)
    assert refusal(lambda: anna.get("/api/v1/namespaces/wild/secrets")) == 403
    wait(lambda: state(site, name) == "Expired", "the grant does not end")
    wait(lambda: refusal(lambda: anna.get(secrets)) == 403, "the grant is over and holds")
    assert not binding(site, name)
    expected = {
        ("accessrequests", "create", "entra"): 1,
        ("accessrequests", "update", "entra"): 2,
        # granted, bound, and over: two controllers look, and one of them acts
        ("accessrequests", "update", "ironspan"): 3,
        ("rolebindings", "create", "ironspan"): 1,
        ("rolebindings", "delete", "ironspan"): 1,
    }
    # The log is written after the answer.
    wait(lambda: changes(site, name) == expected, "the audit log tells something else", 60)


def test_who_asks_does_not_approve_and_one_lead_is_not_two(site: Site) -> None:
    name = asked(site, "1h")
    for who, role in (("anna", "Researchers"), ("anna", "Leads")):
        mine = ("--kubeconfig", str(site.login(who, role)))
        assert site.command("access", "approve", name, "--yes", *mine, "--plain").returncode != 0
    approve(site, name, "lea")
    again = ("--kubeconfig", str(site.login("lea", "Leads")))
    site.command("access", "approve", name, "--yes", *again, "--plain")
    assert site.kubectl("get", "accessrequest", name)["status"]["approvals"] == [
        f"entra:{people.Person('lea').object_id}"
    ]
    site.access("revoke", name, "--kubeconfig", str(site.login("anna", "Researchers")))


def test_a_claim_whose_controller_was_killed_is_bound_by_another(site: Site) -> None:
    for host in PLANES:
        site.on(host, "systemctl stop ironspan-access")
    try:
        name = asked(site, "1h")
        approve(site, name, "lea")
        approve(site, name, "leo")
        site.on("az-1", f"python3 -c {shlex.quote(CLAIM)}")
        assert (state(site, name), binding(site, name)) == ("Granted", "")
        site.on("az-2", "systemctl start ironspan-access")
        wait(lambda: binding(site, name), "the claim is not taken up")
    finally:
        for host in PLANES:
            site.on(host, "systemctl start ironspan-access")
    site.access("revoke", name, "--kubeconfig", str(site.login("anna", "Researchers")))
    wait(lambda: not binding(site, name), "the grant outlives its request")


def test_the_controller_goes_on_with_a_renewed_certificate(site: Site) -> None:
    file = "/etc/kubernetes/pki/access-controller.crt"
    fingerprint = f"openssl x509 -in {file} -noout -fingerprint -sha256"
    running = "systemctl show ironspan-access -p MainPID --value"
    before = {host: (site.on(host, fingerprint), site.on(host, running)) for host in PLANES}
    played = play("access", site.inventory, site.folder, "-e", "site_certificate_renew_days=3650")
    assert played.status == 0, played.output
    for host in PLANES:
        now = site.on(host, fingerprint)
        assert now != before[host][0]
        assert site.on(host, running) == before[host][1], "read again, not restarted"
        shown = now.partition("=")[2].replace(":", "").lower()
        wait(functools.partial(site.events, shown), f"{host} does not use its new certificate")
    name = asked(site, "1h")
    approve(site, name, "lea")
    approve(site, name, "leo")
    wait(lambda: binding(site, name), "nobody binds after the renewal")


# -- emergencies -----------------------------------------------------------------------------------


def alarms(site: Site) -> str:
    """Return what the watches of both control planes have told."""
    told = "journalctl -u ironspan-audit-watch -p alert -o cat --no-pager"
    return "\n".join(site.on(host, told) for host in PLANES)


def test_the_sealed_kubeconfig_opens_and_raises_an_alarm_until_it_is_shut_out(site: Site) -> None:
    sealed, opened = site.folder / "sealed.json", site.folder / "opened"
    keepers: list[str] = []
    for name in ("ada", "bob"):
        file = site.folder / f"{name}.passphrase"
        file.touch(mode=0o600)
        file.write_text(f"a long passphrase of {name}\n")
        keepers += ["--passphrase-file", f"{name}={file}"]
    who = ("--keeper", "ada", "--keeper", "bob")
    site.access("seal", str(sealed), *who, *keepers, "--days", "1", "-i", str(site.inventory))
    site.access("unseal", str(sealed), str(opened), *keepers)
    user = json.loads(sealed.read_text())["user"]
    assert user not in alarms(site)
    emergency = site.api(opened)
    assert emergency.get("/api/v1/namespaces/kube-system/secrets")["items"] is not None
    wait(lambda: user in alarms(site), "no alarm")
    assert "/api/v1/namespaces/kube-system/secrets" in alarms(site)
    metrics = "cat /var/lib/ironspan-access/ironspan-access.prom"
    counts = re.findall(
        r"^ironspan_break_glass_requests_total ([0-9.]+)",
        "\n".join(site.on(host, metrics) for host in PLANES),
        re.MULTILINE,
    )
    assert sum(map(float, counts)) >= 1
    site.admin("delete clusterrolebinding ironspan:break-glass")
    wait(
        lambda: refusal(lambda: emergency.get("/api/v1/namespaces/kube-system/secrets")) == 403,
        "without its binding the certificate still does something",
    )


# -- what the cluster takes ------------------------------------------------------------------------


def test_pods_of_a_high_risk_namespace_run_in_gvisor_unasked(site: Site, digest: str) -> None:
    site.admin("label namespace wild ironspan.io/risk=high --overwrite")
    wait(lambda: "digest" in site.apply(pod("no-digest", "wild", "true"), True), "the rule does not hold")
    site.admin("-n wild delete pod calm --ignore-not-found")
    made = pod("calm", "wild", "dmesg; sleep 3600", image=digest)
    assert "created" in site.apply(made)
    site.admin("-n wild wait --for=condition=Ready --timeout=150s pod/calm")
    assert site.kubectl("-n", "wild", "get", "pod", "calm")["spec"]["runtimeClassName"] == "gvisor"
    assert "Starting gVisor" in site.admin("-n wild logs calm")


@pytest.mark.parametrize(
    ("namespace", "changes", "reason"),
    [
        ("wild", {"runtimeClassName": "runc"}, "untime"),
        ("research", {"hostNetwork": True}, "host"),
        ("research", {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, "hostPath"),
        ("research", {"image": f"{BUSYBOX}:latest"}, "latest"),
        ("research", {"image": "example.com/tool:1"}, "example.com/tool:1"),
    ],
)
def test_what_the_policy_file_refuses_is_refused(
    site: Site, namespace: str, changes: Object, reason: str, digest: str
) -> None:
    more = {"image": digest, **changes} if namespace == "wild" else changes
    said = site.apply(pod("refused", namespace, "true", **more), True)
    assert "created" not in said, said
    assert reason in said, said


# -- what pods send --------------------------------------------------------------------------------


def targets(site: Site) -> dict[str, str]:
    """Return where pods knock, and what becomes of it."""
    return {
        "10.96.0.1:443": "passes",
        f"{site.mirrors['on_prem']}:8080": "passes",
        f"{site.mirrors['azure']}:8080": "dropped",
        **({f"{site.address(PROXY)}:3128": "passes"} if site.proxied else {}),
        "169.254.169.254:80": "dropped",
        "168.63.129.16:80": "dropped",
        f"{site.address('az-1')}:22": "dropped",
        f"{site.address('az-1')}:10250": "dropped",
        f"{site.address('rack-1')}:10250": "dropped",
    }


@pytest.mark.parametrize(("runtime", "node"), [("runc", "rack-1"), ("runc", "az-1"), ("gvisor", "rack-1")])
def test_a_pod_reaches_the_allow_list_alone_from_its_first_packet(
    site: Site, digest: str, runtime: str, node: str
) -> None:
    expected = targets(site)
    name, namespace = f"first-{runtime}-{node}", "research" if runtime == "runc" else "wild"
    spec: Object = {"image": digest}
    if runtime == "runc":
        key = "node-role.kubernetes.io/control-plane"
        spec |= {"tolerations": [{"key": key, "operator": "Exists"}]}
        spec |= {"nodeSelector": {"kubernetes.io/hostname": node}}
    site.admin(f"-n {namespace} delete pod {name} --ignore-not-found")
    said = site.apply(pod(name, namespace, PROBE.format(targets=" ".join(expected)), **spec))
    assert "created" in said, said

    def lines() -> list[str]:
        log = f"{KUBECTL} -n {namespace} logs {name} 2>/dev/null"
        return site.on("az-1", log, check=False).splitlines()

    wait(lambda: len(lines()) == len(expected), "the pod does not tell")
    assert dict(line.split() for line in lines()) == expected


TLS = """\
for n in $(ip netns list | cut -d' ' -f1); do
  ip netns exec $n ip -4 -o address | grep -qF ' {address}/' && space=$n
done
test -n "$space" || exit 9
ip netns exec $space curl -s -o /dev/null -m 120 -w '%{{exitcode}} %{{http_code}}' --proxy http://{proxy} \
  --cacert {trusted} --connect-to {hello}:443:{asked} https://{hello}/ || true
"""
"""TLS through the proxy from the network of a pod, with the host's curl: busybox knows no CONNECT.

Not with `openssl s_client`, which does not notice that its proxy has cut it off, and waits.
"""
CUT_OFF = ("35", "56")
"""How curl ends when TLS or CONNECT is cut off; it would be 28 if nobody answered."""


def through_proxy(site: Site, asked: str, hello: str) -> bool:
    """Tell whether a server answers through the proxy; who is refused is cut off."""
    address = site.kubectl("-n", "research", "get", "pod", "client")["status"]["podIP"]
    proxy = f"{site.address(PROXY)}:3128"
    script = TLS.format(asked=asked, hello=hello, address=address, proxy=proxy, trusted=settings.HOST_CA)
    ended, status = site.on("rack-1", script).split()
    assert ended == "0" or (ended in CUT_OFF and status == "000"), (ended, status)
    return ended == "0"


@pytest.fixture(scope="module")
def proxied(site: Site) -> None:
    """A pod of runc whose network is used, where the proxy could be installed."""
    if not site.proxied:
        pytest.skip("the packages of squid could not be fetched")
    site.apply(pod("client", "research", "sleep 3600", nodeSelector={"kubernetes.io/hostname": "rack-1"}))
    site.admin("-n research wait --for=condition=Ready --timeout=150s pod/client")


OTHER = settings.MANAGEMENT_HOST
"""Another name for the same address: only names tell them apart."""


@pytest.mark.usefixtures("proxied")
@pytest.mark.parametrize(
    ("asked", "hello", "passes"),
    [
        (f"{settings.LOGIN_HOST}:443", settings.LOGIN_HOST, True),
        (f"{settings.LOGIN_HOST}:443", OTHER, False),
        (f"{OTHER}:443", OTHER, False),
        (f"{OTHER}:443", settings.LOGIN_HOST, False),
        (f"{settings.LOGIN_HOST}:80", settings.LOGIN_HOST, False),
        ("az-1.lab.internal:6443", "az-1.lab.internal", False),
    ],
)
def test_the_proxy_lets_listed_names_through(site: Site, asked: str, hello: str, passes: bool) -> None:
    assert through_proxy(site, asked, hello) is passes


@pytest.mark.usefixtures("proxied")
def test_the_proxy_ends_entries_whose_last_day_is_over(site: Site) -> None:
    pid, expiry = "systemctl show squid -p MainPID --value", "systemctl start ironspan-egress-proxy-expiry"
    before = site.on(PROXY, pid)
    site.on(PROXY, expiry)
    assert site.on(PROXY, pid) == before, "nothing has ended"
    site.on(PROXY, "sed -i -E 's/^[0-9]+ /1000000000 /' /etc/squid/ironspan-allow")
    site.on(PROXY, expiry)
    assert site.on(PROXY, pid) != before
    assert not through_proxy(site, f"{settings.LOGIN_HOST}:443", settings.LOGIN_HOST)


# -- off, and on again -----------------------------------------------------------------------------


def test_a_run_fixes_what_was_changed_by_hand(site: Site) -> None:
    played = site.site()
    assert played.status == 0, played.output
    assert set(played.changed) == {"localhost", *([PROXY] if site.proxied else [])}, played.output
    assert site.admin("get clusterrolebinding ironspan:break-glass -o name")
    if site.proxied:
        assert through_proxy(site, f"{settings.LOGIN_HOST}:443", settings.LOGIN_HOST)


def test_without_identity_nobody_comes_in_and_the_roles_are_gone(site: Site) -> None:
    site.switch(("access", "admission", "egress"))
    played = site.site()
    assert played.status == 0, played.output
    anna = site.api(site.login("anna", "Researchers"))
    wait(lambda: refusal(lambda: anna.get("/version")) == 401, "a token is taken")
    left = site.admin("get clusterroles,clusterrolebindings,rolebindings -A -o name")
    assert "ironspan-researcher" not in left
    assert "ironspan-node-operator" not in left


def test_without_access_its_programs_are_gone_and_its_objects_can_go(site: Site) -> None:
    site.admin("delete accessrequests --all")
    marked = "get rolebindings,clusterrolebindings -A -l access.ironspan.io/request -o name"
    wait(lambda: not site.admin(marked), "a grant outlives its request")
    site.switch(("admission", "egress"))
    played = site.site()
    assert played.status == 0, played.output
    for host in PLANES:
        found = site.on(host, "find /etc /usr/local -name '*ironspan-access*' -o -name 'access-controller*'")
        assert [path for path in found.splitlines() if path != "/usr/local/lib/ironspan-access"] == []
        active = site.on(host, "systemctl is-active ironspan-access ironspan-audit-watch", check=False)
        assert active.split() == ["inactive", "inactive"]
    kinds = (
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds"
    )
    marked = f"{kinds} -l app.kubernetes.io/component=access"
    assert "accessrequests.access.ironspan.io" in site.admin(f"get {marked} -o name")
    site.admin(f"delete {marked}")
    assert site.admin(f"get {marked} -o name") == ""
    assert "accessrequests" not in site.admin("get crds -o name")


def test_without_admission_the_cluster_takes_what_it_refused(site: Site) -> None:
    site.switch(("egress",))
    played = site.site()
    assert played.status == 0, played.output
    kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies"
    # Those that every cluster has stay.
    made = "-l app.kubernetes.io/component=admission -o name"
    wait(lambda: not site.admin(f"get {kinds} {made}"), "policies are left")
    metadata = {"name": "x", "namespace": "research"}
    service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    service["spec"] = {"ports": [{"port": 8080}], "externalIPs": [site.mirrors["azure"]]}
    assert "(rule service_addresses)" in site.apply_as("somebody", service)
    bold = pod("bold", "research", "true", hostNetwork=True, image=f"{BUSYBOX}:latest")
    wait(lambda: "created" in site.apply(bold, True), "it is still refused")


def test_without_egress_pods_reach_everything(site: Site) -> None:
    site.switch(())
    played = site.site()
    assert played.status == 0, played.output
    for host in (*PLANES, "rack-1"):
        assert "ironspan" not in site.on(host, "nft list tables")
    probe = PROBE.format(targets=f"{site.mirrors['azure']}:8080")
    site.admin("-n research delete pod free --ignore-not-found")
    site.apply(pod("free", "research", probe, nodeSelector={"kubernetes.io/hostname": "rack-1"}))
    log = f"{KUBECTL} -n research logs free"
    wait(lambda: "passes" in site.on("az-1", log, check=False), "something still holds pods back")
    for namespace in ("research", "wild"):
        assert "ironspan-default-deny" in site.admin(f"-n {namespace} get networkpolicies -o name")
        site.admin(f"-n {namespace} delete networkpolicy -l app.kubernetes.io/managed-by=ironspan")
        assert site.admin(f"-n {namespace} get networkpolicies -o name") == ""
    if site.proxied:
        site.on(PROXY, "systemctl is-active squid && systemctl disable --now squid")
    again = site.site()
    assert again.changed == {}, again.output


def high_risk_pods_start(site: Site, digest: str) -> None:
    """In a namespace that is made now, through every API server, which have had policies come and go."""
    labels = {"ironspan.io/risk": "high"}
    metadata: Object = {"name": "young", "labels": labels}
    site.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    site.apply({**DEFAULT_DENY, "metadata": {**DEFAULT_DENY["metadata"], "namespace": "young"}})
    for host in PLANES:
        made = shlex.quote(json.dumps(pod(f"on-{host}", "young", "sleep 3600", image=digest)))
        server = f"--server https://{site.address(host)}:6443"
        ask = f"echo {made} | {KUBECTL} {server} apply -f - 2>&1"
        wait(lambda ask=ask: "created" in site.on("az-1", ask, check=False), host, 30)  # type: ignore[misc]
        site.admin(f"-n young wait --for=condition=Ready --timeout=150s pod/on-{host}")


def test_everything_comes_back(site: Site, digest: str) -> None:
    site.switch(FEATURES)
    played = site.site()
    assert played.status == 0, played.output
    again = site.site()
    assert again.changed == {}, again.output
    high_risk_pods_start(site, digest)
    anna = site.api(site.login("anna", "Researchers"))
    assert refusal(lambda: anna.get("/api/v1/namespaces/research/pods")) == 0
    name = asked(site, "1h")
    approve(site, name, "lea")
    approve(site, name, "leo")
    wait(lambda: binding(site, name), "nobody binds")
