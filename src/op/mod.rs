//! The op table: the single place where an operation is declared.
//!
//! A row of the table ([`Op`]) holds the canonical name, torch's schema, all spellings, the type rule and the meaning. Argument
//! checks, inference, printing, documentation, the interpreter and code generation all follow from the row, so adding an op means
//! adding a row (`rows/`). For example, this is everything that fxc knows about `softplus`:
//!
//! ```text
//! pointwise(
//!     "softplus",
//!     "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
//!     D::FloatOnly("softplus_cpu"),
//!     "where(self * beta > threshold, self, log1p(exp(self * beta)) / beta)",
//! )
//! .doc("log(1 + exp(beta * self)) / beta; self itself above the threshold")
//! .spelled("aten.softplus.default torch.nn.functional.softplus")
//! .module("Softplus(beta=1.0, threshold=20.0) = softplus(input, beta, threshold)")
//! ```

pub(crate) mod autocast;
mod bind;
mod builder;
mod call;
mod contraction;
pub(crate) mod control;
pub(crate) mod custom;
mod demands;
pub(crate) mod drawing;
mod effect;
pub(crate) mod emit;
pub(crate) mod examples;
mod facts;
mod id;
pub(crate) mod layout;
pub(crate) mod lookup;
mod meaning;
pub(crate) mod meant;
pub(crate) mod modules;
pub(crate) mod number;
mod numbers;
pub(crate) mod outs;
pub(crate) mod outside;
pub(crate) mod pointwise;
mod promotion;
pub(crate) mod random;
mod registry;
pub(crate) mod rows;
pub(crate) mod running;
mod schema;
pub(crate) mod sharing;
mod signature;
pub(crate) mod spell;
mod table;
pub(crate) mod view;

pub(crate) use bind::{BindError, Binding, Leniency, ParamOrigin, lift_literal};
pub(crate) use builder::OpBuilder;
pub use call::{Call, OpError, OpResult, Sizes};
pub(crate) use call::{TypeRule, wrap_dim};
pub(crate) use contraction::{Contraction, Convolution, MatrixProduct};
pub use effect::Effect;
pub(crate) use emit::decomposed_type;
pub(crate) use facts::{DrawOrder, Facts, Filled, IndexLimit, MemoryOrder, MemoryUse};
pub use id::OpId;
pub use meaning::*;
pub(crate) use pointwise::{instantiate, pointwise_rule};
pub(crate) use registry::{
    Candidate, Spelling, check_signature, imported_path, is_open, resolve_among, resolve_checked,
};
pub use registry::{candidates, canonical_path, resolve};
pub use schema::ParamType;
pub(crate) use schema::{LazySchema, Literal, Param, ParamList, Schema, write_literal};
pub(crate) use signature::overloads;
pub(crate) use signature::texts as signature_texts;
pub(crate) use table::is_spelling;
pub use table::{all, by_name};

use crate::diag::Code;
use crate::types::{Dim, TensorType, Type, Val, watch_overflow};

/// A row's name and schema. `relu(Tensor self) -> Tensor` gives both; rows that share a schema are declared with a
/// separate name.
pub struct RowDeclaration {
    name: &'static str,
    schema: &'static str,
}

impl From<&'static str> for RowDeclaration {
    fn from(schema: &'static str) -> RowDeclaration {
        let name = schema.split('(').next().unwrap_or(schema);
        RowDeclaration { name, schema }
    }
}

impl From<(&'static str, &'static str)> for RowDeclaration {
    fn from((name, schema): (&'static str, &'static str)) -> RowDeclaration {
        RowDeclaration { name, schema }
    }
}

/// One or more spellings with the same schema.
#[derive(Clone, Debug)]
pub struct Form {
    /// The paths, separated by white space.
    text: &'static str,
    /// The schema, if it differs from the row's. Parameters correspond by name; the row's other parameters take their
    /// defaults.
    pub schema: Option<LazySchema>,
    /// Parameters of the row for which these spellings fix a value.
    pub fixed: Vec<(&'static str, Literal)>,
    /// Whether the result is written to the first parameter (`add_`, `operator.iadd`).
    pub inplace: bool,
}

impl Form {
    fn new(text: &'static str, schema: Option<&'static str>, inplace: bool) -> Form {
        Form {
            text,
            schema: schema.map(LazySchema::new),
            fixed: vec![],
            inplace,
        }
    }

    /// The paths: `aten.add.Tensor`, `torch.add`, `Tensor.add` (the method), `operator.add`.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.text.split_ascii_whitespace()
    }

    /// The schema of these spellings of `op`.
    pub fn schema_of<'a>(&'a self, op: &'a Op) -> &'a Schema {
        self.schema.as_ref().unwrap_or(&op.schema)
    }
}

/// Replaces `@` by the row's name; `aten.@` gets the overload `default`. The text is leaked because the table is never
/// dropped.
fn with_name(row: &str, text: &'static str) -> &'static str {
    if !text.contains('@') {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 64);
    for path in text.split_ascii_whitespace() {
        let packet = path.strip_prefix("aten.").is_some_and(|rest| !rest.contains('.'));
        let overload = if packet { ".default " } else { " " };
        out += &path.replace('@', row);
        out += overload;
    }
    out.leak()
}

/// The op call that a module class stands for: `Linear(in_features, out_features, bias=True) = linear(input, @weight, @bias?)`.
/// On the left are the constructor's parameters with torch's defaults. On the right is a canonical op, applied to the forward's
/// inputs (`input`, or `$0`, `$1`), constructor parameters by name, literals, attributes (`@weight`) and optional attributes
/// (`@bias?`).
#[derive(Clone, Copy, Debug)]
pub struct ModuleForm {
    /// The text of the form.
    pub text: &'static str,
}

/// torch's check for in-place calls of an op. It replaces the usual check that the result's dtype can be stored, and returns
/// torch's error.
pub(crate) type InPlaceCheck = fn(&Call<TensorType>) -> OpResult<()>;

fn has_unknown_size(ty: &Type) -> bool {
    let unknown = |d: &Dim| *d == Dim::Unknown;
    match ty {
        Val::Leaf(t) => t.shape.iter().flat_map(|s| s.iter()).any(unknown),
        Val::Int(d) => unknown(d),
        Val::List(v) | Val::Tuple(v) => v.iter().any(has_unknown_size),
        _ => false,
    }
}

/// An operation: a row of the table, or an op registered by the user.
pub struct Op {
    /// fxc's canonical name.
    pub name: &'static str,
    /// Its id, if it is a row of the table.
    id: Option<OpId>,
    /// torch's schema: parameters, defaults, number of results.
    pub schema: LazySchema,
    /// A one-line description of what it computes.
    pub doc: &'static str,
    /// Its spellings other than the bare canonical name.
    pub forms: Vec<Form>,
    /// The module classes that stand for this op.
    pub modules: Vec<ModuleForm>,
    /// Its side effect.
    pub effect: Effect,
    /// The type rule.
    pub rule: TypeRule,
    /// What it computes.
    pub meaning: Meaning,
    /// Whether the first two operands may be swapped.
    pub commutative: bool,
    /// Whether the result may share the first parameter's memory in torch (views, `contiguous`, `to`).
    /// Functionalisation needs to know this.
    pub aliases: bool,
    /// torch's check for in-place calls, if it is not that the result's dtype can be stored.
    pub in_place: Option<InPlaceCheck>,
    /// Tells when the result is the first operand itself, not a view of it: then a change of the shape of one also
    /// changes the other.
    pub same_object: Option<fn(&Call<TensorType>, &layout::Layout) -> bool>,
    /// Tells which in-place writes skip the check for elements that share memory.
    pub shared_writes: Option<sharing::SharedWrites>,
    /// Properties that later stages use.
    pub facts: Facts,
    /// For views: the rule that also works for symbolic sizes.
    pub view: Option<view::ViewRule>,
    /// For registered ops: their implementation.
    pub custom: Option<&'static dyn custom::CustomOp>,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self, other) || self.name == other.name
    }
}

impl Op {
    /// The type of a call's result, by the row's rule. E0306 if a size is beyond 64 bits.
    pub fn result_type(&self, call: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
        let (ty, overflowed) = watch_overflow(|| (self.rule)(call, sizes));
        match ty {
            Ok(ty) if overflowed && has_unknown_size(&ty) => {
                let title = format!("a size in the result of `{}` exceeds 64 bits", self.name);
                Err(OpError::new(Code::E0306, title))
            }
            ty => ty,
        }
    }

    /// A row with this schema, type rule and meaning. The methods below add the rest: description, spellings and so on.
    pub fn new(declared: impl Into<RowDeclaration>, rule: TypeRule, meaning: Meaning) -> Op {
        let RowDeclaration { name, schema } = declared.into();
        Op::with_schema(name, LazySchema::new(schema).with_name(name), rule, meaning)
    }

    /// [`Op::new`] with a parsed schema.
    fn with_schema(name: &'static str, schema: LazySchema, rule: TypeRule, meaning: Meaning) -> Op {
        Op {
            name,
            id: OpId::from_name(name),
            schema,
            doc: "",
            forms: vec![],
            modules: vec![],
            effect: Effect::Pure,
            rule,
            meaning,
            commutative: false,
            aliases: matches!(meaning, Meaning::View(_)),
            in_place: None,
            shared_writes: None,
            same_object: None,
            facts: Facts::default(),
            view: None,
            custom: None,
        }
    }

    /// A composite row: its type is that of its decomposition.
    pub fn composite(declared: impl Into<RowDeclaration>, f: Decompose) -> Op {
        Op::new(declared, decomposed_type, Meaning::Decompose(f))
    }

    /// Its id; registered ops have none.
    pub fn id(&self) -> Option<OpId> {
        self.id
    }

    /// Whether it is this row.
    pub fn is(&self, id: OpId) -> bool {
        self.id == Some(id)
    }

    /// Sets the one-line description.
    pub fn doc(mut self, doc: &'static str) -> Op {
        self.doc = doc;
        self
    }

    fn with_form(mut self, form: Form) -> Op {
        self.forms.push(Form {
            text: with_name(self.name, form.text),
            ..form
        });
        self
    }

    /// Adds spellings with the row's own schema, separated by white space; `@` is the row's name: `aten.@ torch.@
    /// Tensor.@`.
    pub fn spelled(self, paths: &'static str) -> Op {
        self.with_form(Form::new(paths, None, false))
    }

    /// Adds spellings with a schema of their own.
    pub fn form(self, paths: &'static str, schema: &'static str) -> Op {
        self.with_form(Form::new(paths, Some(schema), false))
    }

    /// Adds spellings with a schema of their own that fix some of the row's parameters.
    pub fn form_with(self, paths: &'static str, schema: &'static str, fixed: &[(&'static str, Literal)]) -> Op {
        self.with_form(Form {
            fixed: fixed.to_vec(),
            ..Form::new(paths, Some(schema), false)
        })
    }

    /// Adds in-place spellings, which write the result to the first parameter, with the row's schema.
    pub fn inplace(self, paths: &'static str) -> Op {
        self.with_form(Form::new(paths, None, true))
    }

    /// Adds in-place spellings with a schema of their own.
    pub fn inplace_form(self, paths: &'static str, schema: &'static str) -> Op {
        self.with_form(Form::new(paths, Some(schema), true))
    }

    /// Adds in-place spellings with a schema of their own that fix some of the row's parameters.
    pub fn inplace_form_with(self, paths: &'static str, schema: &'static str, fixed: &[(&'static str, Literal)]) -> Op {
        self.with_form(Form {
            fixed: fixed.to_vec(),
            ..Form::new(paths, Some(schema), true)
        })
    }

    /// Adds a module class that stands for this op. See [`ModuleForm`].
    pub fn module(mut self, text: &'static str) -> Op {
        self.modules.push(ModuleForm { text });
        self
    }

    /// In-place calls compute in the operand's own dtype, if `check` accepts them.
    pub fn in_place_if(mut self, check: fn(&Call<TensorType>) -> OpResult<()>) -> Op {
        self.in_place = Some(check);
        self
    }

    /// The result is the first operand itself, not a view of it, if `rule` holds for the operand's layout.
    pub fn same_object(mut self, rule: fn(&Call<TensorType>, &layout::Layout) -> bool) -> Op {
        self.same_object = Some(rule);
        self
    }

    /// Whether a call returns its first operand itself. `out` is the type of the result, `layout` the layout of the
    /// operand.
    pub fn gives_operand(&self, call: &Call<TensorType>, out: &Type, layout: Option<&layout::Layout>) -> bool {
        let rule = self.same_object.zip(layout);
        call.args.first() == Some(out) && rule.is_some_and(|(rule, layout)| rule(call, layout))
    }

    /// Declares that the first two operands may be swapped.
    pub fn commutative(mut self) -> Op {
        self.commutative = true;
        self
    }

    /// Declares that the result may share the first parameter's memory in torch.
    pub fn aliasing(mut self) -> Op {
        self.aliases = true;
        self
    }

    /// Declares that the result never shares the first parameter's memory in torch, though the meaning is a view
    /// (`flip`).
    pub fn copies(mut self) -> Op {
        self.aliases = false;
        self
    }

    /// Sets the side effect.
    pub fn effect(mut self, effect: Effect) -> Op {
        self.effect = effect;
        self
    }

    /// The kind of control flow, if the op is control flow.
    pub fn control(&self) -> Option<crate::control::Control> {
        match self.meaning {
            Meaning::Control(c) => Some(c),
            _ => None,
        }
    }

    /// Whether `Tensor` parameters also take Python numbers.
    pub fn takes_numbers(&self) -> bool {
        matches!(self.meaning, Meaning::Pointwise(_))
    }
}
