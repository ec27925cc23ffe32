//! Restores the form of an exported program from the form with attributes, the inverse of
//! [`unlift`](crate::graph::unlift).

use crate::diag::words::{count, with_article};
use crate::graph::{Arg, Graph, GraphModule, InputSpec, NodeId, Opcode, OutputSpec, Signature, type_output};
use crate::types::Val;
use std::sync::Arc;

/// Turns attributes of the entry graph into inputs and its writes into results, as [`GraphModule::exported`] says,
/// which becomes the graph's [`signature`](Graph::signature). Does nothing to a module that was not exported. The error
/// says where graph and signature disagree; the module must not be used after an error.
pub fn lift(module: &mut GraphModule) -> Result<(), String> {
    let Some(mut signature) = module.exported.take() else {
        return Ok(());
    };
    let types: Vec<_> = signature.inputs.iter().map(|s| attribute_type(module, s)).collect();
    let Some(graph) = module.entry_mut() else { return Ok(()) };
    lift_outputs(graph, &mut signature)?;
    lift_inputs(graph, &mut signature)?;
    for (node, ty) in graph.placeholders().into_iter().zip(types) {
        let meta = graph.meta_mut(node);
        meta.ty = meta.ty.take().or(ty);
    }
    graph.signature = Some(signature);
    Ok(())
}

fn attribute_type(module: &GraphModule, spec: &InputSpec) -> Option<crate::types::Type> {
    let attribute = module.attributes.get(spec.target.as_ref()?)?;
    let value = attribute.value.as_ref().map(|t| Val::Leaf(t.ty()));
    attribute
        .ty
        .clone()
        .or(value)
        .filter(|_| spec.attribute_kind().is_some())
}

/// Inserts a placeholder after `before`, or at the start of the graph.
fn insert_placeholder(graph: &mut Graph, before: Option<NodeId>, name: &str) -> Result<NodeId, String> {
    let make = |g: &mut Graph| g.create_node(Opcode::Placeholder, name, vec![], vec![], None);
    let next = before.map_or(graph.first(), |b| graph.next(b));
    let node = graph.inserting_before(next, make).map_err(|e| e.to_string())?;
    // No other node has this name, but the erased node may still reserve it, so the name is set directly.
    graph.namer.reserve(name);
    graph.nodes[node].name = name.to_string();
    Ok(node)
}

/// Makes a placeholder for each input, in the signature's order. Unused attributes no longer have a node, so one is
/// created.
fn lift_inputs(graph: &mut Graph, signature: &mut Signature) -> Result<(), String> {
    let mut before: Option<NodeId> = None;
    for spec in &mut signature.inputs {
        let lifted = spec.attribute_kind().is_some();
        let existing = graph.find(&spec.name);
        let node = match existing {
            Some(n) => n,
            None if lifted => insert_placeholder(graph, before, &spec.name)?,
            None => return Err(format!("unknown node `{}`", spec.name)),
        };
        let (op, target) = (graph[node].op(), graph[node].target());
        let fits = match lifted {
            true => existing.is_none() || op == Opcode::GetAttr && spec.target.as_deref() == Some(target),
            false => op == Opcode::Placeholder,
        };
        if !fits {
            return Err(format!("`{}` is not {}", spec.name, with_article(&spec.kind)));
        }
        if lifted {
            graph.set_target(node, Opcode::Placeholder, &spec.name);
        } else if let Some(value) = graph[node].args().first() {
            spec.constant = value.try_map(&mut |_| Err(())).ok();
            graph.set_args(node, vec![]);
        }
        before = Some(node);
    }
    match graph.placeholders().len() == signature.inputs.len() {
        true => Ok(()),
        false => Err(format!(
            "the signature has {}, but the graph has {}",
            count(signature.inputs.len(), "input"),
            graph.placeholders().len()
        )),
    }
}

/// Makes one tuple of all results: first the new values of buffers and inputs, which the graph's last nodes write, then
/// the user's.
fn lift_outputs(graph: &mut Graph, signature: &mut Signature) -> Result<(), String> {
    let output = graph.output().ok_or("the graph has no output")?;
    let mut seen = vec![];
    let nesting = graph[output].args().first().map(|v| flatten_result(v, &mut seen));
    let writes = signature.outputs.iter().filter(|s| !s.is_users()).count();
    if writes + seen.len() != signature.outputs.len() {
        let (a, b) = (signature.outputs.len() - writes, seen.len());
        return Err(format!(
            "the signature has {}, but the graph has {b}",
            count(a, "result")
        ));
    }
    signature.results = nesting;
    let mut written = vec![];
    for spec in signature.outputs.iter().rev().filter(|s| !s.is_users()) {
        let node = graph
            .prev(output)
            .filter(|&n| writes_of(graph, n, spec.target.as_ref()));
        let node =
            node.ok_or_else(|| format!("`{}` is never written", spec.target.as_deref().unwrap_or(&spec.name)))?;
        written.push(graph[node].args()[1].clone());
        graph.erase_node(node).map_err(|e| e.to_string())?;
    }
    let mut seen = seen.into_iter();
    let mut next = |spec: &OutputSpec| if spec.is_users() { seen.next() } else { written.pop() };
    let values: Vec<Arg> = signature.outputs.iter().filter_map(&mut next).collect();
    graph.set_args(output, vec![Val::Tuple(values)]);
    type_output(graph, output);
    Ok(())
}

/// Whether the node is the write that [`unlift`](crate::graph::unlift) creates for a buffer or an input.
fn writes_of(graph: &Graph, n: NodeId, target: Option<&Arc<str>>) -> bool {
    let node = &graph[n];
    let [Val::Leaf(to), _] = node.args() else { return false };
    let names = [graph[*to].target(), graph[*to].name()];
    node.target() == "torch.ops.aten.copy_.default" && target.is_some_and(|t| names.contains(&&**t))
}

/// Appends the values inside a nested result to `out`, and returns the nesting of lists, tuples and dicts.
fn flatten_result(v: &Arg, out: &mut Vec<Arg>) -> Val<usize> {
    match v {
        Val::List(v) => Val::List(v.iter().map(|x| flatten_result(x, out)).collect()),
        Val::Tuple(v) => Val::Tuple(v.iter().map(|x| flatten_result(x, out)).collect()),
        Val::Dict(v) => {
            let entries = v.iter().map(|(k, x)| (k.map(|_| 0), flatten_result(x, out)));
            Val::Dict(entries.collect())
        }
        v => {
            out.push(v.clone());
            Val::Leaf(out.len() - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{build, print, unlift};
    use crate::source::FileId;
    use crate::syntax::parse_text;

    const TEXT: &str = "dim s77 in 0..\n\ngraph main {\n    %p_weight : f32[5, 4] = get_attr weight\n    %b_count : i64[] = get_attr count\n    %x : f32[s77, 4] = placeholder x\n    %k : int = placeholder k = 3\n    %linear : f32[s77, 5] = call_function torch.ops.aten.linear.default(%x, %p_weight)\n    %add : i64[] = call_function torch.ops.aten.add.Tensor(%b_count, 1)\n    %copy_ = call_function torch.ops.aten.copy_.default(%b_count, %add)\n    %output : {\"y\": f32[s77, 5], \"n\": [None]} = output {\"y\": %linear, \"n\": [None]}\n}\nparam weight : f32[5, 4]\nparam unused : f32[2]\nbuffer count : i64[]\nsignature (p_weight : PARAMETER weight, p_unused : PARAMETER unused, b_count : BUFFER count persistent, x : USER_INPUT, k : USER_INPUT) => (add : BUFFER_MUTATION count, linear : USER_OUTPUT, \"\" : USER_OUTPUT) where (s77 = \"VR[2, int_oo]\")\n";

    fn read(text: &str) -> GraphModule {
        let (file, findings) = parse_text(FileId(0), text);
        assert!(findings.is_empty(), "{findings:#?}");
        build(&file, "m").0
    }

    #[test]
    fn lifting_undoes_unlifting() {
        let mut m = read(TEXT);
        let printed = print(&m);
        assert!(printed.contains("b_count : BUFFER count persistent,\n"), "{printed}");
        lift(&mut m).unwrap();
        let g = m.entry().unwrap();
        let names: Vec<_> = g.placeholders().iter().map(|&n| g[n].name().to_string()).collect();
        assert_eq!(names, ["p_weight", "p_unused", "b_count", "x", "k"]);
        let unused = &g[g.find("p_unused").unwrap()];
        assert_eq!(unused.meta.ty.as_ref().unwrap().to_string(), "f32[2]");
        let output = &g[g.output().unwrap()];
        let Some(Val::Tuple(results)) = output.args().first() else {
            panic!()
        };
        assert_eq!(results.len(), 3);
        assert!(
            crate::graph::torch::readable::print_program(&m)
                .contains("    b_count: BUFFER target='count' persistent=True\n")
        );
        unlift(&mut m).unwrap();
        // The node that wrote the buffer still reserves its name.
        assert_eq!(print(&m).replace("copy__default", "copy_"), printed);
        assert_eq!(print(&read(&printed)), printed);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (from, to, want) in [
            (
                "linear : USER_OUTPUT, ",
                "",
                "the signature has 1 result, but the graph has 2",
            ),
            (
                "add : BUFFER_MUTATION count",
                "add : BUFFER_MUTATION other",
                "`other` is never written",
            ),
            (
                "x : USER_INPUT, ",
                "",
                "the signature has 4 inputs, but the graph has 5",
            ),
            ("x : USER_INPUT, ", "z : USER_INPUT, ", "unknown node `z`"),
            (
                "x : USER_INPUT, ",
                "linear : USER_INPUT, ",
                "`linear` is not a USER_INPUT",
            ),
        ] {
            assert_eq!(lift(&mut read(&TEXT.replace(from, to))), Err(want.to_string()));
        }
    }
}
