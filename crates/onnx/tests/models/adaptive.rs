//! Adaptive mean pooling as PyTorch's newer exporter writes it out.

use tiled_graph::{AdaptivePool2d, Op, PartPooling};
use tiled_onnx::proto::TensorProto;

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, ops, reason};
use crate::exporters::{assert_close, declared, image};
use crate::runs::run;

/// The first pixel and the length of each part of an extent.
fn parts(extent: i64, count: i64) -> Vec<[i64; 2]> {
    let part = |at: i64| [at * extent / count, ((at + 1) * extent + count - 1) / count];
    (0..count).map(part).map(|[begin, end]| [begin, end - begin]).collect()
}

/// The parts of one axis: how long, the most of that, and whether they differ.
struct Axis {
    parts: Vec<[i64; 2]>,
    most: i64,
    is_uneven: bool,
}

impl Axis {
    fn new(extent: i64, count: i64) -> Self {
        let parts = parts(extent, count);
        let most = parts.iter().map(|[_, len]| *len).max().unwrap();
        let is_uneven = parts.iter().any(|[_, len]| *len != most);
        Self { parts, most, is_uneven }
    }

    fn mask(&self, name: &str, dims: &[i64]) -> TensorProto {
        let places = self.parts.iter().flat_map(|[_, len]| (0..self.most).map(move |at| at >= *len));
        TensorProto {
            name: Some(name.to_owned()),
            dims: dims.to_vec(),
            data_type: Some(9),
            int32_data: places.map(i32::from).collect(),
            ..TensorProto::default()
        }
    }
}

/// What is wrong with a model, if anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Index,
    Mask,
    Pixel,
    Count,
}

/// Pooling of `[h, w]` to `[k, l]`, as `torch.export` decomposes it.
pub(crate) fn pooling([h, w]: [i64; 2], [k, l]: [i64; 2], fault: Fault) -> Builder {
    let (rows, columns) = (Axis::new(h, k), Axis::new(w, l));
    let mut indices = Vec::new();
    for [top, _] in &rows.parts {
        for row in 0..rows.most {
            for [left, _] in &columns.parts {
                for column in 0..columns.most {
                    indices.extend([(top + row).min(h - 1), (left + column).min(w - 1)]);
                }
            }
        }
    }
    if fault == Fault::Index {
        indices[3] += 1;
    }
    let mut model = declared(Builder::new(18, 2), [2, 2, h, w])
        .node("Relu", &["x"], "r", &[])
        .node("Transpose", &["r"], "t", &[("perm", ints(&[2, 3, 0, 1]))])
        .tensor(int_tensor("indices", &[k, rows.most, l, columns.most, 2], &indices))
        .node("GatherND", &["t", "indices"], "g", &[("batch_dims", Attribute::Int(0))])
        .node("Transpose", &["g"], "w", &[("perm", ints(&[4, 5, 0, 1, 2, 3]))])
        .tensor(float_tensor("zero", &[], &[0.0]));
    if !rows.is_uneven && !columns.is_uneven {
        let attributes = [("keepdims", Attribute::Int(0))];
        let model = model.tensor(int_tensor("axes", &[2], &[-3, -1]));
        return model.node("ReduceMean", &["w", "axes"], "y", &attributes).output("y");
    }
    let mut windows = "w";
    let uneven = if fault == Fault::Mask { &Axis::new(h + 1, k) } else { &rows };
    for (axis, name, dims) in
        [(uneven, "rows", vec![k, uneven.most, 1, 1]), (&columns, "columns", vec![l, columns.most])]
    {
        if axis.is_uneven {
            let filled = if name == "rows" { "filled" } else { "filled_twice" };
            model = model.tensor(axis.mask(name, &dims)).node("Where", &[name, "zero", windows], filled, &[]);
            windows = filled;
        }
    }
    let mut sum: Option<String> = None;
    for row in 0..rows.most {
        let name = format!("row{row}");
        let index = int_tensor(&format!("i{row}"), &[], &[row]);
        let axis = [("axis", Attribute::Int(3))];
        model = model.tensor(index).node("Gather", &[windows, &format!("i{row}")], &name, &axis);
        for column in 0..columns.most {
            let (index, pixel) = (format!("i{row}_{column}"), format!("p{row}_{column}"));
            let taken = if fault == Fault::Pixel && column == 1 { 0 } else { column };
            model = model.tensor(int_tensor(&index, &[], &[taken]));
            model = model.node("Gather", &[&name, &index], &pixel, &[("axis", Attribute::Int(4))]);
            sum = Some(match sum {
                None => pixel,
                Some(sum) => {
                    let next = format!("s{row}_{column}");
                    model = model.node("Add", &[&sum, &pixel], &next, &[]);
                    next
                }
            });
        }
    }
    let lens = |axis: &Axis| match axis.is_uneven {
        true => axis.parts.iter().map(|[_, len]| *len).collect(),
        false => vec![axis.most],
    };
    let (of_rows, of_columns) = (lens(&rows), lens(&columns));
    let mut counts: Vec<f32> =
        of_rows.iter().flat_map(|r| of_columns.iter().map(move |c| (r * c) as f32)).collect();
    if fault == Fault::Count {
        counts[0] += 1.0;
    }
    let dims = [of_rows.len(), of_columns.len()].map(|len| i64::try_from(len).unwrap());
    let model = model.tensor(float_tensor("counts", &dims, &counts));
    model.node("Div", &[&sum.unwrap(), "counts"], "y", &[]).output("y")
}

#[test]
fn gathered_windows_are_adaptive_pooling() {
    for (size, parts) in [
        ([8, 7], [3, 2]),
        ([7, 8], [2, 3]),
        ([8, 11], [3, 3]),
        ([4, 4], [3, 3]),
        ([11, 5], [6, 4]),
        ([3, 5], [1, 3]),
    ] {
        let model = pooling(size, parts, Fault::None);
        let pool = AdaptivePool2d::new(PartPooling::Mean, parts);
        let [_, made] = ops(&model).try_into().unwrap();
        assert_eq!(made, Op::AdaptivePool2d(pool), "{size:?} to {parts:?}");
        // the sums written out, at the size that the model declares
        let [h, w] = size.map(|extent| usize::try_from(extent).unwrap());
        let (shape, values) = ([2, 2, h, w], image([2, 2, h, w]));
        let [rows, columns] = [0, 1].map(|axis| Axis::new(size[axis], parts[axis]).parts);
        let mut wanted = Vec::new();
        for plane in values.chunks(h * w) {
            for [top, height] in &rows {
                for [left, width] in &columns {
                    let at = |y: i64, x: i64| {
                        plane[usize::try_from(y).unwrap() * w + usize::try_from(x).unwrap()].max(0.0)
                    };
                    let pixels =
                        (*top..top + height).flat_map(|y| (*left..left + width).map(move |x| (y, x)));
                    wanted.push(pixels.map(|(y, x)| at(y, x)).sum::<f64>() / (height * width) as f64);
                }
            }
        }
        assert_close(&run(&model, shape, &values).0, &wanted);
    }
}

#[test]
fn windows_that_are_no_parts_are_refused() {
    let other = "input 0 is a step of adaptive pooling, wants windows that are the parts of adaptive pooling";
    for fault in [Fault::Index, Fault::Mask, Fault::Count] {
        assert_eq!(reason(&pooling([8, 11], [3, 3], fault)), other);
    }
    let next = "input 1 is a step of adaptive pooling, wants the next step of it as PyTorch's exporter writes it out";
    assert_eq!(reason(&pooling([8, 11], [3, 3], Fault::Pixel)), next);
    // nobody else reads a step, or what is turned before
    let turned = Builder::new(18, 2).node("Transpose", &["x"], "t", &[("perm", ints(&[2, 3, 0, 1]))]);
    let read = turned.node("Relu", &["t"], "y", &[]).output("y");
    assert_eq!(
        reason(&read),
        "input 0 is a value with the axes of a pixel first, wants a value of the network"
    );
}
