#!/usr/bin/env python3
"""Makes the objects immortal that a built component says last: freeze.py COMPONENT

Reference counts are in the data of the component's core modules, which are the interpreter's memory
as it was when the component was built.
"""

import struct
import sys

# CPython 3.14 where addresses have 32 bits: Include/refcount.h.
IMMORTAL = 5 << 28
MARK = b"\x0e\xa5\xfaobjects that last\x0e\xa5\xfa"

CORE_MODULE, DATA = 1, 11
MODULE_HEADER = 8
I32_CONST, END = 0x41, 0x0B


class Reader:
    def __init__(self, data, at, end):
        self.data, self.at, self.end = data, at, end

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def leb(self, signed=False):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def sections(self):
        self.at += MODULE_HEADER
        while self.at < self.end:
            kind, size = self.byte(), self.leb()
            yield kind, Reader(self.data, self.at, self.at + size)
            self.at += size


def segments(component):
    """Where memory is in the file: address, offset, length."""
    for kind, module in Reader(component, 0, len(component)).sections():
        if kind != CORE_MODULE:
            continue
        for kind, section in module.sections():
            if kind != DATA:
                continue
            for _ in range(section.leb()):
                if section.leb() != 0 or section.byte() != I32_CONST:
                    raise SystemExit("a segment that is not at a constant place of memory 0")
                address = section.leb(signed=True) & 0xFFFF_FFFF
                if section.byte() != END:
                    raise SystemExit("a segment whose place is reckoned")
                length = section.leb()
                yield address, section.at, length
                section.at += length


def main(path):
    with open(path, "rb") as file:
        component = bytearray(file.read())
    memory = sorted(segments(component))
    print(f"{len(memory)} segments")
    at = component.index(MARK) + len(MARK)
    if component.find(MARK, at) >= 0:
        raise SystemExit("the mark is there twice")
    (count,) = struct.unpack_from("<I", component, at)
    addresses = sorted(struct.unpack_from(f"<{count}I", component, at + 4))
    component[at : at + 4 + 4 * count] = bytes(4 + 4 * count)
    made = segment = 0
    for address in addresses:
        while segment < len(memory) and memory[segment][0] + memory[segment][2] < address + 4:
            segment += 1
        if segment == len(memory) or memory[segment][0] > address:
            continue
        offset = memory[segment][1] + address - memory[segment][0]
        (references,) = struct.unpack_from("<I", component, offset)
        if 0 < references < 1 << 24:
            struct.pack_into("<I", component, offset, IMMORTAL)
            made += 1
    print(f"{made} of {count} objects made immortal")
    if made < count // 2:
        raise SystemExit("most are not where they should be")
    with open(path, "wb") as file:
        file.write(component)


main(*sys.argv[1:])
