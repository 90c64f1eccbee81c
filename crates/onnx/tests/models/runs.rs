//! Imported networks on the reference backend: their numbers.

use tiled_exec::{Executor, Io, MemorySink, MemorySource, NoProgress};
use tiled_graph::{Objective, PlanOptions, Planner, infer_nchw};
use tiled_kernel::Reference;

use crate::build::{Attribute, Builder, float_tensor, ints};

/// The output of a model for an image.
pub(crate) fn run(model: &Builder, shape: [usize; 4], image: &[f64]) -> (Vec<f64>, [usize; 4]) {
    let read = model.read().unwrap_or_else(|error| panic!("{error}"));
    let shapes = infer_nchw(&read.graph, &[shape]).unwrap();
    let objective = Objective::inference();
    let planner = Planner::<f64>::new(&read.graph, &shapes, &objective, &Reference);
    let plan = planner.plan(&PlanOptions::default()).unwrap();
    let source = MemorySource::new(image, shape).unwrap();
    let sink = MemorySink::new(shapes.shape(read.graph.outputs()[0])).unwrap();
    let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
    let mut parameters = read.weights.parameters().unwrap();
    Executor::new(plan, &Reference, 1).unwrap().run(&mut parameters, &io, &NoProgress).unwrap();
    let tensor = sink.into_tensor();
    (tensor.data().to_vec(), tensor.shape())
}

#[test]
fn a_convolution_sums_what_its_kernel_covers() {
    let model = Builder::new(17, 1)
        .tensor(float_tensor("w", &[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]))
        .tensor(float_tensor("b", &[1], &[0.5]))
        .node("Conv", &["x", "w", "b"], "c", &[("auto_pad", Attribute::Text("SAME_LOWER"))])
        .node("MaxPool", &["c"], "y", &[("kernel_shape", ints(&[2, 2]))])
        .output("y");
    // sums [4.5 11.5; 14.5 30.5], of which one maximum
    assert_eq!(run(&model, [1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]), (vec![30.5], [1, 1, 1, 1]));
}

#[test]
fn a_head_has_the_numbers_of_its_matrix() {
    let model = Builder::new(17, 2)
        .tensor(float_tensor("w", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        .tensor(float_tensor("b", &[3], &[0.5, 0.25, 0.0]))
        .node("ReduceMean", &["x"], "m", &[("axes", ints(&[2, 3])), ("keepdims", Attribute::Int(0))])
        .node("MatMul", &["m", "w"], "p", &[])
        .node("Add", &["p", "b"], "y", &[])
        .output("y");
    // means 2 and −1
    let image = [1.0, 3.0, -2.0, 0.0];
    assert_eq!(run(&model, [1, 2, 1, 2], &image), (vec![-1.5, -0.75, 0.0], [1, 3, 1, 1]));
}

#[test]
fn a_transposed_convolution_with_uneven_padding_has_the_rows_that_are_left() {
    let model = Builder::new(17, 1)
        .tensor(float_tensor("w", &[1, 1, 3, 1], &[1.0, 2.0, 4.0]))
        .node("ConvTranspose", &["x", "w"], "y", &[("strides", ints(&[2, 1])), ("pads", ints(&[1, 0, 0, 0]))])
        .output("y");
    // whole: 1 2 4+10 20 40 with 1 and 10; the first row is cut
    assert_eq!(run(&model, [1, 1, 2, 1], &[1.0, 10.0]), (vec![2.0, 14.0, 20.0, 40.0], [1, 1, 4, 1]));
}

#[test]
fn batch_norm_takes_the_statistics_of_the_model() {
    let model = Builder::new(17, 1)
        .tensor(float_tensor("s", &[1], &[2.0]))
        .tensor(float_tensor("b", &[1], &[1.0]))
        .tensor(float_tensor("m", &[1], &[3.0]))
        .tensor(float_tensor("v", &[1], &[0.75]))
        .node("BatchNormalization", &["x", "s", "b", "m", "v"], "y", &[("epsilon", Attribute::Float(0.25))])
        .output("y");
    assert_eq!(run(&model, [1, 1, 1, 2], &[3.0, 4.0]).0, [1.0, 3.0]);
}
