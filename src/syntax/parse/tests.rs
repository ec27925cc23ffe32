use super::*;

fn codes(text: &str) -> Vec<Code> {
    parse_text(FileId(0), text).1.iter().map(|d| d.code).collect()
}

fn titles(text: &str) -> Vec<String> {
    let d = parse_text(FileId(0), text).1;
    d.iter()
        .map(|d| format!("{} | {}", d.title, d.labels[0].text))
        .collect()
}

#[test]
fn the_whole_language_parses() {
    let text = include_str!("../testdata/language.fxir");
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(file.items.len(), 21);
}

#[test]
fn every_error_of_a_file_is_reported() {
    let text = "graph a {\n %x = placeholder\n %y = call_function relu(%x,,)\n %z = call_functio add(%x, %y)\n q = get_attr w\n output (%x)\n}\nmodul b = Linear(1)\ngraph c { output %x + }\nconst k : f32[] 3\n";
    assert_eq!(
        codes(text),
        [
            Code::E0001,
            Code::E0001,
            Code::E0010,
            Code::E0009,
            Code::E0011,
            Code::E0001,
            Code::E0001,
            Code::E0001
        ],
        "{:#?}",
        titles(text)
    );
}

#[test]
fn brackets_are_named_with_their_opening() {
    let text = "graph a {\n %x = placeholder x\n %y = call_function relu(%x, [1, 2)\n %z = call_function add(%x, %y\n output %z\n\ngraph b {\n output ()\n}\n}\n";
    let found = titles(text);
    assert_eq!(
        found,
        [
            "graph `a` is not closed | opened here",
            "`[` is not closed | opened here",
            "`(` is not closed | opened here",
            "unmatched `}` | no bracket of this kind is open here"
        ]
    );
}

#[test]
fn depth_is_limited_and_said_once() {
    let n = 100_000;
    let deep = |open: &str, close: &str| format!("graph a {{ output {}1{} }}", open.repeat(n), close.repeat(n));
    for text in [
        deep("(", ")"),
        deep("[", "]"),
        deep("{1: ", "}"),
        deep("- ", ""),
        deep("1 + ", ""),
        deep("not ", ""),
        deep("f(", ")"),
    ] {
        assert_eq!(codes(&text), [Code::E0008], "{}", &text[..40]);
    }
    let wide = format!("graph a {{ output [{}] }}", "-1, ".repeat(n));
    assert_eq!(codes(&wide), []);
    let negatives = format!("graph a {{ {} output () }}", "%x = placeholder x = -1 ".repeat(1000));
    assert_eq!(codes(&negatives), []);
}

#[test]
fn slips_get_help() {
    for (text, code, title) in [
        ("graph a { output x }", Code::E0009, "unknown name `x`"),
        (
            "graph a { %x = relu(%y) }",
            Code::E0010,
            "an opcode is missing before `relu`",
        ),
        (
            "graph a { %x = call_function f(1, a=2, 3) output %x }",
            Code::E0014,
            "positional argument after a keyword argument",
        ),
        ("graph a { output $a }", Code::E0012, "`$a` outside a rewrite rule"),
        (
            "graph a { output %x + 1 }",
            Code::E0012,
            "an argument cannot be a call or an expression on nodes",
        ),
        (
            "graph a { output slice() }",
            Code::E0012,
            "invalid arguments for `slice`",
        ),
        (
            "graph a { output frob(1) }",
            Code::E0012,
            "an argument cannot be a call or an expression on nodes",
        ),
    ] {
        let (_, d) = parse_text(FileId(0), text);
        let d: Vec<_> = d.iter().collect();
        assert_eq!(d.len(), 1, "{text}: {d:#?}");
        assert_eq!((d[0].code, &*d[0].title), (code, title));
    }
}

#[test]
fn keywords_are_names_where_names_stand() {
    let text = "module output = Linear(1, 2) graph graph { %dim = placeholder dim %x = call_method output(%dim, dim=1, where=2) loc(\"f.py\":3 in loc) output %x }";
    assert_eq!(codes(text), []);
}
