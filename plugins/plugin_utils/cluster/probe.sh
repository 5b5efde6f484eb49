#!/bin/sh
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
#
# Runs in every smoke pod (busybox) and asks the cluster network what a workload would ask of it.
# Environment: DEADLINE seconds, PORT, CLUSTER_NAME, SERVICE_NAME, SERVICE_ADDRESS,
#   PEER_GROUPS (names of headless services), PEERS (how many pods these must name in all);
#   RESULT_FILE and KERNEL_FILE replace the files below in tests.
# Result: lines key=value in the termination message (at most 4096 bytes) and on standard output.
set -u
answered=
end=$(($(date +%s) + DEADLINE))

resolve() { # NAME -> its addresses, one a line
    answer=
    nslookup -type=a "$1" 2>/dev/null | while read -r word value _; do
        case $word in
        Name:) answer=yes ;; # what comes before is the name server itself
        Address:) if [ -n "$answer" ]; then echo "$value"; fi ;;
        esac
    done
}

fetch() { # ADDRESS -> the name of the pod that answers there
    wget -q -T 3 -O - "http://$1:$PORT/name" 2>/dev/null
}

cluster_name() { cluster=$(resolve "$CLUSTER_NAME") && [ -n "$cluster" ]; }

service_name() { service=$(resolve "$SERVICE_NAME") && [ "$service" = "$SERVICE_ADDRESS" ]; }

service_address() { answered=$(fetch "$SERVICE_ADDRESS") && [ -n "$answered" ]; }

all_peers() {
    peers=
    for group in $PEER_GROUPS; do
        peers="$peers $(resolve "$group")"
    done
    reached=0
    unreached=
    known=0
    for peer in $peers; do
        known=$((known + 1))
        if fetch "$peer" >/dev/null; then
            reached=$((reached + 1))
        else
            unreached="$unreached$peer "
        fi
    done
    [ "$known" -eq "$PEERS" ] && [ -z "$unreached" ]
}

failed=0
wait_for() { # A function above, tried until it holds or time is over; at least once
    until "$1"; do
        if [ "$(date +%s)" -ge "$end" ]; then
            failed=1
            return
        fi
        sleep 0.3
    done
}

sandbox=$(dmesg 2>/dev/null | while read -r line; do
    case $line in *"Starting gVisor"*) echo "$line" ;; esac
done)
read -r kernel <"${KERNEL_FILE:-/proc/version}"
wait_for cluster_name
wait_for service_name
wait_for service_address
wait_for all_peers

# Word splitting puts several addresses on one line.
# shellcheck disable=SC2086
result=$(
    echo "sandbox=$sandbox"
    echo "kernel=$kernel"
    echo dns_cluster=$cluster
    echo dns_service=$service
    echo "service=$answered"
    echo "peers=$reached/$PEERS"
    echo "known=$known"
    echo "failed=$failed"
    # Last, because a message that is too long loses its end.
    echo unreached=$unreached
)
echo "$result"
echo "$result" | head -c 4000 >"${RESULT_FILE:-/dev/termination-log}"
exit "$failed"
