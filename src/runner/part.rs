//! Selects the native part that runs.

use super::RunnerOptions;
use crate::artifact::{Container, Manifest, NativeEntry, load_native, read_key};
use crate::code::{CodeError, CompileKernels, CompiledKernels};
use crate::diag::{Code, Diagnostic};
use crate::kernel::Kernel;
use crate::math::{self, contract::Precision};
use crate::parallel::Pool;
use crate::runtime::{Executable, ExecutableOptions, RoutineFn, Routines, Shared};
use crate::target::Target;
use crate::tensor::View;
use crate::types::{TensorType, Type, Val};
use std::sync::Arc;

/// A native part that fits this build and processor.
pub(super) struct NativePart {
    number: u32,
    target: Target,
    exact: bool,
    precision: Precision,
    /// The types of all inputs, with the values of those that are not tensors.
    key: Vec<Type>,
    /// The types of the tensors among the inputs.
    pub(super) inputs: Vec<TensorType>,
}

impl NativePart {
    /// Whether it is for these input types.
    pub(super) fn fits(&self, inputs: &[View<'_>]) -> bool {
        let same = |(t, v): (&TensorType, &View<'_>)| {
            let shape = t.shape.as_ref().filter(|s| s.len() == v.shape().len());
            let mut sizes = shape.into_iter().flatten().zip(v.shape());
            t.dtype == v.dtype() && shape.is_some() && sizes.all(|(d, &n)| d.as_const() == Some(n as i64))
        };
        self.inputs.len() == inputs.len() && self.inputs.iter().zip(inputs).all(same)
    }
}

/// For each combination of inputs, the part that fits this build and processor and uses the most of its features.
pub(super) fn fitting_parts(file: &Container, manifest: &Manifest) -> Result<Vec<NativePart>, Diagnostic> {
    let host = Target::native();
    let mut reason = None;
    let mut parts: Vec<(usize, NativePart)> = vec![];
    for (i, entry) in manifest.native.iter().enumerate() {
        match entry.why_unfit(host) {
            Some(unfit) => drop(reason.get_or_insert(unfit)),
            None => parts.push((entry.features.len(), read_part(file, i as u32, entry)?)),
        }
    }
    if parts.is_empty() {
        return Err(no_part(file, reason));
    }
    parts.sort_by_key(|(features, _)| std::cmp::Reverse(*features));
    let mut best: Vec<NativePart> = vec![];
    for (_, part) in parts {
        if !best.iter().any(|b| b.key == part.key) {
            best.push(part);
        }
    }
    check_keys(file, &best)?;
    Ok(best)
}

fn read_part(file: &Container, number: u32, entry: &NativeEntry) -> Result<NativePart, Diagnostic> {
    let key = read_key(file, number)?;
    Ok(NativePart {
        number,
        target: entry.target().unwrap_or_default(),
        exact: entry.options.exact,
        precision: entry.options.precision,
        inputs: key.iter().flat_map(Val::leaves).cloned().collect(),
        key,
    })
}

/// Returns an error if two parts differ only in inputs that are not tensors, because calls do not provide those.
fn check_keys(file: &Container, parts: &[NativePart]) -> Result<(), Diagnostic> {
    let mut pairs = parts.iter().enumerate();
    if !pairs.any(|(i, a)| parts[i + 1..].iter().any(|b| a.inputs == b.inputs)) {
        return Ok(());
    }
    let title = format!(
        "`{}` has code for several values of an input that is not a tensor",
        file.name()
    );
    let d = Diagnostic::new(Code::E0604, title).note("without the compiler, calls can only pass tensors");
    Err(d.help("write a file for each value: `fxc compile MODEL -o FILE.fxc`"))
}

fn no_part(file: &Container, reason: Option<String>) -> Diagnostic {
    let reason = reason.unwrap_or_else(|| "it contains no code".into());
    let d = Diagnostic::new(
        Code::E0604,
        format!("no code in `{}` can be used: {reason}", file.name()),
    );
    d.help("compile the model for this processor with the same version of fxc: `fxc compile MODEL -o FILE.fxc --target x86-64-v3,x86-64-v4`")
}

/// The error for a call with other input types.
pub(super) fn no_code_for(file: &Container, parts: &[NativePart], inputs: &[View<'_>]) -> Diagnostic {
    let list = |types: &mut dyn Iterator<Item = String>| types.collect::<Vec<_>>().join(", ");
    let mut have: Vec<String> = parts
        .iter()
        .map(|p| format!("({})", list(&mut p.inputs.iter().map(TensorType::to_string))))
        .collect();
    have.dedup();
    let actual = list(&mut inputs.iter().map(|v| v.ty().to_string()));
    let title = format!(
        "`{}` contains code for {}, but the inputs are ({actual})",
        file.name(),
        have.join(", ")
    );
    let d = Diagnostic::new(Code::E0604, title);
    d.help("compile the model for these sizes: `fxc compile MODEL -o FILE.fxc --at N=1,8`")
}

/// Loads a part.
pub(super) fn load_part(
    file: &Container,
    part: &NativePart,
    options: &RunnerOptions,
) -> Result<Executable, Diagnostic> {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    let options = ExecutableOptions {
        pool: Pool::shared(threads),
        library: Arc::new(
            math::Native::for_target(part.target)
                .exact(part.exact)
                .precision(part.precision),
        ),
        // The code in the file replaces this.
        compiler: Arc::new(NoCompiler),
        routines: Arc::new(NoRoutines),
        shared: Shared::of_process(),
        cancel: options.cancel.clone(),
        target: part.target,
    };
    load_native(file, part.number, &options)
}

/// A source without a compiler: all code is in the file.
struct NoCompiler;

impl CompileKernels for NoCompiler {
    fn compile(&self, _: &[Kernel]) -> Result<CompiledKernels, CodeError> {
        Err(CodeError {
            kernel: String::new(),
            message: "there is no compiler".into(),
        })
    }

    fn is_compiler(&self) -> bool {
        false
    }
}

/// Routines are part of the op table, and therefore of the compiler.
struct NoRoutines;

impl Routines for NoRoutines {
    fn find(&self, _: &str) -> Option<RoutineFn> {
        None
    }
}
