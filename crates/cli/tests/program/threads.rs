//! What threads change: how fast a run is and what memory it takes, never a bit of what it computes.

use serde_json::Value;

use crate::bed::Bed;

const THREADS: [&str; 5] = ["1", "2", "3", "4", "8"];

/// Runs the same with every number of threads and compares the file that it writes; the reports.
fn runs_alike(bed: &Bed, name: &str, args: &[&str], file: &str) -> Vec<Value> {
    let mut first = None;
    let mut reports = Vec::new();
    for threads in THREADS {
        reports.push(bed.report(&[args, &["--threads", threads]].concat()));
        let written = bed.read(file);
        match &first {
            None => first = Some(written),
            Some(first) => assert!(*first == written, "{name}: {threads} threads write another {file}"),
        }
    }
    reports
}

/// Networks with sizes that do not divide, in batches where they train on `.npy`.
const NETWORKS: [(&str, [usize; 4], [usize; 4]); 3] = [
    ("light", [2, 3, 190, 270], [2, 32, 47, 67]),
    ("unet", [1, 3, 144, 208], [1, 3, 144, 208]),
    ("resnet18", [2, 3, 97, 130], [2, 1000, 1, 1]),
];

#[test]
fn r12_gradients_do_not_depend_on_threads() {
    for (net, input, output) in NETWORKS {
        let bed = Bed::new();
        bed.random_npy("x.npy", &input);
        bed.random_npy("g.npy", &output);
        let args =
            ["grad", "--net", net, "--weights", "random:3", "--input", "x.npy", "--grad-output", "g.npy"];
        let files = ["--grad-weights", "gw.safetensors", "--mode", "eval"];
        let reports = runs_alike(&bed, net, &[&args[..], &files].concat(), "gw.safetensors");
        assert!(reports.iter().all(|report| report["tiles"] == reports[0]["tiles"]), "{net}: {reports:?}");
        // tiles that lanes share out between them, and of which one or more run at a time
        let given = ["--grid", "3x2", "--lanes", "4"];
        let reports = runs_alike(&bed, net, &[&args[..], &files, &given].concat(), "gw.safetensors");
        assert!(reports.iter().all(|report| report["tiles"].as_u64() > Some(1)), "{net}: {reports:?}");
    }
}

#[test]
fn r12_training_does_not_depend_on_threads() {
    for (net, input, output) in NETWORKS {
        let bed = Bed::new();
        bed.random_npy("x.npy", &input);
        bed.random_npy("t.npy", &output);
        let train = ["train", "--net", net, "--input", "x.npy", "--target", "t.npy", "--steps", "2"];
        let save = ["--optimizer", "adamw", "--save", "w.safetensors"];
        let reports = runs_alike(&bed, net, &[&train[..], &save].concat(), "w.safetensors");
        assert!(reports.iter().all(|report| report["losses"] == reports[0]["losses"]), "{net}: {reports:?}");
        let given = ["--grid", "3x2", "--lanes", "4"];
        let reports = runs_alike(&bed, net, &[&train[..], &save, &given].concat(), "w.safetensors");
        assert!(reports.iter().all(|report| report["tiles"].as_u64() > Some(1)), "{net}: {reports:?}");
    }
}

#[test]
fn r12_plans_are_shared_out_alike_for_all_threads() {
    let bed = Bed::new();
    for (net, input) in [("light", "3x2048x2048"), ("vgg2", "3x1024x1500"), ("unet", "3x1000x700")] {
        let plan = |threads: &str| {
            let args =
                ["plan", "--net", net, "--input", input, "--train", "--steps", "0", "--threads", threads];
            bed.report(&args)["plan"].clone()
        };
        let one = plan("1");
        for threads in THREADS {
            let other = plan(threads);
            for field in ["lanes", "tiles", "calls", "flops"] {
                assert_eq!(one[field], other[field], "{net}, {threads} threads: {field}");
            }
            let lanes = other["lanes"].as_u64().expect("a number");
            let most: u64 = threads.parse().expect("a number");
            assert_eq!(other["in_flight"].as_u64(), Some(lanes.min(most)), "{net}: no budget was given");
        }
        let lanes = ["plan", "--net", net, "--input", input, "--train", "--steps", "0", "--lanes", "4"];
        let four = bed.report(&[&lanes[..], &["--grid", "4x2"]].concat());
        assert_eq!(four["plan"]["lanes"], 4, "{net}: lanes were asked for");
    }
}
