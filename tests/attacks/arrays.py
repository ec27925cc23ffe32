"""Files of arrays whose headers say more than they contain."""

import struct
import zipfile
import zlib

from common import attack, one_input, write


def raw_zip(path, entry, copies):
    """A zip archive whose directory names the same bytes `copies` times."""
    central = b""
    name, body = entry
    sizes = (zlib.crc32(body), len(body), len(body), len(name(0)))
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, *sizes, 0) + name(0) + body
    for i in range(copies):
        fields = struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 0, 0, 0, *sizes, 0, 0, 0, 0, 0, 0)
        central += b"PK\x01\x02" + fields + name(i)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, min(copies, 65535), min(copies, 65535), len(central), len(local), 0)
    write(path, local + central + end)


def npy(shape, data=b"", dtype="<f4"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text.encode() + data


ONE_INPUT = ("run m.fxir --inputs in.npz", "run m.fxir x=in.npz:a0", "info in.npz")


@attack(*ONE_INPUT)
def overlapping_npz():
    """20,000 entries of an archive that share their bytes."""
    one_input()
    raw_zip("in.npz", (lambda i: f"a{i:05}.npy".encode(), npy("(250000,)", bytes(1_000_000))), 20_000)


@attack(*ONE_INPUT)
def deflated_npz():
    """64 arrays of 256 MB in 16 MB."""
    one_input()
    with zipfile.ZipFile("in.npz", "w", zipfile.ZIP_DEFLATED) as z:
        body = npy(f"({1 << 24},)", bytes(1 << 26))
        for i in range(8):
            z.writestr(f"a{i}.npy", body)


@attack("run m.fxir x=in.npy", "info in.npy")
def npy_rank():
    """An array of rank 400,000."""
    one_input()
    write("in.npy", npy("(" + "1," * 400_000 + ")", bytes(4)))


@attack("info in.safetensors", "run m.fxir --inputs in.safetensors", limits=False)
def safetensors_header():
    """A header of 98 MB."""
    one_input()
    items = b",".join(b'"%07d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(1_600_000))
    header = b"{" + items + b"}"
    write("in.safetensors", struct.pack("<Q", len(header)) + header)


@attack("info in.safetensors", "run m.fxir --inputs in.safetensors", limits=False)
def safetensors_lists():
    """A header of 98 MB of empty lists."""
    one_input()
    header = b'{"__metadata__":{"a":[' + b"[]," * 32_000_000 + b"[]]}}"
    write("in.safetensors", struct.pack("<Q", len(header)) + header)
