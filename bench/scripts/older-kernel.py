#!/usr/bin/env python3
"""Runs a program as if the kernel had no PAGEMAP_SCAN (before Linux 6.7).

Usage: older-kernel.py PROGRAM ARGUMENT...

A system-call filter fails that ioctl with ENOTTY, like older kernels, in the program and in all
processes that it starts.
"""

import ctypes
import os
import struct
import sys

PAGEMAP_SCAN = 0xC0606610
SYS_IOCTL = 16
ENOTTY = 25
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
RETURN_ALLOW = 0x7FFF0000
RETURN_ERRNO = 0x00050000
# Classic BPF: load a word at an offset, jump if equal, return.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
# Offsets in struct seccomp_data: the call's number, and the low half of its second argument.
NUMBER, SECOND_ARGUMENT = 0, 24


def filter_program() -> bytes:
    instructions = [
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_EQUAL, 0, 3, SYS_IOCTL),
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, PAGEMAP_SCAN),
        (RETURN, 0, 0, RETURN_ERRNO | ENOTTY),
        (RETURN, 0, 0, RETURN_ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *one) for one in instructions)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    libc = ctypes.CDLL(None, use_errno=True)
    program = filter_program()
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    # Without this, only root may install a filter. As root, the program keeps its privileges.
    if os.geteuid() != 0 and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit(f"no new privileges: {os.strerror(ctypes.get_errno())}")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0) != 0:
        sys.exit(f"the filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
