//! Channels that are assigned and channels by a list, as PyTorch's exporters write them: `x[:, a:b] = f(x[:, a:b])`, `x[:, [2, 0, 1]]`.

use tiled_graph::{Op, Slice};

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, names, ops, reason, value};
use crate::runs::run;

/// Which channels an index is of.
#[derive(Clone, Copy)]
pub(crate) enum Places<'a> {
    List(&'a [i64]),
    /// From, to and step: a part of a range over all channels.
    Part([i64; 3]),
}

impl Places<'_> {
    fn all(self) -> Vec<i64> {
        match self {
            Self::List(all) => all.to_vec(),
            Self::Part([from, to, step]) => (from..to).step_by(usize::try_from(step).unwrap()).collect(),
        }
    }
}

fn image(shape: [usize; 4]) -> Vec<f64> {
    (0..shape.iter().product()).map(|place: usize| (place * 7 % 101) as f64 / 8.0 - 3.0).collect()
}

/// `x` with its first channels, below zero, at these places.
fn expected(image: &[f64], [batch, channels, height, width]: [usize; 4], places: &[i64]) -> Vec<f64> {
    let pixels = height * width;
    let mut made = image.to_vec();
    for n in 0..batch {
        for (from, place) in places.iter().enumerate() {
            let to = n * channels + usize::try_from(*place).unwrap();
            for pixel in 0..pixels {
                made[to * pixels + pixel] = -image[(n * channels + from) * pixels + pixel];
            }
        }
    }
    made
}

fn open(channels: i64) -> Builder {
    Builder::new(17, channels)
}

fn sized(shape: [i64; 4]) -> Builder {
    let mut model = Builder::new(17, shape[1]);
    model.graph().input[0] = value("x", 1, &shape.map(Some));
    model
}

/// The first channels below zero, `u`.
fn negative(model: Builder, count: usize) -> Builder {
    let count = i64::try_from(count).unwrap();
    let model = model.ints("first", &[1], &[0]).ints("behind", &[1], &[count]).ints("channel", &[1], &[1]);
    model.node("Slice", &["x", "first", "behind", "channel"], "cut", &[]).node("Neg", &["cut"], "u", &[])
}

/// The numbers along an axis, `a0` to `a3`, with axes of one behind it in an index over so many axes.
fn along(model: Builder, axis: i64, rank: i64, numbers: Option<Vec<i64>>, is_open: bool) -> Builder {
    let name = format!("a{axis}");
    let ones = usize::try_from(rank - axis - 1).unwrap();
    let dims = |count: i64| [vec![count], vec![1; ones]].concat();
    let (line, wide) = (format!("line{axis}"), format!("wide{axis}"));
    let shape = dims(-1);
    match numbers {
        Some(numbers) if !is_open => {
            model.ints(&name, &dims(i64::try_from(numbers.len()).unwrap()), &numbers)
        }
        Some(numbers) => {
            let model = model.ints(&line, &[i64::try_from(numbers.len()).unwrap()], &numbers);
            let len = i64::try_from(shape.len()).unwrap();
            model.ints(&wide, &[len], &shape).node("Reshape", &[&line, &wide], &name, &[])
        }
        None => {
            let (at, size, seen) = (format!("at{axis}"), format!("size{axis}"), format!("seen{axis}"));
            let model = model.ints(&at, &[], &[axis]).node("Shape", &["x"], &seen, &[]);
            let model = model.node("Gather", &[&seen, &at], &size, &[]);
            let range = if axis == 1 { format!("all{axis}") } else { line.clone() };
            let model = model.node("Range", &["zero", &size, "one"], &range, &[]);
            let model = match axis {
                1 => model.node("Slice", &[&range, "from", "to", "rows", "by"], &line, &[]),
                _ => model,
            };
            let len = i64::try_from(shape.len()).unwrap();
            match ones {
                0 => model.node("Identity", &[&line], &name, &[]),
                _ => model.ints(&wide, &[len], &shape).node("Reshape", &[&line, &wide], &name, &[]),
            }
        }
    }
}

/// The index that the older exporter makes over the images, the channels and maybe rows and columns: `index`, and the shape of what
/// is assigned, `target`.
pub(crate) fn index(model: Builder, shape: Option<[i64; 4]>, places: Places<'_>, rank: i64) -> Builder {
    let mut model = model.ints("zero", &[], &[0]).ints("one", &[], &[1]).ints("last", &[1], &[-1]);
    if let Places::Part([from, to, step]) = places {
        model = model.ints("from", &[1], &[from]).ints("to", &[1], &[to]).ints("by", &[1], &[step]);
        model = model.ints("rows", &[1], &[0]);
    }
    for axis in 0..rank {
        let counted = |shape: [i64; 4]| (0..shape[usize::try_from(axis).unwrap()]).collect();
        let numbers = match (axis, places) {
            (1, Places::List(list)) => Some(list.to_vec()),
            (1, Places::Part(_)) => None,
            _ => shape.map(counted),
        };
        model = along(model, axis, rank, numbers, shape.is_none());
    }
    let mut sum = "a0".to_owned();
    for axis in 1..rank {
        let (next, made) = (format!("a{axis}"), format!("sum{axis}"));
        model = model.node("Add", &[&sum, &next], &made, &[]);
        sum = made;
    }
    model = model.node("Shape", &[&sum], "extents", &[]);
    let axes: Vec<String> = (0..rank).map(|axis| format!("u{axis}")).collect();
    for (axis, made) in axes.iter().enumerate() {
        let (name, expanded) = (format!("a{axis}"), format!("e{axis}"));
        model = model.node("Expand", &[&name, "extents"], &expanded, &[]);
        model = model.node("Unsqueeze", &[&expanded, "last"], made, &[]);
    }
    let axes: Vec<&str> = axes.iter().map(String::as_str).collect();
    model
        .node("Concat", &axes, "index", &[("axis", Attribute::Int(-1))])
        .node("Shape", &["x"], "whole", &[("start", Attribute::Int(rank))])
        .node("Concat", &["extents", "whole"], "target", &[("axis", Attribute::Int(0))])
}

/// The older exporter's assignment.
fn older(model: Builder, shape: Option<[i64; 4]>, places: Places<'_>, rank: i64) -> Builder {
    negative(index(model, shape, places, rank), places.all().len())
        .node("Shape", &["u"], "extent", &[])
        .node("Expand", &["u", "extent"], "e", &[])
        .node("Reshape", &["e", "target"], "updates", &[])
        .node("ScatterND", &["x", "index", "updates"], "y", &[])
        .output("y")
}

/// The newer exporter's, with the channels first.
pub(crate) fn newer(model: Builder, places: Places<'_>, order: &[i64]) -> Builder {
    let turned =
        |model: Builder, from: &str, to: &str| model.node("Transpose", &[from], to, &[("perm", ints(order))]);
    let model = match places {
        Places::List(list) => model.ints("index", &[i64::try_from(list.len()).unwrap(), 1], list),
        Places::Part([from, to, by]) => model
            .ints("zero", &[], &[0])
            .ints("one", &[], &[1])
            .ints("last", &[1], &[-1])
            .ints("from", &[1], &[from])
            .ints("to", &[1], &[to])
            .ints("by", &[1], &[by])
            .ints("rows", &[1], &[0])
            .node("Shape", &["x"], "size", &[])
            .node("Gather", &["size", "one"], "count", &[])
            .node("Range", &["zero", "count", "one"], "all", &[])
            .node("Slice", &["all", "from", "to", "rows", "by"], "some", &[])
            .node("Unsqueeze", &["some", "last"], "index", &[]),
    };
    let model = turned(turned(negative(model, places.all().len()), "x", "xt"), "u", "ut");
    let model =
        model.node("ScatterND", &["xt", "index", "ut"], "t", &[("reduction", Attribute::Text("none"))]);
    turned(model, "t", "y").output("y")
}

const FIRST: [i64; 4] = [1, 0, 2, 3];

const SHAPES: [[usize; 4]; 3] = [[2, 20, 3, 5], [1, 20, 4, 2], [3, 20, 1, 1]];

const PLACES: [Places<'static>; 9] = [
    Places::List(&[0, 1, 2]),
    Places::List(&[17, 18, 19]),
    Places::List(&[4]),
    Places::List(&[7, 3, 12, 11]),
    Places::Part([0, 5, 1]),
    Places::Part([8, 20, 1]),
    Places::Part([0, 20, 2]),
    Places::Part([1, 19, 7]),
    Places::Part([0, 20, 1]),
];

fn assert_assigns(model: &Builder, shape: [usize; 4], places: Places<'_>) {
    let image = image(shape);
    assert_eq!(run(model, shape, &image), (expected(&image, shape, &places.all()), shape));
}

#[test]
fn assigned_channels_of_any_size_are_joined_with_those_that_stay() {
    for places in PLACES {
        let models = [2, 4].map(|rank| older(open(20), None, places, rank));
        let newer = newer(open(20), places, &FIRST);
        for shape in SHAPES {
            models.iter().chain([&newer]).for_each(|model| assert_assigns(model, shape, places));
        }
    }
}

#[test]
fn assigned_channels_of_declared_size_are_the_same() {
    for (shape, declared) in [([2, 20, 3, 5], [2, 20, 3, 5]), ([1, 20, 17, 2], [1, 20, 17, 2])] {
        for places in PLACES {
            for rank in [2, 4] {
                let model = older(sized(declared), Some(declared), places, rank);
                assert_assigns(&model, shape, places);
            }
            assert_assigns(&newer(sized(declared), places, &FIRST), shape, places);
        }
    }
}

#[test]
fn channels_in_a_row_are_two_slices_at_most() {
    let model = newer(open(20), Places::List(&[5, 6, 7]), &FIRST);
    assert_eq!(names(&model), ["slice", "neg", "slice", "slice", "concat"]);
    let part = |begin, end| Op::Slice(Slice { begin, end: Some(end) });
    assert_eq!(ops(&model)[2..4], [part(0, 5), part(8, 20)]);
    // all of them are what is assigned, and so are all images
    let images = open(3).ints("zero", &[], &[0]).ints("one", &[], &[1]).ints("last", &[1], &[-1]);
    let images = images
        .node("Shape", &["x"], "size", &[])
        .node("Gather", &["size", "zero"], "n", &[])
        .node("Range", &["zero", "n", "one"], "r", &[])
        .node("Unsqueeze", &["r", "last"], "index", &[])
        .node("Neg", &["x"], "u", &[])
        .node("ScatterND", &["x", "index", "u"], "y", &[])
        .output("y");
    assert_eq!(names(&images), ["neg"]);
    let all = older(open(20), None, Places::Part([0, 20, 1]), 2);
    assert_eq!(names(&all), ["neg"]);
    assert_eq!(names(&newer(open(20), Places::List(&[-1]), &FIRST)), ["slice", "neg", "slice", "concat"]);
}

#[test]
fn an_index_that_was_folded_to_a_constant_is_read_element_by_element() {
    let folded = |changed: Option<(usize, i64)>| {
        let mut values: Vec<i64> =
            [0, 1].into_iter().flat_map(|n| [[n, 2], [n, 3], [n, 0]]).flatten().collect();
        if let Some((place, value)) = changed {
            values[place] = value;
        }
        negative(sized([2, 4, 3, 5]).ints("index", &[2, 3, 2], &values), 3)
            .node("ScatterND", &["x", "index", "u"], "y", &[])
            .output("y")
    };
    assert_assigns(&folded(None), [2, 4, 3, 5], Places::List(&[2, 3, 0]));
    let wanted = |shape: &str| {
        format!(
            "input 1 is a constant of shape {shape}, wants an index of some channels, each once, with all images, rows and columns"
        )
    };
    // another image, another channel for one of the images, a channel twice, and one that is not there
    for changed in [(0, 1), (8, 0), (11, 1)] {
        assert_eq!(reason(&folded(Some(changed))), wanted("[2, 3, 2]"), "{changed:?}");
    }
    for dims in [[2, 0, 2], [0, 3, 2]] {
        let empty = negative(sized([2, 4, 3, 5]).ints("index", &dims, &[]), 3);
        let empty = empty.node("ScatterND", &["x", "index", "u"], "y", &[]).output("y");
        assert_eq!(reason(&empty), wanted(&format!("{dims:?}")));
    }
    for places in [&[1, 1][..], &[4], &[-5], &[1, -3]] {
        let shape = format!("[{}, 1]", places.len());
        assert_eq!(reason(&newer_of(places)), wanted(&shape), "{places:?}");
    }
}

/// The newer exporter's assignment to some of four channels.
fn newer_of(places: &[i64]) -> Builder {
    let model = Builder::new(18, 4).ints("index", &[i64::try_from(places.len()).unwrap(), 1], places);
    let perm = || [("perm", ints(&FIRST))];
    negative(model, places.len())
        .node("Transpose", &["x"], "xt", &perm())
        .node("Transpose", &["u"], "ut", &perm())
        .node("ScatterND", &["xt", "index", "ut"], "t", &[])
        .node("Transpose", &["t"], "y", &perm())
        .output("y")
}

#[test]
fn an_index_of_some_images_rows_or_columns_is_refused() {
    const WANTED: &str = "wants an index of some channels, each once, with all images, rows and columns";
    let shape = [2, 20, 3, 5];
    for other in [[1, 20, 3, 5], [2, 20, 2, 5], [2, 20, 3, 4]] {
        let model = older(sized(shape), Some(other), Places::List(&[0, 1]), 4);
        assert!(model.refusals().iter().any(|refusal| refusal.contains("wants")), "{other:?}");
        // with what is assigned as large as the index says
        let mut index = index(sized(shape), Some(other), Places::List(&[0, 1]), 4);
        index = negative(index, 2).node("ScatterND", &["x", "index", "u"], "y", &[]).output("y");
        assert!(reason(&index).ends_with(WANTED), "{other:?}: {}", reason(&index));
    }
    // one image of a batch that is open
    let one = index(open(20), Some([1, 20, 3, 5]), Places::List(&[0, 1]), 2);
    let one = negative(one, 2).node("ScatterND", &["x", "index", "u"], "y", &[]).output("y");
    assert!(reason(&one).ends_with(WANTED), "{}", reason(&one));
    // rows first
    let rows = newer(open(20), Places::List(&[0, 1]), &[2, 1, 0, 3]);
    assert!(reason(&rows).ends_with(WANTED), "{}", reason(&rows));
}

#[test]
fn axes_that_move_and_come_back_are_those_of_the_image() {
    // as an assignment to `x[:, :2, :, :]` is exported
    let perm = |order: &[i64]| [("perm", ints(order))];
    let model = negative(open(5).ints("index", &[2, 1], &[0, 1]), 2)
        .node("Transpose", &["u"], "a", &perm(&[3, 1, 2, 0]))
        .node("Transpose", &["a"], "b", &perm(&[2, 1, 3, 0]))
        .node("Transpose", &["b"], "c", &perm(&[1, 2, 0, 3]))
        .node("Transpose", &["x"], "t", &perm(&FIRST));
    let assigned = |updates: &str| {
        let model = model.clone().node("ScatterND", &["t", "index", updates], "s", &[]);
        model.node("Transpose", &["s"], "y", &perm(&FIRST)).output("y")
    };
    // c is C×N×H×W: a is W×C×H×N and b is H×C×N×W
    let (image, shape) = (image([2, 5, 3, 4]), [2, 5, 3, 4]);
    assert_eq!(run(&assigned("c"), shape, &image), (expected(&image, shape, &[0, 1]), shape));
    for other in ["a", "b", "u"] {
        assert!(reason(&assigned(other)).ends_with("with all rows and columns"), "{other}");
    }
    // back by two steps, and to the channels last
    let back = open(5).node("Transpose", &["x"], "a", &perm(&[1, 2, 3, 0]));
    let back = back.node("Transpose", &["a"], "l", &perm(&[3, 1, 2, 0])).node("Relu", &["l"], "r", &[]);
    let back = back.node("Transpose", &["r"], "y", &perm(&[0, 3, 1, 2])).output("y");
    assert_eq!(names(&back), ["relu"]);
    let read = open(5).node("Transpose", &["x"], "t", &perm(&FIRST)).node("Relu", &["t"], "y", &[]);
    assert!(reason(&read.output("y")).contains("a value whose axes are in another order"));
}

#[test]
fn what_is_assigned_may_be_one_number_and_is_as_large_as_its_place() {
    let model = |value: f32, dims: &[i64]| {
        let len = usize::try_from(dims.iter().product::<i64>()).unwrap();
        let mut values = vec![0.5; len];
        values[len - 1] = value;
        let perm = || [("perm", ints(&FIRST))];
        sized([2, 4, 3, 5])
            .ints("index", &[2, 1], &[1, 3])
            .tensor(float_tensor("u", dims, &values))
            .node("Transpose", &["x"], "xt", &perm())
            .node("ScatterND", &["xt", "index", "u"], "t", &[])
            .node("Transpose", &["t"], "y", &perm())
            .output("y")
    };
    let (shape, image) = ([2, 4, 3, 5], image([2, 4, 3, 5]));
    let (made, got) = run(&model(0.5, &[2, 2, 3, 5]), shape, &image);
    let wanted: Vec<f64> =
        image.iter().enumerate().map(|(at, x)| if at / 15 % 2 == 1 { 0.5 } else { *x }).collect();
    assert_eq!((made, got), (wanted, shape));
    let uneven = reason(&model(0.25, &[2, 2, 3, 5]));
    assert!(
        uneven.ends_with("wants a value of the network, or a constant that is one number everywhere"),
        "{uneven}"
    );
    for dims in [&[1, 2, 3, 5][..], &[2, 2, 5, 3], &[3, 2, 3, 5], &[2, 1, 3, 5], &[60]] {
        assert!(reason(&model(0.5, dims)).starts_with("input 2 is"), "{dims:?}");
    }
    let fewer = negative(index(open(20), None, Places::List(&[0, 1]), 2), 3);
    let fewer = fewer.node("ScatterND", &["x", "index", "u"], "y", &[]).output("y");
    let wanted = "input 2 is a batch of images, wants a value of as many channels as are assigned, with all rows and columns";
    assert_eq!(reason(&fewer), wanted);
    let pooled = index(open(20), None, Places::List(&[0, 1]), 2).ints("two", &[1], &[2]);
    let pooled = negative(pooled, 2).node("GlobalAveragePool", &["u"], "p", &[]);
    let pooled = pooled.node("ScatterND", &["x", "index", "p"], "y", &[]).output("y");
    assert_eq!(reason(&pooled), wanted);
}

#[test]
fn one_channel_is_assigned_without_its_axis() {
    // x[:, 3] = -x[:, 1]: the older exporter gives it the axis, the newer has the channel for each element
    let plane = |model: Builder| {
        let model = model.ints("second", &[], &[1]);
        model.node("Gather", &["x", "second"], "g", &[("axis", Attribute::Int(1))]).node(
            "Neg",
            &["g"],
            "p",
            &[],
        )
    };
    let older = plane(index(open(4), None, Places::List(&[3]), 2))
        .node("Shape", &["p"], "extent", &[])
        .node("Expand", &["p", "extent"], "e", &[])
        .node("Reshape", &["e", "target"], "updates", &[])
        .node("ScatterND", &["x", "index", "updates"], "y", &[])
        .output("y");
    let elements = |model: Builder| {
        let axis = [("axis", Attribute::Int(1)), ("reduction", Attribute::Text("none"))];
        plane(model.ints("axis", &[1], &[1]))
            .node("Unsqueeze", &["p", "axis"], "u", &[])
            .node("Shape", &["u"], "extent", &[])
            .node("Expand", &["three", "extent"], "i", &[])
            .node("ScatterElements", &["x", "i", "u"], "y", &axis)
            .output("y")
    };
    let newer = elements(open(4).ints("three", &[], &[3]));
    let folded = |values: &[i64], dims: &[i64]| {
        plane(sized([2, 4, 3, 5]).ints("axis", &[1], &[1]).tensor(int_tensor("i", dims, values)))
            .node("Unsqueeze", &["p", "axis"], "u", &[])
            .node("ScatterElements", &["x", "i", "u"], "y", &[("axis", Attribute::Int(-3))])
            .output("y")
    };
    let (shape, image) = ([2, 4, 3, 5], image([2, 4, 3, 5]));
    let mut wanted = image.clone();
    for n in 0..2 {
        (0..15).for_each(|at| wanted[n * 60 + 45 + at] = -image[n * 60 + 15 + at]);
    }
    for model in [&older, &newer, &folded(&[3; 30], &[2, 1, 3, 5]), &folded(&[-1; 30], &[2, 1, 3, 5])] {
        assert_eq!(run(model, shape, &image), (wanted.clone(), shape));
    }
    let mut other = [3; 30];
    other[17] = 2;
    let wrong = [
        folded(&other, &[2, 1, 3, 5]),
        folded(&[4; 30], &[2, 1, 3, 5]),
        folded(&[3; 24], &[2, 1, 3, 4]),
        folded(&[3; 15], &[1, 1, 3, 5]),
        elements(open(4).ints("three", &[], &[4])),
    ];
    for model in &wrong {
        let reason = reason(model);
        assert!(reason.ends_with("each once, with all images, rows and columns"), "{reason}");
    }
}

#[test]
fn a_whole_number_everywhere_is_floats_where_it_is_cast() {
    let model = open(2).ints("two", &[1, 1, 1, 1], &[2]).node("Shape", &["x"], "s", &[]);
    let model = model
        .node("Expand", &["two", "s"], "e", &[])
        .node("Cast", &["e"], "f", &[("to", Attribute::Int(1))])
        .node("Mul", &["x", "f"], "y", &[])
        .output("y");
    let (shape, image) = ([2, 2, 3, 5], image([2, 2, 3, 5]));
    let wanted = image.iter().map(|x| 2.0 * x).collect();
    assert_eq!(run(&model, shape, &image), (wanted, shape));
}

#[test]
fn channels_by_a_list_are_slices_that_are_joined() {
    let listed = |list: &[i64]| {
        let perm = || [("perm", ints(&FIRST))];
        Builder::new(18, 4)
            .ints("list", &[i64::try_from(list.len()).unwrap(), 1], list)
            .node("Transpose", &["x"], "t", &perm())
            .node("GatherND", &["t", "list"], "g", &[("batch_dims", Attribute::Int(0))])
            .node("Transpose", &["g"], "y", &perm())
            .output("y")
    };
    let (shape, image) = ([2, 4, 3, 5], image([2, 4, 3, 5]));
    for list in [&[2, 0, 1][..], &[3], &[0, 1, 1, 3, -1], &[0, 1, 2, 3]] {
        let channel = |n: usize, c: i64| {
            let c = usize::try_from(c.rem_euclid(4)).unwrap();
            image[(n * 4 + c) * 15..][..15].to_vec()
        };
        let wanted: Vec<f64> = (0..2).flat_map(|n| list.iter().flat_map(move |c| channel(n, *c))).collect();
        assert_eq!(run(&listed(list), shape, &image), (wanted, [2, list.len(), 3, 5]), "{list:?}");
    }
    for list in [&[4][..], &[-5], &[]] {
        assert!(reason(&listed(list)).ends_with("wants a list of channels that there are, C×1"), "{list:?}");
    }
}

#[test]
fn one_number_that_stands_for_several_is_no_list_of_channels() {
    let picked = |wide: &[i64]| {
        let rank = i64::try_from(wide.len()).unwrap();
        sized([1, 4, 2, 3])
            .ints("one", &[1], &[1])
            .ints("wide", &[rank], wide)
            .ints("last", &[1], &[-1])
            .node("Transpose", &["x"], "t", &[("perm", ints(&FIRST))])
            .node("Expand", &["one", "wide"], "e", &[])
            .node("Unsqueeze", &["e", "last"], "list", &[])
            .node("GatherND", &["t", "list"], "g", &[])
            .node("Transpose", &["g"], "y", &[("perm", ints(&FIRST))])
            .output("y")
    };
    for wide in [&[3][..], &[2, 1]] {
        assert!(reason(&picked(wide)).contains("a list of channels that there are"), "{wide:?}");
    }
    let shape = [1, 4, 2, 3];
    let image = image(shape);
    assert_eq!(run(&picked(&[1]), shape, &image).0, image[6..12]);
}
