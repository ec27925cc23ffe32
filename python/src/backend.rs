//! Parts of graphs that `torch.compile` captured. `fxc/torch_backend.py` compiles and calls them.

use crate::args::Library;
use crate::array::Array;
use crate::errors;
use crate::model::{CompiledModel, ModelState};
use crate::process::{detached, interruptible_with};
use crate::results::{Maker, ResultMemory};
use crate::settings::Settings;
use crate::torch::{self, Torch};
use fxc::internals::tensor::Prefault;
use fxc::types::{DType, Val};
use fxc::{Input, LayoutError, Model, Tensor, View};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// The source of an input of a part: a position of the call, and the order in which the tensor's dimensions are
/// passed. If the value there is an int, it is a size. It is passed as a tensor of that size without elements,
/// because sizes follow from the shapes of inputs.
type InputSpec = (usize, Option<Vec<usize>>);

/// The source of a result.
enum ResultSpec {
    /// The part's next result: a tensor whose dimensions have this order in memory, or another value.
    Computed(Option<Vec<usize>>),
    /// The argument of the call at this position.
    Given(usize),
}

/// A part of a graph. It takes the list of its inputs and returns the list of its results.
#[pyclass(frozen, module = "fxc._fxc")]
pub(crate) struct Part {
    state: Arc<ModelState>,
    inputs: Vec<InputSpec>,
    results: Vec<ResultSpec>,
}

#[pymethods]
impl Part {
    /// `text` is FXIR; `weights` has the constants that it only declares. It is compiled now, as far as its sizes are
    /// known. `results` has a position for each result that is an argument, else the order of its dimensions or None.
    #[new]
    #[pyo3(signature = (text, weights, inputs, results, **options))]
    fn new(
        py: Python<'_>,
        text: &str,
        weights: &Bound<'_, PyDict>,
        inputs: Vec<InputSpec>,
        results: Vec<Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Part> {
        let settings = Settings::from_kwargs(options)?;
        let mut model = Model::from_text(text).map_err(|e| errors::raise(py, &e))?;
        for (name, tensor) in weights.iter() {
            let name: String = name.extract()?;
            let array = loaded_torch(py)?.borrow(&tensor)?;
            let attribute = model.module_mut().attributes.get_mut(&*name);
            let attribute =
                attribute.ok_or_else(|| PyValueError::new_err(format!("the text does not define `{name}`")))?;
            // The owner is the storage, so that the memory stays valid if the module's tensor gets another one. A detached
            // tensor would do too, but AOTAutograd watches the operations of the first call, and leaves so many objects for
            // each that Python's garbage collector visits all objects of the process.
            let owner = Arc::new(tensor.call_method0("untyped_storage")?.unbind());
            // SAFETY: the tensor keeps its memory alive. A part is not called again after its weights were written,
            // see `Weights`.
            let weight = unsafe { view(&array, None).map_err(layout_error)?.to_kept_tensor(owner) };
            attribute.value = Some(weight);
        }
        let compiled = CompiledModel::from_model(py, Arc::new(Mutex::new(model)), settings, None)?;
        compiled.state.code(py)?;
        let results = results.iter().map(|r| match r.cast::<PyInt>() {
            Ok(i) => Ok(ResultSpec::Given(i.extract()?)),
            Err(_) => Ok(ResultSpec::Computed(r.extract()?)),
        });
        Ok(Part {
            state: compiled.state,
            inputs,
            results: results.collect::<PyResult<_>>()?,
        })
    }

    fn __call__<'py>(&self, args: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let code = self.state.code(py)?;
        let torch = loaded_torch(py)?;
        let mut arrays: SmallVec<[Array; 8]> = SmallVec::new();
        for (position, _) in &self.inputs {
            arrays.push(read_input(torch, &args.get_item(*position)?)?);
        }
        let views = arrays.iter().zip(&self.inputs);
        let views = views.map(|(a, (_, order))| Ok(view(a, order.as_deref())?.into()));
        let views: SmallVec<[Input; 8]> = views.collect::<Result<_, _>>().map_err(layout_error)?;
        let run = interruptible_with(py, code.gil(), self.state.token(), || code.compiled.run_with(&views))?;
        let outputs = run.map_err(|e| errors::raise(py, &e))?;
        self.give(args, torch, outputs.into_value())
    }

    /// The warnings of compilation so far.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let code = self.state.code(py)?;
        errors::to_list(py, code.compiled.warnings(), &fxc::source::Sources::new())
    }
}

impl Part {
    fn give<'py>(&self, args: &Bound<'py, PyList>, torch: &Torch, value: Val<Tensor>) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let (Val::Tuple(values) | Val::List(values)) = value else {
            return Err(PyRuntimeError::new_err("a part of a graph must return a tuple"));
        };
        let mut values = values.into_iter();
        let mut memory = ResultMemory::default();
        let list = PyList::empty(py);
        for spec in &self.results {
            let item = match spec {
                ResultSpec::Given(i) => args.get_item(*i)?,
                ResultSpec::Computed(order) => match (values.next(), order) {
                    (Some(Val::Leaf(t)), order) => torch.make_ordered(py, memory.separate(t), order.as_deref())?,
                    (Some(other), _) => Maker::new(py, Library::Torch)?.scalar(other)?,
                    (None, _) => return Err(PyRuntimeError::new_err("a part of a graph returns too few results")),
                },
            };
            list.append(item)?;
        }
        Ok(list)
    }
}

fn loaded_torch(py: Python<'_>) -> PyResult<&'static Torch> {
    torch::loaded(py)?.ok_or_else(|| PyRuntimeError::new_err("PyTorch is not imported"))
}

fn layout_error(e: LayoutError) -> PyErr {
    PyValueError::new_err(e.to_string())
}

fn read_input(torch: &Torch, value: &Bound<'_, PyAny>) -> PyResult<Array> {
    match value.is_instance_of::<PyInt>() {
        true => Ok(Array::of_size(value)?),
        false => torch.borrow(value),
    }
}

/// The memory of an array with its dimensions in another order.
fn view<'a>(array: &'a Array, order: Option<&[usize]>) -> Result<View<'a>, LayoutError> {
    let (shape, strides) = (&array.shape, &array.strides);
    // SAFETY (both): shape and strides are the array's, whose owner keeps the memory alive; another order of
    // dimensions reaches the same elements. A write from another thread during the call is a race with torch as well.
    let Some(order) = order else {
        // SAFETY: as above.
        return unsafe { View::from_raw_parts(array.dtype, shape, strides.as_deref(), array.data) };
    };
    let ordered: SmallVec<[usize; 6]> = order.iter().map(|&d| shape[d]).collect();
    let strides: Option<SmallVec<[isize; 6]>> = strides.as_ref().map(|s| order.iter().map(|&d| s[d]).collect());
    // SAFETY: as above.
    unsafe { View::from_raw_parts(array.dtype, &ordered, strides.as_deref(), array.data) }
}

/// Memory for the packed weights of a graph, which a thread makes available while Python works.
#[pyclass(module = "fxc._fxc")]
pub(crate) struct PackingMemory(Option<Prefault>);

#[pymethods]
impl PackingMemory {
    /// `sizes` are the bytes of the weights.
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "converted from a list of Python's")]
    fn new(sizes: Vec<usize>) -> PackingMemory {
        PackingMemory(Some(Prefault::start(&sizes)))
    }

    /// Returns what has not been used.
    fn release(&mut self) {
        self.0 = None;
    }
}

/// The errors that `fxc check` finds in a text: the line, code and title of each.
#[pyfunction]
pub(crate) fn _check_text(py: Python<'_>, text: &str) -> PyResult<Vec<(usize, &'static str, String)>> {
    let checked = detached(py, || Model::from_text(text).and_then(|m| m.check()))?;
    let Err(error) = checked else { return Ok(vec![]) };
    let errors = error.diagnostics().iter().filter(|d| d.is_error());
    let findings = errors.map(|d| {
        let label = d.labels.iter().find(|l| l.primary).or(d.labels.first());
        let before = label.and_then(|l| text.get(..l.span.range().start));
        let line = before.map_or(0, |b| b.matches('\n').count() + 1);
        (line, d.code.name(), d.title.clone())
    });
    Ok(findings.collect())
}

/// The tensors whose values a compiled part contains, with the information to detect changes.
#[pyclass(frozen, module = "fxc._fxc")]
pub(crate) struct Weights {
    entries: Vec<WeightEntry>,
}

struct WeightEntry {
    position: usize,
    tensor: Py<PyAny>,
    print: Fingerprint,
}

/// Properties that change when a weight changes. A write through `.data` or numpy changes neither the version nor the
/// address, but in practice changes all elements, so a few of them suffice to detect it.
#[derive(PartialEq)]
struct Fingerprint {
    address: usize,
    version: u64,
    sample: [u64; 3],
}

#[pymethods]
impl Weights {
    /// `positions` are their positions in the list of a call's arguments.
    #[new]
    fn new(args: &Bound<'_, PyList>, positions: Vec<usize>) -> PyResult<Weights> {
        let torch = loaded_torch(args.py())?;
        let entry = |position| {
            let tensor = args.get_item(position)?;
            let print = fingerprint(torch, &tensor)?;
            let tensor = tensor.unbind();
            Ok(WeightEntry {
                position,
                tensor,
                print,
            })
        };
        let entries = positions.into_iter().map(entry).collect::<PyResult<_>>()?;
        Ok(Weights { entries })
    }

    /// Whether a call has the same tensors with the same elements.
    fn match_call(&self, args: &Bound<'_, PyList>) -> PyResult<bool> {
        let torch = loaded_torch(args.py())?;
        for e in &self.entries {
            let tensor = args.get_item(e.position)?;
            if !tensor.is(&e.tensor) || fingerprint(torch, &tensor)? != e.print {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a call has the same tensors, even if their elements differ.
    fn are_objects_of(&self, args: &Bound<'_, PyList>) -> PyResult<bool> {
        for e in &self.entries {
            if !args.get_item(e.position)?.is(&e.tensor) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn fingerprint(torch: &Torch, tensor: &Bound<'_, PyAny>) -> PyResult<Fingerprint> {
    let version = tensor.getattr(pyo3::intern!(tensor.py(), "_version"))?.extract()?;
    let array = torch.borrow(tensor)?;
    Ok(Fingerprint {
        address: array.data as usize,
        version,
        sample: sample(&array),
    })
}

/// The bits of the first, the middle and the last element.
fn sample(array: &Array) -> [u64; 3] {
    if array.shape.contains(&0) {
        return [0; 3];
    }
    let size = array.dtype.size().min(8);
    let read = |numerator: usize| {
        let mut offset = 0isize;
        let mut dense = 1isize;
        for d in (0..array.shape.len()).rev() {
            let index = ((array.shape[d] - 1) * numerator / 2) as isize;
            offset += index * array.strides.as_ref().map_or(dense, |s| s[d]);
            dense *= array.shape[d] as isize;
        }
        let mut bytes = [0u8; 8];
        let first = offset * array.dtype.size() as isize;
        // SAFETY: the index is within the shape, whose elements lie in the array's memory; `bytes` has room for `size`.
        unsafe { std::ptr::copy_nonoverlapping(array.data.offset(first), bytes.as_mut_ptr(), size) };
        u64::from_ne_bytes(bytes)
    };
    [read(0), read(1), read(2)]
}

impl Array {
    /// A tensor of this size without elements: it passes a size that no other input has.
    fn of_size(size: &Bound<'_, PyAny>) -> PyResult<Array> {
        let count: usize = size.extract()?;
        Ok(Array {
            dtype: DType::U8,
            shape: SmallVec::from_slice(&[count, 0]),
            strides: None,
            data: std::ptr::NonNull::<u8>::dangling().as_ptr(),
            _owner: crate::array::Owner::Object(size.clone().unbind()),
        })
    }
}
