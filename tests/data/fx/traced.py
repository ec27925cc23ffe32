
torch.fx._symbolic_trace.wrap("math_sqrt")

def forward(self, x, y : int = 3, flag : typing_Union[bool,NoneType] = None, *rest):
    _rest = rest
    lin = self.lin(x)
    blocks_0 = getattr(self.blocks, "0")(lin);  lin = None
    p = self.p
    add = blocks_0 + p;  blocks_0 = p = None
    relu = torch.relu(add)
    t = add.t()
    pow_1 = t ** 2;  t = None
    matmul = relu @ pow_1;  relu = pow_1 = None
    floordiv = matmul // 3;  matmul = None
    mod = floordiv % 5;  floordiv = None
    cat = torch.cat([mod, add], dim = -1);  mod = add = None
    neg = -cat;  cat = None
    view = neg.view(-1, 8);  neg = None
    getitem = view[(slice(None, None, None), None, slice(1, 3, None), Ellipsis)];  view = None
    clamp = torch.clamp(getitem, min = -inf, max = 1e-05)
    gelu = torch._C._nn.gelu(clamp, approximate = 'tanh')
    to = gelu.to(device = device(type='cpu'), dtype = torch.float64, memory_format = torch.contiguous_format)
    sqrt = math_sqrt(y);  y = None
    mul = sqrt * to;  sqrt = None
    gt = gelu > 0.5
    and_ = mul & gt;  mul = gt = None
    ne = gelu != nan;  gelu = None
    invert = ~ne;  ne = None
    or_ = and_ | invert;  and_ = invert = None
    size = x.size(0);  x = None
    getattr_1 = to.shape;  to = None
    return {'a': or_, 'b': (getitem, [clamp, 1, None, 1e+16, -0.0]), 'c': getattr_1, 3: size}
    