# shellcheck shell=bash
# What the cases are written with. To be sourced by a case, which `run` starts. The head of a case says
# what it is for, how many seconds it may take, and which of our programs it needs:
#   limit: 60
#   examples: NAME...
#   programs: NAME...
#   tests: NAME...
#   features: NAME...   what they are all built with
#   user: root          if it must run as that
#   full: only          if it takes long and rarely fails
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

name=$(basename "$0")
console=$lab/logs/$name.console
capture=$lab/logs/$name.pcap
forwards=
guest=
servers=()
# What the case uses while it runs.
place=$(mktemp -d "$lab/case.XXXXXX")
trap 'stop; rm -rf "$place"' EXIT
# Once is enough: what cleans up must not be ended by a second one.
trap 'trap "" TERM; exit 143' TERM
mkdir -p "$lab/logs"

# forward VARIABLE PORT: sets VARIABLE to a port of this machine that will lead to PORT of the guest.
# A connection to it is taken before the guest listens: wait for an answer, not for a connection.
forward() {
    free_port "$1"
    forwards+=",hostfwd=tcp:127.0.0.1:${!1}-:$2"
}

# free_port VARIABLE: sets VARIABLE to a port of this machine that nobody uses.
free_port() {
    local -n port_variable=$1
    port_variable=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
}

# serve PROGRAM ARGUMENT...: runs a program of this machine beside the guest.
serve() {
    "$@" &
    servers+=($!)
}

# store NAME OPTION...: serves files at an address of this machine, or at ADDRESS; sets NAME_rdma and
# NAME_mount to its ports.
store() {
    local -n rdma=$1_rdma mount=$1_mount
    local ready=$place/ready.$1 at=${ADDRESS:-127.0.0.1}
    shift
    serve "$(program haulage)" store serve --squash none --json \
        --listen "$at:0" --mount-listen "$at:0" --tcp-listen off "$@" >"$ready"
    until [[ -s $ready ]]; do
        kill -0 "${servers[-1]}" || fail 'the server ended'
        sleep 0.1
    done
    rdma=$(sed -n 's/.*"listen":"[^"]*:\([0-9]*\)".*/\1/p' "$ready")
    mount=$(sed -n 's/.*"mount_listen":"[^"]*:\([0-9]*\)".*/\1/p' "$ready")
}

# served: waits until all such programs have ended; fails unless all succeeded.
served() {
    local server status=0
    for server in "${servers[@]}"; do wait "$server" || status=1; done
    servers=()
    ((status == 0)) || fail 'a program beside the guest failed'
}

# start SCRIPT [FILE...]: boots a guest that runs guest/SCRIPT, with the FILEs in its PATH.
#   MEMORY=MiB, SHARE=DIRECTORY for its /share, EXTRA=1 for the larger tools, SUITES=1 for the
#   suites that file systems are judged by, WORDS='lab.name=value', CAPTURE=1 to keep
#   what goes over its network, IPV6=on, CPUS=N, ACCEL=kvm, MACHINE='OPTIONS' for more of QEMU's
# It has one processor, unless told otherwise, and place for another: where there can be only one, QEMU before
# 8.1 leaves out the guest's memory barriers, which its threads of devices need too, and the network stands still
# for good.
start() {
    local script=$1 archives=("$lab/guest.cpio") share=() dump=() machine words=${WORDS:-}
    shift
    : >"$console"
    mkdir -p "$place/tree/lab/bin"
    install -m 755 "$here/guest/$script" "$place/tree/lab/test"
    (($# == 0)) || install "$@" "$place/tree/lab/bin/"
    # Programs built here are mostly what debuggers want to know.
    strip "$place"/tree/lab/bin/* 2>/dev/null || true
    (cd "$place/tree" && find . | cpio --quiet -o -H newc -R 0:0) >"$place/own.cpio"
    [[ -z ${EXTRA:-} ]] || archives+=("$lab/extra.cpio")
    [[ -z ${SUITES:-} ]] || archives+=("$lab/suites.cpio")
    # The kernel unpacks archives that follow one another in that order.
    cat "${archives[@]}" "$place/own.cpio" >"$place/initramfs"
    if [[ -n ${SHARE:-} ]]; then
        share=(-virtfs "local,path=$SHARE,mount_tag=share,security_model=none")
        words+=' lab.share=1'
    fi
    [[ -z ${CAPTURE:-} ]] || dump=(-object "filter-dump,id=dump,netdev=net,file=$capture")
    read -ra machine <<<"${MACHINE:-}"
    mkfifo "$place/say"
    qemu-system-x86_64 -machine q35 -cpu max -accel "${ACCEL:-tcg,thread=multi,tb-size=512}" \
        -smp "${CPUS:-1},maxcpus=2" -m "${MEMORY:-512}" -nodefaults -no-user-config -display none -no-reboot \
        -serial stdio -kernel "$lab/vmlinux" -initrd "$place/initramfs" "${share[@]}" \
        -netdev "user,id=net,ipv4=on,ipv6=${IPV6:-off}$forwards" "${dump[@]}" \
        -device virtio-net-pci,netdev=net,romfile= "${machine[@]}" \
        -append "console=ttyS0 quiet panic=-1 tsc=unstable no_timer_check mitigations=off nokaslr audit=0 $words" \
        <"$place/say" >"$console" 2>&1 &
    guest=$!
    exec 7>"$place/say"
}

# await TEXT: waits until the guest has printed it.
await() {
    until grep -qF -- "$1" "$console"; do
        kill -0 "$guest" 2>/dev/null || {
            grep -qF -- "$1" "$console" && return
            fail "the guest ended before it said: $1"
        }
        sleep 0.1
    done
}

# say TEXT: gives the guest's test a line to read.
say() {
    printf '%s\n' "$1" >&7
}

# finish: waits until the guest has powered off; fails unless its test succeeded.
finish() {
    local status
    wait "$guest" || fail "qemu failed: $(tail -n 3 "$console")"
    guest=
    status=$(tr -d '\r' <"$console" | sed -n 's/.*lab: exit \([0-9]*\)$/\1/p' | tail -n 1)
    [[ $status == 0 ]] || fail "the guest's test ended with ${status:-no status}, see $console"
}

# dissect OPTION...: runs tshark on what was captured. That it ends within a packet is no failure.
dissect() {
    local status=0
    tshark -r "$capture" "$@" 2>"$place/tshark" || status=$?
    ((status == 0)) || grep -q 'cut short in the middle of a packet' "$place/tshark" ||
        fail "tshark: $(cat "$place/tshark")"
}

# decode: has tshark, if there, find RPC-over-RDMA in what went over the guest's network, and nothing
# malformed in it. It takes the Reply of a READ or READLINK for such if its data went by Write chunk,
# where it does not look for it, whoever sent it.
decode() {
    local found
    if ! command -v tshark >/dev/null; then
        echo 'tshark is not installed: what went over the network is not decoded'
        return
    fi
    found=$(dissect -Y rpcordma | wc -l)
    ((found > 0)) || fail "no RPC-over-RDMA in $capture"
    echo "$found messages of RPC-over-RDMA"
    # Now and then it loses an FPDU whose header is in two segments; then it finds no such message.
    found=$(dissect -Y 'rpcordma and _ws.malformed and not nfs.procedure_v3 in {5, 6}')
    [[ -z $found ]] || fail "malformed in $capture: $found"
}

# largest_ulpdu_at_most COUNT: has tshark, if there, measure what was sent to the NFS server.
largest_ulpdu_at_most() {
    local largest
    command -v tshark >/dev/null || return 0
    largest=$(dissect -Y 'tcp.dstport == 20049' -T fields -e iwarp_mpa.ulpdulength |
        tr ',' '\n' | sort -n | tail -n 1)
    echo "ULPDUs of at most $largest octets"
    [[ -n $largest ]] && ((largest <= $1 && largest > $1 - 16)) || fail "not $1"
}

# stop: ends the guest and the programs beside it as they are.
stop() {
    local process
    for process in $guest "${servers[@]}"; do kill "$process" 2>/dev/null || true; done
    guest=
    servers=()
}

# example NAME: prints the path of a program from tests/examples, which `run` has built if the head of
# the case names it.
example() {
    program "examples/$1"
}

# program NAME: prints the path of a program from apps, likewise.
program() {
    printf '%s/%s/%s' "${CARGO_TARGET_DIR:-$root/target}" "${LAB_PROFILE:-release}" "$1"
}

# test_program NAME: prints the path of a test of haulage-tests, likewise.
test_program() {
    printf '%s/tests/%s' "$lab" "$1"
}
