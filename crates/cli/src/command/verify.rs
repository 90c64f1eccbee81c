//! `tiled verify`: random networks, sizes and plans, tiled against whole.

use serde_json::{Map, json};
use tiled::exec::peak_rss_bytes;
use tiled_verify::{VerifyOptions, VerifyReport, verify};

use crate::args::{VerifyArgs, threads};
use crate::error::CliError;
use crate::progress::Session;
use crate::report::{print, print_json};

pub(crate) fn run(args: &VerifyArgs, session: &Session) -> Result<(), CliError> {
    let options = VerifyOptions {
        cases: args.cases,
        seed: args.seed,
        threads: threads(args.threads),
        only: args.only,
        device: args.device.choice()?,
    };
    let report = verify(&options, &session.bar("verify"))?;
    if args.json {
        print_report(&report)?;
    } else {
        print(&text(&report))?;
    }
    if report.passed() {
        return Ok(());
    }
    Err(CliError::Verification { failures: report.failures.len(), cases: report.cases })
}

fn print_report(report: &VerifyReport) -> Result<(), CliError> {
    let mut object = Map::new();
    object.insert("seconds".into(), json!(report.seconds));
    object.insert("tiles".into(), json!(report.min_tiles));
    // the cases have many plans, none of which stands for all
    for key in ["plan_peak_bytes", "flops", "redundant_flops"] {
        object.insert(key.into(), json!(null));
    }
    object.insert("peak_rss_bytes".into(), json!(peak_rss_bytes()));
    object.insert("cases".into(), json!(report.cases));
    object.insert("min_tiles".into(), json!(report.min_tiles));
    object.insert("compared".into(), json!(report.compared));
    object.insert("output_mismatches".into(), json!(report.output_mismatches));
    object.insert("input_grad_mismatches".into(), json!(report.input_grad_mismatches));
    object.insert("weight_grad_failures".into(), json!(report.weight_grad_failures));
    object.insert("failures".into(), json!(report.failures));
    print_json(object)
}

fn text(report: &VerifyReport) -> String {
    let mut text = format!(
        "{} cases in {:.1} s, at least {} tiles each, {} numbers compared\n\
         outputs:          {} mismatches\n\
         input gradients:  {} mismatches\n\
         weight gradients: {} outside their bound or different between threads",
        report.cases,
        report.seconds,
        report.min_tiles,
        report.compared,
        report.output_mismatches,
        report.input_grad_mismatches,
        report.weight_grad_failures,
    );
    for failure in &report.failures {
        text.push_str("\n  ");
        text.push_str(failure);
    }
    text
}
