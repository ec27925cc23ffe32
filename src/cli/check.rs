//! `fxc check`: everything that is wrong with models, without compiling them.

use super::{App, Outcome, Stop};

/// Check models without compiling them: syntax, graph, ops, types, shapes
#[derive(clap::Args)]
pub struct Args {
    /// The models
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
}

/// `fxc check`.
pub fn main(app: &mut App, args: &Args) -> Outcome {
    let mut failed = false;
    for path in &args.models {
        app.subject(path);
        failed |= one(app, path).is_err();
        app.sum_up();
    }
    if failed { Err(Stop::Reported) } else { Ok(()) }
}

fn one(app: &mut App, path: &str) -> Outcome {
    let mut model = app.session.load_any(path)?;
    let rules = match &model.tree {
        Some(tree) => app.session.rules(tree)?.len(),
        None => 0,
    };
    app.session.check(&mut model.module, &[])?;
    app.show();
    if rules > 0 {
        app.progress(&format!("{path}: {rules} rule{}", if rules == 1 { "" } else { "s" }));
    }
    if model.module.graphs.is_empty() {
        return Ok(());
    }
    let nodes: usize = model.module.graphs.values().map(|g| g.len()).sum();
    let graphs = model.module.graphs.len();
    let plural = if graphs == 1 { "" } else { "s" };
    app.progress(&format!(
        "{path}: {graphs} graph{plural}, {nodes} nodes: all types found"
    ));
    Ok(())
}
