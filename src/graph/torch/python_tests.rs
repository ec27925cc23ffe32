use super::*;
use crate::graph::Arg;
use crate::types::{DType, TensorType};

fn leaf(n: NodeId) -> Arg {
    Val::Leaf(n)
}

fn body(g: &Graph) -> Vec<String> {
    code(g, None).source.lines().skip(3).map(str::to_string).collect()
}

#[test]
fn writes_what_torch_writes() {
    let mut g = Graph::new();
    let typed = |g: &mut Graph, name: &str, ty: &str, default: Option<Arg>| {
        let n = g.placeholder(name, default);
        g.text_mut(n).annotation = Some(ty.into());
        n
    };
    let x = typed(&mut g, "x", "typing.Optional[int]", None);
    let y = typed(
        &mut g,
        "y",
        "typing.List[torch.Tensor]",
        Some(Val::List(vec![Val::int(1)])),
    );
    typed(&mut g, "z", "int | None", None);
    typed(&mut g, "v", "typing.Dict[str, typing.Optional[torch.Tensor]]", None);
    typed(&mut g, "u", "typing.Sequence[int]", None);
    typed(&mut g, "t", "torch.device", None);
    typed(&mut g, "s", "list[int]", None);
    let q = g.placeholder("*args", None);
    let f = g.placeholder("f", Some(Val::Float(f64::NAN)));
    g.call_function("operator.setitem", vec![leaf(x), Val::int(0), leaf(y)], vec![]);
    g.call_function("builtins.len", vec![leaf(x)], vec![]);
    g.call_function("operator.abs", vec![leaf(x)], vec![]);
    g.call_function("builtins.abs", vec![leaf(x)], vec![]);
    let dict = Val::Dict(vec![(Val::str("a"), Val::Complex(0.0, 1.0)), (Val::str("n"), leaf(x))]);
    let complex = vec![leaf(x), Val::Complex(0.0, 1.0), Val::Complex(1.0, 2.0), dict];
    g.call_function("torch.add", complex, vec![]);
    let slice = Val::Slice(Box::new([leaf(x), Val::None, Val::None]));
    let range = Val::Range(Box::new([Val::int(0), Val::int(3), Val::int(1)]));
    let list = Val::List(vec![Val::Device("cuda:0".into()), slice]);
    g.call_function("torch.ops.aten.add.Tensor", vec![leaf(x), list, range], vec![]);
    g.call_function("torch.Tensor.add", vec![leaf(x)], vec![]);
    g.call_function("builtins.getattr", vec![leaf(x), Val::str("a"), Val::None], vec![]);
    let shape = g.call_function("builtins.getattr", vec![leaf(x), Val::str("shape")], vec![]);
    g.call_function("torch.sym_max", vec![leaf(x), Val::DType(DType::F32)], vec![]);
    g.set_output(Val::Tuple(vec![leaf(q), leaf(f), leaf(shape)]));
    assert_eq!(
        code(&g, None).source,
        "\n\n\ndef forward(self, x : typing_Union[int,NoneType], y : typing_List[torch.Tensor] = [1], z : typing_Union[int,NoneType], \
v : typing_Dict[str,typing_Union[torch.Tensor,NoneType]], u : collections_abc_Sequence[int], t : device, s : list[int], \
*args, f = nan):
    _args = args
    x[0] = y;  setitem = x;  y = setitem = None
    len_1 = len(x);  len_1 = None
    abs_1 = _operator_abs(x);  abs_1 = None
    abs_2 = abs(x);  abs_2 = None
    add = torch.add(x, complex(0.0, 1.0), (1+2j), {'a': 1j, 'n': x});  add = None
    add_tensor = torch.ops.aten.add.Tensor(x, [device(type='cuda', index=0), slice(x, None, None)], range(0, 3));  \
add_tensor = None
    add_1 = torch_Tensor_add(x);  add_1 = None
    getattr_1 = getattr(x, 'a', None);  getattr_1 = None
    getattr_2 = x.shape
    sym_max = torch.sym_max(x, torch.float32);  x = sym_max = None
    return (_args, f, getattr_2)
    "
    );
}

#[test]
fn mends_what_torch_gets_wrong() {
    let mut g = Graph::new();
    let nan = g.placeholder("nan", None);
    let odd = g.placeholder("input.1", None);
    let class = g.get_attr("class.0.a\"b");
    g.call_function("operator.pow", vec![Val::int(-2), leaf(nan)], vec![]);
    g.call_function("torch.where", vec![leaf(nan), Val::Float(f64::NAN), leaf(odd)], vec![]);
    g.call_method("add", vec![Val::int(3), leaf(class)], vec![]);
    let from = vec![("from".into(), Val::int(1))];
    g.call_function("torch.ops.aten.random.from", vec![leaf(nan)], from);
    let i = g.call_function("operator.iadd", vec![leaf(nan), Val::int(1)], vec![]);
    let s = g.call_function("operator.setitem", vec![leaf(odd), Val::int(0), Val::int(1)], vec![]);
    g.set_output(Val::Tuple(vec![leaf(i), leaf(nan), leaf(s), leaf(odd)]));
    assert_eq!(
        body(&g),
        [
            "def forward(self, nan_1, input_1):",
            "    class_0_a_b = getattr(getattr(getattr(self, \"class\"), \"0\"), \"a\\\"b\")",
            "    pow_1 = (-2) ** nan_1;  pow_1 = None",
            "    where = torch.where(nan_1, nan, input_1);  where = None",
            "    add = (3).add(class_0_a_b);  class_0_a_b = add = None",
            "    random_from = getattr(torch.ops.aten.random, \"from\")(nan_1, **{'from': 1});  random_from = None",
            "    iadd = _operator_iadd(nan_1, 1)",
            "    input_1[0] = 1;  setitem = None",
            "    return (iadd, nan_1, setitem, input_1)",
            "    ",
        ]
    );
}

#[test]
fn names_and_objects_are_python() {
    let mut g = Graph::new();
    let none = g.create_named(Opcode::Placeholder, "None", vec![], vec![], "None");
    let none = none.expect("no other node has the name");
    let torch = g.placeholder("torch", None);
    let overload = Val::Opaque("aten.add.Tensor".into());
    let tensor = Val::Opaque("tensor([1., 2.])".into());
    let class = Val::Opaque("<class 'int'>".into());
    let call = g.call_function(
        "torch.f",
        vec![leaf(none), leaf(torch), overload, tensor, class],
        vec![],
    );
    g.set_output(leaf(call));
    assert_eq!(
        body(&g),
        [
            "def forward(self, None_1, torch_1):",
            "    f = torch.f(None_1, torch_1, torch.ops.aten.add.Tensor, torch.tensor([1., 2.]), int);  None_1 = torch_1 = None",
            "    return f",
            "    ",
        ]
    );
}

#[test]
fn in_place_operators_of_tensors_are_statements() {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    g.meta_mut(x).ty = Some(Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2])));
    let i = g.call_function("operator.iadd", vec![leaf(x), Val::int(1)], vec![]);
    g.set_output(Val::Tuple(vec![leaf(i), leaf(x)]));
    assert_eq!(body(&g)[1], "    x += 1;  iadd = x");
}

#[test]
fn no_statement_is_pass() {
    assert_eq!(
        code(&Graph::new(), None).source,
        "\n\n\ndef forward(self):\n    pass\n    "
    );
}
