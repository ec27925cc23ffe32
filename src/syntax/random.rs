//! Tests with random trees and texts: printing and parsing a tree restores it, and no text makes the front end panic.

mod values;

use self::values::{arb_comparison, arb_condition, arb_size, arb_type, arb_value};
use super::ast::*;
use super::*;
use crate::source::{FileId, Span};
use proptest::prelude::*;

fn arb_name() -> impl Strategy<Value = Name> {
    let word = prop_oneof![
        "[a-zA-Z_][a-zA-Z0-9_]{0,6}",
        prop::sample::select(vec![
            "graph", "output", "dim", "loc", "updates", "param", "slice", "None", "inf", "frame", "scope", "as"
        ])
        .prop_map(String::from),
    ];
    word.prop_filter("operators are not names", |s| !token::RESERVED.contains(&&**s))
        .prop_map(make_name)
}

/// A bare name that is not a constant of Python.
fn size_name() -> impl Strategy<Value = Name> {
    "[A-Z][a-z]?[0-9]?".prop_map(make_name)
}

fn arb_label() -> impl Strategy<Value = Name> {
    prop_oneof![
        4 => arb_name(),
        2 => "[a-z]{1,4}(\\.[a-z0-9_]{1,4}){1,3}".prop_map(make_name),
        1 => any::<String>().prop_map(make_name),
        1 => prop::sample::select(vec!["in", "0.weight", "a..b", "", "*", "not", "é"]).prop_map(|s| make_name(s.into())),
    ]
}

fn make_name(text: String) -> Name {
    Name::new(text, Span::default())
}

fn make_value(kind: ValueKind) -> Value {
    Value::new(kind, Span::default())
}

fn arb_args() -> impl Strategy<Value = Args> {
    let keyword = prop::collection::vec((arb_label(), arb_value()), 0..3);
    (prop::collection::vec(arb_value(), 0..4), keyword).prop_map(|(positional, keyword)| Args { positional, keyword })
}

fn positional_args(positional: Vec<Value>) -> Args {
    Args {
        positional,
        keyword: vec![],
    }
}

/// A value in a side of a one-line rule: literals, calls, and names for them.
fn arb_nested() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        2 => arb_value(),
        1 => (node_name(), arb_type()).prop_map(|(name, ty)| actions::binding(name, Some(ty), None, Span::default())),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let keyword = prop::collection::vec((arb_label(), inner.clone()), 0..2);
        let args = (prop::collection::vec(inner.clone(), 0..3), keyword);
        let call = ("op_[a-z]{2}", args)
            .prop_map(|(name, (positional, keyword))| {
                make_value(ValueKind::Call(make_name(name), Args { positional, keyword }))
            })
            .boxed();
        prop_oneof![
            2 => call.clone(),
            1 => prop::collection::vec(inner, 0..3).prop_map(|v| make_value(ValueKind::List(v))),
            1 => (node_name(), prop::option::of(arb_type()), call)
                .prop_map(|(name, ty, call)| actions::binding(name, ty, Some(call), Span::default())),
        ]
    })
}

fn arb_stmt() -> impl Strategy<Value = Stmt> {
    let kind = prop::sample::select(vec![CallKind::Function, CallKind::Method, CallKind::Module]);
    let starred = ("\\*{1,2}", "[a-z]{1,5}").prop_map(|(a, b)| make_name(a + &b));
    let op = prop_oneof![
        2 => (prop_oneof![3 => arb_label(), 1 => starred], prop::option::of(arb_value()))
            .prop_map(|(target, default)| Op::Placeholder { target, default }),
        1 => arb_label().prop_map(|target| Op::GetAttr { target }),
        5 => (kind, arb_label(), arb_args()).prop_map(|(kind, target, args)| Op::Call { kind, target, args }),
        1 => arb_value().prop_map(|value| Op::Output { value }),
    ];
    let node = "[a-z_][a-z0-9_]{0,6}".prop_map(make_name);
    let traced = (
        prop::option::weighted(0.2, arb_loc()),
        prop::option::weighted(0.2, arb_origin()),
    );
    (node, prop::option::of(arb_type()), op, traced)
        .prop_map(|(name, ty, op, traced)| actions::stmt_from(Some(name), ty, op, Some(traced), Span::default()))
}

fn arb_loc() -> impl Strategy<Value = Loc> {
    let code = prop::option::of(any::<String>());
    (any::<String>(), 0u32..9999, prop::option::of(arb_label()), code).prop_map(|(file, line, function, code)| Loc {
        file: file.into(),
        line,
        function: function.map(|n| n.text),
        code: code.map(|c| c.into()),
        span: Span::default(),
    })
}

/// The origin after a line; it is not empty.
fn arb_origin() -> impl Strategy<Value = Box<Origin>> {
    let name = || prop::option::of("[a-z][0-9]{1,2}".prop_map(make_name));
    let pair = || (any::<String>(), any::<String>()).prop_map(|(a, b)| (a.into(), b.into()));
    (
        name(),
        name(),
        prop::option::of(pair()),
        prop::collection::vec(pair(), 1..3),
    )
        .prop_map(|(frame, scope, call, custom)| {
            Box::new(Origin {
                frame,
                scope,
                call,
                custom,
            })
        })
}

fn arb_spec(kinds: &'static [&'static str]) -> impl Strategy<Value = Spec> {
    let target = prop::option::of((arb_label(), prop::option::of(any::<bool>())));
    (arb_label(), prop::sample::select(kinds), target).prop_map(|(name, kind, target)| Spec {
        name: (!name.text.is_empty()).then_some(name),
        kind: make_name(kind.into()),
        persistent: target.as_ref().and_then(|t| t.1),
        target: target.map(|t| t.0.text),
    })
}

/// A signature of an exported program, and origins.
fn arb_export() -> impl Strategy<Value = Item> {
    let span = Span::default();
    let inputs = prop::collection::vec(arb_spec(&["USER_INPUT", "BUFFER", "graph"]), 0..3);
    let outputs = prop::collection::vec(arb_spec(&["USER_OUTPUT", "BUFFER_MUTATION"]), 0..3);
    let ranges = prop::collection::vec((arb_label(), any::<String>()), 0..2);
    let text = |(n, r): (Name, String)| (n.text, r.into());
    let signature = (inputs, outputs, ranges).prop_map(move |(inputs, outputs, ranges)| {
        actions::signature(inputs, outputs, Some(ranges.into_iter().map(text).collect()), span)
    });
    let parent = || prop::option::of(arb_name());
    prop_oneof![
        signature,
        (arb_name(), parent(), arb_loc()).prop_map(move |(name, parent, place)| Item::Frame(FrameDecl {
            name,
            parent,
            place,
            span
        })),
        (arb_name(), parent(), arb_label(), arb_label()).prop_map(move |(name, parent, path, class)| Item::Scope(
            ScopeDecl {
                name,
                parent,
                path,
                class,
                span
            }
        )),
    ]
}

fn arb_body() -> impl Strategy<Value = Body> {
    let output =
        arb_value().prop_map(|value| actions::make_stmt(None, None, Op::Output { value }, None, Span::default()));
    (prop::collection::vec(arb_stmt(), 0..6), output).prop_map(|(mut stmts, o)| {
        stmts.push(o);
        Body {
            stmts,
            ..Body::default()
        }
    })
}

fn arb_declaration() -> impl Strategy<Value = Item> {
    let span = Span::default();
    prop_oneof![
        arb_label().prop_map(move |path| Item::Weights(Weights { path, span })),
        (arb_label(), arb_label(), arb_args()).prop_map(move |(name, class, args)| Item::Module(ModuleDecl {
            name,
            class,
            args,
            span
        })),
        (arb_label(), arb_type(), prop::option::of(arb_value()))
            .prop_map(move |(name, ty, value)| Item::Const(ConstDecl { name, ty, value, span })),
        (any::<bool>(), arb_label(), arb_type()).prop_map(move |(buffer, name, ty)| Item::Tensor(TensorDecl {
            buffer,
            name,
            ty,
            span
        })),
        (arb_name(), any::<i64>(), prop::option::of(any::<i64>()))
            .prop_map(move |(name, min, max)| Item::Dim(DimDecl { name, min, max, span })),
        (arb_comparison(), arb_size(), arb_size()).prop_map(move |(op, a, b)| Item::Guard(GuardDecl {
            condition: make_value(ValueKind::Binary(op, Box::new(a), Box::new(b))),
            span
        })),
        (arb_name(), arb_name()).prop_map(move |(schema, expr)| Item::Pointwise(PointwiseDecl { schema, expr, span })),
    ]
}

fn node_name() -> impl Strategy<Value = Name> {
    "[a-z]{1,3}".prop_map(make_name)
}

fn arb_graph() -> impl Strategy<Value = Item> {
    let update = prop_oneof![
        arb_label().prop_map(Update::Buffer),
        node_name().prop_map(Update::Input)
    ];
    let updates = prop::collection::vec(update, 0..3);
    let names = || prop::collection::vec(arb_label(), 0..3);
    let called = (names(), prop::option::of(names())).prop_map(|(args, kwargs)| Called { args, kwargs });
    let head = (
        arb_name(),
        prop::option::of(arb_label()),
        updates,
        prop::option::of(called),
    );
    (head, arb_body()).prop_map(|((name, attribute, updates, called), body)| {
        actions::graph(name, attribute, Some(updates), called, body, Span::default())
    })
}

fn arb_rewrite() -> impl Strategy<Value = Item> {
    let param = prop_oneof![
        (node_name(), prop::option::of(arb_type())).prop_map(|(n, t)| RewriteParam::Node(n, t)),
        node_name().prop_map(RewriteParam::Rest),
        node_name().prop_map(RewriteParam::Literal)
    ];
    let params = prop::collection::vec(param, 0..3);
    let mark = prop::sample::select(vec![None, Some(RewriteMark::Exact), Some(RewriteMark::Fast)]);
    let side = || arb_nested().prop_map(actions::side);
    let sides = prop_oneof![
        (params.prop_map(Some), arb_body(), arb_body()),
        (Just(None), side(), side()),
    ];
    (mark, arb_name(), sides, prop::option::of(arb_condition())).prop_map(
        |(mark, name, (params, pattern, replacement), condition)| {
            actions::rewrite(mark, name, params, pattern, replacement, condition, Span::default())
        },
    )
}

fn arb_item() -> impl Strategy<Value = Item> {
    prop_oneof![7 => arb_declaration(), 1 => arb_graph(), 1 => arb_export(), 1 => arb_rewrite()]
}

/// The debug text of a tree without spans, for comparison. NaN equals NaN there.
fn without_places(mut file: File) -> String {
    spans::visit_file(&mut file, &mut |s| *s = Span::default());
    format!("{:#?}", file.items)
}

proptest! {
    #[test]
    fn printed_trees_parse_to_themselves(items in prop::collection::vec(arb_item(), 0..4)) {
        let file = File { items, ..File::default() };
        let text = format(&file, "");
        let (again, findings) = parse_unchecked(FileId(0), &text);
        prop_assert!(findings.is_empty(), "{text}\n{findings:#?}");
        prop_assert_eq!(without_places(again.clone()), without_places(file), "{}", &text);
        prop_assert_eq!(format(&again, &text), text);
    }

    #[test]
    fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        let (file, _) = parse_text(FileId(0), &text);
        format(&file, &text);
    }

    #[test]
    fn no_heap_of_tokens_panics(words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..60)) {
        let text = words.join(" ");
        let (file, findings) = parse_text(FileId(0), &text);
        let once = format(&file, &text);
        if findings.is_empty() {
            let (file, findings) = parse_text(FileId(0), &once);
            prop_assert!(findings.is_empty(), "{once}\n{findings:#?}");
            prop_assert_eq!(format(&file, &once), once);
        }
    }
}

const WORDS: [&str; 67] = [
    "graph",
    "a",
    "{",
    "}",
    "%x",
    "=",
    ":",
    "placeholder",
    "call_function",
    "output",
    "(",
    ")",
    "[",
    "]",
    ",",
    "1",
    "2.5",
    "1j",
    "-",
    "+",
    "*",
    "\"s\"",
    "'t'",
    "f32",
    "loc",
    "in",
    "where",
    "rewrite",
    "=>",
    "$a",
    "@g",
    "not",
    "and",
    "?",
    "..",
    "dim",
    "N",
    "module",
    "Linear",
    "const",
    "\n",
    "# c\n",
    "\ngraph():\n",
    "\n    %x : [num_users=1] = placeholder[target=x]\n",
    "\n    %y : [num_users=1] = call_function[target=f](args = (%x, a, [1]), kwargs = {k: v})\n",
    "\n    return x\n",
    "\n    return {'a': x}\n",
    "\"",
    "'",
    "\\",
    "slice",
    "torch.float32",
    "\u{e9}",
    "**",
    "//",
    "%",
    "a.b",
    "1..",
    "updates",
    "called",
    "frame",
    "scope",
    "signature",
    ">",
    "buffer",
    "get_attr",
    "==",
];

/// Cuts and moves pieces of well-formed statements.
#[test]
fn cut_texts_do_not_panic() {
    for text in [
        include_str!("testdata/language.fxir"),
        include_str!("testdata/print.txt"),
    ] {
        for end in (0..text.len()).filter(|&i| text.is_char_boundary(i)) {
            let (file, _) = parse_text(FileId(0), &text[..end]);
            format(&file, &text[..end]);
        }
        for start in (0..text.len()).filter(|&i| i % 7 == 0 && text.is_char_boundary(i)) {
            parse_text(FileId(0), &text[start..]);
        }
    }
}
