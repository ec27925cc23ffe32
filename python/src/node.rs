//! torch.fx's `Node`, over the nodes of a model's graph. Methods have torch's names and meaning.

use crate::graph::{GraphRef, PyGraph, target_text};
use crate::literal;
use fxc::graph::{self, Graph, NodeId};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// A node of a graph.
#[pyclass(frozen, module = "fxc", name = "Node")]
#[derive(Clone)]
pub(crate) struct PyNode {
    pub(crate) graph: GraphRef,
    pub(crate) id: NodeId,
}

impl PyNode {
    pub(crate) fn new(graph: &GraphRef, id: NodeId) -> PyNode {
        PyNode {
            graph: graph.clone(),
            id,
        }
    }

    fn look<R>(&self, py: Python<'_>, look: impl FnOnce(&graph::Node) -> R) -> PyResult<R> {
        self.graph.with(py, |_, g| look(&g[self.id]))
    }

    fn others(&self, ids: Vec<NodeId>) -> Vec<PyNode> {
        ids.into_iter().map(|id| PyNode::new(&self.graph, id)).collect()
    }
}

#[pymethods]
impl PyNode {
    #[getter]
    fn graph(&self) -> PyGraph {
        PyGraph {
            graph: self.graph.clone(),
        }
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |n| n.name().to_string())
    }

    #[setter]
    fn set_name(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.graph.edit(py, |g| g.rename(self.id, name))
    }

    #[getter]
    fn op(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.look(py, |n| n.op().name())
    }

    #[getter]
    fn target(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |n| n.target().to_string())
    }

    #[setter]
    fn set_target(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = target_text(target)?;
        self.graph.edit(py, |g| g.set_target(self.id, g[self.id].op(), &target))
    }

    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let args = self.look(py, |n| n.args().to_vec())?;
        let items = args.iter().map(|a| literal::to_python(py, &self.graph, a));
        PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
    }

    #[setter]
    fn set_args(&self, py: Python<'_>, args: &Bound<'_, PyAny>) -> PyResult<()> {
        let args = self.graph.args(args)?;
        self.graph.edit(py, |g| g.set_args(self.id, args))
    }

    #[getter]
    fn kwargs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let kwargs = self.look(py, |n| n.kwargs().to_vec())?;
        let dict = PyDict::new(py);
        for (k, v) in kwargs {
            dict.set_item(&*k, literal::to_python(py, &self.graph, &v)?)?;
        }
        Ok(dict)
    }

    #[setter]
    fn set_kwargs(&self, py: Python<'_>, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
        let kwargs = self.graph.kwargs(kwargs)?;
        self.graph.edit(py, |g| g.set_kwargs(self.id, kwargs))
    }

    /// The nodes that use this one, as keys.
    #[getter]
    fn users<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ids: Vec<NodeId> = self.look(py, |n| n.users().collect())?;
        let dict = PyDict::new(py);
        for user in self.others(ids) {
            dict.set_item(user, py.None())?;
        }
        Ok(dict)
    }

    #[getter]
    fn all_input_nodes(&self, py: Python<'_>) -> PyResult<Vec<PyNode>> {
        Ok(self.others(self.look(py, |n| n.inputs())?))
    }

    #[getter]
    fn next(&self, py: Python<'_>) -> PyResult<Option<PyNode>> {
        let id = self.graph.with(py, |_, g| g.next(self.id))?;
        Ok(id.map(|id| PyNode::new(&self.graph, id)))
    }

    #[getter]
    fn prev(&self, py: Python<'_>) -> PyResult<Option<PyNode>> {
        let id = self.graph.with(py, |_, g| g.prev(self.id))?;
        Ok(id.map(|id| PyNode::new(&self.graph, id)))
    }

    /// The type that the model declares, in fxc's notation: `f32[N, 64]`.
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.look(py, |n| n.meta.ty.as_ref().map(ToString::to_string))
    }

    /// Metadata of the node: its type, its line of Python, its enclosing modules.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let meta = self.look(py, |n| n.meta.clone())?;
        let dict = PyDict::new(py);
        if let Some(ty) = &meta.ty {
            dict.set_item("type", ty.to_string())?;
        }
        if let Some(loc) = &meta.loc {
            dict.set_item("loc", (&*loc.file, loc.line, &*loc.function))?;
        }
        if !meta.modules.is_empty() {
            let frames = meta.modules.iter().map(|f| (f.path.to_string(), f.class.to_string()));
            dict.set_item("nn_module_stack", frames.collect::<Vec<_>>())?;
        }
        for (k, v) in &meta.custom {
            dict.set_item(&**k, &**v)?;
        }
        Ok(dict)
    }

    #[pyo3(signature = (replace_with, delete_user_cb = None, *, propagate_meta = false))]
    fn replace_all_uses_with(
        &self,
        py: Python<'_>,
        replace_with: &PyNode,
        delete_user_cb: Option<&Bound<'_, PyAny>>,
        propagate_meta: bool,
    ) -> PyResult<Vec<PyNode>> {
        let new = self.graph.own_node(replace_with)?;
        let Some(pick) = delete_user_cb else {
            return Ok(self.others(self.graph.try_edit(py, |g| match propagate_meta {
                true => g.replace_with_meta(self.id, new),
                false => Ok(g.replace_all_uses_with(self.id, new)),
            })?));
        };
        let mut picked = vec![];
        for user in self.others(self.look(py, |n| n.users().collect())?) {
            let id = user.id;
            if pick.call1((user,))?.is_truthy()? {
                picked.push(id);
            }
        }
        let changed = |g: &mut Graph| g.replace_uses_where(self.id, new, |_, u| picked.contains(&u));
        Ok(self.others(self.graph.edit(py, changed)?))
    }

    fn replace_input_with(&self, py: Python<'_>, old_input: &PyNode, new_input: &PyNode) -> PyResult<()> {
        let (old, new) = (self.graph.own_node(old_input)?, self.graph.own_node(new_input)?);
        self.graph.edit(py, |g| g.replace_input_with(self.id, old, new))
    }

    fn update_arg(&self, py: Python<'_>, idx: usize, arg: &Bound<'_, PyAny>) -> PyResult<()> {
        let arg = literal::from_python(&self.graph, arg)?;
        let done = self.graph.edit(py, |g| g.update_arg(self.id, idx, arg))?;
        done.map_err(|e| PyIndexError::new_err(e.0))
    }

    fn insert_arg(&self, py: Python<'_>, idx: usize, arg: &Bound<'_, PyAny>) -> PyResult<()> {
        let arg = literal::from_python(&self.graph, arg)?;
        let done = self.graph.edit(py, |g| g.insert_arg(self.id, idx, arg))?;
        done.map_err(|e| PyIndexError::new_err(e.0))
    }

    fn update_kwarg(&self, py: Python<'_>, key: &str, arg: &Bound<'_, PyAny>) -> PyResult<()> {
        let arg = literal::from_python(&self.graph, arg)?;
        self.graph.edit(py, |g| g.update_kwarg(self.id, key, arg))
    }

    /// Moves `x` directly before this node.
    fn prepend(&self, py: Python<'_>, x: &PyNode) -> PyResult<()> {
        let x = self.graph.own_node(x)?;
        self.graph.edit(py, |g| g.move_before(x, self.id))
    }

    /// Moves `x` directly after this node.
    fn append(&self, py: Python<'_>, x: &PyNode) -> PyResult<()> {
        let x = self.graph.own_node(x)?;
        self.graph.edit(py, |g| g.move_after(x, self.id))
    }

    /// Whether the node has side effects, so that it must be kept even if it is unused.
    fn is_impure(&self, py: Python<'_>) -> PyResult<bool> {
        self.graph.with(py, |m, g| graph::is_impure(g, self.id, Some(m)))
    }

    /// The node as torch prints it.
    fn format_node(&self, py: Python<'_>) -> PyResult<String> {
        let (op, target) = (self.op(py)?, self.target(py)?);
        let (args, kwargs) = (self.args(py)?.repr()?, self.kwargs(py)?.repr()?);
        let uses = self.look(py, |n| n.users().len())?;
        let name = self.name(py)?;
        Ok(format!(
            "%{name} : [num_users={uses}] = {op}[target={target}](args = {args}, kwargs = {kwargs})"
        ))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.name(py)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let same = |o: &PyNode| o.id == self.id && self.graph.is_same(&o.graph);
        other.cast::<PyNode>().is_ok_and(|o| same(o.get()))
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (Arc::as_ptr(&self.graph.model) as usize, &self.graph.name, self.id).hash(&mut hasher);
        hasher.finish()
    }
}
