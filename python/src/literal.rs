//! Arguments of graph nodes as Python objects.

use crate::graph::GraphRef;
use crate::node::PyNode;
use crate::scalar;
use fxc::graph::{Arg, NodeId, pyrepr};
use fxc::types::{Dim, Val};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyEllipsis, PyList, PyRange, PySlice, PyTuple};

/// A value without a Python literal: a dtype, a device, a symbolic size, or the name of another graph.
#[pyclass(frozen, eq, module = "fxc", name = "Literal")]
#[derive(PartialEq)]
pub(crate) struct PyLiteral {
    value: Val<NodeId>,
}

#[pymethods]
impl PyLiteral {
    /// The value as torch writes it: `torch.float32`, `device(type='cpu')`.
    #[getter]
    fn text(&self) -> String {
        pyrepr::repr(&self.value, &|_| String::new())
    }

    /// The kind of the value.
    #[getter]
    fn kind(&self) -> &'static str {
        self.value.kind_name()
    }

    fn __str__(&self) -> String {
        self.text()
    }

    fn __repr__(&self) -> String {
        self.text()
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.text().hash(&mut hasher);
        hasher.finish()
    }
}

/// An argument as a Python object.
pub(crate) fn to_python<'py>(py: Python<'py>, graph: &GraphRef, arg: &Arg) -> PyResult<Bound<'py, PyAny>> {
    let items = |v: &[Arg]| v.iter().map(|x| to_python(py, graph, x)).collect::<PyResult<Vec<_>>>();
    Ok(match arg {
        Val::Leaf(n) => Bound::new(py, PyNode::new(graph, *n))?.into_any(),
        Val::None => py.None().into_bound(py),
        Val::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Val::Int(Dim::Const(i)) => i.into_pyobject(py)?.into_any(),
        Val::Float(x) => x.into_pyobject(py)?.into_any(),
        Val::Complex(re, im) => PyComplex::from_doubles(py, *re, *im).into_any(),
        Val::Str(s) => s.as_ref().into_pyobject(py)?.into_any(),
        Val::Ellipsis => py.Ellipsis().into_bound(py),
        Val::List(v) => PyList::new(py, items(v)?)?.into_any(),
        Val::Tuple(v) => PyTuple::new(py, items(v)?)?.into_any(),
        Val::Dict(v) => {
            let dict = PyDict::new(py);
            for (k, x) in v {
                dict.set_item(to_python(py, graph, k)?, to_python(py, graph, x)?)?;
            }
            dict.into_any()
        }
        Val::Slice(v) => py.get_type::<PySlice>().call1(PyTuple::new(py, items(&v[..])?)?)?,
        Val::Range(v) => py.get_type::<PyRange>().call1(PyTuple::new(py, items(&v[..])?)?)?,
        other => Bound::new(py, PyLiteral { value: other.clone() })?.into_any(),
    })
}

/// A Python object as an argument of a node of `graph`.
pub(crate) fn from_python(graph: &GraphRef, value: &Bound<'_, PyAny>) -> PyResult<Arg> {
    let items = |v: Vec<Bound<'_, PyAny>>| v.iter().map(|x| from_python(graph, x)).collect::<PyResult<Vec<_>>>();
    if let Ok(node) = value.cast::<PyNode>() {
        return graph.own_node(node.get()).map(Val::Leaf);
    }
    if let Ok(literal) = value.cast::<PyLiteral>() {
        return Ok(literal.get().value.clone());
    }
    if let Some(v) = scalar::from_python(value)? {
        return Ok(v);
    }
    Ok(if let Ok(v) = value.cast::<PyTuple>() {
        Val::Tuple(items(v.iter().collect())?)
    } else if let Ok(v) = value.cast::<PyList>() {
        Val::List(items(v.iter().collect())?)
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let pair =
            |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((from_python(graph, &k)?, from_python(graph, &v)?));
        Val::Dict(dict.iter().map(pair).collect::<PyResult<_>>()?)
    } else if value.is_instance_of::<PyEllipsis>() {
        Val::Ellipsis
    } else if value.is_instance_of::<PySlice>() {
        Val::Slice(Box::new(bounds(graph, value)?))
    } else if value.is_instance_of::<PyRange>() {
        Val::Range(Box::new(bounds(graph, value)?))
    } else {
        let class = value.get_type().name()?;
        let refused = || PyTypeError::new_err(format!("a node's argument cannot have type {class}"));
        scalar::from_torch_name(value)?.ok_or_else(refused)?
    })
}

fn bounds(graph: &GraphRef, value: &Bound<'_, PyAny>) -> PyResult<[Arg; 3]> {
    let part = |name: &str| from_python(graph, &value.getattr(name)?);
    Ok([part("start")?, part("stop")?, part("step")?])
}
