//! Parameters: names, shapes, checks and starting values.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use tiled_graph::{
    BatchNorm, Conv2d, ConvTranspose2d, Graph, GraphError, Init, Linear, Op, ParamKind, ParamTensor,
    Parameters, Rng, initialise, params,
};
use tiled_tensor::Element;

/// Every operator with parameters, over 4 channels.
fn graph() -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 4).unwrap();
    let conv = Conv2d { groups: 2, ..Conv2d::new(16, [3, 5]) };
    let stem = graph.add_node("stem", Op::Conv2d(conv), &[x]).unwrap();
    let norm = graph.add_node("norm", Op::BatchNorm(BatchNorm::default()), &[stem]).unwrap();
    let bare = BatchNorm { affine: false, ..BatchNorm::default() };
    let bare = graph.add_node("bare", Op::BatchNorm(bare), &[norm]).unwrap();
    let up = ConvTranspose2d { groups: 4, bias: false, ..ConvTranspose2d::new(8, [2, 2]) };
    let up = graph.add_node("up", Op::ConvTranspose2d(up), &[bare]).unwrap();
    let pool = graph.add_node("pool", Op::GlobalAvgPool, &[up]).unwrap();
    let head = graph.add_node("head", Op::Linear(Linear::new(10)), &[pool]).unwrap();
    graph.set_outputs(&[head]).unwrap();
    graph
}

#[test]
fn names_shapes_and_bounds_are_those_of_pytorch() {
    let specs = params(&graph());
    let listed: Vec<(&str, &[usize], Init)> =
        specs.iter().map(|spec| (spec.name.as_str(), spec.shape.as_slice(), spec.init)).collect();
    let uniform = |fan_in: f64| Init::Uniform { bound: 1.0 / fan_in.sqrt() };
    let wanted: [(&str, &[usize], Init); 11] = [
        ("stem.weight", &[16, 2, 3, 5], uniform(30.0)),
        ("stem.bias", &[16], uniform(30.0)),
        ("norm.weight", &[16], Init::Constant(1.0)),
        ("norm.bias", &[16], Init::Constant(0.0)),
        ("norm.running_mean", &[16], Init::Constant(0.0)),
        ("norm.running_var", &[16], Init::Constant(1.0)),
        ("bare.running_mean", &[16], Init::Constant(0.0)),
        ("bare.running_var", &[16], Init::Constant(1.0)),
        ("up.weight", &[16, 2, 2, 2], uniform(8.0)),
        ("head.weight", &[10, 8], uniform(8.0)),
        ("head.bias", &[10], uniform(8.0)),
    ];
    assert_eq!(listed, wanted);
    let trained: Vec<bool> = specs.iter().map(|spec| spec.kind.is_trained()).collect();
    assert_eq!(trained.iter().filter(|is_trained| !**is_trained).count(), 4);
    assert_eq!((specs[8].node, specs[8].kind), (3, ParamKind::Weight));
}

#[test]
fn batch_norm_has_the_statistics_that_it_keeps() {
    let names = |norm: BatchNorm| {
        let mut graph = Graph::new();
        let x = graph.add_input("x", 3).unwrap();
        let norm = graph.add_node("n", Op::BatchNorm(norm), &[x]).unwrap();
        graph.set_outputs(&[norm]).unwrap();
        params(&graph).into_iter().map(|spec| (spec.name, spec.shape, spec.init)).collect::<Vec<_>>()
    };
    let listed = |names: &[(&str, &[usize], f64)]| {
        let of = |(name, shape, value): &(&str, &[usize], f64)| {
            (format!("n.{name}"), shape.to_vec(), Init::Constant(*value))
        };
        names.iter().map(of).collect::<Vec<_>>()
    };
    let trained: [(&str, &[usize], f64); 2] = [("weight", &[3], 1.0), ("bias", &[3], 0.0)];
    let kept: [(&str, &[usize], f64); 2] = [("running_mean", &[3], 0.0), ("running_var", &[3], 1.0)];
    let counted: [(&str, &[usize], f64); 1] = [("num_batches_tracked", &[], 0.0)];
    let mean = BatchNorm { momentum: None, ..BatchNorm::default() };
    assert_eq!(names(BatchNorm::default()), listed(&[trained, kept].concat()));
    assert_eq!(names(mean.clone()), listed(&[&trained[..], &kept, &counted].concat()));
    assert_eq!(names(BatchNorm { track_running_stats: false, ..mean.clone() }), listed(&trained));
    assert_eq!(names(BatchNorm { affine: false, ..mean.clone() }), listed(&[&kept[..], &counted].concat()));
    assert_eq!(names(BatchNorm { affine: false, track_running_stats: false, ..mean }), []);
    assert!(!ParamKind::NumBatchesTracked.is_trained());
}

#[test]
fn counters_that_nothing_reads_are_left_out() {
    let specs = params(&graph());
    let whole = initialise::<f32>(&specs, 1);
    let mut tensors = whole.clone().into_tensors();
    tensors.push(ParamTensor::new("norm.num_batches_tracked", Vec::new(), vec![5.0]).unwrap());
    assert_eq!(Parameters::new(&specs, tensors.clone()).unwrap(), whole);
    tensors.push(ParamTensor::new("num_batches_tracked", Vec::new(), vec![5.0]).unwrap());
    let error = Parameters::new(&specs, tensors).unwrap_err();
    assert!(matches!(error, GraphError::UnknownParameter { .. }), "{error}");
}

#[test]
fn starting_values_are_uniform_within_their_bound_and_the_same_in_every_run() {
    let specs = params(&Graph::builtin("vgg2").unwrap());
    let parameters = initialise::<f64>(&specs, 42);
    parameters.check(&specs).unwrap();
    for (tensor, spec) in parameters.tensors().iter().zip(&specs) {
        let Init::Uniform { bound } = spec.init else { panic!("{} is not uniform", spec.name) };
        assert!(tensor.data.iter().all(|value| (-bound..bound).contains(value)), "{}", spec.name);
    }
    let weights = &parameters.get("conv4.weight").unwrap().data;
    let Init::Uniform { bound } = specs[6].init else { panic!("a weight is uniform") };
    let count = weights.len() as f64;
    let mean = weights.iter().sum::<f64>() / count;
    let variance = weights.iter().map(|value| value * value).sum::<f64>() / count;
    // uniform on [−b, b): mean 0, variance b²/3; 147456 values, so 5 standard errors of the mean are 5·b/√(3·count)
    assert!(mean.abs() < 5.0 * bound / (3.0 * count).sqrt(), "{mean}");
    assert!((variance * 3.0 / (bound * bound) - 1.0).abs() < 0.02, "{variance}");
    // single precision is double precision, rounded
    let single = initialise::<f32>(&specs, 42);
    let rounded = |value: &f64| f32::from_f64(*value);
    assert!(single.get("conv4.weight").unwrap().data.iter().copied().eq(weights.iter().map(rounded)));
}

#[test]
fn starting_values_do_not_depend_on_other_layers() {
    let of = |name: &str| initialise::<f32>(&params(&Graph::builtin(name).unwrap()), 3);
    assert_eq!(of("vgg2").get("conv2.weight"), of("vgg16").get("conv2.weight"));
    let vgg = of("vgg2");
    let (first, second) = (vgg.get("conv1.bias").unwrap(), vgg.get("conv2.bias").unwrap());
    assert_ne!(first.data[0] * 27_f32.sqrt(), second.data[0] * 576_f32.sqrt());
}

#[test]
fn the_generator_is_xoshiro256_plus_plus_seeded_by_splitmix64() {
    // the first outputs of rand_xoshiro's Xoshiro256PlusPlus::seed_from_u64(0)
    let mut rng = Rng::new(0);
    let first = [(); 4].map(|()| rng.next_u64());
    assert_eq!(first, [0x53175d61490b23df, 0x61da6f3dc380d507, 0x5c0fdf91ec9a7bfc, 0x02eebf8c3bbe5e1a]);
}

#[test]
fn parameters_are_taken_in_any_order_and_checked() {
    let specs = params(&graph());
    let whole = initialise::<f32>(&specs, 1);
    let mut tensors = whole.clone().into_tensors();
    tensors.reverse();
    assert_eq!(Parameters::new(&specs, tensors).unwrap(), whole);
    let zeros = Parameters::<f32>::zeros(&specs).unwrap();
    zeros.check(&specs).unwrap();
    assert!(zeros.tensors().iter().all(|tensor| tensor.data.iter().all(|value| *value == 0.0)));
    let fewer = params(&Graph::builtin("seed-001").unwrap());
    assert!(whole.check(&fewer).is_err());
}

#[test]
fn parameters_can_be_changed_in_place() {
    let specs = params(&graph());
    let mut parameters = Parameters::<f32>::zeros(&specs).unwrap();
    parameters.data_mut(1).unwrap().fill(2.0);
    for (name, data) in parameters.iter_mut() {
        if name == "head.bias" {
            data[0] = 1.0;
        }
    }
    assert_eq!(parameters.get("stem.bias").unwrap().data, [2.0; 16]);
    assert_eq!(parameters.get("head.bias").unwrap().data[..2], [1.0, 0.0]);
    assert_eq!(parameters.data_mut(99), None);
}

#[test]
fn wrong_parameters_name_the_layer_and_both_shapes() {
    let specs = params(&graph());
    let change = |name: &str, shape: &[usize]| {
        let mut tensors = Parameters::<f32>::zeros(&specs).unwrap().into_tensors();
        let tensor = tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        *tensor = ParamTensor::new(name, shape.to_vec(), vec![0.0; shape.iter().product()]).unwrap();
        Parameters::new(&specs, tensors).unwrap_err().to_string()
    };
    for (name, shape, message) in [
        ("stem.weight", &[16, 1, 3, 5][..], "conv2d `stem`: input has 4 channels, weight wants 2"),
        ("up.weight", &[12, 2, 2, 2], "conv_transpose2d `up`: input has 16 channels, weight wants 12"),
        ("norm.weight", &[3], "batch_norm `norm`: input has 16 channels, weight wants 3"),
        ("head.weight", &[10, 9], "linear `head`: input has 8 channels, weight wants 9"),
        (
            "stem.weight",
            &[16, 2, 3, 3],
            "conv2d `stem`: parameter `stem.weight` has shape [16, 2, 3, 3], wants [16, 2, 3, 5]",
        ),
        (
            "stem.weight",
            &[16, 30],
            "conv2d `stem`: parameter `stem.weight` has shape [16, 30], wants [16, 2, 3, 5]",
        ),
        ("stem.bias", &[8], "conv2d `stem`: parameter `stem.bias` has shape [8], wants [16]"),
        ("norm.running_var", &[], "batch_norm `norm`: parameter `norm.running_var` has shape [], wants [16]"),
    ] {
        assert_eq!(change(name, shape), message);
    }
}

#[test]
fn missing_unknown_and_double_parameters_are_named() {
    let specs = params(&graph());
    let tensors = Parameters::<f32>::zeros(&specs).unwrap().into_tensors();
    let error = |tensors: Vec<ParamTensor<f32>>| Parameters::new(&specs, tensors).unwrap_err().to_string();
    assert_eq!(
        error(tensors[1..].to_vec()),
        "conv2d `stem`: parameter `stem.weight` of shape [16, 2, 3, 5] is missing"
    );
    let mut unknown = tensors.clone();
    unknown.push(ParamTensor::new("stem.wieght", vec![2], vec![0.0; 2]).unwrap());
    assert_eq!(
        error(unknown),
        "parameter `stem.wieght` of shape [2] is not of this network, nearest known: `stem.weight`"
    );
    let mut double = tensors.clone();
    double.push(tensors[0].clone());
    assert_eq!(error(double), "parameter `stem.weight` is given twice");
    assert_eq!(
        ParamTensor::new("a", vec![2, 3], vec![0.0_f32; 5]).unwrap_err().to_string(),
        "parameter `a` of shape [2, 3] has 5 elements, wants 6"
    );
    assert_eq!(
        ParamTensor::new("a", vec![usize::MAX, 2], vec![0.0_f32]).unwrap_err().to_string(),
        "parameter `a` of shape [18446744073709551615, 2] has 1 elements, wants more than 64 bits hold"
    );
    let mut short = tensors;
    short[1].data.pop();
    assert!(matches!(Parameters::new(&specs, short), Err(GraphError::ParameterLength { got: 15, .. })));
}
