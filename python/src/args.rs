//! Converts the arguments of a Python call to the inputs of a graph.

use crate::array::Array;
use crate::torch::Torch;
use crate::tree::Tree;
use crate::{dlpack, ndarray, scalar, torch};
use fxc::graph::GraphModule;
use fxc::types::Val;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

/// The library of a call's arrays, which is also the library of its results.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Numpy,
    Torch,
}

/// A parameter of a model's function.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    /// The nesting of its value; `None` if the graph takes the value as a whole.
    tree: Option<Tree>,
    /// The index of its first input.
    first: usize,
    /// Whether it is optional.
    optional: bool,
}

/// The calling convention of a model.
#[derive(Debug)]
pub(crate) struct CallSignature {
    pub(crate) params: Vec<Param>,
    /// The number of positional parameters.
    positional: usize,
    /// The graph's inputs.
    pub(crate) inputs: Vec<String>,
}

/// An input of a call: an array, or a value that contains arrays, by index.
pub(crate) type Slot = Option<Val<usize>>;

/// The arguments of a call.
pub(crate) struct Arguments {
    // Not inline: arguments are moved often, and an array's description is large.
    pub(crate) arrays: Vec<Array>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) library: Library,
}

impl CallSignature {
    /// The calling convention of a module's entry graph: that of the exported function, or else the graph's inputs.
    pub(crate) fn from_module(module: &GraphModule) -> CallSignature {
        let Some(graph) = module.entry() else {
            return CallSignature::plain(vec![], vec![]);
        };
        let placeholders = graph.placeholders();
        let inputs: Vec<String> = placeholders.iter().map(|&n| graph[n].target().to_string()).collect();
        let optional: Vec<bool> = placeholders.iter().map(|&n| !graph[n].args().is_empty()).collect();
        let exported = module.call_spec.as_ref().and_then(|spec| {
            let Some(Tree::Tuple(parts)) = Tree::parse(&spec.inputs) else {
                return None;
            };
            CallSignature::exported(parts, spec.names.as_deref(), inputs.clone(), &optional)
        });
        exported.unwrap_or_else(|| CallSignature::plain(inputs, optional))
    }

    fn plain(inputs: Vec<String>, optional: Vec<bool>) -> CallSignature {
        let numbered = inputs.iter().zip(optional).enumerate();
        let params = numbered.map(|(i, (name, optional))| Param {
            name: name.clone(),
            tree: None,
            first: i,
            optional,
        });
        CallSignature {
            params: params.collect(),
            positional: inputs.len(),
            inputs,
        }
    }

    fn exported(
        parts: Vec<Tree>,
        names: Option<&[String]>,
        inputs: Vec<String>,
        optional: &[bool],
    ) -> Option<CallSignature> {
        let mut parts = parts.into_iter();
        let (Some(Tree::Tuple(args)), Some(Tree::Dict(kwargs)), None) = (parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let positional = args.len();
        let kwargs = kwargs.into_iter().map(|(key, tree)| match key {
            crate::tree::Key::Str(s) => Some((Some(s), tree)),
            crate::tree::Key::Int(_) => None,
        });
        let all: Option<Vec<_>> = args.into_iter().map(|t| Some((None, t))).chain(kwargs).collect();
        let (mut first, mut params) = (0, vec![]);
        for (i, (key, tree)) in all?.into_iter().enumerate() {
            let count = tree.leaf_count();
            let input = inputs.get(first).filter(|_| matches!(tree, Tree::Leaf));
            let name = key.or_else(|| names?.get(i).cloned()).or_else(|| input.cloned());
            params.push(Param {
                name: name.unwrap_or_else(|| format!("arg_{i}")),
                optional: optional.get(first..first + count)?.iter().all(|o| *o),
                tree: Some(tree),
                first,
            });
            first += count;
        }
        (first == inputs.len()).then_some(CallSignature {
            params,
            positional,
            inputs,
        })
    }

    /// The parameters in Python syntax: `x, d, *, mask`.
    pub(crate) fn text(&self) -> String {
        let mut names: Vec<&str> = self.params.iter().map(|p| &*p.name).collect();
        if self.positional < names.len() {
            names.insert(self.positional, "*");
        }
        names.join(", ")
    }

    /// Reads the arguments of a call.
    pub(crate) fn read<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Arguments> {
        let mut reader = Reader::new(args.py(), self.inputs.len())?;
        if args.len() > self.positional {
            return Err(self.too_many(args.len()));
        }
        for (param, value) in self.params.iter().zip(args.iter_borrowed()) {
            reader.read_param(param, &value)?;
        }
        for (key, value) in kwargs.into_iter().flatten() {
            let key = key.cast::<PyString>()?.to_cow()?.into_owned();
            self.read_keyword(&mut reader, &key, &value)?;
        }
        for param in &self.params {
            let missing = reader.slots[param.first..].first().is_some_and(Option::is_none);
            if missing && !param.optional && param.tree.as_ref().is_none_or(|t| t.leaf_count() > 0) {
                let (name, text) = (&param.name, self.text());
                return Err(PyTypeError::new_err(format!(
                    "missing argument `{name}`; the model's parameters are ({text})"
                )));
            }
        }
        Ok(reader.finish())
    }

    /// The object that was passed for each input of a call that [`CallSignature::read`] accepted; `None` for omitted
    /// inputs.
    pub(crate) fn objects<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        let mut objects = vec![None; self.inputs.len()];
        for (i, param) in self.params.iter().enumerate() {
            let named = || kwargs.map(|k| k.get_item(&param.name)).transpose();
            let value = match i < args.len() {
                true => Some(args.get_item(i)?),
                false => named()?.flatten(),
            };
            let (Some(value), mut next) = (value, param.first) else {
                continue;
            };
            let tree = param.tree.as_ref().unwrap_or(&Tree::Leaf);
            tree.flatten(&value, &param.name, &mut |leaf, _| {
                objects[next] = Some(leaf.clone());
                next += 1;
                Ok(())
            })?;
        }
        Ok(objects)
    }

    fn read_keyword(&self, reader: &mut Reader<'_>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let position = self.params.iter().find(|p| p.name == *key);
        let param = position.ok_or_else(|| {
            let text = self.text();
            PyTypeError::new_err(format!(
                "the model has no parameter `{key}`; its parameters are ({text})"
            ))
        })?;
        if reader.slots.get(param.first).is_some_and(Option::is_some) {
            return Err(PyTypeError::new_err(format!(
                "`{key}` is given both by position and by keyword"
            )));
        }
        reader.read_param(param, value)
    }

    fn too_many(&self, count: usize) -> PyErr {
        let (takes, text) = (self.positional, self.text());
        PyTypeError::new_err(format!(
            "the model takes {takes} positional arguments, but {count} were given; its parameters are ({text})"
        ))
    }
}

/// The arguments that have been read so far.
struct Reader<'py> {
    torch: Option<&'static Torch>,
    arrays: Vec<Array>,
    slots: Vec<Slot>,
    has_torch: bool,
    py: Python<'py>,
}

impl<'py> Reader<'py> {
    fn new(py: Python<'py>, inputs: usize) -> PyResult<Reader<'py>> {
        Ok(Reader {
            torch: torch::loaded(py)?,
            arrays: Vec::with_capacity(inputs),
            slots: vec![None; inputs],
            has_torch: false,
            py,
        })
    }

    fn finish(self) -> Arguments {
        Arguments {
            library: match self.has_torch {
                true => Library::Torch,
                false => Library::Numpy,
            },
            arrays: self.arrays,
            slots: self.slots,
        }
    }

    fn read_param(&mut self, param: &Param, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut next = param.first;
        match &param.tree {
            None => {
                self.slots[next] = Some(self.read_value(value, &param.name)?);
                Ok(())
            }
            Some(tree) => tree.flatten(value, &param.name, &mut |leaf, place| {
                self.slots[next] = Some(self.read_value(leaf, place)?);
                next += 1;
                Ok(())
            }),
        }
    }

    fn add(&mut self, array: Array) -> Val<usize> {
        self.arrays.push(array);
        Val::Leaf(self.arrays.len() - 1)
    }

    /// Reads a value of any kind that a graph accepts.
    fn read_value(&mut self, value: &Bound<'_, PyAny>, place: &str) -> PyResult<Val<usize>> {
        if let Some(v) = self.read_tensor(value).map_err(|e| about(self.py, place, e))? {
            return Ok(v);
        }
        if let Some(v) = self.read_number(value)? {
            return Ok(v);
        }
        if let Ok(items) = value.cast::<PyTuple>() {
            return Ok(Val::Tuple(self.read_items(items.iter(), place)?));
        }
        if let Ok(items) = value.cast::<PyList>() {
            return Ok(Val::List(self.read_items(items.iter(), place)?));
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            let mut out = vec![];
            for (k, v) in dict.iter() {
                let place = format!("{place}[{}]", k.repr()?);
                out.push((self.read_value(&k, &place)?, self.read_value(&v, &place)?));
            }
            return Ok(Val::Dict(out));
        }
        let class = value.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "`{place}` has type {class}; expected a tensor, an array, a number or a nested structure of these"
        )))
    }

    fn read_items<'a>(
        &mut self,
        items: impl Iterator<Item = Bound<'a, PyAny>>,
        place: &str,
    ) -> PyResult<Vec<Val<usize>>> {
        let numbered = items.enumerate();
        numbered
            .map(|(i, item)| self.read_value(&item, &format!("{place}[{i}]")))
            .collect()
    }

    fn read_tensor(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<Val<usize>>> {
        if let Some(torch) = self.torch
            && torch.is_tensor(value)?
        {
            self.has_torch = true;
            let array = torch.read(value)?;
            return Ok(Some(self.add(array)));
        }
        if ndarray::is_array(value) {
            let array = ndarray::read(value)?;
            return Ok(Some(self.add(array)));
        }
        let plain = value.is_none() || value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
        if !plain && value.hasattr(intern!(self.py, "__dlpack__"))? && !is_numpy_scalar(value)? {
            let array = dlpack::import(value)?;
            return Ok(Some(self.add(array)));
        }
        Ok(None)
    }

    fn read_number(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Val<usize>>> {
        if let Some(v) = scalar::from_python(value)? {
            return Ok(Some(v));
        }
        match is_numpy_scalar(value)? {
            true => self.read_number(&value.call_method0("item")?),
            false => scalar::from_torch_name(value),
        }
    }
}

fn is_numpy_scalar(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    let generic = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "generic"))?;
    value.is_instance(&generic)
}

/// Adds the argument to an error.
fn about(py: Python<'_>, place: &str, e: PyErr) -> PyErr {
    let Ok(text) = e.value(py).str() else { return e };
    let class = e.get_type(py);
    let named = PyErr::from_type(class, format!("`{place}`: {text}"));
    named.set_cause(py, e.cause(py));
    named
}
