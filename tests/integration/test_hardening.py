# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small cluster with everything of docs/hardening.md, judged by kube-bench and by what it lets in."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import shutil
import subprocess
import time
import typing as t
from collections.abc import Iterator

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ironspan.artifacts import cache, index, sign
from tests.integration.conftest import Cluster, lab_cluster
from tests.support import benchmark, kube_bench
from tests.support.playbooks import Played

pytestmark = [pytest.mark.lab, pytest.mark.long]

KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
BUSYBOX = "docker.io/library/busybox:1.37.0"
PATIENCE_S = 180.0
KEY, STRANGER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


def public(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a public key as PEM."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


class Hardened(Cluster):
    """The cluster, and images that are of no other use."""

    registry = f"docker.io/ironspan-test-{secrets.token_hex(4)}"
    more: t.ClassVar[dict[str, t.Any]] = {}

    def variables(self, **more: t.Any) -> str:
        """Return what turns everything on, and more."""
        variables = {
            "site_cis_benchmark": True,
            "base_sshd": "hardened",
            "containerd_image_policy_mode": "enforce",
            "containerd_image_policy": [{"images": [f"{self.registry}/*"], "keys": [public(KEY)]}],
            **self.more,
            **more,
        }
        return json.dumps(variables)

    def site(self, *options: str) -> Played:
        """Run site.yml with everything turned on."""
        return super().site("-e", self.variables(), *options)

    def tried(self, time_: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Try settings of sshd on the worker, for a time such as 5m."""
        more = ("-e", self.variables(base_sshd_settings=settings), "--limit", "rack-1,localhost")
        return self.command("apply", "--try", time_, "-i", str(self.inventory), *more)

    def start(self, name: str, image: str) -> None:
        """Start a pod on the worker."""
        container = {
            "name": "main",
            "image": image,
            "command": ["sleep", "3600"],
            "imagePullPolicy": "Always",
        }
        spec = {"nodeName": "rack-1", "terminationGracePeriodSeconds": 0, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.on("az-1", f"echo {shlex.quote(json.dumps(pod))} | {KUBECTL} apply -f -")

    def refusal(self, pod: str) -> str:
        """Wait until the kubelet says why it cannot pull an image, and return that."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for event in self.kubectl("get", "events", f"--field-selector=involvedObject.name={pod}")[
                "items"
            ]:
                if event["reason"] == "Failed" and "Failed to pull" in event["message"]:
                    return str(event["message"])
            time.sleep(1)
        raise AssertionError(f"no event of {pod}")


@contextlib.contextmanager
def images(registry: str) -> Iterator[None]:
    """Put copies of an image into the mirror: signed, not signed, signed by a stranger."""
    place = cache.Cache()
    held = index.load(place.index_path).images.get(BUSYBOX)
    if held is None:
        pytest.skip(f"the mirror lacks {BUSYBOX}: ironspan artifacts build {BUSYBOX}")
    source = place.below_mirror("/v2/" + BUSYBOX.rpartition(":")[0])
    try:
        for name, key in (("signed", KEY), ("unsigned", None), ("strange", STRANGER)):
            repository = f"{registry}/{name}"
            target = place.below_mirror(f"/v2/{repository}")
            for file in [held.digest, BUSYBOX.rpartition(":")[2]]:
                (target / "manifests").mkdir(parents=True, exist_ok=True)
                (target / "manifests" / file).hardlink_to(source / "manifests" / file)
            (target / "blobs").mkdir()
            for blob in held.blobs:
                (target / "blobs" / blob).hardlink_to(source / "blobs" / blob)
            if key is not None:
                assert sign.sign(key, repository, held.digest, place)
        yield
    finally:
        shutil.rmtree(place.below_mirror(f"/v2/{registry}"), ignore_errors=True)


@pytest.fixture(scope="module")
def site() -> Iterator[Hardened]:
    with (
        images(Hardened.registry),
        lab_cluster(Hardened, "hardtest", azure=1, rack=1, azure_services=False) as made,
    ):
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        yield made


def judged(site: Hardened, host: str, targets: str) -> dict[str, str]:
    """Run kube-bench on a host and return its verdicts: check -> PASS, FAIL or WARN."""
    bench = kube_bench.find()
    if bench is None:
        pytest.skip("kube-bench is not compiled: python -m tests.support.kube_bench")
    config = yaml.safe_load((bench.checks / "config.yaml").read_text())
    members = site.on(host, "ls -d /var/lib/etcd/* 2>/dev/null || true").split()
    # This file is where an operator tells kube-bench where things are.
    config["master"]["etcd"]["datadirs"] = config["etcd"]["etcd"]["datadirs"] = members
    send = site.lab.ssh_command(host, ["mkdir -p /tmp/kb/cfg && tar x -C /tmp/kb"])
    pack = ["tar", "c", "-C", str(bench.program.parent), bench.program.name, "-C", str(bench.checks.parent)]
    with subprocess.Popen([*pack, f"cfg/{kube_bench.BENCHMARK}"], stdout=subprocess.PIPE) as packed:
        subprocess.run(send, stdin=packed.stdout, check=True, timeout=120)
    site.on(host, f"echo {shlex.quote(yaml.safe_dump(config))} > /tmp/kb/cfg/config.yaml")
    command = (
        f"cd /tmp/kb && ./kube-bench run --benchmark {kube_bench.BENCHMARK} --config-dir cfg"
        f" --config cfg/config.yaml --targets {targets} --json --outputfile out.json >/dev/null;"
        " cat out.json"
    )
    report = json.loads(site.on(host, command))
    return {
        result["test_number"]: result["status"]
        for control in report["Controls"]
        for group in control["tests"]
        for result in group["results"]
        if result.get("type") != "manual"
    }


@pytest.mark.parametrize(
    ("host", "targets", "least"), [("az-1", "master,etcd,node", 80), ("rack-1", "node", 20)]
)
def test_kube_bench_fails_nothing_but_what_is_documented(
    site: Hardened, host: str, targets: str, least: int
) -> None:
    verdicts = judged(site, host, targets)
    assert len(verdicts) >= least
    documented = {number: it.verdict for number, it in benchmark.DEVIATIONS.items() if number in verdicts}
    assert {number: it for number, it in verdicts.items() if it != "PASS"} == documented


def test_a_second_run_changes_nothing(site: Hardened) -> None:
    played = site.site()
    assert played.status == 0, played.output[-4000:]
    assert not {host: count for host, count in played.changed.items() if host != "localhost"}


def test_a_signed_image_runs(site: Hardened) -> None:
    site.start("signed", f"{site.registry}/signed:1.37.0")
    site.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=150s pod/signed")


def test_the_event_of_an_image_that_is_not_signed_says_so(site: Hardened) -> None:
    site.start("unsigned", f"{site.registry}/unsigned:1.37.0")
    assert "verifier ironspan rejected image (exit code 1): it is not signed" in site.refusal("unsigned")


def test_a_strangers_signature_does_not_do(site: Hardened) -> None:
    site.start("strange", f"{site.registry}/strange:1.37.0")
    assert "none of its 1 signatures is by a key of the site's policy" in site.refusal("strange")


def test_images_are_judged_without_the_api(site: Hardened) -> None:
    pull = "ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d"
    site.on("az-1", "mv /etc/kubernetes/manifests/kube-apiserver.yaml /root/")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while site.on("az-1", "ss -Hltn sport = :6443"):
            assert time.monotonic() < deadline
            time.sleep(1)
        assert "not signed" in site.on("rack-1", f"{pull} {site.registry}/unsigned:1.37.0 2>&1 || true")
        site.on("rack-1", f"{pull} {site.registry}/signed:1.37.0")
    finally:
        site.on("az-1", "mv /root/kube-apiserver.yaml /etc/kubernetes/manifests/")
        deadline = time.monotonic() + PATIENCE_S
        while site.on("az-1", f"{KUBECTL} get --raw /readyz 2>&1 || true") != "ok":
            assert time.monotonic() < deadline
            time.sleep(1)


def test_settings_of_others_do_not_let_images_through(site: Hardened) -> None:
    file = "/etc/containerd/conf.d/60-other.toml"
    section = 'version = 3\\n[plugins."io.containerd.cri.v1.images"]\\n'
    pull = "Failed to pull"
    try:
        # Alone, this makes containerd pull without asking anybody.
        site.on("rack-1", f"printf '{section}max_concurrent_downloads = 4\\n' > {file}")
        site.on("rack-1", "systemctl restart containerd")
        site.start("later", f"{site.registry}/unsigned:1.37.0")
        assert pull in site.refusal("later")
        site.on("rack-1", f"printf '{section}discard_unpacked_layers = true\\n' > {file}")
        site.on("rack-1", "! timeout 30 systemctl restart containerd")
        assert "discard_unpacked_layers = true" in site.on("rack-1", "journalctl -u containerd -n 50")
    finally:
        site.on("rack-1", f"rm -f {file}; systemctl reset-failed containerd; systemctl restart containerd")


def test_a_warning_lets_it_through_and_the_log_has_it(site: Hardened) -> None:
    site.on("rack-1", """sed -i 's/"mode": "enforce"/"mode": "warn"/' /etc/ironspan-images.json""")
    site.on(
        "rack-1",
        f"ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d {site.registry}/unsigned:1.37.0",
    )
    assert "unsigned" in site.on(
        "rack-1", "journalctl -t ironspan-image | grep 'would be refused: it is not signed'"
    )


def test_settings_that_sshd_refuses_never_reach_it(site: Hardened, monkeypatch: pytest.MonkeyPatch) -> None:
    before = site.on("rack-1", "sshd -T -C user=root,host=x,addr=127.0.0.1")
    monkeypatch.setattr(site, "more", {"base_sshd_settings": {"IPQoS": "rot13"}}, raising=False)
    played = site.site("--limit", "rack-1,localhost")
    assert played.status != 0
    assert "Bad IPQoS value" in played.output
    assert site.on("rack-1", "sshd -T -C user=root,host=x,addr=127.0.0.1") == before
    assert site.on("rack-1", "systemctl is-active ssh ironspan-sshd-check").split() == ["active", "active"]


def test_settings_that_lock_everybody_out_go_back_by_themselves(site: Hardened) -> None:
    before = site.on("rack-1", "sshd -T -C user=root,host=x,addr=127.0.0.1")
    wrong = site.tried("2m", {"AllowGroups": "nobody-is-in-it"})
    assert wrong.returncode == 0 and "ironspan confirm" in wrong.stdout, wrong.stdout
    # Nobody gets in to confirm it; where this takes longer than the trial, the host says that it went back.
    confirmed = site.command("confirm", "rack-1", "-i", str(site.inventory))
    assert confirmed.returncode in (1, 4), confirmed.stdout
    assert confirmed.returncode == 1 or "Permission denied" in confirmed.stdout
    until = time.monotonic() + PATIENCE_S + 120
    while site.on("rack-1", "echo in", check=False) != "in":
        assert time.monotonic() < until, "the host has not come back"
        time.sleep(1)
    assert site.on("rack-1", "sshd -T -C user=root,host=x,addr=127.0.0.1") == before
    listed = site.command("rollback", "rack-1", "--list", "-i", str(site.inventory))
    assert "not confirmed in time" in listed.stdout, listed.stdout
    assert site.on("rack-1", "systemctl is-active ssh ironspan-sshd-check").split() == ["active", "active"]


def test_settings_that_let_people_in_are_confirmed_and_stay(site: Hardened) -> None:
    tried = site.tried("30m", {"AllowGroups": "root"})
    assert tried.returncode == 0 and "ironspan confirm" in tried.stdout, tried.stdout
    confirmed = site.command("confirm", "rack-1", "-i", str(site.inventory))
    assert confirmed.returncode == 0, confirmed.stdout
    assert "allowgroups root" in site.on("rack-1", "sshd -T -C user=root,host=x,addr=127.0.0.1")
    assert site.on("rack-1", "systemctl list-units --all 'ironspan-revert*' --plain --no-legend") == ""
