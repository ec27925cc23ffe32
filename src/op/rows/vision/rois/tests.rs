//! Features of boxes, compared with those of torchvision.

use super::*;
use crate::op::rows::vision::detection::tests::{of, run};

// The expected values are those of torchvision 0.29.
#[test]
fn features_of_boxes() {
    let x: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let rois = of(&[1, 5], &[0., 0.5, 0.5, 2.5, 3.0]);
    let args = vec![
        of(&[1, 1, 4, 4], &x),
        rois.clone(),
        Val::Float(1.0),
        Val::int(2),
        Val::int(2),
    ];
    let aligned = run("roi_align", [args.clone(), vec![Val::int(2), Val::Bool(true)]].concat());
    assert_eq!(aligned.as_leaf().unwrap().as_slice::<f32>(), [3.0, 4.0, 8.0, 9.0]);
    let pooled = run("roi_pool", args);
    let parts: Vec<&Tensor> = pooled.leaves();
    assert_eq!(parts[0].as_slice::<f32>(), [10.0, 11.0, 14.0, 15.0]);
    assert_eq!(parts[1].as_slice::<i32>(), [10, 11, 14, 15]);
}

/// The error of a call with one box of this size.
fn refusal(op: &str, size: f32, others: &[Val<Tensor>]) -> Option<String> {
    let box_ = of(&[1, 5], &[0., 0., 0., size, size]);
    let args = [&[of(&[1, 4, 4, 4], &[1.0; 64]), box_, Val::Float(1.0)], others].concat();
    let op = crate::op::by_name(op).expect("a row");
    let call = Call { op, args };
    let result = match op.name {
        "roi_align" => roi_align::<f32>(&call),
        _ => ps_roi_align::<f32>(&call),
    };
    result.err().map(|e| e.title)
}

#[test]
fn boxes_with_too_many_samples_are_refused() {
    let sizes = [Val::int(2), Val::int(2), Val::int(0)];
    let aligned = [&sizes[..], &[Val::Bool(false)]].concat();
    for size in [1e30, 3e9, f32::INFINITY] {
        for (op, others) in [("roi_align", &aligned[..]), ("ps_roi_align", &sizes)] {
            let title = refusal(op, size, others).expect("an error");
            assert!(
                title.contains("roi_align sampling grid is too large"),
                "{size}: {title}"
            );
        }
    }
    assert!(refusal("roi_align", f32::NAN, &aligned).is_some());
    assert!(refusal("ps_roi_align", f32::NAN, &sizes).is_none());
}
