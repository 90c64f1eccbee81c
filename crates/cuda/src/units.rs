//! The kernels: one table that drives how they are built, launched and tested.

/// A file of kernels, built as one.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: &'static str,
    /// What it is written as, before what it includes.
    pub source: &'static str,
    /// Its kernels.
    pub kernels: &'static [&'static str],
}

macro_rules! units {
    ($($unit:ident: $file:literal [$($kernel:ident)*];)*) => {
        /// Every file of kernels.
        pub static UNITS: &[Unit] = &[$(
            Unit {
                name: stringify!($unit),
                source: include_str!(concat!("../kernels/", $file)),
                kernels: &[$(stringify!($kernel)),*],
            },
        )*];
    };
}

units! {
    map: "map.cu" [
        map_f32_1 map_f32_4 map_f64_1 map_f64_4
        function_f32_1 function_f32_4 function_f64_1 function_f64_4
        arithmetic_f32_1 arithmetic_f32_4 arithmetic_f64_1 arithmetic_f64_4
    ];
    movement: "move.cu" [
        move_f32 move_f64 pad_back_f32 pad_back_f64 import_f32 import_f64 export_f32 export_f64
    ];
    resample: "resample.cu" [resample_f32 resample_f64];
    pool: "pool.cu" [
        pool_f32_1 pool_f32_4 pool_f64_1 pool_f64_4
        pool_back_f32_1 pool_back_f32_4 pool_back_f64_1 pool_back_f64_4
    ];
    pixel: "pixel.cu" [pixel_f32 pixel_f64];
    conv: "conv.cu" [
        dense_f32_128 dense_f32_64 dense_f32_64_64 dense_f32_32
        few_f32_8 few_f32_4 dense_f64_64 dense_f64_32 dense_f64_8
        gather_f32_64 gather_f32_32 gather_f32_8 gather_f64_32 gather_f64_8
    ];
    depthwise: "depthwise.cu" [
        depthwise_f32_3x3 depthwise_f32_3x3_2 depthwise_f32_3x3_back
        depthwise_f32_5x5 depthwise_f32_5x5_2 depthwise_f32_5x5_back
        depthwise_f32_7x7 depthwise_f32_7x7_2 depthwise_f32_7x7_back
        depthwise_f32_1 depthwise_f32_4 depthwise_f64_1 depthwise_f64_4
    ];
    winograd: "winograd.cu" [winograd_f32 winograd_f64];
    weight: "weight.cu" [
        weights_dense_f32_128 weights_dense_f32_64 weights_dense_f32_32 weights_dense_f64_32
        weights_first_f32_64 weights_first_f32_32 weights_last_f32_8
        weights_gather_f32_32 weights_gather_f32_16 weights_gather_f64_32 weights_gather_f64_16
        weights_depthwise_f32 weights_depthwise_f64
        add_parts_f32 add_parts_f64
    ];
    conv_tensor: "conv_tensor.cu" [
        dense_tf32_128 dense_tf32_64 dense_tf32_32 dense_f32x3_128 dense_f32x3_64 dense_f32x3_32
    ];
    weight_tensor: "weight_tensor.cu" [
        weights_tf32_64 weights_tf32_32 weights_f32x3_128 weights_f32x3_64 weights_f32x3_32
    ];
    reduce: "reduce.cu" [
        sums_f32 sums_f64 moments_f32 moments_f64 centred_f32 centred_f64 losses_f32 losses_f64
        image_max_f32 image_max_f64 merge_sums merge_maxima
    ];
    peak: "peak.cu" [multiply_adds_f32 multiply_adds_f64];
}

/// The shared memory of kernels that a launch gives it, in bytes: more than a kernel may have by itself, and no more than any device has.
const SHARED_BYTES: [(&str, u32); 11] = [
    ("dense_tf32_128", 100_352),
    ("dense_tf32_64", 86_016),
    ("dense_tf32_32", 77_824),
    ("dense_f32x3_128", 75_776),
    ("dense_f32x3_64", 68_608),
    ("dense_f32x3_32", 77_824),
    ("weights_tf32_64", 80_384),
    ("weights_tf32_32", 68_096),
    ("weights_f32x3_128", 70_144),
    ("weights_f32x3_64", 53_760),
    ("weights_f32x3_32", 45_568),
];

/// What a launch of a kernel gives it of shared memory.
pub(crate) fn shared_bytes(kernel: &str) -> u32 {
    SHARED_BYTES.iter().find(|(name, _)| *name == kernel).map_or(0, |(_, bytes)| *bytes)
}

/// The files that kernels include.
const HEADERS: &[(&str, &str)] = &[
    ("sim.h", include_str!("../kernels/sim.h")),
    ("device.cuh", include_str!("../kernels/device.cuh")),
    ("ptx.cuh", include_str!("../kernels/ptx.cuh")),
    ("dense.cuh", include_str!("../kernels/dense.cuh")),
    ("write.cuh", include_str!("../kernels/write.cuh")),
    ("weights.cuh", include_str!("../kernels/weights.cuh")),
    ("tensor.cuh", include_str!("../kernels/tensor.cuh")),
    ("math.cuh", include_str!("../kernels/math.cuh")),
    ("function.cuh", include_str!("../kernels/function.cuh")),
    ("pixel.cuh", include_str!("../kernels/pixel.cuh")),
];

impl Unit {
    /// The whole source, with what it includes, each file once: what a compiler gets, and what a cache is keyed by.
    #[must_use]
    pub fn text(&self) -> String {
        let mut included = Vec::new();
        expand(self.source, &mut included)
    }

    /// The file that has a kernel of this name.
    #[must_use]
    pub fn of(kernel: &str) -> Option<&'static Self> {
        UNITS.iter().find(|unit| unit.kernels.contains(&kernel))
    }
}

fn expand(source: &str, included: &mut Vec<String>) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let name = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        let header = name.and_then(|name| HEADERS.iter().find(|(header, _)| *header == name));
        match header {
            Some((name, header)) if !included.iter().any(|seen| seen == name) => {
                included.push((*name).to_owned());
                text.push_str(&expand(header, included));
            }
            Some(_) => {}
            None if line == "#pragma once" => {}
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_a_file_is_in_the_table() {
        for unit in UNITS {
            let written: Vec<&str> = unit
                .source
                .lines()
                .filter_map(|line| line.strip_prefix("KERNEL(")?.split(',').next())
                .collect();
            let mut listed = unit.kernels.to_vec();
            for name in &written {
                let place = listed.iter().position(|listed| listed == name);
                let place = place.unwrap_or_else(|| panic!("`{name}` of {} is not listed", unit.name));
                listed.swap_remove(place);
            }
            assert!(listed.is_empty(), "{}: no kernels {listed:?}", unit.name);
        }
    }

    #[test]
    fn sources_hold_each_header_once() {
        for unit in UNITS {
            let text = unit.text();
            assert_eq!(text.matches("struct View {").count(), 1, "{}", unit.name);
            assert!(!text.contains("#include \""), "{}", unit.name);
        }
    }
}
