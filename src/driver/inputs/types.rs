//! Types that a user gives for the inputs of a graph: the graph then declares them.

use super::bind::{Dims, Given, InputBinder, InputPlace, Provided, type_of};
use super::literal;
use super::paths::is_nested;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::GraphModule;
use crate::pass;
use crate::types::{Dim, ScalarKind, TensorType, Type, Val};

/// Makes the entry graph declare the types of the provided values, and fixes the sizes that follow from them. A file or
/// value provides its own type. Returns the Python numbers among the values, by placeholder; [`Val::Unknown`] for all
/// others.
pub(crate) fn declare_types(module: &mut GraphModule, provided: &[Provided]) -> (Vec<Type>, Diagnostics) {
    let Some(graph) = module.entry() else {
        return (vec![], Diagnostics::new());
    };
    let mut d = Declarer {
        binder: InputBinder::new(module, graph, Dims::new()),
        types: graph.placeholders().iter().map(|&p| graph[p].meta.ty.clone()).collect(),
        numbers: vec![Val::Unknown; graph.placeholders().len()],
    };
    let mut extra = vec![];
    let mut open: Vec<Provided> = provided.iter().rev().cloned().collect();
    while let Some(p) = open.pop() {
        match (d.binder.find(&p.name), d.binder.spread(&p)) {
            (Some((i, path)), _) => d.declare_item(i, &path, &p),
            (None, Some(items)) => open.extend(items.into_iter().rev()),
            (None, None) => extra.push(p),
        }
    }
    d.binder.report_extra(&[], &extra);
    let (types, numbers, mut found) = (d.types, d.numbers, d.binder.out);
    let sizes = d.binder.dims.iter().map(|(k, v)| (k.as_str().into(), *v)).collect();
    if !found.has_errors() {
        write_types(module, types);
        found.extend(pass::specialize(module, &[], &sizes).err());
    }
    (numbers, found)
}

fn write_types(module: &mut GraphModule, types: Vec<Option<Type>>) {
    let Some(graph) = module.entry_mut() else { return };
    for (p, ty) in graph.placeholders().into_iter().zip(types) {
        let meta = graph.meta_mut(p);
        meta.declared |= ty.is_some();
        meta.ty = ty;
    }
}

struct Declarer<'a> {
    binder: InputBinder<'a>,
    /// The types of the placeholders, as far as known.
    types: Vec<Option<Type>>,
    numbers: Vec<Type>,
}

impl Declarer<'_> {
    fn declare_item(&mut self, i: usize, path: &[String], p: &Provided) {
        let mut place = self.binder.input_place(self.binder.placeholders[i]);
        let Some(declared) = item_type_mut(&mut self.types[i], path).cloned() else {
            self.binder.report_extra(&[], std::slice::from_ref(p));
            return;
        };
        if !path.is_empty() {
            place.name = format!("{}.{}", place.name, path.join("."));
        }
        place.ty = Some(declared.clone());
        if let Some(constant) = &place.constant {
            // The value equals the graph's, or is rejected.
            let same = matches!(&p.given, Given::Type(t) if *t == kind_of(type_of(constant)));
            if !same {
                self.binder.provided_value(&place, p);
            }
            return;
        }
        let Some(given) = self.given_type(&place, &declared, p, path.is_empty()) else {
            return;
        };
        if let Given::Value(_) = p.given
            && !matches!(given, Val::Leaf(_))
            && path.is_empty()
        {
            self.numbers[i] = given.clone();
        }
        let origin = match p.given {
            Given::Type(_) => format!("{} says", p.origin),
            _ => p.origin.clone(),
        };
        if let Some(ty) = self.unify_types(&place, Some(declared), given, &origin)
            && let Some(item) = item_type_mut(&mut self.types[i], path)
        {
            *item = ty;
        }
    }

    /// The type of a provided value; `None` if it declares nothing. `whole` says whether it is a whole input.
    fn given_type(&mut self, place: &InputPlace, declared: &Type, p: &Provided, whole: bool) -> Option<Type> {
        Some(match &p.given {
            Given::Value(v) => match declared {
                // A list of numbers, which is a tensor here.
                Val::Leaf(_) if is_nested(v) => type_of(&self.binder.provided_value(place, p)?),
                // A list without a declared type is a tensor if an op takes one here.
                Val::Unknown if whole && place.is_tensor => {
                    literal::natural_tensor(v).map_or_else(|| type_of(v), |t| Val::Leaf(t.ty()))
                }
                _ => type_of(v),
            },
            Given::Typed(_, t) | Given::Type(t) => t.clone(),
            // These are reported when they are bound.
            Given::Word(_) | Given::Unsupported(_) | Given::Each(_) => return None,
            Given::File(array) => Val::Leaf(array.ty()),
            Given::Fill(_, Some(t)) => Val::Leaf(t.clone()),
            Given::Fill(_, None) => {
                if *declared == Val::Unknown {
                    let d = self.binder.cannot_be_made(place);
                    self.binder.out.push(d);
                }
                return None;
            }
        })
    }

    /// The unification of the declared and the given type, if they agree.
    fn unify_types(&mut self, place: &InputPlace, declared: Option<Type>, given: Type, origin: &str) -> Option<Type> {
        let Some(declared) = declared.filter(|t| *t != Val::Unknown) else {
            return Some(kind_of(given));
        };
        let scalar = |t: &TensorType| t.rank() == Some(0);
        match (&declared, &given) {
            (_, Val::Unknown) => Some(declared),
            (Val::Leaf(want), Val::Leaf(t)) => self.both_tensors(place, want, t, origin).map(Val::Leaf),
            // A number may be given for a 0-d tensor, and vice versa.
            (Val::Leaf(t), Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Any(_)) if scalar(t) => Some(declared),
            (Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Any(_), Val::Leaf(t)) if scalar(t) => Some(declared),
            (Val::List(a) | Val::Tuple(a), Val::List(b) | Val::Tuple(b)) if a.len() == b.len() => {
                let pairs: Vec<_> = a.iter().cloned().zip(b.iter().cloned()).collect();
                let items: Option<Vec<Type>> = pairs
                    .into_iter()
                    .map(|(a, b)| self.unify_types(place, Some(a), b, origin))
                    .collect();
                items.map(if matches!(declared, Val::List(_)) {
                    Val::List
                } else {
                    Val::Tuple
                })
            }
            _ if declared.kind_name() == given.kind_name() => Some(declared),
            _ => self
                .binder
                .wrong_kind(place, &declared, &given, origin)
                .map(|_| declared),
        }
    }

    fn both_tensors(
        &mut self,
        place: &InputPlace,
        want: &TensorType,
        t: &TensorType,
        origin: &str,
    ) -> Option<TensorType> {
        if !self.binder.fit_tensor(place, want, t, origin) {
            return None;
        }
        let (Some(declared), Some(given)) = (&want.shape, &t.shape) else {
            let shape = want.shape.clone().or(t.shape.clone());
            return Some(TensorType {
                dtype: want.dtype,
                shape,
            });
        };
        let mut shape = vec![];
        for (d, g) in declared.iter().zip(given) {
            let named = |d: &Dim| d.as_const().is_none() && *d != Dim::Unknown;
            if named(d) && named(g) && d != g {
                self.two_names(place, d, g);
                return None;
            }
            shape.push(if *d == Dim::Unknown { g.clone() } else { d.clone() });
        }
        Some(TensorType {
            dtype: want.dtype,
            shape: Some(shape),
        })
    }

    fn two_names(&mut self, place: &InputPlace, declared: &Dim, given: &Dim) {
        let title = format!(
            "a size of input `{}` is `{declared}`, but `{given}` is given",
            place.name
        );
        let d = Diagnostic::new(Code::E0504, title)
            .at_opt(place.span, "declared here")
            .help(format!("write `{declared}`, or its value as a number"));
        self.binder.out.push(d);
    }
}

/// The type at `path` of an input's type, created if the input declares none. `None` if the input has no such item.
fn item_type_mut<'a>(ty: &'a mut Option<Type>, path: &[String]) -> Option<&'a mut Type> {
    let mut part = ty.get_or_insert(Val::Unknown);
    for name in path {
        if *part == Val::Unknown {
            *part = match name.parse::<usize>() {
                Ok(_) => Val::List(vec![]),
                Err(_) => Val::Dict(vec![]),
            };
        }
        part = match part {
            Val::List(v) | Val::Tuple(v) => {
                let i: usize = name.parse().ok()?;
                // Without a declaration, items are given in order.
                if i == v.len() {
                    v.push(Val::Unknown);
                }
                v.get_mut(i)?
            }
            Val::Dict(v) => {
                let is = |k: &Type| k.as_str() == Some(name) || k.as_int().is_some_and(|i| i.to_string() == *name);
                let i = v.iter().position(|(k, _)| is(k)).unwrap_or_else(|| {
                    v.push((Val::str(name), Val::Unknown));
                    v.len() - 1
                });
                &mut v[i].1
            }
            _ => return None,
        };
    }
    Some(part)
}

/// The type that a graph declares for a value: the kind of a number, the type of a tensor.
fn kind_of(given: Type) -> Type {
    match given {
        Val::Int(_) => Val::Any(ScalarKind::Int),
        Val::Float(_) => Val::Any(ScalarKind::Float),
        Val::Bool(_) => Val::Any(ScalarKind::Bool),
        Val::Str(_) => Val::Any(ScalarKind::Str),
        t => t,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Session;
    use crate::types::DType;

    fn typed(text: &str, given: &[(&str, Type)]) -> Result<String, String> {
        let mut s = Session::new();
        let mut model = s
            .load_text("test", text)
            .unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
        let provided: Vec<Provided> = given
            .iter()
            .map(|(name, ty)| Provided {
                name: name.to_string(),
                given: Given::Type(ty.clone()),
                origin: "the test".into(),
                must_match: true,
            })
            .collect();
        let (_, found) = declare_types(&mut model.module, &provided);
        match found.iter().find(|d| d.is_error()) {
            Some(d) => Err(d.title.clone()),
            None => Ok(crate::graph::print(&model.module)),
        }
    }

    fn f32s(shape: &[i64]) -> Type {
        Val::Leaf(TensorType {
            dtype: DType::F32,
            shape: Some(shape.iter().map(|&n| Dim::Const(n)).collect()),
        })
    }

    #[test]
    fn given_types_are_declared_and_bind_sizes() {
        let text =
            "graph main { %x = placeholder x  %y : f32[N] = placeholder y  %z : f32[N] = placeholder z  output %x }";
        let printed = typed(text, &[("x", f32s(&[2, 3])), ("y", f32s(&[8])), ("z", Val::Unknown)]).unwrap();
        assert!(printed.contains("%x : f32[2, 3] = placeholder x"), "{printed}");
        assert!(printed.contains("%y : f32[8] = placeholder y"), "{printed}");
        assert!(printed.contains("%z : f32[8] = placeholder z"), "{printed}");
    }

    #[test]
    fn given_types_must_fit_the_declared_ones() {
        let text = "dim N in 1..4 graph main { %y : f32[N, 3] = placeholder y  %k : int = placeholder k  output %y }";
        for given in [f32s(&[2, 4]), f32s(&[2]), f32s(&[8, 3]), Val::Any(ScalarKind::Int)] {
            assert!(typed(text, &[("y", given.clone())]).is_err(), "{given}");
        }
        assert!(typed(text, &[("k", f32s(&[2]))]).is_err());
        assert!(typed(text, &[("q", f32s(&[2]))]).unwrap_err().contains("no input `q`"));
    }
}
