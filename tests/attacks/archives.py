"""Archives of torch.export that unpack to more than they contain."""

import json
import os
import struct
import zipfile
import zlib

from common import ROOT, attack, write

ARCHIVE = os.path.join(ROOT, "tests/data/buffers.pt2")
READ = ("check m.pt2", "info m.pt2", "print m.pt2 -o out.fxir", "compile m.pt2")


def archive(change=lambda name, data: data, method=zipfile.ZIP_STORED, more=()):
    """Writes m.pt2, the archive of the tests with entries changed and added."""
    with zipfile.ZipFile(ARCHIVE) as source, zipfile.ZipFile("m.pt2", "w", method) as out:
        for name in source.namelist():
            data = change(name, source.read(name))
            if data is not None:
                out.writestr(name, data)
        for name, data in more:
            out.writestr(name, data)


def change_weights(edit):
    def change(name, data):
        if not name.endswith("weights_config.json"):
            return data
        table = json.loads(data)
        edit(table["config"])
        return json.dumps(table).encode()
    return change


@attack(*READ)
def strided_weights():
    """Weights of 2^30 elements in four bytes, by strides of zero."""
    def edit(table):
        for w in table.values():
            w["tensor_meta"]["sizes"], w["tensor_meta"]["strides"] = [{"as_int": 1 << 30}], [{"as_int": 0}]
    archive(change_weights(edit))


@attack(*READ)
def many_strided_weights():
    """Ten thousand weights of 4 MB each, by strides of zero: 40 GB in all."""
    def edit(table):
        w = json.dumps(table["a.bias"])
        for i, key in enumerate(table):
            table[key] = json.loads(w)
            table[key]["tensor_meta"]["sizes"] = [{"as_int": (1 << 27) + i}]
            table[key]["tensor_meta"]["strides"] = [{"as_int": 0}]
    archive(change_weights(edit))


@attack(*READ)
def deflated_json():
    """200 MB of JSON in 200 kB: a list of empty lists."""
    text = b'{"graph_module": {"graph": {"nodes": [], "tensor_values": {}, "z": [' + b"[]," * 66_000_000 + b"[]]}}}"
    archive(lambda name, data: text if name.endswith("model.json") else data, zipfile.ZIP_DEFLATED)


@attack(*READ)
def deflated_nodes():
    """100 MB of nodes in 100 kB."""
    text = b'{"graph_module": {"graph": {"nodes": [' + b"{}," * 33_000_000 + b'{}], "tensor_values": {}}}}'
    archive(lambda name, data: text if name.endswith("model.json") else data, zipfile.ZIP_DEFLATED)


@attack(*READ)
def deflated_blob():
    """A weight of 2 GB in 2 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = b"".join([packer.compress(bytes(1 << 24)) for _ in range(128)] + [packer.flush()])
    archive(lambda name, data: None if name.endswith("weights/weight_1") else data)
    add_raw("m.pt2", "buffers/data/weights/weight_1", body, 1 << 31)


def add_raw(path, name, body, size):
    """Adds a deflated entry whose content is not computed."""
    with zipfile.ZipFile(path) as z:
        end, count = z.start_dir, len(z.infolist())
    with open(path, "rb") as f:
        data = f.read()
    directory = data[end:-22]
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(body), size, len(name), 0) + name.encode() + body
    fields = (20, 20, 0, 8, 0, 0, 0, len(body), size, len(name), 0, 0, 0, 0, 0, end)
    central = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", *fields)
    directory += central + name.encode()
    tail = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count + 1, count + 1, len(directory), end + len(local), 0)
    write(path, data[:end] + local + directory + tail)


@attack(*READ)
def many_entries():
    """60,000 entries, and as many weights."""
    archive(more=[(f"buffers/data/weights/w{i}", b"1234") for i in range(60_000)])


@attack(*READ)
def packed_weights():
    """4,000 deflated weights: each must not read the whole directory again."""
    names = [f"w{i}" for i in range(4_000)]
    def edit(table):
        for name in names:
            table[name] = dict(table["count"], path_name=name)
    def change(name, data):
        if name.endswith("models/model.json"):
            return more_parameters(data, names)
        return change_weights(edit)(name, data)
    archive(change, zipfile.ZIP_DEFLATED, [(f"buffers/data/weights/{n}", bytes(4)) for n in names])


def more_parameters(data, names):
    model = json.loads(data)
    module = model["graph_module"]
    count = next(i for i in module["signature"]["input_specs"] if "buffer" in i and i["buffer"]["buffer_name"] == "count")
    key = count["buffer"]["arg"]["name"]
    for n in names:
        spec = json.loads(json.dumps(count))
        spec["buffer"]["arg"]["name"], spec["buffer"]["buffer_name"] = f"b_{n}", n
        module["signature"]["input_specs"].insert(0, spec)
        module["graph"]["inputs"].insert(0, {"as_tensor": {"name": f"b_{n}"}})
        module["graph"]["tensor_values"][f"b_{n}"] = module["graph"]["tensor_values"][key]
    return json.dumps(model).encode()
