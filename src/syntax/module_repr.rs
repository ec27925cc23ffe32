//! The modules that `print(gm)` prints before the code. They declare the classes that the graph calls.
//!
//! ```text
//! Net(
//!   (layers): Module(
//!     (0-1): 2 x Linear(in_features=4, out_features=4, bias=True)
//!   )
//!   (drop): Dropout(p=0.5, inplace=False)
//! )
//! ```
//!
//! A module with submodules declares those but not itself, since its hyper-parameters are not printed.

use super::ast::{Item, ModuleDecl, Name};
use super::spans;
use super::torch_text::{FoundItems, blank_out};
use crate::source::{FileId, Span};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The maximum number of modules in a text. Ranges such as `0-999` multiply if they are nested.
const MAX_MODULES: usize = 1 << 16;

/// For each `Sequential`, by path, the paths of its modules in order.
pub(super) type Sequences = HashMap<String, Vec<String>>;

/// The sequences among the modules printed in `text`.
pub(super) fn find_sequences(text: &str) -> Sequences {
    let mut modules = DeclaredModules::default();
    for region in find_regions(text) {
        read_declarations(FileId(0), text, region, &mut modules);
    }
    modules.sequences
}

/// The modules that a text declares.
#[derive(Default)]
struct DeclaredModules {
    items: Vec<Item>,
    sequences: Sequences,
}

/// Reads the modules that torch printed in `text`.
pub(super) fn read(file: FileId, text: Cow<'_, str>) -> FoundItems<'_> {
    let mut modules = DeclaredModules::default();
    let mut rest: Option<Vec<u8>> = None;
    for region in find_regions(&text) {
        read_declarations(file, &text, region.clone(), &mut modules);
        blank_out(&mut rest.get_or_insert_with(|| text.as_bytes().to_vec())[region]);
    }
    FoundItems {
        graphs: modules.items,
        errors: vec![],
        rest: match rest {
            Some(bytes) => Cow::Owned(String::from_utf8(bytes).unwrap_or_default()),
            None => text,
        },
    }
}

/// The lines of a text with their offsets, without newlines.
fn lines_with_offsets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    text.split_inclusive('\n').map(move |raw| {
        let start = offset;
        offset += raw.len();
        (start, raw.trim_end())
    })
}

fn indent_width(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Finds regions that begin with a line `Name(`, followed by a line `  (child): …`, and end at the closing `)`.
fn find_regions(text: &str) -> Vec<Range<usize>> {
    let mut out = vec![];
    let mut open: Option<(usize, usize)> = None;
    let mut lines = lines_with_offsets(text).peekable();
    while let Some((offset, line)) = lines.next() {
        match open {
            None => {
                let below = lines.peek().map(|l| l.1);
                let begins = line.trim_start().strip_suffix('(').is_some_and(is_class)
                    && below.is_some_and(|b| indent_width(b) == indent_width(line) + 2 && split_child(b).is_some());
                if begins {
                    open = Some((offset, indent_width(line)));
                }
            }
            Some((from, depth)) if line.trim_start() == ")" && indent_width(line) == depth => {
                out.push(from..offset + line.len());
                open = None;
            }
            Some(_) => {}
        }
    }
    out
}

fn is_class(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(word)
}

/// Splits `(name): Class(…` into the name and the rest.
fn split_child(line: &str) -> Option<(&str, &str)> {
    line.trim_start().strip_prefix('(')?.split_once("): ")
}

/// The names in `(3)` and `(0-5): 6 x`.
fn expand_names(name: &str) -> Vec<String> {
    let range = name
        .split_once('-')
        .and_then(|(a, b)| Some((a.parse::<usize>().ok()?, b.parse::<usize>().ok()?)));
    match range {
        Some((a, b)) if a <= b && b - a < MAX_MODULES => (a..=b).map(|i| i.to_string()).collect(),
        _ => vec![name.to_string()],
    }
}

/// The paths of all children with these names, parent by parent.
fn child_paths(parents: &[String], names: &[String]) -> Vec<String> {
    let join = |p: &String, n: &String| if p.is_empty() { n.clone() } else { format!("{p}.{n}") };
    let children = parents.iter().flat_map(|p| names.iter().map(move |n| join(p, n)));
    children.collect()
}

fn read_declarations(file: FileId, text: &str, region: Range<usize>, out: &mut DeclaredModules) {
    // The paths of the enclosing modules. There are several if one line declares several modules.
    let mut open: Vec<Vec<String>> = vec![vec![String::new()]];
    for (offset, line) in lines_with_offsets(&text[region.clone()]).skip(1) {
        let offset = region.start + offset;
        let Some((name, rest)) = split_child(line) else {
            if line.trim() == ")" && open.len() > 1 {
                open.pop();
            }
            continue;
        };
        let around = open.last().map_or(&[][..], |v| v);
        let names = expand_names(name);
        if around.len() * names.len() > MAX_MODULES || out.items.len() + names.len() > MAX_MODULES {
            return;
        }
        let paths = child_paths(around, &names);
        // `6 x Linear(`
        let class = match rest.split_once(" x ") {
            Some((count, class)) if count.bytes().all(|b| b.is_ascii_digit()) => class,
            _ => rest,
        };
        for (parent, within) in around.iter().zip(paths.chunks(names.len())) {
            if let Some(s) = out.sequences.get_mut(parent) {
                s.extend_from_slice(within);
            }
        }
        if let Some(class) = class.strip_suffix('(') {
            if class == "Sequential" {
                out.sequences.extend(paths.iter().map(|p| (p.clone(), vec![])));
            }
            open.push(paths);
        } else if let Some(decl) = parse_declaration(file, class, Span::new(file, offset, offset + line.len())) {
            out.items.extend(paths.into_iter().map(|p| {
                let name = Name::new(p, decl.span);
                Item::Module(ModuleDecl { name, ..decl.clone() })
            }));
        }
    }
}

/// Parses `Linear(in_features=4, out_features=4, bias=True)`. `None` if it is not such a call, and for TorchScript's
/// modules, which are printed without hyper-parameters.
fn parse_declaration(file: FileId, class: &str, span: Span) -> Option<ModuleDecl> {
    if class.starts_with("RecursiveScriptModule") {
        return None;
    }
    let (item, findings) = super::parse::parse_fxir(file, &format!("module m = {class}"));
    match item.items.into_iter().next() {
        Some(Item::Module(mut m)) if !findings.has_errors() => {
            spans::visit_args(&mut m.args, &mut |s| *s = span);
            (m.class.span, m.span) = (span, span);
            Some(m)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ast::Item;
    use super::super::parse_text;
    use crate::source::FileId;

    #[test]
    fn modules_are_declared_by_what_torch_prints() {
        let text = "Net(\n  (net): Module(\n    (0-1): 2 x Conv2d(3, 3, kernel_size=(1, 1), stride=(1, 1), padding_mode=reflect)\n    (2): Own(\n      (a b): GELU(approximate='none')\n      (f): Weird(<function f at 0x7f>)\n    )\n  )\n  (d): Dropout(p=0.5, inplace=False)\n)\n\n\n\ndef forward(self, x):\n    d = self.d(x);  x = None\n    return d\n    \n# To see more debug info, please use `graph_module.print_readable()`\n";
        let (file, findings) = parse_text(FileId(0), text);
        assert!(findings.is_empty(), "{findings:#?}");
        let found: Vec<String> = file
            .items
            .iter()
            .filter_map(|i| match i {
                Item::Module(m) => Some(format!("{} = {}{}", m.name.text, m.class.text, m.args)),
                _ => None,
            })
            .collect();
        let conv = "Conv2d(3, 3, kernel_size=(1, 1), stride=(1, 1), padding_mode=reflect)";
        let want = [
            format!("net.0 = {conv}"),
            format!("net.1 = {conv}"),
            "net.2.a b = GELU(approximate=\"none\")".to_string(),
            "d = Dropout(p=0.5, inplace=False)".to_string(),
        ];
        assert_eq!(found, want);
        assert!(file.items.iter().any(|i| matches!(i, Item::Graph(_))));
    }

    #[test]
    fn lists_of_lists_come_to_an_end() {
        let rows = |n: usize| {
            (0..n)
                .map(|i| format!("{}(0-999): 1000 x L(\n", " ".repeat(2 * i + 2)))
                .collect::<String>()
        };
        let text = format!(
            "N(\n{}{}(0-999): 1000 x ReLU()\n{})",
            rows(4),
            " ".repeat(10),
            "  )\n".repeat(4)
        );
        let (file, _) = parse_text(FileId(0), &text);
        assert!(file.items.len() <= super::MAX_MODULES);
    }
}
