//! Slices, shuffles, padding, class numbers and heads over images: their shapes, parameters and refusals.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use tiled_graph::{
    ChannelShuffle, Graph, Linear, Loss, Objective, Op, Pad, PadWith, PixelShuffle, PixelUnshuffle, Slice,
    Split, SplitSize, infer, lower, params,
};

const CHANNELS: usize = 8;

fn shape(op: Op, input: [usize; 2]) -> Result<[usize; 4], String> {
    let mut graph = Graph::new();
    let x = graph.add_input("x", CHANNELS).unwrap();
    let n = graph.add_node("n", op, &[x]).map_err(|error| error.to_string())?;
    graph.set_outputs(&[n]).unwrap();
    infer(&graph, 2, &[input]).map(|shapes| shapes.shape(n)).map_err(|error| error.to_string())
}

#[test]
fn parts_of_the_channels_have_the_shapes_of_pytorch() {
    let slice = |begin, end| shape(Op::Slice(Slice { begin, end }), [5, 7]).map(|shape| shape[1]);
    assert_eq!(slice(2, None), Ok(6));
    assert_eq!(slice(-3, Some(-1)), Ok(2));
    assert_eq!(slice(3, Some(9)), Err("slice `n`: channels 3 to 9 are no part of the 8 of the input".into()));
    assert_eq!(
        slice(-1, Some(2)),
        Err("slice `n`: channels -1 to 2 are no part of the 8 of the input".into())
    );
    assert!(slice(i64::MIN, None).is_err() && slice(0, Some(i64::MIN)).is_err());
    let split = |split_size: &SplitSize, index| {
        shape(Op::Split(Split { split_size: split_size.clone(), index }), [5, 7]).map(|shape| shape[1])
    };
    let every = SplitSize::Every(3);
    assert_eq!([0, 1, 2].map(|index| split(&every, index)), [Ok(3), Ok(3), Ok(2)]);
    assert_eq!(split(&every, 3), Err("split `n`: index 3 is none of the 3 parts".into()));
    assert_eq!(split(&SplitSize::Each(vec![1, 7]), 1), Ok(7));
    let short = split(&SplitSize::Each(vec![3, 4]), 0);
    assert_eq!(short, Err("split `n`: input has 8 channels, split_size wants 7".into()));
    assert!(split(&SplitSize::Every(0), 0).is_err() && split(&SplitSize::Each(vec![0, 8]), 0).is_err());
    assert!(split(&SplitSize::Every(usize::MAX), usize::MAX).is_err());
}

#[test]
fn shuffles_have_the_shapes_of_pytorch() {
    let up = |upscale_factor| shape(Op::PixelShuffle(PixelShuffle { upscale_factor }), [5, 7]);
    assert_eq!(up([2, 2]), Ok([2, 2, 10, 14]));
    assert_eq!(up([1, 8]), Ok([2, 1, 5, 56]));
    assert_eq!(up([3, 1]), Err("pixel_shuffle `n`: 8 input channels do not divide by 3×1".into()));
    assert_eq!(up([1, 0]), Err("pixel_shuffle `n`: upscale_factor is 0, must be at least 1".into()));
    assert!(up([i64::MAX; 2]).is_err() && up([1 << 20, 1 << 20]).is_err());
    let down =
        |downscale_factor, input| shape(Op::PixelUnshuffle(PixelUnshuffle { downscale_factor }), input);
    assert_eq!(down([3, 3], [6, 9]), Ok([2, 72, 2, 3]));
    assert_eq!(down([1, 9], [6, 9]), Ok([2, 72, 6, 1]));
    assert_eq!(down([2, 2], [6, 9]), Err("pixel_unshuffle `n`: input width 9 does not divide by 2".into()));
    assert!(down([1 << 20; 2], [1 << 20, 1 << 20]).is_err());
    let groups = |groups| shape(Op::ChannelShuffle(ChannelShuffle { groups }), [5, 7]);
    assert_eq!(groups(4), Ok([2, 8, 5, 7]));
    assert_eq!(groups(3), Err("channel_shuffle `n`: 8 input channels do not divide into 3 groups".into()));
}

#[test]
fn padding_removes_before_it_adds() {
    let pad = |padding, with| shape(Op::Pad(Pad { padding, with }), [5, 7]).map(|shape| [shape[2], shape[3]]);
    assert_eq!(pad([[1, -2], [0, 3]], PadWith::Constant(1.5)), Ok([4, 10]));
    assert_eq!(pad([[-2, -2], [-6, 0]], PadWith::Replicate), Ok([1, 1]));
    assert_eq!(pad([[4, 4], [6, 6]], PadWith::Reflect), Ok([13, 19]));
    let message = "pad `n`: reflect padding of 4 must be smaller than the extent 4";
    assert_eq!(pad([[4, -1], [0, 0]], PadWith::Reflect), Err(message.into()));
    let message = "pad `n`: circular padding of 5 must be at most the extent 4";
    assert_eq!(pad([[-1, 5], [0, 0]], PadWith::Circular), Err(message.into()));
    let message = "pad `n`: 5 are removed of input height 5";
    assert_eq!(pad([[-2, -3], [0, 0]], PadWith::Constant(0.0)), Err(message.into()));
    assert!(pad([[i64::MIN, 0], [0, i64::MAX]], PadWith::Constant(0.0)).is_err());
    assert!(pad([[0; 2]; 2], PadWith::Constant(f64::NAN)).is_err());
}

#[test]
fn a_linear_layer_over_an_image_has_a_weight_for_every_feature() {
    let linear = |in_features| Op::Linear(Linear { in_features, ..Linear::new(10) });
    assert_eq!(shape(linear(Some(280)), [5, 7]), Ok([2, 10, 1, 1]));
    let message = "linear `n`: input has 8×5×7 features, in_features wants 288";
    assert_eq!(shape(linear(Some(288)), [5, 7]), Err(message.into()));
    assert!(shape(linear(None), [5, 7]).is_err() && shape(linear(Some(8)), [1, 1]).is_ok());
    let mut graph = Graph::new();
    let x = graph.add_input("x", CHANNELS).unwrap();
    graph.add_node("n", linear(Some(280)), &[x]).unwrap();
    assert_eq!(params(&graph)[0].shape, [10, 280]);
}

#[test]
fn class_numbers_have_no_gradient() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", CHANNELS).unwrap();
    let n = graph.add_node("n", Op::ArgMax, &[x]).unwrap();
    graph.set_outputs(&[n]).unwrap();
    let shapes = infer(&graph, 2, &[[5, 7]]).unwrap();
    assert_eq!(shapes.shape(n), [2, 1, 5, 7]);
    assert!(lower(&graph, &shapes, &Objective::inference(), &[]).is_ok());
    let objective = Objective { loss: Some(Loss::Sum), grad_inputs: true, ..Objective::inference() };
    let error = lower(&graph, &shapes, &objective, &[]).unwrap_err();
    assert_eq!(error.to_string(), "argmax `n`: has no gradient, and one is wanted of what it reads");
}
