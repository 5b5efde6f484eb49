#!/usr/bin/python3
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Describes the GPUs of this host to containerd, in the form of the Container Device Interface (CDI).

nvidia-ctk finds them. Written and started by ironspan, at each boot and after each change; Python 3.9 and its
standard library only. Exit status 1 when there is a driver and its GPUs cannot be described.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import typing as t

CTK, HOOK = "/usr/local/bin/nvidia-ctk", "/usr/local/bin/nvidia-cdi-hook"
DRIVER = "/proc/driver/nvidia/version"
CHARACTER_DEVICES = "/dev/char"
SPEC = "/run/cdi/nvidia.json"
"""In /run: what a driver of before described is gone after a boot."""
SECONDS = 120
VERSION = re.compile(r"\b[0-9]{3}\.[0-9]{1,3}(\.[0-9]{2})?\b")


class Failed(Exception):
    """The GPUs could not be described."""


def run(*argv: str) -> str:
    """Return what a program printed.

    Raises:
        Failed: it failed, or did not end in time.
    """
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{argv[0]} took more than {SECONDS} s: a GPU may hang") from None
    except OSError as error:
        raise Failed(f"{argv[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise Failed(f"{' '.join(argv[:3])} ended with status {done.returncode}: {lines[-1]}")
    return done.stdout.decode("utf-8", "replace")


def running_driver(path: str = DRIVER) -> str:
    """Return the version of the driver that is loaded, empty when none is."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            found = VERSION.search(stream.read())
    except OSError:
        return ""
    return found.group() if found else "unknown"


def devices(text: str) -> t.List[str]:
    """Return the names of the devices that a specification has.

    Raises:
        Failed: it is none, or has no device.
    """
    try:
        spec = json.loads(text)
        names = [str(device["name"]) for device in spec["devices"]]
    except (ValueError, KeyError, TypeError):
        raise Failed("nvidia-ctk printed no specification") from None
    if not names or not spec.get("cdiVersion"):
        raise Failed("nvidia-ctk found no GPU, and the driver is loaded")
    return names


def link(text: str) -> None:
    """Link the devices of a specification below /dev/char, where systemd looks for what a unit may use.

    Without these links a daemon-reload of systemd takes devices away from containers that have them.
    nvidia-ctk makes them for cards that it finds on the PCI bus; these are for all that containers get.

    Raises:
        Failed: a device has no path.
        OSError: a link cannot be made.
    """
    spec = json.loads(text)
    try:
        edits = [part.get("containerEdits") or {} for part in (spec, *spec["devices"])]
        nodes = [node for edit in edits for node in edit.get("deviceNodes") or ()]
        paths = {str(node.get("hostPath") or node["path"]) for node in nodes}
    except (AttributeError, KeyError, TypeError):
        raise Failed("nvidia-ctk printed devices without paths") from None
    for path in sorted(paths):
        try:
            found = os.stat(path)
        except OSError:
            continue  # containerd names it when a container wants it.
        if stat.S_ISCHR(found.st_mode):
            name = f"{CHARACTER_DEVICES}/{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
            os.makedirs(CHARACTER_DEVICES, exist_ok=True)
            if not os.path.lexists(name):
                os.symlink(os.path.relpath(path, CHARACTER_DEVICES), name)


def write(path: str, text: str) -> bool:
    """Write a file as a whole, and tell whether it was another one."""
    try:
        with open(path, encoding="utf-8") as stream:
            if stream.read() == text:
                return False
    except (OSError, UnicodeDecodeError):
        pass
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # containerd reads files that end in .json or .yaml, so it never sees half of one.
    descriptor, temporary = tempfile.mkstemp(prefix=".ironspan-", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def remove(path: str) -> None:
    """Remove a file, if there is one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def main() -> int:
    """Describe the GPUs, or remove the description where there is no driver."""
    driver = running_driver()
    if not driver:
        remove(SPEC)
        print("no driver is loaded, so there are no GPUs to describe")
        return 0
    try:
        run(CTK, "system", "create-dev-char-symlinks", "--create-all")
        text = run(CTK, "cdi", "generate", "--format=json", f"--nvidia-cdi-hook-path={HOOK}")
        names = devices(text)
        link(text)
    except (Failed, OSError) as failed:
        # What is there describes another driver, or GPUs that are gone.
        remove(SPEC)
        print(failed, file=sys.stderr)
        return 1
    changed = write(SPEC, text)
    print(f"driver {driver}: {', '.join(names)}{'' if changed else ', as before'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
