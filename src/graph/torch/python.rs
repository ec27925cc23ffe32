//! Python source of a graph: `gm.code` of torch 2.15, byte for byte (`torch/fx/graph.py`, `CodeGen`).
//!
//! ```text
//! def forward(self, x, n = 2):
//!     lin = self.lin(x);  x = None
//!     add = lin + n;  lin = n = None
//!     return add
//! ```
//!
//! Where torch's text does not compute what torch's own Interpreter does, or is not valid Python, the text here is the
//! correct one:
//!
//! * `operator.pow(-2, x)` is `(-2) ** x`, and a method of a literal is `(3).add(x)`;
//! * a parameter is renamed to its node's name if it would hide a name that the body needs (`nan`, `inf`, `torch`,
//!   `device`, `slice`), or if it is not an identifier (`input.1`, `class`);
//! * attribute names that are keywords or contain quotes use `getattr`, and keyword arguments that are not identifiers
//!   use `**{"from": 1}`;
//! * `operator.iadd(a, b)` is `a += b` only if that cannot rebind a Python number that is used again; the value of
//!   `operator.setitem` is `None`;
//! * `print(graph)` omits the result's annotation. If all parameters of a graph read from it are annotated as tensors
//!   and there is one result, `-> torch.Tensor` is added;
//! * operators called with keyword arguments or a wrong number of operands stay calls.

use super::codegen::{CodeGen, Forward, PyTreeParams, flatten_result};
use super::form::torch_form;
use super::names::PythonNames;
use super::pyrepr::{self};
use super::readable;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::types::Val;
use std::collections::{HashMap, HashSet};

/// Generated Python source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PythonCode {
    /// `gm.code`.
    pub source: String,
    /// The names from outside that the source uses and that are not torch's own, each with its path: `math_sqrt` is
    /// `math.sqrt`.
    pub globals: Vec<(String, String)>,
}

/// `gm.code` of a graph. `module` determines which names are graphs of the same file, which are then submodules.
pub fn code(graph: &Graph, module: Option<&GraphModule>) -> PythonCode {
    write_code(graph, module, false, None)
}

/// [`code`] with head, body and result from the caller's [`CodeGen`].
pub fn code_with(graph: &Graph, module: Option<&GraphModule>, codegen: &dyn CodeGen) -> PythonCode {
    write_code(graph, module, false, Some(codegen))
}

/// [`code`] with the types of values and comments on their origins, as `print_readable()` shows them.
pub(super) fn verbose_code(graph: &Graph, module: Option<&GraphModule>) -> PythonCode {
    write_code(graph, module, true, None)
}

/// Writes the code with the caller's [`CodeGen`] if given, else with the one for the graph's calling convention.
fn write_code(graph: &Graph, module: Option<&GraphModule>, verbose: bool, codegen: Option<&dyn CodeGen>) -> PythonCode {
    let graph = torch_form(graph, module);
    let called = graph
        .called
        .as_ref()
        .filter(|c| codegen.is_none() && c.matches_inputs(&graph));
    let tree = called.map(PyTreeParams::to_pytree);
    let default: &dyn CodeGen = tree.as_ref().map_or(&Forward, |t| t);
    let mut w = PythonWriter::new(&graph, codegen.unwrap_or(default));
    w.verbose = verbose;
    w.nests = tree.is_some();
    w.exported = module.is_some_and(|m| m.exported.is_some());
    for n in graph.iter() {
        w.write_node(n);
    }
    w.finish()
}

struct FunctionParameter {
    node: NodeId,
    /// The name as torch prints it: `x`, `*args`.
    target: String,
    /// ` : torch.Tensor = 3`.
    rest: String,
    /// The line of the body that binds the node's name, if it differs from the parameter's.
    line: Option<usize>,
    /// Whether the parameter cannot have its target as its name.
    hidden: bool,
}

struct PythonWriter<'a> {
    graph: &'a Graph,
    codegen: &'a dyn CodeGen,
    names: PythonNames,
    last_uses: HashMap<NodeId, Vec<NodeId>>,
    lines: Vec<Option<String>>,
    params: Vec<FunctionParameter>,
    /// Names bound so far in the body.
    bound: HashSet<String>,
    wrapped: Vec<String>,
    returns: String,
    /// Whether types and origins are shown.
    verbose: bool,
    /// Whether the graph is from an exported program.
    exported: bool,
    /// Whether the function around the graph nests the result.
    nests: bool,
    /// The last origin shown.
    place: String,
}

impl<'a> PythonWriter<'a> {
    fn new(graph: &'a Graph, codegen: &'a dyn CodeGen) -> PythonWriter<'a> {
        PythonWriter {
            graph,
            codegen,
            names: PythonNames::new(graph),
            last_uses: last_uses(graph),
            lines: vec![],
            params: vec![],
            bound: HashSet::new(),
            wrapped: vec![],
            returns: String::new(),
            verbose: false,
            exported: false,
            nests: false,
            place: String::new(),
        }
    }

    fn write_node(&mut self, n: NodeId) {
        let node = &self.graph[n];
        let ty = match self.graph.text(n).annotation.as_deref() {
            Some(a) if !a.is_empty() && !a.starts_with("Tensor \"") => self.names.type_repr(a),
            _ => String::new(),
        };
        let colon = match readable::type_annotation(&node.meta).filter(|_| self.verbose) {
            Some(known) => known,
            None if ty.is_empty() => String::new(),
            None => format!(" : {ty}"),
        };
        match node.op() {
            Opcode::Placeholder => self.write_placeholder(n, &colon),
            Opcode::Output => self.write_output(n, &ty),
            _ => self.write_statement(n, &colon),
        }
    }

    fn write_output(&mut self, n: NodeId, ty: &str) {
        if !ty.is_empty() {
            self.returns = format!(" -> {ty}");
        } else if self.returns_a_tensor(n) {
            self.returns = " -> torch.Tensor".into();
        }
        let value = self.graph[n].args().first().map(|v| match self.nests {
            true => self.value_text(&flatten_result(v)),
            false => self.value_text(v),
        });
        self.lines.push(Some(self.codegen.output(&value.unwrap_or_default())));
    }

    /// Writes a node that is an assignment, with `colon` after its name.
    fn write_statement(&mut self, n: NodeId, colon: &str) {
        let node = &self.graph[n];
        if self.verbose {
            self.show_place(n);
        }
        let text = match node.op() {
            Opcode::CallFunction => self.function_call(n, colon),
            Opcode::CallMethod => {
                let name = self.node_name(n);
                let base = node
                    .args()
                    .first()
                    .map_or_else(|| "None".to_string(), |v| self.base_text(v));
                let callee = self.attribute_text(&base, node.target());
                let args = self.argument_list(node, 1);
                format!("{name}{colon} = {callee}({args})")
            }
            Opcode::CallModule => {
                let name = self.node_name(n);
                let callee = self.attribute_text("self", node.target());
                let args = self.argument_list(node, 0);
                format!("{name}{colon} = {callee}({args})")
            }
            _ => {
                let name = self.node_name(n);
                format!("{name}{colon} = {}", self.attribute_text("self", node.target()))
            }
        };
        let name = self.node_name(n);
        self.bound.insert(name);
        let freed = self.freed_names(n);
        self.lines.push(Some(text + &freed));
    }

    /// Writes the origin of a node, unless it is that of the previous node.
    fn show_place(&mut self, n: NodeId) {
        let place = readable::origin_comment(&self.graph[n].meta);
        if place != self.place {
            self.lines.push(Some(String::new()));
            self.lines.push(Some(place.clone()));
            self.place = place;
        }
    }

    /// `print(graph)` omits the annotation of the result. If all parameters are annotated as tensors and there is one
    /// result, that is assumed to be annotated as a tensor too.
    fn returns_a_tensor(&self, output: NodeId) -> bool {
        let g = self.graph;
        let tensor = |n: NodeId| g.text(n).annotation.as_deref() == Some("torch.Tensor");
        let params = g.placeholders();
        let returns_tensor = matches!(g[output].args(), [Val::Leaf(_)]);
        g.torch_frame().is_some() && returns_tensor && !params.is_empty() && params.into_iter().all(tensor)
    }

    fn write_placeholder(&mut self, n: NodeId, colon: &str) {
        let node = &self.graph[n];
        let default = node.args().first().map(|v| format!(" = {}", self.value_text(v)));
        let raw = node.target().trim_start_matches('*');
        let name = self.node_name(n);
        let first = self.params.is_empty();
        let twice = self.params.iter().any(|p| p.target.trim_start_matches('*') == raw);
        let hidden = !pyrepr::is_identifier(raw)
            || pyrepr::is_keyword(raw)
            || (raw == "self" && !first)
            || twice
            || (raw != name && self.bound.contains(raw));
        let line = (raw != name).then(|| {
            self.lines.push(Some(format!("{name} = {raw}")));
            self.lines.len() - 1
        });
        self.bound.insert(name);
        self.params.push(FunctionParameter {
            node: n,
            target: node.target().to_string(),
            rest: format!("{colon}{}", default.unwrap_or_default()),
            line,
            hidden,
        });
    }

    /// `;  a = b = None` for the values whose last use this is, and for the node itself if it is unused.
    fn freed_names(&mut self, n: NodeId) -> String {
        let mut list = self.last_uses.get(&n).cloned().unwrap_or_default();
        if self.graph[n].users().len() == 0 {
            list.push(n);
        }
        if list.is_empty() {
            return String::new();
        }
        let names: Vec<String> = list.into_iter().map(|n| self.node_name(n)).collect();
        format!(";  {} = None", names.join(" = "))
    }

    fn node_name(&mut self, n: NodeId) -> String {
        self.names.node(n, self.graph[n].name())
    }

    /// Decides which parameters are renamed to their nodes' names: those that cannot keep their own, and those whose
    /// name one of these takes.
    fn hide_params(&mut self, params: &mut [FunctionParameter]) {
        let raw = |p: &FunctionParameter| p.target.trim_start_matches('*').to_string();
        let mut taken = HashSet::new();
        loop {
            let before = taken.len();
            for p in params.iter_mut() {
                let (raw, name) = (raw(p), self.node_name(p.node));
                p.hidden = raw != name && (p.hidden || self.names.is_needed(&raw) || taken.contains(&raw));
                if p.hidden {
                    taken.insert(name);
                }
            }
            if taken.len() == before {
                return;
            }
        }
    }

    /// The parameters of `forward`. The names of hidden ones replace the lines that would assign them.
    fn free_variables(&mut self, params: Vec<FunctionParameter>) -> Vec<String> {
        let mut free_vars = vec![];
        for p in params {
            let raw = p.target.trim_start_matches('*');
            let name = self.node_name(p.node);
            if p.hidden {
                let stars = &p.target[..p.target.len() - raw.len()];
                free_vars.push(format!("{stars}{name}{}", p.rest));
                if let Some(line) = p.line {
                    self.lines[line] = None;
                }
            } else {
                free_vars.push(format!("{}{}", p.target, p.rest));
            }
        }
        if free_vars.first().is_none_or(|v| v != "self") {
            free_vars.insert(0, "self".into());
        }
        free_vars
    }

    fn finish(mut self) -> PythonCode {
        let mut params = std::mem::take(&mut self.params);
        self.hide_params(&mut params);
        if self.exported {
            leave_out_early_defaults(&mut params);
        }
        let free_vars = self.free_variables(params);
        let lines = self.lines.into_iter().flatten();
        let mut body: Vec<String> = self.codegen.body(lines.skip_while(|l| l.is_empty()).collect());
        if body.is_empty() {
            body.push("pass".into());
        }
        body.push(String::new());
        let body: Vec<String> = body.into_iter().map(|l| format!("    {l}")).collect();
        let wraps: Vec<String> = self
            .wrapped
            .iter()
            .map(|w| format!("torch.fx._symbolic_trace.wrap(\"{w}\")"))
            .collect();
        let source = format!(
            "\n{}\n\n{}\n{}",
            wraps.join("\n"),
            self.codegen.function(&free_vars, &self.returns),
            body.join("\n")
        );
        let mut globals = self.names.into_globals();
        globals.extend(self.codegen.additional_globals());
        PythonCode { source, globals }
    }
}

/// Python allows no parameter without a default after one with a default, but constant inputs of exported programs can
/// be anywhere.
fn leave_out_early_defaults(params: &mut [FunctionParameter]) {
    let last = params
        .iter()
        .rposition(|p| !p.rest.contains(" = ") && !p.target.starts_with('*'));
    for p in params.iter_mut().take(last.unwrap_or(0)) {
        p.rest.truncate(p.rest.find(" = ").unwrap_or(p.rest.len()));
    }
}

/// For each node, the values that it is the last to use, in argument order.
fn last_uses(graph: &Graph) -> HashMap<NodeId, Vec<NodeId>> {
    let mut seen = HashSet::new();
    let mut out: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
    for user in graph.iter().rev() {
        for input in graph[user].inputs() {
            if seen.insert(input) {
                out.entry(user).or_default().push(input);
            }
        }
    }
    out
}

mod calls;
#[cfg(test)]
#[path = "python_tests.rs"]
mod tests;
