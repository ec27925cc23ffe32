//! The torch ops that the table leaves out, and why.

/// Ops by reason. Names are torch's Python names without `torch.`, and without the path for functions of torch.nn.
pub const OUTSIDE: &[(&str, &[&str])] = &[
    (
        "complex numbers: fxc has no complex dtypes, so neither spectra nor what gives or takes them",
        &[
            "fft.* (but fftfreq and rfftfreq)",
            "_fft_*",
            "fft_*",
            "stft",
            "istft",
            "complex",
            "polar",
            "cfloat",
            "cdouble",
            "chalf",
            "view_as_complex",
            "view_as_real",
            "imag",
            "linalg.eig",
            "linalg.eigvals",
        ],
    ),
    (
        "sparse layouts",
        &[
            "to_sparse",
            "sparse.mm",
            "sparse.sampled_addmm",
            "sspaddmm",
            "smm",
            "hspmm",
        ],
    ),
    (
        "sizes of storage, which graphs of values do not have",
        &["resize_", "resize_as_", "set_"],
    ),
    (
        "the number of results depends on values",
        &["tensor_split by a tensor that is not a constant"],
    ),
    (
        "shapes alone, computed before a graph is written",
        &["broadcast_shapes", "can_cast", "promote_types", "result_type"],
    ),
    (
        "kernels that torch itself compiles, on GPUs only",
        &["jiterator_*", "addmm, baddbmm, bmm and mm with out_dtype"],
    ),
    (
        "what torch itself runs in code that Inductor makes, and nowhere else",
        &["prims.xor_sum"],
    ),
    (
        "custom ops of torch's own Python code",
        &["linear_cross_entropy with chunks"],
    ),
    (
        "containers of modules of any class: `torch2fxir.py` writes these open, as `torch.export` does",
        &["Sequential", "ModuleList", "ModuleDict"],
    ),
];

/// Higher-order ops that have no row, and how to replace each.
pub const REPLACED: &[(&str, &str)] = &[
    ("triton_kernel_wrapper_functional", OF_OTHERS),
    ("triton_kernel_wrapper_mutation", OF_OTHERS),
];

const OF_OTHERS: &str = "it calls an op or a kernel of another library, which no graph holds: export the model with that op written as \
                         calls of torch's own";
