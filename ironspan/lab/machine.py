# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What this machine is and what the lab therefore does differently from a production host."""

from __future__ import annotations

import os
import re
import resource
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ironspan.lab import mounts
from ironspan.lab.commands import attempt
from ironspan.lab.errors import LabError
from ironspan.lab.layout import state_root

#: Program the lab runs -> Debian package that has it.
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "dnsmasq": "dnsmasq-base",
    "nginx": "nginx-light",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "mount": "mount",
}
#: File systems that refuse to hold an overlay's upper layer.
_NO_UPPER = ("overlay", "nfs", "nfs4", "9p", "fuse", "vfat")
_CAP_SYS_ADMIN, _CAP_NET_ADMIN, _CAP_SYS_RESOURCE = 21, 12, 24
#: What the hosts ask of the machine's kernel -> what the test is (a path, or a line in /proc/filesystems).
_FEATURES = {"tun": "/dev/net/tun", "fuse": "/dev/fuse", "kmsg": "/dev/kmsg", "btf": "/sys/kernel/btf"}


@dataclass(frozen=True)
class Machine:
    """Everything about the machine that decides how hosts are started."""

    kernel: str
    cpus: int
    memory_bytes: int
    #: 1 when the controllers are on cgroup v1 hierarchies, 2 on a unified machine.
    cgroup_version: int
    #: Mount points of the cgroup hierarchies.
    cgroup_mounts: tuple[str, ...]
    systemd: bool
    root: bool
    capabilities: int
    nofile_hard: int
    overlay: bool
    features: tuple[str, ...]
    missing_programs: tuple[str, ...]
    bridge_netfilter: bool
    #: Whether some firewall chain on forwarded packets drops by default.
    forward_drops: bool
    #: File system of the labs' folder.
    state_filesystem: str

    @property
    def sys_resource(self) -> bool:
        """Whether limits can be raised and OOM scores lowered."""
        return bool(self.capabilities >> _CAP_SYS_RESOURCE & 1)

    @property
    def launcher(self) -> str:
        """How a host gets its cgroup: from systemd ("unit") or made by the lab ("cgroup")."""
        return "unit" if self.systemd else "cgroup"

    def concessions(self) -> list[dict[str, str]]:
        """What differs from production on this machine and why; for `status` and the docs."""
        found = [
            {
                "what": "hosts are systemd-nspawn containers on this machine's kernel, CPUs and memory",
                "effect": "kernel.* and vm.* are read-only inside; every host sees all CPUs and memory; "
                "no kernel upgrade, no GPU",
            },
            {
                "what": "kube-proxy cannot change nf_conntrack_max from inside a network namespace",
                "effect": "control_plane_conntrack_* are 0 in inventories/lab",
            },
        ]
        if self.cgroup_version == 1:
            found.append(
                {
                    "what": "cgroup v1",
                    "effect": "kubelet failCgroupV1: false and kubeadm ignores SystemVerification; "
                    "cgroup v2 features (memory QoS, swap, in-place resize details) are not shown",
                }
            )
        if not self.sys_resource:
            found.append(
                {
                    "what": f"no CAP_SYS_RESOURCE, hard NOFILE {self.nofile_hard}",
                    "effect": "containerd restrict_oom_score_adj = true and LimitNOFILE 20000",
                }
            )
        if not self.systemd:
            found.append(
                {
                    "what": "systemd is not process 1 of this machine",
                    "effect": "the lab makes and removes the hosts' cgroups itself",
                }
            )
        return found

    def warnings(self) -> list[str]:
        """What may break the lab's network here, each with what to do."""
        found = []
        if self.bridge_netfilter and self.forward_drops:
            found.append(
                "bridged packets pass this machine's firewall (net.bridge.bridge-nf-call-iptables is 1), "
                "which drops what it forwards by default, as Docker and ufw set it: hosts of one site cannot "
                "reach each other before `iptables -I FORWARD -m physdev --physdev-is-bridged -j ACCEPT`"
            )
        return found

    def require(self) -> None:
        """Raise LabError naming everything that is missing and how to get it, all at once."""
        problems = []
        if not self.root:
            problems.append("the lab makes network namespaces, mounts and cgroups: run it as root (sudo)")
        else:
            for name, bit in (("CAP_SYS_ADMIN", _CAP_SYS_ADMIN), ("CAP_NET_ADMIN", _CAP_NET_ADMIN)):
                if not self.capabilities >> bit & 1:
                    problems.append(
                        f"{name} is missing here; run the lab on a machine or VM, not in a plain container"
                    )
        if self.missing_programs:
            packages = sorted({PROGRAMS[program] for program in self.missing_programs})
            problems.append(
                f"missing programs: {', '.join(self.missing_programs)}; install them with: "
                f"apt-get install -y --no-install-recommends {' '.join(packages)}"
            )
        if not self.overlay:
            problems.append("the kernel has no overlay file system (modprobe overlay)")
        if self.state_filesystem in _NO_UPPER:
            problems.append(
                f"{state_root()} is on {self.state_filesystem}, which cannot hold the hosts' overlays; "
                "set IRONSPAN_LAB_ROOT to a folder on ext4, xfs or btrfs"
            )
        if "tun" not in self.features:
            problems.append("/dev/net/tun is missing: the WAN link needs TUN devices (modprobe tun)")
        if not self.cgroup_mounts:
            problems.append("no cgroup hierarchy is mounted under /sys/fs/cgroup")
        if problems:
            raise LabError("this machine cannot run the lab yet:\n" + "\n".join(f"  - {p}" for p in problems))

    def as_dict(self) -> dict[str, Any]:
        """For `status --json`."""
        facts = asdict(self)
        del facts["capabilities"]
        return {**facts, "cap_sys_resource": self.sys_resource, "launcher": self.launcher}


def cgroup_layout(found: list[mounts.Mount]) -> tuple[int, tuple[str, ...]]:
    """Version and mount points of the cgroup hierarchies among the mounts.

    A machine is version 2 only when the unified hierarchy is the one on /sys/fs/cgroup itself; beside v1
    hierarchies it has no controllers to speak of.
    """
    places = tuple(m.path for m in found if m.filesystem in ("cgroup", "cgroup2"))
    unified = any(m.path == "/sys/fs/cgroup" and m.filesystem == "cgroup2" for m in found)
    return (2, ("/sys/fs/cgroup",)) if unified else (1, places)


def detect() -> Machine:
    """Look at the machine; changes nothing."""
    version, places = cgroup_layout(mounts.current())
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    filesystems = Path("/proc/filesystems").read_text().split()
    return Machine(
        kernel=os.uname().release,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=int(memory[1]) * 1024 if memory else 0,
        cgroup_version=version,
        cgroup_mounts=places,
        systemd=Path("/run/systemd/system").is_dir() and _read("/proc/1/comm") == "systemd",
        root=os.geteuid() == 0,
        capabilities=int(capabilities[1], 16) if capabilities else 0,
        nofile_hard=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        overlay="overlay" in filesystems or _module_exists("overlay"),
        features=tuple(name for name, path in _FEATURES.items() if Path(path).exists()),
        missing_programs=tuple(
            sorted(program for program in PROGRAMS if shutil.which(program, path=_path()) is None)
        ),
        bridge_netfilter=_read("/proc/sys/net/bridge/bridge-nf-call-iptables") == "1",
        forward_drops=forward_drops(_chains()),
        state_filesystem=mounts.filesystem_of(state_root()),
    )


def forward_drops(chains: str) -> bool:
    """Whether `nft list chains` shows a chain on forwarded packets that drops by default."""
    return re.search(r"hook forward[^;]*; policy drop;", chains) is not None


def _chains() -> str:
    if os.geteuid() != 0 or shutil.which("nft", path=_path()) is None:
        return ""
    return attempt(["nft", "list", "chains"]).stdout


def _path() -> str:
    """The search path with the system folders, which a user's own path may lack."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _module_exists(name: str) -> bool:
    folder = Path("/lib/modules") / os.uname().release
    return any(folder.glob(f"kernel/**/{name}.ko*"))
