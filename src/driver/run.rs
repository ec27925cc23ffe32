//! Runs a compiled or interpreted graph on bound inputs.

use super::inputs::bind::{self, BoundInputs, Value};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, NodeId};
use crate::runtime::Executable;
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Val};

/// The tensors that an executable takes, in order, from the values of the graph's placeholders.
pub(crate) fn executable_inputs(
    executable: &Executable,
    graph: &Graph,
    bound: &BoundInputs,
) -> Result<Vec<Tensor>, Diagnostic> {
    let placeholders = graph.placeholders();
    let value = |name: &str| {
        let is = |&&n: &&NodeId| graph[n].name() == name || graph[n].target() == name;
        let n = placeholders.iter().find(is)?;
        bound.values.get(placeholders.iter().position(|p| p == n)?)?.as_leaf()
    };
    // An item of a nested input. Few models have one, and calls must be fast.
    let item = |name: &str| {
        let item_named = |(n, v): (&NodeId, &'_ Value)| {
            bind::named_tensors(graph[*n].target(), v)
                .into_iter()
                .find(|(i, _)| i == name)
                .map(|(_, t)| t.clone())
        };
        placeholders.iter().zip(&bound.values).find_map(item_named)
    };
    let inputs = executable.program().inputs.iter();
    let inputs = inputs.filter(|i| i.ty.is_some() && i.state.is_none());
    inputs
        .map(|i| {
            let missing = || Diagnostic::new(Code::E0501, format!("input `{}` has no tensor", i.name));
            value(&i.name).cloned().or_else(|| item(&i.name)).ok_or_else(missing)
        })
        .collect()
}

/// For each tensor that an executable takes, the position of its placeholder; `None` if one is an item of a nested
/// input.
pub(super) fn input_positions(executable: &Executable, graph: &Graph) -> Option<Vec<usize>> {
    let placeholders = graph.placeholders();
    let position = |name: &str| {
        let is = |&n: &NodeId| graph[n].name() == name || graph[n].target() == name;
        placeholders.iter().position(is)
    };
    let inputs = executable.program().inputs.iter();
    let inputs = inputs.filter(|i| i.ty.is_some() && i.state.is_none());
    inputs.map(|i| position(&i.name)).collect()
}

/// The results that the user sees: without the leading new values of buffers and inputs.
pub fn user_result(graph: &Graph, result: Value) -> Value {
    match result {
        Val::Tuple(v) if !graph.mutations.is_empty() => Val::Tuple(v.into_iter().skip(graph.mutations.len()).collect()),
        v => v,
    }
}

/// The tensors of a result in flattened order, named `output.0`, `output.1`, …
pub(crate) fn named_results(result: &Value) -> Vec<(String, Tensor)> {
    let tensors = result.leaves().into_iter();
    tensors
        .enumerate()
        .map(|(i, t)| (format!("output.{i}"), t.clone()))
        .collect()
}

/// A summary of a result for people: a line for each tensor and number, with its position in the structure.
pub(crate) fn result_overview(result: &Value) -> String {
    let mut items = vec![];
    collect_places(result, String::new(), &mut items);
    let width = items.iter().map(|(place, _)| place.len()).max().unwrap_or(0);
    let mut tensors = 0;
    let mut text = String::new();
    for (place, v) in items {
        let (name, ty, summary) = match v {
            Val::Leaf(t) => (format!("output.{tensors}"), t.ty().to_string(), tensor_summary(t)),
            Val::Int(d) => (String::new(), "int".into(), d.to_string()),
            Val::Float(x) => (String::new(), "float".into(), format!("{x:?}")),
            Val::Bool(b) => (String::new(), "bool".into(), b.to_string()),
            Val::Str(s) => (String::new(), "str".into(), format!("{s:?}")),
            _ => continue,
        };
        tensors += matches!(v, Val::Leaf(_)) as usize;
        let place = if width > 0 {
            format!("{place:width$} ")
        } else {
            String::new()
        };
        text.push_str(&format!("{name:10} {place}{ty:20} {summary}\n"));
    }
    text
}

/// The items of a structure with their positions in Python syntax: `["prob"]`, `[1]["k"]`.
fn collect_places<'a>(v: &'a Value, place: String, out: &mut Vec<(String, &'a Value)>) {
    match v {
        Val::List(v) | Val::Tuple(v) => {
            let items = v.iter().enumerate();
            items.for_each(|(i, v)| collect_places(v, format!("{place}[{i}]"), out));
        }
        Val::Dict(v) => {
            let key = |k: &Value| match k {
                Val::Str(s) => format!("{s:?}"),
                Val::Int(i) => i.to_string(),
                _ => "…".to_string(),
            };
            v.iter()
                .for_each(|(k, v)| collect_places(v, format!("{place}[{}]", key(k)), out));
        }
        v => out.push((place, v)),
    }
}

/// A one-line summary of a tensor: its range and mean, so that two runs can be compared at a glance.
pub(crate) fn tensor_summary(t: &Tensor) -> String {
    let n = t.numel();
    if n == 0 {
        return "empty".to_string();
    }
    if n <= 6 {
        let items: Vec<String> = (0..n).map(|i| format_scalar(t.get(i))).collect();
        return items.join(" ");
    }
    let numbers = (0..n).map(|i| as_f64(t.get(i)));
    let (mut low, mut high, mut sum, mut nans) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize);
    for x in numbers {
        if x.is_nan() {
            nans += 1;
            continue;
        }
        (low, high, sum) = (low.min(x), high.max(x), sum + x);
    }
    if nans == n {
        return "all NaN".to_string();
    }
    if t.dtype() == DType::B8 {
        return format!("{} of {n} true", sum as usize);
    }
    let mean = sum / (n - nans) as f64;
    let nans = if nans > 0 {
        format!(", {nans} NaN")
    } else {
        String::new()
    };
    format!(
        "min {}, max {}, mean {}{nans}",
        format_number(low),
        format_number(high),
        format_number(mean)
    )
}

fn format_scalar(s: Scalar) -> String {
    match s {
        Scalar::Int(_, i) => i.to_string(),
        Scalar::Bool(b) => b.to_string(),
        s => format_number(as_f64(s)),
    }
}

fn format_number(x: f64) -> String {
    if x == 0.0 || (1e-3..1e6).contains(&x.abs()) {
        let s = format!("{x:.5}");
        s.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        format!("{x:.4e}")
    }
}

/// A scalar as f64.
pub(crate) fn as_f64(s: Scalar) -> f64 {
    match s {
        Scalar::F64(x) => x,
        Scalar::F32(x) | Scalar::Half(_, x) => x as f64,
        Scalar::Int(_, i) => i as f64,
        Scalar::Bool(b) => b as u8 as f64,
    }
}

/// The number of rows of `scores` (`[N, C]`) whose largest element is at the class given by `labels` (`[N]`), and the
/// number of rows.
pub(crate) fn labels_met(scores: &Tensor, labels: &Tensor) -> Result<(usize, usize), Diagnostic> {
    let fits = scores.rank() == 2 && labels.rank() == 1 && scores.shape()[0] == labels.shape()[0];
    if !fits || labels.dtype().is_float() || scores.shape()[1] == 0 {
        let title = format!("labels {} do not match results {}", labels.ty(), scores.ty());
        return Err(
            Diagnostic::new(Code::E0504, title).note("for results of shape [N, C], pass N integer labels less than C")
        );
    }
    let (n, c) = (scores.shape()[0], scores.shape()[1]);
    let best = |row: usize| {
        let score = |j: usize| as_f64(scores.get(row * c + j));
        (1..c).fold(0, |b, j| if score(j) > score(b) { j } else { b })
    };
    let met = (0..n).filter(|&i| as_f64(labels.get(i)) == best(i) as f64).count();
    Ok((met, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_met_where_the_largest_score_is() {
        let scores = Tensor::from_slice(&[3, 2], &[0.5f32, 0.1, 0.2, 0.9, -1.0, -2.0]);
        let labels = Tensor::from_slice(&[3], &[0i64, 1, 1]);
        assert_eq!(labels_met(&scores, &labels).unwrap(), (2, 3));
        assert_eq!(
            labels_met(&scores, &Tensor::from_slice(&[2], &[0i64, 1]))
                .unwrap_err()
                .code,
            Code::E0504
        );
    }

    #[test]
    fn results_are_shown_with_their_places() {
        let t = || Val::Leaf(Tensor::from_slice(&[2], &[1f32, 2.0]));
        let result = Val::Dict(vec![
            (Val::Str("a".into()), Val::Tuple(vec![t(), Val::int(3)])),
            (Val::Str("b".into()), t()),
        ]);
        let lines: Vec<String> = result_overview(&result).lines().map(str::to_string).collect();
        let words = |i: usize| lines[i].split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(0), ["output.0", "[\"a\"][0]", "f32[2]", "1", "2"]);
        assert_eq!(words(1), ["[\"a\"][1]", "int", "3"]);
        assert_eq!(words(2), ["output.1", "[\"b\"]", "f32[2]", "1", "2"]);
    }

    #[test]
    fn tensors_are_summed_up_in_a_line() {
        assert_eq!(
            tensor_summary(&Tensor::from_slice(&[2], &[1.5f32, -2e-9])),
            "1.5 -2.0000e-9"
        );
        let many = Tensor::from_slice(&[8], &[0i64, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(tensor_summary(&many), "min 0, max 7, mean 3.5");
        assert_eq!(tensor_summary(&Tensor::zeros(DType::F32, &[0, 3])), "empty");
    }
}
