//! What a graph computes, in one form for the interpreter and compiled code.

use fxc::diag::Diagnostic;
use fxc::graph::{GraphModule, Mutation};
use fxc::internals::driver::run::user_result;
use fxc::internals::driver::{BoundInputs, CallResult, Function, LoadedModel, Request, Session};
use fxc::internals::op::random;
use fxc::internals::tensor::Tensor;
use fxc::interp::{Hooks, Interpreter, RuntimeValue};
use fxc::types::{DType, Val};

/// The results in order, then the inputs as the caller has them afterwards. Numbers are tensors of no dims.
pub type Outcome = Vec<(String, Tensor)>;

/// The text of a panic.
pub fn panic_text(e: &(dyn std::any::Any + Send)) -> String {
    let text = e.downcast_ref::<String>().map(String::as_str);
    text.or(e.downcast_ref::<&str>().copied()).unwrap_or("?").to_string()
}

/// The errors of a session, in a line.
pub fn errors(session: &Session) -> String {
    let errors = session.diagnostics.iter().filter(|d| d.is_error());
    errors.map(describe).collect::<Vec<_>>().join("; ")
}

pub fn describe(d: &Diagnostic) -> String {
    format!("{} {} {}", d.code, d.title, d.notes.join(" "))
}

/// A text read and checked.
pub fn load(text: &str) -> Result<GraphModule, String> {
    let mut session = Session::new();
    let mut model = session.load_text("graph", text).map_err(|_| errors(&session))?;
    session.check(&mut model.module, &[]).map_err(|_| errors(&session))?;
    Ok(model.module)
}

fn number(v: &RuntimeValue) -> Option<Tensor> {
    match v {
        Val::Leaf(t) => Some(t.clone()),
        Val::Bool(b) => Some(Tensor::scalar(*b as u8).to(DType::B8)),
        Val::Float(x) => Some(Tensor::scalar(*x)),
        Val::Int(_) => v.as_int().map(Tensor::scalar),
        _ => None,
    }
}

fn outcome(module: &GraphModule, inputs: &[Tensor], result: &RuntimeValue, written: &[(Mutation, Tensor)]) -> Outcome {
    let leaves = result.flatten().into_iter().filter_map(number);
    let mut out: Outcome = leaves.enumerate().map(|(i, t)| (format!("output.{i}"), t)).collect();
    let Some(graph) = module.entry() else { return out };
    for (p, given) in graph.placeholders().into_iter().zip(inputs) {
        let name = graph[p].name();
        let last = written
            .iter()
            .find(|(m, _)| matches!(m, Mutation::Input(n) if **n == *name || **n == *graph[p].target()));
        out.push((format!("input.{name}"), last.map_or(given, |(_, t)| t).clone()));
    }
    out
}

/// What the interpreter computes.
pub fn interpreted(module: &GraphModule, inputs: &[Tensor], hooks: &mut dyn Hooks) -> Result<Outcome, String> {
    random::seed(0);
    let mut interpreter = Interpreter::new(module);
    interpreter.watch_inputs();
    // An interpreter may write to its inputs.
    let values = inputs.iter().map(|t| Val::Leaf(t.deep_copy())).collect();
    let result = interpreter.run_with(values, hooks).map_err(|d| describe(&d))?;
    let written = interpreter.written_values();
    let result = module.entry().map_or(Val::None, |g| user_result(g, result));
    Ok(outcome(module, inputs, &result, &written))
}

/// What compiled code computes.
pub fn compiled(
    session: &mut Session,
    module: GraphModule,
    inputs: &[Tensor],
    request: Request,
) -> Result<Outcome, String> {
    random::seed(0);
    let bound = BoundInputs {
        values: inputs.iter().map(|t| Val::Leaf(t.deep_copy())).collect(),
        types: inputs.iter().map(|t| Val::Leaf(t.ty())).collect(),
        dims: request.dims.clone(),
    };
    let mut function = Function::new(LoadedModel::new("graph", module.clone()), request);
    let CallResult { result, written } = function.call(session, &bound).map_err(|_| errors(session))?;
    Ok(outcome(&module, inputs, &result, &written))
}
