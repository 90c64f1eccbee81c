//! Derivatives against central differences.

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, IxDyn};
use tiled_kernel::dense::{Binary, Dense, Direction, Saves, Side, Softmax, Unary, Update};

use super::operation::{Loss, Op, Operation, UNARY};
use crate::conformance::Rng;

/// Half the distance of two points, and what their slopes may differ by: the square of it, and the rounding of a difference, of gradients of
/// order one.
const STEP: f64 = 1e-5;
const ALLOWED: f64 = 1e-6;

/// Checks every derivative against central differences of the function itself.
///
/// # Panics
/// Where one differs by more than a millionth of the largest.
pub fn check_gradients(dense: &dyn Dense<f64>, seed: u64) {
    let mut rng = Rng::of_case("check_gradients", seed, 0);
    for f in UNARY {
        let x = draw(&[3, 5], [0.3, 3.0], &mut rng);
        let x = if matches!(f, Unary::Activation(_)) && !super::operation::wants_positive(f) {
            x - 1.5
        } else {
            x
        };
        check(dense, &forward(Op::Map(f), vec![x], &[vec![3, 5]]), 1, &mut rng, |operands, kept, dy| {
            let saved = if f.saves() == Saves::Output { kept[0].clone() } else { operands[0].clone() };
            vec![forward(Op::MapBackward(f), vec![saved, dy[0].clone()], &[vec![3, 5]])]
        });
    }
    for f in
        [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Pow, Binary::Maximum, Binary::Minimum]
    {
        let operands = vec![draw(&[4, 3], [0.4, 2.0], &mut rng), draw(&[4, 3], [0.4, 2.0], &mut rng)];
        check(dense, &forward(Op::Zip(f), operands, &[vec![4, 3]]), 2, &mut rng, |operands, _, dy| {
            [Side::First, Side::Second]
                .map(|side| {
                    let operands = vec![operands[0].clone(), operands[1].clone(), dy[0].clone()];
                    forward(Op::ZipBackward(f, side), operands, &[vec![4, 3]])
                })
                .to_vec()
        });
    }
    for kind in [Softmax::Probabilities, Softmax::Logarithms] {
        for axis in 0..2 {
            let x = draw(&[3, 6], [-2.0, 2.0], &mut rng);
            let operation = forward(Op::Softmax(kind, axis), vec![x], &[vec![3, 6]]);
            check(dense, &operation, 1, &mut rng, |_, kept, dy| {
                let operands = vec![kept[0].clone(), dy[0].clone()];
                vec![forward(Op::SoftmaxBackward(kind, axis), operands, &[vec![3, 6]])]
            });
        }
    }
    let x = draw(&[3, 6], [-2.0, 2.0], &mut rng);
    let operation = forward(Op::Cumulate(1, Direction::FromStart), vec![x], &[vec![3, 6]]);
    check(dense, &operation, 1, &mut rng, |_, _, dy| {
        vec![forward(Op::Cumulate(1, Direction::FromEnd), vec![dy[0].clone()], &[vec![3, 6]])]
    });
    for gamma in [false, true] {
        let operands = vec![
            draw(&[4, 7], [-2.0, 2.0], &mut rng),
            draw(&[7], [0.5, 2.0], &mut rng),
            draw(&[7], [-1.0, 1.0], &mut rng),
        ];
        let results = [vec![4, 7], vec![4], vec![4]];
        let operation = forward(Op::LayerNorm { gamma, beta: gamma }, operands, &results);
        check(dense, &operation, if gamma { 3 } else { 1 }, &mut rng, |operands, kept, dy| {
            let op = Op::LayerNormBackward { gamma, dx: true, parameters: gamma };
            let given = vec![
                operands[0].clone(),
                operands[1].clone(),
                kept[1].clone(),
                kept[2].clone(),
                dy[0].clone(),
            ];
            let results = if gamma { vec![vec![4, 7], vec![7], vec![7]] } else { vec![vec![4, 7]] };
            vec![forward(op, given, &results)]
        });
    }
    for (causal, mask) in [(false, false), (true, false), (false, true), (true, true)] {
        let of = |rows: usize, cols: usize| vec![1, 2, rows, cols];
        let operands = vec![
            draw(&of(5, 3), [-1.0, 1.0], &mut rng),
            draw(&of(6, 3), [-1.0, 1.0], &mut rng),
            draw(&of(6, 4), [-1.0, 1.0], &mut rng),
            draw(&of(5, 6), [-1.0, 1.0], &mut rng),
        ];
        let operation = forward(Op::Attention { causal, mask }, operands, &[of(5, 4), vec![2, 5]]);
        check(dense, &operation, 3, &mut rng, |operands, kept, dy| {
            let given = [operands, &[kept[0].clone(), kept[1].clone(), dy[0].clone()]].concat();
            let results = [of(5, 3), of(6, 3), of(6, 4)];
            vec![forward(Op::AttentionBackward { causal, mask }, given, &results)]
        });
    }
    for (named, smoothing, weights) in
        [(true, 0.0, false), (true, 0.1, true), (false, 0.0, true), (false, 0.1, false)]
    {
        let loss = Loss { classes: named.then(|| vec![2, 0, 1, 4]), ignore: Some(0), smoothing, weights };
        let operands = vec![
            draw(&[4, 5], [-2.0, 2.0], &mut rng),
            draw(&[4, 5], [0.0, 1.0], &mut rng),
            draw(&[5], [0.5, 2.0], &mut rng),
        ];
        let operation = forward(Op::CrossEntropy(loss.clone()), operands, &[vec![4], vec![4], vec![1]]);
        check(dense, &operation, 1, &mut rng, |operands, kept, dy| {
            let given = [operands, &[kept[1].clone(), dy[0].clone()]].concat();
            vec![forward(Op::CrossEntropyBackward(loss.clone()), given, &[vec![4, 5]])]
        });
    }
}

fn draw(shape: &[usize], [low, high]: [f64; 2], rng: &mut Rng) -> ArrayD<f64> {
    ArrayD::from_shape_simple_fn(IxDyn(shape), || rng.uniform(low, high))
}

fn forward(op: Op, operands: Vec<ArrayD<f64>>, results: &[Vec<usize>]) -> Operation {
    let results = results.iter().map(|shape| (shape.clone(), None)).collect();
    Operation::new(op, operands, results)
}

/// Compares the gradients of a random sum of the first result for the first `count` operands.
fn check(
    dense: &dyn Dense<f64>,
    operation: &Operation,
    count: usize,
    rng: &mut Rng,
    backward: impl Fn(&[ArrayD<f64>], &[ArrayD<f64>], &[ArrayD<f64>]) -> Vec<Operation>,
) {
    let operands: Vec<ArrayD<f64>> = operation.inputs().iter().map(|(values, _)| values.clone()).collect();
    let kept = zeroed(dense, operation);
    let dy = draw(kept[0].shape(), [-1.0, 1.0], rng);
    let loss = |operands: Vec<ArrayD<f64>>| (&zeroed(dense, &operation.with(operands))[0] * &dy).sum();
    let gradients: Vec<ArrayD<f64>> = backward(&operands, &kept, std::slice::from_ref(&dy))
        .iter()
        .flat_map(|operation| zeroed(dense, operation))
        .collect();
    assert_eq!(gradients.len(), count, "a gradient for each operand");
    for (which, gradient) in gradients.iter().enumerate() {
        let largest = gradient.iter().fold(1.0_f64, |largest, value| value.abs().max(largest));
        for (at, gradient) in gradient.indexed_iter() {
            let moved = |by: f64| {
                let mut operands = operands.clone();
                operands[which][at.clone()] += by;
                loss(operands)
            };
            let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            assert!(
                (slope - gradient).abs() <= ALLOWED * largest,
                "{}: gradient {which} at {at:?} is {gradient}, by differences {slope}\n{operation:?}",
                dense.name()
            );
        }
    }
}

/// The results, in memory that was zero.
fn zeroed(dense: &dyn Dense<f64>, operation: &Operation) -> Vec<ArrayD<f64>> {
    let mut outputs: Vec<ArrayD<f64>> =
        operation.outputs().iter().map(|(shape, _)| ArrayD::zeros(&shape[..])).collect();
    let inputs: Vec<ArrayViewD<'_, f64>> =
        operation.inputs().iter().map(|(values, _)| values.view()).collect();
    let updates = vec![Update::Replace; outputs.len()];
    let mut results: Vec<ArrayViewMutD<'_, f64>> =
        outputs.iter_mut().map(|output| output.view_mut()).collect();
    operation.run(dense, &inputs, &mut results, &updates);
    drop(results);
    outputs
}
