//! Calls of each row that are known to be valid: its example, and the recorded cases that call it.

use fxc::graph::{Graph, GraphModule, Opcode};
use fxc::internals::driver::Session;
use fxc::internals::op::{self, examples};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

/// Files of graphs, one a case.
const RECORDED: [&str; 2] = [include_str!("../data/opinfo.json"), include_str!("../data/more.json")];

/// The most calls of a template: a longer one tests few combinations.
const MOST_CALLS: usize = 8;

/// A graph that calls a row.
pub struct Template {
    text: String,
    parsed: OnceLock<Option<Graph>>,
}

/// The templates of all rows.
pub struct Templates {
    /// The rows with templates, in the table's order.
    pub rows: Vec<&'static str>,
    by_row: BTreeMap<&'static str, Vec<Template>>,
}

/// The templates; each is parsed when it is first used.
pub static TEMPLATES: LazyLock<Templates> = LazyLock::new(Templates::collect);

impl Template {
    /// The graph with its types, if it stands alone.
    pub fn graph(&self) -> Option<&Graph> {
        self.parsed.get_or_init(|| parse(&self.text)).as_ref()
    }
}

impl Templates {
    fn collect() -> Templates {
        let mut by_row: BTreeMap<&'static str, Vec<Template>> = BTreeMap::new();
        let mut add = |text: String| {
            for row in called_rows(&text) {
                let parsed = OnceLock::new();
                let text = text.clone();
                by_row.entry(row).or_default().push(Template { text, parsed });
            }
        };
        examples::all_examples().for_each(|(_, text)| add(text));
        for file in RECORDED {
            let whole: Json = serde_json::from_str(file).expect("JSON");
            let cases = whole["cases"].as_array().expect("cases");
            cases
                .iter()
                .filter_map(|c| c["text"].as_str())
                .for_each(|t| add(t.to_string()));
        }
        let rows = op::all()
            .iter()
            .map(|op| op.name)
            .filter(|n| by_row.contains_key(n))
            .collect();
        Templates { rows, by_row }
    }

    /// The templates of a row.
    pub fn of(&self, row: &str) -> &[Template] {
        self.by_row.get(row).map_or(&[], |v| v)
    }
}

/// The rows that the first reading of each call stands for.
fn called_rows(text: &str) -> Vec<&'static str> {
    let calls = ["call_function ", "call_method "];
    let is_method = |c: &str| c == "call_method ";
    let mut rows: Vec<&'static str> = vec![];
    for call in calls {
        for rest in text.split(call).skip(1) {
            let target = rest.split('(').next().unwrap_or_default();
            let path = op::canonical_path(target, is_method(call));
            let Some(found) = op::candidates(&path).first().map(|c| c.op.name) else {
                continue;
            };
            if found != "getitem" && !rows.contains(&found) {
                rows.push(found);
            }
        }
    }
    rows
}

fn parse(text: &str) -> Option<Graph> {
    let mut session = Session::new();
    let mut model = session.load_text("template", text).ok()?;
    session.check(&mut model.module, &[]).ok()?;
    let GraphModule {
        graphs,
        modules,
        attributes,
        ops,
        ..
    } = model.module;
    let alone = graphs.len() == 1 && modules.is_empty() && attributes.is_empty() && ops.is_empty();
    let graph = graphs.into_iter().next()?.1;
    let calls = graph.iter().filter(|&n| graph[n].op().is_call()).count();
    let reads = graph.iter().any(|n| graph[n].op() == Opcode::GetAttr);
    (alone && !reads && (1..=MOST_CALLS).contains(&calls)).then_some(graph)
}
