# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubeadm``, with a stand-in that makes the files kubeadm makes and can be cut off anywhere."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_join as joining
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_phases as phases
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kubeadm
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_run import (
    ADMIN_CONF,
    JOIN_KEY,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kubeadm import KIND
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Pending,
    ResourceError,
)
from cryptography import x509

from ironspan.lab.ports import free_port

from .authorities import Authority, key_pem, new_key
from .fake_host import FakeHost, converge, filled
from .test_certificate import AUTHORITY
from .test_kubeadm_config import ALL, CLUSTER, INIT
from .test_kubeadm_config import JOIN as JOIN_CONFIGURATION

CSR = {"common_name": "system:node:rack-1", "organizations": ["system:nodes", "ironspan:joining"]}
JOIN = {joining.INPUT: "yes"}
CLUSTER_CA = Authority()
ENDPOINT = "api.lab.internal:8443"
CONFIG = ALL.replace(CLUSTER, CLUSTER + "etcd: {external: {endpoints: [x]}}\napiServer: {certSANs: [a]}\n")
OTHER_CLUSTER = "    server: https://elsewhere:6443\n"
OURS = f"    server: https://{ENDPOINT}\n"
# What the stand-in does: note its input files, then make the files of as many steps as "steps" says.
KUBEADM = """
import os, shutil, sys
root = os.environ["IRONSPAN_ROOT"]
def put(path, text):
    os.makedirs(os.path.dirname(root + path), exist_ok=True)
    with open(root + path, "w") as stream:
        stream.write(text)
def read(path):
    return open(root + path).read() if os.path.exists(root + path) else ""
arguments = sys.argv[1:]
if "--config" in arguments and not os.path.exists(arguments[arguments.index("--config") + 1]):
    sys.exit("open kubeadm.yaml: no such file or directory")
for name in ("discovery.conf", "kubeadm.yaml"):
    path = root + "/run/ironspan/" + name
    if os.path.exists(path):
        assert os.stat(path).st_mode & 0o777 == 0o600, name
        assert os.stat(root + "/run/ironspan").st_mode & 0o777 == 0o700
        put("/seen/" + name, open(path).read())
if arguments[0] == "reset":
    assert "--skip-phases=remove-etcd-member" in arguments
    shutil.rmtree(root + "/var/lib/kubelet", ignore_errors=True)
    os.makedirs(root + "/var/lib/kubelet")
    for name in ("manifests",):
        shutil.rmtree(root + "/etc/kubernetes/" + name, ignore_errors=True)
    sys.exit(0)
if "phase" in arguments:
    if arguments[:4] == ["init", "phase", "certs", "apiserver"]:
        assert not os.path.exists(root + "/etc/kubernetes/pki/apiserver.crt")
        put("/etc/kubernetes/pki/apiserver.crt", "new")
    fails = read("/failing-phase")
    sys.exit(1 if fails and fails in arguments else 0)
config = read("/run/ironspan/kubeadm.yaml")
plane = "JoinConfiguration" not in config or os.path.exists(root + "/control-plane")
server = "    server: https://api.lab.internal:8443\\n"
steps = [("/etc/kubernetes/pki/apiserver.crt", "old"), ("/etc/kubernetes/admin.conf", server),
         ("/etc/kubernetes/manifests/kube-apiserver.yaml", "pod")] if plane else []
steps += [("/etc/kubernetes/bootstrap-kubelet.conf", server + read("/run/ironspan/discovery.conf")),
          ("/var/lib/kubelet/config.yaml", "config"),
          ("/etc/kubernetes/kubelet.conf", server)]
limit = int(read("/steps") or 99)
for number, (path, text) in enumerate(steps):
    if number == limit:
        sys.stderr.write(read("/error") or "error execution phase x: connection refused\\n")
        sys.exit(1)
    put(path, text)
os.remove(root + "/etc/kubernetes/bootstrap-kubelet.conf")
if os.path.exists(root + "/coredns"):
    sys.exit("error execution phase addon/coredns: unable to get list of changes to the configuration.: "
             "start version '1.14.7' not supported")
"""
STEPS = {"control_plane": 6, "worker": 3}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path, secrets=JOIN)
    host.python_program("kubeadm", KUBEADM)
    host.program("systemctl")
    for name in ("nft", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore", "ip"):
        host.program(name)
    host.put("/etc/kubernetes/pki/ca.crt", "CA")
    host.put("/etc/kubernetes/pki/sa.key", "SA")
    host.put("/etc/etcd/etcd.yaml", "etcd")
    host.put("/var/lib/etcd/member/wal", "data")
    monkeypatch.setattr(kubeadm, "NODE_GRACE", 0)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    give_credentials(host)
    return host


def give_credentials(host: FakeHost, **changes: Any) -> None:
    """Let a host have what it asked for: a key of its own and a certificate for it."""
    key = new_key()
    host.put(JOIN_KEY, key_pem(key), 0o600)
    (host.folder / "run/ironspan").chmod(0o700)
    host._certificates = {"node/join": CLUSTER_CA.sign(key.public_key(), **{**CSR, **changes})}


def spec(action: str = "join", role: str = "worker", **values: Any) -> dict[str, Any]:
    return filled(
        KIND,
        **{
            "id": "node/join",
            "endpoint": ENDPOINT,
            "config": CONFIG,
            "action": action,
            "role": role,
            "csr": CSR,
            **values,
        },
    )


JOIN_WORKER = spec()
JOIN_PLANE = spec(role="control_plane")
INIT_PLANE = spec("init", "control_plane")
WAYS = [
    pytest.param(JOIN_WORKER, id="worker"),
    pytest.param(JOIN_PLANE, id="join"),
    pytest.param(INIT_PLANE, id="init"),
]


def prepare(host: FakeHost, way: dict[str, Any]) -> None:
    """Tell the stand-in which way it is to go."""
    if way["role"] == "control_plane":
        host.put("/control-plane", "")


def snapshot(host: FakeHost) -> dict[str, str]:
    """Return the host's files, but for the tests' own."""
    own = ("calls", "seen", "steps", "error", "control-plane", "usr", "failing-phase")
    return {
        str(path.relative_to(host.folder)): path.read_text()
        for path in sorted(host.folder.rglob("*"))
        if path.is_file() and path.relative_to(host.folder).parts[0] not in own
    }


def commands(host: FakeHost) -> list[str]:
    """Return kubeadm's verbs, in order."""
    return [" ".join(w for w in call[1:] if not w.startswith(("-", "/"))) for call in host.calls("kubeadm")]


@pytest.mark.parametrize("way", WAYS)
def test_joins_once_and_leaves_no_input_behind(host: FakeHost, way: dict[str, Any]) -> None:
    prepare(host, way)
    change = converge(KIND, way, host)
    assert change is not None
    assert (change.action, change.before) == ("run", {"state": "absent"})
    assert commands(host) == [way["action"]]
    assert list((host.folder / "run/ironspan").iterdir()) == []
    assert not Path(host.path(kubeadm.MARKER)).exists()
    assert host.text("/etc/kubernetes/pki/sa.key") == "SA"


def test_init_over_a_store_that_has_the_cluster_already(host: FakeHost) -> None:
    host.put("/coredns", "")
    converge(KIND, INIT_PLANE, host)
    assert commands(host) == ["init", "init phase addon kube-proxy"]


def test_a_cluster_without_kube_proxy_does_not_get_it_later(host: FakeHost) -> None:
    host.put("/coredns", "")
    config = INIT_PLANE["config"].replace(CLUSTER, CLUSTER + "proxy:\n  disabled: true\n")
    assert config != INIT_PLANE["config"]
    converge(KIND, {**INIT_PLANE, "config": config}, host)
    assert commands(host) == ["init"]


def test_the_key_is_in_the_discovery_file_and_nowhere_else(host: FakeHost) -> None:
    key, certificate = host.text(JOIN_KEY), host.certificate("node/join")
    converge(KIND, JOIN_WORKER, host)
    user = json.loads(host.text("/seen/discovery.conf"))["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]).decode() == key
    assert base64.b64decode(user["client-certificate-data"]).decode() == certificate
    for secret in (key, user["client-key-data"]):
        assert secret not in host.text("/seen/kubeadm.yaml")
        assert not [word for call in host.calls() for word in call if secret in word]
        assert not [name for name, content in snapshot(host).items() if secret in content]
        assert secret not in json.dumps(host.note("node/join"))


def test_init_carries_no_token_and_prints_none(host: FakeHost) -> None:
    converge(KIND, INIT_PLANE, host)
    assert {"--skip-token-print", "--skip-certificate-key-print"} <= set(host.calls("kubeadm")[0])
    assert "JoinConfiguration" not in host.text("/seen/kubeadm.yaml")
    assert not Path(host.path("/seen/discovery.conf")).exists()


@pytest.mark.parametrize(
    ("way", "ignored"),
    [
        (JOIN_WORKER, "Swap,FileAvailable--etc-kubernetes-pki-ca.crt"),
        (JOIN_PLANE, "Swap"),
        (INIT_PLANE, "Swap"),
    ],
)
def test_preflight_checks_left_out(host: FakeHost, way: dict[str, Any], ignored: str) -> None:
    prepare(host, way)
    converge(KIND, {**way, "ignore_preflight": ["Swap"]}, host)
    assert f"--ignore-preflight-errors={ignored}" in host.calls("kubeadm")[0]


def offered(host: FakeHost, way: dict[str, Any] = JOIN_WORKER) -> str:
    """Return what a host asks for that cannot join yet."""
    with pytest.raises(Pending, match="certificate:node/join"):
        KIND.compare(way, host)
    return host.csrs.get("node/join", "")


@pytest.mark.parametrize("told", [{}, JOIN], ids=["not its turn", "its turn"])
def test_a_join_asks_for_a_certificate_of_its_own(tmp_path: Path, told: dict[str, str]) -> None:
    host = FakeHost(tmp_path, secrets=told)
    request = x509.load_pem_x509_csr(offered(host).encode())
    assert request.is_signature_valid
    assert {str(part.value) for part in request.subject} == {CSR["common_name"], *CSR["organizations"]}
    assert Path(host.path(JOIN_KEY)).stat().st_mode & 0o777 == 0o600
    assert Path(host.path("/run/ironspan")).stat().st_mode & 0o777 == 0o700
    key = host.text(JOIN_KEY)
    offered(host)
    assert host.text(JOIN_KEY) == key, "one key, however often it is compared"
    assert KIND.compare(INIT_PLANE, FakeHost(tmp_path / "first")) is not None


def test_an_assessment_makes_no_key(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.check_mode = True
    assert offered(host) == ""
    assert not Path(host.path(JOIN_KEY)).exists()


def test_a_certificate_alone_does_not_let_a_host_join(host: FakeHost) -> None:
    host._secrets = {}
    assert offered(host)


DAMAGED = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("certificate", ["", DAMAGED])
def test_a_certificate_of_no_use_is_asked_for_again(host: FakeHost, certificate: str) -> None:
    host._certificates = {"node/join": certificate}
    assert offered(host)


def test_a_certificate_for_another_key_is_asked_for_again(host: FakeHost) -> None:
    # The host was restarted after it had asked, and /run is empty then.
    (host.folder / JOIN_KEY.lstrip("/")).unlink()
    assert offered(host)


def test_a_document_that_knows_tokens_only_joins_nobody(host: FakeHost) -> None:
    before = {key: value for key, value in spec(token_secret="join-token").items() if key != "csr"}
    assert KIND.check(before) == []
    host._certificates = {}
    assert offered(host, {**before, "csr": {}}) == ""


def test_a_joined_host_needs_no_certificate(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.put("/etc/kubernetes/kubelet.conf", OURS)
    assert KIND.compare(JOIN_WORKER, host) is None


@pytest.mark.parametrize("way", WAYS)
def test_a_host_of_another_cluster_is_refused(host: FakeHost, way: dict[str, Any]) -> None:
    for name in ("kubelet", "admin"):
        host.put(f"/etc/kubernetes/{name}.conf", OTHER_CLUSTER)
    with pytest.raises(ResourceError, match="already belongs to a cluster at elsewhere:6443") as caught:
        KIND.compare(way, host)
    assert "Reset" in caught.value.remedy


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_attempt_leaves_the_host_as_it_was(host: FakeHost, way: dict[str, Any]) -> None:
    prepare(host, way)
    before = snapshot(host)
    for steps in range(STEPS[way["role"]]):
        host.put("/steps", str(steps))
        change = KIND.compare(way, host)
        assert change is not None
        with pytest.raises(ResourceError, match="connection refused") as caught:
            KIND.apply(way, change, host)
        assert "cannot be reached" in caught.value.remedy
        assert snapshot(host) == before
    (host.folder / "steps").unlink()
    converge(KIND, way, host)


def killed(host: FakeHost, way: dict[str, Any], steps: int) -> None:
    """Leave what a run leaves that is killed while kubeadm has done so many of its steps."""
    host.put(kubeadm.MARKER, "{}", 0o600)
    if "node/join" in host._certificates:
        give_credentials(host)
    host.put("/run/ironspan/discovery.conf", "x", 0o600)
    host.put("/run/ironspan/kubeadm.yaml", "x", 0o600)
    (host.folder / "run/ironspan").chmod(0o700)
    done = [ADMIN_CONF, phases.API_SERVER] if way["role"] == "control_plane" else []
    done += [kubeadm.BOOTSTRAP_CONF, "/var/lib/kubelet/config.yaml", kubeadm.KUBELET_CONF]
    for path in done[:steps]:
        host.put(path, OURS)


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_attempt_is_repaired_from_every_point(
    host: FakeHost, way: dict[str, Any], tmp_path: Path
) -> None:
    prepare(host, way)
    for steps in range(6):
        killed(host, way, steps)
        change = converge(KIND, way, host)
        assert change is not None, steps
        assert list((host.folder / "run/ironspan").iterdir()) == [], steps
        assert not Path(host.path(kubeadm.BOOTSTRAP_CONF)).exists(), steps
        assert host.text("/var/lib/etcd/member/wal") == "data"
        assert host.text("/etc/kubernetes/pki/sa.key") == "SA"


def test_the_end_of_a_workers_join_needs_neither_certificate_nor_kubeadm(host: FakeHost) -> None:
    host._secrets = {}
    host._certificates = {}
    killed(host, JOIN_WORKER, 3)
    assert converge(KIND, JOIN_WORKER, host) is not None
    assert commands(host) == []


def test_the_end_of_a_control_planes_join_is_done_again_alone(host: FakeHost) -> None:
    host._secrets = {}
    host._certificates = {}
    killed(host, JOIN_PLANE, 5)
    assert converge(KIND, JOIN_PLANE, host) is not None
    assert commands(host) == ["join phase control-plane-join all"]
    # With the control plane's own credentials: a discovery file without any is refused for five minutes.
    assert f'kubeConfigPath: "{host.path(ADMIN_CONF)}"' in host.text("/seen/kubeadm.yaml")


def test_the_end_of_an_init_is_not_trusted(host: FakeHost) -> None:
    killed(host, INIT_PLANE, 5)
    assert converge(KIND, INIT_PLANE, host) is not None
    assert commands(host) == ["reset", "init"]


def test_the_etcd_phase_of_a_reset_is_always_skipped(host: FakeHost) -> None:
    killed(host, JOIN_WORKER, 1)
    converge(KIND, JOIN_WORKER, host)
    call = next(call for call in host.calls("kubeadm") if call[1] == "reset")
    assert "--skip-phases=remove-etcd-member" in call
    assert "--cert-dir=/run/ironspan/no-certificates" in call


def test_certificates_of_other_resources_survive_a_repair(host: FakeHost) -> None:
    host.owns = {"/etc/kubernetes/pki/front-proxy-client.crt"}
    host.put("/etc/kubernetes/pki/front-proxy-client.crt", "mine")
    host.put("/etc/kubernetes/pki/apiserver.crt", "kubeadm's")
    host.put("/etc/kubernetes/pki/apiserver-etcd-client.key", "mine too")
    killed(host, JOIN_WORKER, 1)
    converge(KIND, JOIN_WORKER, host)
    assert host.text("/etc/kubernetes/pki/front-proxy-client.crt") == "mine"
    assert host.text("/etc/kubernetes/pki/apiserver-etcd-client.key") == "mine too"
    assert not Path(host.path("/etc/kubernetes/pki/apiserver.crt")).exists()


def test_a_kubeadm_that_outlived_its_run_is_ended_first(host: FakeHost) -> None:
    killed(host, JOIN_WORKER, 1)
    config = host.path("/run/ironspan/kubeadm.yaml")
    host.put("/proc/4711/cmdline", f"/usr/local/bin/kubeadm\0join\0--config\0{config}\0")
    host.put("/proc/4712/cmdline", "kubeadm\0token\0list\0")
    host.put("/proc/4713/cmdline", f"less\0{config}\0")
    host.program("kill", 'rm -r "$IRONSPAN_ROOT/proc/$2"')
    converge(KIND, JOIN_WORKER, host)
    assert host.calls("kill") == [["kill", "-KILL", "4711"]]
    verbs = [call[0] for call in host.calls()]
    assert verbs.index("kill") < verbs.index("kubeadm")


def test_a_key_in_an_error_is_blotted_out(host: FakeHost) -> None:
    host.put("/steps", "0")
    secret = base64.b64encode(host.text(JOIN_KEY).encode()).decode()
    host.put("/error", f'error: the key "{secret}" is invalid: Unauthorized\n')
    change = KIND.compare(JOIN_WORKER, host)
    assert change is not None
    with pytest.raises(ResourceError, match=r"\(secret\)") as caught:
        KIND.apply(JOIN_WORKER, change, host)
    assert secret not in caught.value.message


def test_a_former_self_that_still_counts_as_ready_is_waited_for(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeadm, "NODE_GRACE", 60)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        # The standard library sleeps too while it waits for a program.
        if seconds == 5:
            waits.append(seconds)
        if len(waits) == 2 and (host.folder / "steps").exists():
            (host.folder / "steps").unlink()

    monkeypatch.setattr("time.sleep", sleep)
    host.put("/steps", "1")
    host.put("/error", 'error: a Node with name "rack-1" and status "Ready" already exists in the cluster\n')
    converge(KIND, JOIN_WORKER, host)
    assert len(waits) == 2
    assert commands(host).count("join") == 3


@pytest.mark.parametrize("way", WAYS)
def test_undo_leaves_the_cluster_again(host: FakeHost, way: dict[str, Any]) -> None:
    prepare(host, way)
    # The key of a join is made for one attempt.
    before = {name: text for name, text in snapshot(host).items() if name != JOIN_KEY.lstrip("/")}
    change = converge(KIND, way, host)
    assert change is not None
    for _ in range(2):
        KIND.undo(way, journalled(change), host)
        assert snapshot(host) == before


def journalled(change: Change) -> Change:
    """Return what the journal keeps of a change: everything but texts."""
    before, after = (
        {k: v for k, v in state.items() if k != "text"} for state in (change.before, change.after)
    )
    return Change(change.action, before, after, change.reason)


PLANE_FILES = (kubeadm.KUBELET_CONF, ADMIN_CONF, phases.API_SERVER)


@pytest.mark.parametrize("way", [JOIN_PLANE, INIT_PLANE])
def test_a_changed_configuration_runs_the_phases_on_every_control_plane(
    host: FakeHost, way: dict[str, Any]
) -> None:
    prepare(host, way)
    converge(KIND, way, host)
    host.forget_calls()
    changed = {**way, "config": CONFIG + "clusterName: other\n"}
    change = converge(KIND, changed, host)
    assert change is not None
    assert (change.action, change.before, change.after) == (
        "update",
        {"text": CONFIG},
        {"text": changed["config"]},
    )
    assert commands(host) == [
        "init phase upload-config all",
        "init phase addon kube-proxy",
        "init phase control-plane all",
    ]
    assert [path for path in host.backups if "manifests" in path] == [
        f"/etc/kubernetes/manifests/{name}.yaml" for name in phases.COMPONENTS
    ]


def test_a_rollback_gives_the_cluster_its_former_configuration(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    converge(KIND, INIT_PLANE, host)
    changed = {**INIT_PLANE, "config": CONFIG + "clusterName: other\n"}
    change = converge(KIND, changed, host)
    assert change is not None
    host.forget_calls()
    KIND.undo(changed, journalled(change), host)
    # The manifests come back first; and nothing resets the host.
    assert commands(host) == []
    waited: list[object] = []
    monkeypatch.setattr(phases, "wait_until_ready", lambda *arguments: waited.append(arguments))
    KIND.settle(changed, journalled(change), host)
    assert waited == [(host, ())]
    assert commands(host) == ["init phase upload-config all", "init phase addon kube-proxy"]
    assert "clusterName" not in host.text("/seen/kubeadm.yaml")
    assert list((host.folder / "run/ironspan").iterdir()) == []


def test_settling_a_join_does_nothing(host: FakeHost) -> None:
    change = converge(KIND, JOIN_WORKER, host)
    assert change is not None
    host.forget_calls()
    KIND.settle(JOIN_WORKER, journalled(change), host)
    assert host.calls() == []


@pytest.mark.parametrize(
    ("processes", "former", "ready", "patience"),
    [
        ({"7": "kube-apiserver"}, [], True, True),
        ({"7": "kube-apiserver"}, ["7"], True, False),
        ({"7": "kube-apiserver", "8": "/usr/local/bin/kube-apiserver"}, ["7"], True, True),
        ({"8": "kube-apiserver"}, ["7"], False, False),
        ({"8": "less"}, [], True, False),
    ],
)
def test_waiting_for_the_new_api_server(
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
    processes: dict[str, str],
    former: list[str],
    ready: bool,
    patience: bool,
) -> None:
    for number, command in processes.items():
        host.put(f"/proc/{number}/cmdline", f"{command}\0--x\0")
    monkeypatch.setattr(phases, "READY_TIMEOUT", 0.05)
    monkeypatch.setattr(phases, "_is_ready", lambda _: ready)
    if patience:
        phases.wait_until_ready(host, former)
    else:
        with pytest.raises(ResourceError, match="was not ready"):
            phases.wait_until_ready(host, former)


def test_an_api_server_that_does_not_listen_is_not_ready(host: FakeHost) -> None:
    port = free_port()
    host.put(phases.API_SERVER, f"    - --advertise-address=127.0.0.1\n    - --secure-port={port}\n")
    host.put(phases.CA, AUTHORITY.pem)
    assert not phases._is_ready(host)


def test_a_phase_that_fails_is_tried_again_by_the_next_run(host: FakeHost) -> None:
    converge(KIND, INIT_PLANE, host)
    changed = {**INIT_PLANE, "config": CONFIG + "clusterName: other\n"}
    host.put("/failing-phase", "addon")
    change = KIND.compare(changed, host)
    assert change is not None
    with pytest.raises(ResourceError, match="kubeadm init phase addon kube-proxy failed"):
        KIND.apply(changed, change, host)
    (host.folder / "failing-phase").unlink()
    assert converge(KIND, changed, host) is not None


def test_other_names_make_another_certificate(host: FakeHost) -> None:
    converge(KIND, INIT_PLANE, host)
    changed = {**INIT_PLANE, "config": CONFIG.replace("[a]", "[a, b]")}
    converge(KIND, changed, host)
    assert "init phase certs apiserver" in commands(host)
    assert host.text("/etc/kubernetes/pki/apiserver.crt") == "new"
    assert set(phases.API_CERTIFICATE) <= set(host.backups)


def test_another_version_is_no_change_of_configuration(host: FakeHost) -> None:
    converge(KIND, INIT_PLANE, host)
    with pytest.raises(ResourceError, match=r"Kubernetes 1\.37\.1.*set up with 1\.36\.4"):
        KIND.compare({**INIT_PLANE, "config": CONFIG.replace("1.36.4", "1.37.1")}, host)


@pytest.mark.parametrize(
    "values",
    [
        {"phases_on_change": False},
        {"role": "worker", "action": "join"},
        {"config": JOIN_CONFIGURATION, "action": "join"},
    ],
)
def test_configurations_that_are_not_followed(host: FakeHost, values: dict[str, Any]) -> None:
    for path in PLANE_FILES:
        host.put(path, OURS)
    assert KIND.compare({**INIT_PLANE, **values}, host) is None


def test_a_control_plane_whose_configuration_was_forgotten_gets_it_again(host: FakeHost) -> None:
    for path in PLANE_FILES:
        host.put(path, OURS)
    change = converge(KIND, INIT_PLANE, host)
    assert change is not None
    assert (change.action, change.before) == ("update", {"text": ""})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, ""),
        ({"action": "init", "role": "control_plane"}, ""),
        ({"action": "reset", "endpoint": "", "config": ""}, ""),
        ({"endpoint": ""}, "endpoint"),
        ({"action": "init"}, "role"),
        ({"action": "init", "role": "control_plane", "config": INIT}, "config: init needs"),
        ({"config": CLUSTER + "etcd: {external: {}}\n"}, "config: the configuration for a join"),
        ({"config": ALL}, "config: etcd must be external"),
    ],
)
def test_check(values: dict[str, Any], problem: str) -> None:
    assert "; ".join(KIND.check(spec(**values)))[: len(problem) or None] == problem


THEIRS = "-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"
RULES = f"*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\n{THEIRS}"


def test_reset_takes_everything_of_the_cluster_and_nothing_else(host: FakeHost) -> None:
    before = {name: text for name, text in snapshot(host).items() if name != JOIN_KEY.lstrip("/")}
    prepare(host, INIT_PLANE)
    converge(KIND, INIT_PLANE, host)
    host.put("/etc/cni/net.d/10-flannel.conflist", "x")
    host.put("/etc/cni/net.d/99-other.conflist", "theirs")
    before["etc/cni/net.d/99-other.conflist"] = "theirs"
    host.put("/run/flannel/subnet.env", "x")
    host.put("/var/lib/kubelet/pki/kubelet.key", "x")
    host.put("/var/lib/cni/networks/cbr0/10.244.0.2", "x")
    (host.folder / "sys/class/net/cni0").mkdir(parents=True)
    host.program(
        "ip", 'rmdir "$IRONSPAN_ROOT/sys/class/net/$4" 2>/dev/null || rmdir "$IRONSPAN_ROOT/sys/class/net/$3"'
    )
    host.put("/tables", "table ip kube-proxy\ntable inet filter\ntable ip flannel-ipv4\n")
    host.program(
        "nft",
        'if [ "$1" = list ]; then cat "$IRONSPAN_ROOT/tables"; '
        'else sed -i "/$3 $4$/d" "$IRONSPAN_ROOT/tables"; fi',
    )
    host.put("/rules", RULES)
    host.program("iptables-save", 'cat "$IRONSPAN_ROOT/rules"')
    host.program("iptables-restore", 'cat >"$IRONSPAN_ROOT/rules"')
    reset = spec("reset", endpoint="", config="")
    change = converge(KIND, reset, host)
    assert change is not None
    assert change.action == "delete"
    assert {"interface cni0", "nftables table ip kube-proxy", "iptables chains"} <= set(change.before["left"])
    assert host.text("/tables") == "table inet filter\n"
    assert host.text("/rules") == f"*filter\n:INPUT ACCEPT [0:0]\n{THEIRS}"
    after = {name: content for name, content in snapshot(host).items() if name not in ("tables", "rules")}
    assert after == before
    KIND.undo(reset, change, host)


def test_a_bare_host_has_nothing_to_reset(host: FakeHost) -> None:
    (host.folder / JOIN_KEY.lstrip("/")).unlink()
    assert KIND.compare(spec("reset", endpoint="", config=""), host) is None


MEMBER = ("init_or_join", "control_plane")


def test_a_bare_control_plane_must_be_told_whether_the_cluster_exists(host: FakeHost) -> None:
    host._secrets = {}
    with pytest.raises(Pending) as pending:
        KIND.compare(spec(*MEMBER), host)
    assert pending.value.needs == "cluster:start-or-join"


@pytest.mark.parametrize(
    ("given", "words"),
    [({"cluster-start": "yes"}, "init"), (JOIN, "join")],
)
def test_a_bare_control_plane_does_as_it_is_told(host: FakeHost, given: dict[str, str], words: str) -> None:
    host._secrets = given
    host.put("/control-plane", "")
    change = converge(KIND, spec(*MEMBER), host)
    assert change is not None
    assert change.after["action"] == words
    assert host.calls("kubeadm")[0][1] == words


def test_a_cut_off_start_goes_on_without_being_told_and_never_turns_into_a_join(host: FakeHost) -> None:
    host._secrets = JOIN
    host.put(kubeadm.MARKER, '{"action": "init"}')
    host.put("/etc/kubernetes/admin.conf", OURS)
    change = KIND.compare(spec(*MEMBER), host)
    assert change is not None
    assert change.after["action"] == "init"


def test_a_cut_off_join_needs_to_be_told_again(host: FakeHost) -> None:
    host._secrets = {"cluster-start": "yes"}
    host.put(kubeadm.MARKER, '{"action": "join"}')
    with pytest.raises(Pending) as pending:
        KIND.compare(spec(*MEMBER), host)
    assert pending.value.needs == "certificate:node/join"


def test_a_control_plane_that_joined_needs_no_input(host: FakeHost) -> None:
    host.put("/control-plane", "")
    converge(KIND, spec(*MEMBER), host)
    host._secrets = {}
    assert KIND.compare(spec(*MEMBER), host) is None
