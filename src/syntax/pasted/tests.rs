use super::super::ast::{Item, Op};
use super::super::parse_text;
use crate::source::FileId;

const GRAPH: &str = "graph():\n    %x : [num_users=1] = placeholder[target=x]\n    %y : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})\n    return y";
const CODE: &str = "\n\n\ndef forward(self, x):\n    y = torch.relu(x);  x = None\n    return y\n    ";

fn decorated(text: &str, f: impl Fn(usize, &str) -> String) -> String {
    text.lines().enumerate().map(|(i, l)| f(i + 1, l) + "\n").collect()
}

/// The source texts of the statements' spans.
#[track_caller]
fn statements(text: &str) -> Vec<String> {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{text}\n{findings:#?}");
    let graph = file.items.iter().find_map(|i| match i {
        Item::Graph(g) => Some(g),
        _ => None,
    });
    let stmts = &graph.expect("a graph").body.stmts;
    assert_eq!(stmts.len(), 3, "{text}");
    assert!(matches!(stmts[2].op, Op::Output { .. }));
    stmts.iter().map(|s| text[s.span.range()].trim().to_string()).collect()
}

#[test]
fn pasted_texts_are_read() {
    for text in [GRAPH, CODE] {
        for (what, pasted) in [
            ("prompt", format!(">>> print(gm)\n{text}\n\n>>> \n")),
            ("ipython", format!("In [3]: print(gm)\n{text}\n\nIn [4]: \n")),
            ("fence", format!("I get\n\n```python\n{text}\n```\nwhy = me?\n")),
            (
                "prose",
                format!("I traced it, and got:\n\n{text}\n\nAny ideas (really)?\n"),
            ),
            ("quoted", decorated(text, |_, l| format!("> {l}"))),
            ("prompts", decorated(text, |_, l| format!(">>> {l}"))),
            (
                "log",
                decorated(text, |i, l| {
                    format!("V1121 12:00:0{i}.123 77 torch/_dynamo/graph.py:1423] [0/0] [__graph] {l}")
                }),
            ),
            (
                "rank",
                decorated(text, |_, l| format!("[rank0]:V1121 12:00:00.1 7 a.py:3] [0/0] {l}")),
            ),
            (
                "numbers",
                decorated(text, |i, l| format!("{:4} | {l}", i + 7).trim_end().to_string()),
            ),
            ("colons", decorated(text, |i, l| format!("{}: {l}", i + 7))),
            ("tabs", decorated(text, |i, l| format!("{:6}\t{l}", i + 97))),
            ("slashes", decorated(text, |_, l| format!("// {l}"))),
            ("diff", decorated(text, |_, l| format!("+{l}"))),
            ("grep", decorated(text, |_, l| format!("log.txt:{l}"))),
            ("colours", decorated(text, |_, l| format!("\u{1b}[32m{l}\u{1b}[0m"))),
            ("spaces", text.replace("    ", "\u{a0}   ")),
            ("page", format!("<p>I get <pre><code>{text}</code></pre>\n")),
            ("quotes", format!("expected = \"\"\"{text}\"\"\"\n")),
            ("bom", format!("\u{feff}{text}")),
            ("crlf", text.replace('\n', "\r\n")),
        ] {
            let found = statements(&pasted);
            assert!(found[1].contains("relu"), "{what}: {found:?}");
        }
    }
}

#[test]
fn statements_alone_are_read() {
    let bare = "%x = placeholder x\n%y : f32[2] = call_function relu(%x)\noutput %y";
    for pasted in [
        format!("I get\n\n```\n{bare}\n```\nwhy = me?\n"),
        format!("Here is my graph:\n\n{bare}\n\nAny ideas (really)?\n"),
        decorated(bare, |_, l| format!("> {l}")),
        decorated(bare, |i, l| format!("{i}: {l}")),
        decorated(bare, |i, l| format!("{:4} | {l}", i + 7)),
        decorated(bare, |_, l| format!("// {l}")),
    ] {
        let found = statements(&pasted);
        assert_eq!(found, bare.lines().collect::<Vec<_>>(), "{pasted}");
    }
}

#[test]
fn logs_are_read() {
    let body = [
        "TRACED GRAPH",
        " ===== __compiled_fn_1 =====",
        " /lib/torch/fx/_lazy_graph_module.py class <lambda>(torch.nn.Module):",
        "    def forward(self, x: \"f32[s77, 4][4, 1]cpu\"):",
        "        # File: model.py:7 in forward, code: return torch.relu(x)",
        "        y: \"f32[s77, 4][4, 1]cpu\" = torch.relu(x);  x = None",
        "        return y",
        "",
    ];
    let line = |i: usize, l: &str| format!("V1121 12:00:0{i}.123 77 torch/g.py:{i}] [0/{i}] [__graph_code] {l}");
    let text = decorated(&body.join("\n"), line) + "I1121 12:00:09.1 77 torch/h.py:3] aot_config: [a=1]\n";
    let found = statements(&text);
    assert_eq!(found[1], "y: \"f32[s77, 4][4, 1]cpu\" = torch.relu(x)");
}

#[test]
fn the_node_of_an_error_is_read() {
    let text = "RuntimeError: sizes differ\n\nWhile executing %add : [num_users=1] = call_function[target=operator.add](args = (%x, %y), kwargs = {})\nOriginal traceback:\n  File \"model.py\", line 7, in forward\n    return x + y\nUse tlparse to see full graph. (https://github.com/pytorch/tlparse)\n";
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    assert!(matches!(&file.items[..], [Item::Graph(g)] if g.body.stmts.len() == 1));
}

#[test]
fn literals_are_read() {
    for (before, after) in [("E   AssertionError: '", "'"), ("{\"text\": \"", "\", \"level\": 3}")] {
        let text = format!("{before}{}{after}\n", GRAPH.replace('\n', "\\n"));
        let found = statements(&text);
        assert!(found[1].contains("relu"), "{found:?}");
    }
}

#[test]
fn errors_are_told_where_they_stand() {
    let text = decorated(GRAPH, |i, l| format!("{i}: {l}")).replace("(%x,)", "(%z,)");
    let (file, findings) = parse_text(FileId(0), &text);
    assert!(findings.is_empty(), "{findings:#?}");
    let (_, findings) = crate::graph::build(&file, "m");
    let d = findings.iter().next().expect("z is not defined");
    assert_eq!(&text[d.labels[0].span.range()], "%z");
}

#[test]
fn statements_are_no_prose() {
    for left in ["%z = call_function relu(%x)", "module a = Linear(", "return x"] {
        let text = format!("Look:\n{GRAPH}\n{left}\n");
        let (_, findings) = parse_text(FileId(0), &text);
        assert!(findings.has_errors(), "{left}");
    }
}
