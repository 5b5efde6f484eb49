# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A whole site without machines: private roots for hosts, a fake API, and the project's own playbooks.

The playbooks are those of the project, with one change: every converge is told the root of its host and where
the roles are. Programs that would change the machine are stand-ins in the roots.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import typing as t
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, generate_key_file, open_store

from tests.support.playbooks import ROOT
from tests.support.stand_ins import SYSTEMCTL

ROLES = Path(__file__).with_name("simulated_roles")
CALLBACKS = Path(__file__).with_name("callbacks")
PHASES = ("validate", "assess", "prepare", "etcd", "nodes")
"""Those of site.yml that the simulated site goes through; the others change no host."""
ADDRESSES = {"a1": "10.1.0.1", "w1": "10.2.0.1", "w2": "10.2.0.2"}
API_NAME = "api.small"
RUN = "IRONSPAN_TEST_RUN"
"""Environment variable by which everything that a run started is found."""

KUBEADM = r"""#!/bin/sh
# Joins in the order of the real one, slowly enough to be cut off between any two of its steps.
root=$IRONSPAN_ROOT host=${IRONSPAN_ROOT##*/} api=${IRONSPAN_ROOT%/roots/*}/api
if [ "$1" = reset ]; then
    rm -rf "$root"/var/lib/kubelet/* "$root/run/units/kubelet.service.active"
    exit 0
fi
conf="$root/etc/kubernetes"
[ ! -e "$conf/kubelet.conf" ] || { echo "FileAvailable--etc-kubernetes-kubelet.conf: exists" >&2; exit 1; }
found="$root/run/ironspan/discovery.conf"
shown=$(sed -n 's/.*"client-certificate-data": "\([^"]*\)".*/\1/p' "$found" | base64 -d)
named=$(echo "$shown" | openssl x509 -noout -subject)
echo "$shown" | openssl verify -CAfile "$conf/pki/ca.crt" >/dev/null 2>&1 && [ "${named##*:}" = "$host" ] ||
    { echo "error: Unauthorized" >&2; exit 1; }
server="    server: $(sed -n 's/.*"server": "\([^"]*\)".*/\1/p' "$found")"
mkdir -p "$root/var/lib/kubelet"
echo "$server" >"$conf/bootstrap-kubelet.conf"; sleep 0.05
echo config >"$root/var/lib/kubelet/config.yaml"; sleep 0.05
: >"$root/run/units/kubelet.service.active"
echo "$server" >"$conf/kubelet.conf"; sleep 0.05
echo "$named" >"$api/.$host"; mv "$api/.$host" "$api/joined/$host"; sleep 0.05
rm "$conf/bootstrap-kubelet.conf"
"""
STAND_INS = {
    "systemctl": SYSTEMCTL,
    "kubeadm": KUBEADM,
    **dict.fromkeys(
        (
            "journalctl",
            "nft",
            "iptables-save",
            "ip6tables-save",
            "iptables-restore",
            "ip6tables-restore",
            "ip",
        ),
        "#!/bin/sh\n",
    ),
}
Snapshot = dict[str, tuple[str, bytes]]
OWN = ("usr/local/ironspan-test-bin", "var/lib/ironspan", "run/calls")


def make_store(folder: Path) -> Store:
    """Make the PKI store that all simulated sites of a test start with a copy of, and its key beside it."""
    store = open_store(folder / "pki", generate_key_file(folder / "key"))
    store.ensure_cas()
    return store


class SimulatedSite:
    """One site in a folder of its own.

    Args:
        folder: made here.
        store: folder with ``pki`` and ``key``, from ``make_store``; copied.
        address: of the API.
        port: of the API.
        workers: 1 or 2; a1 is the store and the control plane.
    """

    patience_s = 600
    """How long a run may take, from outside."""

    def __init__(
        self,
        folder: Path,
        store: Path,
        address: str,
        port: int,
        workers: int = 2,
    ) -> None:
        self.folder = folder
        self.runs: list[str] = []
        self.workers = ["w1", "w2"][:workers]
        folder.mkdir(parents=True)
        shutil.copytree(store / "pki", folder / "pki")
        shutil.copy2(store / "key", folder / "key")
        for name in ("a1", *self.workers):
            self._make_root(name)
        variables = {
            "site_name": "small",
            "site_api_endpoint": f"{API_NAME}:{port}",
            "site_api_address": address,
            "site_lab": True,
            "site_mirror_url": "http://127.0.0.1:1",
            "site_pki_store": str(folder / "pki"),
            "site_pki_key_file": str(folder / "key"),
            "ansible_connection": "local",
            "ansible_python_interpreter": str(_interpreter(folder)),
            "user_root": f"{folder}/roots/{{{{ inventory_hostname }}}}",
        }
        hosts = {name: {"site_address": ADDRESSES[name]} for name in ("a1", *self.workers)}
        groups = {"azure": ["a1"], "etcd": ["a1"], "control_plane": ["a1"]}
        groups |= {"on_prem": self.workers, "nodes": self.workers}
        children = {group: {"hosts": dict.fromkeys(names)} for group, names in groups.items()}
        inventory = {"all": {"vars": variables, "hosts": hosts, "children": children}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
        (folder / "site.yml").write_text(yaml.safe_dump(playbook(), sort_keys=False))

    def root(self, name: str) -> Path:
        """Return the folder that a host takes for its root."""
        return self.folder / "roots" / name

    def _make_root(self, name: str) -> None:
        root = self.root(name)
        for folder in ("etc/systemd/system", "run/units", "opt/old/deep", "proc", "var/lib/kubelet"):
            (root / folder).mkdir(parents=True)
        (root / "etc/systemd/system/kubelet.service").write_text("[Service]\n")
        (root / "etc/motd").write_text("old\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (root / "opt/old/deep/file").write_text("to go\n")
        programs = root / "usr/local/ironspan-test-bin"
        programs.mkdir(parents=True)
        for program, text in STAND_INS.items():
            (programs / program).write_text(text)
            (programs / program).chmod(0o755)

    def start(
        self, *options: str, run: str = "", program: Sequence[str] = ("ansible-playbook",), **environment: str
    ) -> subprocess.Popen[str]:
        """Start the playbook; its output goes to ``log``.

        Args:
            options: of ansible-playbook.
            program: what runs it, without its folder; ``("ironspan", "apply")`` for the command.
            run: the name by which ``kill_all`` finds everything it started; "" for a new one.
            environment: more variables.
        """
        words = [str(Path(sys.executable).with_name(program[0])), *program[1:]]
        self.runs.append(run or uuid.uuid4().hex)
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                [*words, "-i", str(self.folder / "hosts.yml"), str(self.folder / "site.yml"), *options],
                cwd=ROOT,
                env={
                    **os.environ,
                    "ANSIBLE_NOCOLOR": "1",
                    "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
                    "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
                    "ANSIBLE_CALLBACKS_ENABLED": "stop_at",
                    "XDG_CACHE_HOME": str(self.folder / "cache"),
                    "XDG_STATE_HOME": str(self.folder / "state"),
                    RUN: self.runs[-1],
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def finish(self, *options: str, **environment: str) -> tuple[int, str]:
        """Run the playbook to its end; return its exit status and what it said."""
        log = self.folder / "log"
        before = log.stat().st_size if log.exists() else 0
        status = self.start(*options, **environment).wait(self.patience_s)
        return status, log.read_text()[before:]

    def wait_for_hosts(self, seconds: float = 60) -> None:
        """Let what runs have begun on hosts end: that of a killed one may wait for its turn until now."""
        until = time.monotonic() + seconds
        while any(set(processes_of(run)) - set(controllers_of(run)) for run in self.runs):
            if time.monotonic() > until:
                break
            time.sleep(0.1)

    def close(self) -> None:
        """End what killed runs have left running: the workers of a controller outlive it."""
        for run in self.runs:
            kill_all(run)

    def snapshot(self) -> Snapshot:
        """Describe all hosts' trees; of keys and certificates only that they are there."""
        seen: Snapshot = {}
        for path in sorted((self.folder / "roots").rglob("*")):
            name = str(path.relative_to(self.folder / "roots"))
            if name.partition("/")[2].startswith(OWN):
                continue
            random = path.suffix in (".key", ".crt") and "etcd" in path.parts
            content = b"" if random or not path.is_file() else path.read_bytes()
            seen[name] = (stat.filemode(path.lstat().st_mode), content)
        return seen

    def leftovers(self) -> list[str]:
        """Return what no finished run leaves: unfinished files, open transactions, credentials."""
        found = []
        for path in (self.folder / "roots").rglob("*"):
            inside = str(path.relative_to(self.folder / "roots")).partition("/")[2]
            if (
                path.name.startswith(".ironspan-")
                or inside == "var/lib/ironspan/journal/open.jsonl"
                or inside.startswith("var/lib/ironspan/backup/")
                or inside == "var/lib/ironspan/kubeadm-attempt.json"
                or (inside.startswith("run/ironspan/") and path.is_file())
                or path.name == "bootstrap-kubelet.conf"
            ):
                found.append(str(path))
        return found


def _interpreter(folder: Path) -> Path:
    """Make a Python in a session of its own, as behind sshd: it does not end with the run."""
    path = folder / "python"
    path.write_text('#!/bin/sh\nexec setsid --wait /usr/bin/python3 "$@"\n')
    path.chmod(0o755)
    return path


def playbook() -> list[dict[str, t.Any]]:
    """Return site.yml as one playbook for hosts that are private roots."""
    plays: list[dict[str, t.Any]] = []
    for entry in yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text()):
        name = entry["ansible.builtin.import_playbook"]
        if name.removesuffix(".yml") not in PHASES:
            continue
        for play in yaml.safe_load((ROOT / "playbooks" / name).read_text()):
            for task in play["tasks"]:
                for action in ("ironspan.hybrid.converge", "ironspan.hybrid.validate"):
                    if action in task:
                        task[action]["roles_folder"] = str(ROLES)
                if "ironspan.hybrid.converge" in task:
                    task["ironspan.hybrid.converge"]["root"] = "{{ user_root }}"
            plays.append({**play, "vars": {**entry.get("vars", {}), **play.get("vars", {})}})
    return plays


def processes_of(run: str) -> list[int]:
    """Return the processes that belong to a run, whoever their parent is by now."""
    found = []
    mark = f"{RUN}={run}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def controllers_of(run: str) -> list[int]:
    """Return the processes of a run that are ansible-playbook's, workers included, or the command's."""
    found = []
    for process in processes_of(run):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith((b"/ansible-playbook", b"/ironspan")) for word in words):
            found.append(process)
    return found


def parent_of(process: int) -> int:
    """Return the number of a process's parent, 0 of one that has ended meanwhile: workers come and go."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait until something is so; fail with what it is when it does not become so."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def kill_all(run: str) -> None:
    """Kill everything of a run, as when its machine and its hosts lose power; return when all are gone."""
    until = time.monotonic() + 120
    while processes := processes_of(run):
        assert time.monotonic() < until, f"processes of {run} do not end: {processes}"
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
