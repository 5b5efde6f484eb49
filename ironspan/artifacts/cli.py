# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The commands ``ironspan artifacts build|fetch|verify|list|pin|sign|jobs-image``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import typing as t

if t.TYPE_CHECKING:
    from ironspan.artifacts import cache, inspect
    from ironspan.artifacts.environments import Environment
    from ironspan.artifacts.lock import Lock
    from ironspan.artifacts.system.declared import System

ITEM_HELP = (
    "NAME, NAME/VERSION or an image reference of the lock file; without any, everything this machine needs"
)


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``artifacts`` and what is below it."""
    parser = subparsers.add_parser(
        "artifacts",
        help="fill and check the mirror that hosts download from",
        description="The mirror is one folder with everything that a site's hosts download: programs, and "
        "container images in the form that the OCI pull API serves. artifacts.lock.yml says what is in it.",
        epilog="The mirror is $XDG_CACHE_HOME/ironspan/mirror (~/.cache/ironspan/mirror).",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    build = commands.add_parser(
        "build",
        help="fill the mirror: download what can be downloaded, build the rest",
        description="Make everything of the lock file that the mirror lacks. What is there and right (its "
        "digest is checked) is left alone; a run that was stopped goes on where it stopped. "
        "From nothing on two cores, building takes about 20 minutes and 12 GB of disk.",
    )
    build.add_argument(
        "--source",
        choices=("auto", "upstream", "go"),
        default="auto",
        help="upstream: official downloads, by pinned digest. go: build from Go modules (needs Go, gcc, "
        "libseccomp-dev, mmdebstrap). auto: upstream if its names resolve and the digest is pinned, else go",
    )
    build.add_argument("--rebuild", action="store_true", help="make it again even if the mirror has it")
    build.set_defaults(func=_fill)

    fetch = commands.add_parser(
        "fetch",
        help="fill the mirror from the official downloads only",
        description="The same as build --source upstream. An item whose digest nobody has pinned is an error "
        "that names the command to pin it; nothing is downloaded without a digest to check.",
    )
    for command in (build, fetch):
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME",
            help="also the items of this set of the lock file, for example `upgrade`: versions to move to",
        )
    fetch.add_argument("--rebuild", action="store_true", help="download it again even if the mirror has it")
    fetch.set_defaults(func=_fill, source="upstream")

    verify = commands.add_parser(
        "verify",
        help="read the whole mirror and compare every digest",
        description="Compare every byte of the mirror with its index, and the index with the lock file. Exit "
        "code 0: all right; 1: something is missing, outdated or damaged, and what to do is printed.",
    )
    verify.set_defaults(func=_verify)

    listing = commands.add_parser(
        "list",
        help="show what the lock file names and what the mirror has",
        description="Show each item with its state, size, source and licence. Only the index is read; "
        "`verify` reads the files.",
    )
    listing.set_defaults(func=_list)

    pin = commands.add_parser(
        "pin",
        help="look digests up and write them into the lock file",
        description="Ask upstream what it publishes now and write the digest into the lock file. Nothing "
        "vouches for it yet but the connection, so compare it with what the publisher "
        "announces before you commit it.",
    )
    pin.add_argument("--replace", action="store_true", help="replace a digest that is pinned already")
    pin.add_argument(
        "--modules",
        action="store_true",
        help="the names are components of the lock file: resolve their Go modules again",
    )
    pin.add_argument(
        "--wheels",
        action="store_true",
        help="the names are environments or systems of the lock file: resolve their wheels again",
    )
    pin.set_defaults(func=_pin)

    signing = commands.add_parser(
        "sign",
        help="sign images of the mirror",
        description="Put a signature beside each image, the way cosign does, so that nodes that want it "
        "signed (containerd_image_policy) take it. Signatures by other keys stay.",
    )
    signing.add_argument(
        "--key",
        type=pathlib.Path,
        required=True,
        metavar="FILE",
        help="private key (PEM, EC or RSA, no passphrase)",
    )
    signing.add_argument("images", nargs="+", metavar="IMAGE", help="REGISTRY/REPOSITORY:TAG or ...@DIGEST")
    signing.set_defaults(func=_sign)

    jobs = commands.add_parser(
        "jobs-image",
        help="make the image that jobs of a controller run in, without a container engine",
        description="Make the execution environment of docs/execution-environment.md from Debian packages "
        "and wheels that are checked by hash, and lay it into the mirror with its bill of materials.",
    )
    jobs.add_argument(
        "--requirements",
        type=pathlib.Path,
        default=pathlib.Path("execution-environment/requirements.txt"),
        metavar="FILE",
        help="wheels to put in, with hashes",
    )
    jobs.add_argument("--arch", choices=("amd64", "arm64"), help="of the image; this machine's by default")
    jobs.set_defaults(func=_jobs_image)

    for command in (build, fetch, pin):
        command.add_argument("names", nargs="+" if command is pin else "*", metavar="ITEM", help=ITEM_HELP)
    for command in (build, fetch, verify, listing, pin):
        command.add_argument("--lock", type=pathlib.Path, metavar="FILE", help="another lock file")
        command.add_argument(
            "--arch", choices=("amd64", "arm64"), help="the hosts' architecture; this machine's by default"
        )
    for command in (verify, listing):
        command.add_argument("--json", action="store_true", help="print one JSON object with all items")


def _fill(arguments: argparse.Namespace) -> int:
    from ironspan.artifacts import cache, fill, lock_file
    from ironspan.cli import console
    from ironspan.cli.outcome import Exit

    place = cache.Cache()
    with console.from_arguments(arguments) as show:
        filling = fill.Filling(
            lock_file.load(arguments.lock),
            place,
            arguments.source,
            arguments.arch,
            show.step,
            arguments.rebuild,
        )
        results = filling.run(arguments.names or None, arguments.set)
        counts = {
            state: sum(result.state == state for result in results) for state in ("done", "skip", "fail")
        }
        show.note(
            f"{place.mirror}: {counts['done']} made, {counts['skip']} were there, {counts['fail']} failed"
            + ("; run the same command again to go on" if counts["fail"] else "")
        )
    return int(Exit.FAILED if counts["fail"] else Exit.OK)


def _verify(arguments: argparse.Namespace) -> int:
    from ironspan.artifacts import inspect
    from ironspan.cli.outcome import Exit

    rows, place = _rows(arguments, thorough=True)
    wrong = inspect.problems(rows)
    if arguments.json:
        print(_json(rows, place, wrong))
    else:
        whole = sum(row.size for row in rows if row.state == "present")
        print(
            "\n".join(wrong) if wrong else f"{place.mirror}: everything is there and right ({_size(whole)})"
        )
    return int(Exit.FAILED if wrong else Exit.OK)


def _list(arguments: argparse.Namespace) -> int:
    from ironspan.artifacts import inspect

    rows, place = _rows(arguments, thorough=False)
    if arguments.json:
        print(_json(rows, place, inspect.problems(rows)))
        return 0
    table = [("ITEM", "STATE", "SOURCE", "SIZE", "PINNED", "LICENCE")]
    table += [
        (
            row.name,
            row.state,
            row.source or "-",
            _size(row.size) if row.size else "-",
            "yes" if row.pinned else "no",
            row.licence,
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(f"\nMirror: {place.mirror}")
    return 0


def _pin(arguments: argparse.Namespace) -> int:
    from ironspan.artifacts import cache, lock_file, pin
    from ironspan.artifacts.lock import native_arch
    from ironspan.cli import console
    from ironspan.cli.outcome import CommandError, Exit

    locked = lock_file.load(arguments.lock)
    with console.from_arguments(arguments) as show:
        if arguments.modules or arguments.wheels:
            known: dict[str, t.Any] = dict(locked.components)
            if arguments.wheels:
                known = {**locked.environments, **locked.systems}
            unknown = [name for name in arguments.names if name not in known]
            if unknown:
                raise CommandError(
                    f"no such {'component' if arguments.modules else 'environment'}: {', '.join(unknown)}",
                    f"The lock file has: {', '.join(known)}",
                    Exit.BAD_INPUT,
                )
            for name in arguments.names:
                show.step(name, "start", "resolving")
                if arguments.modules:
                    changed, what = pin.pin_modules(known[name]), "go.mod and go.sum written"
                else:
                    changed, what = _pin_wheels(known[name], locked), "wheels written into the lock"
                show.step(name, "done" if changed else "skip", what if changed else "unchanged")
            return int(Exit.OK)
        place = cache.Cache()
        arch = arguments.arch or native_arch()
        for item in locked.select(arguments.names):
            show.step(item.key, "start", "asking upstream")

            def say(detail: str, key: str = item.key) -> None:
                show.step(key, "start", detail)

            changed = pin.pin_digest(item, arch, locked, place, arguments.replace, say)
            show.step(item.key, "done" if changed else "skip", "pinned" if changed else "unchanged")
    return int(Exit.OK)


def _pin_wheels(environment: Environment | System, locked: Lock) -> bool:
    from ironspan.artifacts import wheels
    from ironspan.artifacts.environments import Environment
    from ironspan.artifacts.system import pins

    return wheels.pin(environment, locked) if isinstance(environment, Environment) else pins.pin(environment)


def _sign(arguments: argparse.Namespace) -> int:
    from ironspan.artifacts import cache, sign
    from ironspan.cli import console
    from ironspan.cli.outcome import Exit

    place = cache.Cache()
    key = sign.read_key(arguments.key)
    found = [(name, sign.image_of(name, place)) for name in arguments.images]
    with console.from_arguments(arguments) as show:
        for name, (repository, digest) in found:
            made = sign.sign(key, repository, digest, place)
            show.step(name, "done" if made else "skip", digest if made else "signed by this key already")
    return int(Exit.OK)


def _rows(arguments: argparse.Namespace, thorough: bool) -> tuple[list[inspect.Row], cache.Cache]:
    from ironspan.artifacts import cache, inspect, lock, lock_file

    place = cache.Cache()
    arch = arguments.arch or lock.native_arch()
    return inspect.look(lock_file.load(arguments.lock), place, arch, thorough), place


def _json(rows: list[inspect.Row], place: cache.Cache, wrong: list[str]) -> str:
    items = [dataclasses.asdict(row) for row in rows]
    return json.dumps({"mirror": str(place.mirror), "items": items, "problems": wrong}, ensure_ascii=False)


def _size(count: int) -> str:
    from ironspan.artifacts import cache

    return cache.readable_size(count)


def _jobs_image(arguments: argparse.Namespace) -> int:
    from ironspan.artifacts import cache, jobs_image
    from ironspan.artifacts.lock import native_arch
    from ironspan.cli.outcome import CommandError, Exit

    if not arguments.requirements.is_file():
        raise CommandError(
            f"there is no {arguments.requirements}",
            "run this in a checkout, or name the file",
            Exit.BAD_INPUT,
        )
    arch = arguments.arch or native_arch()
    laid, bill = jobs_image.build(
        arch, cache.Cache(), arguments.requirements, lambda text: print(f"== {text}", flush=True)
    )
    print(f"{jobs_image.NAME}@{laid.digest}: {cache.readable_size(laid.size)}; bill of materials: {bill}")
    return int(Exit.OK)
