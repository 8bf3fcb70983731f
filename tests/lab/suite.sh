# shellcheck shell=bash
# Runs a suite by which file systems are judged on our storage server. To be sourced by a case after case.sh.

# suite NAME [FILE...]: serves a directory and memory, and has the guest run the suite on mounts of both.
suite() {
    local name=$1 words
    shift
    mkdir "$place/served"
    chmod 777 "$place/served"
    store directory --export "$place/served" --state "$place/state"
    store memory --export memory:300MiB
    words="lab.suite=$name lab.directory_rdma=$directory_rdma lab.directory_mount=$directory_mount"
    words+=" lab.memory_rdma=$memory_rdma lab.memory_mount=$memory_mount"
    touch "$place/expected"
    [[ ! -f $here/expected/$name ]] || cp "$here/expected/$name" "$place/expected"
    SUITES=1 MEMORY=1024 WORDS=$words start suite "$place/expected" "$@"
    finish
    grep '^lab: ' "$console"
    kill "${servers[@]}"
    served
}
