# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values of flags that a program of the control plane reads, and ends itself at its start.

Sources are the programs' own validations in Kubernetes 1.36 and 1.37: pkg/kubeapiserver/options, what is in
apiserver/pkg/server/options, client-go/tools/leaderelection, golang.org/x/net/http2. Names are in FILE.
"""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml

FILE = Path(__file__).absolute().with_name("component_names.yml")
Fault = tuple[str, str, str]
"""Name of a flag, what is wrong with it, what to write instead."""
NODES = "NodeRestriction"
"""Plugin that keeps a kubelet from changing what is of other nodes; kubeadm's, where no flag says which."""
ENABLE, DISABLE, MODES = "enable-admission-plugins", "disable-admission-plugins", "authorization-mode"
_MODES = ("ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook")
_NEEDED_BY_MODES = {"ABAC": "authorization-policy-file", "Webhook": "authorization-webhook-config-file"}
NEEDED_SUITES = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
"""HTTP/2 wants one of them (RFC 9113, section 9.2.2); Go starts no server without."""
_SUITES = "tls-cipher-suites"
_WITHOUT_HTTP_2 = (
    "lacks what HTTP/2 wants, and the server would not start",
    f"write {NEEDED_SUITES[1]} too",
)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "tls-min-version": ("VersionTLS12", "VersionTLS13", "VersionTLS11", "VersionTLS10"),
    "endpoint-reconciler-type": ("lease", "master-count", "none"),
    "audit-log-format": ("json", "legacy"),
    "audit-log-mode": ("batch", "blocking", "blocking-strict"),
    "audit-webhook-mode": ("batch", "blocking", "blocking-strict"),
}
_PORTS = re.compile(r"([0-9]+)(?:([-+])([0-9]+))?", re.ASCII)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_LEASE, _RENEW, _RETRY = (
    f"leader-elect-{name}" for name in ("lease-duration", "renew-deadline", "retry-period")
)
_SHORTEST_CERTIFICATE = 600
"""Seconds: k8s.io/api, certificates/v1, expirationSeconds."""
_SWITCHES = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")
"""What strconv.ParseBool reads."""
_JITTER = 1.2
"""client-go, leaderelection.JitterFactor."""


def names(of: str) -> tuple[str, ...]:
    """Return the names of one kind that ``FILE`` has.

    Args:
        of: ``suites``, ``controllers``, ...
    """
    return tuple(_read()[of])


@functools.lru_cache(maxsize=1)
def _read() -> Mapping[str, list[str]]:
    return t.cast(Mapping[str, list[str]], read_yaml(FILE))


def seconds(text: str) -> float:
    """Return how long a duration of Go is; 0 for what is none."""
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def faults(component: str, arguments: Mapping[str, object]) -> Iterator[Fault]:
    """Find flags whose values each have the right type and keep the program from starting all the same.

    Args:
        component: ``kube-apiserver``, ...
        arguments: flag without dashes -> value.
    """
    texts = {name: str(value) for name, value in arguments.items()}
    for name, text in texts.items():
        found = _JUDGES[name](text) if name in _JUDGES else None
        if name in _CHOICES and text not in _CHOICES[name]:
            found = (f"{text!r} is no value of this flag", f"write {' or '.join(_CHOICES[name][:2])}")
        if name.startswith("concurrent-") and name.endswith("-syncs") and text.lstrip("+-0") == "":
            found = (f"{text} works on nothing", "write 1 or more")
        elif name.startswith("max-") and name.endswith("requests-inflight") and text.startswith("-"):
            found = (f"{text} is less than nothing", "write 0 or more")
        if name == _SUITES and not found and texts.get("tls-min-version") != "VersionTLS13":
            found = None if set(_words(text)) & set(NEEDED_SUITES) else _WITHOUT_HTTP_2
        if found:
            yield name, *found
    if component == "kube-apiserver":
        yield from _of_api_server(texts)
    elif any(name in texts for name in (_LEASE, _RENEW, _RETRY)):
        yield from _of_leases(texts)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _known(text: str, known: Collection[str], what: str) -> tuple[str, str] | None:
    for word in _words(text):
        if word not in known:
            near = nearest(word, known)
            return f"there is no {what} {word}", f"write {near}" if near else "take it out"
    return None


def _plugins(text: str) -> tuple[str, str] | None:
    return _known(text, names("admission-plugins"), "admission plugin")


def _controllers(text: str) -> tuple[str, str] | None:
    if not any(not word.startswith("-") for word in _words(text)):
        return f"{text!r} turns on no controller at all", f"write {','.join(('*', *_words(text)))}"
    known = ["*", *names("former-controllers"), *(f"{name}-controller" for name in names("controllers"))]
    return _known(",".join(word.removeprefix("-") for word in _words(text)), known, "controller")


def _suites(text: str) -> tuple[str, str] | None:
    return _known(text, [*names("suites"), *names("insecure-suites")], "cipher suite")


def _port_range(text: str) -> tuple[str, str] | None:
    found = _PORTS.fullmatch(text)
    remedy = "write FIRST-LAST, such as 30000-32767"
    if found is None:
        return f"{text!r} is no range of ports", remedy
    first = int(found[1])
    last = first if not found[2] else int(found[3]) + (first if found[2] == "+" else 0)
    return None if 1 <= first <= last <= 65_535 else (f"{text!r} is no range of ports", remedy)


def _apis(text: str) -> tuple[str, str] | None:
    for word in _words(text):
        name, sign, value = word.partition("=")
        if sign and value not in _SWITCHES:
            return f"{value!r} turns {name} neither on nor off", f"write {name}=true or {name}=false"
    return None


def _timeout(text: str) -> tuple[str, str] | None:
    ends = bool(_PART.match(text)) and not seconds(text)
    return ("ends each request when it begins", "write for example 1m0s, the default") if ends else None


def _compaction(text: str) -> tuple[str, str] | None:
    never = text == "0" or (bool(_PART.match(text)) and not seconds(text))
    return ("never compacts the store, and nobody else does", "write 5m0s, the default") if never else None


def _tokens(text: str) -> tuple[str, str] | None:
    # cmd/kube-apiserver/app/options/completion.go
    short = bool(_PART.match(text)) and 0 < seconds(text) < 3600
    return (
        (f"{text} is shorter than 1h, and the server would not start", "write 1h or more") if short else None
    )


def _signing(text: str) -> tuple[str, str] | None:
    if not _PART.match(text) or seconds(text) >= _SHORTEST_CERTIFICATE:
        return None
    return f"{text} is shorter than any certificate that can be asked for", "write 8760h0m0s, the default"


def _chance(text: str) -> tuple[str, str] | None:
    try:
        is_one = 0 <= float(text) <= 0.02
    except ValueError:
        return None  # of another type, which is said
    return None if is_one else (f"{text} is no chance that is taken", "write 0 to 0.02, such as 0.001")


_JUDGES: Mapping[str, Callable[[str], tuple[str, str] | None]] = {
    ENABLE: _plugins,
    DISABLE: _plugins,
    "controllers": _controllers,
    _SUITES: _suites,
    "service-node-port-range": _port_range,
    "goaway-chance": _chance,
    "runtime-config": _apis,
    "request-timeout": _timeout,
    "cluster-signing-duration": _signing,
    "etcd-compaction-interval": _compaction,
    "service-account-max-token-expiration": _tokens,
}


def _of_api_server(texts: Mapping[str, str]) -> Iterator[Fault]:
    enabled = _words(texts[ENABLE]) if ENABLE in texts else [NODES]
    if NODES not in enabled and not _plugins(",".join(enabled)):
        message = f"leaves {NODES} out, so that a node could change all others"
        yield ENABLE, message, f"write {','.join((NODES, *enabled))}"
    for name in _words(texts.get(DISABLE, "")):
        if name == NODES or name in enabled:
            why = "which is on" if ENABLE in texts or name != NODES else "which keeps nodes apart"
            yield DISABLE, f"turns {name} off, {why}", "take it out"
    modes = _words(texts.get(MODES, "Node,RBAC"))
    unknown = next((mode for mode in modes if mode not in _MODES), "")
    if unknown or len(modes) != len(set(modes)):
        yield MODES, f"{unknown or texts[MODES]!r} is no mode, or is there twice", "write Node,RBAC"
    elif "AlwaysAllow" in modes:
        yield MODES, "AlwaysAllow lets everybody do everything", "write Node,RBAC"
    elif not {"Node", "RBAC"} <= set(modes):
        yield MODES, "lacks Node or RBAC, without which no node joins", "write Node,RBAC too"
    for mode, flag in _NEEDED_BY_MODES.items():
        if mode in modes and flag not in texts:
            yield MODES, f"{mode} needs {flag}", f"write {flag} too, or Node,RBAC"


def _of_leases(texts: Mapping[str, str]) -> Iterator[Fault]:
    lease, renew, retry = (
        seconds(texts.get(name, usual)) for name, usual in ((_LEASE, "15s"), (_RENEW, "10s"), (_RETRY, "2s"))
    )
    if not min(lease, renew, retry):
        return  # one is no duration, which is said
    if lease <= renew:
        name, message = (_LEASE, _RENEW), f"a lease of {lease:g} s is renewed for {renew:g} s"
    elif renew <= _JITTER * retry:
        name, message = (_RETRY, _RENEW), f"{renew:g} s are too few for retries each {retry:g} s"
    else:
        return
    flag = next(each for each in name if each in texts) if any(each in texts for each in name) else _RENEW
    yield flag, message, "write a lease longer than the deadline, and the deadline longer than 1.2 retries"
