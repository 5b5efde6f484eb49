# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of its servers can be done: an Ironic that there is, networks, an image, a login.

The servers themselves stand in a file of their own, which the operations about them read.
"""

from __future__ import annotations

import difflib
import re
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import (
    declared_values,
    handover,
    node_fields,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_values import Fault
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.host_keys import holds_others
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

CLOUD, CLOUDS, NODE = "site_bare_metal_cloud", "site_bare_metal_clouds", "site_bare_metal_node"
RACKS, IMAGE, ACCOUNT = "site_bare_metal_racks", "site_bare_metal_image", "site_bare_metal_account"
INSPECT, FIRMWARE = "site_bare_metal_inspect", "site_bare_metal_firmware"
KNOWN_HOSTS, INVENTORY = "site_bare_metal_known_hosts", "site_bare_metal_inventory"
ERASE, LAYOUT = "site_bare_metal_erase", "site_bare_metal_layout"
STEPS = (
    "erase_devices", "erase_devices_express", "erase_devices_metadata", "erase_pstore",
    "delete_configuration", "create_configuration", "apply_configuration", "factory_reset",
)  # fmt: skip
"""Of Ironic's agent and its own interfaces."""
_ERASING = ("deploy", "management")
"""Interfaces with steps that are called erase_devices."""
_KEEPS = re.compile(
    r"(bios|boot|console|firmware|inspect|network|power)\..*|raid\.(apply|create)_configuration|deploy\.erase_pstore"
)
"""Steps that leave what is on disks."""
_LOOKED_FOR = ("clouds.yaml", "clouds.yml", "clouds.json")


def check_cloud(draft: Draft) -> None:
    """The cloud is one of the file that is named, or of one that openstacksdk finds."""
    cloud, named = str(draft.site_value(CLOUD) or ""), str(draft.site_value(CLOUDS) or "")
    if draft.site_value("site_lab"):
        return  # a lab makes the file when its Ironic starts
    if named and not Path(named).is_file():
        remedy = "write the path of clouds.yaml on the controller"
        draft.problems.add(draft.site_place(CLOUDS), CLOUDS, f"{named} is no file", remedy)
    elif cloud:
        known = _clouds([Path(named)] if named else list(_looked_for(draft.environment)))
        if cloud not in known:
            near = nearest(cloud, known)
            remedy = f"write {near}" if near else f"add it to clouds.yaml, and name that file in {CLOUDS}"
            where = named or "no clouds.yaml that openstacksdk finds"
            message = f"{where} has {'no ' if named else ''}cloud {cloud!r}"
            draft.problems.add(draft.site_place(CLOUD), CLOUD, message, remedy)


def _looked_for(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where openstacksdk looks, in its order (openstack/config/loader.py); it takes the first."""
    if named := environment.get("OS_CLIENT_CONFIG_FILE"):
        yield Path(named)
    for folder in (Path(), Path("~/.config/openstack").expanduser(), Path("/etc/openstack")):
        yield from (folder / name for name in _LOOKED_FOR)


def _clouds(files: list[Path]) -> list[str]:
    """Return the names of the first file that is there."""
    for file in files:
        if file.is_file():
            try:
                found = yaml.safe_load(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                return []
            clouds = found.get("clouds") if isinstance(found, Mapping) else None
            return [str(name) for name in clouds] if isinstance(clouds, Mapping) else []
    return []


def check_declared(draft: Draft) -> None:
    """Each of the variables that describe servers stands for itself."""
    for variable, judge in _JUDGES.items():
        value, host = draft.site_value(variable), draft.writer(variable)
        if isinstance(value, Mapping) and value and host:
            for path, message, remedy in judge(value):
                place = draft.inner_place(host, variable, *_steps(value, path))
                draft.problems.add(place, f"{variable}{path}", message, remedy)


def _steps(value: t.Any, path: str) -> Iterator[t.Any]:
    """Yield the keys and indexes that a path such as ``.rack-1.dns[0]`` leads by, while they are there."""
    while path:
        if isinstance(value, Mapping) and path[0] == ".":
            fitting = [key for key in value if re.match(rf"\.{re.escape(str(key))}(?=[.\[]|$)", path)]
            step: t.Any = max(fitting, key=lambda key: len(str(key)), default=None)
            length = 1 + len(str(step))
        elif isinstance(value, list) and (match := re.match(r"\[([0-9]+)\]", path)):
            step, length = int(match[1]), len(match[0])
        else:
            return
        if step is None:
            return
        yield step
        value, path = value[step], path[length:]


def check_deployed(draft: Draft) -> None:
    """Whoever writes systems needs a login to them, and a file for their host keys."""
    account = draft.site_value(ACCOUNT)
    if not draft.site_value(IMAGE) and draft.site_value(LAYOUT) == "ab":
        remedy = f"write {IMAGE}, or leave {LAYOUT} out"
        draft.problems.add(draft.site_place(LAYOUT), LAYOUT, f"does nothing without {IMAGE}", remedy)
    if not draft.site_value(IMAGE) or not isinstance(account, Mapping):
        return
    node = draft.site_value(NODE)
    deploys = node.get("deploy_interface") if isinstance(node, Mapping) else None
    if deploys in ("noop", "ramdisk") and (host := draft.writer(NODE)):
        draft.problems.add(
            draft.inner_place(host, NODE, "deploy_interface"),
            f"{NODE}.deploy_interface",
            f"{deploys} writes no image to disks, and {IMAGE} is one",
            f"write direct, or leave {IMAGE} out",
        )
    if not account.get("authorized_keys"):
        remedy = f"write {ACCOUNT}.authorized_keys, a list of public keys for SSH"
        draft.problems.add(draft.site_place(IMAGE), IMAGE, "nobody could log in to what is deployed", remedy)
    if not draft.site_value(KNOWN_HOSTS):
        draft.problems.add(
            draft.site_place(IMAGE),
            IMAGE,
            "the host keys of what is deployed have no file",
            f"write {KNOWN_HOSTS}",
        )


def check_together(draft: Draft) -> None:
    """What runs do with all servers is not what all servers are told not to let them do."""
    node, host = draft.site_value(NODE), draft.writer(NODE)
    for field, value, variable in (
        ("inspect_interface", "no-inspect", INSPECT),
        ("firmware_interface", "no-firmware", FIRMWARE),
    ):
        if isinstance(node, Mapping) and node.get(field) == value and draft.site_value(variable) and host:
            message = f"is {value}, and {variable} asks for it"
            off = f"{variable}: false" if variable == INSPECT else f"no {variable}"
            remedy = f"write {'agent' if variable == INSPECT else 'redfish'}, or {off}"
            draft.problems.add(draft.inner_place(host, NODE, field), f"{NODE}.{field}", message, remedy)


def check_files(draft: Draft) -> None:
    """What runs write on the controller can be written, and is read by Ansible where it has to be."""
    if draft.site_value("site_lab"):
        return
    inventory, keys = str(draft.site_value(INVENTORY) or ""), str(draft.site_value(KNOWN_HOSTS) or "")
    for variable, text in ((INVENTORY, inventory), (KNOWN_HOSTS, keys)):
        if text and (message := _unfit(Path(text).expanduser(), text, variable == INVENTORY)):
            remedy = "write a path that ends in .yml" if variable == INVENTORY else "write the path of a file"
            draft.problems.add(draft.site_place(variable), variable, message, remedy)
    if inventory and Path(inventory).expanduser() == Path(keys).expanduser():
        message = f"is the file of {KNOWN_HOSTS} too"
        draft.problems.add(draft.site_place(INVENTORY), INVENTORY, message, "write two files")


def _unfit(path: Path, text: str, is_inventory: bool) -> str:
    """Return why a run cannot write a file, or must not."""
    try:
        if path.exists() and not path.is_file():
            return f"{text} is no file"
        if not is_inventory and path.is_file() and holds_others(path):
            return f"{text} has other lines than public keys of hosts, and a run would write all of it anew"
        if path.parts[:2] in (("/", "dev"), ("/", "proc"), ("/", "sys")):
            return f"{text} is no place for a file"
        if is_inventory and path.suffix not in (".yml", ".yaml"):
            return f"{text} is none that Ansible reads as YAML"
        if is_inventory and path.parent.name in ("group_vars", "host_vars"):
            return f"{text} would be read as variables, not as hosts"
        if is_inventory and path.is_file():
            head = path.read_text(encoding="utf-8", errors="replace")
            if head.strip() and handover.MARK not in head:
                return f"{text} was written by somebody, and a run would write all of it anew"
    except OSError:
        return ""  # Whoever runs the operation may well read it.
    return ""


def _keeps(step: object) -> bool:
    return _KEEPS.fullmatch(str(step)) is not None


def check_erasing(draft: Draft) -> None:
    """A server that is retired is erased, by steps that Ironic can know."""
    steps = draft.site_value(ERASE)
    if isinstance(steps, list) and not steps:
        message = "is empty, and what is retired would keep its data"
        draft.problems.add(draft.site_place(ERASE), ERASE, message, "write [deploy.erase_devices]")
    # Pretended hardware has no step that erases.
    elif isinstance(steps, list) and not draft.site_value("site_lab") and all(map(_keeps, steps)):
        message = "has no step that erases disks, and what is retired would keep its data"
        draft.problems.add(draft.site_place(ERASE), ERASE, message, "add deploy.erase_devices")
        return
    writer = draft.writer(ERASE)
    for index, step in enumerate(steps if isinstance(steps, list) and writer else ()):
        message, remedy = _no_step(str(step))
        if message and writer:
            place = draft.inner_place(writer, ERASE, index)
            draft.problems.add(place, f"{ERASE}[{index}]", message, remedy)


def _no_step(step: str) -> tuple[str, str]:
    interface, _, name = step.partition(".")
    if not re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", step):
        return f"{step!r} is no step with its interface", "write for example deploy.erase_devices"
    if interface not in node_fields.INTERFACES:
        near = nearest(interface, node_fields.INTERFACES) or "deploy"
        return f"Ironic has no interface {interface!r}", f"write {near}.{name}"
    if interface not in _ERASING and name in STEPS and name.startswith("erase_"):
        return f"the interface {interface} has no step {name}", f"write deploy.{name}"
    # Agents may have steps of their own, so only what is nearly one of these is taken for a mistake.
    near = next(iter(difflib.get_close_matches(name, STEPS, n=1, cutoff=0.93)), name)
    return ("", "") if near == name else (f"Ironic has no step {name!r}", f"write {interface}.{near}")


_JUDGES: Mapping[str, Callable[[Mapping[str, t.Any]], Iterator[Fault]]] = {
    RACKS: declared_values.racks,
    IMAGE: declared_values.image,
    ACCOUNT: declared_values.account,
    NODE: node_fields.faults,
}


CHECKS = (
    check_cloud,
    check_declared,
    check_deployed,
    check_together,
    check_files,
    check_erasing,
)
