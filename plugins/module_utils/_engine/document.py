# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reading a desired-state document: every mistake is found before anything on the host is looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import digest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.order import stable_order
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Field, Kind, Spec

SCHEMA = 1
"""Version of the document's form."""

COMMON = ("kind", "id", "requires")
REFERENCES = ("requires", "restart_on", "reload_on")
"""Parameters that name other resources; all of them order, the last two also restart or reload."""

_JSON_NAMES = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "a mapping"}


class Resource(t.NamedTuple):
    """One resource, ready to be compared: its specification has every default filled in."""

    id: str
    kind: Kind
    spec: Spec
    references: t.Tuple[str, ...]


class Document(t.NamedTuple):
    """A checked document; ``resources`` are in the order of application."""

    resources: t.Tuple[Resource, ...]
    digest: str
    fitness: t.Dict[str, t.Any]
    layers: t.Tuple[str, ...]
    forget: bool
    """Whether the engine's own folder goes too, once nothing on the host is the engine's any more."""


def only_layers(raw: t.Mapping[str, t.Any], layers: t.Collection[str]) -> t.Mapping[str, t.Any]:
    """Return a document that has only some of its layers; order and everything else stay.

    A layer with a slash is one resource of a layer: its id, in which a last ``*`` stands for anything.
    """
    wanted = [layer for layer in raw.get("layers") or () if layer in layers]
    single = [name for name in layers if "/" in name]
    if wanted == raw.get("layers") and not single:
        return raw
    # Other layers stay, and what is known about them with them.
    kept = {key: value for key, value in raw.items() if key != "forget"}
    resources = [
        entry
        for entry in raw.get("resources") or ()
        if layer_of(entry["id"]) in wanted or any(is_called(entry["id"], name) for name in single)
    ]
    return {**kept, "layers": wanted, "resources": resources}


def is_called(name: str, pattern: str) -> bool:
    """Tell whether a resource's id is the one meant; a last ``*`` stands for anything."""
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def layer_of(name: str) -> str:
    """Return the layer that a resource's id begins with."""
    return name.split("/", 1)[0]


def references_of(spec: Spec) -> t.Tuple[str, ...]:
    """Return the ids that a resource refers to, each once, in the order written."""
    names: t.Dict[str, None] = {}
    for parameter in REFERENCES:
        for name in spec.get(parameter) or ():
            names[name] = None
    if spec.get("kind") == "certificate" and isinstance(spec.get("key"), str):
        # Its request can be made only once the key is there.
        names[spec["key"]] = None
    return tuple(names)


def read_document(raw: t.Mapping[str, t.Any]) -> Document:
    """Check a document and put its resources in order.

    Args:
        raw: the document as decoded from JSON.

    Raises:
        EngineError: with every problem found, each naming its resource.
    """
    problems: t.List[Problem] = []
    if raw.get("schema") != SCHEMA:
        text = f"the document's schema is {raw.get('schema')!r}, this engine reads {SCHEMA}"
        raise EngineError([Problem("", text, "Use a controller and a collection of the same version.")])
    entries = raw.get("resources")
    if not isinstance(entries, list):
        raise EngineError([Problem("", "the document has no list called 'resources'")])
    layers = raw.get("layers") if isinstance(raw.get("layers"), list) else None
    for key, of in (("prunes", "layers"), ("keeps", "ids")):
        names = raw.get(key, [])
        if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
            problems.append(Problem("", f"{key} must be a list of {of}, found {names!r}"))
    resources: t.Dict[str, Resource] = {}
    for number, entry in enumerate(entries):
        resource = _read_resource(number, entry, problems)
        if resource is None:
            continue
        if resource.id in resources:
            problems.append(Problem(resource.id, "this id is used twice", "Give each resource its own id."))
        resources[resource.id] = resource
    _check_references(resources, layers, problems)
    _check_paths(resources, problems)
    resources = _follow_folders(resources)
    order, cycle = stable_order(list(resources), {name: r.references for name, r in resources.items()})
    if cycle:
        problems.append(
            Problem(cycle[0], f"requires itself: {' -> '.join(cycle)}", "Drop one of these references.")
        )
    if problems:
        raise EngineError(problems)
    fitness = raw.get("fitness")
    return Document(
        resources=tuple(resources[name] for name in order),
        digest=digest(raw),
        fitness=fitness if isinstance(fitness, dict) else {},
        layers=tuple(layers or ()),
        forget=raw.get("forget") is True,
    )


def _read_resource(number: int, entry: t.Any, problems: t.List[Problem]) -> t.Optional[Resource]:
    if not isinstance(entry, dict):
        problems.append(Problem(f"resources[{number}]", "is not a mapping"))
        return None
    name = entry.get("id")
    if not isinstance(name, str) or not name:
        problems.append(Problem(f"resources[{number}]", "has no id", "Write id: LAYER/NAME."))
        return None
    kind = _resources.load(entry["kind"]) if isinstance(entry.get("kind"), str) else None
    if kind is None:
        text = f"there is no resource kind {entry.get('kind')!r}" if "kind" in entry else "has no kind"
        problems.append(Problem(name, text, _nearest(str(entry.get("kind")), _resources.NAMES)))
        return None
    before = len(problems)
    spec = _fill(name, entry, kind, problems)
    check = getattr(kind, "check", None)
    if check is not None and len(problems) == before:
        problems.extend(Problem(name, text) for text in check(spec))
    return Resource(name, kind, spec, references_of(spec) if len(problems) == before else ())


def _fill(name: str, entry: Spec, kind: Kind, problems: t.List[Problem]) -> Spec:
    spec: Spec = {"requires": []}
    for parameter, value in entry.items():
        field = kind.fields.get(parameter)
        if parameter == "requires":
            field = Field((list,))
        if field is None and parameter not in COMMON:
            text = f"kind {kind.name} has no parameter {parameter!r}"
            problems.append(Problem(name, text, _nearest(parameter, kind.fields)))
            continue
        if field is not None:
            trouble = _mistake(parameter, value, field)
            if trouble:
                problems.append(Problem(name, trouble))
        spec[parameter] = value
    for parameter, field in kind.fields.items():
        if parameter in entry:
            continue
        if field.required:
            problems.append(Problem(name, f"kind {kind.name} needs the parameter {parameter!r}"))
        elif field.default is not None:
            spec[parameter] = field.default
    return spec


def _mistake(parameter: str, value: t.Any, field: Field) -> str:
    if value is None and not field.required and type(None) in field.types:
        return ""
    # bool is a subclass of int in Python, not in a document.
    if type(value) not in field.types:
        wanted = " or ".join(_JSON_NAMES.get(kind, kind.__name__) for kind in field.types)
        return f"{parameter} must be {wanted}, found {value!r}"
    if field.choices and value not in field.choices:
        return f"{parameter} must be one of {', '.join(map(str, field.choices))}, found {value!r}"
    if parameter in REFERENCES and any(not isinstance(item, str) for item in value):
        return f"{parameter} must be a list of ids, found {value!r}"
    if parameter == "path" and (not value.startswith("/") or "/../" in f"{value}/" or "\0" in value):
        return f"{parameter} must be absolute and without '..', found {value!r}"
    return ""


def _check_references(
    resources: t.Mapping[str, Resource], layers: t.Optional[t.List[str]], problems: t.List[Problem]
) -> None:
    for resource in resources.values():
        for name in resource.references:
            # A reference into a layer that this document leaves out was settled when that layer was applied.
            elsewhere = layers is not None and "/" in name and name.split("/", 1)[0] not in layers
            if name not in resources and not elsewhere:
                text = f"refers to {name!r}, which this document does not have"
                problems.append(Problem(resource.id, text, _nearest(name, resources)))


def _check_paths(resources: t.Mapping[str, Resource], problems: t.List[Problem]) -> None:
    owners: t.Dict[str, Resource] = {}
    for resource in resources.values():
        path = resource.spec.get("path")
        if not isinstance(path, str) or resource.spec.get("unpack", "none") != "none":
            continue
        path = path.rstrip("/") or "/"
        if path in owners and not _same_folder(resource, owners[path]):
            problems.append(
                Problem(resource.id, f"{path} is also the path of {owners[path].id}", "Declare a path once.")
            )
        owners[path] = resource


def _same_folder(one: Resource, other: Resource) -> bool:
    """Tell whether two layers want the same folder, such as /opt/ironspan, in the same way."""
    first, second = ({**spec, "id": "", "requires": []} for spec in (one.spec, other.spec))
    return one.kind.name == "directory" and first == second


def _follow_folders(resources: t.Mapping[str, Resource]) -> t.Dict[str, Resource]:
    """Let every resource refer to the directory resource that its path lies in, if there is one."""
    folders = {
        r.spec["path"].rstrip("/"): r.id
        for r in resources.values()
        if r.kind.name == "directory" and "path" in r.spec
    }
    following = {}
    for resource in resources.values():
        path = resource.spec.get("path") or resource.spec.get("key_path")
        if isinstance(path, str):
            path = path.rstrip("/")
            if resource.spec.get("unpack", "none") == "none":
                path = path.rpartition("/")[0]
            while path and path not in folders:
                path = path.rpartition("/")[0]
            if path and folders[path] not in (resource.id, *resource.references):
                resource = resource._replace(references=(*resource.references, folders[path]))
        following[resource.id] = resource
    return following


def made_folders(document: Document) -> t.Set[str]:
    """Return the folders that applying a document makes, with those above them."""
    folders: t.Set[str] = set()
    for resource in document.resources:
        if resource.kind.name == "directory" or resource.spec.get("unpack", "none") != "none":
            path = resource.spec["path"].rstrip("/")
            while path and path not in folders:
                folders.add(path)
                path = path.rpartition("/")[0]
    return folders


def _nearest(name: str, known: t.Iterable[str]) -> str:
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Known are: {', '.join(names)}." if len(names) <= 30 else ""
