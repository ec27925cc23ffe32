//! Declarations: the items of a file other than graphs.

use super::{Args, Loc, Name};
use crate::source::Span;
use crate::syntax::ast::value::{Type, Value};

/// `weights "mlp.safetensors"`: the file with the parameters and buffers. The path is relative to the source file.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The path.
    pub path: Name,
    /// The whole item.
    pub span: Span,
}

/// `module fc1 = Linear(784, 512)`: a module that `call_module` can call, as torch prints it.
#[derive(Clone, Debug)]
pub struct ModuleDecl {
    /// The dotted name.
    pub name: Name,
    /// The module class: `Linear` or `torch.nn.Linear`.
    pub class: Name,
    /// Its hyper-parameters. A bare name is a string, since torch prints `padding_mode=circular`.
    pub args: Args,
    /// The whole item.
    pub span: Span,
}

/// `const scale : f32[] = 0.5`: a small tensor written in the text.
#[derive(Clone, Debug)]
pub struct ConstDecl {
    /// The dotted name that `get_attr` uses.
    pub name: Name,
    /// The tensor's type.
    pub ty: Type,
    /// A scalar, or nested lists of scalars; `None` if the weights file stores it.
    pub value: Option<Value>,
    /// The whole item.
    pub span: Span,
}

/// `param fc2.weight : f32[10, 512]` or `buffer …`: a tensor that the weights file must have.
#[derive(Clone, Debug)]
pub struct TensorDecl {
    /// Whether it is a buffer and not a parameter.
    pub buffer: bool,
    /// The dotted name.
    pub name: Name,
    /// The tensor's type.
    pub ty: Type,
    /// The whole item.
    pub span: Span,
}

/// `dim N in 1..4096`: the range of a symbolic size, both ends inclusive.
#[derive(Clone, Debug)]
pub struct DimDecl {
    /// The size's name.
    pub name: Name,
    /// The minimum.
    pub min: i64,
    /// The maximum, or `None` for a size without an upper bound.
    pub max: Option<i64>,
    /// The whole item.
    pub span: Span,
}

/// `dim where N % 8 == 0`: a condition that the sizes satisfy.
#[derive(Clone, Debug)]
pub struct GuardDecl {
    /// A comparison of two sizes.
    pub condition: Value,
    /// The whole item.
    pub span: Span,
}

/// `pointwise "SCHEMA" = "EXPRESSION"`: an op that the file defines.
#[derive(Clone, Debug)]
pub struct PointwiseDecl {
    /// The schema of the op, in torch's notation.
    pub schema: Name,
    /// The expression that it computes for each element.
    pub expr: Name,
    /// The whole item.
    pub span: Span,
}

/// `frame f2 = f1 > "model.py":13 in forward "return self.act(x)"`: a frame of a stack trace, with its caller.
#[derive(Clone, Debug)]
pub struct FrameDecl {
    /// The name that statements use for it.
    pub name: Name,
    /// The frame of the caller.
    pub parent: Option<Name>,
    /// The line.
    pub place: Loc,
    /// The whole item.
    pub span: Span,
}

/// `scope s2 = s1 > layer1.0 : torch.nn.modules.conv.Conv2d`: a module that nodes were traced in, with the module that
/// called it.
#[derive(Clone, Debug)]
pub struct ScopeDecl {
    /// The name that statements use for it.
    pub name: Name,
    /// The module that called it.
    pub parent: Option<Name>,
    /// Its path in the model.
    pub path: Name,
    /// Its class with the Python module.
    pub class: Name,
    /// The whole item.
    pub span: Span,
}
