use super::*;

fn leaf(n: NodeId) -> Arg {
    Val::Leaf(n)
}

#[test]
fn edits_keep_users_and_order() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let add = g.call_function("operator.add", vec![leaf(x), leaf(x)], vec![]);
    g.set_output(leaf(add));
    let relu = g
        .inserting_after(Some(add), |g| g.call_function("torch.relu", vec![leaf(add)], vec![]))
        .unwrap();
    let changed = g.replace_uses_where(add, relu, |_, u| u != relu);
    assert_eq!(changed.len(), 1);
    assert_eq!(
        g.iter().map(|n| g[n].name().to_string()).collect::<Vec<_>>(),
        ["x", "add", "relu", "output"]
    );
    assert_eq!(g[x].users().count(), 1);
    let e = g.erase_node(add).unwrap_err();
    assert_eq!(
        e.0,
        "Tried to erase Node add but it still had 1 users in the graph: {relu: None}!"
    );
    g.replace_all_uses_with(relu, x);
    g.erase_node(relu).unwrap();
    g.erase_node(add).unwrap();
    assert_eq!(g.len(), 2);
    assert_eq!(g[x].users().map(|u| g[u].op()).collect::<Vec<_>>(), [Opcode::Output]);
    assert_eq!(g.iter().rev().count(), 2);
}

#[test]
fn errors_have_torchs_texts() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let a = g.call_function("torch.relu", vec![leaf(x)], vec![]);
    g.erase_node(a).unwrap();
    assert_eq!(
        g.erase_node(a).unwrap_err().0,
        "erase_node(relu) on an already erased node"
    );
    let e = g.inserting_before(Some(a), |_| ()).unwrap_err();
    assert_eq!(e.0, "Node to insert before is not in graph.");
    let e = g.inserting_after(Some(a), |_| ()).unwrap_err();
    assert_eq!(e.0, "Node to insert after is not in graph.");
    let e = g.insert_arg(x, 5, Val::None).unwrap_err();
    assert_eq!(e.0, "insert_args index must be between 0 and len(self.args), got 5");
    let e = g
        .create_named(Opcode::Placeholder, "x", vec![], vec![], "x")
        .unwrap_err();
    assert_eq!(e.0, "Node redefined name x!");
}

#[test]
fn order_is_the_lists() {
    let mut g = Graph::new();
    let ids: Vec<NodeId> = ["a", "b", "c", "d"].iter().map(|n| g.placeholder(n, None)).collect();
    g.move_before(ids[3], ids[0]);
    let order = g.ids();
    for (i, &a) in order.iter().enumerate() {
        for (j, &b) in order.iter().enumerate() {
            assert_eq!(g.is_before(a, b), i < j, "{i} {j}");
        }
    }
}

#[test]
fn copies_map_values_and_give_the_result() {
    let mut from = Graph::new();
    let x = from.placeholder("x", None);
    let a = from.call_function("torch.add", vec![leaf(x), Val::List(vec![leaf(x)])], vec![]);
    from.set_output(Val::Tuple(vec![leaf(a), Val::int(1)]));
    let mut to = Graph::new();
    let y = to.placeholder("add", None);
    let mut map = HashMap::from([(x, leaf(y))]);
    let result = to.graph_copy(&from, &mut map).unwrap();
    let copy = *map[&a].as_leaf().unwrap();
    assert_eq!(to[copy].name(), "add_1");
    assert_eq!(to[copy].args(), [leaf(y), Val::List(vec![leaf(y)])]);
    assert_eq!(result, Some(Val::Tuple(vec![leaf(copy), Val::int(1)])));
}
