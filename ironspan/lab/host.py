# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One lab host: an overlay on the base tree, booted by systemd-nspawn."""

from __future__ import annotations

import shlex
import uuid
from pathlib import Path

from ironspan.lab import accounts, cgroups, files, keys, mounts, processes
from ironspan.lab.azure import settings
from ironspan.lab.azure.config import authority, state_folder
from ironspan.lab.commands import attempt, run
from ironspan.lab.layout import DOMAIN, LabHost
from ironspan.lab.machine import Machine
from ironspan.lab.state import Resource

#: These hold overlays or databases of their own and must not be on the host's overlay.
DATA = ("containerd", "kubelet", "etcd")
#: The machine's devices that a host gets, where there are any.
DEVICES = ("/dev/kmsg", "/dev/fuse", "/dev/net/tun")

_BOOT_V1 = """\
for controller in /sys/fs/cgroup/*/; do mount -o remount,rw,bind "$controller" 2>/dev/null || true; done
"""
#: kernel.* and vm.* belong to the whole machine. The kubelet insists on a few values: it finds them in files
#: of the host's own, mounted over the real ones (names and values: kubelet's container_manager_linux.go).
#: The boot's identifier is the one that systemd-nspawn makes for each boot.
_BOOT = """\
mount --make-rshared /
mkdir -p /run/ironspan-lab/sysctl
guard() {
  file=/run/ironspan-lab/sysctl/$(echo "$1" | tr / .)
  echo "$2" >"$file" && mount --bind "$file" "/proc/sys/$1"
}
boot=$(cat /proc/sys/kernel/random/boot_id)
for tree in kernel vm; do
  mount --bind "/proc/sys/$tree" "/proc/sys/$tree" && mount -o remount,bind,ro "/proc/sys/$tree"
done
guard kernel/random/boot_id "$boot"
guard vm/overcommit_memory 1
guard vm/panic_on_oom 0
guard kernel/panic 10
guard kernel/panic_on_oops 1
guard kernel/keys/root_maxkeys 1000000
guard kernel/keys/root_maxbytes 25000000
mountpoint -q /sys/fs/bpf || { mkdir -p /sys/fs/bpf && mount -t bpf bpf /sys/fs/bpf; } || true
ip link set lo up
ip link set host0 up
"""
_BOOT_UNIT = """\
[Unit]
Description=Make this container a host: cgroups, mounts, network
DefaultDependencies=no
Before=sysinit.target systemd-sysctl.service network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -e /etc/ironspan-lab/boot

[Install]
WantedBy=sysinit.target
"""


#: How the names of the hosts' outermost processes begin.
PROCESS = "host-"


def folder(lab: Path, host: LabHost) -> Path:
    """Everything of this host in files."""
    return lab / "hosts" / host.name


def disk_folder(lab: Path, name: str) -> Path:
    """What a virtual machine's disk holds: it outlives the machine."""
    return lab / "disks" / name


def data_folder(lab: Path, host: LabHost, name: str) -> Path:
    """What of the machine's own file system lies at /var/lib/NAME of a host; NAME is one of DATA."""
    return disk_folder(lab, host.disk) if host.disk and name == "etcd" else folder(lab, host) / name


def resources(machine: Machine, lab: Path, host: LabHost) -> list[Resource]:
    """What `start` makes beside files, in order."""
    cgroup = Resource("unit" if machine.launcher == "unit" else "cgroup", host.cgroup)
    return [
        Resource("mount", str(folder(lab, host) / "root")),
        Resource("link", host.port),
        *(
            Resource("tree", f"/run/systemd/nspawn/{kind}/{host.machine}")
            for kind in ("propagate", "unix-export")
        ),
        cgroup,
        Resource("process", process_name(host)),
    ]


def process_name(host: LabHost) -> str:
    """The name under which the host's outermost process is remembered."""
    return f"{PROCESS}{host.name}"


def tree_files(machine: Machine, lab: Path, host: LabHost) -> dict[str, tuple[str, int]]:
    """The files that make the base tree this host: path -> (content, mode)."""
    site = host.site
    boot = (_BOOT_V1 if machine.cgroup_version == 1 else "") + _BOOT
    boot += f"ip address replace {host.address}/24 dev host0\nip route replace default via {site.router}\n"
    key = keys.host_key(lab, host.name)
    azure = authority(state_folder(lab))
    trusted = {settings.HOST_CA.lstrip("/"): (azure.read_text(), 0o644)} if azure.exists() else {}
    return {
        **trusted,
        "etc/hostname": (f"{host.name}\n", 0o644),
        "etc/hosts": (
            f"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
            f"{host.address} {host.name}.{DOMAIN} {host.name}\n",
            0o644,
        ),
        "etc/resolv.conf": (f"nameserver {site.controller}\noptions timeout:2 attempts:2\n", 0o644),
        "etc/ironspan-lab/boot": (boot, 0o755),
        "etc/systemd/system/ironspan-lab.service": (_BOOT_UNIT, 0o644),
        "etc/ssh/ssh_host_ed25519_key": (key.read_text(), 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (key.with_suffix(".pub").read_text(), 0o644),
        "root/.ssh/authorized_keys": (keys.private_key(lab).with_suffix(".pub").read_text(), 0o600),
    }


def nspawn_command(machine: Machine, lab: Path, host: LabHost) -> list[str]:
    """The command that boots the host's tree."""
    own = folder(lab, host)
    return [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={own / 'root'}", f"--machine={host.machine}",
        "--register=no", "--keep-unit", "--console=pipe", "--capability=all", "--settings=no",
        f"--network-bridge={host.site.bridge}", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
        *(f"--bind={device}" for device in DEVICES if Path(device).exists()),
        *(f"--bind={data_folder(lab, host, name)}:/var/lib/{name}" for name in DATA),
        *(["--bind-ro=/sys/kernel/btf"] if "btf" in machine.features else []),
    ]  # fmt: skip


def environment(machine: Machine, lab: Path) -> dict[str, str]:
    """What systemd-nspawn takes from the environment (systemd, docs/ENVIRONMENT.md), and the lab's mark."""
    return {
        "SYSTEMD_SECCOMP": "0",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes",
        "SYSTEMD_NSPAWN_LOCK": "0",
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1" if machine.cgroup_version == 2 else "0",
        processes.MARKER: str(lab),
    }


def run_script(machine: Machine, lab: Path, host: LabHost) -> str:
    """The shell script around systemd-nspawn without systemd: joins the cgroups, boots, boots again.

    Only systemd-nspawn itself joins: a unified cgroup that holds another process cannot hand controllers on.
    It ends with 133 when the host asked for a reboot (systemd-nspawn(1), exit status).
    """
    places = [str(place / "cgroup.procs") for place in cgroups.folders(machine.cgroup_mounts, host.cgroup)]
    join = "for place in " + " ".join(shlex.quote(place) for place in places)
    join += '; do echo $$ >"$place" || exit 1; done; exec "$@"'
    return f"""\
#!/bin/sh
# Written by ironspan lab up.
while :; do
  /bin/sh -c {shlex.quote(join)} join \\
    {shlex.join(nspawn_command(machine, lab, host))}
  status=$?
  [ $status = 133 ] || exit $status
done
"""


def start(machine: Machine, lab: Path, base: Path, host: LabHost) -> bool:
    """Boot the host unless it runs; returns whether it was started. Its resources are recorded before."""
    if running(machine, lab, host) is not None:
        return False
    own = folder(lab, host)
    for path in (
        *(own / name for name in ("upper", "work", "root")),
        *(data_folder(lab, host, n) for n in DATA),
    ):
        path.mkdir(parents=True, exist_ok=True)
    stop(lab, host, machine)
    if not (own / "prepared").exists():
        for name, (content, mode) in tree_files(machine, lab, host).items():
            files.write_if_changed(own / "upper" / name, content, mode)
        files.write_if_changed(own / "upper/etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
        (own / "upper/root/.ssh").chmod(0o700)
        (own / "upper/root").chmod(0o700)
        wants = own / "upper/etc/systemd/system/sysinit.target.wants"
        wants.mkdir(exist_ok=True)
        link = wants / "ironspan-lab.service"
        link.unlink(missing_ok=True)
        link.symlink_to("../ironspan-lab.service")
        if host.user:
            accounts.create(base, own / "upper", host.user, host.authorized_keys)
        # From here on the tree is the host's: a later start must not undo what was changed inside.
        (own / "prepared").touch()
    if not mounts.is_mounted(own / "root"):
        options = f"lowerdir={base},upperdir={own / 'upper'},workdir={own / 'work'}"
        run(["mount", "-t", "overlay", "overlay", "-o", options, str(own / "root")])
    if machine.launcher == "unit":
        _start_unit(machine, lab, host)
    else:
        script = own / "run.sh"
        files.write_if_changed(script, run_script(machine, lab, host), 0o755)
        cgroups.create(machine.cgroup_mounts, host.cgroup, machine.cgroup_version)
        processes.spawn(["/bin/sh", str(script)], lab, process_name(host), environment(machine, lab))
    return True


def unit_command(machine: Machine, lab: Path, host: LabHost) -> list[str]:
    """The `systemd-run` command that boots the host in a unit of its own.

    The properties are those of systemd's own systemd-nspawn@.service: 133 restarts it, and --keep-unit makes
    nspawn put the host's cgroup inside this unit, which is delegated to it.
    """
    log = lab / "log" / f"{process_name(host)}.log"
    return [
        "systemd-run", "--quiet", "--collect", f"--unit={host.cgroup}.service", "--slice=machine.slice",
        f"--description=ironspan lab host {host.name}", "--service-type=exec",
        *(f"--property={setting}" for setting in (
            "Delegate=yes", "KillMode=mixed", "TasksMax=infinity", "LimitNOFILE=infinity",
            "TimeoutStopSec=10s", "RestartForceExitStatus=133", "SuccessExitStatus=133", "RestartSec=0",
            f"StandardOutput=append:{log}", f"StandardError=append:{log}",
        )),
        *(f"--setenv={name}={value}" for name, value in environment(machine, lab).items()),
        *nspawn_command(machine, lab, host),
    ]  # fmt: skip


def _start_unit(machine: Machine, lab: Path, host: LabHost) -> None:
    (lab / "log").mkdir(parents=True, exist_ok=True)
    run(unit_command(machine, lab, host))


def running(machine: Machine, lab: Path, host: LabHost) -> int | None:
    """Number of the host's outermost process, None when the host is off."""
    if machine.launcher == "cgroup":
        return processes.running(lab, process_name(host))
    shown = attempt(["systemctl", "show", "--property=MainPID", "--value", f"{host.cgroup}.service"])
    return int(shown.stdout.strip() or 0) or None


def stop(lab: Path, host: LabHost, machine: Machine) -> None:
    """Take the power away from the host: kill all that runs in it. Nothing is removed."""
    if machine.launcher == "unit":
        stop_unit(host.cgroup)
    else:
        pid = processes.running(lab, process_name(host))
        processes.kill([pid] if pid else [])
        cgroups.kill(host.cgroup)


def stop_unit(name: str) -> None:
    """Stop and forget a host's transient unit, if it is there."""
    attempt(["systemctl", "kill", "--signal=SIGKILL", "--kill-whom=all", f"{name}.service"])
    attempt(["systemctl", "stop", f"{name}.service"])
    attempt(["systemctl", "reset-failed", f"{name}.service"])


def init_pid(machine: Machine, host: LabHost) -> int | None:
    """The host's process 1 as the machine numbers it; None when it is not up.

    It is the one with number 1 in a PID namespace one level down. The first child would be wrong: that is
    systemd-nspawn itself.
    """
    for top in cgroups.hierarchies():
        names = [host.cgroup] if machine.launcher == "cgroup" else [f"machine.slice/{host.cgroup}.service"]
        for name in names:
            for pid in cgroups.members(top / name):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                numbers = next(
                    (line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), []
                )
                if len(numbers) >= 2 and numbers[-1] == "1" and len(numbers) == _levels() + 1:
                    return pid
    return None


def _levels() -> int:
    status = Path("/proc/self/status").read_text()
    return next((len(line.split()) - 1 for line in status.splitlines() if line.startswith("NSpid:")), 1)
