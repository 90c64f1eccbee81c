//! Networks, node by node or from the JSON network format.

use std::ffi::c_char;

use serde_json::Value;
use tiled::graph::{Graph, ValueId, infer_nchw};
use tiled::tensor::with_room;

use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::pointer::{Output, TextOutput, array, text};
use crate::status::{Failure, Fallible, TILED_STATUS_NOT_FOUND, tiled_status};
use crate::tensor::sizes;

/// A network: inputs, operators over values that stand before them, and outputs.
///
/// Adding to it changes it; everything else reads it, and `const` handles may be shared by threads.
#[derive(Debug)]
pub struct tiled_graph {
    _opaque: (),
}

impl Opaque for tiled_graph {
    type Object = Graph;
    const KIND: usize = 3;
    const NAME: &'static str = "graph";
}

/// A value of a network: an input or what a node makes. Inputs are 0, 1, …, nodes follow in the order of adding.
pub type tiled_value = u64;

/// Makes a network without inputs and nodes.
///
/// The handle is the caller's, to be freed with `tiled_graph_free`. On failure `graph` is untouched. Threads: any.
///
/// # Safety
/// `graph` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_new(graph: *mut *mut tiled_graph) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let graph = unsafe { Output::new(graph, "graph")? };
        graph.set(handle::insert(Graph::new())?);
        Ok(())
    })
}

/// Makes the network of a text of `length` bytes in the JSON network format.
///
/// The text is read during the call. The handle is the caller's, to be freed with `tiled_graph_free`. On failure
/// (`TILED_STATUS_NETWORK`, the message names the layer and the key) `graph` is untouched. Threads: any.
///
/// # Safety
/// `json` is NULL or `length` bytes can be read from it; `graph` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_from_json(
    json: *const c_char,
    length: usize,
    graph: *mut *mut tiled_graph,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an empty text is still checked for NULL
        let (bytes, graph) =
            unsafe { (array(json.cast::<u8>(), length.max(1), "json")?, Output::new(graph, "graph")?) };
        let json =
            std::str::from_utf8(&bytes[..length]).map_err(|_| Failure::invalid("json is not UTF-8"))?;
        graph.set(handle::insert(Graph::from_json(json)?)?);
        Ok(())
    })
}

/// Makes a built-in network: `"vgg16"`, `"unet"`, `"resnet18"`, …
///
/// The handle is the caller's, to be freed with `tiled_graph_free`. On failure (`TILED_STATUS_NOT_FOUND`, the message
/// names those that there are) `graph` is untouched. Threads: any.
///
/// # Safety
/// `name` is NULL or a text ended by a NUL; `graph` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_builtin(
    name: *const c_char,
    graph: *mut *mut tiled_graph,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (name, graph) = unsafe { (text(name, "name")?, Output::new(graph, "graph")?) };
        let built = Graph::try_builtin(name)?.ok_or_else(|| {
            let known: Vec<&str> = tiled::graph::builtin_names().collect();
            let message = format!("no built-in network `{name}`, known are {}", known.join(", "));
            Failure::new(TILED_STATUS_NOT_FOUND, message)
        })?;
        graph.set(handle::insert(built)?);
        Ok(())
    })
}

/// Frees a network; NULL does nothing. Plans and weights made for it stay. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_graph_free(graph: *mut tiled_graph) -> tiled_status {
    guard(|| handle::free(graph, "graph"))
}

/// Adds an input with so many channels; all inputs come before the first node.
///
/// `name` is unique and not empty, nor is a part of it before, after or between dots. On failure the network and `value` are
/// untouched.
/// Threads: one call at a time.
///
/// # Safety
/// `name` is NULL or a text ended by a NUL; `value` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_add_input(
    graph: *mut tiled_graph,
    name: *const c_char,
    channels: i64,
    value: *mut tiled_value,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (name, value) = unsafe { (text(name, "name")?, Output::new(value, "value")?) };
        crate::geometry::check("channels", channels, 1, MAX_CHANNELS)?;
        let channels = usize::try_from(channels).unwrap_or(usize::MAX);
        handle::exclusive(graph, "graph", |graph| {
            value.set(number(graph.add_input(name, channels)?));
            Ok(())
        })
    })
}

/// Adds an operator over `count` values that stand before it.
///
/// `op` and the attributes are those of the network format: `"conv2d"` with
/// `{"out_channels": 16, "kernel_size": 3, "padding": 1}`; `{…, "weight": "conv1.weight"}` reads that parameter of a node before
/// it. `attributes` is a JSON object, or NULL for none. The name of the node is as that of an input, and not that of a
/// parameter either. On failure the network and `value` are untouched. Threads: one call at a time.
///
/// # Safety
/// The texts are NULL or ended by a NUL; `inputs` is NULL or `count` values can be read from it; `value` is NULL or can
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_add_node(
    graph: *mut tiled_graph,
    name: *const c_char,
    op: *const c_char,
    attributes: *const c_char,
    inputs: *const tiled_value,
    count: usize,
    value: *mut tiled_value,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (name, op, attributes, inputs, value) = unsafe {
            (
                text(name, "name")?,
                text(op, "op")?,
                (!attributes.is_null()).then(|| text(attributes, "attributes")).transpose()?,
                array(inputs, count, "inputs")?,
                Output::new(value, "value")?,
            )
        };
        handle::exclusive(graph, "graph", |graph| {
            let inputs = ids(graph, inputs)?;
            check_attributes(name, attributes)?;
            let attributes = attributes.unwrap_or("{}");
            value.set(number(graph.add_node_from_json(name, op, attributes, &inputs)?));
            Ok(())
        })
    })
}

/// Checks that attributes are a JSON object of attributes alone.
fn check_attributes(name: &str, attributes: Option<&str>) -> Fallible {
    let object = match attributes.map(serde_json::from_str::<Value>) {
        None => return Ok(()),
        Some(Ok(Value::Object(object))) => object,
        Some(Ok(_)) => return Err(Failure::invalid(format!("attributes of `{name}` are no JSON object"))),
        Some(Err(error)) => return Err(Failure::invalid(format!("attributes of `{name}`: {error}"))),
    };
    match ["name", "op", "inputs"].into_iter().find(|key| object.contains_key(*key)) {
        None => Ok(()),
        Some(key) => {
            Err(Failure::invalid(format!("attributes of `{name}`: `{key}` is an argument of its own")))
        }
    }
}

/// Sets the outputs, `count` values, each once.
///
/// On failure the network is untouched. Threads: one call at a time.
///
/// # Safety
/// `outputs` is NULL or `count` values can be read from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_set_outputs(
    graph: *mut tiled_graph,
    outputs: *const tiled_value,
    count: usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let outputs = unsafe { array(outputs, count, "outputs")? };
        handle::exclusive(graph, "graph", |graph| Ok(graph.set_outputs(&ids(graph, outputs)?)?))
    })
}

/// The value of this name. On failure (`TILED_STATUS_NOT_FOUND`) `value` is untouched. Threads: any.
///
/// # Safety
/// `name` is NULL or a text ended by a NUL; `value` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_value(
    graph: *const tiled_graph,
    name: *const c_char,
    value: *mut tiled_value,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (name, value) = unsafe { (text(name, "name")?, Output::new(value, "value")?) };
        handle::shared(graph, "graph", |graph| {
            let found = graph.value(name).ok_or_else(|| {
                Failure::new(TILED_STATUS_NOT_FOUND, format!("network has no value `{name}`"))
            })?;
            value.set(number(found));
            Ok(())
        })
    })
}

/// The value that is output `index` of the network. On failure (`TILED_STATUS_OUT_OF_RANGE`) `value` is untouched.
///
/// Threads: any.
///
/// # Safety
/// `value` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_output(
    graph: *const tiled_graph,
    index: usize,
    value: *mut tiled_value,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let value = unsafe { Output::new(value, "value")? };
        handle::shared(graph, "graph", |graph| {
            let outputs = graph.outputs();
            let found = outputs.get(index).ok_or_else(|| {
                Failure::range(format!("output is {index}, the network has {}", outputs.len()))
            })?;
            value.set(number(*found));
            Ok(())
        })
    })
}

/// The name of a value, which is that of its input or node: UTF-8, ended by a NUL.
///
/// With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_name(
    graph: *const tiled_graph,
    value: tiled_value,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        handle::shared(graph, "graph", |graph| output.set(graph.name(id(graph, value)?)))
    })
}

/// The channels of a value. On failure `channels` is untouched. Threads: any.
///
/// # Safety
/// `channels` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_channels(
    graph: *const tiled_graph,
    value: tiled_value,
    channels: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let channels = unsafe { Output::new(channels, "channels")? };
        handle::shared(graph, "graph", |graph| {
            channels.set(i64::try_from(graph.channels(id(graph, value)?)).unwrap_or(i64::MAX));
            Ok(())
        })
    })
}

/// The numbers of inputs, of nodes and of outputs. On failure `counts`, three numbers, is untouched. Threads: any.
///
/// # Safety
/// `counts` is NULL or three numbers can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_counts(graph: *const tiled_graph, counts: *mut usize) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of three has the alignment of one
        let counts = unsafe { Output::new(counts.cast::<[usize; 3]>(), "counts")? };
        handle::shared(graph, "graph", |graph| {
            counts.set([graph.inputs().len(), graph.nodes().len(), graph.outputs().len()]);
            Ok(())
        })
    })
}

/// The network in the JSON network format, every attribute written out: UTF-8, ended by a NUL.
///
/// With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_to_json(
    graph: *const tiled_graph,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        handle::shared(graph, "graph", |graph| output.set(&graph.try_to_json()?))
    })
}

/// The shape (NCHW) that a value has for `count` inputs of these shapes, four extents each, one after another.
///
/// On failure `shape` is untouched. Threads: any.
///
/// # Safety
/// `input_shapes` is NULL or `4·count` numbers can be read from it; `shape` is NULL or four can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_graph_shape(
    graph: *const tiled_graph,
    input_shapes: *const i64,
    count: usize,
    value: tiled_value,
    shape: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of four has the alignment of one
        let (inputs, shape) =
            unsafe { (shapes(input_shapes, count)?, Output::new(shape.cast::<[i64; 4]>(), "shape")?) };
        handle::shared(graph, "graph", |graph| {
            let value = id(graph, value)?;
            let inferred = infer_nchw(graph, &inputs)?.shape(value);
            shape.set(inferred.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX)));
            Ok(())
        })
    })
}

/// The shapes of a network's inputs.
///
/// # Safety
/// `pointer` is NULL, misaligned, or `4·count` numbers can be read from it.
pub(crate) unsafe fn shapes(pointer: *const i64, count: usize) -> Fallible<Vec<[usize; 4]>> {
    let len = count.checked_mul(4).ok_or_else(|| Failure::range("input_shapes: too many"))?;
    // SAFETY: the caller's promise
    let numbers = unsafe { array(pointer, len, "input_shapes")? };
    let (numbers, _) = numbers.as_chunks::<4>();
    let mut shapes = with_room(numbers.len())?;
    for shape in numbers {
        shapes.push(sizes(*shape, "input_shapes")?);
    }
    Ok(shapes)
}

/// The values of the network that these numbers stand for.
fn ids(graph: &Graph, values: &[tiled_value]) -> Fallible<Vec<ValueId>> {
    let mut ids = with_room(values.len())?;
    for value in values {
        ids.push(id(graph, *value)?);
    }
    Ok(ids)
}

/// A value of the caller as one of this network.
pub(crate) fn id(graph: &Graph, value: tiled_value) -> Fallible<ValueId> {
    let values = graph.values();
    let place = usize::try_from(value).ok().filter(|place| *place < values);
    place
        .map(ValueId)
        .ok_or_else(|| Failure::range(format!("value {value} is not one of the network's {values}")))
}

const fn number(value: ValueId) -> tiled_value {
    value.0 as tiled_value
}

/// Channels beyond this are a slip: no weight over them fits in memory.
const MAX_CHANNELS: i64 = 1 << 30;
