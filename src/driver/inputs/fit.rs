//! Fits values to the inputs of a graph: compares types and binds sizes.

use super::bind::{CALL, COMMAND_LINE, Given, InputBinder, InputPlace, Provided, Value, type_of};
use super::literal;
use super::paths::is_nested;
use crate::diag::{Code, Diagnostic};
use crate::driver::files::FileArray;
use crate::graph::pyrepr;
use crate::tensor::Scalar;
use crate::types::{DType, Dim, ScalarKind, TensorType, Type, Val};

impl InputBinder<'_> {
    /// The value that `p` provides for a place.
    pub(super) fn provided_value(&mut self, place: &InputPlace, p: &Provided) -> Option<Value> {
        if let Some(constant) = &place.constant {
            return self.match_constant(place, constant, p);
        }
        match &p.given {
            Given::Value(v) => self.fit_value(place, v.clone(), &p.origin),
            Given::Typed(v, ty) => self.fit_typed(place, v, ty, &p.origin),
            Given::Word(w) => self.fit_word(place, w),
            Given::File(array) => self.read_array(place, array, &p.origin),
            Given::Unsupported(ty) => {
                let d = unsupported_array(&place.name, ty, &p.origin);
                self.out.push(d.at_opt(place.span, "declared here"));
                None
            }
            Given::Fill(fill, ty) => self.make(place, *fill, ty.as_ref()),
            // Bare types and `--each` were handled before values are bound.
            Given::Type(_) | Given::Each(_) => None,
        }
    }

    /// The value that the exporter fixed, if the given value equals it as Python compares values.
    fn match_constant(&mut self, place: &InputPlace, constant: &Value, p: &Provided) -> Option<Value> {
        let given = match &p.given {
            Given::Value(v) | Given::Typed(v, _) => Some(v.clone()),
            Given::Word(w) => Some(Val::str(w)),
            // Files store numbers as tensors without dimensions.
            Given::File(array) if array.ty().rank() == Some(0) => match array.read() {
                Ok(t) => Some(scalar_to_val(t.get(0))),
                Err(d) => {
                    self.out.push(d);
                    return None;
                }
            },
            _ => None,
        };
        if given.as_ref().is_some_and(|v| literal::is_python_equal(v, constant)) {
            return Some(constant.clone());
        }
        self.report_other_constant(place, constant, given.as_ref(), &p.origin);
        None
    }

    /// Reports that an input whose value the exporter fixed is given another value, or a tensor.
    fn report_other_constant(&mut self, place: &InputPlace, constant: &Value, given: Option<&Value>, origin: &str) {
        let name = &place.name;
        let text = |v: &Value| pyrepr::repr(v, &|t| t.ty().to_string());
        let shown = given.map_or("a tensor".into(), text);
        let fixed = text(constant);
        let title = format!("input `{name}` is fixed to {fixed}, but {origin} provides {shown}");
        let guard = match constant {
            Val::None => format!("Guard failed: {name} is None"),
            _ => format!("Guard failed: {name} == {fixed}"),
        };
        let d = Diagnostic::new(Code::E0511, title)
            .at_opt(place.span, "declared here")
            .note(format!(
                "{guard}: the program was exported with this value and is only valid for it"
            ))
            .help(format!("omit `{name}`, or export the model with the other value"));
        self.out.push(d);
    }

    fn fit_word(&mut self, place: &InputPlace, word: &str) -> Option<Value> {
        if let Some(Val::Any(ScalarKind::Str) | Val::Str(_)) = place.ty {
            return Some(Val::str(word));
        }
        let d = Diagnostic::new(
            Code::E0508,
            format!(
                "invalid value in `{}={word}`: neither a tensor file nor a literal",
                place.name
            ),
        );
        self.out.push(d.help(literal::HELP));
        None
    }

    /// Fits a literal with a type annotation.
    fn fit_typed(&mut self, place: &InputPlace, v: &Value, ty: &Type, origin: &str) -> Option<Value> {
        let made = match ty {
            Val::Leaf(t) => {
                let shape = self.resolve_sizes(place, t)?;
                literal::to_tensor(v, t.dtype, Some(&shape)).map(Val::Leaf)
            }
            _ => literal::of_kind(v, ty).ok_or_else(|| format!("it does not have type {ty}")),
        };
        match made {
            Ok(v) => self.fit_value(place, v, origin),
            Err(why) => {
                self.not_of_type(place, ty, why);
                None
            }
        }
    }

    fn not_of_type(&mut self, place: &InputPlace, ty: &Type, why: String) {
        let title = format!("the value of input `{}` does not have type {ty}", place.name);
        self.out.push(Diagnostic::new(Code::E0508, title).note(why));
    }

    /// Reads the elements of an array if its type fits.
    fn read_array(&mut self, place: &InputPlace, array: &FileArray, origin: &str) -> Option<Value> {
        let ty = array.ty();
        let fits = match &place.ty {
            Some(Val::Leaf(want)) => self.fit_tensor(place, want, &ty, origin),
            Some(declared) if *declared != Val::Unknown && ty.rank() != Some(0) => {
                self.wrong_kind(place, declared, &Val::Leaf(ty), origin);
                false
            }
            _ => true,
        };
        if !fits {
            return None;
        }
        match array.read() {
            Ok(t) => self.fit_value(place, Val::Leaf(t), origin),
            Err(d) => {
                self.out.push(d);
                None
            }
        }
    }

    /// Converts the value to the place's declared type; binds sizes.
    pub(super) fn fit_value(&mut self, place: &InputPlace, v: Value, origin: &str) -> Option<Value> {
        let undeclared = |v: Value| match literal::natural_tensor(&v).filter(|_| place.is_tensor) {
            Some(t) => Val::Leaf(t),
            None => v,
        };
        let Some(declared) = &place.ty else {
            return Some(undeclared(v));
        };
        match (declared, v) {
            (Val::Unknown, v) => Some(undeclared(v)),
            (Val::Leaf(t), Val::Leaf(x)) => self.fit_tensor(place, t, &x.ty(), origin).then_some(Val::Leaf(x)),
            (Val::Leaf(t), v @ (Val::List(_) | Val::Tuple(_))) => match literal::to_tensor(&v, t.dtype, None) {
                Ok(x) => self.fit_value(place, Val::Leaf(x), origin),
                Err(why) => {
                    self.not_of_type(place, declared, why);
                    None
                }
            },
            (Val::Leaf(t), v) if t.rank() == Some(0) => match literal::to_tensor(&v, t.dtype, Some(&[])) {
                Ok(x) => Some(Val::Leaf(x)),
                Err(_) => self.wrong_kind(place, declared, &type_of(&v), origin),
            },
            (Val::Int(_) | Val::Any(_) | Val::Float(_) | Val::Bool(_), Val::Leaf(x)) if x.rank() == 0 => {
                self.fit_value(place, scalar_to_val(x.get(0)), origin)
            }
            (Val::Int(d), Val::Int(Dim::Const(size))) => self.fit_size(place, d, size, origin),
            (nested, v) if is_nested(nested) => self.fit_items(place, nested, v, origin),
            (Val::Leaf(_), v) | (Val::Int(_) | Val::Any(_) | Val::Float(_) | Val::Bool(_), v @ Val::Leaf(_)) => {
                self.wrong_kind(place, declared, &type_of(&v), origin)
            }
            (_, v) => Some(v),
        }
    }

    /// Binds the declared size `d` to a given one.
    fn fit_size(&mut self, place: &InputPlace, d: &Dim, size: i64, origin: &str) -> Option<Value> {
        let name = &place.name;
        let Err(why) = self.unify(d, size, &format!("input `{name}`")) else {
            return Some(Val::int(size));
        };
        let declared = Type::Int(d.clone());
        let title = format!("input `{name}` must be {declared}, but {origin} provides {size}");
        let d = Diagnostic::new(Code::E0504, title).at_opt(place.span, "declared here");
        self.out.push(d.note(why));
        None
    }

    /// Converts the items of a list, tuple or dict to the declared types.
    fn fit_items(&mut self, place: &InputPlace, declared: &Type, v: Value, origin: &str) -> Option<Value> {
        let item = |name: String, ty: &Type| InputPlace {
            name: format!("{}.{name}", place.name),
            ty: Some(ty.clone()),
            ..place.clone()
        };
        match (declared, v) {
            (Val::List(t) | Val::Tuple(t), Val::List(v) | Val::Tuple(v)) if t.len() == v.len() => {
                let pairs = t.iter().zip(v).enumerate();
                let fitted: Vec<Option<Value>> = pairs
                    .map(|(i, (t, v))| self.fit_value(&item(i.to_string(), t), v, origin))
                    .collect();
                let fitted: Vec<Value> = fitted.into_iter().collect::<Option<_>>()?;
                Some(match declared {
                    Val::List(_) => Val::List(fitted),
                    _ => Val::Tuple(fitted),
                })
            }
            (Val::Dict(t), Val::Dict(v)) if t.len() == v.len() => {
                let mut fitted = vec![];
                for (k, t) in t {
                    let name: Value = k.try_map(&mut |_| Err(())).ok()?;
                    let Some((_, v)) = v.iter().find(|(k, _)| *k == name) else {
                        return self.wrong_kind(place, declared, &type_of(&Val::Dict(v)), origin);
                    };
                    let shown = type_of(&name).to_string();
                    let v = self.fit_value(&item(shown.trim_matches('"').to_string(), t), v.clone(), origin);
                    fitted.push((name, v?));
                }
                Some(Val::Dict(fitted))
            }
            (_, v) => self.wrong_kind(place, declared, &type_of(&v), origin),
        }
    }

    pub(super) fn wrong_kind(
        &mut self,
        place: &InputPlace,
        declared: &Type,
        given: &Type,
        origin: &str,
    ) -> Option<Value> {
        let name = &place.name;
        let title = format!("input `{name}` must be {declared}, but {origin} provides {given}");
        let d = Diagnostic::new(Code::E0503, title).at_opt(place.span, "declared here");
        let number = matches!(given, Val::Int(_) | Val::Float(_) | Val::Bool(_));
        self.out.push(match declared {
            Val::Leaf(t) if number => d.help(format!(
                "to fill a tensor with the number, add the type: `{name}:{t}={given}`"
            )),
            _ => d,
        });
        None
    }

    pub(super) fn fit_tensor(&mut self, place: &InputPlace, want: &TensorType, x: &TensorType, origin: &str) -> bool {
        let (name, span) = (&place.name, place.span);
        if x.dtype != want.dtype {
            let title = format!("input `{name}` must be {want}, but {origin} provides {x}");
            let d = Diagnostic::new(Code::E0503, title)
                .at_opt(span, "declared here")
                .help(conversion_hint(name, want, x, origin));
            self.out.push(d);
            return false;
        }
        let (Some(dims), Some(given)) = (&want.shape, &x.shape) else {
            return true;
        };
        let wrong = |why: String| {
            let title = format!("input `{name}` must be {want}, but {origin} provides {x}");
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

    /// Makes `d` equal `size` by binding its unknown variable, if it has exactly one.
    pub(super) fn unify(&mut self, d: &Dim, size: i64, origin: &str) -> Result<(), String> {
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
                Err(format!("expected {c}{because}"))
            };
        }
        let Some((var, coef, rest)) = known.as_linear() else {
            return Ok(());
        };
        let Some(diff) = size.checked_sub(rest).filter(|x| x % coef == 0) else {
            return Err(format!("no `{var}` makes `{known}` equal to {size}"));
        };
        let var = var.to_string();
        self.check_range(&var, diff / coef, origin);
        self.dims.insert(var, diff / coef);
        Ok(())
    }
}

/// The error for an array whose element type fxc does not support.
pub(super) fn unsupported_array(name: &str, ty: &str, origin: &str) -> Diagnostic {
    let complex = ty.contains("c8") || ty.contains("c16") || ty.starts_with('C');
    let what = if complex { "complex elements" } else { "elements" };
    let title = format!("`{name}` has {what} of type {ty} in {origin}");
    Diagnostic::new(Code::E0503, title).note("fxc does not support this type")
}

fn scalar_to_val(s: Scalar) -> Value {
    match s {
        Scalar::Bool(b) => Val::Bool(b),
        Scalar::Int(_, i) => Val::int(i),
        Scalar::F64(x) => Val::Float(x),
        Scalar::F32(x) | Scalar::Half(_, x) => Val::Float(x as f64),
    }
}

/// How to convert a tensor of type `x` to the wanted dtype at its origin.
fn conversion_hint(name: &str, want: &TensorType, x: &TensorType, origin: &str) -> String {
    let torch = want.dtype.torch_name();
    if origin == CALL {
        return format!("convert it to {torch} before the call");
    }
    let in_numpy = !(want.dtype == DType::BF16 || want.dtype.is_float8());
    match (origin == COMMAND_LINE, in_numpy) {
        (true, _) => {
            let given = TensorType {
                dtype: want.dtype,
                ..x.clone()
            };
            format!("specify this type: `{name}:{given}=…`")
        }
        (false, true) => format!(
            "convert it: `{name}.astype(numpy.{})`",
            if torch == "bool" { "bool_" } else { torch }
        ),
        (false, false) => format!("convert it with `{name}.to(torch.{torch})`, and save it as .safetensors"),
    }
}
