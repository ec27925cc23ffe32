//! Which text a graph was read from, and what that text says beyond the graph.

use std::sync::Arc;

/// Which text a graph was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// FXIR.
    Fxir,
    /// What `print(graph)` prints.
    Torch(TorchPrint),
    /// The Python that torch prints, of a class of this name if it names one.
    Python(Option<Arc<str>>),
    /// TorchScript's text.
    Script,
}

/// The frame of a graph that torch printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchPrint {
    /// The line before the statements, as written: `graph():`, `graph(x) -> Tensor:`, `# Graph fragment:`, or none.
    pub header: Option<Arc<str>>,
    /// Whether this is a fragment (Inductor's comments, or lines without a `graph` header): nodes may be used that
    /// stand outside of it, and it need not have a `return`.
    pub fragment: bool,
}

/// The shape of a statement that torch printed, beyond what the statement means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchStmt {
    /// What stands on the line before `%` or `return`: `    `, or `#   ` in Inductor's comments.
    pub indent: Arc<str>,
    /// The text between ` : ` and the users tag (or ` = `), trailing space included: `torch.Tensor `,
    /// `Tensor "f32[4, 5][5, 1]cpu"`; empty if there is none.
    pub annotation: Arc<str>,
    /// The users tag.
    pub tag: Option<UsersTag>,
    /// How the rest is written.
    pub form: TorchForm,
}

/// `[num_users=3]` in one of its historical spellings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersTag {
    /// The word: `num_users`, `#users`, `users` or `uses`.
    pub word: Arc<str>,
    /// The count.
    pub count: u32,
}

/// How torch wrote the part of a statement after ` = `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorchForm {
    /// `opcode[target=…](…)`.
    Bracketed,
    /// Inductor's `PlaceHolder[target=…]`.
    CapitalPlaceholder,
    /// torch 1.7's `self.linear.weight` for `get_attr`.
    SelfAttr,
    /// torch 1.7's placeholder: a name in the header `graph(x):`, with no line of its own.
    HeaderParam,
    /// `return` with Python's repr of the value: nodes have no `%`.
    Return,
    /// `return %a,%b`, of torch 1.7 and Inductor. Several values make a tuple.
    ReturnPercent,
}
