use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::json;
use crate::graph::{self, GraphModule};
use crate::import;
use clap::ValueEnum;
use std::path::Path;

/// Write a model in another form
#[derive(clap::Args)]
pub struct Args {
    /// The model
    model: String,
    /// The form
    #[arg(long, default_value = "fxir")]
    format: Form,
    /// Where to; standard output by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write the parameters, buffers and constants here, and let the FXIR name the file
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
    /// Infer types first, and write them
    #[arg(long)]
    typed: bool,
}

/// The forms of a model as text.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Form {
    /// FXIR, which holds everything
    Fxir,
    /// As torch's print(graph)
    Torch,
    /// As torch's gm.code
    Code,
    /// As torch's gm.print_readable()
    Readable,
    /// As torch's print(exported_program)
    Program,
    /// As torch's graph.print_tabular()
    Tabular,
    /// As torch's FxGraphDrawer, for Graphviz
    Dot,
    /// JSON
    Json,
}

/// `fxc print`.
pub fn main(app: &mut App, args: &Args) -> Outcome {
    app.subject(&args.model);
    // Torch's own texts show an exported program as it was exported.
    app.session.lifted = matches!(
        args.format,
        Form::Torch | Form::Code | Form::Readable | Form::Program | Form::Tabular
    ) && args.weights.is_none();
    let mut model = app.session.load(&args.model)?;
    if args.typed {
        app.session.check(&mut model.module, &[])?;
    }
    app.show();
    let mut module = model.module;
    if let Some(path) = &args.weights {
        import::write_weights(&module, Path::new(path), |_, a| !graph::print::is_inline(a))?;
        module.weights = Some((relative(path, args.output.as_deref()), None));
    } else if args.format == Form::Fxir {
        // A path that is relative to the source must be found from where the text is written, too.
        carry_weights(&mut module, &args.model, args.output.as_deref());
    }
    output::artifact(args.output.as_deref(), write(&module, args.format)?.as_bytes())
}

/// The module in that form.
pub fn write(m: &GraphModule, form: Form) -> Result<String, Stop> {
    let each = |f: &dyn Fn(&str, &graph::Graph) -> String| {
        let texts: Vec<String> = m.graphs.iter().map(|(name, g)| f(name, g)).collect();
        texts.join("\n")
    };
    let ended = |mut s: String| {
        if !s.ends_with('\n') {
            s.push('\n');
        }
        s
    };
    let text = match form {
        Form::Fxir => graph::print(m),
        Form::Torch => each(&|_, g| ended(graph::torch_print::print(g, Some(m)))),
        Form::Code => m.entry().map_or(String::new(), |g| graph::python::code(g, Some(m)).source),
        Form::Readable => graph::readable::print_readable(m),
        Form::Program => graph::readable::print_program(m),
        Form::Tabular => each(&|_, g| ended(graph::tabular::print_tabular(g, Some(m)))),
        Form::Dot => each(&|name, g| ended(graph::dot::dot(g, name, Some(m)))),
        Form::Json => format!("{:#}\n", json::module(m)),
    };
    if text.is_empty() {
        return Err(Diagnostic::new(Code::E0113, "there is no graph to print").into());
    }
    Ok(text)
}

/// The path of the weights file as the FXIR names it: relative to the FXIR file if both are in one directory.
fn relative(path: &str, output: Option<&str>) -> String {
    let dir = |p: &str| Path::new(p).parent().map(Path::to_path_buf).unwrap_or_default();
    match output.filter(|o| *o != "-") {
        Some(o) if dir(o) == dir(path) => Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        Some(_) => std::path::absolute(path).map_or(path.to_string(), |p| p.display().to_string()),
        None => path.to_string(),
    }
}

fn carry_weights(m: &mut GraphModule, source: &str, output: Option<&str>) {
    let Some((path, span)) = m.weights.take() else { return };
    let dir = Path::new(source).parent().unwrap_or(Path::new(""));
    let same = output.is_none_or(|o| o == "-" || Path::new(o).parent().unwrap_or(Path::new("")) == dir);
    let path = if same || Path::new(&path).is_absolute() {
        path
    } else {
        std::path::absolute(dir.join(&path)).map_or(path, |p| p.display().to_string())
    };
    m.weights = Some((path, span));
}
