//! Adds and removes what graphs refer to, by dotted path (torch's `GraphModule` methods).

use crate::graph::{
    Arg, Attribute, AttributeKind, EditResult, Graph, GraphError, GraphModule, ModuleDecl, Mutation, Opcode,
};
use crate::op::Literal;
use crate::tensor::Tensor;
use crate::types::Val;
use std::collections::HashSet;
use std::sync::Arc;

/// Whether `path` is `ancestor` or a path below it.
fn is_below(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl GraphModule {
    /// Declares a module of the class `class` at `path`, as `module path = class(args, kwargs)` does in a file. Add its
    /// parameters with [`GraphModule::add_parameter`] under `path.weight` and so on.
    ///
    /// # Errors
    /// There is an attribute at `path`.
    pub fn add_submodule(
        &mut self,
        path: &str,
        class: &str,
        args: Vec<Literal>,
        kwargs: Vec<(Arc<str>, Literal)>,
    ) -> EditResult<()> {
        if self.attributes.contains_key(path) {
            return Err(GraphError(format!("`{path}` is an attribute of the module")));
        }
        let decl = ModuleDecl {
            class: class.into(),
            args,
            kwargs,
            span: None,
            places: None,
        };
        self.modules.insert(path.into(), decl);
        Ok(())
    }

    /// Sets the value of the parameter at `path`.
    pub fn add_parameter(&mut self, path: &str, value: Tensor) {
        self.add_attribute(path, AttributeKind::Parameter, value);
    }

    /// Sets the value of the buffer at `path`.
    pub fn add_buffer(&mut self, path: &str, value: Tensor) {
        self.add_attribute(path, AttributeKind::Buffer, value);
    }

    fn add_attribute(&mut self, path: &str, kind: AttributeKind, value: Tensor) {
        let attribute = Attribute {
            kind,
            ty: Some(Val::Leaf(value.ty())),
            value: Some(value),
            span: None,
        };
        self.attributes.insert(path.into(), attribute);
    }

    /// Removes the modules and attributes at and below `path`, and returns whether there were any. Nodes that refer to
    /// them stay; lint reports them.
    pub fn delete_submodule(&mut self, path: &str) -> bool {
        let before = self.modules.len() + self.attributes.len();
        self.modules.retain(|m, _| !is_below(m, path));
        self.attributes.retain(|a, _| !is_below(a, path));
        self.modules.len() + self.attributes.len() < before
    }

    /// Removes each declared module that no graph calls and whose attributes no graph reads, with those attributes
    /// (torch's `delete_all_unused_submodules`).
    pub fn delete_all_unused_submodules(&mut self) {
        let used = self.referred_paths();
        let gone: Vec<Arc<str>> = self
            .modules
            .keys()
            .filter(|m| !used.iter().any(|u| is_below(u, m) || is_below(m, u)))
            .cloned()
            .collect();
        self.modules.retain(|m, _| !gone.contains(m));
        self.attributes.retain(|a, _| !gone.iter().any(|m| is_below(a, m)));
    }

    /// Removes the declared modules and attributes that no graph calls, reads or mutates.
    pub fn delete_unused(&mut self) {
        self.delete_all_unused_submodules();
        let used = self.referred_paths();
        let written = self.graphs.values().flat_map(|g| &g.mutations);
        let written: HashSet<Arc<str>> = written
            .filter_map(|m| match m {
                Mutation::Buffer(path) => Some(path.clone()),
                Mutation::Input(_) => None,
            })
            .collect();
        self.attributes
            .retain(|a, _| written.contains(a) || used.iter().any(|u| is_below(a, u)));
    }

    /// The paths that the graphs call or read.
    fn referred_paths(&self) -> HashSet<Arc<str>> {
        let nodes = self.graphs.values().flat_map(|g| g.iter().map(|n| &g[n]));
        nodes
            .filter(|n| matches!(n.op(), Opcode::CallModule | Opcode::GetAttr))
            .map(|n| n.target().into())
            .collect()
    }

    /// Creates a separate module with `graph` as its entry, the graphs of this module that it calls, and the modules
    /// and attributes that these refer to (torch's `lift_subgraph_as_module`).
    pub fn lift(&self, name: &str, graph: Graph) -> GraphModule {
        let mut out = GraphModule {
            name: name.into(),
            ops: self.ops.clone(),
            dims: self.dims.clone(),
            guards: self.guards.clone(),
            weights: self.weights.clone(),
            printed: self.printed,
            ..GraphModule::default()
        };
        out.graphs.insert(name.into(), graph);
        let mut index = 0;
        while let Some((_, g)) = out.graphs.get_index(index) {
            let mut called: Vec<Arc<str>> = vec![];
            for n in g.iter() {
                called.push(g[n].target().into());
                let args = g[n].args().iter().chain(g[n].kwargs().iter().map(|(_, v)| v));
                args.for_each(|a| graph_names(a, &mut called));
            }
            for c in called {
                if let Some(g) = self.graphs.get(&c).filter(|_| !out.graphs.contains_key(&c)) {
                    out.graphs.insert(c, g.clone());
                }
            }
            index += 1;
        }
        let used = out.referred_paths();
        let is_used = |path: &str| used.iter().any(|u| is_below(path, u));
        let modules = self.modules.iter().filter(|(path, _)| is_used(path));
        out.modules = modules.map(|(p, m)| (p.clone(), m.clone())).collect();
        let attributes = self.attributes.iter().filter(|(path, _)| is_used(path));
        out.attributes = attributes.map(|(p, a)| (p.clone(), a.clone())).collect();
        out
    }

    /// Erases dead code in every graph, called graphs first. See [`Graph::eliminate_dead_code`].
    pub fn eliminate_dead_code(&mut self) -> usize {
        let names: Vec<Arc<str>> = self.graphs.keys().rev().cloned().collect();
        let mut erased = 0;
        for name in names {
            let Some(slot) = self.graphs.get_mut(&name) else {
                continue;
            };
            let mut graph = std::mem::take(slot);
            erased += graph.eliminate_dead_code(Some(self));
            if let Some(slot) = self.graphs.get_mut(&name) {
                *slot = graph;
            }
        }
        erased
    }
}

/// The graphs that an argument names.
fn graph_names(arg: &Arg, out: &mut Vec<Arc<str>>) {
    match arg {
        Val::Graph(name) => out.push(name.clone()),
        Val::List(v) | Val::Tuple(v) => v.iter().for_each(|a| graph_names(a, out)),
        Val::Dict(v) => v.iter().for_each(|(_, a)| graph_names(a, out)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> GraphModule {
        let g = Graph::trace(&["x"], |t, p| {
            let y = t.function("helper", (&p[0],), &[]);
            y + t.attribute("a.weight")
        });
        let mut m = GraphModule::new("m", g);
        m.graphs
            .insert("helper".into(), Graph::trace(&["x"], |_, p| p[0].method("exp", ())));
        m.graphs
            .insert("other".into(), Graph::trace(&["x"], |_, p| p[0].method("sin", ())));
        for path in ["a", "ab"] {
            m.add_submodule(path, "Linear", vec![Literal::int(2), Literal::int(3)], vec![])
                .unwrap();
            m.add_parameter(&format!("{path}.weight"), Tensor::from_slice(&[1], &[1f32]));
        }
        m
    }

    #[test]
    fn unused_modules_go_with_their_attributes() {
        let mut m = module();
        m.delete_all_unused_submodules();
        assert_eq!(m.modules.keys().map(|k| &**k).collect::<Vec<_>>(), ["a"]);
        assert_eq!(m.attributes.keys().map(|k| &**k).collect::<Vec<_>>(), ["a.weight"]);
        assert!(m.delete_submodule("a") && !m.delete_submodule("a"));
        assert!(m.modules.is_empty() && m.attributes.is_empty());
        m.add_buffer("a", Tensor::from_slice(&[1], &[1f32]));
        assert!(m.add_submodule("a", "ReLU", vec![], vec![]).is_err());
    }

    #[test]
    fn a_lifted_graph_has_what_it_needs() {
        let m = module();
        let lifted = m.lift("part", m.graphs["m"].clone());
        assert_eq!(
            lifted.graphs.keys().map(|k| &**k).collect::<Vec<_>>(),
            ["part", "helper"]
        );
        assert_eq!(lifted.attributes.keys().map(|k| &**k).collect::<Vec<_>>(), ["a.weight"]);
        assert!(lifted.modules.is_empty());
    }
}
