//! How `torch.autocast` on the CPU converts the arguments of ops (torch's `autocast_mode.cpp`).
//!
//! In a region with autocast on, some ops have their tensors converted before they run: to the region's dtype, to f32, or to the
//! widest dtype among them. Only floats other than f64 are converted. An op that torch composes of other ops is not on these lists;
//! its inner ops convert their own arguments. For such ops [`policy_of`] gives the resulting policy, or says that it is unknown
//! ([`Policy::Mixed`]).

/// How the tensor arguments of an op are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// To the region's dtype.
    Lower,
    /// To f32.
    Single,
    /// To f32 if one of the tensors is f32, else to the region's dtype, which they must already have.
    Widest,
    /// `einsum`: step by step ([`einsum_steps`]), with [`Policy::Lower`] for the steps that are matrix products.
    Einsum,
    /// `tensordot`, `inner`: [`Policy::Lower`] if it is a matrix product.
    Contracted,
    /// `matrix_power`: [`Policy::Lower`] for exponents of 2 and more. The inverse of a negative power is
    /// [`Policy::Single`].
    Power,
    /// `lstm_cell`: [`Policy::Lower`] for all but the cell state.
    LstmCell,
    /// `gru_cell`: [`Policy::Lower`] for its matrix products only.
    GruCell,
    /// `pad`: [`Policy::Single`] in the modes that repeat or reflect elements.
    Pad,
    /// The op is composed of ops with different policies, depending on its arguments.
    Mixed,
}

const LOWER: &str = "conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm _addmm_activation addbmm linear matmul conv_tbc \
     mkldnn_rnn_layer conv_transpose1d conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention \
     _native_multi_head_attention linalg_multi_dot multi_dot chain_matmul lstm rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell";

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

const MIXED: &str =
    "bilinear corrcoef cov linalg_pinv gru quantized_lstm _transformer_encoder_layer_fwd multi_head_attention_forward";

fn list_contains(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|n| n == name)
}

/// The policy for the op of a canonical path; `None` if its arguments are not converted.
pub(crate) fn policy_of(path: &str) -> Option<Policy> {
    let (name, overload) = name_of(path);
    // The dispatcher has other names for overloads that write to `out` or in place; these are not listed. Of the two
    // overloads of `_convolution`, one is listed.
    if overload == "out" {
        return None;
    }
    if name == "_convolution" {
        return (overload == "deprecated").then_some(Policy::Lower);
    }
    match name {
        "einsum" => Some(Policy::Einsum),
        "pad" => Some(Policy::Pad),
        _ if list_contains("tensordot inner", name) => Some(Policy::Contracted),
        _ if list_contains("linalg_matrix_power matrix_power", name) => Some(Policy::Power),
        _ if list_contains("lstm_cell", name) => Some(Policy::LstmCell),
        _ if list_contains("gru_cell", name) => Some(Policy::GruCell),
        // Packed sequences do not take the mkldnn path.
        _ if list_contains("lstm", name) && overload == "data" => Some(Policy::Mixed),
        _ if list_contains(LOWER, name) => Some(Policy::Lower),
        _ if list_contains(SINGLE, name) => Some(Policy::Single),
        _ if list_contains(WIDEST, name) => Some(Policy::Widest),
        _ if list_contains(MIXED, name) => Some(Policy::Mixed),
        _ => None,
    }
}

/// An op's ATen name and its overload.
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

/// One of the einsums that torch splits an einsum into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EinsumStep {
    /// Indices of the operands: first those of the whole einsum, then the results of earlier steps.
    pub operands: Vec<usize>,
    /// The step's equation.
    pub equation: String,
    /// Whether the step is a matrix product, that is, sums over a label of both operands.
    pub product: bool,
}

/// Labels of an operand; an ellipsis is `.`.
type Labels = Vec<char>;

/// The steps in which torch computes an einsum, from left to right. Labels that only one operand has are summed first,
/// in that operand's dtype. The list is empty for a single operand; `None` if the equation is invalid.
pub(crate) fn einsum_steps(equation: &str, operands: usize) -> Option<Vec<EinsumStep>> {
    let (terms, output) = parse_labels(equation)?;
    if terms.len() != operands {
        return None;
    }
    let mut out = vec![];
    if operands < 2 {
        return Some(out);
    }
    let later = |i: usize| [terms[i..].concat(), output.clone()].concat();
    let mut left = sum_lone_labels(operands, 0, &terms[0], &later(1), &mut out);
    for (i, term) in terms.iter().enumerate().skip(1) {
        let after = later(i + 1);
        let right = sum_lone_labels(operands, i, term, &[&left.1[..], &after].concat(), &mut out);
        let product = left.1.iter().any(|c| right.1.contains(c) && !after.contains(c));
        let result = match i + 1 == operands {
            true => output.clone(),
            false => shared_labels(&[&left.1[..], &right.1].concat(), &after),
        };
        let equation = format!(
            "{},{}->{}",
            labels_text(&left.1),
            labels_text(&right.1),
            labels_text(&result)
        );
        out.push(EinsumStep {
            operands: vec![left.0, right.0],
            equation,
            product,
        });
        left = (operands + out.len() - 1, result);
    }
    Some(out)
}

/// The operand, summed over the labels that only it has.
fn sum_lone_labels(
    operands: usize,
    index: usize,
    term: &Labels,
    others: &[char],
    out: &mut Vec<EinsumStep>,
) -> (usize, Labels) {
    let left = shared_labels(term, others);
    if term.iter().all(|c| others.contains(c)) {
        return (index, term.clone());
    }
    out.push(EinsumStep {
        operands: vec![index],
        equation: format!("{}->{}", labels_text(term), labels_text(&left)),
        product: false,
    });
    (operands + out.len() - 1, left)
}

/// The labels of `term` that are also in `others`, without duplicates.
fn shared_labels(term: &[char], others: &[char]) -> Labels {
    let mut out = vec![];
    for c in term.iter().filter(|c| others.contains(c)) {
        if !out.contains(c) {
            out.push(*c);
        }
    }
    out
}

fn labels_text(labels: &[char]) -> String {
    labels.iter().collect::<String>().replace('.', "...")
}

/// The labels of the operands and of the result.
fn parse_labels(equation: &str) -> Option<(Vec<Labels>, Labels)> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let equation = equation.replace("...", ".");
    let (inputs, output) = match equation.split_once("->") {
        Some((i, o)) => (i, Some(o)),
        None => (&equation[..], None),
    };
    if !equation
        .replace("->", ",")
        .chars()
        .all(|c| c.is_ascii_alphabetic() || ",.".contains(c))
    {
        return None;
    }
    let terms: Vec<Labels> = inputs.split(',').map(|t| t.chars().collect()).collect();
    let output = output.map(|o| o.chars().collect()).unwrap_or_else(|| {
        // The labels that occur once, in sorted order after the ellipsis.
        let all = terms.concat();
        let once = |c: &char| *c == '.' || all.iter().filter(|d| *d == c).count() == 1;
        let mut out: Labels = all.iter().copied().filter(once).collect();
        out.sort_unstable();
        out.dedup();
        out
    });
    output
        .iter()
        .all(|c| terms.concat().contains(c))
        .then_some((terms, output))
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
            ("aten.lstm.input", Some(Policy::Lower)),
            ("aten.lstm.data", Some(Policy::Mixed)),
            ("aten.gru.input", Some(Policy::Mixed)),
        ] {
            assert_eq!(policy_of(path), want, "{path}");
        }
    }

    #[test]
    fn an_einsum_goes_from_left_to_right() {
        for (equation, operands, want) in [
            ("ij,jk->ik", 2, &["01 ij,jk->ik product"][..]),
            ("ij, jk", 2, &["01 ij,jk->ik product"]),
            ("bi,bi->b", 2, &["01 bi,bi->b product"]),
            ("i,j->ij", 2, &["01 i,j->ij"]),
            ("bi,bi->bi", 2, &["01 bi,bi->bi"]),
            ("ij,kl->il", 2, &["0 ij->i", "1 kl->l", "23 i,l->il"]),
            ("ij->ji", 1, &[]),
            ("ijk,jl->il", 2, &["0 ijk->ij", "21 ij,jl->il product"]),
            ("ij,jk,kl->il", 3, &["01 ij,jk->ik product", "32 ik,kl->il product"]),
            ("...i,ij->...j", 2, &["01 ...i,ij->...j product"]),
            ("ii,ij->j", 2, &["01 ii,ij->j product"]),
            ("i,j,ij->", 3, &["01 i,j->ij", "32 ij,ij-> product"]),
        ] {
            let step = |s: EinsumStep| {
                let operands: String = s.operands.iter().map(usize::to_string).collect();
                format!("{operands} {}{}", s.equation, if s.product { " product" } else { "" })
            };
            let steps: Option<Vec<String>> =
                einsum_steps(equation, operands).map(|s| s.into_iter().map(step).collect());
            assert_eq!(
                steps.as_deref(),
                Some(&want.iter().map(|w| w.to_string()).collect::<Vec<_>>()[..]),
                "{equation}"
            );
        }
        assert_eq!(einsum_steps("ij,jk->ix", 2), None);
        assert_eq!(einsum_steps("ij,jk->ik", 3), None);
    }
}
