# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs a command as on a machine that was used for other things: foreign caches, settings and variables.

``python -m tests.support.hostile_home COMMAND...`` makes a home folder full of what other projects leave
behind, and runs the command in it. What the project says of itself must hold there, too.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

NOWHERE = "http://127.0.0.1:9"
"""A proxy and a registry at which nobody listens."""
LOCALE = "de_DE.UTF-8"
UMASK = 0o077
KEPT = (".cache/ironspan", ".cache/go-build", "go/pkg/mod/cache")
"""What the user's own home has of this project: a used machine has it, too."""

FILES = {
    ".ansible.cfg": """\
[defaults]
inventory = /nowhere/hosts
collections_path = /nowhere/collections
roles_path = /nowhere/roles
hash_behaviour = merge
gathering = implicit
stdout_callback = minimal
remote_user = nobody
any_errors_fatal = False
[privilege_escalation]
become = True
become_method = su
""",
    ".ssh/config": """\
Host *
  User nobody
  Port 2222
  ProxyCommand /bin/false
  IdentityFile /nowhere/key
  StrictHostKeyChecking ask
  UserKnownHostsFile /nowhere/known_hosts
  BatchMode no
  RequestTTY force
""",
    ".gitconfig": f"""\
[user]
  useConfigOnly = true
[commit]
  gpgSign = true
[init]
  defaultBranch = trunk
[core]
  autocrlf = true
  hooksPath = /nowhere/hooks
  fsmonitor = /nowhere/monitor
  quotePath = false
[color]
  ui = always
[status]
  showUntrackedFiles = no
[diff]
  noprefix = true
[url "{NOWHERE}/"]
  insteadOf = https://
""",
    ".npmrc": f"registry={NOWHERE}/\nignore-scripts=false\nengine-strict=true\nsave-exact=false\n",
    ".npm/_cacache/index-v5/00/00/foreign": "not what npm wrote\n",
    ".config/go/env": "GOFLAGS=-mod=vendor\nGO111MODULE=off\nGOAMD64=v4\nGOWORK=/nowhere/go.work\n",
    ".config/yamllint/config": "extends: relaxed\nrules: {line-length: {max: 20}}\n",
    ".config/ruff/ruff.toml": "line-length = 20\n",
    ".config/mypy/config": "[mypy]\npython_version = 3.9\n",
    ".kube/config": "apiVersion: v1\nkind: Config\ncurrent-context: foreign\nclusters: []\n",
    ".curlrc": f'proxy = "{NOWHERE}"\n',
    ".wgetrc": f"use_proxy = on\nhttp_proxy = {NOWHERE}\n",
    ".netrc": "machine 10.98.0.1 login nobody password foreign\n",
    # As other builds leave it behind: an older release, which lacks fields and messages.
    "go/pkg/mod/go.etcd.io/etcd/api/v3@v3.5.10/etcdserverpb/rpc.proto": "message X {\n}\n",
    "go/pkg/mod/go.etcd.io/etcd/api/v3@v3.5.10/mvccpb/kv.proto": "message Y {\n}\n",
}

VARIABLES = {
    # Another project's Ansible.
    "ANSIBLE_CONFIG": "/nowhere/ansible.cfg",
    "ANSIBLE_INVENTORY": "/nowhere/hosts",
    "ANSIBLE_COLLECTIONS_PATH": "/nowhere/collections",
    "ANSIBLE_ROLES_PATH": "/nowhere/roles",
    "ANSIBLE_LIBRARY": "/nowhere/library",
    "ANSIBLE_HASH_BEHAVIOUR": "merge",
    "ANSIBLE_GATHERING": "implicit",
    "ANSIBLE_STRATEGY": "free",
    "ANSIBLE_FORKS": "1",
    "ANSIBLE_STDOUT_CALLBACK": "minimal",
    "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.tree",
    "ANSIBLE_REMOTE_USER": "nobody",
    "ANSIBLE_REMOTE_PORT": "2222",
    "ANSIBLE_BECOME": "True",
    "ANSIBLE_BECOME_METHOD": "su",
    "ANSIBLE_SSH_ARGS": "-o ProxyCommand=/bin/false",
    "ANSIBLE_SSH_COMMON_ARGS": "-o Port=2222",
    "ANSIBLE_PIPELINING": "False",
    "ANSIBLE_PYTHON_INTERPRETER": "/nowhere/python",
    "ANSIBLE_KEEP_REMOTE_FILES": "True",
    "ANSIBLE_FORCE_COLOR": "True",
    # Another cluster, another cloud.
    "KUBECONFIG": "/nowhere/kubeconfig",
    "AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000001",
    "AZURE_TENANT_ID": "00000000-0000-0000-0000-000000000002",
    "AZURE_CLIENT_SECRET": "foreign",
    "ETCDCTL_ENDPOINTS": NOWHERE,
    "CONTAINERD_ADDRESS": "/nowhere/containerd.sock",
    "HELM_NAMESPACE": "foreign",
    # Another Go, another npm.
    "GO111MODULE": "off",
    "GOAMD64": "v4",
    "GOFLAGS": "-mod=vendor",
    "GOWORK": "/nowhere/go.work",
    "npm_config_registry": f"{NOWHERE}/",
    # Another network, place and time.
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE),
    "TZ": "Pacific/Chatham",
    "SSH_AUTH_SOCK": "/nowhere/agent",
    "SSH_ASKPASS": "/bin/false",
    "SYSTEMD_PAGER": "/bin/false",
    "GREP_COLORS": "mt=01;31",
    "COLUMNS": "20",
}
REMOVED = ("GOPATH", "GOMODCACHE", "GOENV", "no_proxy", "NO_PROXY", "LC_MESSAGES", "LANGUAGE")
SETTLED = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")


def make(home: pathlib.Path, own: pathlib.Path) -> dict[str, str]:
    """Make a used home folder.

    Args:
        home: an empty folder.
        own: the user's real home, whose caches of this project stay in use.

    Returns:
        The variables of a shell there.
    """
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (home / ".ssh").chmod(0o700)
    (home / ".ssh/config").chmod(0o600)
    for name in KEPT:
        if (own / name).is_dir():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(own / name)
    modules = home / "go/pkg/mod"
    for path in (own / "go/pkg/mod/go.etcd.io/etcd/api").glob("v3@*"):
        target = modules / path.relative_to(own / "go/pkg/mod")
        if not target.exists():
            target.symlink_to(path)
    kept = {name: value for name, value in os.environ.items() if name not in (*REMOVED, *SETTLED)}
    kept = {name: value for name, value in kept.items() if not name.startswith("LC_")}
    return {**kept, **VARIABLES, **_locale(home), "HOME": str(home)}


def _locale(home: pathlib.Path) -> dict[str, str]:
    """Return the variables of another language; POSIX where this machine cannot make it."""
    target = home / ".locales" / LOCALE
    target.parent.mkdir()
    if shutil.which("localedef"):
        done = subprocess.run(
            ["localedef", "-i", LOCALE.partition(".")[0], "-f", "UTF-8", str(target)],
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return {"LC_ALL": LOCALE, "LANG": LOCALE, "LOCPATH": str(target.parent)}
    return {"LC_ALL": "POSIX", "LANG": "POSIX"}


def command_line(home: pathlib.Path, command: list[str]) -> list[str]:
    """Return the command; as root with the home in the list of users, which OpenSSH reads instead of HOME."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return command
    own = pwd.getpwuid(os.geteuid())
    lines = pathlib.Path("/etc/passwd").read_text(encoding="utf-8").splitlines(keepends=True)
    theirs = f":{own.pw_dir}:{own.pw_shell}"
    users = home / "passwd"
    users.write_text(
        "".join(
            line.replace(theirs, f":{home}:{own.pw_shell}") if line.startswith(f"{own.pw_name}:") else line
            for line in lines
        )
    )
    users.chmod(0o644)
    private = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*private, "true"], capture_output=True, check=False).returncode != 0:
        return command
    return [*private, "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(users), *command]


def main(command: list[str]) -> int:
    """Run a command in a used home and return its exit status."""
    # Not below the folder for temporary files of tests: sockets there have no long names to spare.
    with tempfile.TemporaryDirectory(prefix="ironspan-home-") as made:
        home = pathlib.Path(made)
        home.chmod(0o755)
        environment = make(home, pathlib.Path.home())
        where = "de_DE" if environment["LC_ALL"] == LOCALE else "POSIX"
        print(f"== A used machine: {home}, {where}, {VARIABLES['TZ']}, umask {UMASK:03o}", flush=True)
        return subprocess.run(
            command_line(home, command), env=environment, umask=UMASK, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
