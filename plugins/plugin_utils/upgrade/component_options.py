# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fields of a kubelet's configuration and flags of a control plane: what there is, and what each may hold.

The kubelet reads past a field that it does not know, so a misspelt one changes nothing and nobody hears of
it. A flag that is not known, or a value of another type, keeps a program from starting.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import (
    component_values,
    kubelet_together,
    removed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.component_owned import OWN

FILE = Path(__file__).absolute().with_name("component_options.yml")
KUBELET, GATES = "kubelet", "feature-gates"
_DURATION = re.compile(r"0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+", re.ASCII)
_QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII)
_MOST_INT = 2**31 - 1
Step = str | int


class Wrong(t.NamedTuple):
    """One thing to correct.

    Args:
        steps: keys and indexes that lead to it.
        message: what is wrong.
        remedy: what to write instead.
    """

    steps: tuple[Step, ...]
    message: str
    remedy: str


_FOLLOWS = "take it out, and change the variable that it follows from: "
_FIXED = "take it out; the cluster depends on the value that it has"
_RANGES: Mapping[str, tuple[float, float]] = {
    # pkg/kubelet/apis/config/validation/validation.go
    "imageGCHighThresholdPercent": (0, 100),
    "imageGCLowThresholdPercent": (0, 100),
    "containerLogMaxFiles": (2, _MOST_INT),
    "containerLogMaxWorkers": (1, _MOST_INT),
    "eventBurst": (0, _MOST_INT),
    "eventRecordQPS": (0, _MOST_INT),
    "iptablesDropBit": (0, 31),
    "iptablesMasqueradeBit": (0, 31),
    "kubeAPIBurst": (0, _MOST_INT),
    "kubeAPIQPS": (0, _MOST_INT),
    "maxOpenFiles": (0, 2**63 - 1),
    "memoryThrottlingFactor": (0.01, 1),
    "nodeLeaseDurationSeconds": (1, _MOST_INT),
    "nodeStatusMaxImages": (-1, _MOST_INT),
    "oomScoreAdj": (-1000, 1000),
    "podPidsLimit": (-1, 2**63 - 1),
    "podsPerCore": (0, _MOST_INT),
    "registryBurst": (0, _MOST_INT),
    "registryPullQPS": (0, _MOST_INT),
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    # k8s.io/kubelet/config/v1beta1, types.go: texts that its types do not bind.
    "hairpinMode": ("hairpin-veth", "promiscuous-bridge", "none"),
    "memoryManagerPolicy": ("None", "Static"),
    "swapBehavior": ("NoSwap", "LimitedSwap"),
    "tlsMinVersion": ("VersionTLS12", "VersionTLS13"),
    "format": ("text", "json"),
}


@functools.lru_cache(maxsize=16)
def known(component: str, line: removed.Line) -> Mapping[str, t.Any]:
    """Return name -> type of a component, ``feature-gates`` being one too; empty for other versions.

    Args:
        component: ``kubelet``, ``kube-apiserver``, ...
        line: the minor version.
    """
    data = read_yaml(FILE)
    lacking = data["lacking"].get(".".join(map(str, line)))
    if lacking is None:
        return {}
    return {name: kind for name, kind in data["known"][component].items() if name not in lacking[component]}


def in_kubelet_settings(settings: Mapping[str, t.Any], line: removed.Line) -> Iterator[Wrong]:
    """Find what a kubelet would read past, would not start with, or gets from somewhere else.

    Args:
        settings: fields of a KubeletConfiguration.
        line: the version that shall read them.
    """
    for name in settings:
        if name in OWN[KUBELET]:
            follows = OWN[KUBELET][name]
            yield Wrong((name,), "is set by ironspan", _FOLLOWS + follows if follows else _FIXED)
    rest = {name: value for name, value in settings.items() if name not in OWN[KUBELET]}
    fields = known(KUBELET, line)
    if fields:
        yield from _fields(rest, fields, (), "KubeletConfiguration", line)
        yield from _together(rest)


def in_arguments(component: str, arguments: Mapping[str, t.Any], line: removed.Line) -> Iterator[Wrong]:
    """Find flags that a program does not have, values it does not read, and those that are set elsewhere.

    Args:
        component: as in ``known``.
        arguments: flag without dashes -> value.
        line: the version that shall read them.
    """
    flags = known(component, line)
    for name, value in arguments.items():
        if name in OWN[component]:
            follows = OWN[component][name]
            remedy = _FOLLOWS + follows if follows else _FIXED
            yield Wrong((name,), "is set by the site's other variables", remedy)
        elif flags and name not in flags:
            if not removed.gone(component, "flag", name, line):
                yield Wrong((name,), f"{component} {_of(line)} has no such flag", _or_nearest(name, flags))
        elif flags and (remedy := _as_flag(value, flags[name])):
            yield Wrong((name,), f"{value!r} is no value of this flag", remedy)
        elif flags and name == GATES:
            yield from _gates_of_flag(component, str(value), line)
    if flags:
        rest = {name: value for name, value in arguments.items() if name not in OWN[component]}
        for name, message, remedy in component_values.faults(component, rest):
            yield Wrong((name,), message, remedy)


def _gates_of_flag(component: str, text: str, line: removed.Line) -> Iterator[Wrong]:
    for part in filter(None, text.split(",")):
        name, _, value = part.rpartition(":")[2].partition("=")
        if not value or _as_flag(value, "bool"):
            yield Wrong(
                (GATES,), f"{part!r} is no feature gate with its value", "write NAME=true or NAME=false"
            )
        elif not removed.gone(component, "gate", name, line):
            yield from _gate(name, (GATES,), line)


def _gate(name: str, steps: tuple[Step, ...], line: removed.Line) -> Iterator[Wrong]:
    gates = known(GATES, line)
    if name not in gates:
        yield Wrong(steps, f"Kubernetes {_of(line)} has no feature gate {name}", _or_nearest(name, gates))


def _of(line: removed.Line) -> str:
    return ".".join(map(str, line))


def _or_nearest(name: str, names: Mapping[str, t.Any]) -> str:
    near = nearest(name, names)
    return f"write {near}" if near else "take it out"


def _fields(
    values: Mapping[str, t.Any],
    fields: Mapping[str, t.Any],
    steps: tuple[Step, ...],
    what: str,
    line: removed.Line,
) -> Iterator[Wrong]:
    for name, value in values.items():
        here = (*steps, name)
        if name not in fields:
            if not removed.gone(KUBELET, "setting", str(name), line):
                yield Wrong(here, f"{what} of {_of(line)} has no such field", _or_nearest(str(name), fields))
        elif here[0] == "featureGates":
            yield from _field_gates(value, here, line)
        else:
            yield from _value(value, fields[name], here, line)


def _field_gates(value: t.Any, here: tuple[Step, ...], line: removed.Line) -> Iterator[Wrong]:
    if not isinstance(value, Mapping):
        yield Wrong(here, f"{value!r} is no dictionary", "write NAME: true below it")
        return
    for gate, state in value.items():
        if not isinstance(state, bool):
            yield Wrong((*here, gate), f"{state!r} is neither true nor false", "write true or false")
        elif not removed.gone(KUBELET, "gate", str(gate), line):
            yield from _gate(str(gate), (*here, gate), line)


def _value(value: t.Any, kind: t.Any, here: tuple[Step, ...], line: removed.Line) -> Iterator[Wrong]:
    if isinstance(kind, list):
        if not isinstance(value, list):
            yield Wrong(here, f"{value!r} is no list", "write a list")
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from _value(each, kind[0], (*here, index), line)
    elif isinstance(kind, Mapping):
        if not isinstance(value, Mapping):
            yield Wrong(here, f"{value!r} is no dictionary", f"write for example {next(iter(kind))} below it")
        elif "*" in kind:
            for key, each in value.items():
                yield from _value(each, kind["*"], (*here, key), line)
        else:
            yield from _fields(value, kind, here, str(here[-1]), line)
    elif remedy := _as_field(value, str(kind), str(here[-1])):
        yield Wrong(here, f"{value!r} is no value of this field", remedy)


def _as_field(value: t.Any, kind: str, name: str) -> str:
    """Return what to write instead of a value, "" where it is right."""
    choices = _CHOICES.get(name) or (tuple(kind.split("|")) if "|" in kind else ())
    if choices:
        return "" if value in choices else f"write {' or '.join(choices)}"
    if kind == "bool":
        return "" if isinstance(value, bool) else "write true or false"
    if kind in ("int", "number"):
        least, most = _RANGES.get(name, (-_MOST_INT, _MOST_INT))
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number and not (kind == "number" and isinstance(value, float)):
            return f"write {'a' if kind == 'number' else 'a whole'} number, without quotes"
        return "" if least <= value <= most else f"write {least} to {most}"
    if kind == "duration":
        is_one = isinstance(value, str) and _DURATION.fullmatch(value)
        return "" if is_one else "write it as Go does, for example 30s or 1h30m"
    if kind == "quantity":
        return "" if _QUANTITY.fullmatch(str(value)) else "write it as Kubernetes does, for example 1Gi"
    return "" if isinstance(value, str) else "write a text, in quotes"


def _as_flag(value: t.Any, kind: str) -> str:
    """Return what to write instead of a flag's value, "" where it is right. All are texts in the end."""
    text = str(value)
    if kind == "bool":  # strconv.ParseBool
        is_one = text in ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False")
        return "" if is_one else "write true or false"
    if kind in ("int", "number"):
        is_one = bool(_NUMBER.fullmatch(text)) and (kind == "number" or "." not in text)
        return "" if is_one else f"write {'a' if kind == 'number' else 'a whole'} number"
    if kind == "duration":
        return "" if _DURATION.fullmatch(text) else "write it as Go does, for example 30s or 1h30m"
    if kind == "address":
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return "write one address"
    return ""


def _together(settings: Mapping[str, t.Any]) -> Iterator[Wrong]:
    """What each is right by itself, and not beside another (the kubelet's own validation)."""
    high, low = (
        settings.get(f"imageGC{which}ThresholdPercent", usual) for which, usual in (("High", 85), ("Low", 80))
    )
    if isinstance(high, int) and isinstance(low, int) and low >= high:
        name = "imageGCLowThresholdPercent"
        step = name if name in settings else "imageGCHighThresholdPercent"
        yield Wrong(
            (step,),
            f"images are taken away from {high} % on, until {low} %",
            "write less for Low than for High",
        )
    soft, grace = settings.get("evictionSoft"), settings.get("evictionSoftGracePeriod")
    for signal in soft if isinstance(soft, Mapping) else ():
        if not isinstance(grace, Mapping) or signal not in grace:
            remedy = f"write evictionSoftGracePeriod: {{{signal}: 1m30s}}"
            yield Wrong(
                ("evictionSoft", signal), "has no grace period, and the kubelet would not start", remedy
            )
    for steps, message, remedy in kubelet_together.faults(settings):
        yield Wrong(steps, message, remedy)
