//! Ops that a user registers at run time, in addition to the table's rows.
//!
//! * [`register`] takes a [`CustomOp`]: a schema, a type rule and a computation in Rust.
//! * [`declare`] takes a schema and a scalar expression; `pointwise "…" = "…"` in a file calls it. Such an op is fused and
//!   vectorised like a row of the table.
//!
//! Both create an [`Op`] that [`resolve`](super::resolve) finds by its name, with or without torch's `.default` suffix: the op of
//! the schema `mylib::scale(Tensor x) -> Tensor` is `mylib.scale`, `torch.ops.mylib.scale` and
//! `torch.ops.mylib.scale.default`. Ops are never removed.

use super::pointwise::pointwise;
use super::{Call, DtypeRule, Effect, Meaning, Op, OpError, OpResult, ParamType, Schema, Sizes, instantiate};
use crate::diag::Code;
use crate::tensor::Tensor;
use crate::types::{DType, TensorType, Type, Val};
use indexmap::IndexMap;
use std::collections::HashSet;
use std::sync::{LazyLock, PoisonError, RwLock};

/// A user-defined op in Rust.
pub trait CustomOp: Send + Sync {
    /// torch's schema: `mylib::scale(Tensor x, float factor=2.0) -> Tensor`.
    fn schema(&self) -> String;

    /// A one-line description.
    fn doc(&self) -> String {
        String::new()
    }

    /// The op's side effects. Anything but [`Effect::Pure`] keeps passes from merging, folding and dropping it.
    fn effect(&self) -> Effect {
        Effect::Pure
    }

    /// The result type, from the arguments' types; sizes may be symbolic. Returns an error for invalid arguments.
    fn infer(&self, call: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type>;

    /// Computes the result, which has the type that [`CustomOp::infer`] returns.
    fn run(&self, call: &Call<Tensor>) -> OpResult<Val<Tensor>>;
}

#[derive(Default)]
struct Custom {
    ops: Vec<&'static Op>,
    by_path: IndexMap<&'static str, &'static Op>,
    /// Declarations by schema and expression, so that reading the same declaration again yields the same op.
    declared: IndexMap<(String, String), &'static Op>,
    /// Paths of functions that are declared to have side effects, including functions without a row.
    effects: HashSet<String>,
}

/// The registry of the process. It extends the table, which is also global: files refer to ops by path, and in a graph
/// that is parsed, copied or split a path must mean the same op as in the original graph.
static CUSTOM: LazyLock<RwLock<Custom>> = LazyLock::new(Default::default);

/// The registered op with this name or spelling.
pub(super) fn find(path: &str) -> Option<&'static Op> {
    let custom = CUSTOM.read().unwrap_or_else(PoisonError::into_inner);
    custom.by_path.get(path).copied()
}

/// All registered ops, in registration order.
pub fn registered_ops() -> Vec<&'static Op> {
    let custom = CUSTOM.read().unwrap_or_else(PoisonError::into_inner);
    custom.ops.clone()
}

/// Declares that functions have side effects.
pub(crate) fn add_effects(paths: Vec<String>) {
    let mut custom = CUSTOM.write().unwrap_or_else(PoisonError::into_inner);
    custom.effects.extend(paths);
}

/// Whether a function is declared to have side effects. `path` is called only if any function is.
pub(crate) fn has_effect(path: impl FnOnce() -> String) -> bool {
    let custom = CUSTOM.read().unwrap_or_else(PoisonError::into_inner);
    !custom.effects.is_empty() && custom.effects.contains(&path())
}

/// Registers an op. Returns an error if the schema is invalid or the name is taken.
pub fn register(custom: impl CustomOp + 'static) -> OpResult<&'static Op> {
    let (name, schema) = read_schema(&custom.schema())?;
    let mut table = CUSTOM.write().unwrap_or_else(PoisonError::into_inner);
    if super::table::is_spelling(name) || table.by_path.contains_key(name) {
        return Err(OpError::new(Code::E0103, format!("the op `{name}` already exists")));
    }
    let (doc, effect) = (leak_text(custom.doc()), custom.effect());
    let mut op = Op::with_schema(name, schema.into(), infer_custom, Meaning::Routine(run_custom))
        .doc(doc)
        .effect(effect);
    op.custom = Some(Box::leak(Box::new(custom)));
    let op: &'static Op = Box::leak(Box::new(op));
    table.add_op(op);
    Ok(op)
}

/// Registers a pointwise op: `expr` is in the language of [`scalar::parse`](crate::scalar::parse) over the schema's
/// parameters. Tensors are broadcast and promoted; integers and bools become f32. Repeating a declaration returns the
/// same op; a different declaration of the same name creates an op with a name of its own.
pub(crate) fn declare(schema: &str, expr: &str) -> OpResult<&'static Op> {
    let key = (schema.to_string(), expr.to_string());
    {
        let table = CUSTOM.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(op) = table.declared.get(&key) {
            return Ok(op);
        }
    }
    let (requested, mut parsed) = read_schema(schema)?;
    if super::table::is_spelling(requested) {
        return Err(OpError::new(
            Code::E0103,
            format!("the op `{requested}` already exists"),
        ));
    }
    check_parameters(&parsed)?;
    let mut table = CUSTOM.write().unwrap_or_else(PoisonError::into_inner);
    let mut name = requested;
    for i in 2.. {
        if !table.by_path.contains_key(name) {
            break;
        }
        name = leak_text(format!("{requested}_{i}"));
    }
    let text = leak_text(expr.to_string());
    let mut op = pointwise((name, "f(Tensor self) -> Tensor"), DtypeRule::PromoteFloat, text).doc(text);
    parsed.name = name.to_string();
    op.schema = parsed.into();
    let op: &'static Op = Box::leak(Box::new(op));
    check_expression(op)?;
    table.add_op(op);
    table.declared.insert(key, op);
    Ok(op)
}

impl Custom {
    fn add_op(&mut self, op: &'static Op) {
        self.ops.push(op);
        self.by_path.insert(op.name, op);
        self.by_path.insert(leak_text(format!("{}.default", op.name)), op);
    }
}

fn leak_text(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn bad_schema(problem: String) -> OpError {
    let e = OpError::new(Code::E0203, format!("invalid schema: {problem}"));
    e.help("use torch's schema syntax: `mylib::scale(Tensor x, float factor=2.0) -> Tensor`")
}

/// The op's name (with dots) and the schema.
fn read_schema(text: &str) -> OpResult<(&'static str, Schema)> {
    let text = text.replace("::", ".");
    let schema = Schema::try_parse(&text).map_err(bad_schema)?;
    let name = text.split('(').next().unwrap_or_default().trim();
    let part = |p: &str| p.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let legal = |p: &str| part(p) && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !name.split('.').all(legal) {
        return Err(OpError::new(Code::E0203, format!("`{name}` is not a valid op name")));
    }
    Ok((leak_text(name.to_string()), schema))
}

fn check_parameters(schema: &Schema) -> OpResult<()> {
    let is_tensor = |t: &ParamType| matches!(t, ParamType::Tensor);
    if !schema.params.iter().any(|p| is_tensor(&p.ty)) {
        return Err(OpError::new(
            Code::E0203,
            "a pointwise op must have a parameter such as `Tensor x`",
        ));
    }
    if schema.results != 1 {
        let title = format!(
            "a pointwise op must have one result, `-> Tensor`, not {}",
            schema.results
        );
        return Err(OpError::new(Code::E0203, title));
    }
    for p in &schema.params {
        if !matches!(
            p.ty,
            ParamType::Tensor | ParamType::Number | ParamType::Float | ParamType::Int
        ) {
            let title = format!(
                "parameter `{}` of a pointwise op must be a Tensor, Scalar, float or int",
                p.name
            );
            return Err(OpError::arg(&p.name, title));
        }
    }
    Ok(())
}

/// Checks the expression for one set of types, so that errors are reported at the declaration.
fn check_expression(op: &'static Op) -> OpResult<()> {
    let arg = |t: &ParamType| match t {
        ParamType::Tensor => Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2])),
        ParamType::Int => Val::int(1),
        _ => Val::Float(1.0),
    };
    let args = op.schema.params.iter().map(|p| arg(&p.ty)).collect();
    instantiate(&Call { op, args }).map(|_| ()).map_err(|e| {
        let problem = e.notes.first().unwrap_or(&e.title).clone();
        let title = format!("invalid expression for `{}`: {problem}", op.name);
        OpError::new(Code::E0203, title)
    })
}

fn as_custom(op: &Op) -> OpResult<&'static dyn CustomOp> {
    op.custom
        .ok_or_else(|| OpError::refused(format!("`{}` is not a registered op", op.name)))
}

fn infer_custom(call: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    as_custom(call.op)?.infer(call, sizes)
}

fn run_custom(call: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let result = as_custom(call.op)?.run(call)?;
    let want = infer_custom(&call.map(Tensor::ty), &mut Sizes::default())?;
    let found = result.map(Tensor::ty);
    let fits = want.leaves().len() == found.leaves().len()
        && want
            .leaves()
            .iter()
            .zip(found.leaves())
            .all(|(w, f)| w.dtype == f.dtype && w.fixed_shape().is_none_or(|s| f.fixed_shape() == Some(s)));
    match fits {
        true => Ok(result),
        false => Err(OpError::value(format!(
            "`{}` returned {found}, but its type rule requires {want}",
            call.op.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Twice;

    impl CustomOp for Twice {
        fn schema(&self) -> String {
            "testlib::twice(Tensor x) -> Tensor".into()
        }

        fn infer(&self, call: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
            Ok(Val::Leaf(call.leaf("x")?.clone()))
        }

        fn run(&self, call: &Call<Tensor>) -> OpResult<Val<Tensor>> {
            let x = call.leaf("x")?;
            Ok(Val::Leaf(Tensor::from_fn(x.dtype(), x.shape(), |i| {
                crate::tensor::Scalar::F64(2.0 * x.get(i).to_f64())
            })))
        }
    }

    #[test]
    fn a_registered_op_is_found_by_every_spelling() {
        let op = register(Twice).unwrap();
        for path in ["testlib.twice", "testlib.twice.default"] {
            assert_eq!(super::super::candidates(path)[0].op, op);
        }
        assert!(super::super::by_name("testlib.twice").is_some());
        assert_eq!(register(Twice).unwrap_err().code, Code::E0103);
    }

    #[test]
    fn what_cannot_be_declared_is_refused() {
        let title = |schema: &str, expr: &str| declare(schema, expr).unwrap_err().title;
        assert!(title("add(Tensor x) -> Tensor", "x").contains("already"));
        assert!(title("testlib::f(Tensor x", "x").contains("schema"));
        assert!(title("testlib::f(str x) -> Tensor", "x").contains("Tensor x"));
        assert!(title("testlib::f(Tensor x) -> (Tensor, Tensor)", "x").contains("one result"));
        assert!(!title("testlib::f(Tensor x) -> Tensor", "x + y").is_empty());
        assert!(!title("testlib::f(Tensor x) -> Tensor", "x +").is_empty());
    }

    #[test]
    fn the_same_declaration_is_the_same_op() {
        let a = declare("testlib::sq(Tensor x) -> Tensor", "x * x").unwrap();
        let b = declare("testlib::sq(Tensor x) -> Tensor", "x * x").unwrap();
        let c = declare("testlib::sq(Tensor x) -> Tensor", "x * x + 0").unwrap();
        assert!(std::ptr::eq(a, b) && a.name != c.name);
    }
}
