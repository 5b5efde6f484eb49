# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Objects of the stand-in: kept in memory, checked as AWX checks them, shown as its API shows them."""

from __future__ import annotations

import copy
import threading
import typing as t
import urllib.parse

from tests.support.controller.kinds import (
    KINDS,
    REQUIRED,
    ROLE_NAMES,
    RUNS,
    UNIFIED,
    UNIFIED_TYPES,
    Kind,
)

Content = dict[str, t.Any]
ENCRYPTED = "$encrypted$"
_SECRET_SETTINGS = ("password", "token", "service_key")


class Refusal(Exception):
    """An answer of the API that is no success."""

    def __init__(self, status: int, body: t.Any) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


class Store:
    """All objects.

    Args:
        prefix: of the API, such as ``/api/v2/``.
    """

    def __init__(self, prefix: str = "/api/v2/") -> None:
        self.prefix = prefix
        self.lock = threading.RLock()
        self.objects: dict[str, dict[int, Content]] = {path: {} for path in KINDS}
        self.links: dict[tuple[str, int, str], list[int]] = {}
        self.surveys: dict[tuple[str, int], Content] = {}
        self.roles: dict[int, tuple[str, int, str]] = {}
        self.granted: dict[int, set[tuple[str, int]]] = {}
        """Number of a role to those that have it: ``("users", 3)`` or ``("teams", 2)``."""
        self._numbers: dict[str, int] = {}

    def copy_from(self, other: Store) -> None:
        """Take over all that another one has."""
        for name in ("objects", "links", "surveys", "roles", "granted", "_numbers"):
            setattr(self, name, copy.deepcopy(getattr(other, name)))

    def number(self, path: str) -> int:
        """Return the next number; templates share one sequence, and so do jobs."""
        sequence = "unified" if path in UNIFIED else "runs" if path in RUNS else path
        self._numbers[sequence] = self._numbers.get(sequence, 0) + 1
        return self._numbers[sequence]

    def find(self, path: str, number: int) -> Content:
        """Return an object, or refuse with 404."""
        if path == "unified_job_templates":
            for each in UNIFIED:
                if number in self.objects[each]:
                    return self.objects[each][number]
        found = self.objects.get(path, {}).get(number)
        if found is None:
            raise Refusal(404, {"detail": "Not found."})
        return found

    def path_of_unified(self, number: int) -> str:
        """Return the kind of a template, project or source by its number."""
        return next(path for path in UNIFIED if number in self.objects[path])

    # Writing.

    def create(self, path: str, body: Content) -> Content:
        """Make an object, or refuse with what is wrong."""
        kind = KINDS[path]
        made = {name: _copied(default) for name, default in kind.fields.items() if default is not REQUIRED}
        errors = {
            name: ["This field is required."]
            for name, default in kind.fields.items()
            if default is REQUIRED and body.get(name) in (None, "")
        }
        made.update(self._checked(path, kind, body, errors))
        self._insist(path, kind, made, None, errors)
        made["id"] = self.number(path)
        self.objects[path][made["id"]] = made
        for role in kind.roles:
            number = self.number("roles")
            self.roles[number] = (path, made["id"], role)
        self._after(path, made)
        return made

    def change(self, path: str, there: Content, body: Content) -> Content:
        """Change fields of an object, or refuse with what is wrong."""
        kind, errors = KINDS[path], t.cast("Content", {})
        changes = self._checked(path, kind, body, errors)
        for name in kind.fixed:
            if name in changes and changes[name] != there[name]:
                errors[name] = [f"{name} can not be changed."]
        if path == "credential_types":
            self._insist_on_unused(there, changes)
        if path == "credentials" and "inputs" in changes:
            kept = there["inputs"]
            changes["inputs"] = {
                key: kept.get(key, "") if value == ENCRYPTED else value
                for key, value in changes["inputs"].items()
            }
        self._insist(path, kind, {**there, **changes}, there["id"], errors)
        there.update(changes)
        return there

    def _insist_on_unused(self, there: Content, changes: Content) -> None:
        used = any(one["credential_type"] == there["id"] for one in self.objects["credentials"].values())
        if used and changes.get("inputs", there["inputs"]) != there["inputs"]:
            raise Refusal(
                403,
                {"detail": "Modifications to inputs are not allowed for credential types in use"},
            )

    def _checked(self, path: str, kind: Kind, body: Content, errors: Content) -> Content:
        found: Content = {}
        for name, value in body.items():
            if name not in kind.fields or name in errors or name in ("managed", "status"):
                continue
            default = kind.fields[name]
            if name in kind.references:
                found[name] = self._reference(kind.references[name], name, value, errors)
            elif name in kind.choices and value not in kind.choices[name]:
                errors[name] = [f'"{value}" is not a valid choice.']
            elif isinstance(default, bool):
                if not isinstance(value, bool) and value not in (None, "true", "false", 0, 1):
                    errors[name] = ["Must be a valid boolean."]
                found[name] = value in (True, "true", 1)
            elif isinstance(default, int):
                if isinstance(value, bool) or not str(value).lstrip("-").isdigit():
                    errors[name] = ["A valid integer is required."]
                else:
                    found[name] = int(value)
            elif isinstance(default, dict) and not isinstance(value, dict):
                errors[name] = [
                    "Value must be valid JSON." if name == "extra_data" else "Expected an object."
                ]
            elif isinstance(default, str) and isinstance(value, (dict, list)):
                errors[name] = ["Not a valid string."]
            else:
                found[name] = "" if value is None and isinstance(default, str) else value
        return found

    def _reference(self, path: str, name: str, value: t.Any, errors: Content) -> int | None:
        if value in (None, ""):
            return None
        if isinstance(value, bool) or not str(value).isdigit():
            errors[name] = [f"Incorrect type. Expected pk value, received {type(value).__name__}."]
            return None
        try:
            return int(self.find(path, int(value))["id"])
        except Refusal:
            errors[name] = [f'Invalid pk "{value}" - object does not exist.']
            return None

    def _insist(self, path: str, kind: Kind, made: Content, own: int | None, errors: Content) -> None:
        if not errors:
            self._rules(path, made, errors)
        if not errors and kind.unique:
            for number, other in self.objects[path].items():
                if number != own and all(other[name] == made[name] for name in kind.unique):
                    words = " and ".join(name.replace("_", " ").capitalize() for name in kind.unique)
                    field = kind.unique[0] if len(kind.unique) == 1 else "__all__"
                    errors[field] = [f"{kind.words} with this {words} already exists."]
        if errors:
            raise Refusal(400, errors)

    def _rules(self, path: str, made: Content, errors: Content) -> None:
        if path == "job_templates":
            project = self.objects["projects"].get(made["project"] or 0)
            if project is None:
                errors["project"] = ["This field is required."]
            elif not made["playbook"]:
                errors["playbook"] = ["Must select playbook for project."]
            elif made["playbook"] not in project.get("playbook_files", ()):
                errors["playbook"] = ["Playbook not found for project."]
            elif not made["inventory"] and not made["ask_inventory_on_launch"]:
                errors["inventory"] = ["You must either set a default value or ask to prompt on launch."]
            else:
                made["organization"] = project["organization"]
        elif path == "inventory_sources" and made["source"] == "scm" and not made["source_project"]:
            errors["source_project"] = ["Project required for scm type sources."]
        elif path == "workflow_job_template_nodes" or path == "schedules":
            self._prompts(path, made, errors)
        elif path == "credentials":
            known = self.objects["credential_types"][made["credential_type"]]["inputs"]
            names = {field["id"] for field in known.get("fields", ())}
            if unknown := sorted(made["inputs"].keys() - names):
                errors["inputs"] = [
                    f"Additional properties are not allowed ({', '.join(map(repr, unknown))} was unexpected)"
                ]

    def _prompts(self, path: str, made: Content, errors: Content) -> None:
        """Refuse data that the template would not ask for."""
        number = made["unified_job_template"]
        if path == "schedules":
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.rrule import fault_of

            if fault := fault_of(made["rrule"]):
                errors["rrule"] = [f"rrule {fault}"]
        if not number:
            return
        template = self.find("unified_job_templates", number)
        survey = self.surveys.get((self.path_of_unified(number), number), {})
        asked = {question["variable"] for question in survey.get("spec", ())}
        if not template.get("survey_enabled"):
            asked = set()
        extra = sorted(made["extra_data"].keys() - asked)
        if extra and not template.get("ask_variables_on_launch"):
            errors["extra_data"] = [
                f"Variables {', '.join(extra)} are not allowed on launch. Check the Prompt on Launch "
                "setting on the Job Template to include Extra Variables."
            ]
        if made.get("limit") and not template.get("ask_limit_on_launch"):
            errors["limit"] = ["Field is not configured to prompt on launch."]

    def _after(self, path: str, made: Content) -> None:
        if path == "inventories" and made["kind"] == "constructed":
            self.create(
                "inventory_sources",
                {
                    "name": f"Auto-created source for: {made['name']}"[:512],
                    "inventory": made["id"],
                    "source": "constructed",
                    "overwrite": True,
                    "overwrite_vars": True,
                    "update_on_launch": True,
                },
            )
        elif path == "workflow_job_template_nodes" and not made["identifier"]:
            made["identifier"] = f"node-{made['id']}"

    def remove(self, path: str, there: Content) -> None:
        """Remove an object with what belongs to it."""
        number = there["id"]
        if path == "labels":
            raise Refusal(405, {"detail": 'Method "DELETE" not allowed.'})
        active = [
            {"type": "job", "id": job["id"]}
            for runs in ("jobs", "workflow_jobs")
            for job in self.objects[runs].values()
            if job.get("unified_job_template") == number and not job.get("finished") and path in UNIFIED
        ]
        if active:
            raise Refusal(409, {"error": "Resource is being used by running jobs.", "active_jobs": active})
        del self.objects[path][number]
        self.surveys.pop((path, number), None)
        for (owner, owned, name), numbers in list(self.links.items()):
            if (owner, owned) == (path, number):
                del self.links[owner, owned, name]
            elif KINDS[owner].lists.get(name) == path and number in numbers:
                numbers.remove(number)
        for role, (owner, owned, _) in list(self.roles.items()):
            if (owner, owned) == (path, number):
                del self.roles[role]
                self.granted.pop(role, None)
        if path == "workflow_job_templates":
            for node in list(self.objects["workflow_job_template_nodes"].values()):
                if node["workflow_job_template"] == number:
                    self.remove("workflow_job_template_nodes", node)
        if path in UNIFIED:
            for schedule in list(self.objects["schedules"].values()):
                if schedule["unified_job_template"] == number:
                    self.remove("schedules", schedule)
            for node in self.objects["workflow_job_template_nodes"].values():
                if node["unified_job_template"] == number:
                    # The node stays, and runs nothing any more.
                    node["unified_job_template"] = None

    # Showing.

    def url(self, path: str, number: int) -> str:
        """Return the path of an object in the API."""
        return f"{self.prefix}{path}/{number}/"

    def shown(self, path: str, there: Content) -> Content:
        """Return an object as the API shows it."""
        kind, number = KINDS[path], int(there["id"])
        made = {"id": number, "type": kind.type, "url": self.url(path, number), **there}
        made.pop("playbook_files", None)
        made.pop("password", None)
        made.pop("private", None)
        related = {"named_url": self.named_url(path, there)}
        related.update({name: f"{self.url(path, number)}{name}/" for name in kind.lists})
        if "survey_enabled" in kind.fields:
            related.update(
                {
                    name: f"{self.url(path, number)}{name}/"
                    for name in ("survey_spec", "launch", "webhook_key")
                }
            )
        if path == "workflow_job_template_nodes":
            related["create_approval_template"] = f"{self.url(path, number)}create_approval_template/"
            made.update({name: list(self.links.get((path, number, name), ())) for name in kind.lists})
            if there["unified_job_template"]:
                unified = self.path_of_unified(there["unified_job_template"])
                related["unified_job_template"] = self.url(unified, there["unified_job_template"])
        if path in ("projects", "inventory_sources"):
            related["update"] = f"{self.url(path, number)}update/"
        made["related"] = related
        made["summary_fields"] = {**self._summary(path, kind, there), **there.get("summary_fields", {})}
        if path == "credentials":
            made["inputs"] = {
                key: ENCRYPTED if self.is_secret(there["credential_type"], key) and value else value
                for key, value in there["inputs"].items()
            }
        if path == "notification_templates":
            made["notification_configuration"] = {
                key: ENCRYPTED if key in _SECRET_SETTINGS and value else value
                for key, value in there["notification_configuration"].items()
            }
        return made

    def is_secret(self, credential_type: int, key: str) -> bool:
        """Tell whether an input of a credential is a secret."""
        fields = self.objects["credential_types"][credential_type]["inputs"].get("fields", ())
        return any(field["id"] == key and field.get("secret") for field in fields)

    def _summary(self, path: str, kind: Kind, there: Content) -> Content:
        found: Content = {}
        for name, referred in kind.references.items():
            if there.get(name):
                other = self.find(referred, there[name])
                found[name] = {key: other[key] for key in ("id", "name", "description") if key in other}
                if referred == "unified_job_templates":
                    found[name]["unified_job_type"] = UNIFIED_TYPES[self.path_of_unified(there[name])]
        for name in ("credentials", "labels"):
            if name in kind.lists:
                others = [self.find(name, one) for one in self.links.get((path, there["id"], name), ())]
                brief = [{"id": other["id"], "name": other["name"]} for other in others]
                found[name] = brief if name == "credentials" else {"count": len(brief), "results": brief[:10]}
        if kind.roles:
            found["object_roles"] = {
                role: {"id": number, "name": ROLE_NAMES[role]}
                for number, (owner, owned, role) in self.roles.items()
                if (owner, owned) == (path, there["id"])
            }
        return found

    def named_url(self, path: str, there: Content) -> str:
        """Return the path of an object by its name."""
        return f"{self.prefix}{path}/{urllib.parse.quote(self.slug(path, there))}/"

    def slug(self, path: str, there: Content) -> str:
        """Return the name of an object as named URLs have it."""
        if path in ("organizations", "instance_groups"):
            return str(there["name"])
        if path == "users":
            return str(there["username"])
        if path == "credential_types":
            return f"{there['name']}+{there['kind']}"
        organization = self.objects["organizations"].get(there.get("organization") or 0, {}).get("name", "")
        if path == "credentials":
            kind = self.objects["credential_types"][there["credential_type"]]
            return f"{there['name']}++{kind['name']}+{kind['kind']}++{organization}"
        if path == "workflow_job_template_nodes":
            workflow = self.find("workflow_job_templates", there["workflow_job_template"])
            return f"{there['identifier']}++{self.slug('workflow_job_templates', workflow)}"
        if path == "inventory_sources":
            return (
                f"{there['name']}++{self.slug('inventories', self.find('inventories', there['inventory']))}"
            )
        return f"{there.get('name', there['id'])}++{organization}"

    def role_shown(self, number: int) -> Content:
        """Return a role as the API shows it."""
        path, owned, role = self.roles[number]
        there = self.objects[path][owned]
        return {
            "id": number,
            "type": "role",
            "url": f"{self.prefix}roles/{number}/",
            "name": ROLE_NAMES[role],
            "related": {},
            "summary_fields": {
                "resource_name": there.get("name", ""),
                "resource_type": KINDS[path].type,
                "resource_id": owned,
            },
        }


def _copied(value: t.Any) -> t.Any:
    return dict(value) if isinstance(value, dict) else value
