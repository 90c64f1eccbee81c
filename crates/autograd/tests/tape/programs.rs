//! Random programs, as the fuzz target of the tape runs them.

use tiled_testkit::tape::{Checked, check_program};

/// The bytes of a program.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state.to_le_bytes()[7]
    };
    (0..400).map(|_| next()).collect()
}

#[test]
fn random_programs_agree_with_a_model_of_memory_and_with_differences() {
    const PROGRAMS: u64 = 1500;
    let mut sum = Checked::default();
    let mut differentiated = 0;
    for seed in 0..PROGRAMS {
        let checked = std::panic::catch_unwind(|| check_program(&bytes(seed)));
        let checked = checked.unwrap_or_else(|_| panic!("the program of seed {seed}"));
        sum.operations += checked.operations;
        sum.in_place += checked.in_place;
        sum.refused += checked.refused;
        differentiated += u64::from(checked.differentiated);
    }
    eprintln!("{PROGRAMS} programs, {differentiated} with differences: {sum:?}");
    assert!(sum.operations > 5 * 1500 && sum.in_place > 1500, "programs have operations: {sum:?}");
    assert!(differentiated * 3 > PROGRAMS, "only {differentiated} programs were differentiated");
}

/// Programs whose kinks cancel along a direction: two columns with tied minima, and a row of zeros that is normalised around a leaky ReLU.
#[test]
fn kinks_that_cancel_are_not_taken_for_slopes() {
    check_program(&[0x42, 0x42, 0x15, 0x21, 0, 0, 0x27, 0, 0, 0x6b, 0xff, 0x48, 0x48]);
    check_program(&[
        0xff, 0xd1, 0xd1, 0xd1, 0xd1, 0x6b, 0xff, 0xff, 0xff, 0xff, 0x0, 0x0, 0x0, 0x25, 0x8b, 0xd, 0x5,
        0x60, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5b, 0xfd,
    ]);
}
