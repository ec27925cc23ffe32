//! The text form of every stage: `--emit` writes it and the snapshots contain it.

use crate::code::CompiledKernels;
use crate::driver::stage::Stage;
use crate::graph::{self, GraphModule};
use crate::lower;
use crate::pass::{self, decompose};
use crate::program::{self, Program};
use crate::runtime::Executable;
use crate::syntax::{self, ast};
use std::collections::HashMap;
use std::sync::Arc;

/// A text form of some stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Artifact {
    /// The syntax tree, as canonical FXIR.
    Ast,
    /// The graphs as built, as FXIR.
    Graph,
    /// The graphs with inferred types, as FXIR.
    Typed,
    /// The graph after the passes, as FXIR.
    Optimized,
    /// The graph after the passes, as Python that runs under PyTorch.
    OptimizedCode,
    /// The tensor IR, as read and after each lowering step that changes it.
    Tir,
    /// The fusion report: which operations share a kernel, which do not, and why.
    Fusion,
    /// The kernels as kernel IR, which is read back.
    KernelIr,
    /// The program and its kernels, as Python that runs.
    Kernels,
    /// The kernels in Cranelift's IR.
    Clif,
    /// The kernels' machine code, disassembled.
    Asm,
    /// The graph as Python, as torch writes `gm.code`.
    Code,
    /// The graph as a drawing for Graphviz.
    Dot,
}

impl Artifact {
    /// All artifacts, in the order of the stages.
    pub const ALL: [Artifact; 13] = [
        Artifact::Ast,
        Artifact::Graph,
        Artifact::Code,
        Artifact::Dot,
        Artifact::Typed,
        Artifact::Optimized,
        Artifact::OptimizedCode,
        Artifact::Tir,
        Artifact::Fusion,
        Artifact::KernelIr,
        Artifact::Kernels,
        Artifact::Clif,
        Artifact::Asm,
    ];

    /// The artifact's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Artifact::Ast => "ast",
            Artifact::Graph => "graph",
            Artifact::Typed => "typed",
            Artifact::Optimized => "optimized",
            Artifact::OptimizedCode => "optimized-code",
            Artifact::Tir => "tir",
            Artifact::Fusion => "fusion",
            Artifact::KernelIr => "kernel-ir",
            Artifact::Kernels => "kernels",
            Artifact::Clif => "clif",
            Artifact::Asm => "asm",
            Artifact::Code => "code",
            Artifact::Dot => "dot",
        }
    }

    /// The artifact with this name.
    pub fn from_name(name: &str) -> Option<Artifact> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

impl Artifact {
    /// The stage whose product the artifact shows.
    pub fn stage(self) -> Stage {
        match self {
            Artifact::Ast | Artifact::Graph | Artifact::Code | Artifact::Dot => Stage::Load,
            Artifact::Typed => Stage::Check,
            Artifact::Optimized | Artifact::OptimizedCode => Stage::Optimize,
            Artifact::Tir | Artifact::Fusion | Artifact::KernelIr | Artifact::Kernels => Stage::Lower,
            Artifact::Clif | Artifact::Asm => Stage::Compile,
        }
    }
}

/// The step of a program that computes each node of the graph from which it was lowered: `step 3`.
pub(crate) fn step_groups(graph: &graph::Graph, program: &Program) -> graph::svg::Groups {
    let named: HashMap<&str, graph::NodeId> = graph.iter().map(|n| (graph[n].name(), n)).collect();
    let mut out = graph::svg::Groups::new();
    for (i, names) in program.nodes.iter().enumerate() {
        let label: Arc<str> = format!("step {i}").into();
        for n in names.iter().filter_map(|n| named.get(&**n)) {
            out.insert(*n, label.clone());
        }
    }
    out
}

/// The syntax tree's text.
pub(crate) fn write_tree(tree: &ast::File, text: &str) -> String {
    syntax::format(tree, text)
}

/// The text of a module after `Load`, `Check` or `Optimize`.
pub(crate) fn write_module(m: &GraphModule, artifact: Artifact) -> String {
    let entry = m.entry();
    match artifact {
        Artifact::Code => entry
            .map(|g| graph::python::code(g, Some(m)).source)
            .unwrap_or_default(),
        Artifact::OptimizedCode => {
            let mut spelled = m.clone();
            // Ops without a torch name are decomposed. Those that are not composite stay, and Python will report them.
            let decomposed = decompose(&mut spelled, |op| !op.forms.is_empty() || op.custom.is_some());
            debug_assert!(decomposed.is_ok());
            let respell = pass::by_name("respell").map(|p| pass::run_pass(p, &mut spelled, &Default::default()));
            debug_assert!(matches!(respell, Some(Ok(_))));
            let entry = spelled.entry();
            entry
                .map(|g| graph::python::code(g, Some(&spelled)).source)
                .unwrap_or_default()
        }
        Artifact::Dot => entry.map(|g| graph::dot::dot(g, &m.name, Some(m))).unwrap_or_default(),
        _ => graph::print(m),
    }
}

/// The tensor IR as it was read, and after each lowering step that changed it.
pub(crate) fn tensor_ir(steps: &[(&'static str, String)]) -> String {
    let mut out = String::new();
    for (i, (step, text)) in steps.iter().enumerate() {
        let info = lower::PIPELINE.iter().find(|s| s.name == *step);
        let doc = info.map(|s| format!(": {}", s.doc)).unwrap_or_default();
        let changed = i == 0 || steps[i - 1].1 != *text;
        let text: &str = if changed { text } else { "// no change\n" };
        out.push_str(&format!("// {step}{doc}\n{text}\n"));
    }
    out
}

/// The text of a program: Python that runs, its kernels as kernel IR, or the fusion report.
pub(crate) fn write_program(p: &Program, artifact: Artifact) -> String {
    match artifact {
        Artifact::Fusion => return p.fusion.to_string(),
        Artifact::KernelIr => return p.kernels.iter().map(|k| format!("{k}\n")).collect(),
        _ => {}
    }
    let mut out: String = p.to_string().lines().map(|l| format!("# {l}\n")).collect();
    out.push('\n');
    out.push_str(&program::python::print_module(p));
    out
}

/// The text of compiled kernels.
pub(crate) fn write_executable(e: &Executable, artifact: Artifact) -> String {
    let (kernels, program) = (e.kernels(), e.program());
    let mark = if artifact == Artifact::Clif { ";" } else { "#" };
    let mut out = String::new();
    for (i, kernel) in program.kernels.iter().enumerate() {
        out.push_str(&format!("{mark} {}: {}\n", kernel.name, size_of(kernels, i)));
        let places = program.places_of(&kernel.name);
        if !places.is_empty() {
            out.push_str(&format!("{mark} from {places}\n"));
        }
        let place = |node: &str| program.place_of_node(node);
        out.push_str(&match artifact {
            Artifact::Clif => kernels.clif(i).to_string(),
            _ => kernels.asm(i, kernel, mark, &place),
        });
        out.push('\n');
    }
    out
}

/// The code size of a kernel, its vector width, and why it is not wider.
fn size_of(kernels: &CompiledKernels, i: usize) -> String {
    let width = kernels.vector_bytes(i);
    let registers = match width {
        64 => ", zmm registers",
        32 => ", ymm registers",
        _ => "",
    };
    let reason = match kernels.why_narrow(i) {
        Some(reason) if width == 16 => format!("; not widened: {reason}"),
        Some(reason) => format!("; {reason}"),
        None => String::new(),
    };
    format!(
        "{} bytes, vectors of {} bits{registers}{reason}",
        kernels.code_bytes(i),
        8 * width
    )
}
