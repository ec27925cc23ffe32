//! Draws a graph as SVG, without Graphviz.
//!
//! A box shows a node's name, the call with its literal arguments, its type, and its group (the kernel that computes
//! it). Boxes of the same group have the same colour. The tooltip of a box is the location in the user's Python.

use super::layout::{Boxes, compute_layout};
use crate::graph::{Graph, Node, NodeId, Opcode, pyrepr};
use crate::types::Val;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// The name of each node's group.
pub type Groups = HashMap<NodeId, Arc<str>>;

const FONT: f64 = 11.0;
const LINE: f64 = 14.0;
const MARGIN: f64 = 12.0;
/// The width of a character relative to the font size, for a monospaced font.
const LETTER: f64 = 0.602;
/// Lines longer than this are truncated.
const MAX_LINE: usize = 48;

/// Colours of groups.
const COLOURS: [&str; 10] = [
    "#cfe8ff", "#d9f2d0", "#fde3c8", "#f5d3e6", "#e3dcf7", "#fff3b8", "#cdeeea", "#f8d0cc", "#e4e9c2", "#d8dee6",
];

/// The drawing of `graph`, with the title `name`.
pub fn svg(graph: &Graph, name: &str, groups: &Groups) -> String {
    let nodes = graph.ids();
    let number: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &n)| (n, i)).collect();
    let lines: Vec<Vec<String>> = nodes.iter().map(|&n| label_lines(graph, n, groups)).collect();
    let size = |l: &Vec<String>| {
        let widest = l.iter().map(|t| t.chars().count()).max().unwrap_or(0);
        (widest as f64 * FONT * LETTER + 14.0, l.len() as f64 * LINE + 8.0)
    };
    let boxes = Boxes {
        sizes: lines.iter().map(size).collect(),
        edges: nodes
            .iter()
            .flat_map(|n| graph[*n].inputs().into_iter().map(|i| (number[&i], number[n])))
            .collect(),
    };
    let l = compute_layout(&boxes);
    let (w, h) = (l.size.0 + 2.0 * MARGIN, l.size.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.0} {h:.0}\" \
         font-family=\"monospace\" font-size=\"{FONT}\">\n<title>{}</title>\n<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" \
         refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" \
         fill=\"#666\"/></marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escape_xml(name)
    );
    for points in &l.lines {
        let _ = writeln!(
            out,
            "<path d=\"{}\" fill=\"none\" stroke=\"#888\" marker-end=\"url(#arrow)\"/>",
            curve_path(points)
        );
    }
    let colours = group_colours(&nodes, groups);
    for (i, &n) in nodes.iter().enumerate() {
        let fill = groups.get(&n).and_then(|g| colours.get(g).copied());
        draw_node(&mut out, graph, n, (l.places[i], boxes.sizes[i]), fill, &lines[i]);
    }
    out.push_str("</svg>\n");
    out
}

/// Assigns a colour to each group, in order of appearance.
fn group_colours(nodes: &[NodeId], groups: &Groups) -> HashMap<Arc<str>, &'static str> {
    let mut out = HashMap::new();
    for g in nodes.iter().filter_map(|n| groups.get(n)) {
        let next = COLOURS[out.len() % COLOURS.len()];
        out.entry(g.clone()).or_insert(next);
    }
    out
}

type BoxGeometry = ((f64, f64), (f64, f64));

fn draw_node(out: &mut String, graph: &Graph, n: NodeId, geometry: BoxGeometry, fill: Option<&str>, lines: &[String]) {
    let ((x, y), (w, h)) = geometry;
    let (left, top) = (x - w / 2.0 + MARGIN, y - h / 2.0 + MARGIN);
    let node = &graph[n];
    let round = if node.op().is_call() { 4 } else { 10 };
    let _ = write!(
        out,
        "<g id=\"{}\">\n<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"{round}\" fill=\"{}\" \
         stroke=\"#444\"/>\n",
        escape_xml(node.name()),
        fill.unwrap_or(default_colour(node))
    );
    if let Some(loc) = &node.meta.loc {
        let place = format!("{}:{} {}", loc.file, loc.line, loc.function);
        let _ = writeln!(out, "<title>{}</title>", escape_xml(place.trim_end()));
    }
    for (i, text) in lines.iter().enumerate() {
        let weight = if i == 0 { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\"{weight}>{}</text>",
            left + 7.0,
            top + 4.0 + LINE * (i as f64 + 0.8),
            escape_xml(text)
        );
    }
    out.push_str("</g>\n");
}

/// The colour of a node that is in no group.
fn default_colour(node: &Node) -> &'static str {
    match node.op() {
        Opcode::Placeholder => "#eaf4ff",
        Opcode::GetAttr => "#eeeeee",
        Opcode::Output => "#d6f0f2",
        _ => "#ffffff",
    }
}

fn label_lines(graph: &Graph, n: NodeId, groups: &Groups) -> Vec<String> {
    let node = &graph[n];
    let mut lines = vec![format!("%{}", node.name())];
    let args = literal_arguments(graph, node);
    match node.op() {
        Opcode::Placeholder | Opcode::GetAttr => lines.push(format!("{} {}", node.op(), node.target())),
        Opcode::Output => {}
        _ if args.is_empty() => lines.push(node.target().to_string()),
        _ => lines.push(format!("{}({args})", node.target())),
    }
    if let Some(ty) = &node.meta.ty {
        lines.push(ty.to_string());
    }
    if let Some(g) = groups.get(&n) {
        lines.push(format!("[{g}]"));
    }
    lines.into_iter().map(cut_line).collect()
}

/// The literal arguments, which edges do not show.
fn literal_arguments(graph: &Graph, node: &Node) -> String {
    let name = |n: &NodeId| format!("%{}", graph[*n].name());
    let mut out: Vec<String> = vec![];
    for a in node.args() {
        if !matches!(a, Val::Leaf(_)) {
            out.push(pyrepr::repr(a, &name));
        }
    }
    for (k, a) in node.kwargs() {
        if !matches!(a, Val::Leaf(_)) {
            out.push(format!("{k}={}", pyrepr::repr(a, &name)));
        }
    }
    out.join(", ")
}

fn cut_line(s: String) -> String {
    match s.char_indices().nth(MAX_LINE) {
        Some((i, _)) => format!("{}…", &s[..i]),
        None => s,
    }
}

/// A smooth path through the points: straight at the joints, curved between layers.
fn curve_path(points: &[(f64, f64)]) -> String {
    let shifted = |p: &(f64, f64)| (p.0 + MARGIN, p.1 + MARGIN);
    let mut out = String::new();
    for (i, p) in points.iter().enumerate() {
        let (x, y) = shifted(p);
        if i == 0 {
            let _ = write!(out, "M{x:.1} {y:.1}");
            continue;
        }
        let (px, py) = shifted(&points[i - 1]);
        if (px - x).abs() < 0.05 {
            let _ = write!(out, "L{x:.1} {y:.1}");
        } else {
            let mid = (y + py) / 2.0;
            let _ = write!(out, "C{px:.1} {mid:.1} {x:.1} {mid:.1} {x:.1} {y:.1}");
        }
    }
    out
}

fn escape_xml(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML does not allow control characters, not even escaped.
            c if (c as u32) < 0x20 => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_say_name_call_type_and_group() {
        let g = Graph::trace(&["x"], |t, p| {
            let odd = Val::str("a<b>&\"\n");
            let y = t.function("f", (&p[0], odd), &[("dim", Val::int(-1))]);
            (y.method("exp", ()), p[0].clone())
        });
        let f = g.find("f").unwrap();
        let groups = Groups::from([(f, "kernel_0".into())]);
        let text = svg(&g, "m", &groups);
        assert!(text.contains(">f('a&lt;b&gt;&amp;&quot;\\n', dim=-1)</text>"), "{text}");
        assert!(
            text.contains(">[kernel_0]</text>") && text.contains("fill=\"#cfe8ff\""),
            "{text}"
        );
        assert_eq!(text.matches("<g id=").count(), g.len());
        assert_eq!(text.matches("marker-end").count(), 4);
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }

    #[test]
    fn the_empty_graph_is_a_drawing() {
        assert!(svg(&Graph::new(), "", &Groups::new()).contains("width=\"24\" height=\"24\""));
    }
}
