use super::*;
use crate::graph::{Arg, Attribute, AttributeKind, InsertPoint, ModuleDecl};
use crate::types::Val;

fn leaf(n: NodeId) -> Arg {
    Val::Leaf(n)
}

fn found(g: Graph) -> Vec<(Code, String)> {
    lint(&GraphModule::new("g", g))
        .iter()
        .map(|d| (d.code, d.title.clone()))
        .collect()
}

fn notes(m: &GraphModule) -> Vec<String> {
    lint(m).iter().flat_map(|d| d.notes.clone()).collect()
}

fn relu(g: &mut Graph, x: NodeId) -> NodeId {
    g.call_function("torch.relu", vec![leaf(x)], vec![])
}

#[test]
fn a_sound_graph_has_no_findings() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let r = relu(&mut g, x);
    g.call_method("add_", vec![leaf(x), Val::int(1)], vec![]);
    g.set_output(leaf(r));
    assert_eq!(found(g), []);
}

#[test]
fn order_and_ownership() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let a = relu(&mut g, x);
    let b = relu(&mut g, a);
    g.move_before(b, a);
    g.set_output(leaf(b));
    let m = GraphModule::new("g", g);
    assert_eq!(
        notes(&m),
        [
            "torch.fx: Argument 'relu' of Node 'relu_1' was used before it has been defined! Please check that Nodes in the \
          graph are topologically ordered"
        ]
    );
}

#[test]
fn a_node_that_uses_itself() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let a = relu(&mut g, x);
    g.set_args(a, vec![leaf(a)]);
    g.set_output(leaf(a));
    assert_eq!(found(g), [(Code::E0102, "`%relu` uses itself".into())]);
}

#[test]
fn interface() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let a = relu(&mut g, x);
    let y = g.create_node(Opcode::Placeholder, "x", vec![], vec![], Some("y"));
    g.set_output(Val::Tuple(vec![leaf(a), leaf(y)]));
    g.call_method("zero_", vec![leaf(x)], vec![]);
    g.set_output(leaf(a));
    let codes: Vec<String> = found(g).into_iter().map(|(c, t)| format!("{c} {t}")).collect();
    assert_eq!(
        codes,
        [
            "E0104 graph `g` has a second output",
            "E0104 `%zero_` comes after the output",
            "E0105 placeholder `%y` comes after other nodes",
            "E0105 two placeholders are named `x`",
        ]
    );
    assert_eq!(found(Graph::new()), [(Code::E0104, "graph `g` has no output".into())]);
}

#[test]
fn names_methods_and_dead_code() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    g.create_named(Opcode::CallFunction, "torch.relu", vec![leaf(x)], vec![], "a b")
        .unwrap();
    g.call_method("size", vec![], vec![]);
    g.set_insert_point(InsertPoint::End);
    g.set_output(leaf(x));
    let codes: Vec<Code> = found(g).into_iter().map(|(c, _)| c).collect();
    assert_eq!(codes, [Code::E0107, Code::E0108, Code::L0001, Code::L0001]);
}

#[test]
fn targets() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let a = g.call_module("net.fc1", vec![leaf(x)], vec![]);
    let b = g.call_module("net.fc2.weight", vec![leaf(a)], vec![]);
    let w = g.get_attr("net.fc3.weight");
    g.set_output(Val::Tuple(vec![leaf(b), leaf(w)]));
    let mut m = GraphModule::new("g", g);
    assert_eq!(notes(&m), Vec::<String>::new());
    let decl = ModuleDecl {
        class: "Linear".into(),
        args: vec![],
        kwargs: vec![],
        span: None,
        places: None,
    };
    m.modules.insert("net.fc2".into(), decl);
    let weight = Attribute {
        kind: AttributeKind::Parameter,
        ty: None,
        value: None,
        span: None,
    };
    m.attributes.insert("net.fc2.weight".into(), weight);
    assert_eq!(
        notes(&m),
        [
            "torch.fx: Node net_fc1 target net.fc1 references nonexistent attribute fc1 of net",
            "torch.fx: Node net_fc2_weight target net.fc2.weight weight of net.fc2 does not reference an nn.Module",
            "torch.fx: Node net_fc3_weight target net.fc3.weight references nonexistent attribute fc3 of net",
        ]
    );
}

#[test]
fn graphs_that_call_themselves() {
    let calls = |target: &str| {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let c = g.call_function(target, vec![leaf(x)], vec![]);
        g.set_output(leaf(c));
        g
    };
    let mut m = GraphModule::new("main", calls("a"));
    m.graphs.insert("a".into(), calls("b"));
    m.graphs.insert("b".into(), calls("a"));
    assert_eq!(notes(&m), ["the call cycle is `a` → `b` → `a`"]);
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let c = g.call_function("cond", vec![leaf(x), Val::Graph("nowhere".into())], vec![]);
    g.set_output(leaf(c));
    assert_eq!(found(g)[0], (Code::E0110, "unknown graph `nowhere`".into()));
}
