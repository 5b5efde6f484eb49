# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Launches of the stand-in: surveys, jobs that ansible-runner really runs, workflows, approvals."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import typing as t
import urllib.parse

import yaml

from tests.support.controller.access import Access
from tests.support.controller.store import Content, Refusal, Store

DONE: t.Final = ("successful", "failed", "error", "canceled")
_META = "awx_"


def survey_faults(survey: Content) -> str:
    """Return why a survey is not kept, in AWX's words; empty when it is."""
    for name in ("name", "description", "spec"):
        if name not in survey:
            return f"'{name}' missing from survey spec."
    if not isinstance(survey["spec"], list) or not survey["spec"]:
        return "'spec' doesn't contain any items."
    seen: set[str] = set()
    for index, question in enumerate(survey["spec"]):
        for name in ("type", "question_name", "variable", "required"):
            if name not in question:
                return f"'{name}' missing from survey question {index}."
        if question["variable"] in seen:
            return f"'variable' '{question['variable']}' duplicated in survey question {index}."
        seen.add(question["variable"])
        if not isinstance(question["required"], bool):
            return f"'required' in survey question {index} expected to be boolean."
        for name in ("min", "max"):
            if question.get(name) is not None and type(question[name]) is not int:
                return f"The {name} limit in survey question {index} expected to be integer."
        default, choices = question.get("default"), question.get("choices")
        if question["type"] == "integer" and default not in ("", None) and type(default) is not int:
            return f"Default value {default} in survey question {index} expected to be integer."
        if question["type"] == "multiplechoice" and (not choices or default not in ("", None, *choices)):
            return f"Default choice must be answered from the choices listed in survey question {index}."
    return ""


def answer_faults(survey: Content, answers: Content) -> list[str]:
    """Return what is wrong with answers, in AWX's words."""
    found = []
    for question in survey.get("spec", ()):
        name, kind, least, most = (question.get(key) for key in ("variable", "type", "min", "max"))
        value = answers.get(name)
        if value in (None, "") and question["required"] and question.get("default") in (None, ""):
            found.append(f"'{name}' value missing")
        if value in (None, "") or name not in answers:
            continue
        if kind in ("text", "textarea", "password"):
            if not isinstance(value, str):
                found.append(f"Value {value} for '{name}' expected to be a string.")
            elif least and len(value) < int(least):
                found.append(
                    f"'{name}' value {value} is too small (length is {len(value)} must be at least {least})."
                )
            elif most is not None and most != "" and len(value) > int(most):
                found.append(f"'{name}' value {value} is too large (must be no more than {most}).")
        elif kind == "integer":
            if type(value) is not int:
                found.append(f"Value {value} for '{name}' expected to be an integer.")
            elif least is not None and value < int(least):
                found.append(f"'{name}' value {value} is too small (must be at least {least}).")
            elif most is not None and value > int(most):
                found.append(f"'{name}' value {value} is too large (must be no more than {most}).")
        elif kind == "multiplechoice" and value not in question["choices"]:
            found.append(f"Value {value} for '{name}' expected to be one of {question['choices']}.")
    return found


class Launcher:
    """Starts jobs and workflows, each in a thread of its own.

    Args:
        store: of all objects.
        access: who may.
        environment: of all jobs, beside what credentials inject.
    """

    def __init__(self, store: Store, access: Access, environment: dict[str, str]) -> None:
        self._store, self._access, self._environment = store, access, environment
        self._decided = threading.Condition(store.lock)
        self.threads: list[threading.Thread] = []

    def preview(self, path: str, there: Content) -> Content:
        """Return what a launch would ask for."""
        survey = self._survey(path, there)
        needed = [
            q["variable"] for q in survey.get("spec", ()) if q["required"] and q.get("default") in (None, "")
        ]
        asks = {name: value for name, value in there.items() if name.startswith("ask_")}
        return {
            **asks,
            "survey_enabled": bool(survey),
            "variables_needed_to_start": needed,
            "can_start_without_user_input": not needed,
            "defaults": {},
        }

    def _survey(self, path: str, there: Content) -> Content:
        return self._store.surveys.get((path, there["id"]), {}) if there.get("survey_enabled") else {}

    def launch(self, path: str, there: Content, body: Content, user: Content) -> Content:
        """Start a template as somebody; refuse answers that the survey does not take."""
        self._access.insist(user, path, there, "execute_role")
        survey = self._survey(path, there)
        given = body.get("extra_vars") or {}
        given = yaml.safe_load(given) if isinstance(given, str) else dict(given)
        asked = {question["variable"] for question in survey.get("spec", ())}
        accepted = {
            key: value for key, value in given.items() if key in asked or there["ask_variables_on_launch"]
        }
        ignored: Content = {}
        if left := {key: value for key, value in given.items() if key not in accepted}:
            ignored["extra_vars"] = left
        for name in ("limit", "inventory", "job_type", "credentials"):
            prompt = f"ask_{name.removesuffix('s') if name == 'credentials' else name}_on_launch"
            if name in body and not there.get(prompt):
                ignored[name] = body[name]
        if faults := answer_faults(survey, accepted):
            raise Refusal(400, {"variables_needed_to_start": faults})
        if path == "workflow_job_templates":
            job = self._workflow(there, accepted, user)
            return {**job, "workflow_job": job["id"], "ignored_fields": ignored}
        job = self._job(there, accepted, user, {})
        self._start(lambda: self._run(job))
        return {**self._store.shown("jobs", job), "job": job["id"], "ignored_fields": ignored}

    def _start(self, work: t.Callable[[], object]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _defaults(self, path: str, there: Content) -> Content:
        """Return what a survey adds where nobody answers: of a text an empty one, of others nothing."""
        found: Content = {}
        for question in self._survey(path, there).get("spec", ()):
            default = question.get("default")
            if default not in (None, "") or (question["type"] == "text" and not question["required"]):
                found[question["variable"]] = default or ""
        return found

    def _created(self, path: str, there: Content, user: Content, **more: t.Any) -> Content:
        brief = {"id": user["id"], "username": user["username"]}
        job = {
            "id": self._store.number(path),
            "name": there["name"],
            "status": "pending",
            "failed": False,
            "finished": None,
            "unified_job_template": there["id"],
            "organization": there.get("organization"),
            "summary_fields": {"created_by": brief},
            **more,
        }
        self._store.objects[path][job["id"]] = job
        return job

    def _job(self, there: Content, answers: Content, user: Content, handed: Content) -> Content:
        """Return a new job: variables of the template, then of its survey, then of a workflow."""
        own = json.loads(there["extra_vars"] or "{}")
        variables = {**own, **self._defaults("job_templates", there), **handed, **answers}
        return self._created(
            "jobs", there, user, extra_vars=json.dumps(variables), job_explanation="", stdout=""
        )

    def _run(self, job: Content) -> str:
        """Run a job to its end; what goes wrong on the way is its error."""
        try:
            status = self._ran(job)
        except Exception as error:
            job["job_explanation"], status = str(error), "error"
        with self._decided:
            job.update(status=status, failed=status != "successful", finished=time.time())
            self._decided.notify_all()
        return status

    def _ran(self, job: Content) -> str:
        import ansible_runner

        template = self._store.objects["job_templates"][job["unified_job_template"]]
        project = self._store.objects["projects"][template["project"]]
        folder = pathlib.Path(urllib.parse.urlsplit(project["scm_url"]).path)
        variables = {**json.loads(job["extra_vars"]), **self._meta(job, template)}
        environment = dict(self._environment)
        with tempfile.TemporaryDirectory() as private:
            for number in self._store.links.get(("job_templates", template["id"], "credentials"), ()):
                self._inject(number, pathlib.Path(private), environment, variables)
            job.update(status="running", started=time.time())
            command = f"--check {_limit(template)}" if template["job_type"] == "check" else _limit(template)
            run = ansible_runner.run(
                private_data_dir=private,
                project_dir=str(folder),
                playbook=template["playbook"],
                inventory=self._inventory(template, folder),
                extravars=variables,
                envvars={
                    **environment,
                    "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
                },
                cmdline=command.strip() or None,
                quiet=True,
            )
            job["stdout"] = run.stdout.read()
        return run.status if run.status in DONE else "error"

    def _meta(self, job: Content, template: Content) -> Content:
        made = {f"{_META}job_id": job["id"], f"{_META}job_template_name": template["name"]}
        if "workflow_job" in job:
            workflow = self._store.objects["workflow_jobs"][job["workflow_job"]]
            made.update(
                {f"{_META}workflow_job_id": workflow["id"], f"{_META}workflow_job_name": workflow["name"]}
            )
        return made

    def _inventory(self, template: Content, folder: pathlib.Path) -> str:
        inventory = template["inventory"]
        if inputs := self._store.links.get(("inventories", inventory, "input_inventories")):
            inventory = inputs[0]
        sources = self._store.objects["inventory_sources"].values()
        found = next(one for one in sources if one["inventory"] == inventory and one["source"] == "scm")
        return str(folder / found["source_path"])

    def _inject(
        self, number: int, private: pathlib.Path, environment: dict[str, str], variables: Content
    ) -> None:
        import jinja2

        credential = self._store.objects["credentials"][number]
        kind = self._store.objects["credential_types"][credential["credential_type"]]
        values = dict(credential["inputs"])
        injectors = kind["injectors"]
        if template := injectors.get("file", {}).get("template"):
            file = private / f"credential-{number}"
            file.write_text(jinja2.Template(template).render(**values))
            file.chmod(0o600)
            values["tower"] = {"filename": str(file)}
        for key, text in injectors.get("env", {}).items():
            environment[key] = jinja2.Template(text).render(**values)
        for key, text in injectors.get("extra_vars", {}).items():
            variables[key] = jinja2.Template(text).render(**values)

    # Workflows.

    def _workflow(self, there: Content, answers: Content, user: Content) -> Content:
        own = json.loads(there["extra_vars"] or "{}")
        variables = {**own, **self._defaults("workflow_job_templates", there), **answers}
        job = self._created("workflow_jobs", there, user, extra_vars=json.dumps(variables))
        for node in self._store.objects["workflow_job_template_nodes"].values():
            if node["workflow_job_template"] == there["id"]:
                number = self._store.number("workflow_job_nodes")
                made = {"id": number, "identifier": node["identifier"], "workflow_job": job["id"],
                "job": None,
                        "do_not_run": False, "template": node["id"]}  # fmt: skip
                self._store.objects["workflow_job_nodes"][number] = made
        self._start(lambda: self._go(job, user))
        return self._store.shown("workflow_jobs", job)

    def _nodes(self, job: Content) -> dict[int, Content]:
        nodes = list(self._store.objects["workflow_job_nodes"].values())
        return {node["template"]: node for node in nodes if node["workflow_job"] == job["id"]}

    def _go(self, job: Content, user: Content) -> None:
        """Run the nodes of a workflow as their links lead; it has failed when a failure leads nowhere."""
        job["status"] = "running"
        nodes, links = self._nodes(job), self._store.links
        path = "workflow_job_template_nodes"
        led = {one for node in nodes for way in ("success", "failure", "always")
               for one in links.get((path, node, f"{way}_nodes"), ())}  # fmt: skip
        ready = [node for node in nodes if node not in led]
        failed = False
        while ready:
            number = ready.pop(0)
            if nodes[number]["job"]:
                continue
            status = self._node(job, nodes[number], user)
            way = "success" if status == "successful" else "failure"
            following = [
                *links.get((path, number, f"{way}_nodes"), ()),
                *links.get((path, number, "always_nodes"), ()),
            ]
            failed = failed or (way == "failure" and not following)
            ready += following
        with self._decided:
            job.update(status="failed" if failed else "successful", failed=failed, finished=time.time())
            self._decided.notify_all()

    def _node(self, workflow: Content, node: Content, user: Content) -> str:
        template = self._store.objects["workflow_job_template_nodes"][node["template"]]
        number = template["unified_job_template"]
        if number is None:
            return "error"
        path = self._store.path_of_unified(number)
        there = self._store.objects[path][number]
        if path == "workflow_approval_templates":
            return self._approval(workflow, node, there, user)
        handed = {**template["extra_data"], **json.loads(workflow["extra_vars"])}
        with self._store.lock:
            job = self._job(there, {}, user, handed)
            job["workflow_job"] = workflow["id"]
            node.update(
                job=job["id"], summary_fields={"job": {"id": job["id"], "type": "job", "name": job["name"]}}
            )
        return self._run(job)

    def _approval(self, workflow: Content, node: Content, there: Content, user: Content) -> str:
        with self._decided:
            made = self._created(
                "workflow_approvals", there, user, workflow_job=workflow["id"], timed_out=False
            )
            brief = {"id": made["id"], "type": "workflow_approval", "name": made["name"]}
            node.update(job=made["id"], summary_fields={"job": brief})
            until = time.monotonic() + (there["timeout"] or 86400)
            while made["status"] == "pending" and time.monotonic() < until:
                self._decided.wait(min(1.0, max(0.0, until - time.monotonic())))
            if made["status"] == "pending":
                made.update(status="failed", failed=True, timed_out=True, finished=time.time())
            return str(made["status"])

    def decide(self, approval: Content, user: Content, verdict: str) -> None:
        """Approve or deny as somebody. Whoever launched may, too, as in AWX."""
        workflow = self._store.objects["workflow_jobs"][approval["workflow_job"]]
        template = self._store.objects["workflow_job_templates"][workflow["unified_job_template"]]
        self._access.insist(user, "workflow_job_templates", template, "approval_role")
        with self._decided:
            if approval["status"] != "pending":
                raise Refusal(400, {"error": "This workflow step has already been approved or denied."})
            status = "successful" if verdict == "approve" else "failed"
            approval.update(status=status, failed=status == "failed", finished=time.time())
            brief = {"id": user["id"], "username": user["username"]}
            approval["summary_fields"]["approved_or_denied_by"] = brief
            self._decided.notify_all()


def _limit(template: Content) -> str:
    return f"--limit {template['limit']}" if template["limit"] else ""
