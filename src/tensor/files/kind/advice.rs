//! Advice on files of the wrong kind.

use super::{FileKind, Pickled};

/// What the user passed a file as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// A model.
    Model,
    /// Tensors for a run.
    Inputs,
    /// The weights of a graph.
    Weights,
}

const EXPORT: &str =
    "export the PyTorch model: `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`";
const MODELS: &str =
    "a model is an FXIR file, the text that torch prints for a graph, or a .pt2 archive of `torch.export.save`";
const INPUTS: &str = ".npy, .npz and .safetensors files hold tensors";
const WEIGHTS: &str = "write the weights with `safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")`";

impl FileKind {
    /// What to do with the file `name` of this kind that was passed as `role`.
    pub fn advice(&self, role: FileRole, name: &str) -> String {
        let text = self.advice_for_any_role().unwrap_or_else(|| {
            let text = match role {
                FileRole::Model => self.as_model(),
                FileRole::Inputs => self.as_inputs(),
                FileRole::Weights => self.as_weights(),
            };
            text.into()
        });
        text.replace("FILE", name)
    }

    /// Advice that applies to any role.
    fn advice_for_any_role(&self) -> Option<String> {
        Some(match self {
            FileKind::Packed(_, command) => format!("unpack it: `{command} FILE`"),
            FileKind::LfsPointer => "run `git lfs pull`".into(),
            FileKind::Html => "a server sent a page instead of the file: download it again".into(),
            FileKind::Encoded(_) => "save it as UTF-8; in PowerShell, `… | Out-File -Encoding utf8 graph.txt`".into(),
            _ => return None,
        })
    }

    fn as_model(&self) -> &'static str {
        match self {
            FileKind::Onnx => {
                "fxc reads what PyTorch exports: `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`"
            }
            FileKind::Model(_) | FileKind::Inductor | FileKind::Hdf5 | FileKind::Program(_) => EXPORT,
            FileKind::TorchScript => {
                "export the Python model as `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`, or give \
                 the text that `print(torch.jit.load(\"FILE\").inlined_graph)` writes"
            }
            FileKind::Pickle(Pickled::Tensors) => {
                "it holds weights and no graph: load them into the model in Python, `model.load_state_dict(torch.load(\"FILE\"))`, and \
                 export that, `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`"
            }
            FileKind::Pickle(_) => {
                "if it is a model, load it in Python, `model = torch.load(\"FILE\", weights_only=False)`, and export it, \
                 `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`"
            }
            FileKind::Gguf => {
                "it holds weights and no graph: load the model in Python (transformers reads GGUF) and export it with `torch.export`"
            }
            FileKind::Safetensors => {
                "it holds tensors and no graph: give the graph's file, which names this one (`weights \"FILE\"`), or give this one after --inputs"
            }
            FileKind::Npy | FileKind::Npz => {
                "it holds tensors and no graph: give the model first, and this file after --inputs"
            }
            FileKind::Image(_) => {
                "an image is an input: write its pixels as a tensor, `numpy.save(\"x.npy\", array)`, and give `x=x.npy`"
            }
            _ => MODELS,
        }
    }

    fn as_inputs(&self) -> &'static str {
        match self {
            FileKind::Exported | FileKind::Compiled => "it is a model: give it before the inputs, without --inputs",
            FileKind::Pickle(_) => {
                "write its tensors in Python: `numpy.savez(\"inputs.npz\", x=torch.load(\"FILE\").numpy())`"
            }
            FileKind::Image(_) => {
                "write its pixels as a tensor, as the model wants them: `numpy.save(\"x.npy\", numpy.asarray(PIL.Image.open(\"FILE\")))`"
            }
            FileKind::Hdf5 | FileKind::Data(_) => "write its arrays in Python: `numpy.savez(\"inputs.npz\", x=array)`",
            FileKind::Text | FileKind::Json => {
                "write its numbers in Python: `numpy.save(\"x.npy\", numpy.loadtxt(\"FILE\", delimiter=\",\"))`"
            }
            _ => INPUTS,
        }
    }

    fn as_weights(&self) -> &'static str {
        match self {
            FileKind::Pickle(Pickled::Tensors) => {
                "write them in Python: `safetensors.torch.save_file(torch.load(\"FILE\"), \"model.safetensors\")`"
            }
            _ => WEIGHTS,
        }
    }
}
