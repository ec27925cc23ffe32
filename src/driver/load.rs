//! From a path or a text to a module of graphs.

use super::files;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{self, GraphModule};
use crate::import;
use crate::source::{FileId, Sources};
use crate::syntax::{self, ast};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest text that is read: places in it are 32-bit.
const LONGEST: usize = 1 << 30;

/// What was read.
pub struct Model {
    /// What the user called it.
    pub name: String,
    /// The graphs, with weights mapped where they were found.
    pub module: GraphModule,
    /// The text's syntax tree; `None` for an archive.
    pub tree: Option<ast::File>,
}

impl Model {
    /// A module that a program has made.
    pub fn new(name: impl Into<String>, module: GraphModule) -> Model {
        Model {
            name: name.into(),
            module,
            tree: None,
        }
    }
}

/// Reads a model from a path or, for `-`, from standard input. An exported program stays as it was exported if `lifted`:
/// its parameters are inputs, and its weights are not read.
pub fn load(sources: &mut Sources, path: &str, lifted: bool) -> (Option<Model>, Diagnostics) {
    if path == "-" {
        let mut bytes = vec![];
        return match std::io::stdin().lock().read_to_end(&mut bytes) {
            Ok(_) => load_bytes(sources, "<stdin>", bytes, None, lifted),
            Err(e) => {
                let d = Diagnostic::new(Code::E0701, format!("cannot read standard input: {}", files::plain(&e)));
                (None, d.into())
            }
        };
    }
    let file = Path::new(path);
    match is_archive(file) {
        Ok(true) => archive(file, lifted),
        Ok(false) => match files::read(file) {
            Ok(bytes) => load_bytes(sources, path, bytes, file.parent().map(Path::to_path_buf), lifted),
            Err(d) => (None, d.into()),
        },
        Err(d) => (None, d.into()),
    }
}

fn is_archive(path: &Path) -> Result<bool, Diagnostic> {
    let cannot = |e: std::io::Error| {
        Diagnostic::new(
            Code::E0701,
            format!("cannot read `{}`: {}", path.display(), files::plain(&e)),
        )
    };
    let mut head = vec![];
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(4).read_to_end(&mut head).map_err(cannot)?;
    Ok(head == b"PK\x03\x04")
}

fn archive(path: &Path, lifted: bool) -> (Option<Model>, Diagnostics) {
    let read = if lifted {
        import::read_exported
    } else {
        import::read_pt2
    };
    match read(path) {
        Ok((module, found)) => (
            Some(Model {
                name: path.display().to_string(),
                module,
                tree: None,
            }),
            found,
        ),
        Err(found) => (None, found),
    }
}

fn load_bytes(
    sources: &mut Sources,
    name: &str,
    bytes: Vec<u8>,
    dir: Option<PathBuf>,
    lifted: bool,
) -> (Option<Model>, Diagnostics) {
    if bytes.len() > LONGEST {
        let title = format!("`{name}` is too large: {} bytes, of at most {LONGEST}", bytes.len());
        return (None, Diagnostic::new(Code::E0701, title).into());
    }
    if bytes.starts_with(b"PK\x03\x04") {
        let d = Diagnostic::new(Code::E0703, "an archive cannot be read from standard input")
            .note("its weights are mapped, which needs a file")
            .help("give the file's name instead of `-`");
        return (None, d.into());
    }
    load_text(sources, name, &String::from_utf8_lossy(&bytes), dir, lifted)
}

/// The syntax tree of a text, and the file it was entered as.
pub fn parse_text(sources: &mut Sources, name: &str, text: &str) -> (ast::File, FileId, Diagnostics) {
    let file = sources.add(name, text);
    let (tree, found) = syntax::parse(sources, file);
    (tree, file, found)
}

/// Reads a model from a text. `dir` is where its weights file is looked for; `lifted` as for [`load`].
pub fn load_text(
    sources: &mut Sources,
    name: &str,
    text: &str,
    dir: Option<PathBuf>,
    lifted: bool,
) -> (Option<Model>, Diagnostics) {
    let (tree, _, mut found) = parse_text(sources, name, text);
    // What could be read is built and checked too, so that one run reports all there is; but graphs with holes in them
    // would give errors that are none.
    if found.has_errors() {
        return (None, found);
    }
    let (mut module, built) = graph::build(&tree, &stem(name));
    found.extend(built);
    if !found.has_errors() {
        let fitted = fit_signature(&mut module, &tree, lifted);
        found.extend(fitted.err());
    }
    let has_rules = tree.items.iter().any(|i| matches!(i, ast::Item::Rewrite(_)));
    if module.graphs.is_empty() && !has_rules && !found.has_errors() {
        let d = Diagnostic::new(Code::E0113, format!("`{name}` holds no graph"));
        found.push(d.help("write `graph main { … }`, or give text that torch's print(graph) wrote"));
    }
    if !found.has_errors()
        && let Some((path, _)) = &module.weights
    {
        let path = dir.unwrap_or_default().join(path);
        found.extend(import::bind_weights(&mut module, &path));
    }
    (
        Some(Model {
            name: name.to_string(),
            module,
            tree: Some(tree),
        }),
        found,
    )
}

/// Makes the module the program that was exported (`lifted`), or the one with attributes, whichever it is not.
fn fit_signature(module: &mut GraphModule, tree: &ast::File, lifted: bool) -> Result<(), Diagnostic> {
    let says = |i: &ast::Item| match i {
        ast::Item::Graph(g) => g.signature.as_ref().map(|s| s.span),
        ast::Item::Signature(s) => Some(s.span),
        _ => None,
    };
    let Some(place) = tree.items.iter().find_map(says) else {
        return Ok(());
    };
    let (fitted, help) = match (&module.exported, lifted) {
        // That it fits is checked here, whoever asks for it later.
        (Some(_), _) => {
            let mut exported = module.clone();
            let fitted = graph::lift(&mut exported);
            if lifted {
                *module = exported;
            }
            (fitted, "mend it, or take it out: the graph runs without")
        }
        (None, false) => (
            graph::unlift(module),
            "paste the whole output of `print(exported_program)`",
        ),
        (None, true) => return Ok(()),
    };
    fitted.map_err(|why| {
        let title = format!("the signature does not fit the graph: {why}");
        Diagnostic::new(Code::E0013, title).at(place, "this program").help(help)
    })
}

/// The file's name without its directory and ending.
fn stem(name: &str) -> String {
    Path::new(name)
        .file_stem()
        .map_or_else(|| name.to_string(), |s| s.to_string_lossy().into_owned())
}
