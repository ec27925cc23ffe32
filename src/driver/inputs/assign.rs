//! Assigns provided values to the values that a graph takes, by name.
//!
//! A nested input is given by its items: `cache.keys.0`. torch's exporter flattens nested inputs and joins the parts of
//! their names with underscores (`cache_keys_0`); the same spelling matches these too.

use super::bind::{Given, InputBinder, InputPlace, Provided, Value, default_value, quoted_list};
use super::paths::{
    infer_structure, is_nested, is_same_path, join_path, leaves_with_paths, name_parts, named_items, rebuild_value,
};
use crate::diag::{Code, Diagnostic, Severity, nearest};
use crate::graph::NodeId;
use crate::types::{Type, Val};

/// What is provided for one input.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// Nothing.
    Empty,
    /// A single value for all of it.
    Whole(Provided),
    /// Values for its items, by path.
    Parts(Vec<(Vec<String>, Provided)>),
}

impl Slot {
    /// The origin of the value at `path`, if there is one.
    fn origin_of(&self, path: &[String]) -> Option<&str> {
        match self {
            Slot::Empty => None,
            Slot::Whole(p) => Some(&p.origin),
            Slot::Parts(v) if path.is_empty() => v.first().map(|(_, p)| &*p.origin),
            Slot::Parts(v) => v.iter().find(|(q, _)| is_same_path(q, path)).map(|(_, p)| &*p.origin),
        }
    }
}

impl InputBinder<'_> {
    /// The input, and the path within it, to which a name refers.
    pub(super) fn find(&self, name: &str) -> Option<(usize, Vec<String>)> {
        // The value that a call leaves in an input that it changes is written as `input.NAME`.
        let whole = |name: &str| self.placeholder_index(name).map(|i| (i, vec![]));
        if let Some(found) = whole(name).or_else(|| whole(name.strip_prefix("input.")?)) {
            return Some(found);
        }
        let path = name_parts(name);
        let (root, rest) = path.split_first().filter(|(_, rest)| !rest.is_empty())?;
        if let Some(found) = whole(&join_path(&path)) {
            return Some(found);
        }
        let i = self.placeholder_index(root)?;
        let ty = self.graph[self.placeholders[i]].meta.ty.as_ref();
        let open = ty.is_none_or(|t| is_nested(t) || *t == Val::Unknown);
        open.then(|| (i, rest.to_vec()))
    }

    /// The values provided for each placeholder, in order.
    pub(super) fn assign(&mut self, provided: Vec<Provided>) -> Vec<Slot> {
        let mut slots = vec![Slot::Empty; self.placeholders.len()];
        let mut extra = vec![];
        let mut open: Vec<Provided> = provided.into_iter().rev().collect();
        while let Some(p) = open.pop() {
            let Some((i, path)) = self.find(&p.name) else {
                match self.spread(&p) {
                    Some(items) => open.extend(items.into_iter().rev()),
                    None => extra.push(p),
                }
                continue;
            };
            if let Some(first) = slots[i].origin_of(&path) {
                let d = given_twice(&p.name, &[first, &p.origin]);
                self.out.push(d);
            } else if let Given::Each(all) = &p.given {
                let origins: Vec<&str> = all.iter().map(|p| &*p.origin).collect();
                let help = format!(
                    "use `fxc run --repeat {}` to call the model with each in turn",
                    all.len()
                );
                let d = given_twice(&p.name, &origins).help(help);
                self.out.push(d);
                // So that it does not count as missing.
                slots[i] = Slot::Whole(p);
            } else if path.is_empty() {
                slots[i] = Slot::Whole(p);
            } else if let Slot::Parts(parts) = &mut slots[i] {
                parts.push((path, p));
            } else {
                slots[i] = Slot::Parts(vec![(path, p)]);
            }
        }
        self.report_missing(&slots, &extra);
        let given: Vec<bool> = slots.iter().map(|s| !matches!(s, Slot::Empty)).collect();
        self.report_extra(&given, &extra);
        slots
    }

    /// The items of a list or dict literal for an input that torch's exporter has flattened.
    pub(super) fn spread(&self, p: &Provided) -> Option<Vec<Provided>> {
        let Given::Value(v) = &p.given else { return None };
        let prefix = format!("{}_", join_path(&name_parts(&p.name)));
        let flattened = |n: &NodeId| self.graph[*n].target().starts_with(&prefix);
        if !self.placeholders.iter().any(flattened) {
            return None;
        }
        let items = named_items(v).into_iter().map(|(name, v)| Provided {
            name: format!("{}.{name}", p.name),
            given: Given::Value(v.clone()),
            ..p.clone()
        });
        Some(items.collect::<Vec<_>>()).filter(|v| !v.is_empty())
    }

    fn report_missing(&mut self, slots: &[Slot], extra: &[Provided]) {
        for (i, slot) in slots.iter().enumerate() {
            let n = self.placeholders[i];
            if matches!(slot, Slot::Empty) && self.graph[n].args().is_empty() {
                let place = self.input_place(n);
                self.report_missing_input(&place, extra);
            }
        }
    }

    fn report_missing_input(&mut self, place: &InputPlace, extra: &[Provided]) {
        let name = &place.name;
        let what = match &place.ty {
            Some(t) if *t != Val::Unknown => format!("`{name}` ({t})"),
            _ => format!("`{name}`"),
        };
        let mut d =
            Diagnostic::new(Code::E0501, format!("input {what} has no value")).at_opt(place.span, "declared here");
        if let Some(near) = nearest(name, extra.iter().map(|p| p.name.as_str())) {
            d = d.help(format!(
                "the given value `{near}` matches no input; rename it to `{name}`"
            ));
        } else if !extra.is_empty() {
            let names = quoted_list(extra.iter().map(|p| p.name.as_str()));
            d = d.note(format!("the following values match no input: {names}"));
        }
        self.out.push(d.help(how_to_give(place)));
    }

    /// Reports values whose names match no input. `given` tells which inputs have a value.
    pub(super) fn report_extra(&mut self, given: &[bool], extra: &[Provided]) {
        let names: Vec<&str> = self.placeholders.iter().map(|&n| self.graph[n].target()).collect();
        // These are reported as missing.
        let missing: Vec<&str> = self
            .placeholders
            .iter()
            .zip(given)
            .filter(|(n, given)| !**given && self.graph[**n].args().is_empty())
            .map(|(n, _)| self.graph[*n].target())
            .collect();
        let mut unread: Vec<&Provided> = vec![];
        for p in extra {
            // If the name resembles a missing input, the error for that input already mentions it.
            if nearest(&p.name, missing.iter().copied()).is_some() {
                continue;
            }
            match nearest(&p.name, names.iter().copied()) {
                None if !p.must_match => unread.push(p),
                near => {
                    let mut d = Diagnostic::new(Code::E0505, format!("the graph has no input `{}`", p.name));
                    if !p.must_match {
                        d.severity = Severity::Warning;
                        d.title = format!("`{}` from {} is not an input of the graph", p.name, p.origin);
                    }
                    let all = || format!("the graph's inputs are {}", quoted_list(names.iter().copied()));
                    self.out.push(match near {
                        Some(n) => d.help(format!("there is an input with a similar name: `{n}`")),
                        None => d.note(all()),
                    });
                }
            }
        }
        self.report_unread(&unread, &names);
    }

    /// Warns once per file about its arrays that match no input.
    fn report_unread(&mut self, unread: &[&Provided], names: &[&str]) {
        let mut origins: Vec<&str> = unread.iter().map(|p| &*p.origin).collect();
        origins.dedup();
        for origin in origins {
            let of_it: Vec<&str> = unread.iter().filter(|p| p.origin == origin).map(|p| &*p.name).collect();
            let title = match of_it[..] {
                [one] => format!("`{one}` from {origin} is not an input of the graph"),
                _ => format!(
                    "{} arrays from {origin} are not inputs of the graph: {}",
                    of_it.len(),
                    quoted_list(of_it.into_iter())
                ),
            };
            let mut d = Diagnostic::new(Code::E0505, title);
            d.severity = Severity::Warning;
            self.out
                .push(d.note(format!("the graph's inputs are {}", quoted_list(names.iter().copied()))));
        }
    }

    /// Values for all placeholders: first the provided ones (they bind sizes), then those to generate.
    pub(super) fn bind_values(&mut self, slots: Vec<Slot>) -> Option<Vec<Value>> {
        let placeholders = self.placeholders.clone();
        let mut wanted = vec![];
        for (&n, slot) in placeholders.iter().zip(slots) {
            wanted.push(self.wanted_values(n, slot));
        }
        for fills in [false, true] {
            for want in wanted.iter_mut().flat_map(|(_, v)| v) {
                if let Want {
                    place,
                    given: Some(p),
                    value,
                } = want
                    && matches!(p.given, Given::Fill(..)) == fills
                {
                    *value = self.provided_value(place, p);
                }
            }
        }
        let assigned = |(shape, wants): (Type, Vec<Want>)| {
            let mut values = wants.into_iter().map(|w| w.value);
            rebuild_value(&shape, &mut || values.next().flatten())
        };
        wanted.into_iter().map(assigned).collect()
    }

    /// The values to find for an input, and their structure.
    fn wanted_values(&mut self, n: NodeId, slot: Slot) -> (Type, Vec<Want>) {
        let place = self.input_place(n);
        let parts = match slot {
            Slot::Parts(parts) => parts,
            Slot::Whole(p) => return (Val::Unknown, vec![Want::new(place, Some(p))]),
            Slot::Empty => {
                let mut want = Want::new(place, None);
                want.value = self.graph[n].args().first().and_then(default_value);
                return (Val::Unknown, vec![want]);
            }
        };
        let shape = match &place.ty {
            Some(t) if is_nested(t) => t.clone(),
            _ => infer_structure(&parts.iter().map(|(path, _)| &path[..]).collect::<Vec<_>>()),
        };
        let wants = self.items_wanted(&place, &shape, parts);
        (shape, wants)
    }

    fn items_wanted(&mut self, place: &InputPlace, shape: &Type, mut parts: Vec<(Vec<String>, Provided)>) -> Vec<Want> {
        let mut wants = vec![];
        for (path, ty) in leaves_with_paths(shape) {
            let item = InputPlace {
                name: format!("{}.{}", place.name, path.join(".")),
                ty: Some(ty.clone()).filter(|t| *t != Val::Unknown),
                constant: None,
                span: place.span,
                is_tensor: false,
            };
            let found = parts.iter().position(|(p, _)| is_same_path(p, &path));
            let given = found.map(|i| parts.swap_remove(i).1);
            if given.is_none() {
                self.report_missing_input(&item, &[]);
            }
            wants.push(Want::new(item, given));
        }
        for (_, p) in parts {
            let names: Vec<String> = wants.iter().map(|w| w.place.name.clone()).collect();
            let d = Diagnostic::new(Code::E0505, format!("input `{}` has no item `{}`", place.name, p.name))
                .at_opt(place.span, "declared here")
                .note(format!(
                    "its items are {}",
                    quoted_list(names.iter().map(String::as_str))
                ));
            self.out.push(d);
        }
        wants
    }
}

/// A value that must be found.
struct Want {
    place: InputPlace,
    given: Option<Provided>,
    value: Option<Value>,
}

impl Want {
    fn new(place: InputPlace, given: Option<Provided>) -> Want {
        let value = None;
        Want { place, given, value }
    }
}

fn given_twice(name: &str, origins: &[&str]) -> Diagnostic {
    let mut by = origins.to_vec();
    by.dedup();
    let title = format!("`{name}` is given {} times: by {}", origins.len(), by.join(" and by "));
    Diagnostic::new(Code::E0510, title)
}

fn how_to_give(place: &InputPlace) -> String {
    let name = &place.name;
    match &place.ty {
        Some(t) if is_nested(t) => {
            let items = leaves_with_paths(t).into_iter().take(3);
            let items: Vec<String> = items
                .map(|(path, _)| format!("`{name}.{}=…`", path.join(".")))
                .collect();
            format!("pass its items: {}", items.join(", "))
        }
        Some(Val::Leaf(_)) | Some(Val::Unknown) | None => {
            format!("pass `{name}=FILE.npy` or `{name}=rand:0`, or include it in the --inputs file")
        }
        Some(t) => format!("pass `{name}=VALUE` with a value of type {t}"),
    }
}
