# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The stand-in as an HTTP server: routes, login, errors."""

from __future__ import annotations

import base64
import contextlib
import http.server
import itertools
import json
import pathlib
import secrets
import threading
import typing as t
import urllib.parse
from collections.abc import Iterator

from tests.support.controller.access import Access
from tests.support.controller.kinds import KINDS, UNIFIED
from tests.support.controller.launching import Launcher, survey_faults
from tests.support.controller.listing import page
from tests.support.controller.store import Content, Refusal, Store

_UNKNOWN = {"detail": "The requested resource could not be found."}
_LOGIN = {
    "detail": "Authentication credentials were not provided. To establish a login session, visit /api/login/."
}
_MACHINE = [
    {"id": "username", "label": "Username", "type": "string"},
    {"id": "password", "label": "Password", "type": "string", "secret": True},
    {"id": "ssh_key_data", "label": "SSH Private Key", "type": "string", "secret": True, "multiline": True},
]


class Controller:
    """One controller.

    Args:
        version: what it says of itself.
        prefix: of its API.
        gateway: whether ``/api/`` names several APIs, as AAP does.
        environment: of all jobs.
    """

    def __init__(
        self,
        version: str = "24.6.1",
        prefix: str = "/api/v2/",
        *,
        gateway: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.version, self.prefix, self.gateway = version, prefix, gateway
        self.store = Store(prefix)
        self.access = Access(self.store)
        self.launcher = Launcher(self.store, self.access, environment or {})
        self.tokens: dict[str, int] = {}
        self.writes: list[str] = []
        self.failing: list[tuple[str, int]] = []
        """Part of ``METHOD /path`` and the status that the next such request is answered with, once each."""
        self._sequence = itertools.count(1)
        self.url = ""
        for kind, name, fields in (("ssh", "Machine", _MACHINE), ("scm", "Source Control", _MACHINE)):
            made = self.store.create(
                "credential_types", {"name": name, "kind": kind, "inputs": {"fields": fields}}
            )
            made["managed"] = True
        self.store.create("instance_groups", {"name": "default"})
        self.user("admin", is_superuser=True)

    def user(self, name: str, **more: t.Any) -> str:
        """Make an account and return a token of it; the password is the name."""
        made = self.store.create("users", {"username": name, "password": name, **more})
        return self.token(made["id"])

    def token(self, user: int) -> str:
        """Return a new token of an account."""
        text = f"token-{user}-{next(self._sequence)}"
        self.tokens[text] = user
        return text

    def join(self, user: str, team: str) -> None:
        """Put somebody into a team."""
        users, teams = self.store.objects["users"], self.store.objects["teams"]
        number = next(one["id"] for one in users.values() if one["username"] == user)
        there = next(one["id"] for one in teams.values() if one["name"] == team)
        role = next(
            key for key, value in self.store.roles.items() if value == ("teams", there, "member_role")
        )
        self.store.granted.setdefault(role, set()).add(("users", number))

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on loopback; yield the URL."""
        handler = type("Handler", (_Handler,), {"controller": self})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self.url
        finally:
            server.shutdown()
            server.server_close()
            for running in self.launcher.threads:
                running.join(30)

    # Requests.

    def answer(self, method: str, target: str, body: Content, user: Content | None) -> tuple[int, t.Any]:
        """Return status and body of an answer."""
        parts = urllib.parse.urlsplit(target)
        query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        if parts.path == "/api/":
            return 200, self._top()
        if not parts.path.startswith(self.prefix):
            raise Refusal(404, _UNKNOWN)
        words = [
            urllib.parse.unquote(word) for word in parts.path.removeprefix(self.prefix).strip("/").split("/")
        ]
        if not parts.path.endswith("/"):
            # Django sends GET there; other methods break.
            raise Refusal(301 if method == "GET" else 500, None)
        if words == ["ping"]:
            return 200, {"version": self.version, "ha": False, "instances": [], "instance_groups": []}
        if user is None:
            raise Refusal(401, _LOGIN)
        for index, (part, status) in enumerate(self.failing):
            if part in f"{method} {parts.path}":
                del self.failing[index]
                raise Refusal(status, {"detail": "A server error occurred."})
        if method not in ("GET", "OPTIONS") and words[0] != "tokens":
            self.writes.append(f"{method} {parts.path}")
        with self.store.lock:
            return self._route(method, words, query, body, user, parts.path)

    def _top(self) -> Content:
        if self.gateway:
            return {"description": "", "apis": {"gateway": "/api/gateway/", "controller": "/api/controller/"}}
        return {
            "description": "AWX REST API",
            "current_version": self.prefix,
            "available_versions": {"v2": self.prefix},
        }

    def _route(
        self,
        method: str,
        words: list[str],
        query: list[tuple[str, str]],
        body: Content,
        user: Content,
        url: str,
    ) -> tuple[int, t.Any]:
        path = words[0]
        if path == "config":
            return 200, {"version": self.version, "time_zone": "UTC", "license_info": {}}
        if path == "me":
            return 200, page(self.store, "users", [("users", user)], query, url)
        if path == "tokens":
            if method == "DELETE":
                return 204, None
            token = self.token(user["id"])
            return 201, {"id": next(self._sequence), "token": token, "type": "o_auth2_access_token"}
        if path == "roles":
            return self._holders(method, int(words[1]), words[2], body, user)
        if path == "unified_job_templates":
            found = [(kind, there) for kind in UNIFIED[:4] for there in self.store.objects[kind].values()]
            return 200, page(self.store, path, found, query, url)
        if path not in KINDS:
            raise Refusal(404, _UNKNOWN)
        if len(words) == 1:
            return self._list(method, path, query, body, user, url)
        there = self._one(path, words[1])
        if len(words) == 2:
            return self._object(method, path, there, body, user)
        return self._below(method, path, there, words[2], query, body, user, url)

    def _one(self, path: str, word: str) -> Content:
        if word.isdigit():
            return self.store.find(path, int(word))
        for there in self.store.objects[path].values():
            if self.store.slug(path, there) == word:
                return there
        raise Refusal(404, {"detail": "Not found."})

    def _readable(self, user: Content, path: str) -> list[tuple[str, Content]]:
        found = self.store.objects[path].values()
        if path in ("job_templates", "workflow_job_templates"):
            found = [there for there in found if self.access.has(user, path, there, "read_role")]  # type: ignore[assignment]
        return [(path, there) for there in found]

    def _list(
        self, method: str, path: str, query: list[tuple[str, str]], body: Content, user: Content, url: str
    ) -> tuple[int, t.Any]:
        if method == "GET":
            return 200, page(self.store, path, self._readable(user, path), query, url)
        if method == "OPTIONS":
            return 200, {"actions": {"POST": {name: {"type": "field"} for name in KINDS[path].fields}}}
        if method != "POST":
            raise Refusal(405, {"detail": f'Method "{method}" not allowed.'})
        self.access.insist_on_writing(user, path, self._owner(path, body))
        made = self.store.create(path, body)
        if path == "projects":
            self._sync(made)
        return 201, self.store.shown(path, made)

    def _owner(self, path: str, body: Content) -> Content | None:
        """Return something that has the organization of an object, as far as it says."""
        for field, referred in KINDS[path].references.items():
            number = body.get(field)
            if field in (
                "organization",
                "project",
                "inventory",
                "workflow_job_template",
                "unified_job_template",
            ):
                if field == "organization" and number:
                    return {"organization": int(number)} if str(number).isdigit() else None
                if number and str(number).isdigit():
                    try:
                        return self.store.find(referred, int(number))
                    except Refusal:
                        return None
        return None

    def _object(
        self, method: str, path: str, there: Content, body: Content, user: Content
    ) -> tuple[int, t.Any]:
        if method == "GET":
            if path in ("job_templates", "workflow_job_templates"):
                self.access.insist(user, path, there, "read_role")
            return 200, self.store.shown(path, there)
        owner = there if path == "organizations" else self._owner(path, there)
        self.access.insist_on_writing(user, path, {"organization": there["id"]} if owner is there else owner)
        if method == "PATCH":
            self.store.change(path, there, body)
            if path == "projects":
                self._sync(there)
            return 200, self.store.shown(path, there)
        if method == "DELETE":
            self.store.remove(path, there)
            return (202 if path == "inventories" else 204), None
        raise Refusal(405, {"detail": f'Method "{method}" not allowed.'})

    def _sync(self, project: Content) -> None:
        """Read the playbooks of a project whose URL is a folder here; any other one fails."""
        folder = pathlib.Path(urllib.parse.urlsplit(project["scm_url"]).path)
        if project["scm_url"].startswith("file://") and folder.is_dir():
            files = sorted(str(file.relative_to(folder)) for file in folder.glob("playbooks/*.yml"))
            project.update(status="successful", playbook_files=files, scm_revision="0" * 40)
        else:
            project.update(status="failed", playbook_files=[])

    def _below(
        self,
        method: str,
        path: str,
        there: Content,
        word: str,
        query: list[tuple[str, str]],
        body: Content,
        user: Content,
        url: str,
    ) -> tuple[int, t.Any]:
        number = int(there["id"])
        if word == "survey_spec" and "survey_enabled" in KINDS[path].fields:
            return self._survey(method, path, number, body, user, there)
        if word == "webhook_key" and "webhook_service" in KINDS[path].fields:
            self.access.insist_on_writing(user, path, self._owner(path, there))
            if method == "POST":
                there["private"] = {**there.get("private", {}), "webhook_key": secrets.token_urlsafe(37)[:50]}
            key = there.get("private", {}).get("webhook_key", "")
            return (201 if method == "POST" else 200), {"webhook_key": key}
        if word == "launch" and method == "GET":
            return 200, self.launcher.preview(path, there)
        if word == "launch":
            return 201, self.launcher.launch(path, there, body, user)
        if word in ("approve", "deny") and path == "workflow_approvals":
            self.launcher.decide(there, user, word)
            return 204, None
        if word == "update" and path == "projects":
            self._sync(there)
            return 202, {"project_update": 0}
        if word == "create_approval_template":
            return self._approval(there, body, user)
        if word == "roles" and path == "teams":
            return self._roles(method, number, body, user, query, url)
        if word in ("workflow_nodes",):
            kind = "workflow_job_template_nodes" if path == "workflow_job_templates" else "workflow_job_nodes"
            field = "workflow_job_template" if path == "workflow_job_templates" else "workflow_job"
            found = [(kind, one) for one in self.store.objects[kind].values() if one[field] == number]
            return 200, page(self.store, kind, found, query, url)
        if word in KINDS[path].lists:
            return self._associated(method, path, there, word, body, user, query, url)
        raise Refusal(404, _UNKNOWN)

    def _survey(
        self, method: str, path: str, number: int, body: Content, user: Content, there: Content
    ) -> tuple[int, t.Any]:
        if method == "GET":
            return 200, self.store.surveys.get((path, number), {})
        self.access.insist_on_writing(user, path, there)
        if method == "DELETE":
            self.store.surveys.pop((path, number), None)
            return 200, None
        if fault := survey_faults(body):
            raise Refusal(400, {"error": fault})
        self.store.surveys[path, number] = body
        return 200, None

    def _approval(self, node: Content, body: Content, user: Content) -> tuple[int, t.Any]:
        workflow = self.store.find("workflow_job_templates", node["workflow_job_template"])
        self.access.insist_on_writing(user, "workflow_job_templates", workflow)
        made = self.store.create(
            "workflow_approval_templates", {**body, "organization": workflow["organization"]}
        )
        node["unified_job_template"] = made["id"]
        return 201, self.store.shown("workflow_approval_templates", made)

    def _associated(
        self,
        method: str,
        path: str,
        there: Content,
        word: str,
        body: Content,
        user: Content,
        query: list[tuple[str, str]],
        url: str,
    ) -> tuple[int, t.Any]:
        other = KINDS[path].lists[word]
        linked = self.store.links.setdefault((path, int(there["id"]), word), [])
        if method == "GET":
            return 200, page(
                self.store, other, [(other, self.store.find(other, one)) for one in linked], query, url
            )
        owner = (
            {"organization": there["id"]} if path == "organizations" else self._owner(path, there) or there
        )
        self.access.insist_on_writing(user, path, owner)
        if not isinstance(body.get("id"), int):
            raise Refusal(400, {"msg": '"id" field must be an integer.'})
        if body.get("disassociate"):
            if body["id"] in linked:
                linked.remove(body["id"])
            return 204, None
        self.store.find(other, body["id"])
        if word.endswith("_nodes") and self._leads(body["id"], int(there["id"])):
            raise Refusal(400, {"Error": "Cycle detected."})
        if body["id"] not in linked:
            linked.append(body["id"])
        return 204, None

    def _leads(self, start: int, end: int) -> bool:
        if start == end:
            return True
        ways = (f"{way}_nodes" for way in ("success", "failure", "always"))
        following = [
            one
            for way in ways
            for one in self.store.links.get(("workflow_job_template_nodes", start, way), ())
        ]
        return any(self._leads(one, end) for one in following)

    def _roles(
        self, method: str, team: int, body: Content, user: Content, query: list[tuple[str, str]], url: str
    ) -> tuple[int, t.Any]:
        if method == "GET":
            held = [
                role for role, holders in sorted(self.store.granted.items()) if ("teams", team) in holders
            ]
            size = min(int(dict(query).get("page_size", 25)), 200)
            number = int(dict(query).get("page", 1))
            part = held[(number - 1) * size : number * size]
            more = f"{url}?page_size={size}&page={number + 1}" if number * size < len(held) else None
            shown = [self.store.role_shown(role) for role in part]
            return 200, {"count": len(held), "next": more, "previous": None, "results": shown}
        return self._grant(body.get("id"), ("teams", team), body, user)

    def _holders(self, method: str, role: int, kind: str, body: Content, user: Content) -> tuple[int, t.Any]:
        if method == "GET":
            holders = [number for one, number in self.store.granted.get(role, ()) if one == kind]
            shown = [self.store.shown(kind, self.store.find(kind, number)) for number in sorted(holders)]
            return 200, {"count": len(shown), "next": None, "previous": None, "results": shown}
        return self._grant(role, (kind, int(body["id"])), body, user)

    def _grant(self, role: t.Any, holder: tuple[str, int], body: Content, user: Content) -> tuple[int, t.Any]:
        if role not in self.store.roles:
            raise Refusal(400, {"msg": "Role not found."})
        path, number, field = self.store.roles[role]
        there = self.store.find(path, number)
        self.access.insist_on_writing(
            user, path, {"organization": number} if path == "organizations" else there
        )
        if holder[0] == "teams" and path == "organizations" and field in ("admin_role", "member_role"):
            raise Refusal(
                400,
                {"msg": "You cannot assign an Organization participation role as a child role for a Team."},
            )
        holders = self.store.granted.setdefault(role, set())
        if body.get("disassociate"):
            holders.discard(holder)
        else:
            holders.add(holder)
        return 204, None


class _Handler(http.server.BaseHTTPRequestHandler):
    controller: t.ClassVar[Controller]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _user(self) -> Content | None:
        scheme, _, value = (self.headers.get("Authorization") or "").partition(" ")
        users = self.controller.store.objects["users"]
        if scheme == "Bearer":
            return users.get(self.controller.tokens.get(value, 0))
        if scheme == "Basic":
            name, _, password = base64.b64decode(value).decode().partition(":")
            return next(
                (one for one in users.values() if (one["username"], one["password"]) == (name, password)),
                None,
            )
        return None

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        user = self._user()
        try:
            body = json.loads(text) if text.strip() else {}
            status, content = self.controller.answer(self.command, self.path, body, user)
        except Refusal as refusal:
            status, content = refusal.status, refusal.body
        except ValueError as error:
            status, content = 400, {"detail": f"JSON parse error - {error}"}
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if user:
            self.send_header("X-API-Product-Name", "AWX")
            self.send_header("X-API-Product-Version", self.controller.version)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = do_OPTIONS = _answer

    def log_message(self, *_: t.Any) -> None:
        """Say nothing."""
