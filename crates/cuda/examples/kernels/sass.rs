//! What the inner loop of a kernel consists of, as `nvdisasm` prints its machine code.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// The instructions of the inner loop of a kernel: of those with multiply-adds and no such loop inside, the one that has the most. What a jump
/// leaves out that divides, or calls what divides, does not count: it finds the place of another tap, once in many rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    pub(crate) kernel: String,
    pub(crate) multiply_adds: usize,
    pub(crate) instructions: usize,
}

/// The text that a disassembler prints of machine code.
pub(crate) fn text(disassembler: &Path, code: &[u8]) -> io::Result<String> {
    let file = std::env::temp_dir().join(format!("tiled-kernels-{}.cubin", std::process::id()));
    fs::write(&file, code)?;
    let output = Command::new(disassembler).arg("-c").arg(&file).output();
    let _ = fs::remove_file(&file);
    let output = output?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The loops of all kernels in such a text that have multiply-adds of singles.
pub(crate) fn loops(text: &str) -> Vec<Loop> {
    let mut all = Vec::new();
    // a kernel's text goes to where the next one begins
    for part in text.split("\n.text.").skip(1) {
        let Some((kernel, body)) = part.split_once(':') else { continue };
        all.extend(inner_loop(body).map(|[multiply_adds, instructions]| Loop {
            kernel: kernel.to_owned(),
            multiply_adds,
            instructions,
        }));
    }
    all
}

/// The multiply-adds and the instructions of the inner loop that has the most of them, the shortest of several.
fn inner_loop(body: &str) -> Option<[usize; 2]> {
    let mut labels: Vec<(&str, usize)> = Vec::new();
    let mut instructions: Vec<&str> = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(label) = line.strip_suffix(':') {
            labels.push((label, instructions.len()));
        } else if let Some((_, instruction)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/"))
        {
            instructions.push(instruction.trim());
        }
    }
    let target_of = |instruction: &str| {
        let target = instruction.split_once("BRA").and_then(|(_, rest)| rest.split('`').nth(1))?;
        let target = target.strip_prefix('(')?.split(')').next()?;
        labels.iter().find(|(label, _)| *label == target).map(|(_, at)| *at)
    };
    // a jump back is the end of a loop
    let back = |(at, instruction): (usize, &&str)| {
        let begin = &target_of(instruction).filter(|begin| *begin <= at)?;
        let body = &instructions[*begin..=at];
        let multiply_adds = body.iter().filter(|instruction| instruction.contains("FFMA")).count();
        (multiply_adds > 0).then_some((*begin, at, multiply_adds))
    };
    let loops: Vec<(usize, usize, usize)> = instructions.iter().enumerate().filter_map(back).collect();
    let is_inner = |(begin, end, _): &&(usize, usize, usize)| {
        let within = |other: &(usize, usize, usize)| other.0 >= *begin && other.1 <= *end;
        loops.iter().filter(|other| within(other)).count() == 1
    };
    let divides = |instruction: &&str| instruction.contains("MUFU") || instruction.contains("CALL");
    let counted = |begin: usize, end: usize| {
        let mut at = begin;
        std::iter::from_fn(|| {
            (at <= end).then(|| {
                let left_out = target_of(instructions[at]).filter(|to| *to > at && *to <= end);
                at = left_out.filter(|to| instructions[at..*to].iter().any(divides)).unwrap_or(at + 1);
            })
        })
        .count()
    };
    let inner = loops
        .iter()
        .filter(is_inner)
        .map(|(begin, end, multiply_adds)| [*multiply_adds, counted(*begin, *end)]);
    inner.max_by_key(|[multiply_adds, len]| (*multiply_adds, usize::MAX - len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_loop_with_the_most_multiply_adds_counts() {
        let text = "\n.text.one:\n.L_x_0:\n /*0000*/ MOV R1, R2 ;\n.L_x_1:\n /*0010*/ FFMA R1, R2, R3, R1 ;\n\
                    /*0020*/ FFMA R4, R2, R3, R4 ;\n /*0030*/ LDS R2, [R5] ;\n /*0040*/ @P0 BRA `(.L_x_1) ;\n\
                    /*0050*/ @P1 BRA `(.L_x_0) ;\n /*0060*/ BRA `(.L_x_2) ;\n.L_x_2:\n /*0070*/ EXIT ;\n\
                    \n.text.two:\n.L_x_3:\n /*0000*/ BRA `(.L_x_3) ;\n";
        let found = loops(text);
        assert_eq!(found, [Loop { kernel: "one".to_owned(), multiply_adds: 2, instructions: 4 }]);
    }

    #[test]
    fn what_finds_another_tap_does_not_count() {
        let text = "\n.text.one:\n.L_x_0:\n /*0000*/ @P0 BRA `(.L_x_1) ;\n /*0010*/ MUFU.RCP R1, R1 ;\n /*0020*/ MOV R1, R2 ;\n\
                    .L_x_1:\n /*0030*/ @P1 BRA `(.L_x_2) ;\n /*0040*/ LDS R2, [R5] ;\n.L_x_2:\n /*0050*/ FFMA R1, R2, R3, R1 ;\n\
                    /*0060*/ @P2 BRA `(.L_x_0) ;\n /*0070*/ EXIT ;\n";
        assert_eq!(loops(text), [Loop { kernel: "one".to_owned(), multiply_adds: 1, instructions: 5 }]);
    }
}
