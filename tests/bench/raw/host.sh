#!/bin/bash
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# Prepares one host: binaries from the mirror (checked by digest), containerd, kubelet. Runs on the host.
# Arguments: MIRROR ROLE(control|worker); the list "name path sha256" comes before it as $ARTIFACTS.
set -euo pipefail
mirror=$1
role=$2
work=$(mktemp -d)
cd "$work"

get() { # NAME: downloads an artefact under its name
    local path sum
    read -r _ path sum < <(grep "^$1 " <<< "$ARTIFACTS")
    curl -fsS -o "$1" "$mirror$path"
    echo "$sum  $1" | sha256sum -c --quiet
}

mkdir -p /opt/cni/bin /etc/containerd/certs.d /etc/kubernetes/manifests /etc/systemd/system/kubelet.service.d
jobs=()
(get containerd; tar -xzf containerd -C /usr/local) & jobs+=($!)
(get runc; install -m 755 runc /usr/local/sbin/runc) & jobs+=($!)
(get cni-plugins; tar -xzf cni-plugins -C /opt/cni/bin) & jobs+=($!)
(get flannel-cni; tar -xzf flannel-cni -C /opt/cni/bin ./flannel) & jobs+=($!)
for name in kubeadm kubelet; do (get $name; install -m 755 $name /usr/local/bin/$name) & jobs+=($!); done
if [ "$role" = control ]; then
    (get kubectl; install -m 755 kubectl /usr/local/bin/kubectl) & jobs+=($!)
    (get etcd; tar -xzf etcd -C /usr/local/bin --strip-components=1 --wildcards '*/etcd' '*/etcdctl') & jobs+=($!)
else
    (get runsc; install -m 755 runsc /usr/local/bin/runsc) & jobs+=($!)
    (get shim; install -m 755 shim /usr/local/bin/containerd-shim-runsc-v1) & jobs+=($!)
fi

for registry in registry.k8s.io ghcr.io docker.io; do
    mkdir -p /etc/containerd/certs.d/$registry
    printf 'server = "%s/v2/%s"\ncapabilities = ["pull", "resolve"]\noverride_path = true\n' \
        "$mirror" "$registry" > /etc/containerd/certs.d/$registry/hosts.toml
done
cat > /etc/containerd/config.toml << CONFIG
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "registry.k8s.io/pause:3.10.2"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "/etc/containerd/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = "/etc/containerd/runsc.toml"
CONFIG
printf '[runsc_config]\nplatform = "systrap"\n' > /etc/containerd/runsc.toml
cat > /etc/systemd/system/containerd.service << UNIT
[Service]
ExecStart=/usr/local/bin/containerd
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Type=notify
KillMode=process
Delegate=yes
LimitNOFILE=20000
[Install]
WantedBy=multi-user.target
UNIT
cat > /etc/systemd/system/kubelet.service << UNIT
[Unit]
After=containerd.service
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/local/bin/kubelet \$KUBELET_KUBECONFIG_ARGS \$KUBELET_CONFIG_ARGS \$KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
UNIT
printf 'net.ipv4.ip_forward = 1\n' > /etc/sysctl.d/90-kubernetes.conf
sysctl -q net.ipv4.ip_forward=1
printf '%s\n' "$NAMES" >> /etc/hosts
for job in "${jobs[@]}"; do wait "$job"; done
systemctl daemon-reload
systemctl -q enable --now containerd
systemctl -q enable kubelet
rm -rf "$work"
