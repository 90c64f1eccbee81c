//! What work runs on.

use crate::bed::Bed;

/// Whether this machine simulates GPUs.
fn simulates(bed: &Bed) -> bool {
    let devices = bed.json(&["devices"])["devices"].as_array().expect("a list").clone();
    let simulated = devices.iter().find(|device| device["name"] == "cuda-sim:h200");
    let is_there = simulated.is_some_and(|device| device["available"] == true);
    if !is_there {
        eprintln!("skipped: no C++ compiler");
    }
    is_there
}

#[test]
fn devices_are_listed_wherever_the_program_runs() {
    let bed = Bed::new();
    let text = bed.says(&["devices"]);
    assert!(text.starts_with("cpu "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("cuda ") || line.starts_with("cuda:0 ")), "{text}");
    assert!(text.contains("cuda-sim:h200"), "{text}");
}

#[test]
fn a_device_that_is_not_there_is_refused_before_anything_is_written() {
    let bed = Bed::new();
    bed.npy("x.npy", &[3, 16, 16]);
    let run = ["run", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
    let said = bed.refused(&[&run[..], &["--device", "gpu"]].concat(), 2);
    assert!(said.contains("unknown device `gpu`: known are cpu, cuda, cuda:N"), "{said}");
    let said = bed.refused(&[&run[..], &["--device", "cuda:77"]].concat(), 2);
    let is_told = said.contains("no CUDA driver") || said.contains("device 77 of");
    assert!(said.contains("device `cuda:77`") && is_told, "{said}");
    assert_eq!(bed.names(), ["x.npy"]);
}

#[test]
fn a_budget_above_the_memory_of_a_gpu_is_refused_with_both_numbers() {
    let bed = Bed::new();
    let plan =
        ["plan", "--net", "light", "--input", "3x64x64", "--device", "cuda-sim:l4", "--memory", "32GiB"];
    bed.fails("budget_above_gpu", &plan, 2);
}

#[test]
fn a_simulated_gpu_without_a_compiler_plans_and_does_not_run() {
    let bed = Bed::new();
    bed.npy("x.npy", &[3, 16, 16]);
    let of = |args: &[&str]| {
        let mut program = bed.program(args);
        program.env("TILED_CUDA_SIM_CXX", "no-such-compiler").output().expect("the program starts")
    };
    let plan = ["plan", "--net", "light", "--input", "3x512x512", "--device", "cuda-sim:h200"];
    let planned = of(&plan);
    let text = String::from_utf8_lossy(&planned.stdout);
    assert!(planned.status.success() && text.contains("on the device"), "{text}");
    let run = ["run", "--net", "light", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
    let refused = of(&[&run[..], &["--device", "cuda-sim"]].concat());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("find a C++ compiler"), "{said}");
    assert_eq!(bed.names(), ["x.npy"]);
}

#[test]
fn a_simulated_gpu_runs_and_trains_in_tiles_as_without() {
    let bed = Bed::new();
    if !simulates(&bed) {
        return;
    }
    bed.random_npy("x.npy", &[3, 32, 48]);
    let mut whole = Vec::new();
    for hold in [&["--hold", "materialise"][..], &["--hold", "slide", "--tile", "2x5"]] {
        let run = ["run", "--net", "light", "--weights", "random:3", "--input", "x.npy", "--output", "y.npy"];
        bed.succeeds(&[&run[..], &["--device", "cuda-sim"], hold].concat());
        let train =
            ["train", "--net", "light", "--input", "x.npy", "--target", "y.npy", "--weights", "random:4"];
        let steps = ["--steps", "2", "--lr", "0.1", "--save", "w.safetensors"];
        let report = bed.json(&[&train[..], &steps, &["--device", "cuda-sim"], hold].concat());
        let losses = report["losses"].as_array().expect("a list").clone();
        assert!(losses.len() == 2 && losses[1].as_f64() < losses[0].as_f64(), "{losses:?}");
        let results = (bed.read("y.npy"), losses[0].clone());
        whole.push(results);
    }
    assert!(whole[0] == whole[1], "outputs and the first loss");
}

#[test]
fn tensor_cores_give_the_same_bits_in_tiles_and_others_than_multiply_adds() {
    let bed = Bed::new();
    if !simulates(&bed) {
        return;
    }
    bed.random_npy("x.npy", &[3, 32, 48]);
    let run = ["run", "--net", "vgg2", "--weights", "random:3", "--input", "x.npy", "--output", "y.npy"];
    let of = |rest: &[&str]| {
        bed.succeeds(&[&run[..], rest].concat());
        bed.read("y.npy")
    };
    let plain = of(&["--device", "cuda-sim"]);
    for precision in ["tf32", "f32x3"] {
        let whole = of(&["--device", "cuda-sim", "--precision", precision, "--hold", "materialise"]);
        let by_name = format!("cuda-sim:h200+{precision}");
        let tiled = of(&["--device", &by_name, "--hold", "slide", "--tile", "2x5"]);
        assert!(whole == tiled, "{precision}: tiles");
        assert!(whole != plain, "{precision}: its own roundings");
    }
    let said = bed.refused(&[&run[..], &["--precision", "tf32"]].concat(), 2);
    assert!(said.contains("device `cpu` has no tensor cores"), "{said}");
}

#[test]
fn verification_runs_on_a_simulated_gpu() {
    let bed = Bed::new();
    if simulates(&bed) {
        let report = bed.json(&["verify", "--device", "cuda-sim", "--cases", "4", "--seed", "2"]);
        assert_eq!(report["output_mismatches"], 0);
        assert!(report["min_tiles"].as_u64() > Some(1), "{report}");
    }
}

#[test]
fn kernels_are_not_built_where_there_is_no_compiler_for_them() {
    let bed = Bed::new();
    let output = bed.program(&["cuda-build", "--arch", "sm_0", "--out", "kernels"]).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // NVRTC is not found, or knows no such architecture
    assert!(!output.status.success() && said.contains("build kernels"), "{said}");
    assert!(bed.names().is_empty());
}
