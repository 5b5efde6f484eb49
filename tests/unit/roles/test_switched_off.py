# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a feature brought goes when it is switched off, and with a reset: the real engine in a private root.

No template says so. What only a real host has (packages, images, what kubeadm does) is left out of documents.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer

from tests.unit.conftest import Sandbox
from tests.unit.roles.conftest import Document, Rendered
from tests.unit.roles.test_egress import ON as EGRESS
from tests.unit.roles.test_encryption import VAULT, Side
from tests.unit.roles.test_hardening import RULES

Render = Callable[..., Rendered]
KINDS = ("file", "directory", "symlink", "systemd_unit", "absent")
UNITS = "/etc/systemd/system"


KEPT: dict[str, tuple[str, ...]] = {
    "containerd": ("usr/local/lib",),
    "gvisor": ("usr/local/libexec",),
    # Where secrets are encrypted, the API server is told how; that stays, with other keys.
    "control_plane": ("etc/kubernetes/ironspan",),
}
"""What is not as it was before: folders of the system, and what the other state has."""


class Case(t.NamedTuple):
    """A layer, what switches the feature on, and what must be gone without it."""

    layer: str
    host: str
    on: dict[str, t.Any]
    gone: tuple[str, ...]
    told: str = ""
    """The unit that has to notice."""
    kms: bool = False


IMAGES = "/usr/local/lib/ironspan-images"
CASES = [
    Case(
        "node", "rack-1", EGRESS, (f"{UNITS}/kubelet.service.d/20-ironspan-egress.conf",), "kubelet.service"
    ),
    Case(
        "containerd",
        "rack-1",
        {"containerd_image_policy_mode": "enforce", "containerd_image_policy": RULES},
        (
            "/etc/containerd/conf.d/zz-ironspan-images.toml",
            f"{UNITS}/containerd.service.d",
            IMAGES,
            "/etc/ironspan-images.json",
        ),
        "containerd.service",
    ),
    Case(
        "containerd",
        "rack-1",
        {"containerd_registries": ["registry.k8s.io", "ghcr.io", "registry.example.com"]},
        ("/etc/containerd/certs.d/registry.example.com",),
    ),
    Case(
        "control_plane",
        "az-1",
        VAULT,
        (
            f"{UNITS}/ironspan-kms.service",
            "/etc/ironspan-kms.json",
            "/etc/ironspan-kms.key",
            "/var/lib/ironspan-kms",
            "/opt/ironspan-kms",
        ),
        kms=True,
    ),
    Case(
        "gvisor",
        "rack-1",
        {"gvisor_smoke_enabled": True},
        (
            *(
                f"{UNITS}/ironspan-runtime-{unit}"
                for unit in ("ready.service", "smoke.service", "smoke.timer", "bench.service")
            ),
            "/etc/ironspan-runtime.json",
            "/usr/local/libexec/ironspan-runtime-smoke",
            "/usr/local/libexec/ironspan-runtime-bench",
        ),
    ),
    Case(
        "base",
        "rack-1",
        {"base_sshd": "hardened"},
        ("/etc/ssh/sshd_config.d/00-ironspan.conf", f"{UNITS}/ironspan-sshd-check.service"),
        "ssh.service",
    ),
]


def part(raw: Document, layer: str) -> Document:
    """Return what of a document concerns a layer and can be done in a private root."""
    found = [
        each for each in raw["resources"] if each["kind"] in KINDS and each["id"].startswith(f"{layer}/")
    ]
    names = {each["id"] for each in found}
    for each in found:
        for parameter in ("requires", "restart_on", "reload_on"):
            if parameter in each:
                each[parameter] = [name for name in each[parameter] if name in names]
    return {**raw, "layers": [layer], "prunes": [layer], "resources": found}


@pytest.fixture
def document(render: Render) -> Callable[..., Document]:
    """Return a function that renders a case's part, switched on or off, or the reset of it."""

    def make(case: Case, on: bool, template: str = "desired.yml.j2") -> Document:
        rendered = Rendered(render(variables=case.on if on else {}).site)
        if case.kms:
            rendered.renderer = Renderer(
                rendered.site, Side(Encryption(("kms-1",) if on else ("secretbox-1",)))
            )
        return part(rendered.document(case.host, template), case.layer)

    return make


def run(host: Sandbox, document: Document) -> list[str]:
    """Converge, and return the names of what changed."""
    secrets = {each["secret"]: "x\n" for each in document["resources"] if "secret" in each}
    result = host.run(document=document, secrets=secrets)
    assert not result.get("failed"), result.get("msg")
    return [entry["resource"] for entry in result["changes"]]


def foreign(host: Sandbox, case: Case) -> list[str]:
    """Put something of others beside what goes, and return where."""
    there = []
    for path in case.gone:
        folder = path.rpartition("/")[0]
        there.append(f"{folder}/of-somebody-else")
        host.put(there[-1], "kept")
    return there


@pytest.fixture
def host(sandbox: Sandbox) -> Sandbox:
    """A host with an sshd of its own, and folders that its packages made."""
    for unit in ("ssh", "kubelet"):
        sandbox.put(f"etc/systemd/system/{unit}.service", "[Service]\n")
    folders = ("etc/ssh/sshd_config.d", "etc/kubernetes/pki", "etc/containerd/conf.d", "usr/local/bin")
    for folder in (*folders, "var/lib/kubelet/pki", "var/log/kubernetes"):
        (sandbox.root / folder).mkdir(parents=True, exist_ok=True)
    return sandbox


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}-{next(iter(case.on))}")
def test_what_a_feature_brought_goes_with_it(
    document: Callable[..., Document], host: Sandbox, case: Case
) -> None:
    off = document(case, on=False)
    run(host, off)
    before = host.snapshot()
    run(host, document(case, on=True))
    assert [path for path in case.gone if not (host.root / path[1:]).exists()] == []
    if case.kms:
        host.put("var/lib/ironspan-kms/wrapping-key.json", "what the program wrote itself")
    others = foreign(host, case)
    host.calls()
    planned = [entry["resource"] for entry in host.run(document=off, mode="assess")["changes"]]
    done = run(host, off)
    assert done == planned
    assert [path for path in case.gone if (host.root / path[1:]).exists()] == []
    assert {host.read(path) for path in others} == {"kept"}
    if case.told:
        assert [call for call in host.calls() if case.told in call and call.startswith(("restart", "reload"))]
    for path in others:
        (host.root / path[1:]).unlink(missing_ok=True)
    after = {path: seen for path, seen in host.snapshot().items() if not path.startswith("run")}
    left = {path: seen for path, seen in before.items() if not path.startswith("run")}
    kept = KEPT.get(case.layer, ())
    assert [path for path in set(after) - set(left) if not path.startswith(kept)] == []
    assert {path: after[path] for path in left if not path.startswith(kept)} == {
        path: seen for path, seen in left.items() if not path.startswith(kept)
    }
    assert run(host, off) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}-{next(iter(case.on))}")
def test_a_reset_takes_it_and_nothing_of_others(
    document: Callable[..., Document], host: Sandbox, case: Case
) -> None:
    run(host, document(case, on=True))
    # Elsewhere than in folders that are taken away whole, where others have nothing to look for.
    others = [path for path in foreign(host, case) if not path.startswith("/etc/kubernetes")]
    run(host, document(case, on=True, template="reset.yml.j2"))
    assert [path for path in case.gone if (host.root / path[1:]).exists()] == []
    assert {host.read(path) for path in others} == {"kept"}


def test_pods_keep_the_release_that_they_run(document: Callable[..., Document], host: Sandbox) -> None:
    case = next(case for case in CASES if case.layer == "gvisor")
    on = document(case, on=True)
    run(host, on)
    links = [each for each in on["resources"] if each["kind"] == "symlink"]
    run(host, part({**on, "resources": [each for each in on["resources"] if each not in links]}, case.layer))
    assert [(host.root / each["path"][1:]).is_symlink() for each in links] == [True, True]
