# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Renders the desired-state document of a host from the templates of its layers.

The cost per host is what counts at 1,000 hosts, so a layer is rendered and parsed once for all hosts for
which everything its template reads is the same; a document is put together from finished pieces of JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jinja2
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import (
    ArtifactsIndex,
    load_index,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render import programs, services
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.authorities import PEER_NAME, Authorities
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.failures import problem_from
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.fitness import merge_fitness
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.kinds import (
    DESIRED,
    FITNESS,
    OBJECTS,
    RESET,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Policy

SCHEMA = 1
_REFERENCES = ("requires", "restart_on", "reload_on")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MISSING = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """One rendered template: its content, and the items of its list as JSON text without the brackets."""

    content: t.Any
    text: str


_NOTHING = Piece({}, "")


class Renderer:
    """Renders the documents of one site.

    Args:
        site: the site.
        authorities: the public side of its PKI store.
        roles_folder: where the templates are.
    """

    def __init__(self, site: Site, authorities: Authorities, roles_folder: Path = ROLES_FOLDER) -> None:
        self._site = site
        self._templates = Templates(roles_folder)
        self._pieces: dict[tuple[t.Any, ...], Piece] = {}
        self._fitness: dict[tuple[int, ...], dict[str, t.Any]] = {}
        self._index: ArtifactsIndex | None = None
        site.uid_source = authorities.uid
        self._shared: dict[str, t.Any] = {
            "site": site,
            "artifact": self._artifact,
            "image": self._image,
            "manifests": self._manifests,
            "program": programs.program,
            "sandbox": programs.sandbox,
            "starts": programs.starts,
            "single": programs.single,
            "always": programs.always,
            "service": services.service,
            "unit_file": services.unit_file,
            "cilium_objects": _cilium_objects,
            "gpu_policy": _gpu_policy,
            "fabric_needs": _fabric_needs,
            "mig_layout": _mig_layout,
            "mig_strategy": _mig_strategy,
            "ca_pem": authorities.certificate_pem,
            "ca_sha256": authorities.sha256,
            "ca_signing_pem": authorities.signing_pem,
            "ca_secret": authorities.secret_name,
            "trust_stamp": authorities.trust_stamp,
            "backup_keys": authorities.backup_keys,
            "backup_signers": authorities.backup_signers,
            "recovery_stamp": authorities.recovery_stamp,
            "ironic_secrets": authorities.ironic,
            "event_secrets": authorities.events,
            "event_settings": functools.partial(_event_settings, site),
            "bmc_ca_pem": authorities.bmc_pem,
            "encryption_of_secrets": authorities.encryption,
            "etcd_peer_name": PEER_NAME,
            "etcd_peers_are_named": authorities.peers_named,
            "service_account_public_pem": authorities.service_account_public_pem,
        }

    def document_text(self, host: Host, layers: Sequence[str] | None = None, template: str = DESIRED) -> str:
        """Render a host's document.

        Args:
            host: the host.
            layers: only these layers; all of the host by default.
            template: ``DESIRED``, or ``RESET`` for the way back, whose layers come in reverse order.

        Returns:
            The document as JSON.

        Raises:
            SiteError: a template cannot be rendered, with its file and line.
        """
        chosen = [layer for layer in host.layers if layers is None or layer in layers]
        if template == RESET:
            chosen.reverse()
        pieces = [self._piece(layer, template, host, _resources) for layer in chosen]
        fitness = self.fitness(host, chosen) if template == DESIRED else {}
        head: dict[str, t.Any] = {
            "schema": SCHEMA,
            "site": self._site.name,
            "host": host.name,
            "layers": chosen,
            "fitness": fitness,
        }
        head["prunes"] = chosen  # the host removes what is its engine's and not declared
        if template == DESIRED and (keeps := _keeps(chosen)):
            head["keeps"] = keeps
        if template == RESET and layers is None:
            head["forget"] = True  # nothing of the host is left to be known: the engine's own folder goes too
        resources = ", ".join(piece.text for piece in pieces if piece.text)
        return f'{json.dumps(head)[:-1]}, "resources": [{resources}]}}'

    def fitness(self, host: Host, layers: Sequence[str] | None = None) -> dict[str, t.Any]:
        """Return what the layers ask of the host: the document's ``fitness``."""
        chosen = host.layers if layers is None else layers
        pieces = [self._piece(layer, FITNESS, host, _mapping) for layer in chosen]
        key = tuple(id(piece) for piece in pieces)  # pieces are kept, so an identity is never used again
        if key not in self._fitness:
            self._fitness[key] = merge_fitness(piece.content for piece in pieces)
        return self._fitness[key]

    def document(
        self, host: Host, layers: Sequence[str] | None = None, template: str = DESIRED
    ) -> dict[str, t.Any]:
        """Render a host's document, as ``document_text``, and return it parsed."""
        return t.cast("dict[str, t.Any]", json.loads(self.document_text(host, layers, template)))

    def objects(self, layer: str) -> list[dict[str, t.Any]]:
        """Render the cluster objects of a layer (``objects.yml.j2``).

        Args:
            layer: the layer, for example ``flannel``.

        Returns:
            Kubernetes objects in the order to apply them; empty when the layer has none.
        """
        hosts = [host for host in self._site.hosts.values() if layer in host.layers]
        if not hosts and layer in all_layers().pod_networks:
            return []
        # A layer of the cluster has no hosts, and its variables one value for the whole site.
        variables = dict(hosts[0].variables if hosts else self._site.variables)
        content = self._render(f"{layer}/{OBJECTS}", layer, {**variables, **self._shared}, "the cluster")
        return owned.labelled(content or [], self._site.name, layer)

    def _piece(self, layer: str, template: str, host: Host, shape: Callable[[str, t.Any], Piece]) -> Piece:
        name = f"{layer}/{template}"
        if not self._templates.has(name):
            return _NOTHING
        key = self._key(name, layer, host)
        if key not in self._pieces:
            context = {**host.variables, **self._shared, "host": host}
            content = self._render(name, layer, context, f"host {host.name}")
            try:
                self._pieces[key] = shape(layer, content)
            except ValueError as error:
                path = str(self._templates.roles_folder / name)
                raise SiteError([Problem(path, 0, layer, str(error), "correct the template")]) from error
        return self._pieces[key]

    def _key(self, name: str, layer: str, host: Host) -> tuple[t.Any, ...]:
        try:
            reads = self._templates.reads(name)
        except jinja2.TemplateError as error:
            raise SiteError([problem_from(error, self._templates.roles_folder / name, layer)]) from error
        of_host: tuple[t.Any, ...] = (host.name,)
        if not reads.whole_host:
            of_host = tuple(
                _hashable(getattr(host, attribute, None)) for attribute in sorted(reads.attributes)
            )
        # Values live as long as the site, so their identity stands for them; hosts share most of them.
        variables = host.variables
        return (name, of_host, tuple(id(variables.get(variable, _MISSING)) for variable in reads.names))

    def _render(self, name: str, layer: str, context: dict[str, t.Any], subject: str) -> t.Any:
        path = self._templates.roles_folder / name

        def template(inner: str, **names: t.Any) -> str:
            return self._templates.get(f"{layer}/templates/{inner}").render(
                {**context, **names, "template": template}
            )

        try:
            text = self._templates.get(name).render({**context, "template": template})
        except Exception as error:
            raise SiteError([problem_from(error, path, f"{layer} of {subject}")]) from error
        try:
            return yaml.load(text, Loader=_LOADER)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            lines = text.splitlines()
            near = f" near {lines[mark.line].strip()!r}" if mark and mark.line < len(lines) else ""
            reason = getattr(error, "problem", None) or error
            message = f"renders to text that is not YAML{near}: {reason}"
            problem = Problem(str(path), 0, f"{layer} of {subject}", message, "put a to_json after the value")
            raise SiteError([problem]) from error

    def _artifact(self, name: str, version: str) -> dict[str, t.Any]:
        entry = self._opened_index().artifact(name, version)
        return {"path": entry["path"], "sha256": entry["sha256"], "size": entry["size"]}

    def _image(self, ref: str) -> dict[str, t.Any]:
        entry = self._opened_index().image(ref)
        return {"ref": entry["ref"], "digest": entry["digest"]}

    def _manifests(self, name: str, version: str) -> list[dict[str, t.Any]]:
        """Return the objects of a file of manifests in the mirror."""
        entry = self._opened_index().artifact(name, version)
        # Only sites whose pod network comes as manifests pay for what reads them.
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.manifests import read

        return read(Path(self._opened_index().path).parent, entry["path"], entry["sha256"])

    def _opened_index(self) -> ArtifactsIndex:
        if self._index is None:
            self._index = load_index(self._site.artifacts_index)
        return self._index


def _cilium_objects(manifests: list[dict[str, t.Any]], settings: t.Any) -> list[dict[str, t.Any]]:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.objects import cilium_objects

    return cilium_objects(manifests, settings)


def _gpu_policy(overrides: Sequence[Mapping[str, t.Any]]) -> Policy:
    # Only sites with GPUs pay for reading the policy.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

    return shipped().with_overrides(overrides)


def _fabric_needs(model: str, driver: str, between_hosts: bool) -> t.Any:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import fabric

    return fabric.needs(model, driver, between_hosts)


def _mig_layout(model: str, layouts: Sequence[Mapping[str, t.Any]], name: str) -> dict[str, list[str]]:
    # Only sites that divide GPUs pay for reading how.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig

    return mig.layout(model, [entry for entry in layouts if entry["name"] == name])


def _mig_strategy(layout: dict[str, list[str]]) -> str:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig

    return mig.strategy(layout)


def _event_settings(site: Site) -> tuple[dict[str, t.Any], str]:
    # Only sites whose alerts launch jobs pay for reading what there is to launch.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import events

    return events.of_site(site)


def _resources(layer: str, content: t.Any) -> Piece:
    if content is None:
        return Piece([], "")
    if not isinstance(content, list) or not all(isinstance(item, dict) and "id" in item for item in content):
        raise ValueError("does not render to a list of resources, each with an id")
    prefixed = [_prefixed(layer, resource) for resource in content]
    return Piece(prefixed, json.dumps(prefixed)[1:-1])


def _keeps(layers: Sequence[str]) -> list[str]:
    """Return the ids that stay where a document does not have them any more."""
    known = all_layers().layers
    return [f"{layer}/{name}" for layer in layers if layer in known for name in known[layer].keeps]


def _mapping(layer: str, content: t.Any) -> Piece:
    if not isinstance(content, dict):
        raise ValueError("does not render to a mapping")
    return Piece(content, "")


def _prefixed(layer: str, resource: dict[str, t.Any]) -> dict[str, t.Any]:
    """Write the layer before every id that does not name one."""

    def full(name: t.Any) -> str:
        return str(name) if "/" in str(name) else f"{layer}/{name}"

    changed = {**resource, "id": full(resource["id"])}
    for parameter in _REFERENCES:
        if parameter in resource:
            changed[parameter] = [full(name) for name in resource[parameter] or ()]
    if resource.get("kind") == "certificate" and "key" in resource:
        changed["key"] = full(resource["key"])
    return changed


def _hashable(value: t.Any) -> t.Any:
    return value if isinstance(value, str | int | tuple) else id(value)
