"""What the attacks share: the table of attacks and the texts of graphs."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# By name: the function that writes the files, the commands, and whether the general limits hold.
ATTACKS = {}


def attack(*commands, limits=True):
    """Registers a function that writes the files of an attack to the current directory; `commands` are run there."""

    def register(write):
        ATTACKS[write.__name__] = (write, commands, limits)
        return write

    return register


def write(name, data):
    with open(name, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def graph(lines, inputs="%x : f32[2] = placeholder x"):
    return "graph main {\n" + inputs + "\n" + "\n".join(lines) + "\n}\n"


def one_input():
    write("m.fxir", graph(["%y = call_function torch.relu(%x)", "output %y"], "%x : f32[N] = placeholder x"))
