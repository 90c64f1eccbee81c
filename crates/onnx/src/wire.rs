//! What the messages of a file take in memory, counted on its bytes before they are made.
//!
//! An empty message is two bytes of a file and some hundred in memory, so that a small file could ask for more memory than there
//! is, and in the middle of reading nobody can refuse. Elements of tensors do not count: their bytes stay where they are.
//!
//! Source: Protocol Buffers, "Encoding", 2025.

use prost::bytes::Bytes;
use tiled_tensor::with_room;

use crate::OnnxError;
use crate::proto::{
    AttributeProto, DimensionProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto,
    SparseTensorProto, StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};

/// The memory that the messages of a file may take: [`MOST_TIMES`] its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    expected: usize,
    got: usize,
}

impl Room {
    /// Counts the messages of a graph among the attributes of a node, which are made once it is read.
    pub(crate) fn take_graph(&mut self, graph: &[u8]) -> Result<(), OnnxError> {
        self.take(graph, Kind::Graph)
    }

    /// Checks that there is room for a message, and that so much memory can be had.
    fn take(&mut self, bytes: &[u8], kind: Kind) -> Result<(), OnnxError> {
        // nodes are made one at a time
        let mut largest = 0;
        let more = size(bytes, kind, &mut largest).saturating_add(largest);
        let (expected, got) = (self.expected, self.got.saturating_add(more));
        if got > expected {
            return Err(OnnxError::Messages { expected: expected as u64, got: got as u64 });
        }
        with_room::<u8>(more)?;
        self.got = got;
        Ok(())
    }
}

/// Checks that there is room for the messages of a file; what is left is for those that nodes have among their attributes.
pub(crate) fn check(bytes: &[u8]) -> Result<Room, OnnxError> {
    let expected = bytes.len().saturating_mul(MOST_TIMES).saturating_add(ALWAYS_BYTES);
    let mut room = Room { expected, got: 0 };
    room.take(bytes, Kind::Model)?;
    Ok(room)
}

/// As many graphs may stand within each other: far more than a network has.
pub(crate) const MOST_GRAPHS: usize = 16;

/// The attributes of a model, whose names are short, take about twenty times their bytes.
const MOST_TIMES: usize = 32;

const ALWAYS_BYTES: usize = 64 << 10;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Model,
    OperatorSet,
    Function,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    Entry,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Dimension,
    /// A text of a list.
    Text,
}

impl Kind {
    /// What the field of this number holds, where that is a message or a text of a list.
    const fn field(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) => Self::Graph,
            (Self::Model, 8) => Self::OperatorSet,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5) | (Self::Sparse, 1) => Self::Tensor,
            (Self::Graph, 11 | 12) => Self::ValueInfo,
            (Self::Graph, 15) => Self::Sparse,
            (Self::Node, 1 | 2) => Self::Text,
            (Self::Node, 5) => Self::Attribute,
            (Self::Tensor, 13) => Self::Entry,
            (Self::ValueInfo, 2) => Self::Type,
            (Self::Type, 1) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            (Self::Shape, 1) => Self::Dimension,
            _ => return None,
        })
    }

    const fn size_bytes(self) -> usize {
        match self {
            Self::Model => 0,
            Self::OperatorSet => size_of::<OperatorSetIdProto>(),
            Self::Function => size_of::<FunctionProto>(),
            Self::Graph => size_of::<GraphProto>(),
            Self::Node => size_of::<NodeProto>(),
            Self::Attribute => size_of::<AttributeProto>(),
            Self::Tensor => size_of::<TensorProto>(),
            Self::Sparse => size_of::<SparseTensorProto>(),
            Self::Entry => size_of::<StringStringEntryProto>(),
            Self::ValueInfo => size_of::<ValueInfoProto>(),
            Self::Type => size_of::<TypeProto>(),
            Self::TensorType => size_of::<TensorTypeProto>(),
            Self::Shape => size_of::<TensorShapeProto>(),
            Self::Dimension => size_of::<DimensionProto>(),
            Self::Text => size_of::<String>(),
        }
    }
}

/// The size of a message with all that is in it; what is malformed ends the count, and is refused by the reader. No message of
/// these is within one of its kind, so this is at most eight calls deep.
fn size(bytes: &[u8], kind: Kind, largest_node: &mut usize) -> usize {
    let mut total = kind.size_bytes();
    for (field, content) in fields(bytes) {
        let Some(inner) = kind.field(field) else { continue };
        let mut size = size(content, inner, largest_node);
        if matches!(inner, Kind::Node) {
            *largest_node = size.max(*largest_node);
            size = size_of::<Bytes>();
        }
        total = total.saturating_add(size);
    }
    total
}

/// The messages, texts and lists of a message, each with the number of its field; they end before what is malformed.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || next_field(&mut bytes))
}

/// The first of them, behind which `bytes` begin then.
fn next_field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    loop {
        let tag = varint(bytes)?;
        let skipped = match tag & 7 {
            0 => varint(bytes).map(|_| 0),
            1 => Some(8),
            2 => varint(bytes).and_then(|len| usize::try_from(len).ok()),
            5 => Some(4),
            _ => None,
        };
        let (content, rest) = bytes.split_at_checked(skipped?)?;
        *bytes = rest;
        if tag & 7 == 2 {
            return Some((tag >> 3, content));
        }
    }
}

/// The names of the values that a node reads (field 1), or makes (field 2).
pub(crate) fn names_of_node(node: &[u8], field: u64) -> impl Iterator<Item = &str> {
    let names = fields(node).filter(move |(number, _)| *number == field);
    // one that is no text ends the reading of the node
    names.filter_map(|(_, name)| std::str::from_utf8(name).ok())
}

/// The names that graphs among the attributes of a node read, each as often as it stands there, whether they make it themselves or
/// not.
pub(crate) fn names_of_graphs(node: &[u8]) -> impl Iterator<Item = &str> {
    names_within(node, Kind::Node)
}

/// The same of one of them.
pub(crate) fn names_of_graph(graph: &[u8]) -> impl Iterator<Item = &str> {
    names_within(graph, Kind::Graph)
}

/// The names that nodes and outputs within a message read; what is deeper than [`MOST_GRAPHS`] is left out, as nothing comes to
/// read it.
fn names_within(bytes: &[u8], kind: Kind) -> impl Iterator<Item = &str> {
    // the messages around the next field, each with what is left of it: node, attribute and graph in turn
    let mut around = vec![(kind, bytes)];
    std::iter::from_fn(move || {
        loop {
            let depth = around.len();
            let (kind, left) = around.last_mut()?;
            let Some((field, content)) = next_field(left) else {
                around.pop();
                continue;
            };
            match (*kind, field) {
                (Kind::Node | Kind::ValueInfo, 1) if depth > 1 => {
                    if let Ok(name) = std::str::from_utf8(content) {
                        return Some(name);
                    }
                }
                (Kind::Node, 5) => around.push((Kind::Attribute, content)),
                (Kind::Attribute, 6) if depth <= 3 * MOST_GRAPHS => around.push((Kind::Graph, content)),
                (Kind::Graph, 1) => around.push((Kind::Node, content)),
                (Kind::Graph, 12) => around.push((Kind::ValueInfo, content)),
                _ => {}
            }
        }
    })
}

/// The number at the start of `bytes`, seven bits a byte, which goes.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_empty_messages_is_refused() {
        // initialisers without anything in a graph
        let tensors = [0x2a, 0x00].repeat(100_000);
        let mut file = vec![0x3a];
        prost::encoding::encode_varint(tensors.len() as u64, &mut file);
        file.extend(tensors);
        let text = check(&file).expect_err("100000 tensors in 200 kB").to_string();
        assert!(text.starts_with("its messages take "), "{text}");
        // as many bytes of elements
        let mut raw = vec![0x4a];
        prost::encoding::encode_varint(200_000, &mut raw);
        raw.resize(raw.len() + 200_000, 0);
        assert!(check(&raw).is_ok());
    }

    #[test]
    fn what_is_malformed_ends_the_count() {
        for bytes in [&[0x80; 20][..], &[0x3a, 0xff], &[0x3b], &[0x39, 0]] {
            assert!(check(bytes).is_ok(), "{bytes:?}");
        }
        assert_eq!(varint(&mut &[0x96, 0x01][..]), Some(150));
    }
}
