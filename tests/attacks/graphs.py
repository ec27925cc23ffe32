"""Graphs and texts that grow."""

import itertools

from common import attack, graph, write

CHECKED = ("check m.fxir", "compile m.fxir", "run m.fxir x=ones", "run m.fxir x=ones --interpret", "opt m.fxir", "print m.fxir")


@attack(*CHECKED)
def doubled_values():
    """A graph that returns its argument twice, called 22 times in a row: 2^22 items."""
    calls = [f"%a{i + 1} = call_function d(%a{i})" for i in range(22)]
    text = graph(["%a0 = call_function torch.relu(%x)", *calls, "output %a22"])
    write("m.fxir", text + "graph d {\n%x = placeholder x\noutput (%x, %x)\n}\n")


@attack(*CHECKED)
def doubled_values_many_times():
    """As above, 12 doublings, but a thousand nodes have the result."""
    calls = [f"%a{i + 1} = call_function d(%a{i})" for i in range(12)]
    same = [f"%b{i} = call_function s(%{'a12' if i == 0 else f'b{i - 1}'})" for i in range(1000)]
    text = graph(["%a0 = call_function torch.relu(%x)", *calls, *same, "output %b999"])
    text += "graph d {\n%x = placeholder x\noutput (%x, %x)\n}\n"
    write("m.fxir", text + "graph s {\n%x = placeholder x\noutput %x\n}\n")


@attack(*CHECKED[:2], "run m.fxir x=zeros --dim N=2", "run m.fxir x=zeros --dim N=2 --interpret")
def squared_sizes():
    """A symbolic size, squared 30 times."""
    squares = [f"%a{i + 1} = call_function operator.mul(%a{i}, %a{i})" for i in range(30)]
    lines = ["%a0 = call_method size(%x, 0)", *squares, "%y = call_function torch.full([2], %a30)", "output %y"]
    write("m.fxir", graph(lines, "%x : f32[N] = placeholder x"))


@attack(*CHECKED[:2], "run m.fxir x=zeros --dim N=2 --dim M=3")
def nested_sizes():
    """Floor divisions and remainders of sizes by each other: the expression doubles with every line."""
    lines = ["%a0 = call_method size(%x, 0)", "%b0 = call_method size(%x, 1)"]
    for i in range(40):
        lines += [f"%c{i} = call_function operator.floordiv(%a{i}, %b{i})"]
        lines += [f"%a{i + 1} = call_function operator.add(%c{i}, %a{i})"]
        lines += [f"%b{i + 1} = call_function operator.mod(%a{i + 1}, %b{i})"]
    write("m.fxir", graph([*lines, "%y = call_function torch.full([2], %a40)", "output %y"], "%x : f32[N, M] = placeholder x"))


@attack(*CHECKED)
def inlined_nodes():
    """Graphs that call the one before twice: 2^21 nodes once they are inlined."""
    graphs = [graph(["%y = call_function g20(%x)", "output %y"])]
    graphs.append("graph g0 {\n%x = placeholder x\n%y = call_function torch.exp(%x)\noutput %y\n}\n")
    for i in range(1, 21):
        body = f"%a = call_function g{i - 1}(%x)\n%b = call_function g{i - 1}(%a)\noutput %b"
        graphs.append(f"graph g{i} {{\n%x = placeholder x\n{body}\n}}\n")
    write("m.fxir", "".join(graphs))


@attack(*CHECKED)
def nested_loops():
    """Loops whose bodies run a loop twice, 20 deep: 2^20 copies of a graph, and as many turns."""
    def loop(name, body):
        zero = f"%{name}z = call_function torch.zeros([], dtype=i64)"
        run = f"%{name} = call_function torch.while_loop(@less, @{body}, (%{name}z, %x))"
        return f"{zero}\n{run}\n%{name}x = call_function operator.getitem(%{name}, 1)"
    head = "%i = placeholder i\n%x = placeholder x\n"
    next_turn = head + "%j = call_function operator.add(%i, 1)\n"
    graphs = [graph([loop("a", "b20"), "output %ax"])]
    graphs.append("graph less {\n" + head + "%y = call_function operator.lt(%i, 2)\noutput %y\n}\n")
    graphs.append("graph b0 {\n" + next_turn + "output (%j, %x)\n}\n")
    for i in range(1, 21):
        inner = loop("a", f"b{i - 1}") + "\n" + loop("c", f"b{i - 1}")
        graphs.append(f"graph b{i} {{\n{next_turn}{inner}\noutput (%j, %x)\n}}\n")
    write("m.fxir", "".join(graphs))


@attack(*CHECKED)
def named_copies():
    """A graph of 2,000 nodes that 4,000 branches name: each use is copied."""
    body = "\n".join(f"%a{i + 1} = call_function torch.exp(%a{i})" for i in range(2000))
    uses = [f"%b{i} = call_function torch.cond(%p, @g, @g, (%x,))" for i in range(2000)]
    text = graph(["%s = call_function torch.sum(%x)", "%p = call_function operator.gt(%s, 0)", *uses, "output %b1999"])
    write("m.fxir", text + "graph g {\n%a0 = placeholder a0\n" + body + "\noutput %a2000\n}\n")


@attack("run m.fxir x=ones", "run m.fxir x=ones --interpret")
def endless_loop():
    text = graph(["%z = call_function torch.zeros([])", "%w = call_function torch.while_loop(@t, @b, (%z,))", "output %w"])
    text += "graph t {\n%i = placeholder i\n%y = call_function operator.lt(%i, 2)\noutput %y\n}\n"
    write("m.fxir", text + "graph b {\n%i = placeholder i\n%y = call_function operator.mul(%i, 1)\noutput (%y,)\n}\n")


@attack("rewrite m.fxir")
def growing_rules():
    """A rule that writes 200 calls where it finds one, and a rule that writes what the other reads."""
    def rule(name, reads, writes):
        pattern = f"%n = call_function {reads}(%x)\noutput %n"
        return f"rewrite {name}(%x) {{\n{pattern}\n}} => {{\n{writes}\n}}\n"
    many = "\n".join(f"%e{i} = call_function exp(%{'x' if i == 0 else f'e{i - 1}'})" for i in range(200))
    rules = rule("grow", "neg", f"{many}\noutput %e199")
    rules += rule("again", "exp", "%m = call_function neg(%x)\n%o = call_function neg(%m)\noutput %o")
    write("m.fxir", graph(["%y = call_function torch.neg(%x)", "output %y"]) + rules)


@attack("check m.fxir", "fmt m.fxir", "compile m.fxir", "print m.fxir", "run m.fxir x=ones")
def deep_arguments():
    """Lists in lists, 200 deep, and 200,000 brackets that are never closed."""
    write("m.fxir", graph(["%y = call_function torch.cat(" + "[" * 200 + "%x" + "]" * 200 + ")", "output %y"]) + "[" * 200_000)


@attack("check m.fxir", "fmt m.fxir", "print m.fxir", limits=False)
def long_line():
    """180 MB of calls in one line."""
    with open("m.fxir", "w") as f:
        f.write("graph main { %a0 : f32[2] = placeholder x ")
        for i in itertools.count():
            f.write(f"%a{i + 1} = call_function torch.relu(%a{i}) ")
            if i % 1000 == 0 and f.tell() > 180_000_000:
                break
        f.write(f"output %a{i + 1} }}\n")


@attack("check m.fxir", "fmt m.fxir", "check m.fxir --message-format json", "check m.fxir --message-format sarif", limits=False)
def nulls():
    """100 MB of NULs in a graph: one error, which must not print them."""
    write("m.fxir", b"graph main { " + bytes(100_000_000) + b"}")


@attack("check m.fxir", "check m.fxir --message-format json")
def many_errors():
    """200,000 errors on one line."""
    write("m.fxir", "graph main { " + "%x = call_function torch.nope(%y) " * 200_000 + "}")
