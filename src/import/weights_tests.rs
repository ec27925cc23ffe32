use super::*;
use crate::graph::{Graph, ModuleDecl};
use crate::types::{DType, Val};
use std::path::PathBuf;

/// A temporary file that is removed when dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fxc-weights-{}-{name}.safetensors", std::process::id()))
}

/// A module with `w` declared, `b` read by `get_attr`, and the Linear module `fc`.
fn module() -> GraphModule {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let fc = g.call_module("fc", vec![Val::Leaf(x)], vec![]);
    let (w, b) = (g.get_attr("w"), g.get_attr("b"));
    g.set_output(Val::Tuple(vec![Val::Leaf(fc), Val::Leaf(w), Val::Leaf(b)]));
    let mut m = GraphModule::new("m", g);
    let args = vec![Val::int(2), Val::int(3)];
    m.modules.insert(
        "fc".into(),
        ModuleDecl {
            class: "Linear".into(),
            args,
            kwargs: vec![],
            span: None,
            places: None,
        },
    );
    let ty = Some(Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2])));
    m.attributes.insert(
        "w".into(),
        Attribute {
            kind: AttributeKind::Parameter,
            ty,
            value: None,
            span: None,
        },
    );
    m
}

#[test]
fn weights_reach_attributes_and_modules() {
    let kept = Temporary(file("good"));
    let path = &kept.0;
    let t = |shape: &[usize]| Tensor::zeros(DType::F32, shape);
    let (w, b, fw, fb) = (t(&[2]), t(&[1]), t(&[3, 2]), t(&[3]));
    files::write(path, [("w", &w), ("b", &b), ("fc.weight", &fw), ("fc.bias", &fb)]).unwrap();
    let mut m = module();
    assert!(bind_weights(&mut m, path).is_empty());
    assert_eq!(m.attributes["fc.weight"].value, Some(fw));
    assert_eq!(m.attributes["b"].ty, Some(Val::Leaf(b.ty())));
    // Round trip.
    write_weights(&m, path, |name, _| name != "b").unwrap();
    let d: Vec<_> = bind_weights(&mut module(), path).into_iter().map(|d| d.title).collect();
    assert_eq!(d, [format!("`{}` has no weight `b`", path.display())]);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let kept = Temporary(file("bad"));
    let path = &kept.0;
    let (w, extra) = (Tensor::zeros(DType::F16, &[2]), Tensor::zeros(DType::F32, &[1]));
    files::write(path, [("w", &w), ("fc.wieght", &extra), ("c", &extra)]).unwrap();
    let d: Vec<_> = bind_weights(&mut module(), path)
        .into_iter()
        .map(|d| (d.code, d.notes))
        .collect();
    assert_eq!(d[0].0, Code::E0406);
    assert_eq!(
        d[1],
        (Code::E0401, vec!["missing: `b`, `fc.weight`, `fc.bias`".to_string()])
    );
    assert_eq!(d[2].0, Code::L0002);
    std::fs::write(path, [9u8; 40]).unwrap();
    assert_eq!(
        bind_weights(&mut module(), path).iter().next().unwrap().code,
        Code::E0407
    );
    std::fs::remove_file(path).unwrap();
    assert_eq!(
        bind_weights(&mut module(), path).iter().next().unwrap().notes,
        ["No such file or directory"]
    );
}
