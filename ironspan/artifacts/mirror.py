# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Serves the mirror with nginx: files under upstream's paths, images by the OCI pull API.

The nginx is one of its own, with configuration, log and pid file in a folder that the caller names. Nothing
of a system's nginx is touched, and only the process that the pid file proves to be ours is ever ended.
"""

from __future__ import annotations

import collections.abc
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import time

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.processes import started

from ironspan.artifacts import image
from ironspan.cli.outcome import CommandError, Exit

START_S = 60.0
"""Seconds that nginx has to answer with a pid file, or to end."""
STOP_S = 5.0
"""Seconds that nginx has to finish what it serves; then it is ended at once."""
CONFIGURATION = "nginx.conf"
PID = "nginx.pid"


def nginx_server_config(mirror_folder: str | pathlib.Path, listen: list[str]) -> str:
    """Return the ``server`` block that serves a mirror.

    Args:
        mirror_folder: the folder with ``index.json`` and ``v2``.
        listen: addresses with port, for example 10.98.0.1:8080.

    Raises:
        CommandError: an address or the folder cannot be written into a configuration (exit 2).
    """
    folder = _quoted(str(mirror_folder))
    listens = "\n".join(f"    listen {_address(address)};" for address in listen)
    return f"""server {{
{listens}
    server_name _;
    root {folder};
    default_type application/octet-stream;
    # Nothing is listed, nothing hidden is served: a file is asked for by its path or not at all.
    autoindex off;
    log_not_found off;
    location ~ /\\. {{
        return 404;
    }}
    location = /healthz {{
        access_log off;
        default_type text/plain;
        return 200 "ok\\n";
    }}
    location = /index.json {{
        default_type application/json;
        add_header Cache-Control no-cache;
    }}
    # The OCI pull API. Where a manifest lies says which of the two media types it has.
    location = /v2/ {{
        default_type application/json;
        add_header Docker-Distribution-Api-Version registry/2.0 always;
        return 200 "{{}}";
    }}
    location ~ ^/v2/.+/manifests/[^/]+$ {{
        types {{ }}
        default_type {image.MANIFEST};
        add_header Docker-Distribution-Api-Version registry/2.0 always;
        try_files $uri @docker_manifest;
    }}
    location @docker_manifest {{
        types {{ }}
        default_type {image.DOCKER_MANIFEST};
        add_header Docker-Distribution-Api-Version registry/2.0 always;
        rewrite ^(/v2/.+)/manifests/([^/]+)$ $1/{image.MANIFEST_FOLDERS[image.DOCKER_MANIFEST]}/$2 break;
    }}
    location ~ ^/v2/.+/blobs/[^/]+$ {{
        types {{ }}
        default_type application/octet-stream;
        add_header Docker-Distribution-Api-Version registry/2.0 always;
    }}
}}
"""


class Mirror:
    """An nginx of our own over one mirror folder.

    Args:
        folder: the mirror (see ``ironspan.artifacts.ensure``).
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)

    def configuration(self, state: pathlib.Path, listen: list[str]) -> str:
        """Return the whole nginx configuration."""
        # As root, nginx would serve as another user, who cannot read a cache below a home folder. The
        # folder's owner can; for other users than root nginx ignores the line, and warns.
        user = f"user {pwd.getpwuid(self.folder.stat().st_uid).pw_name};\n" if os.geteuid() == 0 else ""
        place = _quoted(str(state))
        temporary = "\n".join(
            f"    {kind}_temp_path {place}/nginx-{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        return f"""# Written by ironspan; changes are lost.
{user}worker_processes 1;
pid {place}/{PID};
error_log {place}/nginx-error.log warn;
events {{
    worker_connections 512;
}}
http {{
    access_log {place}/nginx-access.log;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 30;
    server_tokens off;
{temporary}
{nginx_server_config(self.folder, listen)}}}
"""

    def start(self, state: str | pathlib.Path, listen: list[str]) -> int:
        """Start serving, or go on when it serves the same already; a changed configuration restarts it.

        Args:
            state: folder for configuration, pid file and logs; made when missing.
            listen: addresses with port. They must exist on this machine.

        Returns:
            The process id of nginx's master.

        Raises:
            CommandError: nginx is not installed, or cannot listen; the message has what it said.
        """
        folder = pathlib.Path(state).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        wanted = self.configuration(folder, listen)
        path = folder / CONFIGURATION
        running = self.running(folder)
        changed = not path.exists() or path.read_text(encoding="utf-8") != wanted
        if running is not None and not changed:
            return running
        path.write_text(wanted, encoding="utf-8")
        if running is not None:
            # Not a reload: one that cannot have a new address keeps the old ones and says so only in the log.
            self.stop(folder)
        self._nginx(folder)
        return self._started(folder)

    def stop(self, state: str | pathlib.Path) -> bool:
        """Stop serving.

        Args:
            state: the folder given to ``start``.

        Returns:
            Whether an nginx of this folder was running.
        """
        folder = pathlib.Path(state).resolve()
        process = self.running(folder)
        if process is None:
            return False
        for number, patience in (
            (signal.SIGQUIT, STOP_S),
            (signal.SIGTERM, STOP_S),
            (signal.SIGKILL, STOP_S),
        ):
            workers = _children(process)
            try:
                os.kill(process, number)
            except ProcessLookupError:
                break
            if _wait(lambda: self.running(folder) is None, patience):
                if number == signal.SIGKILL:
                    _end(workers)
                break
        (folder / PID).unlink(missing_ok=True)
        return True

    def running(self, state: str | pathlib.Path) -> int | None:
        """Return the process id of this folder's nginx, None when it does not run."""
        folder = pathlib.Path(state).resolve()
        try:
            process = int((folder / PID).read_text(encoding="ascii"))
            command = pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        if not started(process):
            return None
        # The number may meanwhile be another process: only one started with our configuration is ours.
        return process if str(folder / CONFIGURATION).encode() in command else None

    def _started(self, folder: pathlib.Path) -> int:
        process = _wait(lambda: self.running(folder), START_S)
        if process is None:
            raise CommandError("nginx ended right after its start", f"See {folder}/nginx-error.log.")
        return process

    def _nginx(self, folder: pathlib.Path) -> None:
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if program is None:
            raise CommandError(
                "nginx is not installed", "Install it: apt-get install -y nginx-light", Exit.BAD_INPUT
            )
        place = str(folder)
        answer = subprocess.run(
            [program, "-p", place, "-c", f"{place}/{CONFIGURATION}", "-e", f"{place}/nginx-error.log"],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if answer.returncode != 0:
            raise CommandError(
                f"nginx does not start:\n  {answer.stderr.strip()}",
                "An address must be one of this machine's, and its port must be free.",
            )


def _wait[Found](condition: collections.abc.Callable[[], Found], patience: float) -> Found:
    """Return what a condition comes to: what is true in time, or else what it said last."""
    limit = time.monotonic() + patience
    while not (found := condition()) and time.monotonic() <= limit:
        time.sleep(0.02)
    return found


def _children(process: int) -> list[int]:
    try:
        text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(number) for number in text.split()]


def _end(processes: list[int]) -> None:
    for process in processes:
        try:
            if b"nginx" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)
        except OSError:
            continue


def _quoted(text: str) -> str:
    """Refuse what would need quoting: a mirror's path has none of it in practice."""
    if any(character in text for character in " \t\n\"'\\;{}$#"):
        raise CommandError(
            f"nginx cannot serve from {text!r}: it has a character that is special there", "", Exit.BAD_INPUT
        )
    return text


def _address(text: str) -> str:
    """Check ADDRESS:PORT ([ADDRESS]:PORT for IPv6)."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or not 0 < int(port) < 65536:
        raise CommandError(f"{text!r} is not ADDRESS:PORT", "For example 10.98.0.1:8080.", Exit.BAD_INPUT)
    return _quoted(text)
