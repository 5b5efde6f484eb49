# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads a whole inventory into a ``Site`` and finds everything that is wrong with it. Contacts no host."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.build import build_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import run_checks, run_slice_checks
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import shape
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.inventory import (
    has_password,
    not_parsed,
    read_inventory,
    sources_in,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import (
    Marks,
    marks_of_run,
    read_marks,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import place_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    Place,
    Problem,
    Problems,
    SiteError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.resolve import Resolver
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sharpen import sharpened
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    ROLES_FOLDER,
    load_specification,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import parse

Loaded = tuple[Site | None, list[Problem]]


def load_site(
    inventory_paths: Sequence[str | Path],
    loader: t.Any = None,
    roles_folder: Path = ROLES_FOLDER,
    extra_vars: Mapping[str, t.Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read an inventory from plain Python.

    Inventories whose expressions use filters or lookups of collections by their full name need
    ``ansible.plugins.loader.init_plugin_loader()``, called before anything of this collection is imported.

    Args:
        inventory_paths: files and folders, as given to ``ansible-playbook -i``.
        loader: ansible's ``DataLoader``, for vault secrets; a new one by default.
        roles_folder: where the roles are.
        extra_vars: variables that win over the inventory's.
        environment: the process environment by default.

    Returns:
        The site (None when there are problems) and all problems, ordered by file and line.
    """
    parsed, problems = _parsed(inventory_paths, loader or _own_loader())
    if parsed is None:
        return None, problems
    return load_from_ansible(
        parsed.manager,
        parsed.loader,
        parsed.hostvars,
        extra_vars,
        roles_folder,
        environment,
        marks=parsed.marks,
    )


def load_draft(inventory_paths: Sequence[str | Path]) -> tuple[Draft | None, list[Problem]]:
    """Read the values of an inventory, each with its place, whether they make a site or not.

    Args:
        inventory_paths: files and folders, as given to ``ansible-playbook -i``.

    Returns:
        The values, with what is wrong with each by itself in ``problems``; None, and why, where an inventory
        cannot be read.
    """
    parsed, problems = _parsed(inventory_paths, _own_loader())
    if parsed is None:
        return None, problems
    return _drafted(parsed, None, ROLES_FOLDER, None)


class _Parsed(t.NamedTuple):
    """An inventory as Ansible has it, and what its files say."""

    manager: t.Any
    loader: t.Any
    hostvars: Mapping[str, t.Any]
    marks: Marks


def _parsed(inventory_paths: Sequence[str | Path], loader: t.Any) -> tuple[_Parsed | None, list[Problem]]:
    from ansible.inventory.manager import InventoryManager
    from ansible.vars.hostvars import HostVars
    from ansible.vars.manager import VariableManager

    sources = [str(Path(path).absolute()) for path in inventory_paths]
    # Before Ansible opens a file: some are never read to their end.
    marks = read_marks(sources, decrypts=has_password(loader))
    if misread := [*marks.missing, *marks.misread]:
        return None, sorted(misread)
    try:
        manager = InventoryManager(loader=loader, sources=sources)
        variables = VariableManager(loader=loader, inventory=manager)
        hostvars = HostVars(inventory=manager, variable_manager=variables, loader=loader)
    except AnsibleError as error:
        return None, list(_not_decrypted(loader, marks)) or [problem_of(error, sources[0])]
    return _Parsed(manager, loader, hostvars, marks), []


def _own_loader() -> t.Any:
    """Return a loader with the passwords that Ansible's settings name."""
    from ansible import constants
    from ansible.parsing.dataloader import DataLoader

    loader = DataLoader()
    if constants.DEFAULT_VAULT_IDENTITY_LIST or constants.DEFAULT_VAULT_PASSWORD_FILE:
        from ansible.cli import CLI

        loader.set_vault_secrets(CLI.setup_vault_secrets(loader, constants.DEFAULT_VAULT_IDENTITY_LIST))
    return loader


def load_from_ansible(
    manager: t.Any,
    loader: t.Any,
    hostvars: Mapping[str, t.Any],
    extra_vars: Mapping[str, t.Any] | None = None,
    roles_folder: Path = ROLES_FOLDER,
    environment: Mapping[str, str] | None = None,
    is_slice: bool = False,
    marks: Marks | None = None,
) -> Loaded:
    """Read an inventory that Ansible has parsed already, from inside a run.

    Args:
        manager: ansible's ``InventoryManager``.
        loader: ansible's ``DataLoader``.
        hostvars: ansible's ``hostvars``, for expressions that refer to other hosts.
        extra_vars: variables from the command line.
        roles_folder: where the roles are.
        environment: the process environment by default.
        is_slice: it is a part of the site's inventory: what needs all hosts is not checked.
        marks: what the files say, where they have been read; those of this run by default.

    Returns:
        As ``load_site``.
    """
    marks = marks or marks_of_run(sources_in(manager), has_password(loader))
    parsed = _Parsed(manager, loader, hostvars, marks)
    draft, problems = _drafted(parsed, extra_vars, roles_folder, environment)
    if draft is None:
        return None, problems
    (run_slice_checks if is_slice else run_checks)(draft)
    if len(draft.problems):
        return None, sharpened(draft.problems)
    return build_site(draft, is_slice), []


def _drafted(
    parsed: _Parsed,
    extra_vars: Mapping[str, t.Any] | None,
    roles_folder: Path,
    environment: Mapping[str, str] | None,
) -> tuple[Draft | None, list[Problem]]:
    manager, loader, hostvars, marks = parsed
    sources = sources_in(manager)
    misread = [*marks.missing, *marks.misread] or [*_wrong_encrypted(loader, marks)]
    if misread := misread or [*not_parsed(manager, marks)]:
        return None, sorted(misread)
    try:
        inventory = read_inventory(manager, loader, extra_vars)
    except AnsibleError as error:
        closed = list(_not_decrypted(loader, marks))
        return None, closed or [problem_of(error, sources[0] if sources else "inventory")]
    try:
        specification, layers = load_specification(roles_folder), all_layers()
        if roles_folder == ROLES_FOLDER:
            layers.insist_on(specification.options)
    except SiteError as error:
        return None, error.problems
    draft = Draft(
        inventory=inventory,
        specification=specification,
        marks=marks,
        problems=Problems(),
        environment=os.environ if environment is None else environment,
    )
    groups = {
        str(name): [str(host.name) for host in group.get_hosts()] for name, group in manager.groups.items()
    }
    Resolver(draft, loader, {"groups": groups, "hostvars": hostvars}).run()
    return draft, []


def _not_decrypted(loader: t.Any, marks: Marks) -> Iterator[Problem]:
    """Yield a problem for each encrypted file that no given password opens: Ansible does not name it."""
    for file in marks.encrypted:
        try:
            loader.load_from_file(file)
        except AnsibleError as error:
            reason = " ".join(str(error).split()).rstrip(".")
            remedy = "give the password that it was encrypted with, or encrypt it again"
            yield Problem(file, 1, "(file)", f"cannot be decrypted and read: {reason}"[:600], remedy)


def _wrong_encrypted(loader: t.Any, marks: Marks) -> Iterator[Problem]:
    """Yield what is wrong inside of files that ansible-vault encrypted, as it is said of others."""
    vault: t.Any = getattr(loader, "_vault", None)
    for file in marks.encrypted if vault is not None else ():
        try:
            text = vault.decrypt(Path(file).read_bytes()).decode("utf-8")
        except (AnsibleError, UnicodeDecodeError):
            continue  # Ansible's own reading says so.
        found = parse(text, file)
        wrong = shape.wrong_inventory if file in marks.inventory_files else shape.wrong_variables
        said = [(each.place.line, each.path, "is there twice") for each in found.duplicates]
        if found.broken is not None:
            said.append((found.broken[0].line, "(file)", f"is not valid YAML: {found.broken[1]}"))
        elif found.root is None or not shape.is_plugin(found.root):
            said += [(line, path, message) for line, path, message, _remedy in wrong(found.root)]
        for line, path, message in said:
            remedy = "correct it with ansible-vault edit"
            yield Problem(file, 1, path, f"{message}, on line {line} of what is encrypted", remedy)


def require_site(loaded: Loaded) -> Site:
    """Return the site.

    Raises:
        SiteError: it has problems.
    """
    site, problems = loaded
    if site is None or problems:
        raise SiteError(problems)
    return site


def problem_of(error: AnsibleError, file: str) -> Problem:
    """Turn an error of Ansible's own parsers into a problem, with its position when it has one."""
    place: Place | None = None
    cause: BaseException | None = error
    message = str(error)
    while cause is not None:
        place = place or place_of(getattr(cause, "obj", None))
        message = getattr(cause, "message", None) or message
        cause = cause.__cause__
    place = place or Place(file, 0)
    text = " ".join(str(message).split()).rstrip(".")
    return Problem(place.file, place.line, "(file)", text, "correct the syntax there")
