# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan init``: asks at most ten questions and writes a first inventory, which is valid."""

from __future__ import annotations

import argparse
import pathlib
import sys
import typing as t

FOLDER = "inventories/NAME"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``init`` command."""
    parser = subparsers.add_parser(
        "init",
        help="write a first inventory from ten answers; contacts nobody",
        description="Ask at most ten questions and write a commented inventory that `ironspan validate` "
        "accepts. An option or a file answers a question before it is asked. A key for the PKI store is made "
        "in ~/.config/ironspan. Nothing that is there is overwritten.",
    )
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help=f"to write into ({FOLDER})")
    parser.add_argument("--answers", metavar="FILE", help="YAML file with answers, by the options' names")
    parser.add_argument(
        "--yes", action="store_true", help="ask nothing; what is not answered has its default"
    )
    for name, text in _OPTIONS.items():
        parser.add_argument(f"--{name}", metavar="ANSWER", help=text)
    parser.set_defaults(func=run)


_OPTIONS: t.Final = {
    "name": "name of the cluster (first)",
    "members": "control planes in Azure, with etcd: 1, 3 or 5 (3)",
    "azure-first": "address of the first of them (10.20.0.11)",
    "endpoint": "name under which the API is found (api.example.internal)",
    "endpoint-address": "address behind it (10.20.0.10)",
    "racks": "racks on premises, 1 to 20 (1)",
    "nodes": "workers in each, 1 to 40 (4)",
    "rack-first": "address of the first worker; each rack has its own /24 (10.30.1.11)",
    "gpu": "whether they have NVIDIA GPUs, yes or no (yes)",
    "mirror": "URL of the mirror (http://mirror.example.internal:8080)",
}
"""The questions, in short. They stand here so that ``ironspan --help`` imports no more; a test compares."""


def run(arguments: argparse.Namespace) -> int:
    """Ask, write, and return the exit code."""
    from ironspan.cli import first_site
    from ironspan.cli.outcome import CommandError, Exit

    given = _of_file(arguments.answers) if arguments.answers else {}
    given |= {
        name: value for name in _OPTIONS if (value := getattr(arguments, name.replace("-", "_"))) is not None
    }
    missing = [question for question in first_site.QUESTIONS if question.name not in given]
    if missing and not arguments.yes:
        if not sys.stdin.isatty():
            raise CommandError(
                f"not answered: {', '.join(question.name for question in missing)}",
                "give options or --answers FILE, or --yes for the defaults",
                Exit.BAD_INPUT,
            )
        for question in missing:
            given[question.name] = _asked(question)
    found = first_site.checked(given)
    folder = pathlib.Path(arguments.folder or FOLDER.replace("NAME", found["name"]))
    key = pathlib.Path(first_site.key_file(found)).expanduser()
    _write(folder, first_site.files(found), key)
    sys.stdout.write(
        f"{key} is the key of the PKI store. Keep a copy of it, away from the store's backup.\n"
        f"{folder} is written and valid. Read it, then:\n"
        f"  ironspan validate -i {folder}\n"
        f"  ironspan plan -i {folder} -o {found['name']}.plan\n"
    )
    return int(Exit.OK)


def _asked(question: t.Any) -> str:
    from ironspan.cli.first_site import Wrong

    while True:
        text = input(f"{question.text} [{question.default}]: ").strip() or question.default
        try:
            question.read(text)
        except Wrong as wrong:
            sys.stdout.write(f"  {wrong}\n")
        else:
            return str(text)


def _of_file(name: str) -> dict[str, str]:
    import yaml

    from ironspan.cli.outcome import CommandError, Exit

    try:
        data = yaml.safe_load(pathlib.Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"{name} cannot be read: {error}", code=Exit.BAD_INPUT) from error
    if not isinstance(data, dict):
        raise CommandError(f"{name} is no mapping", "write lines such as racks: 2", Exit.BAD_INPUT)
    words = {True: "yes", False: "no"}
    return {str(key): words[value] if isinstance(value, bool) else str(value) for key, value in data.items()}


def _write(folder: pathlib.Path, files: dict[str, str], key: pathlib.Path) -> None:
    """Write the files into a new folder, all or none, after the site's own checks of them."""
    import base64
    import os
    import shutil
    import tempfile

    from ironspan.cli.inventory import read_site
    from ironspan.cli.outcome import CommandError, Exit

    if folder.exists() or folder.is_symlink():
        raise CommandError(
            f"{folder} is there already", "name another folder; nothing is overwritten", Exit.BAD_INPUT
        )
    new_key = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with open(key, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as handle:
                new_key = True
                handle.write(base64.b64encode(os.urandom(32)) + b"\n")
        except FileExistsError:
            pass  # Of a site of this name that was begun before.
        made = pathlib.Path(tempfile.mkdtemp(prefix=".init-", dir=folder.parent))
        try:
            for name, text in files.items():
                path = made / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            read_site([str(made)])
            made.chmod(0o755)
            os.rename(made, folder)  # noqa: PTH104 - fails where somebody made it meanwhile and put something in
            new_key = False
        finally:
            if new_key:
                key.unlink(missing_ok=True)
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}", code=Exit.BAD_INPUT) from error
