# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Disks with two roots: the image, the boot loader's choice, what ends a trial, and the checks of a start."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ironspan.artifacts.system import declared, disk, slots, tree
from ironspan.artifacts.system.boot_slots import checks, program
from ironspan.artifacts.system.boot_slots import state as boot_slots
from ironspan.artifacts.system.boot_slots.checks import Machine
from ironspan.artifacts.system.boot_slots.state import FIRST, SlotError, State

from .test_system import EPOCH, REAL, SERVER, own_files, read, small_tree, system


@pytest.fixture
def own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Give systems files of the test's own; return their folder."""
    return own_files(tmp_path, monkeypatch)


SSH = "ssh: no server answers on port 22"
STUBS = """\
set() { printf -v "${1%%=*}" '%s' "${1#*=}"; }
serial() { :; }
terminal_input() { :; }
terminal_output() { :; }
search() { case "$4" in EFI) esp=efi;; A) slot_a=a;; B) slot_b=b;; esac; }
load_env() { [ "$2" = "(efi)/ironspan/slots.env" ] && . ./env; }
save_env() { shift 2; for name in "$@"; do saved="$saved $name"; done; }
configfile() {
    echo "boots $1" >&3
    for name in good trial left bad_a bad_b; do echo "$name=${!name}" >&3; done
    for name in $saved; do echo "saved $name" >&3; done
}
saved=
exec 3>&1 1>/dev/null
"""


class Chosen(t.NamedTuple):
    """What the boot loader did: the slot that it starts, and the state that it leaves."""

    slot: str
    state: State


def chosen(folder: pathlib.Path, state: State, there: str = "ab") -> Chosen:
    """Run the boot loader's own text, whose language is that of the shell as far as it goes.

    Args:
        folder: an empty one.
        state: what the EFI partition says.
        there: the slots that have a system.
    """
    for slot in there:
        (folder / f"({slot})/boot/grub").mkdir(parents=True)
        (folder / f"({slot})/boot/grub/grub.cfg").touch()
    pairs = [line.partition("=") for line in boot_slots.rendered(state).splitlines() if line[0] != "#"]
    (folder / "env").write_text("".join(f"{name}='{value}'\n" for name, _, value in pairs))
    text = slots.CHOICE.format(efi="EFI", a="A", b="B", block=boot_slots.BLOCK)
    done = subprocess.run(
        ["bash", "-eu", "-c", STUBS + text], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    lines = done.stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    saved = {line.removeprefix("saved ") for line in lines if line.startswith("saved ")}
    before = {name: value for name, _, value in pairs}
    # What it does not save is lost when the system starts.
    kept = {name: found[name] if name in saved else before[name] for name in before}
    block = boot_slots.HEAD + "".join(f"{name}={value}\n" for name, value in kept.items())
    slot = lines[0].removeprefix("boots (")[0]
    return Chosen(slot, boot_slots.read(block.ljust(boot_slots.SIZE, "#").encode()))


def state(good: str = "", trial: str = "", left: int = 0, a: str = "", b: str = "") -> State:
    return State(good, trial, left, {"a": a, "b": b})


@pytest.mark.parametrize(
    ("before", "slot", "after"),
    [
        (FIRST, "a", state("", "a", 2)),
        (state("", "a", 2), "a", state("", "a", 1)),
        (state("", "a", 1), "a", state("", "a", 0)),
        # A new disk whose first slot never came up: the other one is on trial.
        (state("", "a", 0), "b", state("", "b", 2, a="it did not come up")),
        # Why it failed is what its system said, where it said something.
        (state("", "a", 0, a="ssh: x; units: y"), "b", state("", "b", 2, a="ssh: x; units: y")),
        # Neither came up: no more trials, it stays in the first one for who looks at it.
        (state("", "b", 0, a="ssh: x"), "a", state("", "", 0, a="ssh: x", b="it did not come up")),
        # The slot that was good before is not on trial.
        (state("a", "b", 0, b="network: x"), "a", state("a", "", 0, b="network: x")),
        (state("b", "a", 0), "b", state("b", "", 0, a="it did not come up")),
        (state("a", "b", 1), "b", state("a", "b", 0)),
        (state("a"), "a", state("a")),
        (state("b", b=""), "b", state("b")),
        (state(), "a", state()),
    ],
)
def test_the_boot_loader_starts_the_slot_on_trial_until_no_try_is_left(
    tmp_path: pathlib.Path, before: State, slot: str, after: State
) -> None:
    assert chosen(tmp_path, before) == Chosen(slot, after)


@pytest.mark.parametrize(
    ("before", "there", "slot", "after"),
    [
        (FIRST, "b", "b", state("", "", 2, a="no system is in it")),
        (state("a", "b", 3), "a", "a", state("a", "", 2, b="no system is in it")),
        (state("b"), "a", "a", state("b", b="no system is in it")),
    ],
)
def test_a_slot_without_a_system_is_left_at_once(
    tmp_path: pathlib.Path, before: State, there: str, slot: str, after: State
) -> None:
    found = chosen(tmp_path, before, there)
    assert found.slot == slot
    # How many tries are left means nothing without a trial.
    assert dataclasses.replace(found.state, left=0) == dataclasses.replace(after, left=0)


def test_from_every_state_some_slot_starts_and_trials_end(tmp_path: pathlib.Path) -> None:
    """Whatever stands in the block, starts that never pass come to rest within eight."""
    reasons = ("", "ssh: x")
    cases = itertools.product(("", "a", "b"), ("", "a", "b"), (0, 3), reasons, reasons)
    for number, (good, trial, left, a, b) in enumerate(cases):
        # Each start is a process; and nobody tries a slot that is good.
        if number % 7 or (good and good == trial):
            continue
        found = state(good, trial, left, a, b)
        for start in range(8):
            folder = tmp_path / f"{number}-{start}"
            folder.mkdir()
            slot, found = chosen(folder, found)
            if not found.trial:
                break
        assert not found.trial
        assert not good or slot == good, "a slot that was good is where it ends"


def test_the_text_is_one_that_grub_reads_as_the_shell_does() -> None:
    """No word is split or taken apart: GRUB splits what is not in quotes, as the shell does."""
    text = slots.choice()
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["set"] and "$bad" in line:
            assert '"$' in line, line
    assert "{" not in text
    assert "`" not in text.partition("search")[2]
    assert text.count("if ") - text.count("elif ") == text.count("fi\n")


def test_a_block_is_what_grub_writes_in_place() -> None:
    reason = "units: a.service, b.service failed"
    for found in (FIRST, State(), state("a", "b", 1, b=reason)):
        block = boot_slots.rendered(found)
        assert len(block) == 1024
        assert block.startswith("# GRUB Environment Block\n")
        assert boot_slots.read(block.encode()) == found
    long = state(a="x" * 5000, b="y" * 5000)
    assert len(boot_slots.rendered(long)) == 1024
    assert boot_slots.read(boot_slots.rendered(long).encode()).bad["b"] == "y" * boot_slots.REASON


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("ssh: none\ntrial=a", "ssh: none trial=a"),
        ("a\\\nb $root \"x\" 'y'", "a b root x y"),
        ("größer\x00", "gr er"),
        ("", ""),
    ],
)
def test_a_reason_cannot_be_read_as_more_than_that(text: str, kept: str) -> None:
    assert boot_slots.plain(text) == kept
    found = boot_slots.read(boot_slots.rendered(state("a", b=text)).encode())
    assert found == state("a", b=kept)


@pytest.mark.parametrize(
    "block", [b"", b"x" * 1024, boot_slots.rendered(FIRST).encode()[:-1], b"\xff" * 1024]
)
def test_what_is_no_block_is_refused(block: bytes) -> None:
    with pytest.raises(SlotError, match="no block of GRUB's environment"):
        boot_slots.read(block)


def test_values_that_cannot_be_count_as_missing() -> None:
    text = boot_slots.HEAD + "good=c\ntrial=../a\nleft=99\nbad_a=x\nprefix=(hd0)\n"
    assert boot_slots.read(text.ljust(1024, "#").encode()) == state(a="x")


def test_a_trial_ends_with_its_slot_good_or_with_a_reason() -> None:
    passed = boot_slots.passed(state("a", "b", 1, b="ssh: x"), "b")
    assert passed == state("b")
    # One that passes while the other one waits for its trial takes nothing from it.
    assert boot_slots.passed(state("", "b", 3), "a") == state("a", "b", 3)
    problems = {"ssh": "no server", "units": "x failed"}
    assert boot_slots.failed(state("a", "b", 1), "b", problems) == state(
        "a", "b", 1, b="ssh: no server; units: x failed"
    )


def test_a_slot_is_tried_only_with_a_way_back() -> None:
    assert boot_slots.tried(state("a", b="old"), "b", "a", 2) == state("a", "b", 2)
    with pytest.raises(SlotError, match="slot a runs; try slot b"):
        boot_slots.tried(state("a"), "a", "a", 3)
    with pytest.raises(SlotError, match="there would be no way back"):
        boot_slots.tried(state(), "b", "a", 3)


@pytest.mark.parametrize(
    ("found", "slot", "text"),
    [
        (state("", "a", 2), "a", "slot a is on trial, tries left after this one: 2"),
        (state("a"), "a", "slot a is good"),
        (state("a", "b", 3), "a", "slot a is good; slot b is tried at the next start"),
        (state("a", b="ssh: x"), "a", "slot a is good; slot b failed: ssh: x"),
        (
            state(a="u", b="v"),
            "a",
            "slot a runs and is not known to be good; slot a failed: u; slot b failed: v",
        ),
    ],
)
def test_how_it_stands_is_said_in_a_sentence(found: State, slot: str, text: str) -> None:
    assert boot_slots.told(found, slot) == text


class Server(Machine):
    """A server that is well, and can be made ill."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.says = {
            "ip -json address show up": json.dumps(
                [{"addr_info": [{"local": "10.2.1.7", "prefixlen": 24, "scope": "global"}]}]
            ),
            "ip -json route show default": '[{"gateway": "10.2.1.1"}]',
            "systemctl list-units --failed --plain --no-legend --no-pager": "",
        }
        self.ssh, self.clock = "SSH-2.0-OpenSSH_10", 4e9
        mounts = ("/", "/data", "/var/lib/containerd", "/var/lib/kubelet")
        self.write("proc/self/mounts", "".join(f"/dev/x {place} ext4 rw,relatime 0 0\n" for place in mounts))
        self.write("run/cloud-init/result.json", '{"v1": {"errors": []}}')
        self.write("etc/ironspan/slots.json", '{"address": "10.2.1.7/24", "gateway": "10.2.1.1"}')
        self.write("proc/sys/kernel/osrelease", "6.12\n")
        self.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def output(self, *command: str) -> str:
        return self.says[" ".join(command)]

    def banner(self) -> str:
        return self.ssh

    def now(self) -> float:
        return self.clock


def test_a_server_that_is_well_passes(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path)
    assert checks.examined(server) == {}
    # Without settings any address will do, and the image's own deadline holds.
    (tmp_path / "etc/ironspan/slots.json").unlink()
    assert checks.examined(server) == {}
    assert checks.deadline_of(server) == checks.DEADLINE_S
    server.write("etc/ironspan/slots.json", '{"deadline_seconds": 60}')
    assert checks.deadline_of(server) == 60.0
    for text in ("[]", "{", '{"deadline_seconds": -1}', '{"deadline_seconds": "soon"}'):
        server.write("etc/ironspan/slots.json", text)
        assert checks.deadline_of(server) == checks.DEADLINE_S


MOUNTS = "/dev/x / ext4 ro 0 0\n"
ADDRESSES, ROUTES = "ip -json address show up", "ip -json route show default"
FAILED = "systemctl list-units --failed --plain --no-legend --no-pager"
RESULT = "run/cloud-init/result.json"


def prints(command: str, text: str) -> t.Callable[[Server], None]:
    return lambda server: server.says.update({command: text})


def holds(path: str, text: str) -> t.Callable[[Server], None]:
    return lambda server: server.write(path, text)


FAULTS: list[tuple[str, t.Callable[[Server], None], str]] = [
    ("network", prints(ADDRESSES, "[]"), "10.2.1.7/24 is not up, found no address"),
    ("network", prints(ROUTES, "[]"), "no way out by 10.2.1.1"),
    ("network", prints(ADDRESSES, "x"), "ip prints no JSON"),
    ("ssh", lambda server: setattr(server, "ssh", ""), "no server answers on port 22"),
    ("disk", holds("proc/self/mounts", MOUNTS), "/ cannot be written"),
    ("disk", holds("proc/self/mounts", MOUNTS.replace("ro", "rw")), "/data is not mounted"),
    ("time", lambda server: setattr(server, "clock", 0.0), "the clock is before the day of the image"),
    ("cloud-init", holds(RESULT, ""), "it has not finished"),
    ("cloud-init", holds(RESULT, '{"v1": {"errors": ["x", "y"]}}'), "2 errors, the first: x"),
    ("units", prints(FAILED, "a.service loaded failed"), "a.service failed"),
    ("nvidia", holds("usr/lib/modules/6.12/updates/dkms/nvidia.ko.xz", ""), "the module is not loaded"),
]


@pytest.mark.parametrize(("name", "harm", "problem"), FAULTS)
def test_each_check_finds_its_fault_and_no_other_does(
    tmp_path: pathlib.Path, name: str, harm: t.Callable[[Server], None], problem: str
) -> None:
    server = Server(tmp_path)
    harm(server)
    assert checks.examined(server) == {name: problem}


def test_every_check_has_a_fault() -> None:
    assert {name for name, _, _ in FAULTS} == set(checks.CHECKS)


class Watched:
    """What the program does on a server, with a clock that goes on while it waits.

    Args:
        state: what the EFI partition says.
        heals: seconds after the kernel's start when the SSH server answers.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, folder: pathlib.Path, state: State, slot: str, heals: float
    ) -> None:
        self.state, self.seconds, self.restarts, self.server = state, 10.0, 0, Server(folder)
        self.heals = heals
        patch.setattr(program, "REPORT", folder / "run/ironspan/slots.json")
        patch.setattr(program, "current", lambda machine: self.state)
        patch.setattr(program, "change", self.change)
        patch.setattr("time.clock_gettime", lambda clock: self.seconds)
        patch.setattr("time.sleep", self.sleep)
        patch.setattr("subprocess.run", self.run)
        patch.setattr(self.server, "slot", lambda: slot)
        patch.setattr(self.server, "banner", lambda: "SSH-2.0" if self.seconds >= self.heals else "")

    def change(self, machine: Machine, how: t.Callable[[State], State]) -> State:
        self.state = how(self.state)
        return self.state

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def run(self, command: list[str], check: bool) -> None:
        assert command == ["systemctl", "reboot", "--force"]
        self.restarts += 1


@pytest.mark.parametrize(
    ("before", "slot", "heals", "after", "restarts"),
    [
        (state("", "a", 2), "a", 0, state("a"), 0),
        (state("", "a", 2), "a", 800, state("a"), 0),
        (state("", "a", 2), "a", 2000, state("", "a", 2, a=SSH), 1),
        (state("a", "b", 0), "b", 2000, state("a", "b", 0, b=SSH), 1),
        # It failed before, of something else: the first reason stays.
        (state("a", "b", 0, b="units: x"), "b", 2000, state("a", "b", 0, b="units: x"), 1),
        # Nothing to go back to: it stays up, and is good once somebody has mended it.
        (state(a="units: x", b="units: y"), "a", 5000, state("a", b="units: y"), 0),
        # What is good is not judged.
        (state("a", b="units: y"), "a", 1e9, state("a", b="units: y"), 0),
        (state("a", "b", 3), "a", 1e9, state("a", "b", 3), 0),
    ],
)
def test_a_start_ends_good_or_again_or_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str],
    before: State, slot: str, heals: float, after: State, restarts: int,
) -> None:  # fmt: skip
    watched = Watched(monkeypatch, tmp_path, before, slot, heals)
    assert program.watch(watched.server) == 0
    assert (watched.state, watched.restarts) == (after, restarts)
    told = json.loads((tmp_path / "run/ironspan/slots.json").read_text())
    assert (told["slot"], told["good"], told["bad"]) == (slot, after.good, after.bad)
    assert told["problems"] == ({"ssh": SSH.partition(": ")[2]} if restarts else {})
    said = capsys.readouterr().out
    assert ("the server starts again" in said) == bool(restarts)
    assert ("is not good yet: ssh: no server" in said) == (before.good != slot and heals > 10)


def test_an_image_has_two_equal_roots_and_begins_the_same_again(
    own: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (own / "slots").mkdir()
    monkeypatch.setattr(slots, "slot_mib", lambda tree: 64)
    monkeypatch.setattr(disk, "of_tree", lambda tree, name: ["/usr/sbin/mke2fs"])
    begins = set()
    for name in ("one", "two"):
        made = small_tree(tmp_path / name / "tree")
        (made / "etc/mke2fs.conf").write_text("[defaults]\nbase_features = sparse_super,filetype,extent\n")
        (made / "boot/grub").mkdir()
        tree.settle(made, EPOCH)
        slots.make(system(layout="ab"), "amd64", made, tmp_path / name / "disk.raw")
        with (tmp_path / name / "disk.raw").open("rb") as handle:
            begins.add(handle.read((disk.OFFSET_MIB + disk.EFI_MIB) * disk.MIB))
    # Not the roots here: this machine's mke2fs may be older than one that takes the time from the build.
    assert len(begins) == 1
    image = tmp_path / "one/disk.raw"
    table = tree.call(["sgdisk", "--print", image], EPOCH)
    parts = [line.split() for line in table.splitlines() if line.strip()[:1].isdigit()]
    assert [part[-1] for part in parts] == ["efi", "root-a", "root-b"]
    assert parts[1][3:5] == parts[2][3:5] == ["64.0", "MiB"]
    esp = f"{image}@@{disk.OFFSET_MIB}M"
    assert tree.call(["mtype", "-i", esp, f"::/{boot_slots.BLOCK}"], EPOCH) == boot_slots.rendered(FIRST)
    assert tree.call(["mtype", "-i", esp, "::/EFI/debian/grub.cfg"], EPOCH) == slots.choice()
    for slot, at in (("a", 65), ("b", 65 + 64)):
        place = f"{image}?offset={at << 20}"
        listing = tree.call(["/usr/sbin/debugfs", "-R", "cat /boot/grub/grub.cfg", place], EPOCH)
        assert f"root=UUID={slots.UUIDS[slot]} ro" in listing
        mounted = tree.call(["/usr/sbin/debugfs", "-R", "cat /etc/fstab", place], EPOCH)
        assert f"/data/{slot}/kubelet /var/lib/kubelet" in mounted
        named = tree.call(["/usr/sbin/dumpe2fs", "-h", place], EPOCH)
        assert slots.UUIDS[slot] in named
        assert f"root-{slot}" in named


def test_a_slot_is_as_large_in_every_image_until_a_system_needs_more(tmp_path: pathlib.Path) -> None:
    assert slots.slot_mib(tmp_path) == slots.SLOT_MIB
    with (tmp_path / "large").open("wb") as handle:
        handle.truncate(3 << 30)
    assert slots.slot_mib(tmp_path) == 5120


def test_the_partition_for_data_is_the_one_that_is_mounted() -> None:
    text = (declared.FOLDER / "slots/etc/repart.d/50-data.conf").read_text()
    assert f"UUID={slots.DATA}\n" in text
    folders = {f"/{slot}/{name}" for slot in boot_slots.SLOTS for name in ("containerd", "kubelet")}
    assert folders == set(text.partition("MakeDirectories=")[2].split())
    for slot in boot_slots.SLOTS:
        assert f"/data/{slot}/containerd " in slots.FSTAB.format(slot=slot, root="x", data="y")


def test_a_system_with_two_roots_is_its_model_and_what_is_its_own() -> None:
    one, both = REAL.systems["server"], REAL.systems["server-ab"]
    assert both.layout == "ab"
    assert both.packages == (*one.packages, "systemd-repart")
    assert (both.suite, both.date, both.drop) == (one.suite, one.date, one.drop)
    assert set(one.units["enable"]) < set(both.units["enable"])
    assert both.units["mask"] == one.units["mask"]
    files = both.own_files()
    assert set(one.own_files()) < set(files)
    unit = files["etc/systemd/system/ironspan-slot.service"].read_text()
    assert f"ExecStart=/{STARTER} watch\n" in unit


STARTER = "usr/local/sbin/ironspan-slot"


def test_the_program_runs_with_what_is_in_the_image_alone(tmp_path: pathlib.Path) -> None:
    for name, source in REAL.systems["server-ab"].own_files().items():
        if name.startswith("usr/local/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            # What is at / there is in a folder here.
            text = source.read_text().replace('"/usr/local/lib', f'"{tmp_path}/usr/local/lib')
            (tmp_path / name).write_text(text)
    assert (tmp_path / STARTER).read_bytes().startswith(b"#!/usr/bin/python3 -I\n")
    command = [sys.executable, "-I", "-S", str(tmp_path / STARTER)]
    done = subprocess.run([*command, "try", "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "{a,b}" in done.stdout
    done = subprocess.run([*command, "status"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ironspan-slot: ")


AB = "  server-ab: {like: server, layout: ab, packages: [repart]}\nfiles:\n"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("layout: ab", "layout: abc", "systems.server-ab.layout: is 'abc'; it can be plain or ab"),
        ("like: server", "like: nobody", "systems.server-ab.like: is 'nobody', which is no system"),
        ("like: server", "like: server-ab", "systems.server-ab.like: is 'server-ab'"),
        ("layout: ab", "kind: ramdisk, layout: ab", "systems.server-ab.layout: only a disk has one"),
    ],
)
def test_what_is_wrong_with_a_layout_is_said_with_its_place(old: str, new: str, problem: str) -> None:
    text = SERVER.replace("files:\n", AB)
    lock, problems = read(text)
    assert problems == []
    assert lock.systems["server-ab"].packages == ("udev", "repart")
    assert any(problem in found for found in read(text.replace(old, new))[1])


def test_a_plain_system_is_what_it_was_before_there_were_layouts(own: pathlib.Path) -> None:
    """What is kept of it stays good: the digest is one that was worked out before."""
    assert system().recipe("amd64") == PLAIN
    assert system(layout="ab").recipe("amd64") != PLAIN


PLAIN = "7737e589508d6eb5e4adfec8bef83de8c8f8c6cb7fae4fde31ef188db5225d09"


def test_the_loaders_settings_of_both_layouts_differ_only_in_what_starts_a_server_again() -> None:
    def settings(folder: str) -> dict[str, str]:
        text = (declared.FOLDER / folder / "etc/default/grub").read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))

    plain, both = settings("server"), settings("slots")
    assert both.pop("GRUB_CMDLINE_LINUX") == plain.pop("GRUB_CMDLINE_LINUX")[:-1] + ' panic=30"'
    assert both == plain


def test_a_site_offers_both_images_in_the_same_versions() -> None:
    keys = {key for key, file in REAL.files.items() if file.system.startswith("server")}
    versions = {name: {key.partition("/")[2] for key in keys if key.startswith(f"{name}/")} for name in (
        "server-disk", "server-disk-ab", "server-bom", "server-bom-ab")}  # fmt: skip
    assert len({frozenset(found) for found in versions.values()}) == 1
