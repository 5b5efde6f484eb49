#!/bin/bash
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# A cluster of two hosts with kubeadm, as a careful person scripts it by hand: the measure for site.yml.
# The same result: etcd with TLS beside kubeadm, an API endpoint behind haproxy, flannel, gVisor, all Ready, a runc and a
# gVisor pod on the worker that answer across the WAN. Both hosts are prepared at the same time.
# Environment: SSH (command), AZ, RACK (addresses), AZ_MIRROR, RACK_MIRROR, ARTIFACTS, VERSION, COREDNS, FLANNEL.
set -euo pipefail
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
endpoint=api.lab.internal:8443
NAMES="$AZ az-1 api.lab.internal
$RACK rack-1"

say() { printf '[%4d s] %s\n' "$SECONDS" "$1"; }
# shellcheck disable=SC2086  # SSH is a command with options
on() { $SSH "root@$1" "${@:2}"; }
prepare() { (printf 'ARTIFACTS=%q\nNAMES=%q\n' "$ARTIFACTS" "$NAMES"; cat "$here/host.sh") | on "$1" "cat > /tmp/host.sh && bash /tmp/host.sh $2 $3"; }

say "preparing both hosts"
prepare "$AZ" "$AZ_MIRROR" control & first=$!
prepare "$RACK" "$RACK_MIRROR" worker & second=$!

cd "$work"
openssl ecparam -genkey -name prime256v1 -noout -out ca.key
openssl req -x509 -new -key ca.key -subj /CN=etcd-ca -days 365 -out ca.crt
for name in server client; do
    openssl ecparam -genkey -name prime256v1 -noout -out $name.key
    openssl req -new -key $name.key -subj /CN=$name -out $name.csr
    openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out $name.crt \
        -extfile <(printf 'subjectAltName=IP:%s,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth' "$AZ") 2> /dev/null
done
wait $first

say "etcd and haproxy"
tar -c ca.crt server.crt server.key client.crt client.key | on "$AZ" "mkdir -p /etc/etcd && tar -x --no-same-owner -C /etc/etcd"
on "$AZ" "cat > /etc/systemd/system/etcd.service && systemctl -q enable --now etcd" << UNIT
[Service]
Type=notify
ExecStart=/usr/local/bin/etcd --name az-1 --data-dir /var/lib/etcd/raw --client-cert-auth --peer-client-cert-auth --listen-client-urls https://$AZ:2379 --advertise-client-urls https://$AZ:2379 --listen-peer-urls https://$AZ:2380 --initial-advertise-peer-urls https://$AZ:2380 --initial-cluster az-1=https://$AZ:2380 --trusted-ca-file /etc/etcd/ca.crt --cert-file /etc/etcd/server.crt --key-file /etc/etcd/server.key --peer-trusted-ca-file /etc/etcd/ca.crt --peer-cert-file /etc/etcd/server.crt --peer-key-file /etc/etcd/server.key
[Install]
WantedBy=multi-user.target
UNIT
on "$AZ" "cat > /etc/haproxy/haproxy.cfg && systemctl -q enable --now haproxy && systemctl restart haproxy" << CONFIG
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen api
    bind :8443
    server az-1 $AZ:6443
CONFIG

say "kubeadm init"
on "$AZ" "cat > /tmp/kubeadm.yaml && kubeadm init --config /tmp/kubeadm.yaml --ignore-preflight-errors=SystemVerification" << CONFIG > "$work/init.log"
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $AZ}
nodeRegistration: {name: az-1, criSocket: "unix:///run/containerd/containerd.sock", kubeletExtraArgs: [{name: node-ip, value: $AZ}]}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v$VERSION
controlPlaneEndpoint: $endpoint
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}
dns: {imageTag: v$COREDNS}
etcd: {external: {endpoints: ["https://$AZ:2379"], caFile: /etc/etcd/ca.crt, certFile: /etc/etcd/client.crt, keyFile: /etc/etcd/client.key}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: systemd
# As in the lab's inventory: all hosts share one disk, which may be large and well used.
evictionHard: {memory.available: 100Mi, nodefs.available: 2Gi, nodefs.inodesFree: 1%, imagefs.available: 2Gi, imagefs.inodesFree: 1%}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0, min: 0}
CONFIG
kubectl() { on "$AZ" kubectl --kubeconfig /etc/kubernetes/admin.conf "$@"; }
sed "s/@FLANNEL@/$FLANNEL/" "$here/objects.yaml" | kubectl apply -f - > "$work/objects.log"

say "kubeadm join"
join=$(on "$AZ" kubeadm token create --ttl 10m --print-join-command)
wait $second
on "$RACK" "$join --ignore-preflight-errors=SystemVerification" > "$work/join.log"

say "waiting for the nodes and for DNS"
until kubectl get node rack-1 > /dev/null 2>&1; do sleep 0.3; done
kubectl label node rack-1 ironspan.io/gvisor=true > /dev/null
kubectl wait --for=condition=Ready node --all --timeout=180s > /dev/null
kubectl -n kube-system rollout status deployment/coredns --timeout=180s > /dev/null

say "pods on the worker answer across the WAN"
kubectl apply -f - < "$here/smoke.yaml" > /dev/null
kubectl -n smoke wait --for=condition=Ready pod --all --timeout=180s > /dev/null
for name in runc gvisor; do
    kubectl -n smoke exec client -- wget -q -T 10 -O - "http://$name.smoke.svc.cluster.local:8080/etc/hostname" | grep -qx "$name"
done
kubectl -n smoke exec gvisor -- dmesg | grep -qi gvisor
kubectl delete namespace smoke --wait=false > /dev/null
say "done"
