//! Options that every command which compiles has in common.

use super::{App, Stop};
use crate::diag::{Code, Diagnostic};
use crate::driver::{Dims, Model};
use crate::graph::GraphModule;
use crate::pass;

/// The model and how to compile it.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// The model: FXIR, text that torch printed, a .pt2 archive, or `-` for standard input
    pub model: String,
    /// Binds a symbolic size
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    pub dims: Vec<(String, i64)>,
    /// Check the graph after every pass
    #[arg(long)]
    pub verify_each: bool,
}

fn parse_dim(text: &str) -> Result<(String, i64), String> {
    let (name, size) = text.split_once('=').ok_or("write it as NAME=SIZE, such as N=8")?;
    let size = size.parse().map_err(|_| format!("`{size}` is not a size"))?;
    Ok((name.to_string(), size))
}

impl ModelArgs {
    /// The sizes given.
    pub fn dims(&self) -> Dims {
        self.dims.iter().cloned().collect()
    }

    /// How to optimise.
    pub fn pass_options(&self) -> pass::PassOptions {
        pass::PassOptions {
            verify_each: self.verify_each,
            ..pass::PassOptions::default()
        }
    }

    /// Loads the model.
    pub fn load(&self, app: &mut App) -> Result<Model, Stop> {
        app.subject(&self.model);
        Ok(app.session.load(&self.model)?)
    }

    /// The sizes to compile for when there are no inputs: those given, and for others the least of their range but not
    /// below 2 (a size of 1 broadcasts and would not show what the code does). Also says which were assumed.
    pub fn assumed_dims(&self, module: &GraphModule) -> Result<(Dims, Vec<String>), Stop> {
        let mut dims = self.dims();
        let mut assumed = vec![];
        let mut names: Vec<String> = vec![];
        let graph = module.entry();
        for (g, p) in graph
            .iter()
            .flat_map(|g| g.placeholders().into_iter().map(move |p| (g, p)))
        {
            for t in g[p].meta.ty.iter().flat_map(|t| t.leaves()) {
                t.shape
                    .iter()
                    .flatten()
                    .for_each(|d| d.visit_vars(&mut |v| names.push(v.to_string())));
            }
        }
        for name in dims.keys() {
            if !names.contains(name) {
                return Err(Diagnostic::new(Code::E0505, format!("no size is named `{name}`")).into());
            }
        }
        for name in names {
            if dims.contains_key(&name) {
                continue;
            }
            let range = module.dims.get(name.as_str());
            let size = range.map_or(2, |r| r.min.max(2).min(r.max.unwrap_or(i64::MAX)));
            assumed.push(format!("{name} = {size}"));
            dims.insert(name, size);
        }
        Ok((dims, assumed))
    }
}
