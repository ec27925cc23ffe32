//! Weights files: `.safetensors` for a graph.

use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::{Arg, Attribute, AttributeKind, GraphModule, NodeId, Opcode};
use crate::op::modules;
use crate::tensor::Tensor;
use crate::tensor::files::{self, FileError, FileRole, Problem, TensorFile};
use crate::types::{TensorType, Val};
use indexmap::{IndexMap, IndexSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

/// The maximum number of names in one message.
const MAX_NAMES: usize = 20;

/// Sets the attributes of `module` from the `.safetensors` file at `path`: attributes that are declared, that
/// `get_attr` nodes read, or that belong to called modules. Existing values (constants in the graph's file) are kept.
/// Reports all problems at once: an unreadable file (E0407), missing weights (E0401), weights with another shape or
/// dtype than declared (E0406), and, as a note, unused weights (L0002).
pub fn bind_weights(module: &mut GraphModule, path: &Path) -> Diagnostics {
    bind_file(module, path, false)
}

/// [`bind_weights`] that also replaces existing values if the file has others.
pub(crate) fn replace_weights(module: &mut GraphModule, path: &Path) -> Diagnostics {
    bind_file(module, path, true)
}

fn bind_file(module: &mut GraphModule, path: &Path, replace: bool) -> Diagnostics {
    let mut out = Diagnostics::new();
    let place = module.weights.as_ref().and_then(|(_, span)| *span);
    let mut file = match files::read(path) {
        Ok(file) => file,
        Err(e) => {
            let title = format!("the weights file `{}` cannot be read", path.display());
            let d = Diagnostic::new(Code::E0407, title)
                .at_opt(place, "named here")
                .note(file_error_reason(&e));
            out.push(match &e.problem {
                Problem::Kind(kind) => d.help(kind.advice(FileRole::Weights, &path.display().to_string())),
                _ => d,
            });
            return out;
        }
    };
    drop_optional(module, &|path| file.tensors.contains_key(path));
    let mut binder = WeightBinder {
        module,
        file: path.display().to_string(),
        missing: vec![],
        out,
    };
    if replace {
        binder.forget_values(&file.tensors);
    }
    binder.declare_reads(&file.tensors);
    binder.fill_attributes(&mut file);
    binder.report_missing(&file.tensors);
    binder.report_unused(&file.tensors);
    binder.out
}

/// The reason for a file error, without the path.
fn file_error_reason(e: &FileError) -> String {
    if let Problem::Io(text) = &e.problem {
        return text
            .split_once(" (os error")
            .map_or(text.clone(), |(head, _)| head.to_string());
    }
    let tensor = e.tensor.as_ref().filter(|t| !t.is_empty());
    tensor.map_or(e.problem.to_string(), |t| format!("tensor `{t}`: {}", e.problem))
}

/// Replaces optional attributes (TorchScript's `Tensor?`) that the file lacks with `None`.
fn drop_optional(module: &mut GraphModule, has: &dyn Fn(&str) -> bool) {
    for graph in module.graphs.values_mut() {
        for n in graph.find_nodes(Opcode::GetAttr, None) {
            if !graph[n].meta.optional || has(graph[n].target()) {
                continue;
            }
            let none = |v: &Arg| {
                let replaced: Result<Arg, Infallible> =
                    v.try_map(&mut |&l: &NodeId| Ok(if l == n { Val::None } else { Val::Leaf(l) }));
                replaced.unwrap_or(Val::None)
            };
            for user in graph[n].users().collect::<Vec<_>>() {
                let args = graph[user].args().iter().map(none).collect();
                let kwargs = graph[user].kwargs().iter().map(|(k, v)| (k.clone(), none(v))).collect();
                graph.set_args(user, args);
                graph.set_kwargs(user, kwargs);
            }
            // Erasing fails only for nodes with users, and this one has none left.
            let _ = graph.erase_node(n);
        }
    }
}

struct WeightBinder<'a> {
    module: &'a mut GraphModule,
    file: String,
    missing: Vec<Arc<str>>,
    out: Diagnostics,
}

impl WeightBinder<'_> {
    /// Removes the values that the file replaces.
    fn forget_values(&mut self, tensors: &IndexMap<String, Tensor>) {
        let replaced = |(name, _): &(&Arc<str>, &mut Attribute)| tensors.contains_key(&***name);
        for (_, a) in self.module.attributes.iter_mut().filter(replaced) {
            a.ty = a.ty.take().or_else(|| a.value.as_ref().map(|t| Val::Leaf(t.ty())));
            a.value = None;
        }
    }

    /// Adds an attribute for every weight that a graph reads without declaring it.
    fn declare_reads(&mut self, tensors: &IndexMap<String, Tensor>) {
        let (mut needed, mut called) = (IndexSet::new(), IndexSet::new());
        for g in self.module.graphs.values() {
            for n in g.iter() {
                let target: Arc<str> = g[n].target().into();
                match g[n].op() {
                    Opcode::GetAttr if !self.module.graphs.contains_key(&target) => {
                        needed.insert((target, g.target_span(n)));
                    }
                    Opcode::CallModule => {
                        let names: Vec<Arc<str>> = g[n].kwargs().iter().map(|(k, _)| k.clone()).collect();
                        called.insert((target, g[n].args().len() + names.len(), names));
                    }
                    _ => {}
                }
            }
        }
        for (path, inputs, names) in &called {
            let reads = self.module_reads(path, *inputs, names, tensors);
            // All weights below a module of an unknown class are assumed to belong to it.
            let below = |k: &&String| k.strip_prefix(&**path).is_some_and(|r| r.starts_with('.'));
            let reads = reads.unwrap_or_else(|| tensors.keys().filter(below).map(|k| k.as_str().into()).collect());
            needed.extend(reads.into_iter().map(|p| (p, None)));
        }
        for (path, span) in needed {
            let kind = if is_buffer(&path) {
                AttributeKind::Buffer
            } else {
                AttributeKind::Parameter
            };
            let attribute = Attribute {
                kind,
                ty: None,
                value: None,
                span,
            };
            self.module.attributes.entry(path).or_insert(attribute);
        }
    }

    /// The weights that a module of a known class reads, including optional ones if the file has them.
    fn module_reads(
        &self,
        path: &str,
        inputs: usize,
        names: &[Arc<str>],
        tensors: &IndexMap<String, Tensor>,
    ) -> Option<Vec<Arc<str>>> {
        let m = self.module.modules.get(path)?;
        let below = InFile {
            module: self.module,
            tensors,
            path,
        };
        let reads = |module| -> Option<Vec<Arc<str>>> {
            let call = modules::expand_module(module, inputs, names, &below).ok()?;
            let sources = call.args.iter().chain(call.kwargs.iter().map(|(_, s)| s));
            let attrs = sources.flat_map(modules::ArgumentSource::attributes);
            Some(attrs.map(|a| format!("{path}.{a}").into()).collect())
        };
        let own = m.constructed();
        let mut found = reads(own)?;
        // Weights that only training reads are kept if they exist.
        let training = [own.kwargs, &[(modules::TRAINING.into(), Val::Bool(true))]].concat();
        let trained = modules::Constructed {
            kwargs: &training,
            ..own
        };
        let more = modules::depends_on_training(own.class)
            .then(|| reads(trained))
            .flatten();
        found.extend(more.into_iter().flatten().filter(|a| tensors.contains_key(&**a)));
        Some(found)
    }

    fn fill_attributes(&mut self, file: &mut TensorFile) {
        let tensors = &mut file.tensors;
        for (name, a) in &mut self.module.attributes {
            if a.value.is_some() {
                tensors.shift_remove(&**name);
                continue;
            }
            if let Some(dtype) = file.unsupported.get(&**name) {
                let title = format!("`{name}` has dtype {dtype} in `{}`", self.file);
                let d = Diagnostic::new(Code::E0406, title).at_opt(a.span, "read here");
                self.out.push(d.note("fxc does not support this dtype"));
                continue;
            }
            let Some(t) = tensors.get(&**name) else {
                self.missing.push(name.clone());
                continue;
            };
            let ty = t.ty();
            match &a.ty {
                Some(Val::Leaf(declared)) if !is_compatible_type(declared, &ty) => {
                    let title = format!("`{name}` is {ty} in `{}`", self.file);
                    let d = Diagnostic::new(Code::E0406, title).at_opt(a.span, format!("declared as {declared}"));
                    let d = if a.span.is_none() {
                        d.note(format!("it is declared as {declared}"))
                    } else {
                        d
                    };
                    self.out
                        .push(d.help("correct the declaration, or use weights that belong to this model"));
                }
                _ => a.ty = Some(Val::Leaf(ty)),
            }
            a.value = Some(t.clone());
        }
        // The remaining tensors are unused.
        for name in self.module.attributes.keys() {
            tensors.shift_remove(&**name);
        }
    }

    fn report_missing(&mut self, left: &IndexMap<String, Tensor>) {
        if self.missing.is_empty() {
            return;
        }
        let title = match &self.missing[..] {
            [one] => format!("`{}` has no weight `{one}`", self.file),
            many => format!("`{}` lacks {} weights", self.file, many.len()),
        };
        let mut d = Diagnostic::new(Code::E0401, title);
        let spans = self
            .missing
            .iter()
            .filter_map(|n| Some((n, self.module.attributes.get(n)?.span?)));
        for (i, (name, span)) in spans.take(MAX_NAMES).enumerate() {
            let text = format!("`{name}` is read here");
            d = if i == 0 { d.at(span, text) } else { d.see(span, text) };
        }
        if d.labels.is_empty() {
            d = d.at_opt(
                self.module.weights.as_ref().and_then(|(_, span)| *span),
                "the weights file",
            );
        }
        if self.missing.len() > 1 {
            d = d.note(format!("missing: {}", list_names(self.missing.iter().map(|n| &**n))));
        }
        for name in self.missing.iter().take(3) {
            if let Some(near) = nearest(name, left.keys().map(String::as_str)) {
                d = d.help(format!("the file contains `{near}`, which is similar to `{name}`"));
            }
        }
        self.out.push(d);
    }

    fn report_unused(&mut self, left: &IndexMap<String, Tensor>) {
        if left.is_empty() {
            return;
        }
        let title = match left.len() {
            1 => format!(
                "the weight `{}` in `{}` is never used",
                left.keys().next().map_or("", |k| k),
                self.file
            ),
            n => format!("{n} of the weights in `{}` are never used", self.file),
        };
        let d = Diagnostic::new(Code::L0002, title);
        self.out.push(match left.len() {
            1 => d,
            _ => d.note(format!("unused: {}", list_names(left.keys().map(String::as_str)))),
        });
    }
}

/// Whether the last part of a name is one that torch's own modules use for buffers.
fn is_buffer(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    matches!(
        last,
        "running_mean" | "running_var" | "num_batches_tracked" | "position_ids" | "token_type_ids"
    )
}

/// Whether the types are compatible. Symbolic and unknown sizes in a declaration match any size.
fn is_compatible_type(declared: &TensorType, found: &TensorType) -> bool {
    declared.dtype == found.dtype
        && match (&declared.shape, &found.shape) {
            (Some(d), Some(f)) => d.len() == f.len() && d.iter().zip(f).all(|(d, f)| d.as_const().is_none() || d == f),
            _ => true,
        }
}

fn list_names<'a>(list: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = list.len().saturating_sub(MAX_NAMES);
    let shown: Vec<String> = list.take(MAX_NAMES).map(|n| format!("`{n}`")).collect();
    let shown = shown.join(", ");
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}

/// Writes the values of the module's attributes to a `.safetensors` file for [`bind_weights`]. `pick` selects the
/// attributes, for example to exclude constants that are written in the graph's file.
pub(crate) fn write_weights(
    module: &GraphModule,
    path: &Path,
    pick: impl Fn(&str, &Attribute) -> bool,
) -> Result<(), Diagnostic> {
    let values = module.attributes.iter().filter(|(name, a)| pick(name, a));
    write_tensors(path, values.filter_map(|(name, a)| Some((&**name, a.value.as_ref()?))))
}

/// Writes named tensors to a `.safetensors` file.
pub fn write_tensors<'a>(path: &Path, values: impl Iterator<Item = (&'a str, &'a Tensor)>) -> Result<(), Diagnostic> {
    files::write(path, values).map_err(|e| {
        let title = format!("the weights file `{}` cannot be written", path.display());
        Diagnostic::new(Code::E0408, title).note(file_error_reason(&e))
    })
}

/// The weights below a module in a weights file, and the declarations below it in the graph's file.
struct InFile<'a> {
    module: &'a GraphModule,
    tensors: &'a IndexMap<String, Tensor>,
    path: &'a str,
}

impl modules::Below for InFile<'_> {
    fn has_attr(&self, path: &str) -> bool {
        self.tensors.contains_key(&format!("{}.{path}", self.path))
    }

    fn is_known(&self) -> bool {
        true
    }

    fn part(&self, path: &str) -> Option<modules::Constructed<'_>> {
        let decl = self.module.modules.get(&*format!("{}.{path}", self.path))?;
        Some(decl.constructed())
    }
}

#[cfg(test)]
#[path = "weights_tests.rs"]
mod tests;
