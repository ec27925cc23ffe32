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
    "a model must be an FXIR file, a graph printed by torch, or a .pt2 archive from `torch.export.save`";
const INPUTS: &str = "tensors are read from .npy, .npz and .safetensors files";
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
            FileKind::Html => "the server sent an HTML page instead of the file; download it again".into(),
            FileKind::Encoded(_) => "save it as UTF-8; in PowerShell, `… | Out-File -Encoding utf8 graph.txt`".into(),
            _ => return None,
        })
    }

    fn as_model(&self) -> &'static str {
        match self {
            FileKind::Onnx => {
                "export the PyTorch model instead: `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`"
            }
            FileKind::Model(_) | FileKind::Inductor | FileKind::Hdf5 | FileKind::Program(_) => EXPORT,
            FileKind::TorchScript => {
                "export the Python model with `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`, or pass \
                 the output of `print(torch.jit.load(\"FILE\").inlined_graph)`"
            }
            FileKind::Pickle(Pickled::Tensors) => {
                "it contains weights but no graph: load them into the model in Python, `model.load_state_dict(torch.load(\"FILE\"))`, and \
                 export the model, `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`"
            }
            FileKind::Pickle(_) => {
                "if it is a model, load it in Python, `model = torch.load(\"FILE\", weights_only=False)`, and export it, \
                 `torch.export.save(torch.export.export(model.eval(), args), \"model.pt2\")`"
            }
            FileKind::Gguf => {
                "it contains weights but no graph: load the model in Python (transformers reads GGUF) and export it with `torch.export`"
            }
            FileKind::Safetensors => {
                "it contains tensors but no graph: pass the graph's file, which refers to this one (`weights \"FILE\"`), or pass this file with --inputs"
            }
            FileKind::Npy | FileKind::Npz => {
                "it contains tensors but no graph: pass the model first, and this file with --inputs"
            }
            FileKind::Image(_) => {
                "save the image's pixels as a tensor, `numpy.save(\"x.npy\", array)`, and pass it as the input `x=x.npy`"
            }
            _ => MODELS,
        }
    }

    fn as_inputs(&self) -> &'static str {
        match self {
            FileKind::Exported | FileKind::Compiled => "it is a model: pass it before the inputs, without --inputs",
            FileKind::Pickle(_) => {
                "convert its tensors in Python: `numpy.savez(\"inputs.npz\", x=torch.load(\"FILE\").numpy())`"
            }
            FileKind::Image(_) => {
                "save its pixels as a tensor in the form that the model expects: `numpy.save(\"x.npy\", numpy.asarray(PIL.Image.open(\"FILE\")))`"
            }
            FileKind::Hdf5 | FileKind::Data(_) => {
                "convert its arrays in Python: `numpy.savez(\"inputs.npz\", x=array)`"
            }
            FileKind::Text | FileKind::Json => {
                "convert its numbers in Python: `numpy.save(\"x.npy\", numpy.loadtxt(\"FILE\", delimiter=\",\"))`"
            }
            _ => INPUTS,
        }
    }

    fn as_weights(&self) -> &'static str {
        match self {
            FileKind::Pickle(Pickled::Tensors) => {
                "convert them in Python: `safetensors.torch.save_file(torch.load(\"FILE\"), \"model.safetensors\")`"
            }
            _ => WEIGHTS,
        }
    }
}
