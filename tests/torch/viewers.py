"""Checks the files for viewers of whole models: python tests/torch/viewers.py DIR [NAME …] [--fxc target/release/fxc]

DIR holds one folder a model (see models.py). Of each archive (export.pt2, core.pt2):
  netron          `fxc print --format netron` parses as ONNX's ModelProto (protobuf's JSON form), and every node's inputs are defined;
  netron-js       Netron's own scripts open it, with as many nodes;
  model-explorer  `fxc print --format model-explorer` fits the data classes of Model Explorer's graph_builder.py, and every
                  edge ends at a node;
  svg             `fxc print --format svg` is XML.

Needs: pip install onnx netron ai-edge-model-explorer, and node. What is missing is said and not checked.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

try:
    import onnx
    from google.protobuf import json_format
except ImportError as e:
    print(f"SKIPPED netron: {e}")
    onnx = None
try:
    from model_explorer import graph_builder
except ImportError as e:
    print(f"SKIPPED model-explorer: {e}")
    graph_builder = None


def netron(text):
    model = json_format.Parse(text, onnx.ModelProto())
    known = {v.name for v in model.graph.input} | {v.name for v in model.graph.initializer}
    for n in model.graph.node:
        missing = [i for i in n.input if i not in known]
        if missing:
            return f"{n.name} reads {missing}"
        known.update(n.output)
    missing = [o.name for o in model.graph.output if o.name not in known]
    return f"results {missing} are not computed" if missing else None


def netron_scripts(folder):
    """Makes a folder that tests/torch/netron.mjs reads of the installed Netron; says whether there is one."""
    spec = importlib.util.find_spec("netron")
    if spec is None or shutil.which("node") is None:
        print("SKIPPED netron-js: no package netron, or no node")
        return False
    shutil.copytree(os.path.dirname(spec.origin), f"{folder}/source")
    with open(f"{folder}/package.json", "w") as f:
        json.dump({"type": "module"}, f)
    return True


def opened(folder, text):
    path = f"{folder}/model.json"
    with open(path, "w") as f:
        f.write(text)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "netron.mjs")
    said = subprocess.run(["node", script, folder, path], capture_output=True, text=True)
    line = said.stdout.strip()
    nodes = len(json.loads(text)["graph"]["node"])
    return None if line.startswith(f"ONNX JSON v10: {nodes} nodes") else line or said.stderr.strip()[:200]


def fits(cls, value):
    """`value` with the keys of the data class `cls`, and of those it holds."""
    fields = {f.name for f in dataclasses.fields(cls)}
    unknown = set(value) - fields
    if unknown:
        raise ValueError(f"{cls.__name__} has no {unknown}")
    return cls(**value)


def explorer(text):
    gb = graph_builder
    collection = fits(gb.GraphCollection, json.loads(text))
    for g in collection.graphs:
        graph = fits(gb.Graph, g)
        nodes = [fits(gb.GraphNode, n) for n in graph.nodes]
        ids = {n.id for n in nodes}
        if len(ids) < len(nodes):
            return "two nodes have one id"
        for n in nodes:
            [fits(gb.KeyValue, a) for a in n.attrs]
            [fits(gb.MetadataItem, i) for i in n.inputsMetadata + n.outputsMetadata]
            odd = [e for e in n.incomingEdges if fits(gb.IncomingEdge, e).sourceNodeId not in ids]
            if odd:
                return f"{n.id}: {odd}"
    return None


def drawing(text):
    xml.fromstring(text)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("names", nargs="*")
    p.add_argument("--fxc", default="target/release/fxc")
    args = p.parse_args()
    scripts = tempfile.TemporaryDirectory()
    checks = {"svg": drawing}
    parse_errors = (ValueError, TypeError, xml.ParseError, *([json_format.ParseError] if onnx else []))
    if netron_scripts(scripts.name):
        checks["netron-js"] = lambda text: opened(scripts.name, text)
    if onnx:
        checks["netron"] = netron
    if graph_builder:
        checks["model-explorer"] = explorer
    failed = total = 0
    for name in args.names or sorted(os.listdir(args.dir)):
        for archive in ("export.pt2", "core.pt2"):
            path = f"{args.dir}/{name}/{archive}"
            if not os.path.exists(path):
                continue
            for form, check in checks.items():
                total += 1
                done = subprocess.run([args.fxc, "print", path, "--format", form.removesuffix("-js")], capture_output=True, text=True)
                try:
                    wrong = check(done.stdout) if done.returncode == 0 else done.stderr.strip()[:200]
                except parse_errors as e:
                    wrong = str(e)[:200]
                if wrong:
                    failed += 1
                    print(f"{path} {form}: {wrong}")
    print(f"{total - failed} of {total} agree")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
