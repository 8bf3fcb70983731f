# shellcheck shell=bash
# What every script of the lab agrees on. To be sourced.

# The scripts of the lab, and the project around them.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

# Where everything made here is kept; nothing is written elsewhere.
lab=${LAB:-$root/target/lab}
mkdir -p "$lab"
lab=$(cd "$lab" && pwd)

# fail TEXT: ends the script.
fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Prints what this machine lacks for the lab, if anything.
missing() {
    local tool
    for tool in qemu-system-x86_64 apt-get dpkg-deb cpio xz zstd gzip python3 make gcc readelf strip depmod; do
        command -v "$tool" >/dev/null || printf '%s is not installed\n' "$tool"
    done
}
