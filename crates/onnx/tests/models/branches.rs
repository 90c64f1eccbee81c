//! `If` of conditions that are known: the nodes of a branch, what it reads, and what is refused.

use tiled_onnx::proto::TensorProto;
use tiled_onnx::{OnnxError, from_bytes};

use crate::build::{Attribute, Builder, float_tensor, graph, int_tensor, names, only, reason};
use crate::runs::run;

/// A graph of nothing yet.
fn part() -> Builder {
    Builder::new(17, 3)
}

/// A branch of one node.
fn one(op: &str, input: &str) -> Attribute {
    part().node(op, &[input], op, &[]).output(op).branch()
}

/// A model of three channels with a condition of this name.
fn start(name: &str, is: bool) -> Builder {
    let condition = TensorProto { data_type: Some(9), ..float_tensor(name, &[], &[]) };
    part().tensor(TensorProto { int32_data: vec![i32::from(is)], ..condition })
}

fn choice(model: Builder, condition: &str, output: &str, branches: [Attribute; 2]) -> Builder {
    let [then, other] = branches;
    model.node("If", &[condition], output, &[("then_branch", then), ("else_branch", other)])
}

/// The networks of both conditions.
fn both(model: impl Fn(Builder) -> Builder) -> [Vec<&'static str>; 2] {
    [true, false].map(|is| names(&model(start("c", is))))
}

#[test]
fn the_nodes_of_the_branch_that_is_taken_stand_in_its_place() {
    let model = |model: Builder| {
        let model =
            choice(model.node("Abs", &["x"], "a", &[]), "c", "b", [one("Relu", "a"), one("Tanh", "a")]);
        model.node("Neg", &["b"], "y", &[]).output("y")
    };
    assert_eq!(both(model), [["abs", "relu", "neg"], ["abs", "tanh", "neg"]]);
    let image = [-1.0, 2.0, -3.0];
    assert_eq!(run(&model(start("c", true)), [1, 3, 1, 1], &image).0, [-1.0, -2.0, -3.0]);
    assert_eq!(run(&model(start("c", false)), [1, 3, 1, 1], &image).0, image.map(|x: f64| -x.abs().tanh()));
}

#[test]
fn conditions_of_sizes_are_known_where_the_sizes_are() {
    let model = |channels: i64, wanted: i64| {
        let model = Builder::new(17, channels)
            .ints("one", &[1], &[1])
            .ints("wanted", &[1], &[wanted])
            .node("Shape", &["x"], "s", &[])
            .node("Gather", &["s", "one"], "g", &[])
            .node("Equal", &["g", "wanted"], "c", &[]);
        choice(model, "c", "y", [one("Relu", "x"), one("Identity", "x")]).output("y")
    };
    assert_eq!(names(&model(3, 3)), ["relu"]);
    assert_eq!(names(&model(4, 3)), [""; 0]);
    // for every height of one row and more
    let rows = |least: i64| {
        let model = part()
            .ints("two", &[], &[2])
            .ints("least", &[], &[least])
            .node("Shape", &["x"], "s", &[])
            .node("Gather", &["s", "two"], "g", &[])
            .node("Greater", &["g", "least"], "c", &[]);
        choice(model, "c", "y", [one("Relu", "x"), one("Tanh", "x")]).output("y")
    };
    assert_eq!(names(&rows(0)), ["relu"]);
    assert_eq!(
        only(&rows(1)),
        "If `n_y` (opset 17): input 0 is computed sizes, wants a condition that is known"
    );
}

#[test]
fn sizes_are_true_where_they_are_not_zero() {
    let bool = [("to", Attribute::Int(9))];
    for (taken, wanted) in [(0, "tanh"), (1, "relu"), (2, "relu"), (-1, "relu")] {
        let model = part()
            .ints("one", &[], &[1])
            .ints("less", &[], &[3 - taken])
            .node("Shape", &["x"], "s", &[])
            .node("Gather", &["s", "one"], "g", &[])
            .node("Sub", &["g", "less"], "d", &[])
            .node("Cast", &["d"], "c", &bool);
        let model = choice(model, "c", "y", [one("Relu", "x"), one("Tanh", "x")]).output("y");
        assert_eq!(names(&model), [wanted], "{taken}");
    }
    let open = part().ints("two", &[], &[2]).node("Shape", &["x"], "s", &[]);
    let open = open.node("Gather", &["s", "two"], "g", &[]).node("Cast", &["g"], "c", &bool);
    let open = choice(open, "c", "y", [one("Relu", "x"), one("Tanh", "x")]).output("y");
    assert_eq!(reason(&open), "input 0 is computed sizes, wants a condition that is known");
}

#[test]
fn the_other_branch_is_not_looked_at() {
    let other = [
        one("NonZero", "x"),
        one("Relu", "nowhere"),
        part().output("nothing").branch(),
        part().node("Relu", &["x"], "a", &[]).output("a").output("a").branch(),
        Attribute::Graph(vec![0x0a, 0x80].into()),
        Attribute::Graph(vec![0x0a, 2, 0x0a, 0x80].into()),
        // nor are nodes around it that only it needs
        one("Relu", "far"),
        choice(part(), "far_condition", "z", [one("Relu", "x"), one("Tanh", "far")]).output("z").branch(),
    ];
    for other in other {
        let model = |branches: [Attribute; 2], is: bool| {
            let model =
                start("c", is).node("NonZero", &["x"], "near", &[]).node("Loop", &["near"], "far", &[]);
            let model = model.node("Not", &["far"], "far_condition", &[]);
            choice(model, "c", "y", branches).output("y")
        };
        assert_eq!(names(&model([one("Relu", "x"), other.clone()], true)), ["relu"]);
        assert_eq!(names(&model([other.clone(), one("Relu", "x")], false)), ["relu"]);
        assert!(model([other, one("Relu", "x")], true).read().is_err());
    }
    let alone = start("c", true).node("If", &["c"], "y", &[("then_branch", one("Relu", "x"))]).output("y");
    assert_eq!(names(&alone), ["relu"]);
}

#[test]
fn what_only_branches_read_is_there_when_they_do() {
    // a is read by no node itself; b by one of them alone
    let inner = choice(part(), "c", "n", [one("Relu", "a"), one("Tanh", "b")]).node("Neg", &["n"], "m", &[]);
    let inner = inner.output("m").branch();
    let model = |model: Builder| {
        let model = model.node("Abs", &["x"], "a", &[]).node("Sigmoid", &["a"], "b", &[]);
        let model = choice(model, "c", "p", [inner.clone(), inner.clone()]);
        choice(model, "c", "q", [one("Exp", "a"), one("Log", "b")])
            .node("Sub", &["p", "q"], "y", &[])
            .output("y")
    };
    let wanted =
        [vec!["abs", "relu", "neg", "exp", "sub"], vec!["abs", "sigmoid", "tanh", "neg", "log", "sub"]];
    assert_eq!(both(model), wanted);
    let image = [-1.0, 2.0, -3.0];
    let wanted = image.map(|x: f64| -x.abs() - x.abs().exp());
    assert_eq!(run(&model(start("c", true)), [1, 3, 1, 1], &image).0, wanted);
}

#[test]
fn an_if_that_only_a_branch_reads_is_taken_then() {
    let model = |model: Builder| {
        let model = model.node("Abs", &["x"], "a", &[]);
        let model = choice(model, "c", "p", [one("Relu", "a"), one("Sigmoid", "a")]);
        let model = choice(model, "c", "q", [one("Tanh", "p"), one("Tanh", "x")]);
        choice(model, "c", "y", [one("Neg", "q"), one("Identity", "q")]).output("y")
    };
    assert_eq!(both(model), [vec!["abs", "relu", "tanh", "neg"], vec!["tanh"]]);
}

#[test]
fn names_of_a_branch_are_its_own() {
    let scaled = |factor: f32| {
        let part = part().tensor(float_tensor("f", &[], &[factor])).node("Mul", &["x", "f"], "t", &[]);
        part.node("Tanh", &["t"], "r", &[]).output("r").branch()
    };
    // f is a constant around them too, and t a value that is made later
    let model = start("c", true).tensor(float_tensor("f", &[], &[8.0]));
    let model = choice(model, "c", "p", [scaled(2.0), scaled(3.0)]);
    let model = choice(model, "c", "q", [scaled(4.0), scaled(5.0)]);
    let model = model.node("Mul", &["x", "f"], "t", &[]).node("Sum", &["p", "q", "t"], "y", &[]).output("y");
    let wanted = |x: f64| (2.0 * x).tanh() + (4.0 * x).tanh() + 8.0 * x;
    let image = [0.5, -0.25, 0.125];
    assert_eq!(run(&model, [1, 3, 1, 1], &image).0, image.map(wanted));
    let names: Vec<String> = graph(&model).nodes().iter().map(|node| node.name.clone()).collect();
    assert!(names.contains(&"n_r".to_owned()) && names.contains(&"n_r_2".to_owned()), "{names:?}");
    // behind it nobody knows them
    let after = choice(start("c", true), "c", "p", [scaled(2.0), scaled(3.0)]);
    let after = after.node("Add", &["p", "r"], "y", &[]).output("y");
    assert_eq!(only(&after), "Add `n_y` (opset 17): reads `r`, which nothing makes");
}

#[test]
fn parameters_of_a_branch_are_of_the_network() {
    let convolved = |at: f32| {
        let weight = float_tensor("w", &[1, 3, 1, 1], &[at, 0.0, 1.0]);
        part().tensor(weight).node("Conv", &["x", "w"], "r", &[]).output("r").branch()
    };
    let model = choice(start("c", false), "c", "y", [convolved(1.0), convolved(2.0)]).output("y");
    assert_eq!(run(&model, [1, 3, 1, 1], &[5.0, 7.0, 9.0]).0, [19.0]);
}

#[test]
fn a_branch_gives_several_values_and_sizes() {
    let branch = |operator: &str| {
        let part = part().node(operator, &["x"], "a", &[]).node("Neg", &["x"], "b", &[]);
        let part = part.node("Shape", &["x"], "s", &[]).node("NonZero", &["x"], "z", &[]);
        part.output("a").output("b").output("x").output("s").output("z").branch()
    };
    let mut model = choice(start("c", true), "c", "p", [branch("Relu"), branch("Tanh")]);
    // nobody reads the last
    let more = ["q", "r", "s", "u"].map(str::to_owned);
    model.graph().node[0].output.extend(more);
    let model = model
        .node("Add", &["p", "q"], "t", &[])
        .node("Add", &["t", "r"], "v", &[])
        .node("Reshape", &["v", "s"], "y", &[])
        .output("y");
    assert_eq!(run(&model, [1, 3, 1, 1], &[1.0, -2.0, 3.0]).0, [1.0, 0.0, 3.0]);
}

#[test]
fn what_is_written_out_goes_on_through_a_branch() {
    let model = choice(
        start("c", true).node("Sigmoid", &["x"], "s", &[]),
        "c",
        "y",
        [part().node("Mul", &["x", "s"], "m", &[]).output("m").branch(), one("Relu", "x")],
    );
    assert_eq!(names(&model.output("y")), ["silu"]);
    let model = choice(start("c", true), "c", "s", [one("Sigmoid", "x"), one("Relu", "x")]);
    assert_eq!(names(&model.node("Mul", &["x", "s"], "y", &[]).output("y")), ["silu"]);
    // padding that a convolution behind it takes over
    let padded = part().ints("p", &[8], &[0, 0, 1, 1, 0, 0, 1, 1]).node("Pad", &["x", "p"], "m", &[]);
    let padded = padded.output("m").branch();
    let model = choice(start("c", true).floats("w", &[4, 3, 3, 3]), "c", "a", [padded, one("Relu", "x")]);
    assert_eq!(names(&model.node("Conv", &["a", "w"], "y", &[]).output("y")), ["conv2d"]);
}

/// A branch within so many others, around a node.
fn nested(depth: usize) -> Builder {
    let mut inner = one("Relu", "x");
    for _ in 1..depth {
        inner = choice(part(), "c", "n", [inner, one("Tanh", "x")]).output("n").branch();
    }
    choice(start("c", true), "c", "y", [inner, one("Tanh", "x")]).output("y")
}

#[test]
fn branches_stand_within_each_other_as_far_as_networks_have_them() {
    for depth in [1, 2, 16] {
        assert_eq!(names(&nested(depth)), ["relu"]);
    }
    let refused = "If `n_n` (opset 17): attribute `then_branch` is a graph within 17, wants a graph within 16 others at most";
    for depth in [17, 40, 1000] {
        assert_eq!(only(&nested(depth)), refused);
    }
}

#[test]
fn a_file_of_branches_a_hundred_thousand_deep_is_refused() {
    // written from the inside to the front, as each level is a few bytes around the next
    let mut backwards: Vec<u8> = Vec::new();
    let around = |key: u8, before: &[u8], backwards: &mut Vec<u8>| {
        let mut head = vec![key];
        prost::encoding::encode_varint(backwards.len() as u64, &mut head);
        backwards.extend(before.iter().chain(&head).rev().copied().collect::<Vec<u8>>().iter().copied());
    };
    for _ in 0..100_000 {
        around(0x32, &[], &mut backwards);
        around(0x2a, &[0x0a, 1, b'c'], &mut backwards);
        around(0x0a, &[], &mut backwards);
    }
    let deep: Vec<u8> = backwards.into_iter().rev().collect();
    let model = choice(start("c", true), "c", "y", [Attribute::Graph(deep.into()), one("Relu", "x")]);
    assert_eq!(
        reason(&model.output("y")),
        "attribute `then_branch` is a graph of 0, wants a graph of as many outputs as the node has"
    );
}

#[test]
fn graphs_that_are_no_branches_are_refused() {
    let refused =
        |then: Attribute| only(&choice(start("c", true), "c", "y", [then, one("Tanh", "x")]).output("y"));
    let at = |words: &str| format!("If `n_y` (opset 17): {words}");
    assert_eq!(
        refused(part().node("Relu", &["x"], "a", &[]).branch()),
        at("attribute `then_branch` is a graph of 0, wants a graph of as many outputs as the node has")
    );
    assert_eq!(
        refused(part().node("Relu", &["x"], "a", &[]).output("a").output("a").branch()),
        at("attribute `then_branch` is a graph of 2, wants a graph of as many outputs as the node has")
    );
    assert_eq!(refused(part().output("a").branch()), at("reads `a`, which nothing makes"));
    assert_eq!(refused(Attribute::Int(1)), at("attribute `then_branch` is of another type, wants a graph"));
    assert_eq!(refused(one("Relu", "a")), "Relu `n_Relu` (opset 17): reads `a`, which nothing makes");
    assert_eq!(
        refused(one("NonZero", "x")),
        "NonZero `n_NonZero` (opset 17): no operator of a network does this"
    );
    let later = "reads `b` before it is made: nodes are out of order or form a cycle";
    let cycle = part().node("Relu", &["b"], "a", &[]).node("Relu", &["a"], "b", &[]).output("b").branch();
    assert_eq!(refused(cycle), format!("Relu `n_a` (opset 17): {later}"));
    let twice = part().node("Relu", &["x"], "a", &[]).node("Tanh", &["x"], "a", &[]).output("a").branch();
    assert_eq!(refused(twice), "Tanh `n_a` (opset 17): `a` is made twice");
    assert_eq!(
        refused(part().node("Relu", &["x"], "a", &[]).output("a").body()),
        at("attribute `then_branch` is a graph with inputs, wants a graph without inputs")
    );
}

#[test]
fn a_branch_does_not_read_what_is_made_behind_it() {
    let model = choice(start("c", true), "c", "y", [one("Relu", "b"), one("Tanh", "x")]);
    let model = model.node("Abs", &["x"], "b", &[]).output("y");
    let later = "reads `b` before it is made: nodes are out of order or form a cycle";
    assert_eq!(only(&model), format!("Relu `n_Relu` (opset 17): {later}"));
    // nor its own result
    let model = choice(start("c", true), "c", "y", [one("Relu", "y"), one("Tanh", "x")]).output("y");
    let later = "reads `y` before it is made: nodes are out of order or form a cycle";
    assert_eq!(only(&model), format!("Relu `n_Relu` (opset 17): {later}"));
}

#[test]
fn conditions_are_one_truth() {
    let of = |condition: TensorProto| {
        choice(part().tensor(condition), "c", "y", [one("Relu", "x"), one("Tanh", "x")]).output("y")
    };
    assert_eq!(names(&of(int_tensor("c", &[1], &[1]))), ["relu"]);
    for (condition, got) in [
        (int_tensor("c", &[2], &[1, 1]), "a constant of shape [2]"),
        (int_tensor("c", &[0], &[]), "a constant of shape [0]"),
        (int_tensor("c", &[], &[2]), "a constant of shape []"),
        (float_tensor("c", &[], &[f32::NAN]), "a constant of shape []"),
    ] {
        assert_eq!(reason(&of(condition)), format!("input 0 is {got}, wants a condition that is known"));
    }
    let image = choice(part(), "x", "y", [one("Relu", "x"), one("Tanh", "x")]).output("y");
    assert_eq!(reason(&image), "input 0 is a batch of images, wants a condition that is known");
    let mut without = image;
    without.graph().node[0].input.clear();
    assert_eq!(reason(&without), "input 0 is nothing, wants a value");
}

#[test]
fn loops_are_refused() {
    for operator in ["Loop", "Scan"] {
        let model = part().node(operator, &["x"], "y", &[("body", one("Relu", "x"))]).output("y");
        assert_eq!(only(&model), format!("{operator} `n_y` (opset 17): no operator of a network does this"));
    }
}

#[test]
fn messages_of_branches_have_the_room_of_those_of_the_file() {
    // initialisers without anything
    let many = [0x2a, 0x00].repeat(100_000);
    let model =
        choice(start("c", true), "c", "y", [Attribute::Graph(many.into()), one("Relu", "x")]).output("y");
    assert!(matches!(model.read(), Err(OnnxError::Messages { .. })));
    let malformed = Attribute::Graph(vec![0x0a, 2, 0x0a, 0x80].into());
    let mut graph = part().output("a").branch();
    if let (Attribute::Graph(graph), Attribute::Graph(more)) = (&mut graph, malformed) {
        *graph = [graph.to_vec(), more.to_vec()].concat().into();
    }
    let model = choice(start("c", true), "c", "y", [graph, one("Relu", "x")]).output("y");
    assert!(matches!(model.read(), Err(OnnxError::Syntax { .. })), "{:?}", model.read());
}

#[test]
fn bytes_that_are_changed_are_refused_or_read() {
    let bytes = nested(3).bytes();
    let mut read = 0;
    for place in 0..bytes.len() {
        for change in [0x01, 0x02, 0x08, 0x10, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[place] ^= change;
            read += usize::from(from_bytes(changed, None).is_ok());
        }
    }
    assert!(read > 100, "{read}");
}
