//! Overloads that write their results to given tensors: `aten.add.out`, `aten.topk.values`.

/// torch's overloads that do not write to a single `out`, or whose name does not end in `out`, with the arguments they
/// write to in the order of the results.
const NAMED: &[(&str, &str)] = &[
    ("aten._batch_norm_no_update.out", "out0 out1 out2 out3"),
    ("aten._batch_norm_with_update.out", "out save_mean save_invstd reserve"),
    ("aten._embedding_bag.out", "out0 out1 out2 out3"),
    ("aten._embedding_bag_forward_only.out", "out0 out1 out2 out3"),
    ("aten._linalg_det.result", "result LU pivots"),
    ("aten._linalg_eigh.eigenvalues", "eigenvalues eigenvectors"),
    ("aten._linalg_slogdet.sign", "sign logabsdet LU pivots"),
    ("aten._linalg_solve_ex.result", "result LU pivots info"),
    ("aten._linalg_svd.U", "U S Vh"),
    ("aten._native_batch_norm_legit.out", "out save_mean save_invstd"),
    ("aten.log_sigmoid_forward.output", "output buffer"),
    (
        "aten._native_batch_norm_legit.no_stats_out",
        "out save_mean save_invstd",
    ),
    ("aten._native_batch_norm_legit_no_training.out", "out0 out1 out2"),
    ("aten._native_multi_head_attention.out", "out0 out1"),
    ("aten._softmax_backward_data.out", "grad_input"),
    ("aten._unique2.out", "out0 out1 out2"),
    ("aten._weight_norm_interface.out", "out0 out1"),
    ("aten.adaptive_max_pool2d.out", "out indices"),
    ("aten.adaptive_max_pool3d.out", "out indices"),
    ("aten.aminmax.out", "min max"),
    ("aten.cummax.out", "values indices"),
    ("aten.cummin.out", "values indices"),
    ("aten.div.out_mode", "out"),
    ("aten.divide.out_mode", "out"),
    ("aten.fractional_max_pool2d.output", "output indices"),
    ("aten.fractional_max_pool3d.output", "output indices"),
    ("aten.frexp.Tensor_out", "mantissa exponent"),
    ("aten.geqrf.a", "a tau"),
    ("aten.histogram.bins_tensor_out", "hist bin_edges"),
    ("aten.histogram.bin_ct_out", "hist bin_edges"),
    ("aten.kthvalue.values", "values indices"),
    ("aten.linalg_cholesky_ex.L", "L info"),
    ("aten.linalg_eigh.eigvals", "eigvals eigvecs"),
    ("aten.linalg_inv_ex.inverse", "inverse info"),
    ("aten.linalg_ldl_factor.out", "LD pivots"),
    ("aten.linalg_ldl_factor_ex.out", "LD pivots info"),
    ("aten.linalg_lstsq.out", "solution residuals rank singular_values"),
    ("aten.linalg_lu.out", "P L U"),
    ("aten.linalg_lu_factor.out", "LU pivots"),
    ("aten.linalg_lu_factor_ex.out", "LU pivots info"),
    ("aten.linalg_matrix_rank.out_tol_tensor", "out"),
    ("aten.linalg_pinv.out_rcond_tensor", "out"),
    ("aten.linalg_polar.out", "U H"),
    ("aten.linalg_qr.out", "Q R"),
    ("aten.linalg_slogdet.out", "sign logabsdet"),
    ("aten.linalg_solve_ex.out", "result info"),
    ("aten.linalg_svd.U", "U S Vh"),
    ("aten.lu_unpack.out", "P L U"),
    ("aten.max.dim_max", "max max_values"),
    ("aten.max_pool2d_with_indices.out", "out indices"),
    ("aten.max_pool2d_with_indices_backward.grad_input", "grad_input"),
    ("aten.max_pool3d_with_indices.out", "out indices"),
    ("aten.median.dim_values", "values indices"),
    ("aten.min.dim_min", "min min_indices"),
    ("aten.mode.values", "values indices"),
    ("aten.multilabel_margin_loss_forward.output", "output is_target"),
    ("aten.nanmedian.dim_values", "values indices"),
    ("aten.native_batch_norm.out", "out save_mean save_invstd"),
    ("aten.native_dropout.out", "out0 out1"),
    ("aten.native_group_norm.out", "out0 out1 out2"),
    ("aten.native_layer_norm.out", "out0 out1 out2"),
    ("aten.nll_loss2d_forward.output", "output total_weight"),
    ("aten.nll_loss_forward.output", "output total_weight"),
    ("aten.slogdet.out", "sign logabsdet"),
    ("aten.sort.values_stable", "values indices"),
    ("aten.sort.values", "values indices"),
    ("aten.std_mean.correction_out", "out0 out1"),
    ("aten.svd.U", "U S V"),
    ("aten.topk.values", "values indices"),
    ("aten.triangular_solve.X", "X M"),
    ("aten.unique_consecutive.out", "out0 out1 out2"),
    ("aten.unique_dim.out", "out0 out1 out2"),
    ("aten.var_mean.correction_out", "out0 out1"),
    ("aten.xlogy.OutTensor", "out"),
    ("aten.xlogy.OutScalar_Self", "out"),
    ("aten.xlogy.OutScalar_Other", "out"),
];

/// The op behind an overload that writes to its keyword arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writing<'a> {
    /// The op without an overload. Each of its readings is one of the overload.
    pub packet: &'a str,
    /// The names of the arguments it writes to, one per result.
    pub names: &'static str,
}

/// Splits the ATen overload `path` if it writes to arguments; `None` otherwise.
pub(crate) fn writing_overload(path: &str) -> Option<Writing<'_>> {
    let (packet, overload) = path.strip_prefix("aten.")?.rsplit_once('.')?;
    let packet = &path[..5 + packet.len()];
    let named = NAMED.iter().find(|(p, _)| *p == path).map(|(_, names)| *names);
    let names = named.or((overload == "out" || overload.ends_with("_out")).then_some("out"))?;
    Some(Writing { packet, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overloads_and_the_arguments_they_write_to() {
        let packet_and_names = |p| writing_overload(p).map(|w| (w.packet, w.names));
        assert_eq!(packet_and_names("aten.add.out"), Some(("aten.add", "out")));
        assert_eq!(packet_and_names("aten.sum.IntList_out"), Some(("aten.sum", "out")));
        assert_eq!(
            packet_and_names("aten.topk.values"),
            Some(("aten.topk", "values indices"))
        );
        assert_eq!(packet_and_names("aten.add.Tensor"), None);
        assert_eq!(packet_and_names("torch.out"), None);
    }

    #[test]
    fn every_packet_is_in_the_table() {
        for (path, _) in NAMED {
            let packet = writing_overload(path).expect("an overload that writes").packet;
            assert!(super::super::is_spelling(packet), "{path}");
        }
    }
}
