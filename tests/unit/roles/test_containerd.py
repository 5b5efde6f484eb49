# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What containerd, gVisor and haproxy are told, read back by parsers."""

from __future__ import annotations

import tomllib
import typing as t
from collections.abc import Callable

import pytest

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
RUNTIME = "io.containerd.cri.v1.runtime"
IMAGES = "io.containerd.cri.v1.images"


def at(tree: t.Any, *path: t.Any) -> t.Any:
    """Return what is at a path of keys."""
    for key in path:
        tree = tree[key]
    return tree


CONTAINERD = [
    ({}, ("plugins", RUNTIME, "restrict_oom_score_adj"), True),  # the lab's own setting
    ({"containerd_restrict_oom_score_adj": False}, ("plugins", RUNTIME, "restrict_oom_score_adj"), False),
    ({}, ("plugins", IMAGES, "pinned_images", "sandbox"), "registry.k8s.io/pause:3.10.2"),
    ({"containerd_max_concurrent_downloads": 9}, ("plugins", IMAGES, "max_concurrent_downloads"), 9),
    ({}, ("plugins", IMAGES, "registry", "config_path"), "/etc/containerd/certs.d"),
    ({}, ("imports",), ["/etc/containerd/conf.d/*.toml"]),
    ({}, ("version",), 3),
    ({}, ("plugins", RUNTIME, "containerd", "runtimes", "runc", "options", "SystemdCgroup"), True),
]


@pytest.mark.parametrize(("variables", "path", "value"), CONTAINERD)
def test_containerd(render: Render, variables: dict[str, t.Any], path: tuple[str, ...], value: t.Any) -> None:
    tree = tomllib.loads(render(variables=variables).content("rack-1", "containerd/config"))
    assert at(tree, *path) == value


def test_containerd_knows_nothing_of_gvisor_outside_the_drop_in(render: Render) -> None:
    tree = tomllib.loads(render().content("rack-1", "containerd/config"))
    assert list(at(tree, "plugins", RUNTIME, "containerd", "runtimes")) == ["runc"]
    drop_in = tomllib.loads(render().content("rack-1", "gvisor/drop-in"))
    assert list(drop_in) == ["version", "plugins"]
    assert at(drop_in, "plugins", RUNTIME, "containerd", "runtimes") == {
        "runsc": {
            "runtime_type": "io.containerd.runsc.v1",
            "options": {
                "TypeUrl": "io.containerd.runsc.v1.options",
                "ConfigPath": "/etc/containerd/runsc.toml",
            },
        }
    }
    assert render().resources("rack-1")["gvisor/flags"]["path"] == "/etc/containerd/runsc.toml"


MIRRORS = [
    ("registry.k8s.io", False, "http://10.98.1.1:8080/v2/registry.k8s.io"),
    ("docker.io", False, "http://10.98.1.1:8080/v2/docker.io"),
    ("registry.k8s.io", True, "https://registry.k8s.io"),
    ("docker.io", True, "https://registry-1.docker.io"),
]


@pytest.mark.parametrize(("registry", "fallback", "server"), MIRRORS)
def test_registries_are_answered_by_the_mirror_of_the_hosts_side(
    render: Render, registry: str, fallback: bool, server: str
) -> None:
    rendered = render(variables={"containerd_registry_fallback": fallback})
    resource = rendered.resources("rack-1")[f"containerd/mirror-{registry}"]
    tree = tomllib.loads(resource["content"])
    assert resource["path"] == f"/etc/containerd/certs.d/{registry}/hosts.toml"
    assert tree["server"] == server
    settings = {"capabilities": ["pull", "resolve"], "override_path": True}
    if fallback:
        assert tree["host"] == {f"http://10.98.1.1:8080/v2/{registry}": settings}
    else:
        assert tree == {"server": server, **settings}


def test_no_other_registry_is_asked(render: Render) -> None:
    """An image's name may not choose whom a host connects to, with the mirror's own fallback neither."""
    direct = ["registry.example.com:5000"]
    rendered = render(
        variables={"containerd_direct_registries": direct, "containerd_registry_fallback": True}
    )
    found = rendered.resources("rack-1")
    default = found["containerd/mirror-_default"]
    assert default["path"] == "/etc/containerd/certs.d/_default/hosts.toml"
    tree = tomllib.loads(default["content"])
    assert tree["server"] == "http://10.98.1.1:8080/v2/not-in-the-mirror"
    assert (tree["override_path"], "host" in tree) == (True, False)
    own = found["containerd/mirror-registry.example.com:5000"]
    assert own["path"] == "/etc/containerd/certs.d/registry.example.com:5000/hosts.toml"
    assert tomllib.loads(own["content"]) == {"server": "https://registry.example.com:5000"}
    assert "containerd/mirror-_default" in found["containerd/service"]["requires"]


RUNSC = [
    ({}, {"platform": "systrap", "systemd-cgroup": "false"}),  # the lab's own setting
    ({"gvisor_systemd_cgroup": True}, {"platform": "systrap", "systemd-cgroup": "true"}),
    ({"gvisor_platform": "kvm"}, {"platform": "kvm", "systemd-cgroup": "false"}),
    (
        {"gvisor_runsc_flags": {"overlay2": "none", "strace": True, "num-network-channels": 4}},
        {
            "platform": "systrap",
            "systemd-cgroup": "false",
            "overlay2": "none",
            "strace": "true",
            "num-network-channels": "4",
        },
    ),
]


@pytest.mark.parametrize(("variables", "flags"), RUNSC)
def test_runsc_flags_are_all_texts(
    render: Render, variables: dict[str, t.Any], flags: dict[str, str]
) -> None:
    tree = tomllib.loads(render(variables=variables).content("rack-1", "gvisor/flags"))
    assert tree == {"binary_name": "/opt/gvisor/20260817.0/runsc", "runsc_config": flags}


@pytest.mark.parametrize("shim", ["containerd-shim-runsc-v1", "containerd-shim-runsc-v1-lab"])
def test_whichever_shim_is_chosen_has_the_name_containerd_looks_for(render: Render, shim: str) -> None:
    resource = render(variables={"gvisor_shim_artifact": shim}).resources("rack-1")["gvisor/shim"]
    assert resource["path"] == "/opt/gvisor/20260817.0/containerd-shim-runsc-v1"
    link = render().resources("rack-1")["gvisor/link-containerd-shim-runsc-v1"]
    assert (link["path"], link["target"]) == (
        "/usr/local/bin/containerd-shim-runsc-v1",
        resource["path"],
    )
    assert resource["url_path"] == f"/host/{shim}/20260817.0"


def sections(text: str) -> dict[str, list[list[str]]]:
    """Read a configuration of haproxy: lines that are not indented begin a section."""
    found: dict[str, list[list[str]]] = {}
    current: list[list[str]] = []
    for line in text.splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            current = found.setdefault(line, [])
        elif line.strip() and not line.strip().startswith("#"):
            current.append(line.split())
    return found


def test_haproxy_passes_on_to_every_control_plane(render: Render) -> None:
    parsed = sections(render().content("az-3", "haproxy/config"))
    servers = [words[1:] for words in parsed["backend control_planes"] if words[0] == "server"]
    assert servers == [["az-1", "10.98.0.11:6443"], ["az-2", "10.98.0.12:6443"]]
    assert ["bind", ":8443"] in parsed["frontend api"]
    assert ["mode", "tcp"] in parsed["defaults"]


def test_haproxy_checks_the_certificate_of_what_it_asks(render: Render) -> None:
    parsed = sections(render().content("az-3", "haproxy/config"))
    (words,) = [words for words in parsed["backend control_planes"] if words[0] == "default-server"]
    settings = dict(zip(words, [*words[1:], ""], strict=True))
    assert settings["verify"] == "required"
    assert settings["ca-file"] == render().resources("az-3")["haproxy/ca"]["path"]
    assert render().resources("az-3")["haproxy/ca"]["content"] == "certificate of kubernetes\n"
    assert ["http-check", "send", "meth", "GET", "uri", "/readyz"] in parsed["backend control_planes"]


HAPROXY = [
    ({"haproxy_maxconn": 42}, "global", ["maxconn", "42"]),
    ({"haproxy_connect_timeout_ms": 177}, "defaults", ["timeout", "connect", "177ms"]),
    ({"haproxy_idle_timeout_seconds": 77}, "defaults", ["timeout", "server", "77s"]),
    ({"control_plane_port": 7443}, "backend control_planes", ["server", "az-1", "10.98.0.11:7443"]),
    ({"site_api_endpoint": "api.lab.internal:9443"}, "frontend api", ["bind", ":9443"]),
]


@pytest.mark.parametrize(("variables", "section", "words"), HAPROXY)
def test_haproxy(render: Render, variables: dict[str, t.Any], section: str, words: list[str]) -> None:
    assert words in sections(render(variables=variables).content("az-3", "haproxy/config"))[section]
