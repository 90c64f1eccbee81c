//! Functions of one and two elements and their gradients, a piece at a time: each is a loop over slices in the first cache.

use ndarray::{ArrayViewD, ArrayViewMutD};
use tiled_kernel::dense::{Binary, Fold, Saves, Side, Unary, Update};
use tiled_tensor::Element;

use super::fold;
use super::matrix::require;
use super::stream::{PIECE, Stream, for_pieces, with_buffers};
use crate::Isa;
use crate::ops::arithmetic::{
    Difference, DivisorBackward, Larger, LargerBackward, Quotient, Smaller, SmallerBackward, map3,
};
use crate::ops::elementwise;
use crate::ops::function::{Binary as Of2, Product, Sum, Unary as Of1, functions, map as map1, map2};
use crate::ops::math;
use crate::ops::stamp::per_isa;
use crate::vector::Lane;

/// Operations that an element counts for: what it takes to read and write it, and a function of a few polynomials.
const PLAIN: usize = 16;
const FUNCTION: usize = 80;

functions! {
    Identity: Of1 |self, x| x;
    Rsqrt: Of1 |self, x| T::ONE / x.sqrt();
    Affine(factor, summand): Of1 |self, x| math::fma::<T, FUSED>(self.factor, x, self.summand);
    Scaled(factor): Of1 |self, x| self.factor * x;
    Neg: Of1 |self, x| -x;
    RsqrtBackward: Of2 |self, g, y| g * (T::from_f64(-0.5) * y * (y * y));
    Pow: Of2 |self, a, b| T::from_f64(a.to_f64().powf(b.to_f64()));
}

/// `g·b·a^(b − 1)`; nothing passes where b is zero.
#[derive(Clone, Copy)]
struct BaseBackward;

impl<T: Element> crate::ops::arithmetic::Ternary<T> for BaseBackward {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, g: T, a: T, b: T) -> T {
        let (a, b) = (a.to_f64(), b.to_f64());
        if b == 0.0 { T::ZERO } else { T::from_f64(g.to_f64() * (b * a.powf(b - 1.0))) }
    }
}

/// `g·a^b·ln a`; nothing passes where a is zero and b is not below it.
#[derive(Clone, Copy)]
struct ExponentBackward;

impl<T: Element> crate::ops::arithmetic::Ternary<T> for ExponentBackward {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, g: T, a: T, b: T) -> T {
        let (a, b) = (a.to_f64(), b.to_f64());
        if a == 0.0 && b >= 0.0 { T::ZERO } else { T::from_f64(g.to_f64() * (a.powf(b) * a.ln())) }
    }
}

per_isa! {
    /// `y = a` where the mask is true, else `b`.
    fn choose<T: Element>(mask: &[bool], a: &[T], b: &[T], y: &mut [T]) {
        for (((y, mask), a), b) in y.iter_mut().zip(mask).zip(a).zip(b) {
            *y = if *mask { *a } else { *b };
        }
    }
}

fn apply<E: Lane>(isa: Isa, f: Unary, x: &[E], y: &mut [E]) {
    match f {
        Unary::Identity => map1(isa, Identity, x, y),
        Unary::Activation(function) => elementwise::apply(isa, function, x, y),
        Unary::Rsqrt => map1(isa, Rsqrt, x, y),
        Unary::Affine { factor, summand } => {
            map1(isa, Affine { factor: E::from_f64(factor), summand: E::from_f64(summand) }, x, y);
        }
    }
}

const fn cost(f: Unary) -> usize {
    if matches!(f, Unary::Activation(_)) { FUNCTION } else { PLAIN }
}

pub(super) fn map<E: Lane>(
    isa: Isa,
    f: Unary,
    x: ArrayViewD<'_, E>,
    mut y: ArrayViewMutD<'_, E>,
    update: Update,
) {
    require("x", x.shape(), y.shape());
    let len = y.len();
    let (x, y) = (Stream::new(&x), Stream::new_mut(&mut y));
    for_pieces(len, cost(f), |first, len| {
        // SAFETY: the elements are there, and each piece of y is written once.
        with_buffers(|[of_x, of_y]| unsafe {
            let x = x.read(first, len, of_x);
            y.write(isa, first, len, of_y, update, |y| apply(isa, f, x, y));
        });
    });
}

pub(super) fn map_in_place<E: Lane>(isa: Isa, f: Unary, mut x: ArrayViewMutD<'_, E>) {
    let len = x.len();
    let x = Stream::new_mut(&mut x);
    for_pieces(len, cost(f), |first, len| {
        // SAFETY: the elements are there, and each piece is copied before it is written.
        with_buffers(|[copy, of_x]| unsafe {
            x.copy(first, len, copy);
            let write = |x: &mut [E]| apply(isa, f, std::slice::from_raw_parts(copy, len), x);
            x.write(isa, first, len, of_x, Update::Replace, write);
        });
    });
}

pub(super) fn map_backward<E: Lane>(
    isa: Isa,
    f: Unary,
    saved: ArrayViewD<'_, E>,
    dy: ArrayViewD<'_, E>,
    mut dx: ArrayViewMutD<'_, E>,
    update: Update,
) {
    require("dy", dy.shape(), dx.shape());
    // where nothing is saved the gradient stands in its place, and is not looked at
    let saved = if f.saves() == Saves::Nothing { dy.view() } else { saved.view() };
    require("what was saved", saved.shape(), dx.shape());
    let len = dx.len();
    let (saved, dy, dx) = (Stream::new(&saved), Stream::new(&dy), Stream::new_mut(&mut dx));
    for_pieces(len, cost(f), |first, len| {
        // SAFETY: the elements are there, and each piece of dx is written once.
        with_buffers(|[of_saved, of_dy, of_dx]| unsafe {
            let saved = saved.read(first, len, of_saved);
            let dy = dy.read(first, len, of_dy);
            dx.write(isa, first, len, of_dx, update, |dx| match f {
                Unary::Identity => map1(isa, Identity, dy, dx),
                Unary::Activation(function) => elementwise::apply_backward(isa, function, dy, saved, dx),
                Unary::Rsqrt => map2(isa, RsqrtBackward, dy, saved, dx),
                Unary::Affine { factor, .. } => {
                    map1(isa, Scaled { factor: E::from_f64(factor) }, dy, dx);
                }
            });
        });
    });
}

fn combine<E: Lane>(isa: Isa, f: Binary, a: &[E], b: &[E], y: &mut [E]) {
    match f {
        Binary::Add => map2(isa, Sum, a, b, y),
        Binary::Sub => map2(isa, Difference, a, b, y),
        Binary::Mul => map2(isa, Product, a, b, y),
        Binary::Div => map2(isa, Quotient, a, b, y),
        Binary::Pow => map2(isa, Pow, a, b, y),
        Binary::Maximum => map2(isa, Larger, a, b, y),
        Binary::Minimum => map2(isa, Smaller, a, b, y),
    }
}

const fn cost_of_two(f: Binary) -> usize {
    if matches!(f, Binary::Pow) { 8 * FUNCTION } else { PLAIN }
}

pub(super) fn zip<E: Lane>(
    isa: Isa,
    f: Binary,
    a: ArrayViewD<'_, E>,
    b: ArrayViewD<'_, E>,
    mut y: ArrayViewMutD<'_, E>,
    update: Update,
) {
    require("a", a.shape(), y.shape());
    require("b", b.shape(), y.shape());
    let len = y.len();
    let (a, b, y) = (Stream::new(&a), Stream::new(&b), Stream::new_mut(&mut y));
    for_pieces(len, cost_of_two(f), |first, len| {
        // SAFETY: the elements are there, and each piece of y is written once.
        with_buffers(|[of_a, of_b, of_y]| unsafe {
            let a = a.read(first, len, of_a);
            let b = b.read(first, len, of_b);
            y.write(isa, first, len, of_y, update, |y| combine(isa, f, a, b, y));
        });
    });
}

pub(super) fn zip_in_place<E: Lane>(isa: Isa, f: Binary, mut a: ArrayViewMutD<'_, E>, b: ArrayViewD<'_, E>) {
    require("b", b.shape(), a.shape());
    let len = a.len();
    let (a, b) = (Stream::new_mut(&mut a), Stream::new(&b));
    for_pieces(len, cost_of_two(f), |first, len| {
        // SAFETY: the elements are there, and each piece of a is copied before it is written.
        with_buffers(|[copy, of_b, of_a]| unsafe {
            a.copy(first, len, copy);
            let b = b.read(first, len, of_b);
            let write = |a: &mut [E]| combine(isa, f, std::slice::from_raw_parts(copy, len), b, a);
            a.write(isa, first, len, of_a, Update::Replace, write);
        });
    });
}

/// `dy·∂f/∂side`; operands that are not needed are anything.
fn slopes<E: Lane>(isa: Isa, f: Binary, side: Side, [a, b]: [&[E]; 2], dy: &[E], dx: &mut [E]) {
    match (f, side) {
        (Binary::Add, _) | (Binary::Sub, Side::First) => map1(isa, Identity, dy, dx),
        (Binary::Sub, Side::Second) => map1(isa, Neg, dy, dx),
        (Binary::Mul, Side::First) => map2(isa, Product, dy, b, dx),
        (Binary::Mul, Side::Second) => map2(isa, Product, dy, a, dx),
        (Binary::Div, Side::First) => map2(isa, Quotient, dy, b, dx),
        (Binary::Div, Side::Second) => map3(isa, DivisorBackward, dy, a, b, dx),
        (Binary::Pow, Side::First) => map3(isa, BaseBackward, dy, a, b, dx),
        (Binary::Pow, Side::Second) => map3(isa, ExponentBackward, dy, a, b, dx),
        (Binary::Maximum, Side::First) => map3(isa, LargerBackward, dy, a, b, dx),
        (Binary::Maximum, Side::Second) => map3(isa, LargerBackward, dy, b, a, dx),
        (Binary::Minimum, Side::First) => map3(isa, SmallerBackward, dy, a, b, dx),
        (Binary::Minimum, Side::Second) => map3(isa, SmallerBackward, dy, b, a, dx),
    }
}

pub(super) fn zip_backward<E: Lane>(
    isa: Isa,
    f: Binary,
    side: Side,
    [a, b]: [Option<ArrayViewD<'_, E>>; 2],
    dy: ArrayViewD<'_, E>,
    mut dx: ArrayViewMutD<'_, E>,
    update: Update,
) {
    let needs = f.saves(side);
    for (operand, needed) in [&a, &b].into_iter().zip(needs) {
        match operand {
            Some(operand) if needed => require("an operand", operand.shape(), dy.shape()),
            _ => assert!(!needed, "an operand that the derivative needs"),
        }
    }
    let (a, b) = (a.filter(|_| needs[0]), b.filter(|_| needs[1]));
    let (a, b) = (a.as_ref().map(Stream::new), b.as_ref().map(Stream::new));
    let (shape, from) = (dy.shape(), Stream::new(&dy));
    let produce = |first: usize, len: usize, [of_a, of_b, of_dy]: [*mut E; 3], dx: &mut [E]| {
        // SAFETY: the elements are there, and the buffers have room for a piece.
        unsafe {
            let dy = from.read(first, len, of_dy);
            // where an operand is not needed the gradient stands in its place, and is not looked at
            let a = a.as_ref().map_or(dy, |a| a.read(first, len, of_a));
            let b = b.as_ref().map_or(dy, |b| b.read(first, len, of_b));
            slopes(isa, f, side, [a, b], dy, dx);
        }
    };
    if dx.shape() == shape {
        let len = dx.len();
        let to = Stream::new_mut(&mut dx);
        return for_pieces(len, cost_of_two(f), |first, len| {
            // SAFETY: each piece of dx is written once.
            with_buffers(|[a, b, dy, of_dx]| unsafe {
                to.write(isa, first, len, of_dx, update, |dx| produce(first, len, [a, b, dy], dx));
            });
        });
    }
    let is_copy = matches!((f, side), (Binary::Add, _) | (Binary::Sub, Side::First));
    let read = |first: usize, len: usize, buffer: *mut E| {
        // SAFETY: the elements are there, and the buffer has room for a piece.
        unsafe {
            if is_copy {
                return std::ptr::from_ref(from.read(first, len, buffer)).cast();
            }
            with_buffers(|buffers| produce(first, len, buffers, std::slice::from_raw_parts_mut(buffer, len)));
        }
        buffer.cast_const()
    };
    fold::run(isa, Fold::Sum, E::ONE, shape, (cost_of_two(f), &read), dx, update);
}

pub(super) fn select<E: Lane>(
    isa: Isa,
    mask: ArrayViewD<'_, bool>,
    a: ArrayViewD<'_, E>,
    b: ArrayViewD<'_, E>,
    mut y: ArrayViewMutD<'_, E>,
    update: Update,
) {
    require("mask", mask.shape(), y.shape());
    require("a", a.shape(), y.shape());
    require("b", b.shape(), y.shape());
    let len = y.len();
    let (mask, a, b) = (Stream::new(&mask), Stream::new(&a), Stream::new(&b));
    let y = Stream::new_mut(&mut y);
    for_pieces(len, PLAIN, |first, len| {
        let mut of_mask = [false; PIECE];
        // SAFETY: the elements are there, and each piece of y is written once.
        with_buffers(|[of_a, of_b, of_y]| unsafe {
            let mask = mask.read(first, len, of_mask.as_mut_ptr());
            let a = a.read(first, len, of_a);
            let b = b.read(first, len, of_b);
            y.write(isa, first, len, of_y, update, |y| choose(isa, mask, a, b, y));
        });
    });
}

pub(super) fn reduce<E: Lane>(
    isa: Isa,
    of: Fold,
    x: ArrayViewD<'_, E>,
    scale: E,
    y: ArrayViewMutD<'_, E>,
    update: Update,
) {
    let (shape, x) = (x.shape(), Stream::new(&x));
    let read = |first: usize, len: usize, buffer: *mut E| {
        // SAFETY: the elements are there, and the buffer has room for a piece.
        unsafe { std::ptr::from_ref(x.read(first, len, buffer)).cast() }
    };
    fold::run(isa, of, scale, shape, (PLAIN, &read), y, update);
}
