#!/usr/bin/env python3
"""vmlinux.py IMAGE KERNEL: writes the kernel that an x86 boot image carries compressed.

QEMU starts it directly, which saves the slowest part of an emulated boot: unpacking it in the guest.
"""
import lzma
import struct
import subprocess
import sys
import zlib

SETUP_SECTORS = 0x1F1
PAYLOAD = 0x248  # offset behind the setup code, and length


def main(image, kernel):
    with open(image, "rb") as file:
        data = file.read()
    start = ((data[SETUP_SECTORS] or 4) + 1) * 512
    offset, length = struct.unpack_from("<II", data, PAYLOAD)
    unpacked = unpack(data[start + offset : start + offset + length])
    if unpacked[:4] != b"\x7fELF":
        sys.exit(f"{image} does not hold an ELF kernel")
    with open(kernel, "wb") as file:
        file.write(unpacked)


def unpack(payload):
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        # Its unpacked length follows it.
        command = ["zstd", "--decompress", "--stdout", "--quiet"]
        return subprocess.run(command, input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
    sys.exit(f"unknown compression: {payload[:6].hex()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
