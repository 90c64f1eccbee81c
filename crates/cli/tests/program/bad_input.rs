//! Bad input, full disks and Ctrl-C: the text on standard error is that of `tests/ui/<name>.txt`, the exit code says
//! what it was, nothing is printed on standard output, and no file is left.
//!
//! `<number>` in a text stands for any number. `TILED_BLESS=1 cargo test -p tiled-cli --test program` writes the texts.

use crate::bed::{self, Bed, CONV_NET, can_heed, number_after};

#[test]
fn an_unknown_operator_is_named_with_the_nearest_known() {
    let bed = Bed::new();
    bed.write("net.json", CONV_NET.replace("conv2d", "Conv2d").as_bytes());
    bed.fails("unknown_operator", &["plan", "--net", "net.json", "--input", "3x16x16"], 2);
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known() {
    let bed = Bed::new();
    bed.write("net.json", CONV_NET.replace("kernel_size", "kernel_sise").as_bytes());
    bed.fails("unknown_key", &["plan", "--net", "net.json", "--input", "3x16x16"], 2);
}

#[test]
fn a_network_that_is_no_json_is_told_by_line_and_column() {
    let bed = Bed::new();
    bed.write("net.json", b"{\"inputs\": [\n  oops");
    bed.fails("not_json", &["plan", "--net", "net.json", "--input", "3x16x16"], 2);
}

#[test]
fn an_unknown_network_is_told_the_built_in_ones() {
    Bed::new().fails("unknown_network", &["plan", "--net", "lite", "--input", "3x16x16"], 2);
}

#[test]
fn an_image_of_other_channels_is_refused() {
    let bed = Bed::new();
    bed.npy("x.npy", &[4, 16, 16]);
    bed.fails(
        "channel_mismatch",
        &["run", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"],
        2,
    );
}

#[test]
fn weights_for_other_channels_are_refused_by_layer() {
    let bed = Bed::with_network();
    bed.weights("w.safetensors", &[("c1.weight", &[4, 5, 3, 3]), ("c1.bias", &[4])]);
    bed.fails("weight_channels", &RUN_NETWORK, 2);
}

#[test]
fn missing_weights_are_named() {
    let bed = Bed::with_network();
    bed.weights("w.safetensors", &[("c1.weight", &[4, 3, 3, 3])]);
    bed.fails("missing_weight", &RUN_NETWORK, 2);
}

#[test]
fn misshapen_weights_are_named_with_both_shapes() {
    let bed = Bed::with_network();
    bed.weights("w.safetensors", &[("c1.weight", &[4, 3, 3, 3]), ("c1.bias", &[7])]);
    bed.fails("misshapen_weight", &RUN_NETWORK, 2);
}

#[test]
fn weights_of_another_network_are_refused() {
    let bed = Bed::with_network();
    bed.weights("w.safetensors", &[("c1.weight", &[4, 3, 3, 3]), ("c1.bias", &[4]), ("c2.bias", &[4])]);
    bed.fails("unknown_weight", &RUN_NETWORK, 2);
}

#[test]
fn a_file_that_holds_no_weights_is_refused() {
    let bed = Bed::with_network();
    bed.write("w.safetensors", b"nothing of the kind");
    bed.fails("malformed_weights", &RUN_NETWORK, 2);
}

#[test]
fn a_kernel_larger_than_the_padded_input_is_refused_by_layer() {
    let bed = Bed::new();
    bed.write("net.json", CONV_NET.replace("\"kernel_size\": 3", "\"kernel_size\": [3, 9]").as_bytes());
    bed.fails("kernel_too_large", &["plan", "--net", "net.json", "--input", "3x16x6"], 2);
}

#[test]
fn sizes_of_zero_are_refused() {
    let bed = Bed::new();
    bed.fails("zero_size", &["plan", "--net", "light", "--input", "3x0x16"], 2);
    bed.fails("zero_batch", &["plan", "--net", "light", "--input", "0x3x16x16"], 2);
    bed.npy("x.npy", &[3, 0, 16]);
    bed.fails(
        "zero_size_of_a_file",
        &["run", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"],
        2,
    );
}

#[test]
fn sizes_that_overflow_are_refused() {
    let bed = Bed::new();
    bed.fails(
        "overflow",
        &["plan", "--net", "light", "--input", "3x9223372036854775807x9223372036854775807"],
        2,
    );
    bed.fails(
        "too_many_elements",
        &["plan", "--net", "light", "--input", "1000000x3x1073741824x1073741824"],
        2,
    );
    bed.write("x.npy", &bed::npy_header("<f4", &[3, 1 << 40, 1 << 40]));
    bed.fails(
        "overflow_of_a_file",
        &["run", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"],
        2,
    );
}

#[test]
fn a_truncated_file_is_found_before_anything_is_written() {
    let bed = Bed::with_network();
    bed.weights("w.safetensors", &[("c1.weight", &[4, 3, 3, 3]), ("c1.bias", &[4])]);
    bed.cut("x.npy", 1000);
    bed.fails("truncated_npy", &RUN_NETWORK, 2);
    bed.cut("x.npy", 40);
    bed.fails("truncated_npy_header", &RUN_NETWORK, 2);
}

#[test]
fn files_that_are_missing_or_of_unknown_kind_are_named() {
    let bed = Bed::new();
    let run = |input, output| {
        ["run", "--net", "light", "--weights", "random:1", "--input", input, "--output", output]
    };
    bed.fails("missing_input", &run("x.npy", "y.npy"), 2);
    bed.npy("x.npy", &[3, 16, 16]);
    bed.fails("unknown_extension", &run("x.npy", "y.bmp"), 2);
    bed.fails("missing_folder", &run("x.npy", "nowhere/y.npy"), 1);
    bed.fails("no_picture", &run("x.npy", "y.png"), 2);
}

#[test]
fn files_must_be_as_many_as_the_network_has_inputs_and_outputs() {
    let bed = Bed::with_network();
    let run = |extra: &[&'static str]| {
        let start =
            ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
        start.into_iter().chain(extra.iter().copied()).collect::<Vec<_>>()
    };
    bed.fails("too_many_inputs", &run(&["--input", "x.npy"]), 2);
    bed.fails("too_many_outputs", &run(&["--output", "z.npy"]), 2);
    bed.fails(
        "nothing_to_compute",
        &["grad", "--net", "net.json", "--weights", "random:1", "--input", "x.npy"],
        2,
    );
}

#[test]
fn arguments_are_checked_on_one_line() {
    let bed = Bed::new();
    bed.fails("missing_arguments", &["run", "--net", "light"], 2);
    bed.fails("bad_memory", &["plan", "--net", "light", "--input", "3x16x16", "--memory", "256QiB"], 2);
    bed.fails("bad_tile", &["plan", "--net", "light", "--input", "3x16x16", "--tile", "0x16"], 2);
    bed.fails(
        "tile_and_grid",
        &["plan", "--net", "light", "--input", "3x16x16", "--tile", "8x8", "--grid", "2x2"],
        2,
    );
}

#[test]
fn a_budget_too_small_names_the_smallest_which_works() {
    let bed = Bed::new();
    bed.npy("x.npy", &[3, 64, 96]);
    let run = |budget: &str| {
        let budget = ["--memory", budget].map(str::to_owned);
        let start =
            ["run", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
        start.map(str::to_owned).into_iter().chain(budget).collect::<Vec<_>>()
    };
    let text = bed.fails("budget_too_small", &run("16KiB"), 2);
    let smallest = number_after(&text, "smallest that works is ");
    bed.fails("budget_one_byte_short", &run(&(smallest - 1).to_string()), 2);
    bed.succeeds(&run(&smallest.to_string()));
    assert!(bed.names().contains(&"y.npy".to_owned()));
}

#[test]
fn a_budget_too_small_for_training_names_the_smallest_which_works() {
    let bed = Bed::new();
    bed.npy("x.npy", &[3, 64, 96]);
    bed.npy("t.npy", &[32, 16, 24]);
    let run = |budget: &str| {
        let start = ["train", "--net", "light", "--input", "x.npy", "--target", "t.npy", "--steps", "2"];
        let budget = ["--momentum", "0.9", "--save", "w.safetensors", "--memory", budget];
        start.into_iter().chain(budget).map(str::to_owned).collect::<Vec<_>>()
    };
    let text = bed.fails("budget_too_small_for_training", &run("16KiB"), 2);
    let smallest = number_after(&text, "smallest that works is ");
    bed.succeeds(&run(&smallest.to_string()));
    assert!(bed.names().contains(&"w.safetensors".to_owned()));
}

#[test]
fn a_disk_that_is_too_small_is_found_before_any_work() {
    let bed = Bed::new();
    let wide = CONV_NET.replace("\"out_channels\": 4", "\"out_channels\": 65536");
    bed.write("net.json", wide.as_bytes());
    bed.sparse_npy("x.npy", &[3, 32768, 32768]);
    bed.fails(
        "disk_too_small",
        &["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", "y.raw"],
        1,
    );
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_leaves_nothing() {
    let bed = Bed::with_network();
    let run = ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output"];
    bed.fails_limited("disk_full", &[&run[..], &["y.npy"]].concat(), 1);
    let grad = ["grad", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--grad-weights"];
    bed.fails_limited("disk_full_for_weights", &[&grad[..], &["gw.safetensors"]].concat(), 1);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_run_and_leaves_nothing() {
    if !can_heed() {
        return;
    }
    let bed = Bed::new();
    bed.sparse_npy("x.npy", &[3, 2048, 2048]);
    bed.interrupted(
        "ctrl_c",
        &["run", "--net", "vgg16", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"],
        ".y.npy.partial",
    );
}

const RUN_NETWORK: [&str; 9] =
    ["run", "--net", "net.json", "--weights", "w.safetensors", "--input", "x.npy", "--output", "y.npy"];
