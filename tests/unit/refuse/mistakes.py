# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One mistake in a good site: in a value, between values, in the form of a file, in its place."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import yaml

from tests.unit.refuse.sites import PER_HOST, Site, estate, is_site_wide, options
from tests.unit.refuse.values import wrong
from tests.unit.refuse.writing import Key, Written


@dataclasses.dataclass
class Mistake:
    """What was made wrong.

    Args:
        kind: its class.
        what: in words, for the report.
        key: where it is, as in ``Written.where``; any of several places.
        places: the same as files and lines, where the files were changed; line 0 for a whole file.
    """

    kind: str
    what: str
    keys: tuple[Key, ...] = ()
    places: tuple[tuple[str, int], ...] = ()


InSite = Callable[[Site, Random], "Mistake | None"]
InFiles = Callable[[Site, Written, Random], "Mistake | None"]


def in_value(site: Site, rng: Random) -> Mistake | None:
    """A value that its declaration refuses."""
    name = rng.choice([name for name in options() if name not in PER_HOST])
    found = wrong(options()[name], rng)
    if found is None:
        return None
    owner = "all" if is_site_wide(name) or rng.random() < 0.6 else rng.choice([*site.owners(), *site.hosts])
    holder = site.hosts[owner] if owner in site.hosts else site.variables.setdefault(owner, {})
    if found.kind == "expression" and owner not in site.hosts and not site.members(owner):
        return None  # nobody computes it
    _only_here(site, name)
    holder[name] = found.value
    key = (owner, name, *found.path)
    keys = (key, (owner, name)) if found.kind in ("expression", "missing key", "key") else (key,)
    return Mistake(found.kind, f"{owner}: {name} {found.path}: {json.dumps(found.value)[:120]}", keys)


def _only_here(site: Site, name: str) -> None:
    """Take a variable out wherever it is."""
    for values in (*site.variables.values(), *site.hosts.values()):
        values.pop(name, None)


def unknown_variable(site: Site, rng: Random) -> Mistake:
    """A name that nobody knows."""
    name = rng.choice(list(options()))
    cut = rng.randrange(1, len(name))
    name = name[:cut] + rng.choice("qxz") + name[cut:]
    owner = rng.choice([*site.owners(), *site.hosts])
    holder = site.hosts[owner] if owner in site.hosts else site.variables.setdefault(owner, {})
    holder[name] = rng.choice([1, "a", True, None, [1]])
    return Mistake("unknown variable", f"{owner}: {name}", ((owner, name),))


LOOPBACK = "127.0.0.5"
"""A lab may have hosts there."""
ADDRESSES = (
    LOOPBACK,
    "0.0.0.0",
    "224.0.0.1",
    "169.254.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "10.30.1",
    "10.30.1.256",
    "10.30.1.11/24",
    "gpu.example.com",
    "10.30.01.11",
    "\u0661\u0660.30.1.11",
    "10.30.1.11 ",
    "fe80::1%eth0",
    "::",
    "::1",
    "ff02::1",
    "http://10.30.1.11",
    "10,30,1,11",
    "-x",
    "$(id)",
    "10.30.1.11;id",
    "10.30.1.11\nx",
)


def address(site: Site, rng: Random) -> Mistake:
    """An address that no host has."""
    host = rng.choice(list(site.hosts))
    site.hosts[host].pop("site_address", None)
    variable = rng.choice(["ansible_host", "site_address"])
    text = rng.choice(ADDRESSES)
    if text == LOOPBACK and any(values.get("site_lab") for values in site.variables.values()):
        text = "0.0.0.0"
    site.hosts[host][variable] = text
    return Mistake("address", f"{host}: {variable}: {text!r}", ((host, variable),))


def same_address(site: Site, rng: Random) -> Mistake | None:
    """One address for two hosts."""
    if len(site.hosts) < 2:
        return None
    one, other = rng.sample(list(site.hosts), 2)
    of_one = site.hosts[one]
    variable = rng.choice(["ansible_host", "site_address"])
    site.hosts[other][variable] = of_one.get("site_address", of_one["ansible_host"])
    both = tuple((host, name) for host in (one, other) for name in ("ansible_host", "site_address"))
    return Mistake("same address", f"{one}, {other}: {variable}", both)


def inside_network(site: Site, rng: Random) -> Mistake:
    """Something of the site inside the pods' or the services' network."""
    network = rng.choice(["site_pod_cidr", "site_service_cidr"])
    base = site.variables["all"][network].split("/")[0].split(".")
    inside = ".".join([*base[:3], str(rng.randint(5, 90))])
    what = rng.choice(["host", "management", "api", "mirror"])
    if what in ("host", "management"):
        host = rng.choice(list(site.hosts))
        if what == "management":
            site.hosts[host].setdefault("site_address", site.hosts[host]["ansible_host"])
        else:
            site.hosts[host].pop("site_address", None)
        site.hosts[host]["ansible_host"] = inside
        return Mistake("inside a network", f"{host}: {what} {inside}", ((host, "ansible_host"),))
    name, value = (
        ("site_api_address", inside) if what == "api" else ("site_mirror_url", f"http://{inside}:8080")
    )
    if what == "api":
        site.variables["all"]["site_api_endpoint"] = "api.example.internal:6443"
    site.variables["all"][name] = value
    return Mistake("inside a network", f"{name}: {value}", (("all", name),))


NETWORKS = (
    "10.0.0.0/8",
    "10.244.0.1/16",
    "10.244.0.0",
    "10.244.0.0/255.255.0.0",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/16",
    "240.0.0.0/16",
    "0.0.0.0/0",
    "8.8.0.0/16",
    "fd00::/48",
    "010.244.0.0/16",
    "10.244.0.0/16,fd00::/48",
    "10.244.0.0/33",
    "\u0661\u0660.244.0.0/16",
    "10.244/16",
    "10.244.0.0/016",
    "ten",
    "10.244.0.0/ 16",
    "10.244.0.0/16 ",
)


def network(site: Site, rng: Random) -> Mistake:
    """A network that no cluster has."""
    name, other = rng.sample(["site_pod_cidr", "site_service_cidr"], 2)
    text = rng.choice([*NETWORKS, site.variables["all"][other]])
    site.variables["all"][name] = text
    # Two that overlap are one mistake in two places.
    keys = (("all", name), ("all", other)) if text == site.variables["all"][other] else (("all", name),)
    hosts = (
        tuple((host, "ansible_host") for host in site.hosts) if text in ("10.0.0.0/8", "0.0.0.0/0") else ()
    )
    return Mistake("network", f"{name}: {text!r}", (*keys, *hosts))


MEANINGS: dict[str, list[t.Any]] = yaml.safe_load(Path(__file__).with_name("meanings.yml").read_text())
SEMANTIC = [(name, value) for name, values in MEANINGS.items() for value in values]
"""What a variable means beside its form."""


def meaning(site: Site, rng: Random) -> Mistake:
    """A value of the declared type that means nothing."""
    name, value = rng.choice(SEMANTIC)
    _only_here(site, name)
    for other in RELATED.get(name, ()):
        _only_here(site, other)
    _only_here(site, "site_lab")
    site.variables["all"][name] = value
    return Mistake("meaning", f"{name}: {json.dumps(value)[:100]}", tuple(_and_inside(("all", name), value)))


def _and_inside(key: Key, value: t.Any) -> Iterator[Key]:
    """Yield where a value stands, and all that is inside of it."""
    yield key
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from _and_inside((*key, step), inner)


OF_ESTATES: dict[str, list[t.Any]] = yaml.safe_load(Path(__file__).with_name("estate.yml").read_text())
IN_ESTATES = [(name, value) for name, values in OF_ESTATES.items() for value in values]


def in_estate(site: Site, rng: Random) -> Mistake:
    """A value of an estate that Azure, or the rest of the site, would not take."""
    site.variables["all"].update(estate(rng))
    name, value = rng.choice(IN_ESTATES)
    _only_here(site, name)
    site.variables["all"][name] = value
    return Mistake("estate", f"{name}: {json.dumps(value)[:100]}", tuple(_and_inside(("all", name), value)))


RELATED: dict[str, tuple[str, ...]] = {
    "site_plan_approvals": ("site_plan_allowed_signers",),
    "identity_audiences": ("identity_tenant_id",),
    "identity_issuer": ("identity_tenant_id", "identity_audiences"),
    "site_node_cidr_mask": ("node_kubelet_max_pods",),
    "etcd_heartbeat_ms": ("etcd_election_ms",),
    "control_plane_certificate_days": ("site_certificate_renew_days",),
    "site_certificate_renew_days": ("control_plane_certificate_days",),
    "egress_node_ports": ("egress_node_networks",),
    "egress_resolvers": ("egress_enabled",),
    "node_kubelet_max_pods": ("site_node_cidr_mask",),
    "awx_azure_client_id": ("awx_azure_tenant_id",),
    "nvidia_driver_version": ("nvidia_driver_package_version",),
    "nvidia_fabric_imex": ("nvidia_fabric_enabled",),
    "nvidia_mig_layout": ("nvidia_mig_layouts",),
    "etcd_backup_keys": ("etcd_backup_stores",),
    "site_bare_metal_cloud": ("site_bare_metal_clouds",),
    "site_bare_metal_image": ("site_bare_metal_account",),
    "nvidia_device_plugin_enabled": ("nvidia_toolkit_enabled",),
    "nvidia_mps_enabled": ("nvidia_device_plugin_enabled",),
}


def ports(site: Site, rng: Random) -> Mistake | None:
    """Two listeners of a host at one port."""
    rows = [
        ("etcd_client_port", "etcd_peer_port"),
        ("etcd_client_port", "control_plane_port"),
        ("etcd_peer_port", 22),
        ("control_plane_port", 10250),
        ("etcd_metrics_port", 10257),
        ("etcd_client_port", 10259),
        ("etcd_metrics_port", 10248),
        ("etcd_peer_port", "control_plane_port"),
    ]
    one, other = rng.choice(rows)
    number = other if isinstance(other, int) else rng.randint(20000, 60000)
    keys: list[Key] = [("all", one)]
    for name in (one, other):
        if isinstance(name, str):
            _only_here(site, name)
            site.variables["all"][name] = number
            keys.append(("all", name))
    return Mistake("ports", f"{one}, {other}: {number}", tuple(keys))


def groups(site: Site, rng: Random) -> Mistake | None:
    """Hosts in the wrong groups, and groups that there are not."""
    what = rng.choice(
        [
            "even",
            "no etcd",
            "no control plane",
            "wan",
            "purpose",
            "unknown",
            "twice",
            "racks",
            "worker",
            "sides",
        ]
    )
    workers, servers = site.members("nodes"), site.groups["azure"]
    if what == "even":
        site.groups["etcd"] = site.groups["etcd"][:2] if len(servers) > 1 else []
        return Mistake("groups", what, (("groups", "etcd"),))
    if what in ("no etcd", "no control plane"):
        group = "etcd" if what == "no etcd" else "control_plane"
        site.groups[group] = []
        return Mistake("groups", what, (("groups", group),))
    if what == "wan":
        host = rng.choice(workers)
        site.groups["etcd"] = [host]
        return Mistake("groups", what, (("member", "etcd", host),))
    if what in ("purpose", "sides"):
        site.hosts["z-1"] = {"ansible_host": "10.99.0.1"}
        group = "azure" if what == "purpose" else "haproxy"
        site.groups[group] = [*site.groups.get(group, ()), "z-1"]
        return Mistake("groups", what, (("hosts", "z-1"), ("member", group, "z-1")))
    if what == "unknown":
        name = rng.choice(["gvizor", "worker", "etcds", "node", "GPU", "all_of_them", "control-plane"])
        site.groups[name] = rng.choice([[], [workers[0]]])
        return Mistake("groups", f"{what} {name}", (("groups", name),))
    if what == "worker":
        host = rng.choice(site.groups["control_plane"])
        site.children["nodes"] = list(site.children["nodes"])
        site.groups["rack_z"] = [host]
        site.children["nodes"].append("rack_z")
        return Mistake("groups", what, (("member", "rack_z", host), ("hosts", host)))
    if what == "racks":
        host = rng.choice(workers)
        other = next(
            (rack for rack in ("rack_a", "rack_b", "rack_c") if host not in site.groups.get(rack, [host])),
            None,
        )
        if other is None:
            return None
        site.groups[other] = [*site.groups[other], host]
        racks = [group for group, hosts in site.groups.items() if host in hosts and group.startswith("rack_")]
        return Mistake("groups", what, tuple(("member", rack, host) for rack in racks))
    host = rng.choice(workers)
    name = host.upper() if what == "twice" else host
    site.hosts[name] = {"ansible_host": "10.99.0.2"}
    rack = next(group for group, hosts in site.groups.items() if host in hosts and group.startswith("rack_"))
    site.groups[rack] = [*site.groups[rack], name]
    return Mistake("groups", what, (("hosts", name), ("member", rack, name), ("hosts", host)))


NAMES = (
    "Worker_1",
    "w 1",
    "-w",
    "w-",
    "w..1",
    "x" * 64,
    "localhost",
    "w_1",
    "\u00fcber-1",
    "w/1",
    "w;id",
    "w$(id)",
    "1001",
    "127.0.0.1",
    "all-1.",
    ".w",
    "w'1",
    "nodes",
)


def host_name(site: Site, rng: Random) -> Mistake:
    """A name that no node has."""
    name = rng.choice(NAMES)
    site.hosts[name] = {"ansible_host": "10.99.0.3"}
    rack = next(group for group in site.groups if group.startswith("rack_"))
    site.groups[rack] = [*site.groups[rack], name]
    keys = (("hosts", name), ("member", rack, name))
    return Mistake("host name", name, (*keys, ("groups", "nodes")) if name == "nodes" else keys)


def contradiction(site: Site, rng: Random) -> Mistake | None:
    """Two places that say otherwise."""
    what = rng.choice(["site wide", "agree", "rack", "per host"])
    racks = [group for group in site.groups if group.startswith("rack_")]
    if what == "site wide":
        name, one, other = rng.choice(
            [
                ("site_cluster_domain", "a.local", "b.local"),
                ("site_wan_mtu", 1400, 1300),
                ("etcd_quota_bytes", 2**32, 2**31),
                ("site_service_cidr", None, "10.111.0.0/16"),
                ("site_pod_cidr", None, "10.112.0.0/16"),
                ("site_api_endpoint", None, "other.example.internal:6443"),
                ("site_name", None, "other"),
                ("site_kubernetes_version", "1.36.4", "1.37.1"),
            ]
        )
        if one is not None:
            _only_here(site, name)
            site.variables["all"][name] = one
        owner = rng.choice([*racks, "azure", rng.choice(list(site.hosts))])
        holder = site.hosts[owner] if owner in site.hosts else site.variables.setdefault(owner, {})
        holder[name] = other
        if name in ("site_kubernetes_version", "etcd_quota_bytes") and not is_site_wide(name):
            return None
        return Mistake("contradiction", f"{owner}: {name}", ((owner, name), ("all", name)))
    if what == "agree":
        name, other = rng.choice([("flannel_port", 8499), ("flannel_vni", 77)])
        if site.variables["all"].get("site_cni") == "cilium":
            return None
        _only_here(site, name)
        site.variables.setdefault(racks[0], {})[name] = other
        return Mistake("contradiction", f"{racks[0]}: {name}", ((racks[0], name),))
    if what == "rack":
        host = site.groups[racks[0]][0]
        site.hosts[host]["site_rack"] = "elsewhere"
        return Mistake("contradiction", f"{host}: site_rack", ((host, "site_rack"),))
    name = rng.choice(["site_name", "site_cluster_domain", "site_service_cidr"])
    host = rng.choice(list(site.hosts))
    site.hosts[host][name] = {"site_name": "other", "site_service_cidr": "10.111.0.0/16"}.get(
        name, "other.local"
    )
    return Mistake("contradiction", f"{host}: {name}", ((host, name), ("all", name)))


def missing(site: Site, rng: Random) -> Mistake:
    """What every site has to say, not said."""
    name = rng.choice(["site_name", "site_api_endpoint", "site_pki_store", "site_mirror_url"])
    _only_here(site, name)
    return Mistake("missing", name, (), (("*", 0),))


IN_SITE: tuple[tuple[int, InSite], ...] = (
    (40, in_value),
    (5, unknown_variable),
    (5, address),
    (3, same_address),
    (4, inside_network),
    (4, network),
    (12, meaning),
    (5, in_estate),
    (3, ports),
    (5, groups),
    (3, host_name),
    (4, contradiction),
    (1, missing),
)
"""How often each is drawn, and what makes it."""


def _insert(written: Written, file: str, number: int, *lines: str) -> None:
    written.files[file][number:number] = lines


def _yaml_files(written: Written, variables: bool | None = None) -> list[str]:
    """Return files of YAML; True for those of variables alone."""
    return [
        name
        for name in written.files
        if not name.endswith(".json")
        and name not in written.executable
        and name not in written.encrypted
        and not (name == written.hosts_file and not name.endswith(("yml", "yaml")))
        and (variables is None or name.startswith(("group_vars/", "host_vars/")) == variables)
    ]


SYNTAX: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("tab", ("user_x:", "\ty: 1"), 1),
    ("merge marker", ("<<<<<<< ours", "user_x: 1", "=======", "user_x: 2", ">>>>>>> theirs"), 0),
    ("quote", ('user_x: "abc', "user_y: 1"), 0),
    ("anchor", ("user_x: *nowhere",), 0),
    ("itself", ("user_x: &x [*x]",), 0),
    ("tag", ("user_x: !!python/object:os.system x",), 0),
    ("number", ("12: 1",), 0),
    ("bracket", ("user_x: [1, 2",), 0),
    ("brace", ("user_x: {a: 1",), 0),
    ("colon", ("user_x: a: b",), 0),
    ("no colon", ("user_x 1",), 0),
    ("at", ("user_x: @a",), 0),
    ("control", ("user_x: a\x01",), 0),
    ("bytes", ("user_x: caf\udce9",), 0),
    ("twice", ("user_x: 1", "user_x: 2"), 1),
    ("indent", ("user_x: 1", "   user_y: 2"), 1),
    ("document", ("---", "user_x: 1"), 0),
    ("percent", ("user_x: %a",), 0),
    ("true", ("true: 1",), 0),
    ("null", ("~: 1",), 0),
    ("list", ("- user_x",), 0),
    ("backtick", ("user_x: `a`",), 0),
    ("escape", ('user_x: "a\\qb"',), 0),
    ("nul", ("user_x: a\0",), 0),
    ("question", ("? [a]", ": 1"), 0),
    ("deep", ("user_x: " + "[" * 200 + "]" * 200,), 0),
    (
        "anchors",
        (
            "user_a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
            *(
                f"user_{b}: &{b} [{', '.join([f'*{a}'] * 10)}]"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
        ),
        6,
    ),
    ("vault", ("user_x: !vault |", "  $ANSIBLE_VAULT;1.1;AES256", "  zz"), 0),
    ("twice below", ("user_x: {a: 1, a: 2}",), 0),
    ("date", ("2026-01-01: 1",), 0),
    ("merge of text", ("user_x: {<<: a}",), 0),
)


def syntax(site: Site, written: Written, rng: Random) -> Mistake | None:
    """A file of variables that is no YAML, or not what it seems."""
    files = _yaml_files(written, True)
    if not files:
        return None
    file = rng.choice(files)
    name, lines, wrong_line = rng.choice(SYNTAX)
    at = len(written.files[file])
    _insert(written, file, at, *lines)
    return Mistake("syntax", f"{file}: {name}", (), ((file, at + 1 + wrong_line),))


def vault(site: Site, written: Written, rng: Random) -> Mistake | None:
    """A file that somebody encrypted with another password, or that is broken."""
    files = _yaml_files(written, True)
    if not files:
        return None
    file = rng.choice(files)
    body = rng.choice([["61"], ["6" * 80] * 3, [], ["zz"]])
    written.files[file] = ["$ANSIBLE_VAULT;1.1;AES256", *body]
    return Mistake("vault", file, (), ((file, 1), (file, 0)))


HOSTS_YAML: tuple[tuple[str, str, int], ...] = (
    ("section", "      host:", 0),
    ("section as list", "      hosts: [w-1]", 0),
    ("variables as list", "      vars: [a]", 0),
    ("variable beside", "      site_wan_mtu: 1300", 0),
    ("text", "      vars: a", 0),
    ("children as list", "      children: [a]", 0),
    ("number", "      hosts: 5", 0),
    ("nothing", "      hosts: {5: }", 0),
    ("address", "      hosts: {w-9: 10.0.0.1}", 0),
)


def hosts_form(site: Site, written: Written, rng: Random) -> Mistake | None:
    """An inventory of which Ansible would read a part."""
    file = written.hosts_file
    if not file.endswith(("yml", "yaml")):
        return hosts_ini(site, written, rng)
    lines = written.files[file]
    what = rng.choice(
        ["group", "circle", "child", "beside", "text group", "half", "empty", "list", "tab", "top"]
    )
    end = len(lines)
    if what == "group":
        name, line, offset = rng.choice(HOSTS_YAML)
        _insert(written, file, end, "    user_wrong:", line)
        return Mistake("form", f"{name}", (), ((file, end + 2 + offset),))
    if what == "circle":
        _insert(
            written,
            file,
            end,
            "    user_a:",
            "      children:",
            "        user_b:",
            "          children:",
            "            user_a:",
        )
        return Mistake("form", what, (), ((file, end + 5), (file, end + 3)))
    if what == "child":
        _insert(written, file, end, "    user_a:", "      children:", "        rack_nowhere:")
        return Mistake("form", what, (), ((file, end + 3),))
    if what in ("beside", "top"):
        line = (
            "  user_a: {hosts: {}}"
            if what == "beside"
            else rng.choice(["hosts: [a]", "user_t: 5", "user_t: a", "5: {}"])
        )
        _insert(written, file, end, line)
        return Mistake("form", what, (), ((file, end + 1),))
    if what == "text group":
        _insert(written, file, end, "    user_a: w-1")
        return Mistake("form", what, (), ((file, end + 1),))
    if what == "half":
        cut = rng.randrange(2, end)
        written.files[file] = [*lines[:cut], "    user_a: {", *lines[cut:]]
        return Mistake("form", what, (), tuple((file, number) for number in range(cut + 1, end + 3)))
    if what in ("empty", "list"):
        written.files["user_more.yml"] = [] if what == "empty" else ["- a"]
        if "" not in written.sources:
            written.sources.append("user_more.yml")
        return Mistake("form", what, (), (("user_more.yml", 1),))
    _insert(written, file, end, "\tuser_a: {}")
    return Mistake("form", what, (), ((file, end + 1),))


INI: tuple[tuple[str, ...], ...] = (
    ("[user x]",),
    ("[user_x:child]",),
    ("[user_x:children]", "user_nowhere"),
    ("[user_y:vars]", "user_a=1"),
    ("[user_x", "w-1"),
    ("[user_x:vars]", "user_a"),
    ("[user_x]", "az-1 user_a='b"),
    ("[user_x]", "az-1 ansible_host"),
    ("[user_x:children]", "user_a user_b"),
    ("[user_x]", "w-[1:"),
    ("[user_x]", "w-[9:1]"),
    ("[user_x]", "w-[a:3]"),
    ("[user_x:vars]", "=1"),
    ("[]",),
    ("[user_x]", "w-9:abc"),
    ("[user_x:hosts:vars]",),
)


def hosts_ini(site: Site, written: Written, rng: Random) -> Mistake | None:
    """An INI inventory that Ansible reads until it stops."""
    file = written.hosts_file
    if file.endswith(("yml", "yaml")):
        return None
    lines = rng.choice(INI)
    end = len(written.files[file])
    _insert(written, file, end, *lines)
    return Mistake(
        "ini", " / ".join(lines), (), tuple((file, end + 1 + index) for index in range(len(lines)))
    )


def beside(site: Site, written: Written, rng: Random) -> Mistake | None:
    """A file that looks as if it counted."""
    text = ["site_wan_mtu: 1300"]
    group = rng.choice([name for name in site.owners() if name != "all"])
    taken = {name.split("/")[1].split(".")[0] for name in written.files if name.startswith("group_vars/")}
    owner = rng.choice(sorted(taken)) if taken else "all"
    there = next((name for name in written.files if name.startswith(f"group_vars/{owner}")), "")
    names = {
        "folder": [
            f"{rng.choice(['group_var', 'groups_vars', 'Group_Vars', 'host_var', 'group-vars'])}/{group}.yml"
        ],
        "copy": [f"group_vars/{group}.yml{rng.choice(['.bak', '~', '.orig', '.old', '.save'])}"],
        "capitals": [f"group_vars/{group}.{rng.choice(['YML', 'Yaml', 'JSON'])}"],
        "ini": [f"group_vars/{group}.{rng.choice(['ini', 'conf', 'toml'])}"],
        "nobody": [f"{rng.choice(['group_vars', 'host_vars'])}/no-such-{rng.choice(['one', 'two'])}.yml"],
    }
    if there:
        other = ".yaml" if not there.endswith(".yaml") else ".yml"
        names["second"] = [f"group_vars/{owner}{other}"]
    kind = rng.choice(sorted(names))
    (file,) = names[kind]
    if file in written.files:
        return None
    written.files[file] = text
    folder = file.split("/")[0]
    places = [(file, 0), (file, 1), (folder, 0)]
    if kind == "second":
        places += [
            (name, 0)
            for name in (
                there,
                f"group_vars/{owner}.yml",
                f"group_vars/{owner}.yaml",
                f"group_vars/{owner}.json",
            )
        ]
    return Mistake("beside", f"{kind}: {file}", (), tuple(places))


def second_place(site: Site, written: Written, rng: Random) -> Mistake | None:
    """A host's address written in two places, and not the same."""
    host = rng.choice(list(site.hosts))
    if (host, "ansible_host") not in written.where or any(
        name.startswith(f"host_vars/{host}") for name in written.files
    ):
        return None
    if host in written.files or (written.sources != [""] and "hosts" in written.sources):
        return None
    file = f"host_vars/{host}.yml"
    written.files[file] = ["ansible_host: 10.98.0.7"]
    return Mistake("two places", host, (), ((file, 1), written.where[host, "ansible_host"]))


IN_FILES: tuple[tuple[int, InFiles], ...] = (
    (20, syntax),
    (3, vault),
    (12, hosts_form),
    (4, hosts_ini),
    (8, beside),
    (4, second_place),
)
