//! From what a user gives to the inputs of a graph: by name, checked against the declared types, sizes solved.

use super::fill::Fill;
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::driver::files::FileArray;
use crate::graph::{Arg, Graph, GraphModule, NodeId};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::collections::BTreeMap;

/// A run-time value, as the interpreter takes it.
pub type Value = Val<Tensor>;

/// The value of each symbolic size that is known.
pub type Dims = BTreeMap<String, i64>;

/// What is given for an input.
#[derive(Clone, Debug)]
pub enum Given {
    /// A value.
    Value(Value),
    /// An array of a file. Its elements are read if its type is what the graph declares, so that no memory is taken for others.
    File(FileArray),
    /// A tensor to be made, of this type or else of the one that the graph declares.
    Fill(Fill, Option<TensorType>),
}

/// Something given by name.
#[derive(Clone, Debug)]
pub struct Provided {
    /// The placeholder it is for, by its target or its node's name.
    pub name: String,
    /// What.
    pub given: Given,
    /// Where it came from, for messages: `images.npz`, `the command line`.
    pub origin: String,
    /// Whether it is an error if no placeholder has the name (a file may hold more than a graph needs).
    pub must_match: bool,
}

/// The inputs of a graph.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// One value per placeholder, in order.
    pub values: Vec<Value>,
    /// Their types, with all sizes known.
    pub types: Vec<Type>,
    /// The sizes they bind.
    pub dims: Dims,
}

/// Matches what is given to the placeholders of the module's entry graph. `dims` are the sizes that the user gave. All
/// that does not fit is reported.
pub fn bind(module: &GraphModule, provided: Vec<Provided>, dims: Dims) -> (Option<Bound>, Diagnostics) {
    let Some(graph) = module.entry() else {
        return (None, Diagnostics::new());
    };
    let mut b = Binder {
        module,
        graph,
        placeholders: graph.placeholders(),
        dims,
        out: Diagnostics::new(),
    };
    b.check_dims();
    let given = b.assign(provided);
    let values = b.values(given);
    if values.is_some() {
        b.check_guards();
    }
    match values {
        Some(values) if !b.out.has_errors() => {
            let types = values.iter().map(type_of).collect();
            (
                Some(Bound {
                    values,
                    types,
                    dims: b.dims,
                }),
                b.out,
            )
        }
        _ => (None, b.out),
    }
}

/// The type of a value.
pub fn type_of(v: &Value) -> Type {
    v.map(Tensor::ty)
}

pub(super) struct Binder<'a> {
    module: &'a GraphModule,
    pub(super) graph: &'a Graph,
    placeholders: Vec<NodeId>,
    pub(super) dims: Dims,
    pub(super) out: Diagnostics,
}

impl Binder<'_> {
    /// `--dim` names sizes that exist and values within their ranges.
    fn check_dims(&mut self) {
        let mut known: Vec<String> = self.module.dims.keys().map(|k| k.to_string()).collect();
        for &p in &self.placeholders {
            for t in self.graph[p].meta.ty.iter().flat_map(|t| t.leaves()) {
                for d in t.shape.iter().flatten() {
                    d.visit_vars(&mut |v| {
                        if !known.iter().any(|k| k == v) {
                            known.push(v.to_string());
                        }
                    });
                }
            }
        }
        for name in self.dims.keys() {
            if !known.contains(name) {
                let mut d = Diagnostic::new(Code::E0505, format!("no size is named `{name}`"));
                d = match nearest(name, known.iter().map(String::as_str)) {
                    Some(n) => d.help(format!("a size with a similar name exists: `{n}`")),
                    None if known.is_empty() => d.note("the graph's inputs have no symbolic sizes"),
                    None => d.note(format!(
                        "the graph's sizes are {}",
                        quoted(known.iter().map(String::as_str))
                    )),
                };
                self.out.push(d);
            }
        }
        let dims: Vec<_> = self.dims.iter().map(|(k, &v)| (k.clone(), v)).collect();
        for (name, value) in dims {
            self.check_range(&name, value, "--dim");
        }
    }

    /// The sizes meet the conditions that the program was traced under.
    fn check_guards(&mut self) {
        let size = |v: &str| self.dims.get(v).copied();
        for guard in &self.module.guards {
            if guard.holds(&size) != Some(false) {
                continue;
            }
            let mut names = vec![];
            for d in [&guard.left, &guard.right] {
                d.visit_vars(&mut |v| names.push(v.to_string()));
            }
            names.sort();
            names.dedup();
            let sizes: Vec<String> = names
                .iter()
                .filter_map(|v| Some(format!("{v} is {}", size(v)?)))
                .collect();
            let title = format!(
                "the graph holds only for sizes with `{guard}`, but {}",
                sizes.join(" and ")
            );
            let note = "a tracer follows one branch of each condition on sizes; where the other holds, PyTorch computes something else";
            self.out.push(Diagnostic::new(Code::E0504, title).note(note));
        }
    }

    fn check_range(&mut self, name: &str, value: i64, origin: &str) -> bool {
        let (min, max, span) = match self.module.dims.get(name) {
            Some(r) => (r.min, r.max, r.span),
            None => (0, None, None),
        };
        let ok = value >= min && max.is_none_or(|m| value <= m);
        if !ok {
            let range = match max {
                Some(m) => format!("{min}..{m}"),
                None => format!("at least {min}"),
            };
            let title = format!("size `{name}` is {value}, outside of its range {range}");
            self.out.push(
                Diagnostic::new(Code::E0504, title)
                    .at_opt(span, "declared here")
                    .note(format!("from {origin}")),
            );
        }
        ok
    }

    /// What is given for each placeholder, in order.
    fn assign(&mut self, provided: Vec<Provided>) -> Vec<Option<Provided>> {
        let graph = self.graph;
        let mut slots: Vec<Option<Provided>> = vec![None; self.placeholders.len()];
        let mut extra = vec![];
        for p in provided {
            let by_target = self.placeholders.iter().position(|&n| graph[n].target() == p.name);
            let slot = by_target.or_else(|| self.placeholders.iter().position(|&n| graph[n].name() == p.name));
            match slot {
                // What comes later on the command line wins over a file.
                Some(i) => slots[i] = Some(p),
                None => extra.push(p),
            }
        }
        self.report_missing(&slots, &extra);
        self.report_extra(&slots, &extra);
        slots
    }

    fn report_missing(&mut self, slots: &[Option<Provided>], extra: &[Provided]) {
        for (&n, slot) in self.placeholders.iter().zip(slots) {
            let node = &self.graph[n];
            if slot.is_some() || !node.args().is_empty() {
                continue;
            }
            let name = node.target();
            let what = match &node.meta.ty {
                Some(t) if *t != Val::Unknown => format!("`{name}` ({t})"),
                _ => format!("`{name}`"),
            };
            let mut d = Diagnostic::new(Code::E0501, format!("no value is given for input {what}"))
                .at_opt(node.meta.span, "declared here");
            if let Some(near) = nearest(name, extra.iter().map(|p| p.name.as_str())) {
                d = d.help(format!("`{near}` is given, which is no input; rename it to `{name}`"));
            } else if !extra.is_empty() {
                d = d.note(format!(
                    "given, but no inputs: {}",
                    quoted(extra.iter().map(|p| p.name.as_str()))
                ));
            }
            self.out.push(d.help(format!(
                "give it as `{name}=FILE.npy`, `{name}=rand:0`, or in the file after --inputs"
            )));
        }
    }

    fn report_extra(&mut self, slots: &[Option<Provided>], extra: &[Provided]) {
        let names: Vec<&str> = self.placeholders.iter().map(|&n| self.graph[n].target()).collect();
        let free: Vec<&str> = names
            .iter()
            .zip(slots)
            .filter(|(_, s)| s.is_none())
            .map(|(n, _)| *n)
            .collect();
        for p in extra {
            let mut d = Diagnostic::new(Code::E0505, format!("the graph has no input `{}`", p.name));
            if !p.must_match {
                // Already said with the input that is missing, if the name was meant for it.
                if nearest(&p.name, free.iter().copied()).is_some() {
                    continue;
                }
                d.severity = crate::diag::Severity::Warning;
                d.title = format!("`{}` of {} is no input of the graph", p.name, p.origin);
            }
            d = match nearest(&p.name, names.iter().copied()) {
                Some(n) => d.help(format!("an input with a similar name exists: `{n}`")),
                None => d.note(format!("the graph's inputs are {}", quoted(names.iter().copied()))),
            };
            self.out.push(d);
        }
    }

    /// Values for all placeholders: first those that are there (they bind sizes), then those to be made.
    fn values(&mut self, slots: Vec<Option<Provided>>) -> Option<Vec<Value>> {
        let placeholders = self.placeholders.clone();
        let mut values: Vec<Option<Value>> = vec![None; placeholders.len()];
        for ((&n, slot), value) in placeholders.iter().zip(&slots).zip(&mut values) {
            *value = match slot {
                Some(Provided {
                    given: Given::Value(v),
                    origin,
                    ..
                }) => self.fit(n, v.clone(), origin),
                Some(Provided {
                    given: Given::File(array),
                    origin,
                    ..
                }) => self.read(n, array, origin),
                Some(_) => None,
                None => self.graph[n].args().first().and_then(default_value),
            };
        }
        for ((&n, slot), value) in placeholders.iter().zip(&slots).zip(&mut values) {
            if let Some(Provided {
                given: Given::Fill(fill, ty),
                ..
            }) = slot
            {
                *value = self.make(n, *fill, ty.as_ref());
            }
        }
        values.into_iter().collect()
    }

    /// The elements of an array whose type fits.
    fn read(&mut self, n: NodeId, array: &FileArray, origin: &str) -> Option<Value> {
        let (graph, ty) = (self.graph, array.ty());
        let fits = match &graph[n].meta.ty {
            Some(Val::Leaf(want)) => self.fit_tensor(n, want, &ty, origin),
            Some(declared @ (Val::Int(_) | Val::Any(_) | Val::Float(_) | Val::Bool(_))) if ty.rank() != Some(0) => {
                self.wrong_kind(n, declared, &Val::Leaf(ty), origin);
                false
            }
            _ => true,
        };
        if !fits {
            return None;
        }
        match array.read() {
            Ok(t) => self.fit(n, Val::Leaf(t), origin),
            Err(d) => {
                self.out.push(d);
                None
            }
        }
    }

    /// The value as the placeholder's declared type wants it; binds sizes.
    pub(super) fn fit(&mut self, n: NodeId, v: Value, origin: &str) -> Option<Value> {
        let graph = self.graph;
        let Some(declared) = &graph[n].meta.ty else {
            return Some(v);
        };
        match (declared, v) {
            (Val::Leaf(t), Val::Leaf(x)) => self.fit_tensor(n, t, &x.ty(), origin).then_some(Val::Leaf(x)),
            (Val::Leaf(t), v) if t.rank() == Some(0) => match scalar(&v) {
                Some(s) => Some(Val::Leaf(Tensor::from_scalars(t.dtype, &[], &[s]))),
                None => self.wrong_kind(n, declared, &type_of(&v), origin),
            },
            (Val::Int(_) | Val::Any(_) | Val::Float(_) | Val::Bool(_), Val::Leaf(x)) if x.rank() == 0 => {
                Some(number(x.get(0)))
            }
            (Val::Unknown, v) => Some(v),
            (Val::Leaf(_), v) | (Val::Int(_) | Val::Any(_) | Val::Float(_) | Val::Bool(_), v @ Val::Leaf(_)) => {
                self.wrong_kind(n, declared, &type_of(&v), origin)
            }
            (_, v) => Some(v),
        }
    }

    fn wrong_kind(&mut self, n: NodeId, declared: &Type, given: &Type, origin: &str) -> Option<Value> {
        let node = &self.graph[n];
        let title = format!(
            "input `{}` must be {declared}, but {origin} gives {given}",
            node.target()
        );
        self.out
            .push(Diagnostic::new(Code::E0503, title).at_opt(node.meta.span, "declared here"));
        None
    }

    fn fit_tensor(&mut self, n: NodeId, want: &TensorType, x: &TensorType, origin: &str) -> bool {
        let node = &self.graph[n];
        let (name, span) = (node.target(), node.meta.span);
        if x.dtype != want.dtype {
            let title = format!("input `{name}` must be {want}, but {origin} has {x}");
            let numpy = if want.dtype == DType::B8 {
                "bool_"
            } else {
                want.dtype.torch_name()
            };
            let d = Diagnostic::new(Code::E0503, title)
                .at_opt(span, "declared here")
                .help(format!("convert it: `{name}.astype(numpy.{numpy})`"));
            self.out.push(d);
            return false;
        }
        let (Some(dims), Some(given)) = (&want.shape, &x.shape) else {
            return true;
        };
        let wrong = |why: String| {
            let title = format!("input `{name}` must be {want}, but {origin} has {x}");
            Diagnostic::new(Code::E0504, title)
                .at_opt(span, "declared here")
                .note(why)
        };
        if dims.len() != given.len() {
            self.out.push(wrong(format!(
                "it has {} dimensions instead of {}",
                given.len(),
                dims.len()
            )));
            return false;
        }
        for (i, (d, size)) in dims.iter().zip(given).enumerate() {
            let Some(size) = size.as_const() else { continue };
            if let Err(why) = self.unify(d, size, &format!("input `{name}`")) {
                self.out.push(wrong(format!("dimension {i} is {size}: {why}")));
                return false;
            }
        }
        true
    }

    /// Makes `d` equal `size`, binding its one unknown variable if it has one.
    fn unify(&mut self, d: &Dim, size: i64, origin: &str) -> Result<(), String> {
        if *d == Dim::Unknown {
            return Ok(());
        }
        let dims = &self.dims;
        let known = d.substitute(&|v| dims.get(v).map(|&x| Dim::Const(x)));
        if let Some(c) = known.as_const() {
            let because = if d.as_const().is_some() {
                String::new()
            } else {
                format!(", because `{d}` is {c} here")
            };
            return if c == size {
                Ok(())
            } else {
                Err(format!("{c} is wanted{because}"))
            };
        }
        let Some((var, coef, rest)) = known.as_linear() else {
            return Ok(());
        };
        let Some(diff) = size.checked_sub(rest).filter(|x| x % coef == 0) else {
            return Err(format!("no `{var}` makes `{known}` equal {size}"));
        };
        let var = var.to_string();
        self.check_range(&var, diff / coef, origin);
        self.dims.insert(var, diff / coef);
        Ok(())
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<String> = names.take(12).map(|n| format!("`{n}`")).collect();
    if list.is_empty() {
        "none".to_string()
    } else {
        list.join(", ")
    }
}

fn default_value(arg: &Arg) -> Option<Value> {
    arg.try_map(&mut |_: &NodeId| Err(())).ok()
}

fn scalar(v: &Value) -> Option<Scalar> {
    match v {
        Val::Bool(b) => Some(Scalar::Bool(*b)),
        Val::Int(_) => v.as_int().map(|i| Scalar::Int(DType::I64, i)),
        Val::Float(f) => Some(Scalar::F64(*f)),
        _ => None,
    }
}

fn number(s: Scalar) -> Value {
    match s {
        Scalar::Bool(b) => Val::Bool(b),
        Scalar::Int(_, i) => Val::int(i),
        Scalar::F64(x) => Val::Float(x),
        Scalar::F32(x) | Scalar::Half(_, x) => Val::Float(x as f64),
    }
}

#[cfg(test)]
#[path = "bind_tests.rs"]
mod tests;
