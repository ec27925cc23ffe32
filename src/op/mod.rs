//! The one place an operation is declared.
//!
//! A row of the table ([`Op`]) holds the canonical name, torch's schema, every spelling, the type rule and the meaning.
//! Argument checks, inference, printing, documentation, the interpreter and code generation follow from the row, so
//! that adding an op is adding a row (`rows/`). For example, all that fxc knows of `softplus`:
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

pub mod autocast;
mod bind;
mod builder;
mod call;
mod contraction;
pub mod control;
pub mod custom;
mod demands;
pub mod drawing;
mod effect;
pub mod emit;
pub mod examples;
mod facts;
mod id;
pub mod layout;
pub mod lookup;
mod meaning;
pub mod meant;
pub mod modules;
pub mod number;
mod numbers;
pub mod outs;
pub mod outside;
pub mod pointwise;
mod promotion;
pub mod random;
mod registry;
pub mod rows;
pub mod running;
mod schema;
pub mod sharing;
mod signature;
pub mod spell;
mod table;
pub mod view;

pub use bind::{BindError, Binding, Leniency, ParamOrigin, lift_literal, param_accepts};
pub use builder::OpBuilder;
pub use call::{Call, OpError, OpResult, Sizes, TypeRule, wrap_dim};
pub use contraction::{Contraction, Convolution, MatrixProduct};
pub use effect::Effect;
pub use emit::decomposed_type;
pub use facts::{DrawOrder, Facts, Filled, MemoryOrder, MemoryUse};
pub use id::OpId;
pub use meaning::*;
pub use pointwise::{instantiate, pointwise_rule};
pub use registry::{
    Candidate, Spelling, candidates, canonical_path, check_signature, imported_path, is_open, resolve, resolve_among,
    resolve_checked,
};
pub use schema::{LazySchema, Literal, NoLeaf, Param, ParamList, ParamType, Schema, write_literal};
pub use signature::overloads;
pub use signature::texts as signature_texts;
pub use table::{all, by_name, is_spelling, spellings};

use crate::types::{TensorType, Type};

/// A row's name with its schema: `relu(Tensor self) -> Tensor` gives both, and rows that share a schema have a name beside it.
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

/// One spelling or several with the same schema.
#[derive(Clone, Debug)]
pub struct Form {
    /// Its paths, separated by white space.
    text: &'static str,
    /// The schema where it differs from the row's; parameters go by name, others take the row's defaults.
    pub schema: Option<LazySchema>,
    /// Parameters of the row that this spelling fixes.
    pub fixed: Vec<(&'static str, Literal)>,
    /// Writes its result to the first parameter (`add_`, `operator.iadd`).
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

    /// Paths: `aten.add.Tensor`, `torch.add`, `Tensor.add` (the method), `operator.add`.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.text.split_ascii_whitespace()
    }

    /// The schema of these spellings of `op`.
    pub fn schema_of<'a>(&'a self, op: &'a Op) -> &'a Schema {
        self.schema.as_ref().unwrap_or(&op.schema)
    }
}

/// Spellings with the row's name for `@`; `aten.@` is the overload `default`. The table lives as long as the program, and so do its
/// texts.
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

/// How a module class calls ops: `Linear(in_features, out_features, bias=True) = linear(input, @weight, @bias?)`.
/// On the left the constructor's parameters with torch's defaults; on the right a canonical op with the forward's
/// inputs (`input`, or `$0`, `$1`), constructor parameters by name, literals, attributes (`@weight`), and attributes
/// that may be missing (`@bias?`).
#[derive(Clone, Copy, Debug)]
pub struct ModuleForm {
    /// The text.
    pub text: &'static str,
}

/// What torch requires of an in-place call beside a dtype that the result can be stored as; the error is torch's.
pub type InPlaceCheck = fn(&Call<TensorType>) -> OpResult<()>;

/// One operation.
pub struct Op {
    /// fxc's canonical name.
    pub name: &'static str,
    /// Its id, if it is a row of the table.
    id: Option<OpId>,
    /// torch's schema: parameters, defaults, number of results.
    pub schema: LazySchema,
    /// What it computes, in a line.
    pub doc: &'static str,
    /// Its spellings beside the bare canonical name.
    pub forms: Vec<Form>,
    /// The module classes that are this op.
    pub modules: Vec<ModuleForm>,
    /// What it does beside computing.
    pub effect: Effect,
    /// The type of the result.
    pub rule: TypeRule,
    /// What it computes.
    pub meaning: Meaning,
    /// Whether the first two operands may be swapped.
    pub commutative: bool,
    /// Whether the result may share the first parameter's memory in torch (views, `contiguous`, `to`): what
    /// functionalisation must know.
    pub aliases: bool,
    /// What torch asks of its calls in place, where that is not whether the result's dtype can be stored.
    pub in_place: Option<InPlaceCheck>,
    /// When the result is the first operand itself, and no view of it: what changes the shape of one changes the other's.
    pub same_object: Option<fn(&Call<TensorType>, &layout::Layout) -> bool>,
    /// Which of its writes in place do not ask whether elements share a place in memory.
    pub shared_writes: Option<sharing::SharedWrites>,
    /// What later stages act on.
    pub facts: Facts,
    /// For views: the rule that also holds for symbolic sizes.
    pub view: Option<view::ViewRule>,
    /// For ops that were registered: what they compute.
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
    /// A row. The doc, the spellings and the rest are added by the methods below.
    pub fn new(declared: impl Into<RowDeclaration>, rule: TypeRule, meaning: Meaning) -> Op {
        let RowDeclaration { name, schema } = declared.into();
        Op::with_schema(name, LazySchema::new(schema).with_name(name), rule, meaning)
    }

    /// [`Op::new`] with a schema of this name.
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

    /// A row whose type follows from what it decomposes into.
    pub fn composite(declared: impl Into<RowDeclaration>, f: Decompose) -> Op {
        Op::new(declared, decomposed_type, Meaning::Decompose(f))
    }

    /// Its id; ops that were registered have none.
    pub fn id(&self) -> Option<OpId> {
        self.id
    }

    /// Whether it is this row.
    pub fn is(&self, id: OpId) -> bool {
        self.id == Some(id)
    }

    /// What it computes, in a line.
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

    /// Spellings with the row's own schema, separated by white space; `@` is the row's name: `aten.@ torch.@ Tensor.@`.
    pub fn spelled(self, paths: &'static str) -> Op {
        self.with_form(Form::new(paths, None, false))
    }

    /// Spellings with a schema of their own.
    pub fn form(self, paths: &'static str, schema: &'static str) -> Op {
        self.with_form(Form::new(paths, Some(schema), false))
    }

    /// Spellings with a schema of their own that fix some of the row's parameters.
    pub fn form_with(self, paths: &'static str, schema: &'static str, fixed: &[(&'static str, Literal)]) -> Op {
        self.with_form(Form {
            fixed: fixed.to_vec(),
            ..Form::new(paths, Some(schema), false)
        })
    }

    /// Spellings that write the result to the first parameter, with the row's schema.
    pub fn inplace(self, paths: &'static str) -> Op {
        self.with_form(Form::new(paths, None, true))
    }

    /// Spellings that write the result to the first parameter, with a schema of their own.
    pub fn inplace_form(self, paths: &'static str, schema: &'static str) -> Op {
        self.with_form(Form::new(paths, Some(schema), true))
    }

    /// Spellings that write the result to the first parameter, with a schema of their own that fixes some parameters.
    pub fn inplace_form_with(self, paths: &'static str, schema: &'static str, fixed: &[(&'static str, Literal)]) -> Op {
        self.with_form(Form {
            fixed: fixed.to_vec(),
            ..Form::new(paths, Some(schema), true)
        })
    }

    /// A module class that is this op. See [`ModuleForm`].
    pub fn module(mut self, text: &'static str) -> Op {
        self.modules.push(ModuleForm { text });
        self
    }

    /// Calls in place compute in the operand's own dtype, if `check` lets them.
    pub fn in_place_if(mut self, check: fn(&Call<TensorType>) -> OpResult<()>) -> Op {
        self.in_place = Some(check);
        self
    }

    /// The result is the first operand itself, and no view of it, where `rule` says so of the operand's layout.
    pub fn same_object(mut self, rule: fn(&Call<TensorType>, &layout::Layout) -> bool) -> Op {
        self.same_object = Some(rule);
        self
    }

    /// Whether the result, of type `out`, of a call on a first operand that lies so is that operand itself.
    pub fn gives_operand(&self, call: &Call<TensorType>, out: &Type, at: Option<&layout::Layout>) -> bool {
        let rule = self.same_object.zip(at);
        call.args.first() == Some(out) && rule.is_some_and(|(rule, at)| rule(call, at))
    }

    /// The first two operands may be swapped.
    pub fn commutative(mut self) -> Op {
        self.commutative = true;
        self
    }

    /// The result may share the first parameter's memory in torch.
    pub fn aliasing(mut self) -> Op {
        self.aliases = true;
        self
    }

    /// The result never shares memory with the first parameter in torch, though it is a view in meaning (`flip`).
    pub fn copies(mut self) -> Op {
        self.aliases = false;
        self
    }

    /// What it does beside computing.
    pub fn effect(mut self, effect: Effect) -> Op {
        self.effect = effect;
        self
    }

    /// The control flow that the op is.
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
