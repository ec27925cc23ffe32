


def forward(self, x : typing_Union[int,NoneType], y : typing_List[torch.Tensor] = [1, 2], z : typing_Union[int,NoneType], v : typing_Dict[str,typing_Union[torch.Tensor,NoneType]], u : collections_abc_Sequence[int], t : device, s : list[int], *args, f : typing_Union[int,str,NoneType] = nan):
    _args = args
    x[0] = y;  setitem = x;  setitem = None
    y -= 1;  isub = y;  y = isub = None
    abs_1 = _operator_abs(x);  abs_1 = None
    invert = ~x;  invert = None
    add = torch.add(x, complex(0.0, 1.0), (1+2j), complex(-0.0, 1.0), {'a': 1j, 'n': x});  add = None
    add_tensor = torch.ops.aten.add.Tensor(x, [device(type='cuda', index=0), slice(x, None, None)], range(0, 3));  add_tensor = None
    add_1 = torch_Tensor_add(x);  add_1 = None
    split = torch.Tensor.split(x)
    getattr_1 = getattr(x, 'a', None);  getattr_1 = None
    getattr_2 = split.shape;  split = None
    _set_grad_enabled = torch._C._set_grad_enabled(False);  _set_grad_enabled = None
    weird_name = getattr(x, "weird-name")('tanh');  weird_name = None
    size = torch.Size([1, 2]);  size = None
    a_0_b = getattr(self.a, "0").b(getattr_2, k = (x,));  x = None
    w_1 : torch.nn.parameter.Parameter = getattr(self.w, "1")
    view = a_0_b.view(-1, dtype = torch.uint8);  a_0_b = None
    return (view, _args, w_1, [f, {'k': getattr_2}], ())
    