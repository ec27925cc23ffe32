//! The text format that a graph was read from, and the parts of the text that the graph does not represent.

use std::sync::Arc;

/// The text format that a graph was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// FXIR.
    Fxir,
    /// What `print(graph)` prints.
    Torch(TorchPrint),
    /// The Python code that torch prints, with the name of its class if there is one.
    Python(Option<Arc<str>>),
    /// TorchScript's text.
    Script,
}

/// The frame around a graph that torch printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchPrint {
    /// The line before the statements, as written: `graph():`, `graph(x) -> Tensor:`, `# Graph fragment:`, or none.
    pub header: Option<Arc<str>>,
    /// Whether this is a fragment (Inductor's comments, or lines without a `graph` header). A fragment can use nodes
    /// that are defined outside of it, and needs no `return`.
    pub fragment: bool,
}

/// The format of a statement that torch printed, apart from its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchStmt {
    /// The indentation before `%` or `return`: `    `, or `#   ` in Inductor's comments.
    pub indent: Arc<str>,
    /// The text between ` : ` and the users tag (or ` = `), trailing space included: `torch.Tensor `,
    /// `Tensor "f32[4, 5][5, 1]cpu"`; empty if there is none.
    pub annotation: Arc<str>,
    /// The users tag.
    pub tag: Option<UsersTag>,
    /// The format of the rest.
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

/// The format in which torch wrote the part of a statement after ` = `.
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
