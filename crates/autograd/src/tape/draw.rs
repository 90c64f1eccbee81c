//! The tape as a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use tiled_tensor::Element;

use crate::tensor::{History, Node, Tensor};

/// What is drawn of a node or leaf.
struct Box {
    text: String,
    is_leaf: bool,
    before: Vec<u64>,
    /// How far it is from the leaves.
    level: usize,
}

impl<T: Element> Tensor<T> {
    /// The graph of this value in the language of Graphviz.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut text =
            String::from("digraph tape {\n  rankdir=BT;\n  node [shape=box, fontname=\"sans-serif\"];\n");
        let boxes = boxes(self);
        for (number, drawn) in &boxes {
            let style = if drawn.is_leaf { ", style=rounded" } else { "" };
            let _ = writeln!(text, "  n{number} [label=\"{}\"{style}];", drawn.text);
        }
        for (number, drawn) in &boxes {
            for before in &drawn.before {
                let _ = writeln!(text, "  n{before} -> n{number};");
            }
        }
        text + "}\n"
    }

    /// The graph of this value as a drawing: leaves below, a row for each step away from them.
    #[must_use]
    pub fn to_svg(&self) -> String {
        const WIDTH: usize = 150;
        const HEIGHT: usize = 34;
        const GAP: usize = 26;
        let boxes = boxes(self);
        let levels = boxes.values().map(|drawn| drawn.level + 1).max().unwrap_or(0);
        let mut filled = vec![0_usize; levels];
        let mut places = BTreeMap::new();
        for (number, drawn) in &boxes {
            let (column, row) = (filled[drawn.level], levels - 1 - drawn.level);
            filled[drawn.level] += 1;
            places.insert(*number, (GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP)));
        }
        let columns = filled.iter().copied().max().unwrap_or(0);
        let (width, height) = (GAP + columns * (WIDTH + GAP), GAP + levels * (HEIGHT + GAP));
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        );
        for (number, drawn) in &boxes {
            let (x, y) = places[number];
            for before in &drawn.before {
                let (from_x, from_y) = places[before];
                let (from_x, x) = (from_x + WIDTH / 2, x + WIDTH / 2);
                let bottom = y + HEIGHT;
                let _ = writeln!(
                    text,
                    "<line x1=\"{from_x}\" y1=\"{from_y}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#888\"/>"
                );
            }
        }
        for (number, drawn) in &boxes {
            let (x, y) = places[number];
            let (fill, corner) = if drawn.is_leaf { ("#dce9f7", 14) } else { ("#f3f3f3", 2) };
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"{corner}\" fill=\"{fill}\" stroke=\"#888\"/>"
            );
            let (middle, base) = (x + WIDTH / 2, y + HEIGHT / 2 + 4);
            let _ = writeln!(
                text,
                "<text x=\"{middle}\" y=\"{base}\" text-anchor=\"middle\">{}</text>",
                drawn.text
            );
        }
        text + "</svg>\n"
    }
}

/// All that a value depends on, by number: operands stand before what is computed of them.
fn boxes<T: Element>(value: &Tensor<T>) -> BTreeMap<u64, Box> {
    let mut boxes = BTreeMap::new();
    let mut nodes: BTreeMap<u64, Arc<Node<T>>> = BTreeMap::new();
    let mut stack: Vec<(History<T>, Vec<usize>)> = vec![(value.history().clone(), value.shape().to_vec())];
    let mut seen = BTreeSet::new();
    while let Some((history, shape)) = stack.pop() {
        match history {
            History::None => {}
            History::Leaf(leaf) => {
                let drawn =
                    Box { text: format!("leaf {shape:?}"), is_leaf: true, before: Vec::new(), level: 0 };
                boxes.entry(leaf.number).or_insert(drawn);
            }
            History::Node(node, _) => {
                if seen.insert(node.number) {
                    for operand in &node.operands {
                        stack.push((operand.history.clone(), operand.layout.shape().to_vec()));
                    }
                    nodes.insert(node.number, node);
                }
            }
        }
    }
    for (number, node) in &nodes {
        let keys = node.operands.iter().filter_map(|operand| operand.history.key());
        let before: BTreeSet<u64> = keys.map(|(number, _)| number).collect();
        let level = before.iter().filter_map(|number| boxes.get(number)).map(|drawn| drawn.level + 1).max();
        let text = format!("{} {:?}", node.op.name(), node.result.shape());
        let drawn =
            Box { text, is_leaf: false, before: before.into_iter().collect(), level: level.unwrap_or(0) };
        boxes.insert(*number, drawn);
    }
    boxes
}
