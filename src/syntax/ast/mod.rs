//! The syntax tree of FXIR: the content of a file before name resolution.
//!
//! Every node has the [`Span`] it was read from. torch's own texts are read into the same tree; [`TorchPrint`] and
//! [`TorchStmt`] have what torch's printer needs to reproduce such a text unchanged.

mod dialect;
mod items;
mod value;

pub(crate) use self::items::{
    ConstDecl, DimDecl, FrameDecl, GuardDecl, ModuleDecl, PointwiseDecl, ScopeDecl, TensorDecl, Weights,
};
pub(crate) use dialect::{Dialect, TorchStmt, UsersTag};
pub use dialect::{TorchForm, TorchPrint};
pub(crate) use value::{BinaryOp, Binding, Type, TypeKind, UnaryOp, Value, ValueKind};

use crate::source::Span;
use std::sync::Arc;

/// A file: its items in order, and its comments separately.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The items in the order they are written.
    pub items: Vec<Item>,
    /// All comments of FXIR text, in order. The formatter puts them back by position.
    pub comments: Vec<Comment>,
    /// Names of items that could not be read, which has been reported.
    pub lost: Vec<Arc<str>>,
    /// Whether the file contains torch's texts with their pasted surroundings. Its lines are then not changed.
    pub pasted: bool,
    /// The whole text.
    pub span: Span,
}

/// A comment: from `#` to the end of the line.
#[derive(Clone, Debug)]
pub struct Comment {
    /// The text with its `#`, without trailing white space.
    pub text: Arc<str>,
    /// Its span.
    pub span: Span,
}

/// A name (or dotted path, or the text of a quoted string where a name is expected).
#[derive(Clone, Debug)]
pub struct Name {
    /// The name without `%`, `@`, `$` or quotes.
    pub text: Arc<str>,
    /// Its span, including a sigil or quotes.
    pub span: Span,
}

/// One declaration of a file.
#[derive(Clone, Debug)]
pub enum Item {
    /// `weights "file.safetensors"`
    Weights(Weights),
    /// `module fc1 = Linear(784, 512)`
    Module(ModuleDecl),
    /// `const scale : f32[] = 0.5`
    Const(ConstDecl),
    /// `param fc2.weight : f32[10, 512]` or `buffer running_mean : f32[512]`
    Tensor(TensorDecl),
    /// `dim N in 1..4096`
    Dim(DimDecl),
    /// `dim where N % 8 == 0`
    Guard(GuardDecl),
    /// `pointwise "squareplus(Tensor x, float b=4.0) -> Tensor" = "(x + sqrt(x * x + b)) / 2"`
    Pointwise(PointwiseDecl),
    /// `graph name { … }`, or a graph that torch printed
    Graph(Graph),
    /// `rewrite name(…) { … } => { … } where …`
    Rewrite(Rewrite),
    /// `signature (…) => (…)`: the signature of the exported program
    Signature(Signature),
    /// `frame f2 = f1 > "model.py":13 in forward "return self.act(x)"`
    Frame(FrameDecl),
    /// `scope s2 = s1 > layer1.0 : torch.nn.modules.conv.Conv2d`
    Scope(ScopeDecl),
}

impl Item {
    /// The whole item.
    pub fn span(&self) -> Span {
        match self {
            Item::Weights(x) => x.span,
            Item::Module(x) => x.span,
            Item::Const(x) => x.span,
            Item::Tensor(x) => x.span,
            Item::Dim(x) => x.span,
            Item::Guard(x) => x.span,
            Item::Pointwise(x) => x.span,
            Item::Graph(x) => x.span,
            Item::Rewrite(x) => x.span,
            Item::Signature(x) => x.span,
            Item::Frame(x) => x.span,
            Item::Scope(x) => x.span,
        }
    }
}

/// A graph.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The name; torch's own texts have none.
    pub name: Option<Name>,
    /// The attribute of the parent module that holds the graph, if that is another name.
    pub attribute: Option<Name>,
    /// The buffers and inputs that the leading results are new values of; the caller does not see these results.
    pub updates: Vec<Update>,
    /// The parameters of the function around the graph, if these or the result are nested.
    pub called: Option<Called>,
    /// The statements.
    pub body: Body,
    /// The format of the text it was read from.
    pub dialect: Dialect,
    /// The signature of an exported program, from `print(exported_program)`.
    pub signature: Option<Box<Signature>>,
    /// The whole item.
    pub span: Span,
}

/// The meaning of the inputs and outputs of an exported program, and the sizes it was exported for.
#[derive(Clone, Debug)]
pub struct Signature {
    /// One line for each placeholder, then one for each result.
    pub specs: Vec<Spec>,
    /// The ranges of sizes: `s40` and `VR[2, int_oo]`.
    pub ranges: Vec<(Arc<str>, Arc<str>)>,
    /// Its span.
    pub span: Span,
}

/// A line of a signature: `b_mean: BUFFER target='mean' persistent=True`.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The value; `None` for a constant result.
    pub name: Option<Name>,
    /// Its kind: `USER_INPUT`, `PARAMETER`, `BUFFER_MUTATION`.
    pub kind: Name,
    /// The attribute or input that it represents.
    pub target: Option<Arc<str>>,
    /// Whether a buffer is saved with the module.
    pub persistent: Option<bool>,
}

impl Spec {
    /// Whether this is a result and not an input.
    pub fn is_output(&self) -> bool {
        let kind = &self.kind.text;
        kind.ends_with("OUTPUT") || kind.ends_with("MUTATION") || kind.starts_with("GRADIENT")
    }
}

/// `graph f called (x, pair) (scale) { … }`: the function around the graph takes `x` and `pair` by position and `scale`
/// by keyword, and flattens them.
#[derive(Clone, Debug)]
pub struct Called {
    /// Positional parameters.
    pub args: Vec<Name>,
    /// Keyword parameters, if the specification of the inputs separates them.
    pub kwargs: Option<Vec<Name>>,
}

/// An entry of `graph f updates (buffer bn.running_mean, %x) { … }`: a leading result of the graph is the new value of
/// this.
#[derive(Clone, Debug)]
pub enum Update {
    /// `buffer bn.running_mean`
    Buffer(Name),
    /// `%x`: the argument of this placeholder.
    Input(Name),
}

/// Statements in braces. For a graph that torch printed, the spans of the braces are empty, at the ends of its text.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The statements in order.
    pub stmts: Vec<Stmt>,
    /// Nodes whose statements could not be read. They are defined but unknown.
    pub broken: Vec<Arc<str>>,
    /// The opening brace.
    pub open: Span,
    /// The closing brace.
    pub close: Span,
}

impl Body {
    /// The result, if the last statement is an output.
    pub fn result(&self) -> Option<&Value> {
        match &self.stmts.last()?.op {
            Op::Output { value } => Some(value),
            _ => None,
        }
    }
}

/// A rewrite rule.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// `exact` or `fast` before `rewrite`, if present.
    pub mark: Option<RewriteMark>,
    /// The rule's name.
    pub name: Name,
    /// Whether it is a one-line rule. Each side then has a single statement, the output, in which calls are nested.
    pub one_line: bool,
    /// The parameters. For a one-line rule, they are the names in its pattern.
    pub params: Vec<RewriteParam>,
    /// The pattern to match.
    pub pattern: Body,
    /// The replacement.
    pub replacement: Body,
    /// The condition after `where`.
    pub condition: Option<Value>,
    /// The whole item.
    pub span: Span,
}

/// Which changes of the result a rewrite rule may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteMark {
    /// None: the result is bit-identical.
    Exact,
    /// Rounding, NaN or signed zeros. The rule runs only under `--fast-math`.
    Fast,
}

/// A parameter of a rewrite rule.
#[derive(Clone, Debug)]
pub enum RewriteParam {
    /// `%x` matches any value; `%x : f32[N]` matches values of that type.
    Node(Name, Option<Type>),
    /// `*%xs` matches any number of items of a list.
    Rest(Name),
    /// `$a` matches any literal.
    Literal(Name),
}

/// One node of a graph.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// The node's name; only `output` may lack one.
    pub name: Option<Name>,
    /// The type annotation.
    pub ty: Option<Type>,
    /// What the node does.
    pub op: Op,
    /// Its location in the user's Python.
    pub loc: Option<Loc>,
    /// The rest of its origin.
    pub origin: Option<Box<Origin>>,
    /// Its format, if torch printed it.
    pub torch: Option<Box<TorchStmt>>,
    /// The whole statement.
    pub span: Span,
}

/// One of torch.fx's opcodes with its operands.
#[derive(Clone, Debug)]
pub enum Op {
    /// `placeholder x = default`; the target may begin with `*` or `**`.
    Placeholder {
        /// The parameter's name.
        target: Name,
        /// The default value.
        default: Option<Value>,
    },
    /// `get_attr fc.weight`
    GetAttr {
        /// The dotted path of the attribute.
        target: Name,
    },
    /// `call_function`, `call_method` or `call_module`.
    Call {
        /// Which of the three.
        kind: CallKind,
        /// The callee, as spelled in the text.
        target: Name,
        /// The arguments.
        args: Args,
    },
    /// `output value`
    Output {
        /// What the graph returns.
        value: Value,
    },
}

/// The call opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum CallKind {
    Function,
    Method,
    Module,
}

impl CallKind {
    /// The opcode: `call_function`.
    pub fn opcode(self) -> &'static str {
        match self {
            CallKind::Function => "call_function",
            CallKind::Method => "call_method",
            CallKind::Module => "call_module",
        }
    }
}

/// Arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// Positional arguments.
    pub positional: Vec<Value>,
    /// Keyword arguments, in order.
    pub keyword: Vec<(Name, Value)>,
}

/// `loc("model.py":13 in forward)`
#[derive(Clone, Debug)]
pub struct Loc {
    /// The Python file.
    pub file: Arc<str>,
    /// The line number, starting at 1.
    pub line: u32,
    /// The function.
    pub function: Option<Arc<str>>,
    /// The code on that line, if torch printed it.
    pub code: Option<Arc<str>>,
    /// The span of this text.
    pub span: Span,
}

/// The part after the line in `loc("model.py":13, frame=f1, scope=s1, call=("conv2d_1", "function.conv2d"))`.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The innermost frame of the stack trace.
    pub frame: Option<Name>,
    /// The innermost module.
    pub scope: Option<Name>,
    /// torch's `torch_fn`: the traced function, numbered within the model, and its qualified name.
    pub call: Option<(Arc<str>, Arc<str>)>,
    /// The user's annotations, as pairs of key and value.
    pub custom: Vec<(Arc<str>, Arc<str>)>,
}
impl Name {
    /// Makes a name with its span.
    pub fn new(text: impl Into<Arc<str>>, span: Span) -> Name {
        Name {
            text: text.into(),
            span,
        }
    }
}
