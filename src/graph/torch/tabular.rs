//! `Graph.print_tabular()` of torch, as the `tabulate` library lays it out.
//!
//! torch prints the target of a `call_function` as Python's `repr` of the function. For most of torch that is like
//! `<built-in method relu of type object at 0x7f44480bc100>`, with an address that is valid in one process only. Here
//! it is the function's path, as in `print(graph)`: `torch.relu`.

use super::form::torch_form;
use crate::graph::{Arg, Graph, GraphModule, NodeId, pyrepr, torch_print};
use crate::types::Val;

/// The table, with a row for each node: opcode, name, target, positional and keyword arguments. It has no final
/// newline. `module` determines which names are graphs of the same file.
pub fn print_tabular(graph: &Graph, module: Option<&GraphModule>) -> String {
    let graph = torch_form(graph, module);
    let name = |n: &NodeId| graph[*n].name().to_string();
    let mut rows = vec![["opcode", "name", "target", "args", "kwargs"].map(str::to_string)];
    for n in graph.iter() {
        let node = &graph[n];
        let kwargs = node
            .kwargs()
            .iter()
            .map(|(k, v)| (Val::Str(k.clone()), v.clone()))
            .collect();
        rows.push([
            node.op().name().to_string(),
            node.name().to_string(),
            torch_print::pretty_target(&graph, n),
            pyrepr::repr(&Arg::Tuple(node.args().to_vec()), &name),
            pyrepr::repr(&Arg::Dict(kwargs), &name),
        ]);
    }
    layout_table(&rows)
}

/// `tabulate`'s default format, "simple": columns are two spaces apart and at least two characters wider than their
/// header, a line of dashes follows the headers, and there are no trailing spaces.
fn layout_table(rows: &[[String; 5]]) -> String {
    let width = |s: &str| s.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    let columns: [usize; 5] = std::array::from_fn(|c| {
        let least = rows[0][c].len() + 2;
        rows[1..].iter().map(|r| width(&r[c])).max().unwrap_or(0).max(least)
    });
    let mut out = vec![];
    for (i, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(columns).map(|(s, w)| format!("{s:<w$}"));
        out.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_string());
        if i == 0 {
            out.push(columns.map(|w| "-".repeat(w)).join("  "));
        }
    }
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lays_out_as_tabulate_does() {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let relu = g.call_function("torch.relu", vec![Val::Leaf(x)], vec![]);
        let kwargs = vec![
            ("dim".into(), Val::int(1)),
            ("device".into(), Val::Device("cpu".into())),
        ];
        let max = g.call_method("max", vec![Val::Leaf(relu)], kwargs);
        g.set_output(Val::Tuple(vec![Val::Leaf(max), Val::str("s")]));
        assert_eq!(
            print_tabular(&g, None),
            "\
opcode         name    target      args             kwargs
-------------  ------  ----------  ---------------  ----------------------------------------
placeholder    x       x           ()               {}
call_function  relu    torch.relu  (x,)             {}
call_method    max_1   max         (relu,)          {'dim': 1, 'device': device(type='cpu')}
output         output  output      ((max_1, 's'),)  {}"
        );
        assert_eq!(
            print_tabular(&Graph::new(), None),
            "opcode    name    target    args    kwargs\n--------  ------  --------  ------  --------"
        );
    }
}
