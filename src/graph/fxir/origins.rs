//! The origins of nodes in FXIR text. Frames of stack traces and modules are declared once, after the graphs, each
//! within its parent. Statements name the innermost one.
//!
//! ```text
//! %conv2d = call_function …  loc("nets.py":23 in forward, frame=f2, scope=s2, call=("conv2d_1", "function.conv2d"))
//!
//! frame f1 = "nets.py":23 in forward "x = F.relu(self.conv1(x))"
//! frame f2 = f1 > "modules/conv.py":565 in forward "return self._conv_forward(input, self.weight, self.bias)"
//! scope s1 = "" : nets.MnistNet
//! scope s2 = s1 > conv1 : torch.nn.modules.conv.Conv2d
//! ```

use super::{NOWHERE, unplaced_name};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{Frame, Loc, Meta, ModuleFrame};
use crate::syntax::ast::{self, Item};
use indexmap::IndexSet;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum nesting depth of modules in a text.
const MAX_MODULES: usize = 64;

/// The frames and modules of graphs, numbered, each with the number of its parent.
#[derive(Default)]
pub(super) struct Origins {
    frames: IndexSet<(Option<usize>, Loc, Option<Arc<str>>)>,
    scopes: IndexSet<(Option<usize>, ModuleFrame)>,
}

impl Origins {
    /// The declarations of all origins that [`Origins::origin_of`] named.
    pub(super) fn into_items(self) -> impl Iterator<Item = Item> {
        let frames = self.frames.into_iter().enumerate().map(|(i, (parent, loc, code))| {
            Item::Frame(ast::FrameDecl {
                name: frame_name(i),
                parent: parent.map(frame_name),
                place: ast::Loc {
                    code,
                    ..to_ast_loc(&loc)
                },
                span: NOWHERE,
            })
        });
        let scopes = self.scopes.into_iter().enumerate().map(|(i, (parent, module))| {
            Item::Scope(ast::ScopeDecl {
                name: scope_name(i),
                parent: parent.map(scope_name),
                path: unplaced_name(&module.path),
                class: unplaced_name(&module.class),
                span: NOWHERE,
            })
        });
        frames.chain(scopes)
    }

    /// The origin of a node, apart from its line.
    pub(super) fn origin_of(&mut self, meta: &Meta) -> Option<Box<ast::Origin>> {
        let mut frame = None;
        let chain: Vec<&Frame> = meta.frame.iter().flat_map(|f| f.chain()).collect();
        for f in chain.into_iter().rev() {
            frame = Some(self.frames.insert_full((frame, f.loc.clone(), f.code.clone())).0);
        }
        let mut scope = None;
        for m in meta.modules.iter().take(MAX_MODULES) {
            scope = Some(self.scopes.insert_full((scope, m.clone())).0);
        }
        let origin = ast::Origin {
            frame: frame.map(frame_name),
            scope: scope.map(scope_name),
            call: meta.function.clone(),
            custom: meta.custom.clone(),
        };
        let empty = frame.is_none() && scope.is_none() && origin.call.is_none() && origin.custom.is_empty();
        (!empty).then(|| Box::new(origin))
    }
}

fn frame_name(i: usize) -> ast::Name {
    unplaced_name(&format!("f{}", i + 1))
}

fn scope_name(i: usize) -> ast::Name {
    unplaced_name(&format!("s{}", i + 1))
}

/// Converts a line to its form in the syntax tree.
pub(super) fn to_ast_loc(l: &Loc) -> ast::Loc {
    ast::Loc {
        file: l.file.clone(),
        line: l.line,
        function: (!l.function.is_empty()).then(|| l.function.clone()),
        code: None,
        span: NOWHERE,
    }
}

/// Converts a line from its form in the syntax tree.
pub(super) fn from_ast_loc(l: &ast::Loc) -> Loc {
    Loc {
        file: l.file.clone(),
        line: l.line,
        function: l.function.clone().unwrap_or_else(|| "".into()),
    }
}

/// The frames and modules that a file declares.
#[derive(Default)]
pub(super) struct DeclaredOrigins {
    frames: HashMap<Arc<str>, Arc<Frame>>,
    scopes: HashMap<Arc<str>, Arc<[ModuleFrame]>>,
}

impl DeclaredOrigins {
    /// Reads the declarations of a file. Each may only name earlier ones.
    pub(super) fn from_file(file: &ast::File, out: &mut Diagnostics) -> DeclaredOrigins {
        let mut d = DeclaredOrigins::default();
        for item in &file.items {
            match item {
                Item::Frame(f) => d.read_frame(f, out),
                Item::Scope(s) => d.read_scope(s, out),
                _ => {}
            }
        }
        d
    }

    fn read_frame(&mut self, f: &ast::FrameDecl, out: &mut Diagnostics) {
        let caller = f
            .parent
            .as_ref()
            .and_then(|p| find_declared(&self.frames, "frame", p, out));
        match Frame::new(from_ast_loc(&f.place), f.place.code.clone(), caller) {
            Some(frame) if !self.frames.contains_key(&f.name.text) => {
                self.frames.insert(f.name.text.clone(), frame);
            }
            Some(_) => out.push(declared_twice("frame", &f.name)),
            None => out.push(too_deep(&f.name, Frame::MAX_DEPTH)),
        }
    }

    fn read_scope(&mut self, s: &ast::ScopeDecl, out: &mut Diagnostics) {
        let around = s
            .parent
            .as_ref()
            .and_then(|p| find_declared(&self.scopes, "scope", p, out));
        let mut stack: Vec<ModuleFrame> = around.as_deref().unwrap_or_default().to_vec();
        stack.push(ModuleFrame {
            path: s.path.text.clone(),
            class: s.class.text.clone(),
        });
        if stack.len() > MAX_MODULES {
            out.push(too_deep(&s.name, MAX_MODULES));
        } else if self.scopes.insert(s.name.text.clone(), stack.into()).is_some() {
            out.push(declared_twice("scope", &s.name));
        }
    }

    /// Records the origin that a statement gives its node. A line with its code is a trace of one frame.
    pub(super) fn note_origin(&self, stmt: &ast::Stmt, meta: &mut Meta, out: &mut Diagnostics) {
        meta.loc = stmt.loc.as_ref().map(from_ast_loc);
        let line = stmt.loc.as_ref().filter(|l| l.code.is_some());
        meta.frame = line.and_then(|l| Frame::new(from_ast_loc(l), l.code.clone(), None));
        if let Some(origin) = stmt.origin.as_deref() {
            let frame = origin
                .frame
                .as_ref()
                .and_then(|n| find_declared(&self.frames, "frame", n, out));
            let scope = origin
                .scope
                .as_ref()
                .and_then(|n| find_declared(&self.scopes, "scope", n, out));
            meta.frame = frame.or(meta.frame.take());
            meta.modules = scope.unwrap_or_default();
            meta.function = origin.call.clone();
            meta.custom = origin.custom.clone();
        }
    }
}

fn find_declared<T: Clone>(
    known: &HashMap<Arc<str>, T>,
    kind: &str,
    n: &ast::Name,
    out: &mut Diagnostics,
) -> Option<T> {
    let value = known.get(&n.text).cloned();
    if value.is_none() {
        let d = Diagnostic::new(Code::E0101, format!("unknown {kind} `{}`", n.text));
        let help = format!("declare it before its first use: `{kind} {} = …`", n.text);
        out.push(d.at(n.span, "not declared above").help(help));
    }
    value
}

fn declared_twice(kind: &str, n: &ast::Name) -> Diagnostic {
    Diagnostic::new(Code::E0103, format!("{kind} `{}` is declared twice", n.text)).at(n.span, "declared again here")
}

fn too_deep(n: &ast::Name, most: usize) -> Diagnostic {
    Diagnostic::new(Code::E0008, "the nesting is too deep").at(n.span, format!("nested more than {most} deep"))
}
