# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Turns settings as written into typed values, resolving Jinja expressions where there are any."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.parsing.vault import EncryptedString
from ansible.template import Templar, trust_as_template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import PREFIX
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import ini_text
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import problems_in
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.connection import (
    CONNECTION,
    NOT_COMPUTED,
    misspelt,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.expressions import (
    ALLOWED,
    SECONDS,
    TooLong,
    in_time,
    is_too_long,
    refused_lookup,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.inventory import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import from_plugin, place_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sources import SUFFIXES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import check_value, without_value

POLICY_PREFIX = "site_plan_"
"""Variables that say who must approve what. Whoever may start a run may not choose them for this run."""
AWX_PREFIX = "awx_"
_ALLOWED_PREFIXES = ("ansible_", "user_", AWX_PREFIX, "tower_")


def needs_template(value: t.Any) -> bool:
    """Tell whether a value holds a Jinja expression or a vaulted text anywhere."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, Mapping):
        return any(needs_template(inner) for inner in value.values())
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return any(needs_template(inner) for inner in value)
    return isinstance(value, EncryptedString)


def trusted(value: t.Any) -> t.Any:
    """Mark the expressions in a role's defaults as ours, so that Ansible resolves them."""
    if isinstance(value, str):
        return trust_as_template(value) if "{{" in value or "{%" in value else value
    if isinstance(value, dict):
        return {key: trusted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [trusted(inner) for inner in value]
    return value


class Resolver:
    """Fills ``draft.hosts``; problems go to ``draft.problems``.

    Settings that hosts share are checked once, however many hosts there are.
    """

    def __init__(self, draft: Draft, loader: t.Any, magic: Mapping[str, t.Any]) -> None:
        self._draft = draft
        self._loader = loader
        self._magic = magic
        self._options = {**draft.specification.options, **CONNECTION}
        defaults = draft.specification.defaults
        self._plain_defaults = {k: v for k, v in defaults.items() if not needs_template(v)}
        self._template_defaults = {
            k: trusted(v) for k, v in defaults.items() if k not in self._plain_defaults
        }
        self._failed: set[tuple[str, int]] = set()
        self._shared: dict[tuple[str, ...], tuple[Settings, dict[str, t.Any], list[str]]] = {}

    def run(self) -> None:
        """Resolve and check every host."""
        self._check_names()
        self._check_policy()
        for name, groups in self._draft.inventory.host_groups.items():
            self._draft.hosts[name] = self._host(name, groups)
        self._check_hidden()

    def _check_hidden(self) -> None:
        """Check what no host has: values of groups without hosts, and those that others hide.

        The next host of the group would get them. Expressions are not computed: there is nobody to do it for.
        """
        seen = {
            (name, id(setting.value))
            for settings, *_ in self._shared.values()
            for name, setting in settings.items()
        }
        for layers in self._draft.inventory.group_layers.values():
            for settings in layers.values():
                hidden = {n: each for n, each in settings.items() if (n, id(each.value)) not in seen}
                self._checked(hidden)

    def _check_names(self) -> None:
        specification = self._draft.specification
        known = specification.options
        prefixes = tuple(f"{role}_" for role in specification.roles)
        # An inventory plugin brings whatever its source says about a host; nobody has misspelt that. What
        # looks like a role's variable is checked all the same.
        settings = [
            setting
            for setting in self._draft.inventory.every_setting()
            if str(setting.key).startswith(prefixes)
            or not from_plugin(setting.key)
            # Ansible does not say where keys of JSON are, and of an encrypted file only it knows them.
            or str(setting.key) in self._draft.marks.variables
            or _is_of_json(setting.value)
        ]
        # Playbooks take their own switches with -e; only what looks like a role's variable is checked there.
        settings.extend(s for name, s in self._draft.inventory.extra.items() if name.startswith(prefixes))
        for setting in settings:
            name = str(setting.key)
            if name.startswith("ansible_") and (meant := misspelt(name)):
                place = self._draft.setting_place(setting.key, setting.value)
                self._draft.problems.add(place, name, "unknown variable", f"write {meant}")
                continue
            if name in known or (name.startswith(_ALLOWED_PREFIXES) and not self._is_misspelt(name, known)):
                continue
            if name.startswith(PREFIX):
                # Operations take them from the inventory too, each its own.
                asked = {setting.key: setting.value}
                self._draft.problems.extend(
                    problems_in(asked, catalogue.OPERATIONS.values(), self._draft.setting_place)
                )
                continue
            remedy = self._instead_of(name, known)
            place = self._draft.setting_place(setting.key, setting.value)
            self._draft.problems.add(place, name, "unknown variable", remedy)

    def _instead_of(self, name: str, known: Mapping[str, t.Any]) -> str:
        """Return what to write in the place of an unknown variable."""
        inventory = self._draft.inventory
        if name in ("hosts", "children", "vars") or name in inventory.names:
            return "write the variables that stand below it at its level: a file of variables has no groups"
        near = nearest(name, known)
        return f"write {near}" if near else "remove it, or begin the names of your own variables with user_"

    def _is_misspelt(self, name: str, known: Mapping[str, t.Any]) -> bool:
        """Tell whether a name looks like a variable of the role ``awx``.

        A job of AWX has others that begin so; they come with the run and never stand in an inventory.
        """
        ours = [option for option in known if option.startswith(AWX_PREFIX)]
        in_run = name in self._draft.inventory.extra
        return name.startswith(AWX_PREFIX) and not in_run and nearest(name, ours) is not None

    def _check_policy(self) -> None:
        """Refuse a policy of approvals from the command line, a file of variables, or a controller's job."""
        for name, setting in self._draft.inventory.extra.items():
            if name.startswith(POLICY_PREFIX):
                self._draft.problems.add(
                    self._draft.setting_place(setting.key, setting.value),
                    name,
                    "cannot be given for one run (-e, or the variables of a job): it decides who must "
                    "approve what is done",
                    "write it in the inventory, and leave it out here",
                )

    def _report(self, key: t.Any, value: t.Any, path: str, message: str, remedy: str) -> None:
        place = self._draft.setting_place(key, value)
        if place.file in self._draft.marks.inventory_files and Path(place.file).suffix not in SUFFIXES:
            remedy = ini_text.remedy_of(remedy)
        self._draft.problems.add(place, path, message, remedy)

    def _checked(self, settings: Settings) -> tuple[dict[str, t.Any], list[str]]:
        options = self._options
        values: dict[str, t.Any] = {}
        templated: list[str] = []
        for name, (key, value) in settings.items():
            option = options.get(name)
            if needs_template(value):
                templated.append(name)
            elif option is not None and value is None:
                # Ansible takes it for a value of its own; what is meant is nothing, or was not written yet.
                self._report(key, value, name, "has no value", without_value(option))
                values[name] = None
            elif option is not None:
                values[name] = check_value(key, value, option, name, self._report)
        return values, templated

    def _shared_part(self, groups: tuple[str, ...]) -> tuple[Settings, dict[str, t.Any], list[str]]:
        if groups not in self._shared:
            settings = self._draft.inventory.shared_settings(groups)
            values, templated = self._checked(settings)
            self._shared[groups] = (settings, values, templated)
        return self._shared[groups]

    def _host(self, name: str, groups: tuple[str, ...]) -> HostDraft:
        inventory = self._draft.inventory
        shared, shared_values, shared_templated = self._shared_part(groups)
        own = {**inventory.host_settings[name], **inventory.extra}
        own_values, own_templated = self._checked(own)
        settings = {**shared, **own}
        values = {**self._plain_defaults, **shared_values, **own_values}
        templated = [n for n in shared_templated if n not in own] + own_templated
        host = HostDraft(name=name, groups=groups, settings=settings, values=values)
        defaults = [n for n in self._template_defaults if n not in settings]
        if defaults or any(n in self._options for n in templated):
            self._resolve(host, templated, defaults)
        for null in [n for n, value in values.items() if value is None and n in self._plain_defaults]:
            values[null] = self._plain_defaults[null]
        return host

    def _resolve(self, host: HostDraft, templated: list[str], defaults: list[str]) -> None:
        variables = {
            **self._draft.specification.defaults,
            **self._template_defaults,
            **{name: setting.value for name, setting in host.settings.items()},
            **self._magic,
            "inventory_hostname": host.name,
            "inventory_hostname_short": host.name.split(".")[0],
            "group_names": sorted(host.groups),
        }
        templar = Templar(loader=self._loader, variables=variables)
        for name in templated:
            option = self._options.get(name)
            if option is None or name in NOT_COMPUTED:
                continue
            key, raw = host.settings[name]
            if (name, id(raw)) in self._failed:
                continue
            try:
                resolved = self._computed(host, name, raw, templar)
            except _NotComputedError as error:
                self._failed.add((name, id(raw)))
                self._report(key, raw, name, f"{error} for host {host.name}", error.remedy)
                continue
            host.values[name] = check_value(
                key,
                resolved,
                option,
                name,
                lambda _key, _value, *rest, k=key, r=raw: self._report(k, r, *rest),
            )
        for name in defaults:
            try:
                host.values[name] = templar.template(self._template_defaults[name])
            except AnsibleError:
                # It depends on a variable that is missing or wrong, and that is reported by itself.
                continue

    def _computed(self, host: HostDraft, name: str, raw: t.Any, templar: Templar) -> t.Any:
        """Return what an expression comes to.

        Raises:
            _NotComputedError: it comes to nothing, or may not be computed.
        """
        if lookup := refused_lookup(raw, self._draft.environment):
            raise _NotComputedError(
                f"uses {lookup}, which runs programs, opens connections or writes files at each reading",
                f"write the value, or set {ALLOWED}={lookup} in the environment if that is what you want",
            )
        # What a policy refers to is the inventory's too: nothing that can be given for one run.
        own = self._of_the_inventory(host) if name.startswith(POLICY_PREFIX) else templar
        try:
            with in_time():
                return own.template(raw)
        except AnsibleError as error:
            if is_too_long(error):
                raise _too_long() from error
            raise _NotComputedError(
                f"cannot be resolved ({_first_line(error)})",
                "use only variables of the inventory in it; facts are not known yet",
            ) from error
        except TooLong as error:
            raise _too_long() from error

    def _of_the_inventory(self, host: HostDraft) -> Templar:
        """Return a templar that knows nothing of the command line; ``hostvars`` does, so it is not there."""
        settings = {
            **self._draft.inventory.shared_settings(host.groups),
            **self._draft.inventory.host_settings[host.name],
        }
        variables = {
            **self._draft.specification.defaults,
            **self._template_defaults,
            **{name: setting.value for name, setting in settings.items()},
            "groups": self._magic["groups"],
            "inventory_hostname": host.name,
            "group_names": sorted(host.groups),
        }
        return Templar(loader=self._loader, variables=variables)


def _is_of_json(value: t.Any) -> bool:
    """Tell whether a value was read from a file of JSON; only texts say so."""
    place = place_of(value)
    return place is not None and place.file.endswith(".json")


class _NotComputedError(Exception):
    """An expression has no value; the message has no host, because it is the same for many."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def _too_long() -> _NotComputedError:
    return _NotComputedError(
        f"took more than {SECONDS:.0f} s to compute", "write the value, or an expression that ends"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
