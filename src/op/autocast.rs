//! What `torch.autocast` on the CPU does to the arguments of ops (torch's `autocast_mode.cpp`).
//!
//! A region with autocast on converts tensors before some ops run: to the region's dtype, to f32, or to the widest of them. Only
//! floats other than f64 are converted. An op that torch composes of others converts what it gives to these: for those that
//! are not on a list, [`policy`] says what comes of it, or that it cannot tell.

/// What happens to the tensors that an op is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They get the region's dtype.
    Lower,
    /// They become f32.
    Single,
    /// They become f32 if one of them is, else they get the region's dtype, which they must have.
    Widest,
    /// `einsum`: [`Policy::Lower`] where it is a product of matrices.
    Einsum,
    /// `pad`: [`Policy::Single`] where it repeats or reflects elements.
    Pad,
    /// The op is composed of ops with policies of their own, in ways that depend on its arguments.
    Mixed,
}

const LOWER: &str = "conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm _addmm_activation addbmm linear matmul conv_tbc \
     mkldnn_rnn_layer conv_transpose1d conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention \
     _native_multi_head_attention linalg_multi_dot multi_dot chain_matmul";

const SINGLE: &str = "avg_pool3d binary_cross_entropy grid_sampler grid_sample polar prod quantile nanquantile stft cdist \
     grid_sampler_2d _grid_sampler_2d_cpu_fallback grid_sampler_3d trace view_as_complex cholesky_inverse cholesky_solve inverse \
     lu_solve orgqr ormqr pinverse max_pool3d max_unpool2d max_unpool3d adaptive_avg_pool3d reflection_pad1d reflection_pad2d \
     replication_pad1d replication_pad2d replication_pad3d mse_loss cosine_embedding_loss nll_loss nll_loss2d nll_loss_nd \
     hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy_loss cross_entropy l1_loss huber_loss margin_ranking_loss \
     soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div multilabel_margin_loss \
     binary_cross_entropy_with_logits fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 \
     fft_irfft2 fft_rfftn fft_irfftn fft_hfft fft_ihfft linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky \
     linalg_svdvals linalg_eigvals linalg_eigvalsh linalg_inv linalg_householder_product linalg_tensorinv linalg_tensorsolve \
     linalg_matrix_sqrth fake_quantize_per_tensor_affine geqrf _lu_with_info svd triangular_solve fractional_max_pool2d \
     fractional_max_pool3d adaptive_max_pool3d multilabel_margin_loss_forward linalg_qr linalg_cholesky_ex linalg_svd linalg_eig \
     linalg_eigh linalg_lstsq linalg_inv_ex";

const WIDEST: &str = "stack cat index_copy concat concatenate";

const MIXED: &str = "bilinear corrcoef cov linalg_matrix_power matrix_power linalg_pinv tensordot inner lstm gru rnn_tanh rnn_relu \
     lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell quantized_lstm _transformer_encoder_layer_fwd multi_head_attention_forward";

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|n| n == name)
}

/// What happens to the arguments of the op of a canonical path, `None` if nothing.
pub fn policy(path: &str) -> Option<Policy> {
    let (name, overload) = name_of(path);
    // The dispatcher knows what writes to `out` and in place by other names. One `_convolution` of two is listed.
    if overload == "out" {
        return None;
    }
    if name == "_convolution" {
        return (overload == "deprecated").then_some(Policy::Lower);
    }
    match name {
        "einsum" => Some(Policy::Einsum),
        "pad" => Some(Policy::Pad),
        _ if has(LOWER, name) => Some(Policy::Lower),
        _ if has(SINGLE, name) => Some(Policy::Single),
        _ if has(WIDEST, name) => Some(Policy::Widest),
        _ if has(MIXED, name) => Some(Policy::Mixed),
        _ => None,
    }
}

/// An op's name as aten has it, and its overload.
fn name_of(path: &str) -> (&str, &str) {
    if let Some(rest) = path.strip_prefix("aten.") {
        return rest.split_once('.').unwrap_or((rest, ""));
    }
    let name = path.rsplit('.').next().unwrap_or(path);
    match path.contains("linalg.") && name != "multi_dot" {
        // `torch.linalg.inv` is aten's `linalg_inv`.
        true => (
            SINGLE
                .split_whitespace()
                .find(|n| n.strip_prefix("linalg_") == Some(name))
                .unwrap_or(name),
            "",
        ),
        false => (name, ""),
    }
}

/// Whether an einsum of two operands multiplies matrices: it sums over a label that both have. `None` where it is composed in
/// another way.
pub fn is_product(equation: &str, operands: usize) -> Option<bool> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match equation.split_once("->") {
        Some((i, o)) => (i, o.to_string()),
        None => {
            let once = |c: &char| c.is_alphabetic() && equation.matches(*c).count() == 1;
            (&equation[..], equation.chars().filter(once).collect())
        }
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    match (&terms[..], operands) {
        ([_], 1) => Some(false),
        ([a, b], 2) => {
            let summed = |c: &char| c.is_alphabetic() && !output.contains(*c);
            let alone = |x: &str, y: &str| x.chars().any(|c| summed(&c) && !y.contains(c));
            let product = a.chars().any(|c| summed(&c) && b.contains(c));
            // A label of one operand alone is summed before the product, in the operand's own dtype.
            (!product || !alone(a, b) && !alone(b, a)).then_some(product)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_go_by_the_name_in_aten() {
        for (path, want) in [
            ("aten.mm.default", Some(Policy::Lower)),
            ("torch.mm", Some(Policy::Lower)),
            ("Tensor.matmul", Some(Policy::Lower)),
            ("operator.matmul", Some(Policy::Lower)),
            ("aten.mm.out", None),
            ("aten.addmm_.default", None),
            ("aten._convolution.default", None),
            ("aten._convolution.deprecated", Some(Policy::Lower)),
            ("aten.prod.dim_int", Some(Policy::Single)),
            ("torch.linalg.inv", Some(Policy::Single)),
            ("torch.linalg.multi_dot", Some(Policy::Lower)),
            ("torch.nn.functional.cross_entropy", Some(Policy::Single)),
            ("aten.softmax.int", None),
            ("aten.layer_norm.default", None),
            ("aten.cat.default", Some(Policy::Widest)),
            ("aten.lstm.input", Some(Policy::Mixed)),
        ] {
            assert_eq!(policy(path), want, "{path}");
        }
    }

    #[test]
    fn einsum_is_a_product_where_it_sums_what_both_have() {
        for (equation, operands, want) in [
            ("ij,jk->ik", 2, Some(true)),
            ("ij,jk", 2, Some(true)),
            ("bi,bi->b", 2, Some(true)),
            ("i,j->ij", 2, Some(false)),
            ("bi,bi->bi", 2, Some(false)),
            ("ij,kl->il", 2, Some(false)),
            ("ij->ji", 1, Some(false)),
            ("ijk,jl->il", 2, None),
            ("ij,jk,kl->il", 3, None),
        ] {
            assert_eq!(is_product(equation, operands), want, "{equation}");
        }
    }
}
