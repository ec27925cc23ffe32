# The calls of make_more.py.
torch.manual_seed(0)
x, y, image = values(3, 4), values(3, 4), values(1, 2, 4, 4)
p = torch.full((2, 3), 0.5)
seeded = {"random": True}
for f in ("rand", "randn"):
    call(f"torch.{f}([2, 3])", **seeded)
for f in ("rand_like", "randn_like", "bernoulli", "poisson"):
    call(f"torch.{f}(%p)", **seeded, p=p)
call("torch.randint(2, 9, [5])", **seeded)
call("torch.randint_like(%p, 2, 9)", **seeded, p=p)
call("aten.randint_like.Tensor(%p, %n)", **seeded, p=p, n=torch.tensor(9))
call("torch.randperm(6)", **seeded)
call("aten.bernoulli.p(%p, 0.25)", **seeded, p=p)
call("aten.bernoulli.Tensor(%x, %p)", **seeded, x=torch.zeros(2, 3), p=p)
for f, args in (("uniform", "-1.0, 2.0"), ("normal_functional", "1.0, 2.0"), ("exponential", "0.5"), ("geometric", "0.5"), ("cauchy", "0.0, 1.0"),
                ("log_normal", "0.0, 1.0"), ("random", ""), ("random.from", "3, 9"), ("random.to", "9"), ("random.from", "-5, None")):
    path = f if "." in f else f + ".default"
    call(f"aten.{path}(%p{', ' + args if args else ''})", **seeded, p=torch.zeros(2, 3))
call("torch.normal(%p, %p)", **seeded, p=p)
call("aten.normal.Tensor_float(%p, 0.5)", **seeded, p=p)
call("aten.normal.float_Tensor(0.5, %p)", **seeded, p=p)
call("torch.normal(0.5, 2.0, [4])", **seeded)
call("torch.multinomial(%p, 2)", **seeded, p=p)
call("torch.feature_dropout(%x, 0.5, True)", **seeded, x=image)
call("torch.feature_alpha_dropout(%x, 0.5, True)", **seeded, x=image)
call("torchvision.ops.stochastic_depth(%x, 0.5, \"row\", False)", x=x)
for f in ("empty", "zeros"):
    call(f"torch.mul(%x, 1)", x=x)
for f, args in (("hann_window", ""), ("hamming_window", ""), ("blackman_window", ""), ("bartlett_window", ""), ("kaiser_window", "")):
    call(f"torch.{f}(6)")
call("torch.vander(%v)", v=values(4))
call("torch.linalg.tensorinv(%x, 1)", x=torch.eye(4).reshape(4, 2, 2) * 2)
call("torch.nuclear_norm(%x)", x=x)
call("aten.linalg_matrix_rank.tol_tensor(%x, %t)", x=x, t=torch.tensor(0.5))
a = torch.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
call("torch.linalg.eigvalsh(%a)", a=a)
call("torch.linalg.svdvals(%a)", a=a)
call("aten._linalg_det.default(%a)", a=a)
call("aten._linalg_slogdet.default(%a)", a=a)
call("aten._linalg_solve_ex.default(%a, %b)", a=a, b=values(3, 2))
graph("linalg_eigh", "    %e = call_function aten.linalg_eigh.default(%a)\n    %v = call_function operator.getitem(%e, 0)\n    output [%v]",
      torch.linalg.eigvalsh(a), a=a)
graph("_linalg_eigh", "    %e = call_function aten._linalg_eigh.default(%a)\n    %v = call_function operator.getitem(%e, 0)\n    output [%v]",
      torch.linalg.eigvalsh(a), a=a)
for f in ("linalg_svd", "_linalg_svd", "svd"):
    graph(f, f"    %e = call_function aten.{f}.default(%a)\n    %v = call_function operator.getitem(%e, 1)\n    output [%v]",
          torch.linalg.svdvals(a), a=a)
graph("qr", "    %e = call_function torch.qr(%a)\n    %q = call_function operator.getitem(%e, 0)\n    %r = call_function operator.getitem(%e, 1)\n"
      "    %m = call_function torch.matmul(%q, %r)\n    output [%m]", a, a=a)
graph("lu", "    %e = call_function torch.linalg.lu(%a)\n    %p = call_function operator.getitem(%e, 0)\n    output [%p]", torch.linalg.lu(a)[0], a=a)
call("torch.unravel_index(%i, [3, 4])", i=torch.tensor([0, 5, 11]))
call("torch.equal(%x, %x)", x=x)
call("torch.allclose(%x, %x)", x=x)
call("torch.is_nonzero(%t)", t=torch.tensor([2.0]))
call(".stride(%x)", x=x)
call(".storage_offset(%x)", x=x)
call(".get_device(%x)", x=x)
call(".is_complex(%x)", x=x)
call("torch.is_tensor(%x)", x=x)
call("torch.sym_max(3, 5)")
call("torch.sym_min(3, 5)")
call("torch.sym_int(2.5)")
call("torch.sym_float(2)")
call("torch.sym_not(False)")
call("torch.sym_ite(True, 2, 3)")
for f in ("floor", "ceil", "sqrt"):
    call(f"math.{f}(2.25)")
call("math.prod([2, 3])")
for f in ("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh fabs erf erfc cbrt degrees radians isnan "
          "isinf isfinite").split():
    call(f"math.{f}(0.375)")
call("math.acosh(2.5)")
call("math.log(9, 3)")
for f in "pow fmod copysign atan2 hypot".split():
    call(f"math.{f}(-2.25, 3.0)")
for f in "gcd lcm".split():
    call(f"math.{f}(-12, 18)")
call("math.isqrt(1000)")
for args in ("2.675, 2", "-2.5, 0", "1250, -2", "-1251, -2", "1234.5, -2", "2.5, None", "0.125, 2"):
    call(f"builtins.round({args})")
for args in ("-7, 3", "7, -3", "-7.5, 2", "7.5, -2.0"):
    call(f"builtins.divmod({args})")
for args in ("torch.float32, torch.float32", "torch.float32, torch.int64", '"sum", "mean"', '"sum", None', "[1, 2, 3], [1, 2.0, 3]",
             "[1, 2], [1, 3]", "[1, 2], (1, 2)", "[], [1]", "(1, [2]), (1, [2])", "None, 0"):
    call(f"operator.eq({args})")
    call(f"operator.ne({args})")
for args in ("3, 200, 7", "-3, 5, 7", "3, 5, -7", "2, 0, 1"):
    call(f"builtins.pow({args})")
call("builtins.max(3, 7.5, -1)")
call("builtins.min(3, 7.5, -1)")
call("aten.copy.default(%x, %y)", x=x, y=y)
call("aten._add_relu.Tensor(%x, %y)", x=x, y=y)
call("aten._prelu_kernel.default(%x, %w)", x=x, w=torch.tensor(0.25))
for n, f in ((1, "conv1d"), (2, "conv2d"), (3, "conv3d")):
    call(f"aten.{f}.padding(%x, %w, None, [{', '.join('1' * n)}], \"same\")", x=values(1, 1, *[3] * n), w=values(1, 1, *[2] * n))
for mode in ("reflect", "replicate", "circular"):
    call(f"torch.nn.functional.pad(%x, [1, 2], \"{mode}\")", x=values(1, 2, 4))
call("aten.adaptive_max_pool2d.default(%x, [2, 3])", x=image)
call("aten.adaptive_max_pool3d.default(%x, [2, 1, 2])", x=values(1, 1, 3, 2, 3))
call("aten.max_pool3d_with_indices.default(%x, [2, 2, 2])", x=values(1, 1, 2, 4, 3))
call("torch.nn.functional.lp_pool3d(%x, 2.0, 2)", x=values(1, 1, 2, 4, 2).abs())
call("aten._fused_rms_norm.default(%x, [4], None, 0.5)", x=x)
g = values(1, 3, 2, 2).clamp(-1, 1)
for mode in ("bilinear", "nearest", "bicubic"):
    call(f"torch.nn.functional.grid_sample(%x, %g, \"{mode}\", \"border\", True)", x=image, g=g)
call("aten.grid_sampler_2d.default(%x, %g, 0, 0, False)", x=image, g=g)
for size, f in (((3,), "nearest3d"), ((3,), "_nearest_exact3d"), ((3,), "trilinear3d")):
    path = "aten._upsample_nearest_exact3d" if f.startswith("_") else f"aten.upsample_{f}"
    flag = ", False" if "trilinear" in f else ""
    call(f"{path}.default(%x, [3, 2, 3]{flag})", x=values(1, 1, 2, 2, 2))
call("aten._upsample_nearest_exact2d.default(%x, [3, 5])", x=image)
call("aten.upsample_bicubic2d.default(%x, [3, 5], False)", x=image)
call("aten._upsample_bilinear2d_aa.default(%x, [3, 2], False)", x=image)
call("aten._upsample_bicubic2d_aa.default(%x, [3, 2], False)", x=image)
call("aten.renorm.default(%x, 2.0, 0, 1.0)", x=x)
call("torch.nn.functional.one_hot(%i)", i=torch.tensor([0, 2, 1]))
call("torch.unique(%x)", x=torch.tensor([3, 1, 3, 2]))
call("torch.unique_consecutive(%x)", x=torch.tensor([3, 3, 1, 3]))
call("aten._unsafe_masked_index.default(%x, %m, [%i], 0)", x=values(4), m=torch.tensor([True, False]), i=torch.tensor([2, 1]))
call("aten._unsafe_masked_index_put_accumulate.default(%x, %m, [%i], %v)", x=values(4), m=torch.tensor([True, False]), i=torch.tensor([2, 1]), v=values(2))
call("aten._log_softmax_backward_data.default(%g, %x, 1, torch.float32)", g=y, x=x.log_softmax(1))
pooled, at = F.max_pool2d(image, 2, return_indices=True)
call("aten.max_pool2d_with_indices_backward.default(%g, %x, [2, 2], [2, 2], [0, 0], [1, 1], False, %i)", g=pooled, x=image, i=at)
for n in (1, 2, 3):
    small = values(1, 1, *[4] * n)
    pooled, at = getattr(F, f"max_pool{n}d")(small, 2, return_indices=True)
    call(f"torch.nn.functional.max_unpool{n}d(%x, %i, 2)", x=pooled, i=at)
    if n == 3:
        call("aten.max_unpool3d.default(%x, %i, [4, 4, 4], [2, 2, 2], [0, 0, 0])", x=pooled, i=at)
call("torch.nn.functional.fractional_max_pool2d(%x, 2, 2, None, False, %s)", x=image, s=torch.full((1, 2, 2), 0.5))
call("torch.nn.functional.fractional_max_pool3d(%x, 2, 1, None, False, %s)", x=values(1, 1, 3, 3, 3), s=torch.full((1, 1, 3), 0.5))
call("aten.fractional_max_pool2d.default(%x, [2, 2], [2, 2], %s)", x=image, s=torch.full((1, 2, 2), 0.5))
call("aten.fractional_max_pool3d.default(%x, [2, 2, 2], [1, 1, 1], %s)", x=values(1, 1, 3, 3, 3), s=torch.full((1, 1, 3), 0.5))
call("torch.nn.functional.gaussian_nll_loss(%x, %y, %v)", x=x, y=y, v=y.abs() + 1)
call("torch.nn.functional.triplet_margin_loss(%x, %y, %z)", x=x, y=y, z=y + 1)
call("torch.nn.functional.triplet_margin_with_distance_loss(%x, %y, %z)", x=x, y=y, z=y + 1)
call("torch.nn.functional.multilabel_soft_margin_loss(%x, %y)", x=x, y=(y > 0).float())
call("aten.multilabel_margin_loss_forward.default(%x, %y, 1)", x=x, y=torch.tensor([[0, 2, -1, 0]] * 3))
call("torch.nn.functional.mse_loss(%x, %y, weight=%w)", x=x, y=y, w=y.abs())
call("torch.nn.functional.l1_loss(%x, %y, weight=%w)", x=x, y=y, w=y.abs())
call("torch.nn.functional.huber_loss(%x, %y, weight=%w)", x=x, y=y, w=y.abs())
call("torch.nn.functional.mse_loss(%x, %y, size_average=False)", x=x, y=y)
call("torch.nn.functional.ctc_loss(%x, %t, %a, %b)", x=values(4, 1, 3).log_softmax(2), t=torch.tensor([[1, 2]]), a=torch.tensor([4]), b=torch.tensor([2]))
q = values(1, 1, 2, 4)
call("aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %q, %q)", q=q)
call("aten._scaled_dot_product_attention_math.default(%q, %q, %q)", q=q)
call("aten._weight_norm_interface.default(%x, %g)", x=x, g=values(3, 1))
w, i, o = values(4, 2), torch.tensor([0, 3, 1]), torch.tensor([0, 2])
graph("_embedding_bag", "    %e = call_function aten._embedding_bag.default(%w, %i, %o)\n    %v = call_function operator.getitem(%e, 0)\n    output [%v]",
      torch.ops.aten._embedding_bag(w, i, o)[0], w=w, i=i, o=o)
call("aten._native_batch_norm_legit_functional.default(%x, %w, %w, %w, %w, True, 0.5, 0.125)", x=values(2, 3), w=torch.ones(3))
call("torch.nn.functional.instance_norm(%x, %w, %v, None, None, True)", x=image, w=torch.zeros(2), v=torch.ones(2))
boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.75], [1, 1, 3, 3]])
graph("nms", "    %k = call_function torchvision.ops.boxes.nms(%b, %s, 0.5)\n    output [%k]",
      torchvision.ops.nms(boxes, torch.tensor([0.5, 0.75, 0.25]), 0.5), b=boxes, s=torch.tensor([0.5, 0.75, 0.25]))
rois = torch.tensor([[0.0, 0, 0, 2, 2]])
graph("roi_align", "    %k = call_function torchvision.roi_align.default(%x, %b, 1.0, 2, 2, -1, False)\n    output [%k]",
      torchvision.ops.roi_align(image, rois, [2, 2]), x=image, b=rois)
graph("roi_pool", "    %k = call_function torchvision.roi_pool.default(%x, %b, 1.0, 2, 2)\n    %v = call_function operator.getitem(%k, 0)\n    output [%v]",
      torchvision.ops.roi_pool(image, rois, [2, 2]), x=image, b=rois)
offset, taps, mask, bias = values(1, 8, 3, 3), values(1, 2, 2, 2), torch.ones(1, 4, 3, 3), torch.zeros(1)
graph("deform_conv2d", "    %k = call_function torchvision.deform_conv2d.default(%x, %w, %o, %m, %b, 1, 1, 0, 0, 1, 1, 1, 1, True)\n    output [%k]",
      torchvision.ops.deform_conv2d(image, offset, taps, mask=mask), x=image, w=taps, o=offset, m=mask, b=bias)
x = torch.arange(12.0).reshape(3, 4).flip(1)
call("torch.topk(%x, 2)", x=x)
graph("out", "    %t = call_function aten.topk.values(%x, 2, values=%v, indices=%i)\n    %a = call_function torch.add(%v, 1)\n    output [%a, %i]",
      [torch.topk(x, 2)[0] + 1, torch.topk(x, 2)[1]], x=x, v=torch.zeros(3, 2), i=torch.zeros(3, 2, dtype=torch.int64))
graph("out", "    %t = call_function torch.max(%x, 1, out=(%v, %i))\n    %a = call_function torch.add(%v, 1)\n    output [%a, %i]",
      [x.max(1)[0] + 1, x.max(1)[1]], x=x, v=torch.zeros(3), i=torch.zeros(3, dtype=torch.int64))
graph("view_copy", "    %c = call_function aten.view_copy.default(%x, [12])\n    %w = call_method add_(%c, 1)\n    %a = call_function torch.mul(%x, 1)\n"
      "    output [%a, %w]", [x, x.reshape(12) + 1], x=x)
graph("cond", "    %s = call_function torch.sum(%x)\n    %q = call_function torch.gt(%s, 0)\n    %c = call_function torch.ops.higher_order.cond(%q, @a, @b, [%x])\n"
      "    %r = call_function operator.getitem(%c, 0)\n    output [%r]\n---\n"
      "graph a {\n    %x = placeholder x\n    %y = call_function torch.sin(%x)\n    output [%y]\n}\n"
      "graph b {\n    %x = placeholder x\n    %y = call_function torch.cos(%x)\n    output [%y]\n}\n",
      x.sin() if x.sum() > 0 else x.cos(), x=x)
w = nn.LSTM(3, 2)
module("LSTM(3, 2)", nn.LSTM(3, 2), values(2, 1, 3))
module("GRU(3, 2)", nn.GRU(3, 2), values(2, 1, 3))
module("RNN(3, 2)", nn.RNN(3, 2), values(2, 1, 3))
module("LSTMCell(3, 2)", nn.LSTMCell(3, 2), values(1, 3))
module("GRUCell(3, 2)", nn.GRUCell(3, 2), values(1, 3))
module("RNNCell(3, 2)", nn.RNNCell(3, 2), values(1, 3))
module("InstanceNorm1d(2)", nn.InstanceNorm1d(2), values(1, 2, 4))
module("CrossMapLRN2d(3, alpha=2.0)", nn.CrossMapLRN2d(3, alpha=2.0), values(1, 4, 2, 2))
module("AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])", nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4]), values(3, 4), torch.tensor([0, 3, 5]))
q = values(2, 1, 4)
layer = "d_model=4, nhead=2, dim_feedforward=3"
module("MultiheadAttention(4, 2)", nn.MultiheadAttention(4, 2), q, q.clone(), q.clone())
module(f"TransformerEncoderLayer({layer})", nn.TransformerEncoderLayer(4, 2, 3), q)
module(f"TransformerDecoderLayer({layer})", nn.TransformerDecoderLayer(4, 2, 3), q, q.clone())
module(f"TransformerEncoder(num_layers=1)\nmodule inner.layers.0 = TransformerEncoderLayer({layer})",
       nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 3), 1), q)
module(f"TransformerDecoder(num_layers=1)\nmodule inner.layers.0 = TransformerDecoderLayer({layer})",
       nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 3), 1), q, q.clone())
module("Transformer(4, 2, 1, 1, 3)", nn.Transformer(4, 2, 1, 1, 3), q, q.clone())
# Elements that are not defined are overwritten: sizes and dtype are what is compared.
for made in ("aten.empty_like.default(%x, dtype=torch.int32)", ".new_empty(%x, [3, 2])", "torch.empty_permuted([2, 3], [1, 0])"):
    kind = f"call_method {made[1:]}" if made[0] == "." else f"call_function {made}"
    want = {"a": torch.ones(3, 4, dtype=torch.int32), ".": torch.ones(3, 2), "t": torch.ones(2, 3)}[made[0]]
    graph(made.split("(")[0], f"    %e = {kind}\n    %r = call_method fill_(%e, 1)\n    output [%r]", want, x=x)
factors, terms = values(4, 2), values(4, 2)
graph("associative_scan", "    %s = call_function torch.ops.higher_order.associative_scan(@f, [%x, %y], [])\n"
      "    %p = call_function operator.getitem(%s, 0)\n    %q = call_function operator.getitem(%s, 1)\n    output [%p, %q]\n---\n"
      "graph f {\n    %a = placeholder a\n    %b = placeholder b\n    %c = placeholder c\n    %d = placeholder d\n"
      "    %u = call_function torch.mul(%a, %c)\n    %v = call_function torch.mul(%b, %c)\n    %w = call_function torch.add(%v, %d)\n"
      "    output [%u, %w]\n}\n", recurrence(factors, terms), x=factors, y=terms)
swin = torchvision.models.swin_transformer
q, head = values(1, 3, 3, 4), {"weight": values(12, 4), "proj": values(4, 4), "bias": values(1, 2, 4, 4)}
graph("shifted_window_attention", "    %r = call_function torchvision.models.swin_transformer.shifted_window_attention(%q, %w, %p, %b, [2, 2], 2, [1, 1], "
      "training=False)\n    output [%r]", swin.shifted_window_attention(q, head["weight"], head["proj"], head["bias"], [2, 2], 2, [1, 1], training=False),
      q=q, w=head["weight"], p=head["proj"], b=head["bias"])
graph("patch_merging_pad", "    %r = call_function torchvision.models.swin_transformer._patch_merging_pad(%q)\n    output [%r]",
      swin._patch_merging_pad(q), q=q)
table, index = values(9, 2), torch.arange(16) % 9
graph("relative_position_bias", "    %r = call_function torchvision.models.swin_transformer._get_relative_position_bias(%t, %i, [2, 2])\n    output [%r]",
      swin._get_relative_position_bias(table, index, [2, 2]), t=table, i=index)
a, m, ends = values(4, 3), values(2, 3, 2), torch.tensor([1, 4], dtype=torch.int32)
graph("grouped_mm", "    %r = call_function transformers.grouped_mm_fallback.default(%a, %m, %e)\n    output [%r]",
      torch.cat([a[:1] @ m[0], a[1:] @ m[1]]), a=a, m=m, e=ends)
a = torch.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
graph("torch.lu", "    %e = call_function torch.lu(%a)\n    %f = call_function operator.getitem(%e, 0)\n    %p = call_function operator.getitem(%e, 1)\n"
      "    output [%f, %p]", torch.linalg.lu_factor(a), a=a)
graph("_assert_tensor", "    %c = call_function torch.any(%x)\n    %n = call_function aten._assert_async.msg(%c, \"none\")\n    output [%c]", x.any(), x=x)
graph("_assert_scalar", "    %n = call_method size(%x, 0)\n    %c = call_function operator.gt(%n, 2)\n"
      "    %k = call_function aten._assert_scalar.default(%c, \"few\")\n    output [%n]", [3], x=x)
graph("split", "    %e = call_function torch.zeros([0, 3])\n    %p = call_function torch.split(%e, 1)\n    %r = call_function operator.getitem(%p, 0)\n    output [%r]",
      torch.zeros(0, 3).split(1)[0], x=x)
h, k = torch.tensor([-17.609375, 19.25, 3.890625, 8.5], dtype=torch.float16), torch.tensor([2.935546875, -3.5, 0.75, 8.0], dtype=torch.float16)
for mode in ("trunc", "floor"):
    call(f"torch.div(%h, %k, rounding_mode='{mode}')", h=h, k=k)
call("torch.acosh(%z)", z=torch.tensor([-8256.0, 0.5, 1.0, 3.0]))
graph("_check_tensor_all", "    %c = call_function torch.le(%x, 99)\n    %n = call_function torch._check_tensor_all(%c)\n    output [%c]", x <= 99, x=x)
graph("_check", "    %n = call_method size(%x, 0)\n    %c = call_function operator.gt(%n, 2)\n    %k = call_function torch._check(%c)\n"
      "    %i = call_function torch._check_is_size(%n, max=9)\n    %r = call_function aten.sym_constrain_range_for_size.default(%n, max=9)\n"
      "    output [%n]", [3], x=x)
graph("sym_constrain_range", "    %n = call_method size(%x, 0)\n    %k = call_function aten.sym_constrain_range.default(%n, min=1, max=9)\n    output [%n]", [3], x=x)
graph("torch_size", "    %n = call_function torch.Size([2, 6])\n    %r = call_method reshape(%x, %n)\n    output [%r]", x.reshape(2, 6), x=x)
graph("list", "    %n = call_method size(%x)\n    %k = call_function builtins.list(%n)\n    %r = call_function torch.zeros(%k)\n    output [%r]", x * 0, x=x)
graph("sym_bool", "    %n = call_method size(%x, 0)\n    %b = call_function builtins.bool(%n)\n    output [%b]", [True], x=x)
graph("math_round", "    %n = call_function builtins.round(2.5)\n    output [%n]", [2])
for n in (1, 2, 3):
    pad = f"Conv{n}d(1, 1, 2, padding=1, padding_mode=\"circular\")"
    module(pad.replace('"', "'"), getattr(nn, f"Conv{n}d")(1, 1, 2, padding=1, padding_mode="circular"), values(1, 1, *[3] * n))
    call(f"torch.atleast_{n}d([%x, %t])", x=values(2), t=torch.tensor(3.0))
for mode in ("reflection", "replication"):
    call(f"aten.{mode}_pad2d.default(%x, [1, 0, 1, 2])", x=values(1, 2, 4, 4))
call("aten._pad_circular.default(%x, [1, 2])", x=values(1, 2, 4))
call("torch.grid_sampler(%x, %g, 0, 1, False)", x=values(1, 1, 3, 3), g=values(1, 2, 2, 2) / 4)
image, rois = values(1, 8, 4, 4), torch.tensor([[0.0, 0.5, 0, 3, 2.5], [0, 1, 1, 2, 3]])
for f, args in (("ps_roi_align", "1.0, 2, 2, 2"), ("ps_roi_pool", "0.5, 2, 2")):
    graph(f, f"    %k = call_function torchvision.{f}.default(%x, %b, {args})\n    %v = call_function operator.getitem(%k, 0)\n"
          "    %i = call_function operator.getitem(%k, 1)\n    output [%v, %i]",
          eval(f"torch.ops.torchvision.{f}(image, rois, {args})"), x=image, b=rois)
    call(f"torchvision.ops.{f}(%x, %b, 2, 0.5)", x=image, b=rois)
images = torch.cat([image[:, :1], image[:, 1:2]])
for f in ("roi_align", "roi_pool"):
    graph(f, f"    %r = call_function torchvision.ops.{f}(%x, [%a, %b], [2, 1], 0.5)\n    output [%r]",
          getattr(torchvision.ops, f)(images := torch.cat([image[:, :1], image[:, 1:2]]), [rois[:1, 1:], rois[1:, 1:]], [2, 1], 0.5),
          x=images, a=rois[:1, 1:].contiguous(), b=rois[1:, 1:].contiguous())
call("torchvision.ops.deform_conv2d(%x, %o, %w, None, 1, 1)", x=values(1, 2, 3, 3), o=values(1, 8, 4, 4), w=values(1, 2, 2, 2))
module("DeformConv2d(2, 1, 2, padding=1)", torchvision.ops.DeformConv2d(2, 1, 2, padding=1), values(1, 2, 3, 3), values(1, 8, 4, 4))
module("PSRoIAlign(2, 1.0, 2)", torchvision.ops.PSRoIAlign(2, 1.0, 2), image, rois)
module("RoIAlign(2, 1.0, 2)", torchvision.ops.RoIAlign(2, 1.0, 2), image[:, :2].contiguous(), rois)
for n in (2, 3):
    call(f"torchvision.ops.drop_block{n}d(%x, 0.25, 3)", random=True, x=torch.ones(1, 1, *[4] * n))
for shape, wrap in (((3, 3), False), ((5, 2), True), ((2, 2, 2), False)):
    call(f".fill_diagonal_(%x, 9, {wrap})", x=values(*shape))
call(".addr_(%x, %a, %b)", x=values(2, 3), a=values(2), b=values(3))
for line in ("aten.add.Tensor(True, True)", "aten.add.Scalar(True, 2)", "aten.mul.Tensor(True, True)", "aten.mul.Tensor(2, 2.5)", "aten.sub.Tensor(2, 5)",
             "aten.div.Tensor(True, 2)", "aten.floor_divide.default(True, 2.5)"):
    call(line)
x = torch.tensor([[-1.5, 0.3, 0.0], [2.55, 9.0, -0.05]])
scales, zeros = torch.tensor([0.1, 0.25]), torch.tensor([3, -2])
call("torch.fake_quantize_per_tensor_affine(%x, 0.1, 3, -8, 7)", x=x)
call("torch.fake_quantize_per_tensor_affine(%x, %s, %z, 0, 15)", x=x, s=scales[:1].clone(), z=zeros[:1].int())
call("torch.fake_quantize_per_channel_affine(%x, %s, %z, 0, -8, 7)", x=x, s=scales, z=zeros.int())
stored = torch.tensor([[-8, 0, 3], [1, 7, -2]], dtype=torch.int8)
rows = scales[:, None].double(), zeros[:, None]
for line in ("quantize_per_tensor(%x, 0.1, 3, -8, 7, torch.int8)", "quantize_per_tensor.tensor(%x, %s1, %z1, 0, 15, torch.uint8)",
             "quantize_per_channel(%x, %s, %z, 0, -8, 7, torch.int8)", "quantize_per_token(%x, %rs, %rz, -8, 7, torch.int8)",
             "dequantize_per_tensor(%q, 0.1, 3, -8, 7, torch.int8)", "dequantize_per_tensor.tensor(%q, %s1, %z1, -8, 7, torch.int8)",
             "dequantize_per_channel(%q, %s, %z, 0, -8, 7, torch.int8)", "dequantize_per_token(%q, %rs, %rz, -8, 7, torch.int8, torch.float32)"):
    given = {"x": x, "q": stored, "s": scales, "z": zeros, "s1": scales[:1].clone(), "z1": zeros[:1].clone(), "rs": rows[0], "rz": rows[1]}
    used = {k: v for k, v in given.items() if re.search(rf"%{k}\b", line)}
    path, args = line.split("(", 1)
    call(f"quantized_decomposed.{path if '.' in path else path + '.default'}({args}", **used)
for kind, dtype in (("choose_qparams", "int8"), ("choose_qparams_symmetric", "uint8")):
    graph(kind, f"    %e = call_function quantized_decomposed.{kind}.tensor(%x, 0, 127, 1e-06, torch.{dtype})\n"
          "    %s = call_function operator.getitem(%e, 0)\n    %z = call_function operator.getitem(%e, 1)\n    output [%s, %z]",
          getattr(torch.ops.quantized_decomposed, kind).tensor(x, 0, 127, 1e-6, getattr(torch, dtype)), x=x)
for reduction in (0, 1, 2):
    graph("nll_loss_forward", f"    %e = call_function aten.nll_loss_forward.default(%x, %t, %w, {reduction}, 1)\n"
          "    %l = call_function operator.getitem(%e, 0)\n    %s = call_function operator.getitem(%e, 1)\n    output [%l, %s]",
          torch.ops.aten.nll_loss_forward(x, torch.tensor([2, 1]), x[0].abs(), reduction, 1), x=x, t=torch.tensor([2, 1]), w=x[0].abs())
call("torch.margin_ranking_loss(%a, %b, %t, 0.5)", a=x[0].clone(), b=x[1].clone(), t=torch.tensor([1.0, -1, 1]))
call("torch.hinge_embedding_loss(%a, %t, 1.0, 2)", a=x[0].clone(), t=torch.tensor([1.0, -1, 1]))
for line in (".is_signed(%x)", ".element_size(%x)", ".is_contiguous(%x)", ".is_conj(%x)", ".is_same_size(%x, %x)"):
    call(line, x=x)
graph("map_impl", "    %m = call_function torch.ops.higher_order.map_impl(@f, [%x], [])\n    %a = call_function operator.getitem(%m, 0)\n"
      "    %b = call_function operator.getitem(%m, 1)\n    output [%a, %b]\n---\n"
      "graph f {\n    %r = placeholder r\n    %a = call_function torch.mul(%r, 2)\n    %b = call_function torch.argmax(%r)\n    output (%a, %b)\n}\n",
      [torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)], x=torch.zeros(0, 3))
graph("scan", "    %s = call_function torch.ops.higher_order.scan(@f, [%h], [%x], [])\n    %a = call_function operator.getitem(%s, 0)\n"
      "    %b = call_function operator.getitem(%s, 1)\n    output [%a, %b]\n---\n"
      "graph f {\n    %h = placeholder h\n    %r = placeholder r\n    %a = call_function torch.add(%h, %r)\n    %b = call_function torch.mul(%h, 2)\n"
      "    output [%a, %b]\n}\n", [torch.ones(3), torch.zeros(0, 3)], h=torch.ones(3), x=torch.zeros(0, 3))
call("torch.nn.functional.gumbel_softmax(%x, 0.5, True)", random=True, x=values(2, 3))
call("torch.nn.functional.gumbel_softmax(%x, 2.0, dim=0)", random=True, x=values(2, 3))
a, m, ends = values(4, 16), values(2, 16, 8), torch.tensor([1, 4], dtype=torch.int32)
graph("_grouped_mm", "    %r = call_function torch.nn.functional.grouped_mm(%a, %m, offs=%e)\n    output [%r]",
      torch.cat([a[:1] @ m[0], a[1:] @ m[1]]), a=a, m=m, e=ends)
graph("_grouped_mm", "    %r = call_function aten._grouped_mm.default(%a, %m)\n    output [%r]", torch.bmm(m, m.mT), a=m, m=m.mT.contiguous())
call("torch._int_mm(%a, %b)", a=torch.arange(-40, 40, dtype=torch.int8).reshape(5, 16)[:, :8].repeat(4, 1), b=torch.arange(64, dtype=torch.int8).reshape(8, 8))
call("torch._int_mm(%a, %b)", a=torch.arange(200, 232, dtype=torch.uint8).reshape(4, 8), b=torch.arange(-32, 32, dtype=torch.int8).reshape(8, 8))
for gelu in (False, True):
    call(f"aten._addmm_activation.default(%c, %a, %b, beta=0.5, use_gelu={gelu})", c=values(3), a=values(2, 4), b=values(4, 3))
call("torch.conv_tbc(%x, %w, %b, 1)", x=values(4, 2, 3), w=values(2, 3, 2), b=values(2))
for line in ("fftfreq(7, 0.5)", "fftfreq(8)", "rfftfreq(7, 0.25)", "rfftfreq(8, 2.0, dtype=torch.float64)"):
    call(f"torch.fft.{line}")
call("torch.nn.utils.rnn.pad_sequence([%a, %b], True, 9.0, \"left\")", a=values(2, 3), b=values(3, 3))
call("aten.pad_sequence.default([%a, %b])", a=values(2), b=values(3))
call("torch.frobenius_norm(%x, [0, 1])", x=values(2, 3))
call("torch.split_copy(%x, 2, 1)", x=values(2, 3))
probabilities = values(4, 2, 3).log_softmax(2)
call("torch.ctc_loss(%x, %t, [4, 4], [2, 1])", x=probabilities, t=torch.tensor([[1, 2], [1, 1]]))
call("torch.kl_div(%x, %y)", x=values(3).log_softmax(0), y=values(3).softmax(0))
call("torch.binary_cross_entropy_with_logits(%x, %y)", x=values(3), y=torch.tensor([0.0, 1, 1]))
# Elements on the edges of bins.
for dtype in (torch.float32, torch.float64):
    call("torch.histc(%x, 33, 0.0, 1e-05)", x=torch.arange(34, dtype=dtype) * 1e-5 / 33)
    call("torch.histc(%x, 100, -0.3, 0.7)", x=torch.arange(50, dtype=dtype) / 50 - 0.3)
# Prims, which PyTorch's decompositions end in.
one = torch.tensor([0.3, -0.7, 0.9])
for f in ("abs acos asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor isfinite lgamma neg reciprocal round sign signbit sin "
          "sinh tan tanh trunc erf_inv bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 spherical_bessel_j0 erfcx cbrt clone "
          "view_of").split():
    call(f"prims.{f}.default(%x)", x=one)
for f in "log log10 log1p log2 rsqrt sqrt acosh ndtri".split():
    call(f"prims.{f}.default(%x)", x=torch.tensor([1.5, 2.0, 7.0]) if f != "ndtri" else torch.tensor([0.2, 0.5, 0.9]))
for f in "add sub mul div atan2 fmax fmin fmod hypot maximum minimum nextafter pow remainder eq ge gt le lt ne".split():
    call(f"prims.{f}.default(%x, %y)", x=torch.tensor([1.5, 2.0, 7.0]), y=torch.tensor([2.0, 2.0, -3.0]))
for f in "add sub mul div gcd remainder bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic maximum eq lt".split():
    call(f"prims.{f}.default(%x, %y)", x=torch.tensor([7, -9, 12]), y=torch.tensor([2, 4, 5]))
for f in "igamma igammac zeta".split():
    call(f"prims.{f}.default(%x, %y)", x=torch.tensor([1.5, 2.0, 7.0]), y=torch.tensor([2.0, 2.5, 3.0]))
call("prims.bitwise_not.default(%x)", x=torch.tensor([7, -9]))
call("prims.frexp.default(%x)", x=one)
call("prims.where.default(%p, %x, %y)", p=torch.tensor([True, False, True]), x=one, y=one * 2)
call("prims.fill.default(%x, 2.5)", x=one)
call("prims.item.default(%x)", x=torch.tensor(2.5))
call("prims.scalar_tensor.default(3, dtype=torch.float64, device=device(\"cpu\"))")
for length, start, step, dtype in ((5, 0, 1, "int64"), (4, 3, -2, "int32"), (0, 1, 1, "int64"), (3, 120, 9, "int8")):
    call(f"prims.iota.default({length}, start={start}, step={step}, dtype=torch.{dtype}, device=device(\"cpu\"), requires_grad=False)")
for f in ("sum", "prod", "amax", "amin", "var"):
    for dims in ("[1]", "[0, 2]", "[]"):
        call(f"prims.{f}.default(%x, {dims}{', 1.0' if f == 'var' else ''})", x=values(2, 3, 2))
call("prims.var.default(%x, [1], 0.0)", x=values(2, 3))
call("prims.broadcast_in_dim.default(%x, [4, 3, 2], [1, 2])", x=values(3, 1))
call("prims.broadcast_in_dim.default(%x, [2, 2], [])", x=torch.tensor(1.5))
call("prims.split_dim.default(%x, 1, 2)", x=values(2, 6))
call("prims.collapse.default(%x, 0, 1)", x=values(2, 3, 2))
call("prims.collapse_view.default(%x, 1, 2)", x=values(2, 3, 2))
call("prims.squeeze.default(%x, [0, 2])", x=values(1, 3, 1))
call("prims.transpose.default(%x, [2, 0, 1])", x=values(2, 3, 2))
call("prims.rev.default(%x, [0, 1])", x=values(2, 3))
call("prims.reshape.default(%x, [3, 2])", x=values(2, 3))
call("prims.cat.default([%x, %y], 1)", x=values(2, 1), y=values(2, 2))
call("prims.as_strided.default(%x, [2, 2], [1, 3], 1)", x=values(3, 3))
call("prims.as_strided_scatter.default(%x, %y, [2, 2], [1, 3], 1)", x=values(3, 3), y=values(2, 2))
call("prims.device_put.default(%x, device(\"cpu\"))", x=one)
call("prims.copy_strided.default(%x, [1, 2])", x=values(2, 3))
call("prims.inductor_force_stride_order.default(%x, [1, 2])", x=values(2, 3))
call("prims.fma.default(%x, %y, %x)", x=values(2, 3), y=values(2, 3))
call("prims.prepare_softmax_online.default(%x, 1)", x=values(2, 5))
call("prims.convert_element_type.default(%x, torch.int32)", x=values(3) * 9)
graph("linalg_svd", "    %e = call_function prims.svd.default(%a, full_matrices=False)\n    %v = call_function operator.getitem(%e, 1)\n    output [%v]",
      torch.linalg.svdvals(torch.diag(torch.arange(3.0))), a=torch.diag(torch.arange(3.0)))
for f, shape, args in (("", (1, 2, 6, 6), "[3, 3], [2, 2], [1, 1], [1, 1], False"), ("", (1, 1, 7, 8), "[2, 3], [1, 2], [0, 1], [2, 1], True"),
                       ("", (1, 1, 4, 4, 5), "[2, 2, 2], [2, 2, 2], [0, 0, 1], [1, 1, 1], False")):
    call(f"prims._low_memory_max_pool_with_offsets.default(%x, {args})", x=values(*shape))
offsets = torch.arange(9, dtype=torch.int8).reshape(1, 1, 3, 3)
call("prims._low_memory_max_pool_offsets_to_indices.default(%o, [3, 3], [6, 6], [2, 2], [1, 1], [1, 1])", o=offsets)
call("prims.inductor_lookup_seed.default(%s, 1)", s=torch.tensor([3, 4, 5]))
# Called eagerly, these draw for their meta function, too.
for name, args, draw in (("inductor_seeds", "3, device(\"cpu\")", lambda: torch.randint(2**63 - 1, [3])),
                         ("inductor_seed", "device(\"cpu\")", lambda: torch.randint(2**63 - 1, [])),
                         ("inductor_random", "[2, 3], %s, \"rand\"", lambda: torch.rand(2, 3)),
                         ("inductor_random", "[2, 3], %s, \"randn\"", lambda: torch.randn(2, 3)),
                         ("inductor_randint", "2, 9, [5], %s", lambda: torch.randint(2, 9, [5]))):
    torch.manual_seed(0)
    graph(name, f"    %r = call_function prims.{name}.default({args})\n    output [%r]", draw(), **seeded, s=torch.tensor(3))
graph("prims_empty_strided", "    %e = call_function prims.empty_strided.default([2, 3], [1, 2], dtype=torch.float32, device=device(\"cpu\"), "
      "requires_grad=False)\n    %r = call_function torch.zeros_like(%e)\n    output [%r]", torch.zeros(2, 3))
graph("prims_empty_permuted", "    %e = call_function prims.empty_permuted.default([2, 3], [1, 0], dtype=torch.float32, device=device(\"cpu\"), "
      "requires_grad=False)\n    %r = call_function torch.zeros_like(%e)\n    output [%r]", torch.zeros(2, 3))
# Ops of core graphs.
for dtype in (torch.float32, torch.float64):
    call("aten.log_sigmoid_forward.default(%x)", x=torch.tensor([1.0, -2.0, 0.0, 90.0, float("nan")], dtype=dtype))
call("aten._trilinear.default(%x, %w, %y, [1, 3], [0], [1, 2], [2, 3])", x=values(2, 3), w=values(4, 3, 2), y=values(2, 2))
call("aten._trilinear.default(%x, %y, %z, [0], [1], [2], [])", x=values(3, 2), y=values(2, 2), z=values(2, 3))
for size in ("[2, 2]", "[6]", "[0, 3]", "[1, 2, 3]"):
    call(f"aten.resize.default(%x, {size})", x=values(2, 3))
call("aten.resize_as.default(%x, %t)", x=values(2, 3), t=torch.zeros(4))
call("aten._euclidean_dist.default(%x, %y)", x=values(3, 2), y=values(2, 2) + 3)
call("aten._euclidean_dist.default(%x, %y)", x=values(2, 3, 2), y=values(2, 4, 2) + 3)
for weight in ("None, None", "%w, %b"):
    call(f"aten._batch_norm_with_update_functional.default(%x, {weight}, %m, %v, 0.2, 1e-05)", x=values(2, 3, 4), w=values(3), b=values(3),
         m=values(3), v=values(3).abs() + 0.5)
    call(f"aten._batch_norm_no_update.default(%x, {weight}, %m, %v, 0.2, 1e-05)", x=values(2, 3, 4), w=values(3), b=values(3),
         m=values(3), v=values(3).abs() + 0.5)
points = values(20, 2)
call("aten._histogramdd_bin_edges.default(%x, [3, 2])", x=points)
call("aten._histogramdd_from_bin_cts.default(%x, [3, 2], range=[-1.0, 1.0, -0.5, 0.5], density=True)", x=points)
call("aten._histogramdd_from_bin_tensors.default(%x, [%a, %b], weight=%w)", x=points, a=torch.tensor([-1.0, 0, 2]),
     b=torch.tensor([-0.5, 0.5]), w=values(20).abs())
for training in (True, False):
    call(f"aten.rrelu_with_noise_functional.default(%x, %n, 0.1, 0.3, {training})", **seeded, x=values(3, 4), n=torch.zeros(3, 4))
call("torch.rrelu(%x, 0.1, 0.3, True)", **seeded, x=values(3, 4))
call("aten.rrelu_with_noise.default(%x, %n, 0.1, 0.3, False)", x=values(3, 4), n=torch.zeros(3, 4))
table = torch.cat([torch.arange(12, dtype=torch.uint8).reshape(3, 4), torch.tensor([[0.5, 1], [2, -1], [0.25, 0]]).view(torch.uint8)], 1)
call("quantized.embedding_bag_byte_unpack.default(%t)", t=table)
call("aten._weight_int8pack_mm.default(%x, %w, %s)", x=values(3, 8), w=torch.arange(-16, 16, dtype=torch.int8).reshape(4, 8), s=values(4).abs())
call("torch.sym_sum([1, 2, 4])")
graph("_linalg_check_errors", "    %e = call_function aten._linalg_check_errors.default(%i, \"linalg.inv\", is_matrix=True)\n    output [%i]",
      torch.zeros((), dtype=torch.int32), i=torch.zeros((), dtype=torch.int32))
for mode in (0, 1, 2):
    call(f"aten._embedding_bag.default(%w, %i, %o, False, {mode})", w=values(5, 3), i=torch.tensor([0, 3, 3, 1]), o=torch.tensor([0, 1, 3]))
for t in (torch.tensor(-2.75), torch.tensor([[0]]), torch.tensor(3, dtype=torch.uint8)):
    for function in ("builtins.bool", "builtins.int", "builtins.float", "operator.not_"):
        call(f"{function}(%t)", op={"operator.not_": "item_not"}.get(function, function.replace("builtins.", "item_")), t=t)
call("aten._batch_norm_with_update.default(%x, %w, %b, %m, %v, 0.1, 1e-05)", x=values(2, 3, 4), w=values(3), b=values(3), m=values(3), v=values(3).abs())
call("prims.normal.default([4], mean=1.0, std=0.5, dtype=torch.float32, device=device('cpu'), requires_grad=False)", random=True)
bytes_ = torch.randint(0, 256, (4, 32), dtype=torch.uint8)
for block, scales, bias in ((64, values(4, 1), None), (32, values(4, 2), None), (64, values(4, 1), values(4))):
    tensors_ = {"w": bytes_, "s": scales} | ({} if bias is None else {"b": bias})
    call(f"aten._dyn_quant_pack_4bit_weight.default(%w, %s, {'None' if bias is None else '%b'}, {block}, 64, 4)", **tensors_)
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(bytes_, scales, bias, block, 64, 4)
    for dtype in (torch.float32, torch.bfloat16) if block == 64 else (torch.float32,):
        call(f"aten._dyn_quant_matmul_4bit.default(%x, %p, {block}, 64, 4)", x=values(2, 64, dtype=dtype), p=packed)
for t in (values(2, 3), values(2, 3, dtype=torch.bfloat16), torch.tensor([[-3, 5, 7], [2, 2, -1]]), torch.tensor([[True, False, True]])):
    call("torch.hash_tensor(%x)", x=t)
    call("aten.hash_tensor.default(%x, [1], keepdim=True)", x=t)
call("torch.hash_tensor(%x, (0, 1))", x=values(2, 3, dtype=torch.float64))
sequences, wide = values(2, 3, 4), {"w": values(12, 4), "b": values(12), "p": values(4, 4), "o": values(4)}
masks = [(0, [[True, False, False], [False, False, True], [False, True, False]]), (1, [[False, True, False], [False, False, True]])]
for rest in ("", ", None, True, False"):
    call(f"aten._native_multi_head_attention.default(%x, %x, %x, 4, 2, %w, %b, %p, %o{rest})", x=sequences, **wide)
call("aten._native_multi_head_attention.default(%x, %y, %y, 4, 2, %w, %b, %p, %o)", x=sequences, y=values(2, 3, 4), **wide)
norms = {f"{part}{i}": values(4) for i in (1, 2) for part in "nc"}
linear = {"f": values(6, 4), "g": values(6), "h": values(4, 6), "i": values(4)}
layer = "aten._transformer_encoder_layer_fwd.default(%x, 4, 2, %w, %b, %p, %o, {}, 1e-05, %n1, %c1, %n2, %c2, %f, %g, %h, %i{})"
for flags in ("False, False", "True, True"):
    call(layer.format(flags, ""), x=sequences, **wide, **norms, **linear)
for kind, mask in masks:
    mask = torch.tensor(mask)
    call(f"aten._native_multi_head_attention.default(%x, %x, %x, 4, 2, %w, %b, %p, %o, %m, mask_type={kind})", x=sequences, m=mask, **wide)
    call(layer.format("True, False", f", %m, {kind}"), x=sequences, m=mask, **wide, **norms, **linear)
    call(f"aten._masked_softmax.default(%x, %m, -1, {kind})", x=values(2, 2, 3, 3), m=mask)
call("aten._masked_softmax.default(%x, %m, 0)", x=values(2, 2), m=torch.tensor([[True, False], [False, False]]))
call("operator.add([1, 2], [3])", op="joined")
call("operator.concat((1, 2), (3, 4))", op="joined")
call("operator.mul([1, 2], 3)", op="repeated")
call("operator.mul(2, (4, 5))", op="times_sequence")
# What torch takes beyond the usual shapes and dtypes.
call("aten._pdist_forward.default(%x, 2.0)", x=values(4, 3))
call("aten._pdist_forward.default(%x)", x=torch.ones(1, 2, 2))
call("aten._local_scalar_dense.default(%x)", x=values(2, 3))
call("torch.nn.functional.linear(%x, %w, %b)", x=values(3), w=values(4, 3), b=torch.tensor(2))
call("torch.nn.functional.linear(%x, %w, %b)", x=values(3), w=values(4, 3), b=values(1, 4))
call("torch.nn.functional.linear(%x, %w, %b)", x=values(2, 2, 3), w=values(4, 3), b=torch.tensor(True))
call("torch.trapezoid(%y, %x, dim=1)", y=values(1, 2, 3), x=values(2, 3))
call("torch.cumulative_trapezoid(%y, %x)", y=values(2, 3), x=values(3))
call("torch.trapezoid(%y, dx=2)", y=torch.tensor([[200, 200, 7], [1, 2, 4]], dtype=torch.uint8))
call("torch.trapezoid(%y, dx=0.5)", y=torch.tensor([[1.0, 2.0, float("inf")], [1.0, float("nan"), 2.0]]))
call("torch.trapezoid(%y)", y=torch.zeros(2, 0, dtype=torch.int64))
call("torch.cumulative_trapezoid(%y, dx=3)", y=torch.tensor([[200, 200, 7]], dtype=torch.uint8))
call("torch.cdist(%x, %y)", x=values(30, 4).to(torch.bfloat16), y=values(2, 4).to(torch.bfloat16))
call("torch.nn.functional.local_response_norm(%x, 3)", x=torch.arange(24).reshape(1, 6, 4))
call("torch.nn.functional.normalize(%x, None, [0, 1])", x=values(2, 3))
call("torch.nn.functional.elu_(%x, 2.0, 0.5, 3)", x=values(6))
call("aten.native_group_norm.default(%x, %w, %b, 1, 4, 6, 2, 1e-05)", x=values(1, 1, 4, 6), w=values(4), b=values(4))
call("torch.nn.functional.embedding_bag(%i, %w, %o)", i=torch.tensor([0, 3, 3, 1]), w=values(5, 3), o=torch.tensor([0, 2], dtype=torch.uint8))
call("operator.getitem(%x, [1.7, -1.2])", x=values(3, 2))
call("operator.getitem(%x, [None, 1])", x=values(3, 2))
call("torch.histogram(%x, 3, weight=%w)", x=values(2, 3), w=values(6).abs())
call("aten._trilinear.default(%x, %y, %z, [1, 3], [1], [1, 2], [2, 3])", x=values(1, 3), y=values(5, 3, 4), z=values(1, 4))
call(".hsplit(%x, 1, 3)", x=values(2, 5))
call(".__rpow__(%x, other=%y)", x=values(3), y=values(3).abs())
call("builtins.pow(%x, exp=%y)", x=values(3).abs(), y=values(3))
call("torch.nonzero(%x)", x=torch.tensor([[0.0, 1, 2], [3, 0, 4]]))
graph("type_name", "    %t = call_method type(%x)\n    %r = call_function operator.eq(%t, \"torch.HalfTensor\")\n    output [%r]", True,
      x=torch.ones(2, dtype=torch.float16))
blocks = torch.tensor([[-1.5, 0.3, 0.0, 4.0], [2.55, 9.0, -0.05, 0.7]])
stored = torch.tensor([[-8, 0, 3, 7], [1, 7, -2, -8]], dtype=torch.int8)
scales = torch.tensor([[0.1, 0.25], [0.5, 2.0]])
zeros = torch.tensor([[3, -2], [0, 7]], dtype=torch.int32)
for dtype in ("float32", "bfloat16"):
    call(f"torchao.dequantize_affine.default(%q, [1, 2], %s, %z, torch.int8, -8, 7, torch.{dtype})",
         q=stored, s=scales.to(getattr(torch, dtype)), z=zeros)
call("torchao.dequantize_affine.default(%q, [1, 4], %s, None, torch.int8)", q=stored, s=scales[:, 0].clone())
call("torchao.quantize_affine.default(%x, [1, 2], %s, %z, torch.int8, -8, 7)", x=blocks, s=scales, z=zeros)
call("torchao.quantize_affine.default(%x, [2, 1], %s, %z, torch.uint8)", x=blocks, s=scales.flatten(), z=zeros.flatten())
for mapping, size, rest in (("ASYMMETRIC", [1, 4], "torch.int8, -128, 127"), ("SYMMETRIC", [1, 2], "torch.int8, -8, 7, 1e-05"),
                            ("SYMMETRIC_NO_CLIPPING_ERR", [2, 2], "torch.int8, -8, 7, None, torch.float32, torch.int8, True"),
                            ("ASYMMETRIC", [1, 2], "torch.uint8, None, None, 0.001, torch.float64, torch.int64, True")):
    graph("torchao.choose_qparams_affine.default",
          f"    %e = call_function torchao.choose_qparams_affine.default(%x, \"{mapping}\", {size}, {rest})\n"
          "    %s = call_function operator.getitem(%e, 0)\n    %z = call_function operator.getitem(%e, 1)\n    output [%s, %z]",
          eval(f"torch.ops.torchao.choose_qparams_affine.default(blocks, mapping, size, {rest})"), x=blocks)
# The ends of ranges: integers without a magnitude, orders beyond 32 bits, bins whose widths overflow.
for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
    ends = torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min, 6, 0, 4], dtype=dtype)
    call("torch.gcd(%x, %y)", x=ends[:, None], y=ends)
call("torch.gcd(%x, %y)", x=torch.tensor([128, 255, 0], dtype=torch.uint8), y=torch.tensor([6, 128, 200], dtype=torch.uint8))
for dtype in (torch.float32, torch.float64):
    points = torch.tensor([0.5, 1, 2.5, 30, -0.5, 0, -1, math.inf, math.nan], dtype=dtype)
    for order in (2**63 - 1, 2**53, 2**32 + 1, 2**31, 20):
        call(f"torch.polygamma({order}, %x)", x=points)
    scale = 1e38 if dtype == torch.float32 else 6e307
    elements = torch.tensor([-1, 0, 1, 2, 2.9, -2, 0, 0.5, -0.5], dtype=dtype) * scale
    for least, most in ((-1, 2.9), (-2.5, 2.5), (0, 1), (-1, 1.5)):
        call(f"torch.histc(%x, 4, {least * scale!r}, {most * scale!r})", x=elements)
# Infinite weights in the padding: convolutions of f64 multiply it, transposed ones and conv_tbc do not.
for n in (1, 2, 3):
    x, w = values(2, 4, *[4] * n, dtype=torch.float64), values(4, 2, *[2] * n, dtype=torch.float64)
    w[(0, 0, *[0] * n)], w[(3, 1, *[1] * n)] = math.inf, math.nan
    call(f"torch.conv{n}d(%x, %w, None, 2, 1, 2, 2)", x=x, w=w)
    call(f"torch.conv_transpose{n}d(%x, %w, None, 1, 1, 0, 2)", x=x, w=w)
for dtype in (torch.float32, torch.float64):
    w = values(2, 3, 2, dtype=dtype)
    w[0, 1] = -math.inf
    for pad in (0, 1, 3):
        call(f"torch.conv_tbc(%x, %w, %b, {pad})", x=values(4, 2, 3, dtype=dtype), w=w, b=values(2, dtype=dtype))
    # Terms that overflow in f32 before others cancel them.
    points = torch.tensor([-0.5, 0.5, -1.5, -0.25, 1.5, 30, 0, -1, -0.3], dtype=dtype)
    for order in (33, 34, 35, 127, 170):
        call(f"torch.polygamma({order}, %x)", x=points)
        call("torch.special.zeta(%x, %q)", x=torch.tensor(order + 1, dtype=dtype), q=points)
# Writes to what permutes its only operand or takes its diagonal.
square = values(3, 3)
for equation, operands in (("ij->ji", "%s"), ("ii->i", "[%s]"), ("ji", "%s"), ("ij->i", "%s")):
    s = square.clone()
    r = torch.einsum(equation, s).add_(1)
    graph("torch.einsum", f'    %s = call_method clone(%x)\n    %r = call_function torch.einsum("{equation}", {operands})\n'
          "    %w = call_method add_(%r, 1)\n    output [%s, %r]", [s, r], x=square)
a, m = values(4, 37), values(2, 11, 37)
for turned in ("transpose.int(%m, -2, -1)", "permute.default(%m, [0, 2, 1])"):
    graph("grouped_linear", f"    %t = call_function aten.{turned}\n"
          "    %r = call_function transformers.grouped_mm_fallback.default(%a, %t, %e)\n    output [%r]",
          torch.cat([a[:1] @ m[0].T, a[1:] @ m[1].T]), a=a, m=m, e=torch.tensor([1, 4], dtype=torch.int32))
# The norm of one element is its absolute value, which a root of a power would lose.
for dtype in (torch.float32, torch.float64, torch.bfloat16):
    elements = torch.tensor([[1e-30], [-3e30], [math.nan], [-math.inf], [-0.0]], dtype=dtype)
    for order in (2, 1, 0, 3, 0.5, -1, "inf"):
        call(f"torch.linalg.vector_norm(%x, {order}, 1)", x=elements)
call("torch.cdist(%x, %y, 0.0)", x=torch.tensor([[math.nan, 1.0] + [0.0] * 8, [0.0] * 10]), y=torch.tensor([[0.0, 3.0] + [0.0] * 8]))
for how in ("linear", "lower", "higher", "midpoint", "nearest"):
    call(f"torch.quantile(%x, 0.3, interpolation=\"{how}\")", x=values(150))
call("torch.quantile(%x, 0.7, 0, True)", x=values(140, 2).index_fill(1, torch.tensor(1), math.nan))
call("torch.median(%x, 1)", x=torch.randperm(200).float().reshape(40, 5))
x = torch.randperm(240).float().reshape(6, 40)
call("torch.nanmedian(%x, 0)", x=torch.where(x > 180, math.nan, x))
call("torch.cdist(%x, %y, inf)", x=torch.tensor([[math.nan, 1.0] + [0.0] * 8, [0.0] * 10]), y=torch.tensor([[0.0, 3.0] + [0.0] * 8]))
call("torch.cdist(%x, %y, inf)", x=torch.zeros(3, 0), y=torch.zeros(2, 0))
call("torch.topk(%x, 0)", x=torch.tensor(3.0))
call("torch.linalg.slogdet(%x)", x=torch.tensor([[math.nan, 1.0], [2.0, 3.0]]))
call("torch.linalg.slogdet(%x)", x=torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
call("torch.nn.functional.adaptive_max_pool2d(%x, 2)", x=values(1, 2, 4, 32))
call("torch.nn.functional.avg_pool3d(%x, 2, 1)", x=values(16, 2, 3, 4))
call('torch.einsum("i,j->ij", %x, %y)', x=values(3), y=values(4))
# Equal elements: which one comes first follows from torch's algorithms.
for n, different in ((4, 1), (40, 3), (300, 5)):
    x = torch.tensor([(i * i * 7 + i * 3 + i // 5) % different for i in range(n)])
    for dtype in (torch.float32, torch.int64):
        call("torch.sort(%x)", x=x.to(dtype))
        call("torch.sort(%x, stable=True)", x=x.to(dtype))
        call("torch.argsort(%x, descending=True)", x=x.to(dtype))
        call(f"torch.topk(%x, {max(1, n // 64)})", x=x.to(dtype))
        call(f"torch.topk(%x, {n // 2}, largest=False)", x=x.to(dtype))
        call(f"torch.topk(%x, {n // 3 + 1}, sorted=False)", x=x.to(dtype))
        call(f"torch.kthvalue(%x, {n // 2})", x=x.to(dtype))
        call("torch.mode(%x)", x=x.to(dtype))
