//! torch.fx's `Graph`, over the graphs of a model. Methods have torch's names and meaning.

use crate::model::{SharedModel, lock};
use crate::node::PyNode;
use crate::{errors, literal};
use fxc::Model;
use fxc::graph::{self, Graph, GraphError, GraphModule, InsertPoint, NodeId, Opcode};
use fxc::types::Val;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::{Arc, Mutex};

/// A graph of a model, by name.
#[derive(Clone)]
pub(crate) struct GraphRef {
    pub(crate) model: SharedModel,
    pub(crate) name: Arc<str>,
}

impl GraphRef {
    /// The entry graph of a model.
    pub(crate) fn entry(py: Python<'_>, model: &SharedModel) -> PyResult<GraphRef> {
        let name = lock(py, model).module().entry_name().cloned();
        let name = name.ok_or_else(|| PyRuntimeError::new_err("the model has no graph"))?;
        Ok(GraphRef {
            model: model.clone(),
            name,
        })
    }

    pub(crate) fn is_same(&self, other: &GraphRef) -> bool {
        Arc::ptr_eq(&self.model, &other.model) && self.name == other.name
    }

    /// Calls a function with the graph.
    pub(crate) fn with<R>(&self, py: Python<'_>, look: impl FnOnce(&GraphModule, &Graph) -> R) -> PyResult<R> {
        let model = lock(py, &self.model);
        let graph = model.module().graphs.get(&self.name);
        Ok(look(model.module(), graph.ok_or_else(gone)?))
    }

    /// Edits the graph.
    pub(crate) fn edit<R>(&self, py: Python<'_>, edit: impl FnOnce(&mut Graph) -> R) -> PyResult<R> {
        let mut model = lock(py, &self.model);
        let graph = model.module_mut().graphs.get_mut(&self.name);
        Ok(edit(graph.ok_or_else(gone)?))
    }

    pub(crate) fn try_edit<R>(
        &self,
        py: Python<'_>,
        edit: impl FnOnce(&mut Graph) -> Result<R, GraphError>,
    ) -> PyResult<R> {
        self.edit(py, edit)?.map_err(|e| PyRuntimeError::new_err(e.0))
    }

    /// The id of a node of this graph.
    pub(crate) fn own_node(&self, node: &PyNode) -> PyResult<NodeId> {
        match self.is_same(&node.graph) {
            true => Ok(node.id),
            false => Err(PyRuntimeError::new_err(
                "the node belongs to another graph; copy it with `graph.node_copy(node)`",
            )),
        }
    }

    pub(crate) fn args(&self, args: &Bound<'_, PyAny>) -> PyResult<Vec<graph::Arg>> {
        let items: Vec<Bound<'_, PyAny>> = args.extract()?;
        items.iter().map(|a| literal::from_python(self, a)).collect()
    }

    pub(crate) fn kwargs(&self, kwargs: &Bound<'_, PyDict>) -> PyResult<Vec<(Arc<str>, graph::Arg)>> {
        let convert = |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((k.extract::<String>()?.into(), literal::from_python(self, &v)?))
        };
        kwargs.iter().map(convert).collect()
    }
}

fn gone() -> PyErr {
    PyRuntimeError::new_err("this graph is no longer part of the model")
}

fn opcode(name: &str) -> PyResult<Opcode> {
    let opcode = Opcode::from_name(name);
    opcode.ok_or_else(|| PyValueError::new_err(format!("`{name}` is not one of torch.fx's six opcodes")))
}

/// A target in fxc's notation: a string unchanged, a function by its qualified name.
pub(crate) fn target_text(target: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = target.cast::<PyString>() {
        return Ok(text.to_cow()?.into_owned());
    }
    let module = target.py().import("fxc._graph")?;
    module.call_method1("target_name", (target,))?.extract()
}

/// An ordered list of nodes, with torch.fx's methods.
#[pyclass(frozen, module = "fxc", name = "Graph")]
pub(crate) struct PyGraph {
    pub(crate) graph: GraphRef,
}

impl PyGraph {
    fn make<'py>(
        &self,
        py: Python<'py>,
        op: Opcode,
        target: &str,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
        name: Option<&str>,
    ) -> PyResult<PyNode> {
        let args = args.map(|a| self.graph.args(a)).transpose()?.unwrap_or_default();
        let kwargs = kwargs.map(|k| self.graph.kwargs(k)).transpose()?.unwrap_or_default();
        let id = self.graph.edit(py, |g| g.create_node(op, target, args, kwargs, name))?;
        Ok(PyNode::new(&self.graph, id))
    }

    fn refs(&self, ids: Vec<NodeId>) -> Vec<PyNode> {
        ids.into_iter().map(|id| PyNode::new(&self.graph, id)).collect()
    }
}

#[pymethods]
impl PyGraph {
    /// An empty graph.
    #[new]
    fn new(py: Python<'_>) -> PyResult<PyGraph> {
        let model = Arc::new(Mutex::new(Model::from(Graph::new())));
        Ok(PyGraph {
            graph: GraphRef::entry(py, &model)?,
        })
    }

    /// The name of the graph in its model.
    #[getter]
    fn name(&self) -> &str {
        &self.graph.name
    }

    #[getter]
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<PyNode>> {
        Ok(self.refs(self.graph.with(py, |_, g| g.ids())?))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.nodes(py)?.into_pyobject(py)?.try_iter()?.into_any())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.graph.with(py, |_, g| g.len())
    }

    fn output_node(&self, py: Python<'_>) -> PyResult<Option<PyNode>> {
        let id = self.graph.with(py, |_, g| g.output())?;
        Ok(id.map(|id| PyNode::new(&self.graph, id)))
    }

    /// The node with this name.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Option<PyNode>> {
        let id = self.graph.with(py, |_, g| g.find(name))?;
        Ok(id.map(|id| PyNode::new(&self.graph, id)))
    }

    #[pyo3(signature = (*, op, target = None))]
    fn find_nodes(&self, py: Python<'_>, op: &str, target: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PyNode>> {
        let (op, target) = (opcode(op)?, target.map(target_text).transpose()?);
        Ok(self.refs(self.graph.with(py, |_, g| g.find_nodes(op, target.as_deref()))?))
    }

    #[pyo3(signature = (op, target, args = None, kwargs = None, name = None))]
    fn create_node<'py>(
        &self,
        py: Python<'py>,
        op: &str,
        target: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
        name: Option<&str>,
    ) -> PyResult<PyNode> {
        self.make(py, opcode(op)?, &target_text(target)?, args, kwargs, name)
    }

    #[pyo3(signature = (name, default_value = None))]
    fn placeholder<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default_value: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<PyNode> {
        let args = default_value.map(|d| PyTuple::new(py, [d])).transpose()?;
        let args = args.as_ref().map(|a| a.as_any());
        self.make(py, Opcode::Placeholder, name, args, None, None)
    }

    fn get_attr(&self, py: Python<'_>, qualified_name: &str) -> PyResult<PyNode> {
        self.make(py, Opcode::GetAttr, qualified_name, None, None, None)
    }

    #[pyo3(signature = (the_function, args = None, kwargs = None))]
    fn call_function<'py>(
        &self,
        py: Python<'py>,
        the_function: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<PyNode> {
        self.make(
            py,
            Opcode::CallFunction,
            &target_text(the_function)?,
            args,
            kwargs,
            None,
        )
    }

    #[pyo3(signature = (method_name, args = None, kwargs = None))]
    fn call_method<'py>(
        &self,
        py: Python<'py>,
        method_name: &str,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<PyNode> {
        self.make(py, Opcode::CallMethod, method_name, args, kwargs, None)
    }

    #[pyo3(signature = (module_name, args = None, kwargs = None))]
    fn call_module<'py>(
        &self,
        py: Python<'py>,
        module_name: &str,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<PyNode> {
        self.make(py, Opcode::CallModule, module_name, args, kwargs, None)
    }

    fn output<'py>(&self, py: Python<'py>, result: &Bound<'py, PyAny>) -> PyResult<PyNode> {
        let args = PyTuple::new(py, [result])?;
        self.make(py, Opcode::Output, "output", Some(args.as_any()), None, None)
    }

    fn erase_node(&self, py: Python<'_>, to_erase: &PyNode) -> PyResult<()> {
        let n = self.graph.own_node(to_erase)?;
        self.graph.try_edit(py, |g| g.erase_node(n))
    }

    /// Inserts new nodes before `n` within a `with` block, or at the start of the graph without a node.
    #[pyo3(signature = (n = None))]
    fn inserting_before(&self, py: Python<'_>, n: Option<&PyNode>) -> PyResult<PyInserting> {
        let n = n.map(|n| self.graph.own_node(n)).transpose()?;
        self.inserting(py, |g| g.inserting_before(n, |g| g.insert_point()))
    }

    /// Inserts new nodes after `n` within a `with` block, in order of creation, or at the end of the graph without a node.
    #[pyo3(signature = (n = None))]
    fn inserting_after(&self, py: Python<'_>, n: Option<&PyNode>) -> PyResult<PyInserting> {
        let n = n.map(|n| self.graph.own_node(n)).transpose()?;
        self.inserting(py, |g| g.inserting_after(n, |g| g.insert_point()))
    }

    /// Copies a node of any graph into this one, with its arguments mapped by `arg_transform`.
    #[pyo3(signature = (node, arg_transform = None))]
    fn node_copy(&self, py: Python<'_>, node: &PyNode, arg_transform: Option<&Bound<'_, PyAny>>) -> PyResult<PyNode> {
        let (inputs, from) = node.graph.with(py, |_, g| (g[node.id].inputs(), g.clone()))?;
        let mut mapped = std::collections::HashMap::new();
        for n in inputs {
            let arg = match arg_transform {
                Some(f) => literal::from_python(&self.graph, &f.call1((PyNode::new(&node.graph, n),))?)?,
                None => Val::Leaf(self.graph.own_node(&PyNode::new(&node.graph, n))?),
            };
            mapped.insert(n, arg);
        }
        let copy = |n: NodeId| mapped.get(&n).cloned().unwrap_or(Val::None);
        let id = self.graph.edit(py, |g| g.node_copy(&from, node.id, copy))?;
        Ok(PyNode::new(&self.graph, id))
    }

    /// Erases unused nodes without side effects. Returns true if there were any.
    fn eliminate_dead_code(&self, py: Python<'_>) -> PyResult<bool> {
        let mut model = lock(py, &self.graph.model);
        let module = model.module().clone();
        let graph = model.module_mut().graphs.get_mut(&self.graph.name).ok_or_else(gone)?;
        Ok(graph.eliminate_dead_code(Some(&module)) > 0)
    }

    /// Checks that the graph is consistent; raises `fxc.CompileError` if not.
    fn lint(&self, py: Python<'_>) -> PyResult<()> {
        let model = lock(py, &self.graph.model).clone();
        let findings = graph::lint(model.module());
        match findings.has_errors() {
            true => Err(errors::raise_findings(
                py,
                findings.into_iter().collect(),
                model.sources(),
            )),
            false => Ok(()),
        }
    }

    /// The graph as Python, in the form of torch's `gm.code`.
    fn python_code(&self, py: Python<'_>) -> PyResult<String> {
        self.graph.with(py, |m, g| graph::python::code(g, Some(m)).source)
    }

    /// The graph as a table.
    fn tabular(&self, py: Python<'_>) -> PyResult<String> {
        self.graph.with(py, |m, g| graph::tabular::print_tabular(g, Some(m)))
    }

    fn print_tabular(&self, py: Python<'_>) -> PyResult<()> {
        let text = self.tabular(py)?;
        py.import("builtins")?.call_method1("print", (text,)).map(|_| ())
    }

    /// The graph as a drawing.
    fn to_svg(&self, py: Python<'_>) -> PyResult<String> {
        self.graph
            .with(py, |m, g| graph::svg::svg(g, &m.name, &Default::default()))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        self.to_svg(py)
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        self.graph.with(py, |m, g| graph::torch_print::print(g, Some(m)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<fxc.Graph {} of {} nodes>",
            self.graph.name,
            self.__len__(py)?
        ))
    }
}

impl PyGraph {
    fn inserting(
        &self,
        py: Python<'_>,
        point: impl FnOnce(&mut Graph) -> Result<InsertPoint, GraphError>,
    ) -> PyResult<PyInserting> {
        let point = self.graph.try_edit(py, point)?;
        Ok(PyInserting {
            graph: self.graph.clone(),
            point,
            before: Mutex::new(None),
        })
    }
}

/// An insertion point for new nodes within a `with` block.
#[pyclass(frozen, module = "fxc._fxc", name = "_Inserting")]
pub(crate) struct PyInserting {
    graph: GraphRef,
    point: InsertPoint,
    before: Mutex<Option<InsertPoint>>,
}

#[pymethods]
impl PyInserting {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let point = self.point;
        let before = self.graph.edit(py, |g| {
            let before = g.insert_point();
            g.set_insert_point(point);
            before
        })?;
        *lock(py, &self.before) = Some(before);
        Ok(())
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<bool> {
        if let Some(before) = lock(py, &self.before).take() {
            self.graph.edit(py, |g| g.set_insert_point(before))?;
        }
        Ok(false)
    }
}
