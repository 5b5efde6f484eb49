# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads an admission policy file: every problem at once, each with its line and a remedy."""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import (
    SYSTEM_EXEMPTIONS,
    Exemption,
    GrantException,
    PodSecurity,
    Policy,
    Rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import place_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    Place,
    Problems,
    SiteError,
    nearest,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    Option,
    option_from,
    read_yaml,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import check_value, plain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import parse

SCHEMA = Path(__file__).with_name("schema.yml")
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_KEY = rf"({_DOMAIN}/)?{_NAME}"
_REGISTRY = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?"
_FORMS: Mapping[str, tuple[str, str]] = {
    "high_risk_label": (rf"{_KEY}={_NAME}", "KEY=VALUE, such as ironspan.io/risk=high"),
    "keepers": (r"[A-Za-z0-9:._@/-]+", "the name of a group"),
    "gpu_resources": (rf"{_KEY}|{_DOMAIN}/", "the name of a resource, or a domain with a slash behind it"),
    "runtime_class": (_DOMAIN, "the name of a RuntimeClass"),
    "capabilities": (r"[A-Z][A-Z0-9_]*", "a capability without CAP_, in capitals"),
    "volumes": (r"[a-z][A-Za-z]*", "a kind of volume as in a pod's specification"),
    "csi_drivers": (_DOMAIN, "the name of a driver as its CSIDriver has it"),
    "registries": (_REGISTRY, "HOST or HOST/FOLDER, without https://"),
    "label": (_KEY, "the key of a label"),
    "sandbox_annotations": (r"[A-Za-z0-9._/-]+", "the beginning or the whole of an annotation's key"),
    "token_audiences": (r"[A-Za-z0-9:._~/?=&%-]+", "an audience as tokens have it"),
    "namespace": (_DNS_LABEL, "the name of a namespace"),
    "grants": (r"[A-Za-z0-9:._-]+", "the name of a role or a binding"),
}
"""Where text ends up in an expression -> what it may be. None of these needs escaping there."""


@functools.lru_cache(maxsize=1)
def schema() -> Option:
    """Return the description of the whole file."""
    return option_from("policy", "admission", {"type": "dict", "options": read_yaml(SCHEMA)})


def read_policy(path: str | Path) -> Policy:
    """Read a policy file.

    Args:
        path: the file.

    Returns:
        The policy, with the built-in values for what the file does not say.

    Raises:
        SiteError: the file cannot be read, or has problems; all of them are told.
    """
    file, problems = str(path), Problems()
    home = Place(file, 1)
    try:
        text = Path(path).read_text(encoding="utf-8")
        mistakes = parse(text, file)
        if mistakes.broken is not None:
            place, reason = mistakes.broken
            problems.add(place, "(file)", f"is not valid YAML: {reason}", "correct the syntax on this line")
        for twice in mistakes.duplicates:
            message = f"is there twice, first on line {twice.first_line}"
            problems.add(twice.place, twice.path, message, "write it once")
        if mistakes.broken is not None:
            raise SiteError(problems)
        content = DataLoader().load(text, file_name=file)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        problems.add(Place(file, 0), "(file)", f"cannot be read: {reason}", "name a file that can be read")
        raise SiteError(problems) from error
    except AnsibleError as error:
        problems.add(home, "(file)", "is nothing that Ansible reads", "write plain YAML")
        raise SiteError(problems) from error

    def report(key: t.Any, value: t.Any, where: str, message: str, remedy: str) -> None:
        place = place_of(key) or place_of(value) or home
        problems.add(place if place.line else home, where.removeprefix("policy."), message, remedy)

    values = check_value("policy", content if content is not None else {}, schema(), "policy", report)
    if len(problems):
        raise SiteError(problems)
    values = _filled(values, schema())
    _check_meaning(values, content, file, problems)
    if len(problems):
        raise SiteError(problems)
    return _policy(plain(values))


def built_in_policy() -> Policy:
    """Return the policy of a file that says nothing."""
    return _policy(plain(_filled({"version": 1}, schema())))


def _filled(values: Mapping[str, t.Any], option: Option) -> dict[str, t.Any]:
    """Return a dictionary with the defaults of dictionaries that the file does not have."""
    filled: dict[str, t.Any] = {}
    for name, inner in (option.options or {}).items():
        value = values.get(name)
        value = inner.default if value is None else value
        filled[name] = _filled(value, inner) if inner.type == "dict" else value
    return filled


def _policy(values: Mapping[str, t.Any]) -> Policy:
    label, _, value = values["high_risk_label"].partition("=")
    security = values["pod_security"]
    return Policy(
        high_risk=(label, value),
        keepers=tuple(values["keepers"]),
        rules={name: _rule(name, said) for name, said in values["rules"].items()},
        gpu_resources=tuple(values["gpu_resources"]),
        exemptions=_exemptions(values["exemptions"]),
        pod_security=PodSecurity(security["level"], _exemptions(security["exemptions"])),
        grant_exceptions=tuple(GrantException(**entry) for entry in values["grant_exceptions"]),
    )


def _rule(name: str, said: Mapping[str, t.Any]) -> Rule:
    lists = {key: tuple(value) for key, value in said.items() if isinstance(value, list)}
    return Rule(name, said["scope"], lists, said.get("label") or said.get("default") or "")


def _exemptions(entries: list[Mapping[str, t.Any]]) -> tuple[Exemption, ...]:
    own = {
        entry["namespace"]: Exemption(
            entry["namespace"], entry["owner"], entry["reason"], tuple(entry.get("rules") or ())
        )
        for entry in entries
    }
    system = {entry.namespace: entry for entry in SYSTEM_EXEMPTIONS}
    return tuple({**system, **own}.values())


def _check_meaning(values: Mapping[str, t.Any], content: t.Any, file: str, problems: Problems) -> None:
    def add(path: str, message: str, remedy: str) -> None:
        problems.add(_place(content, path, file), path, message, remedy)

    for path, name, text in _texts(values):
        form, example = _FORMS[name]
        if not re.fullmatch(form, text):
            add(path, f"{text!r} is not what can stand here", f"write {example}")
    rules = values["rules"]
    runtime = rules["runtime_class"]
    if runtime["default"] not in runtime["allowed"]:
        add("rules.runtime_class.default", f"{runtime['default']} is not allowed", "write one of `allowed`")
    if rules["registries"]["scope"] != "nowhere" and not rules["registries"]["allowed"]:
        add("rules.registries.allowed", "is empty: no image could be used", "list the site's registries")
    for where in ("exemptions", "pod_security.exemptions"):
        entries = values["exemptions"] if where == "exemptions" else values["pod_security"]["exemptions"]
        _check_exemptions(where, entries, list(rules), add)
    for index, entry in enumerate(values["grant_exceptions"]):
        _check_owned(f"grant_exceptions[{index}]", entry, add)


def _check_exemptions(
    where: str, entries: list[Mapping[str, t.Any]], rules: list[str], add: t.Callable[[str, str, str], None]
) -> None:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        path = f"{where}[{index}]"
        if entry["namespace"] in seen:
            add(f"{path}.namespace", "is there twice", "write one entry for a namespace")
        seen.add(entry["namespace"])
        _check_owned(path, entry, add)
        for name in entry.get("rules") or ():
            if name not in rules:
                near = nearest(name, rules)
                add(f"{path}.rules", f"{name!r} is no rule", f"write {near or ', '.join(rules)}")


def _check_owned(path: str, entry: Mapping[str, t.Any], add: t.Callable[[str, str, str], None]) -> None:
    for field in ("owner", "reason"):
        if not entry[field].strip():
            add(f"{path}.{field}", "is empty", "write who answers for it, and why")


def _texts(values: Mapping[str, t.Any]) -> Iterator[tuple[str, str, str]]:
    """Yield path, form and text of all that ends up in objects."""
    yield "high_risk_label", "high_risk_label", values["high_risk_label"]
    for name in ("keepers", "gpu_resources"):
        yield from ((f"{name}[{index}]", name, text) for index, text in enumerate(values[name]))
    rules = values["rules"]
    for rule, field, form in (
        ("runtime_class", "allowed", "runtime_class"),
        ("privilege", "capabilities", "capabilities"),
        ("volumes", "allowed", "volumes"),
        ("volumes", "csi_drivers", "csi_drivers"),
        ("registries", "allowed", "registries"),
        ("sandbox_annotations", "prefixes", "sandbox_annotations"),
        ("sandbox_annotations", "allowed", "sandbox_annotations"),
        ("token_audiences", "allowed", "token_audiences"),
        ("token_requests", "allowed", "token_audiences"),
        ("grants", "roles", "grants"),
    ):
        for index, text in enumerate(rules[rule][field]):
            yield f"rules.{rule}.{field}[{index}]", form, text
    yield "rules.gpu_queue.label", "label", rules["gpu_queue"]["label"]
    for index, entry in enumerate(values["grant_exceptions"]):
        yield f"grant_exceptions[{index}].name", "grants", entry["name"]
    for index, entry in enumerate(values["exemptions"]):
        yield f"exemptions[{index}].namespace", "namespace", entry["namespace"]
    for index, entry in enumerate(values["pod_security"]["exemptions"]):
        yield f"pod_security.exemptions[{index}].namespace", "namespace", entry["namespace"]


def _place(content: t.Any, path: str, file: str) -> Place:
    """Return the line of a path, or that of the innermost part of it that the file has."""
    found = Place(file, 1)
    for step in re.findall(r"[A-Za-z_]+|\d+", path):
        if step.isdigit() and isinstance(content, list) and int(step) < len(content):
            content = content[int(step)]
            found = place_of(content) or found
        elif isinstance(content, Mapping):
            key = next((key for key in content if str(key) == step), None)
            found = place_of(key) or found
            content = content.get(step)
        else:
            break
    return found
