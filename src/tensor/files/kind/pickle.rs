//! Recognises Python's pickles, which `torch.save` writes, and the class of the object as far as the first bytes tell.

use std::fmt;

/// The contents of a pickle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pickled {
    /// Tensors, alone or by name.
    Tensors,
    /// An object of this class.
    Object(String),
    /// Something else.
    Other,
}

impl fmt::Display for Pickled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pickled::Tensors => f.write_str("a pickle of tensors, such as a state dict from `torch.save`"),
            Pickled::Object(class) => write!(f, "a pickled Python object (`{class}`)"),
            Pickled::Other => f.write_str("a pickled Python object"),
        }
    }
}

/// Opcodes of pickles, as `pickletools` names them.
mod op {
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const GLOBAL: u8 = b'c';
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const STACK_GLOBAL: u8 = 0x93;
    pub(super) const MEMOIZE: u8 = 0x94;
}

/// The contents of the file that starts with `head`, if it is a pickle of protocol 2 or later.
pub(super) fn of_stream(head: &[u8]) -> Option<Pickled> {
    match head {
        [op::PROTO, 2..=5, ..] => Some(of_object(head)),
        _ => None,
    }
}

/// The contents of the pickle that starts with `head`.
pub(super) fn of_object(head: &[u8]) -> Pickled {
    // The first named class is that of the object. Containers come before the functions that rebuild their tensors.
    match find_classes(head).find(|c| !is_container(c)) {
        Some(c) if is_tensor(&c) => Pickled::Tensors,
        Some(c) => Pickled::Object(c),
        None => Pickled::Other,
    }
}

fn is_container(class: &str) -> bool {
    ["collections.", "builtins.", "__builtin__."]
        .iter()
        .any(|p| class.starts_with(p))
}

fn is_tensor(class: &str) -> bool {
    let makers = ["torch._utils._rebuild_", "torch._tensor._rebuild_", "numpy."];
    let storage = class.starts_with("torch.") && class.ends_with("Storage");
    storage || class == "torch.Size" || makers.iter().any(|p| class.starts_with(p))
}

/// The classes and functions that a pickle names, in order.
fn find_classes(head: &[u8]) -> impl Iterator<Item = String> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        while offset < head.len() {
            offset += 1;
            match head[offset - 1] {
                op::GLOBAL => {
                    let Some(class) = parse_global(&head[offset..]) else {
                        continue;
                    };
                    // Skip the two lines.
                    offset += class.len() + 2;
                    return Some(class);
                }
                op::STACK_GLOBAL => match stack_global(&head[..offset - 1]) {
                    Some(class) => return Some(class),
                    None => continue,
                },
                _ => {}
            }
        }
        None
    })
}

/// Parses `module\nname\n`.
fn parse_global(rest: &[u8]) -> Option<String> {
    let mut lines = rest.get(..rest.len().min(512))?.split(|b| *b == b'\n');
    let (module, name) = (dotted_name(lines.next()?)?, dotted_name(lines.next()?)?);
    lines.next()?;
    Some(format!("{module}.{name}"))
}

/// The last two strings that were pushed on the stack.
fn stack_global(before: &[u8]) -> Option<String> {
    let (name, before) = last_string(before)?;
    let (module, _) = last_string(before)?;
    Some(format!("{module}.{name}"))
}

/// The string whose opcode ends at the end of `before`, and the bytes before it.
fn last_string(before: &[u8]) -> Option<(&str, &[u8])> {
    let before = before.strip_suffix(&[op::MEMOIZE]).unwrap_or(before);
    (2..before.len().min(256)).find_map(|back| {
        let offset = before.len() - back;
        let is = before[offset] == op::SHORT_BINUNICODE && usize::from(before[offset + 1]) == back - 2;
        Some((dotted_name(&before[offset + 2..])?, &before[..offset])).filter(|_| is)
    })
}

/// The text, if it is a name such as `torch._utils`.
fn dotted_name(text: &[u8]) -> Option<&str> {
    let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    let ok = text.iter().all(word) && text.first().is_some_and(|b| !b.is_ascii_digit());
    std::str::from_utf8(text).ok().filter(|_| ok)
}
