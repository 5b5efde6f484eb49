# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs a playbook through ansible-runner and shows it by phase and host."""

from __future__ import annotations

import collections.abc
import configparser
import contextlib
import datetime
import os
import pathlib
import re
import shlex
import signal
import sys
import tempfile
import types
import typing as t

import ironspan
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.report import Run

if t.TYPE_CHECKING:
    from ironspan.cli.console import Console

ANSI = re.compile(r"\x1b\[[0-9;]*m")
HOSTS_SHOWN = 40
"""With more hosts than this a phase shows only its failures and one line of counts."""
LOGS_KEPT = 20
REPORTED = "IRONSPAN_REPORTED"
"""In the environment of Ansible: ironspan itself writes the report of this run."""
LONGEST_RESULT = 1 << 30
"""Characters of a task's result. ansible-runner's own limit, 700,000, is less than 165 objects of AWX."""


def project_folder(start: pathlib.Path | None = None) -> pathlib.Path:
    """Return the project: the folder with ``ansible.cfg`` and ``playbooks/`` at or above ``start``.

    Falls back to the checkout that this package was installed from. Raises CommandError if neither is there.
    """
    origin = pathlib.Path(ironspan.__file__).resolve().parent.parent
    here = (start or pathlib.Path.cwd()).resolve()
    for folder in (here, *here.parents, origin):
        if (folder / "ansible.cfg").is_file() and (folder / "playbooks" / "site.yml").is_file():
            return folder
    raise CommandError(
        f"no ironspan project at or above {here}",
        "run this in a checkout of the project (the folder that holds ansible.cfg and playbooks/)",
        Exit.BAD_INPUT,
    )


def inventories(given: list[str], project: pathlib.Path) -> list[pathlib.Path]:
    """Return the inventories to read: those given, else the one that the project's ansible.cfg names."""
    if given:
        return [pathlib.Path(name).resolve() for name in given]
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(project / "ansible.cfg")
    names = settings.get("defaults", "inventory", fallback="inventories")
    return [project / name.strip() for name in names.split(",")]


def insist_on_whole(sources: collections.abc.Sequence[pathlib.Path]) -> None:
    """Refuse an inventory that Ansible would read only in part, before Ansible is started.

    Raises:
        CommandError: it has such problems (exit 2).
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import read_marks
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import said_of

    # Whether there is a password for what is encrypted is for Ansible to say.
    marks = read_marks([str(source) for source in sources])
    if misread := [*marks.missing, *marks.misread]:
        raise CommandError(said_of(sorted(misread)), code=Exit.BAD_INPUT)


def log_folder() -> pathlib.Path:
    """Return the folder of logs and reports, below the user's state folder; it may not be there yet."""
    state = pathlib.Path(os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state")
    return state / "ironspan" / "log"


def log_file(command: str, folder: pathlib.Path | None = None) -> pathlib.Path:
    """Return a new log file; the command's oldest logs in its folder beyond 20 go, with their reports.

    Args:
        command: of which it is.
        folder: of the logs; that of the user by default.
    """
    from ironspan.cli.run_record import DATA, LIVE, PAGE

    folder = folder or log_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    endings = (PAGE, DATA, LIVE, ".log")
    files = [path for path in folder.glob(f"{command}-[0-9]*") if path.suffix in endings]
    for old in sorted({path.with_suffix("") for path in files})[: -LOGS_KEPT + 1]:
        for suffix in endings:
            old.with_name(f"{old.name}{suffix}").unlink(missing_ok=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return folder / f"{command}-{stamp}.log"


def log_of_user(command: str) -> pathlib.Path:
    """Return a new log file in the user's folder.

    Raises:
        CommandError: the folder cannot be made.
    """
    folder = log_folder()
    try:
        return log_file(command, folder)
    except OSError as error:
        problem = f"no log can be written to {folder}: {error.strerror}"
        remedy = "let XDG_STATE_HOME name a folder that you may write to"
        raise CommandError(problem, remedy, code=Exit.BAD_INPUT) from error


class PlaybookRun:
    """One run of one playbook.

    Args:
        playbook: path of the playbook.
        arguments: options for ``ansible-playbook``, for example ``["--limit", "rack-1"]``.
        console: where progress goes.
        log: file that receives Ansible's own output.
        verbose: show Ansible's own output instead of the progress display.
        environment: more variables of the environment.
    """

    def __init__(
        self,
        playbook: pathlib.Path,
        arguments: collections.abc.Sequence[str],
        console: Console,
        log: pathlib.Path,
        verbose: bool = False,
        environment: collections.abc.Mapping[str, str] | None = None,
    ) -> None:
        # What only runs need is imported when there is one.
        from ironspan.cli.run_record import Recorder

        self.playbook = playbook
        self.arguments = list(arguments)
        self.console = console
        self.log = log
        self.verbose = verbose
        self.environment = dict(environment or {})
        self.run = Run(again=shlex.join(["ironspan", *sys.argv[1:]]))
        self.recorder = Recorder(self.run, playbook.stem, self.arguments, log, ["ironspan", *sys.argv[1:]])
        self.page = ""
        """Path of the run's page, or why there is none."""
        self.output: list[str] = []
        self._interrupts = 0
        self._process = 0

    def execute(self, project: pathlib.Path) -> Exit:
        """Run the playbook in the project folder and return how it ended.

        Raises:
            CommandError: Ansible would read the inventory only in part (exit 2).
        """
        given = [
            value for option, value in zip(self.arguments, self.arguments[1:], strict=False) if option == "-i"
        ]
        insist_on_whole(inventories(given, project))
        code = Exit.UNFINISHED
        try:
            code = self._ansible(project)
        finally:
            self.page = self.recorder.finish(code)
        return code

    def _ansible(self, project: pathlib.Path) -> Exit:
        import ansible_runner
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import children_bound

        # Events pass through files; they go to a private folder in memory where there is one.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with (
            tempfile.TemporaryDirectory(prefix="ironspan-run-", dir=memory) as private,
            self._interruptible(),
            children_bound(),
            open(self.log, "w", encoding="utf-8", opener=_private_opener) as log,
        ):

            def handle(event: dict[str, t.Any]) -> bool:
                self._handle(event, log)
                return False

            result = ansible_runner.run(
                private_data_dir=private,
                project_dir=str(project),
                playbook=str(self.playbook),
                cmdline=shlex.join(self.arguments) or None,
                event_handler=handle,
                cancel_callback=lambda: self._interrupts > 1,
                fact_cache_type="memory",
                quiet=True,
                settings={"pexpect_timeout": 1, "suppress_ansible_output": True},
                envvars={
                    "PATH": os.pathsep.join(
                        [str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]
                    ),
                    # Found without being named, but not in a folder that everybody may write to.
                    "ANSIBLE_CONFIG": str(project / "ansible.cfg"),
                    # ansible-runner turns host key checking off unless told otherwise.
                    "ANSIBLE_HOST_KEY_CHECKING": "True",
                    # It empties what is longer: changes, notes and failures of a task would be lost.
                    "MAX_EVENT_RES": str(LONGEST_RESULT),
                    REPORTED: "1",
                    **self.environment,
                },
            )
        return self.run.exit_code(None if result.rc is None else int(result.rc), self._interrupts > 0)

    def _handle(self, event: dict[str, t.Any], log: t.TextIO) -> None:
        self._process = self._process or int(event.get("pid") or 0)
        text = ANSI.sub("", str(event.get("stdout") or "")).replace("\r\n", "\n")
        if text:
            print(text, file=log, flush=True)
            self.output.append(text)
            del self.output[:-50]
        outcome = self.run.take(event)
        self.recorder.take(event)
        self.recorder.tell(force=bool(outcome and outcome.phase))
        if self.verbose:
            if text:
                self.console.note(text)
            return
        if event.get("event") == "runner_on_file_diff" and text.strip():
            self.console.note(text)
        if outcome is None:
            return
        if outcome.phase:
            self._close()
            self.console.phase(outcome.phase)
            return
        crowded = len(self.run.phases[-1].hosts) > HOSTS_SHOWN
        if outcome.state == "start" and self.console.mode == "plain":
            return
        if outcome.state == "left":
            self.console.drop(outcome.host)
            return
        if outcome.state == "fail" or not crowded:
            self.console.step(outcome.host, outcome.state, outcome.detail)

    def _close(self) -> None:
        """Show the counts of a phase that had too many hosts to list."""
        phases = self.run.phases[:-1]
        if phases and len(phases[-1].hosts) > HOSTS_SHOWN:
            changed = sum(1 for count in phases[-1].hosts.values() if count)
            self.console.note(f"  {len(phases[-1].hosts)} hosts, {changed} changed")

    @contextlib.contextmanager
    def _interruptible(self) -> collections.abc.Iterator[None]:
        """Pass the first Ctrl-C (or SIGTERM) on to Ansible, which ends its workers; the second one kills it.

        ansible-playbook runs in a session of its own, so a terminal's Ctrl-C reaches only this process.
        """

        def stop(number: int, frame: types.FrameType | None) -> None:
            self._interrupts += 1
            self.console.note("stopping; the next run resumes (press again to kill)")
            if self._process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(os.getpgid(self._process), signal.SIGINT)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def run_playbook(
    command: str,
    playbook: str,
    arguments: collections.abc.Sequence[str],
    console: Console,
    verbose: bool = False,
    environment: collections.abc.Mapping[str, str] | None = None,
) -> tuple[Exit, PlaybookRun]:
    """Run a playbook of the project and print its summary.

    Args:
        command: the ironspan command, names the log file.
        playbook: a path, or the name of a playbook in ``playbooks/``.
        arguments: options for ``ansible-playbook``.
        console: where progress goes.
        verbose: show Ansible's own output.
        environment: more variables of the environment.

    Returns:
        How it ended, and the run with its events.
    """
    project = project_folder()
    path = find_playbook(playbook, project)
    running = PlaybookRun(path, arguments, console, log_of_user(command), verbose, environment)
    with console:
        code = running.execute(project)
    if console.mode == "json":
        kept = {"log": str(running.log), "report": running.page}
        console.event("end", code=int(code), **kept, **running.run.as_dict())
        return code, running
    if code != Exit.OK and not running.run.failures:
        # Ansible ended before or beside the hosts: its last words are all there is to say.
        console.note("\n".join(running.output[-10:]).strip())
    for line in running.run.summary():
        console.note(line)
    console.note(f"log: {running.log}")
    console.note(f"report: {running.page}")
    return code, running


def find_playbook(name: str, project: pathlib.Path) -> pathlib.Path:
    """Return the playbook's path: as given, or in the project's ``playbooks`` folder with or without .yml."""
    given = pathlib.Path(name)
    inside = project / "playbooks"
    for candidate in (given, inside / name, inside / f"{name}.yml"):
        if candidate.is_file():
            return candidate.resolve()
    known = ", ".join(sorted(path.stem for path in inside.glob("*.yml")))
    raise CommandError(f"no playbook {name}", f"give a path or one of: {known}", Exit.BAD_INPUT)
