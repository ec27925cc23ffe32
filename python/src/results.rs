//! Converts the results of a call to Python objects.

use crate::args::Library;
use crate::ndarray;
use crate::torch::{self, Torch};
use fxc::types::{Dim, Val};
use fxc::{Outputs, Tensor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyList, PyRange, PySlice, PyTuple};
use smallvec::SmallVec;
use std::cell::RefCell;

/// The results of one call so far. Equal values of a graph may be one value of the program, and Python may write to each result, so no
/// two of them share memory. (The next call takes other memory while a result is in use.)
#[derive(Default)]
pub(crate) struct ResultMemory(SmallVec<[usize; 8]>);

impl ResultMemory {
    /// The result in memory that no earlier result has.
    pub(crate) fn separate(&mut self, tensor: Tensor) -> Tensor {
        let address = tensor.bytes().as_ptr() as usize;
        if tensor.byte_count() > 0 && self.0.contains(&address) {
            return tensor.deep_copy();
        }
        self.0.push(address);
        tensor
    }
}

/// Converts values to Python objects.
pub(crate) struct Maker<'py> {
    py: Python<'py>,
    torch: Option<&'static Torch>,
    memory: RefCell<ResultMemory>,
}

impl<'py> Maker<'py> {
    pub(crate) fn new(py: Python<'py>, library: Library) -> PyResult<Maker<'py>> {
        let torch = match library {
            Library::Torch => torch::loaded(py)?,
            Library::Numpy => None,
        };
        Ok(Maker {
            py,
            torch,
            memory: RefCell::default(),
        })
    }

    /// A tensor as an array of the requested library, in the same memory, to which Python may write.
    pub(crate) fn tensor(&self, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
        match self.torch {
            Some(torch) => torch.make(self.py, tensor),
            None => ndarray::make(self.py, tensor),
        }
    }

    /// The results of a call. `restore` creates instances of the classes in the exported function's result.
    pub(crate) fn outputs(&self, outputs: Outputs, restore: Option<&Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        self.result(outputs.into_value(), restore)
    }

    /// A result of a call: see [`Maker::outputs`].
    pub(crate) fn result(&self, result: Val<Tensor>, restore: Option<&Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let mut leaves = restore.map(|_| PyList::empty(self.py));
        let plain = self.value(result, &mut leaves)?;
        match (restore, leaves) {
            (Some(restore), Some(leaves)) => restore.bind(self.py).call1((leaves, plain)),
            _ => Ok(plain),
        }
    }

    fn value(&self, value: Val<Tensor>, leaves: &mut Option<Bound<'py, PyList>>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let mut items = |v: Vec<Val<Tensor>>| {
            v.into_iter()
                .map(|x| self.value(x, leaves))
                .collect::<PyResult<Vec<_>>>()
        };
        let object = match value {
            Val::Tuple(v) => return Ok(PyTuple::new(py, items(v)?)?.into_any()),
            Val::List(v) => return Ok(PyList::new(py, items(v)?)?.into_any()),
            Val::Dict(v) => {
                let dict = PyDict::new(py);
                for (k, x) in v {
                    dict.set_item(self.value(k, &mut None)?, self.value(x, leaves)?)?;
                }
                return Ok(dict.into_any());
            }
            Val::Leaf(t) => {
                let own = self.memory.borrow_mut().separate(t);
                self.tensor(own)?
            }
            other => self.scalar(other)?,
        };
        if let Some(leaves) = leaves {
            leaves.append(&object)?;
        }
        Ok(object)
    }

    /// A value that is not a tensor.
    pub(crate) fn scalar(&self, value: Val<Tensor>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match value {
            Val::None => py.None().into_bound(py),
            Val::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
            Val::Int(Dim::Const(i)) => i.into_pyobject(py)?.into_any(),
            Val::Float(x) => x.into_pyobject(py)?.into_any(),
            Val::Complex(re, im) => PyComplex::from_doubles(py, re, im).into_any(),
            Val::Str(s) => s.as_ref().into_pyobject(py)?.into_any(),
            Val::Ellipsis => py.Ellipsis().into_bound(py),
            Val::Slice(v) => {
                let [a, b, c] = (*v).map(|x| self.scalar(x));
                let class = py.get_type::<PySlice>();
                class.call1((a?, b?, c?))?
            }
            Val::Range(v) => {
                let [a, b, c] = (*v).map(|x| self.scalar(x));
                let class = py.get_type::<PyRange>();
                class.call1((a?, b?, c?))?
            }
            Val::DType(d) => match self.torch {
                Some(_) => py.import(intern!(py, "torch"))?.getattr(d.torch_name())?,
                None => d.torch_name().into_pyobject(py)?.into_any(),
            },
            Val::Device(s) | Val::TorchName(s) => s.as_ref().into_pyobject(py)?.into_any(),
            other => {
                let words = format!(
                    "a result is {}, which cannot be converted to a Python object",
                    other.kind_name()
                );
                return Err(PyRuntimeError::new_err(words));
            }
        })
    }
}
