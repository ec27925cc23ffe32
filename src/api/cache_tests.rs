//! The cache of compiled models, as programs use it.

use super::{Model, Options};
use crate::driver::{Cache, finish_cache_writes};
use crate::tensor::Tensor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MODEL: &str = "graph main {
    %x : f32[N, 2] = placeholder x
    %w = call_function torch.ones([2, 2])
    %y = call_function torch.matmul(%x, %w)
    output %y
}";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("fxc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn cache(&self) -> Arc<Cache> {
        Cache::open(self.0.join("cache"), 1 << 20).unwrap()
    }

    fn options(&self) -> Options {
        Options {
            cache: Some(self.cache()),
            ..Options::new().threads(1)
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn call(path: &Path, options: &Options, rows: usize) -> Vec<f32> {
    let compiled = Model::open_with(path, options).unwrap().compile(options).unwrap();
    let x = Tensor::from_slice(&[rows, 2], &vec![1.5f32; 2 * rows]);
    let out = compiled.run([x.into()]).unwrap();
    assert!(compiled.warnings().is_empty());
    out[0].as_slice::<f32>().to_vec()
}

#[test]
fn code_is_kept_after_the_first_call_and_found_by_the_next_model() {
    let folder = Folder::new("api-cache");
    let path = folder.0.join("m.fxir");
    std::fs::write(&path, MODEL).unwrap();
    assert_eq!(call(&path, &Options::new(), 1), [3.0, 3.0]);
    assert!(folder.cache().entries().is_empty(), "the cache is off by default");
    for rows in [1, 2, 1, 2] {
        // Dropping the model waits for the thread that writes.
        assert_eq!(call(&path, &folder.options(), rows), vec![3.0; 2 * rows]);
    }
    let entries = folder.cache().entries();
    assert_eq!(entries.len(), 2);
    // A model that finds its code writes none, even where the entry went in the meantime.
    let (model, options) = (
        Model::open_with(&path, &folder.options()).unwrap(),
        folder.options().dim("N", 1),
    );
    let compiled = model.compile(&options).unwrap();
    folder.cache().clear().unwrap();
    let x = Tensor::from_slice(&[1, 2], &[1.0f32, 2.0]);
    assert_eq!(compiled.run([(&x).into()]).unwrap()[0].as_slice::<f32>(), [3.0, 3.0]);
    finish_cache_writes();
    assert!(folder.cache().entries().is_empty());
    // Edited graphs are another model.
    let mut edited = Model::open_with(&path, &folder.options()).unwrap();
    edited.module_mut();
    edited.compile(&options).unwrap().run([(&x).into()]).unwrap();
    finish_cache_writes();
    assert!(folder.cache().entries().is_empty());
}

#[test]
fn values_that_a_session_sets_are_not_kept() {
    let folder = Folder::new("api-cache-state");
    let path = folder.0.join("m.fxir");
    let text = "const b : f32[] = 1.0\ngraph main {\n %x : f32[2] = placeholder x\n %b = get_attr b\n %y = call_function torch.add(%x, %b)\n output %y\n}";
    std::fs::write(&path, text).unwrap();
    let run = |value: Option<f32>| {
        let options = folder.options();
        let compiled = Model::open_with(&path, &options).unwrap().compile(&options).unwrap();
        let mut session = compiled.session();
        if let Some(value) = value {
            session.set_state("b", Tensor::scalar(value)).unwrap();
        }
        let x = Tensor::from_slice(&[2], &[1.0f32, 2.0]);
        session.run([x.into()]).unwrap()[0].as_slice::<f32>().to_vec()
    };
    for (value, want) in [
        (Some(10.0), [11.0, 12.0]),
        (None, [2.0, 3.0]),
        (Some(20.0), [21.0, 22.0]),
    ] {
        assert_eq!(run(value), want);
    }
    assert_eq!(folder.cache().entries().len(), 1);
}
