//! Symbolic sizes from the user, by name (`N=8`) or by a dimension of an input (`x[0]=8`).
//!
//! An archive does not contain the names of `torch.export.Dim("seq")`: its sizes are `s27`, `s77`, … A dimension of an
//! input identifies a size without knowing its name.

use super::bind::{Dims, InputBinder};
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::{Graph, GraphModule};
use crate::types::Val;
use indexmap::IndexMap;

/// The size of each symbol that `given` determines. Reports unknown inputs and dimensions, and sizes that contradict
/// what the graph declares. Names of symbols are returned unchecked; [`super::bind::bind_inputs`] checks them.
pub(crate) fn resolve_dims(module: &GraphModule, given: &[(String, i64)]) -> (Dims, Diagnostics) {
    let (by_axis, by_name): (Vec<_>, Vec<_>) = given
        .iter()
        .partition(|(name, _)| name.ends_with(']') && name.contains('['));
    let dims: Dims = by_name.into_iter().cloned().collect();
    let Some(graph) = module.entry() else {
        return (dims, Diagnostics::new());
    };
    let mut binder = InputBinder::new(module, graph, dims);
    for (name, size) in by_axis {
        if let Err(d) = bind_axis(&mut binder, name, *size) {
            binder.out.push(d);
        }
    }
    (binder.dims, binder.out)
}

/// The symbolic sizes of a graph's inputs. Each maps to the first dimension of an input that has exactly this size:
/// `x[1]`.
pub(crate) fn input_symbols(graph: &Graph) -> IndexMap<String, Option<String>> {
    let mut found: IndexMap<String, Option<String>> = IndexMap::new();
    for p in graph.placeholders() {
        let node = &graph[p];
        let leaves = node.meta.ty.iter().flat_map(|t| t.leaves());
        let dims = leaves.flat_map(|t| t.shape.iter().flatten().enumerate());
        for (axis, d) in dims {
            d.visit_vars(&mut |v| {
                let place = found.entry(v.to_string()).or_default();
                let alone = d.as_var() == Some(v) && matches!(node.meta.ty, Some(Val::Leaf(_)));
                if alone && place.is_none() {
                    *place = Some(format!("{}[{axis}]", node.target()));
                }
            });
        }
    }
    found
}

/// The error for a size that no input has (E0505). It lists the known sizes.
pub(crate) fn unknown_size(name: &str, module: &GraphModule, known: &IndexMap<String, Option<String>>) -> Diagnostic {
    let d = Diagnostic::new(Code::E0505, format!("unknown size `{name}`"));
    if known.is_empty() {
        return d.note("the graph's inputs have no symbolic sizes");
    }
    if let Some(near) = nearest(name, known.keys().map(String::as_str)) {
        return d.help(format!("there is a size with a similar name: `{near}`"));
    }
    let shown = known.iter().map(|(symbol, place)| match place {
        Some(place) => format!("`{symbol}` (`{place}`)"),
        None => format!("`{symbol}`"),
    });
    let d = d.note(format!(
        "the graph's sizes are {}",
        shown.collect::<Vec<_>>().join(", ")
    ));
    match known.values().flatten().next() {
        Some(place) if module.exported.is_some() => d.help(format!(
            "archives do not store the names of `torch.export.Dim`; set the size by dimension: `--dim {place}=8`"
        )),
        _ => d,
    }
}

/// Binds the size of one dimension, given as `INPUT[AXIS]`.
fn bind_axis(binder: &mut InputBinder, name: &str, size: i64) -> Result<(), Diagnostic> {
    let fail = |title: String| Diagnostic::new(Code::E0505, title);
    let (input, axis) = name
        .strip_suffix(']')
        .and_then(|s| s.split_once('['))
        .and_then(|(input, axis)| Some((input, axis.parse::<i64>().ok()?)))
        .ok_or_else(|| {
            fail(format!("`{name}` is not a size")).help("write a symbol or an input's dimension: `N=8`, `x[0]=8`")
        })?;
    let Some(position) = binder.placeholder_index(input) else {
        return Err(unknown_input(binder, input));
    };
    let graph = binder.graph;
    let node = &graph[binder.placeholders[position]];
    let span = node.meta.span;
    let shape = match &node.meta.ty {
        Some(Val::Leaf(t)) => t.shape.as_ref(),
        _ => None,
    };
    let Some(shape) = shape else {
        let help = format!("pass the type of the input: `{input}:f32[…]`");
        return Err(fail(format!("the shape of input `{input}` is not declared"))
            .at_opt(span, "declared here")
            .help(help));
    };
    let rank = shape.len() as i64;
    let dim = usize::try_from(if axis < 0 { axis + rank } else { axis })
        .ok()
        .and_then(|i| shape.get(i))
        .ok_or_else(|| {
            fail(format!(
                "`{name}` is out of range: input `{input}` has {rank} dimensions"
            ))
            .at_opt(span, "declared here")
        })?;
    binder.unify(dim, size, "--dim").map_err(|why| {
        Diagnostic::new(Code::E0504, format!("`{name}` cannot be {size}: {why}")).at_opt(span, "declared here")
    })
}

fn unknown_input(binder: &InputBinder, input: &str) -> Diagnostic {
    let names = binder.placeholders.iter().map(|&p| binder.graph[p].target());
    let d = Diagnostic::new(Code::E0505, format!("the graph has no input `{input}`"));
    match nearest(input, names) {
        Some(n) => d.help(format!("there is an input with a similar name: `{n}`")),
        None => d,
    }
}

/// Sizes that change together, and their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SizeList {
    /// Symbols or dimensions of inputs.
    pub names: Vec<String>,
    /// The values.
    pub sizes: Vec<i64>,
}

/// Every combination of the sizes of `lists`, each with those of `fixed`.
pub(crate) fn combine_sizes(fixed: Vec<(String, i64)>, lists: &[SizeList]) -> Vec<Vec<(String, i64)>> {
    let mut all = vec![fixed];
    for list in lists {
        let with = |given: &Vec<(String, i64)>| {
            let each = list.sizes.iter().map(|&size| {
                let more = list.names.iter().map(|n| (n.clone(), size));
                given.iter().cloned().chain(more).collect()
            });
            each.collect::<Vec<Vec<(String, i64)>>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// The sizes to compile for without inputs: the given ones, and for others the minimum of their range but at least 2 (a
/// size of 1 broadcasts and would not show what the code does). Also returns which sizes were assumed.
pub fn assumed_dims(module: &GraphModule, mut dims: Dims) -> Result<(Dims, Vec<String>), Diagnostic> {
    let mut assumed = vec![];
    let Some(graph) = module.entry() else {
        return Ok((dims, assumed));
    };
    let known = input_symbols(graph);
    if let Some(name) = dims.keys().find(|name| !known.contains_key(*name)) {
        return Err(unknown_size(name, module, &known));
    }
    for name in known.into_keys() {
        if dims.contains_key(&name) {
            continue;
        }
        let range = module.dims.get(name.as_str());
        let size = range.map_or(2, |r| r.min.max(2).min(r.max.unwrap_or(i64::MAX)));
        assumed.push(format!("{name} = {size}"));
        dims.insert(name, size);
    }
    Ok((dims, assumed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str, given: &[(&str, i64)]) -> Result<Dims, String> {
        let mut sources = crate::source::Sources::new();
        let file = sources.add("test.fxir", text);
        let (tree, found) = crate::syntax::parse(&sources, file);
        assert!(!found.has_errors());
        let (module, found) = crate::graph::build(&tree, "test");
        assert!(!found.has_errors());
        let given: Vec<(String, i64)> = given.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        let (dims, found) = resolve_dims(&module, &given);
        match found.iter().next() {
            Some(d) => Err(d.title.clone()),
            None => Ok(dims),
        }
    }

    const GRAPH: &str = "graph g { %x : f32[N, 2*M, 8] = placeholder x %y = placeholder y output %x }";

    #[test]
    fn dimensions_of_inputs_name_sizes() {
        let want = Dims::from([("N".to_string(), 3), ("M".to_string(), 5)]);
        assert_eq!(sizes(GRAPH, &[("x[0]", 3), ("x[1]", 10)]), Ok(want.clone()));
        assert_eq!(sizes(GRAPH, &[("N", 3), ("x[-2]", 10), ("x[2]", 8)]), Ok(want));
    }

    #[test]
    fn dimensions_that_do_not_fit_are_reported() {
        let title = |given: &[(&str, i64)]| sizes(GRAPH, given).unwrap_err();
        assert_eq!(
            title(&[("x[1]", 7)]),
            "`x[1]` cannot be 7: no `M` makes `2*M` equal to 7"
        );
        assert_eq!(title(&[("x[2]", 7)]), "`x[2]` cannot be 7: expected 8");
        assert_eq!(
            title(&[("x[0]", 3), ("x[0]", 4)]),
            "`x[0]` cannot be 4: expected 3, because `N` is 3 here"
        );
        assert_eq!(
            title(&[("x[3]", 1)]),
            "`x[3]` is out of range: input `x` has 3 dimensions"
        );
        assert_eq!(title(&[("z[0]", 1)]), "the graph has no input `z`");
        assert_eq!(title(&[("x[a]", 1)]), "`x[a]` is not a size");
        assert_eq!(title(&[("y[0]", 1)]), "the shape of input `y` is not declared");
    }
}
