# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads what Terraform and OpenTofu write: outputs, shown states, and state files of version 4.

State files have secrets in clear. So what is kept is chosen, and not what is left out: ids of resources in
Azure, and of those the attributes of ``FACTS``. No message has a value of the file in it.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import Found, Known, parsed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.types import is_of

FACTS: Mapping[str, tuple[str, ...]] = {
    "microsoft.network/virtualnetworks": ("location", "address_space"),
    "microsoft.network/virtualnetworks/subnets": ("address_prefixes",),
    "microsoft.keyvault/vaults": ("location", "tenant_id"),
    "microsoft.storage/storageaccounts": ("location", "is_hns_enabled"),
    "microsoft.dbforpostgresql/flexibleservers": ("location", "delegated_subnet_id"),
}
"""Type of resources -> attributes that are read of them, in the words of the provider azurerm."""
MOST_BYTES = 256 * 1024 * 1024
"""Of a file: states of ten thousand resources have some 50 MB."""
_LONGEST = 1000
_STATE, _SHOWN, _OUTPUTS = "a state of version 4", "a state as `terraform show -json` writes it", "outputs"
_WRITE = "write it with `terraform output -json`, `terraform show -json`, or `terraform state pull`"
Json = dict[str, t.Any]


class TerraformError(ActionableError):
    """A file is none that Terraform wrote; the message has nothing of its content."""


def read(path: Path) -> Found:
    """Return what a file says there is.

    Args:
        path: of outputs or a state.

    Raises:
        TerraformError: it cannot be read, or is something else.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TerraformError(
                f"{path} is larger than {MOST_BYTES >> 20} MiB", "give the outputs, not the state"
            )
        content = path.read_bytes()
    except OSError as error:
        raise TerraformError(
            f"{path} cannot be read: {error.strerror}", "name a file that is there"
        ) from error
    return found_in(content, str(path))


def found_in(content: bytes, name: str) -> Found:
    """Return what the content of a file says there is.

    Args:
        content: bytes that anybody may have written.
        name: of the file, for messages.

    Raises:
        TerraformError: it is nothing that is read here.
    """
    top = _json(content, name)
    if "encrypted_data" in top:
        raise TerraformError(f"{name} is an encrypted state", "give what `tofu output -json` writes")
    if "resources" in top and "version" in top:
        if top["version"] != 4 or isinstance(top["version"], bool):
            raise TerraformError(
                f"{name} is a state of another version than 4",
                "write it with Terraform 0.12 or later, which `terraform state pull` does",
            )
        form, entries, outputs = _STATE, list(_of_state(top, name)), top.get("outputs")
    elif "format_version" in top:
        values = _mapping(top.get("values") or {}, name, "values")
        form, entries, outputs = _SHOWN, list(_of_shown(values, name)), values.get("outputs")
    elif top and all(isinstance(one, dict) and "value" in one for one in top.values()):
        form, entries, outputs = _OUTPUTS, [], top
    elif not top:
        raise TerraformError(
            f"{name} has no outputs", "write outputs of what ironspan should use, or give the state"
        )
    else:
        raise TerraformError(f"{name} is neither outputs nor a state of Terraform", _WRITE)
    known: dict[str, Known] = {}
    for one in entries:
        # A resource that is also looked up as data is Terraform's own all the same.
        if (there := known.get(one.id.lower())) is None or (one.owned and not there.owned):
            known[one.id.lower()] = one
    texts: dict[str, str] = {}
    hidden = []
    for output, entry in _mapping(outputs or {}, name, "outputs").items():
        if not isinstance(entry, dict) or entry.get("sensitive", False) is not False:
            hidden.append(_shown(output))
            continue
        value = entry.get("value")
        if output.startswith("azure_") and isinstance(value, str) and len(value) < _LONGEST:
            texts[output] = value
        for text in _texts(value):
            if (parts := parsed(text)) is not None:
                known.setdefault(text.lower(), Known(text, parts, f"output {_shown(output)}", False, {}))
    return Found(form, tuple(known.values()), texts, tuple(hidden))


def _json(content: bytes, name: str) -> Json:
    if content[:2] == b"PK":
        raise TerraformError(f"{name} is a plan of Terraform", _WRITE)
    try:
        top = json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise TerraformError(f"{name}, line {error.lineno}, is no JSON", _WRITE) from None
    except (ValueError, RecursionError) as error:
        reason = "deeper than any state" if isinstance(error, RecursionError) else "no JSON in UTF-8"
        raise TerraformError(f"{name} is {reason}", _WRITE) from None
    return _mapping(top, name, "the whole")


def _mapping(value: t.Any, name: str, what: str) -> Json:
    if not isinstance(value, dict):
        raise TerraformError(f"{name}: {what} is no object", _WRITE)
    return value


def _list(value: t.Any, name: str, what: str) -> list[t.Any]:
    if not isinstance(value, list):
        raise TerraformError(f"{name}: {what} is no list", _WRITE)
    return value


def _of_state(top: Json, name: str) -> Iterator[Known]:
    for resource in _list(top["resources"], name, "resources"):
        resource = _mapping(resource, name, "an entry of resources")
        address = ".".join(
            str(resource[key])
            for key in ("module", "type", "name")
            if isinstance(resource.get(key), str) and resource[key]
        )
        for instance in _list(resource.get("instances") or [], name, "instances"):
            instance = _mapping(instance, name, "an instance")
            key = instance.get("index_key")
            place = f"{address}[{json.dumps(key)}]" if isinstance(key, str | int) else address
            yield from _known(resource, instance.get("attributes"), place)


def _of_shown(values: Json, name: str) -> Iterator[Known]:
    modules = [_mapping(values.get("root_module") or {}, name, "root_module")]
    while modules:
        module = modules.pop()
        for resource in _list(module.get("resources") or [], name, "resources"):
            resource = _mapping(resource, name, "an entry of resources")
            yield from _known(resource, resource.get("values"), str(resource.get("address") or ""))
        modules += [
            _mapping(child, name, "an entry of child_modules")
            for child in _list(module.get("child_modules") or [], name, "child_modules")
        ]


def _known(resource: Json, attributes: t.Any, place: str) -> Iterator[Known]:
    """Yield a resource in Azure, nothing for those of other providers."""
    if not isinstance(attributes, dict) or not isinstance(attributes.get("id"), str):
        return
    parts = parsed(attributes["id"])
    if parts is None or not is_of(parts.kind, str(resource.get("type"))):
        return
    facts: dict[str, str | tuple[str, ...]] = {}
    for fact in FACTS.get(parts.kind, ("location",)):
        value = attributes.get(fact)
        if isinstance(value, bool):
            facts[fact] = "true" if value else "false"
        elif isinstance(value, str) and len(value) < _LONGEST:
            facts[fact] = value
        elif isinstance(value, list):
            facts[fact] = tuple(one for one in value if isinstance(one, str) and len(one) < _LONGEST)
    yield Known(attributes["id"], parts, _shown(place), resource.get("mode", "managed") == "managed", facts)


def _texts(value: t.Any) -> Iterator[str]:
    """Yield all texts inside of a value, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            waiting += reversed(list(one.values()))
        elif isinstance(one, list):
            waiting += reversed(one)


def _shown(text: str) -> str:
    """Return a name of the file for people: a line, and not long."""
    return "".join(char if char.isprintable() else "?" for char in text[:200])
