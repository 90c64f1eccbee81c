//! The library as C11 and C++17 programs see it: headers, layouts, symbols, SONAME.

mod native;

use std::fmt::Write;
use std::mem::{align_of, offset_of, size_of};
use std::path::PathBuf;
use std::process::Command;

use native::Language::{C11, Cpp17};
use native::{compile, has, root, run, shared_library, succeed, text};
use tiled_capi::*;

fn source(name: &str) -> PathBuf {
    root().join("tests/abi").join(name)
}

#[test]
fn the_header_compiles_alone_twice_and_in_two_units() {
    let folder = tempfile::tempdir().expect("there is room");
    for language in [C11, Cpp17] {
        let program = folder.path().join("alone");
        compile(language, &[source("alone.c")], &[], &program);
        run(&program, &[]);
        compile(language, &[source("unit_a.c"), source("unit_b.c")], &[], &program);
        run(&program, &[]);
    }
    let program = folder.path().join("alone_cpp");
    compile(Cpp17, &[source("alone.cpp"), source("unit_b.cpp")], &[], &program);
    run(&program, &[]);
}

#[test]
fn the_wrapper_owns_throws_and_does_without_exceptions() {
    let folder = tempfile::tempdir().expect("there is room");
    // what a framework may have on while it includes the header
    let strict = ["-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wold-style-cast", "-Wnon-virtual-dtor"];
    let program = folder.path().join("wrapper");
    compile(Cpp17, &[source("wrapper.cpp")], &strict, &program);
    run(&program, &[]);
    let program = folder.path().join("results");
    let without = [&strict[..], &["-fno-exceptions", "-fno-rtti"]].concat();
    compile(Cpp17, &[source("results.cpp")], &without, &program);
    run(&program, &[]);
    compile(Cpp17, &[source("results.cpp")], &["-DTILED_NO_EXCEPTIONS=1"], &program);
    run(&program, &[]);
}

#[test]
fn dlpack_threads_and_memory_work_from_c() {
    let folder = tempfile::tempdir().expect("there is room");
    for name in ["dlpack", "threads", "memory"] {
        let program = folder.path().join(name);
        compile(C11, &[source(&format!("{name}.c"))], &[], &program);
        run(&program, &[]);
    }
}

#[test]
fn programs_are_clean_under_address_and_undefined_sanitizers() {
    let folder = tempfile::tempdir().expect("there is room");
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for (language, name) in [(C11, "dlpack.c"), (C11, "threads.c"), (C11, "memory.c"), (Cpp17, "wrapper.cpp")]
    {
        let program = folder.path().join("sanitized");
        compile(language, &[source(name)], &flags, &program);
        run(&program, &[]);
    }
}

macro_rules! layouts {
    ($($type:ident { $($field:ident),* $(,)? })*) => {
        fn assertions() -> String {
            let mut text = String::new();
            $(
                let name = stringify!($type);
                let _ = writeln!(text, "SAME(sizeof({name}), {});", size_of::<$type>());
                let _ = writeln!(text, "SAME(ALIGNMENT({name}), {});", align_of::<$type>());
                $(
                    let field = stringify!($field);
                    let _ = writeln!(text, "SAME(offsetof({name}, {field}), {});", offset_of!($type, $field));
                )*
            )*
            text
        }
        const STRUCTS: &[&str] = &[$(stringify!($type)),*];
    };
}

layouts! {
    tiled_interval { begin, end }
    tiled_region { rows, cols }
    tiled_window { kernel, stride, dilation, padding }
    tiled_tensor { struct_size, dtype, data, shape, strides, device_type, device_id, stream }
    tiled_logger { struct_size, level, log, user }
    tiled_allocator { struct_size, reserved, allocate, deallocate, user }
    tiled_device { struct_size, kind, is_there, multiprocessors, memory_bytes }
    tiled_engine_options { struct_size, threads, isa, device }
    tiled_operator_options { struct_size, reserved, memory_bytes, tile }
    tiled_conv2d {
        struct_size, activation, stride, dilation, padding_before, padding_after, groups, negative_slope,
    }
    tiled_pool2d {
        struct_size, ceil_mode, count_include_pad, reserved, kernel, stride, dilation, padding_before,
        padding_after,
    }
    tiled_objective { struct_size, mode, loss, outputs, grad_inputs, grad_params, target_channels, seed, ignore_index,
        wanted, wanted_count, evaluated, evaluated_count }
    tiled_plan_options {
        struct_size, hold, memory_bytes, tile, grid, lanes, parallelism, resident_bytes, winograd, in_memory, chunks,
        chunk_count, releases_weights, reserved,
    }
    tiled_plan_summary {
        struct_size, dtype, peak_bytes, windows_bytes, stores_bytes, parameters_bytes, flops, redundant_flops,
        predicted_seconds, sweeps, steps, lanes, budget_bytes, budget_source, reserved, chunks_bytes,
        chunk_reads,
    }
    tiled_source {
        struct_size, is_serial, tensor, read, user, numbers, reserved, scale, mean, mean_count, std, std_count,
        read_chunk, chunk_shape,
    }
    tiled_chunks { source, dtype, index, shape }
    tiled_changes { struct_size, dtype, values, cut, nan, rounded, least, largest }
    tiled_sink {
        struct_size, is_serial, tensor, write, end, user, numbers, decision, channels, threshold, changes,
    }
    tiled_progress { struct_size, reserved, step, user }
    tiled_io {
        struct_size, reserved, inputs, input_count, target, grad_outputs, grad_output_count, outputs,
        output_count, grad_inputs, grad_input_count, progress,
    }
    tiled_report { struct_size, has_loss, loss, seconds }
    tiled_optimizer {
        struct_size, kind, learning_rate, weight_decay, momentum, dampening, betas, eps, nesterov, reserved,
    }
}

#[test]
fn structs_lie_in_memory_as_the_header_says() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("layout.c");
    let head = "#include \"tiled.h\"\n\
                #ifdef __cplusplus\n\
                #define SAME(a, b) static_assert((a) == (b), #a)\n\
                #define ALIGNMENT(t) alignof(t)\n\
                #else\n\
                #define SAME(a, b) _Static_assert((a) == (b), #a)\n\
                #define ALIGNMENT(t) _Alignof(t)\n\
                #endif\n";
    std::fs::write(&file, format!("{head}{}int main(void) {{ return 0; }}\n", assertions())).expect("room");
    for language in [C11, Cpp17] {
        compile(language, std::slice::from_ref(&file), &["-c"], &folder.path().join("layout.o"));
    }
    let header = std::fs::read_to_string(root().join("include/tiled.h")).expect("it is committed");
    let with_fields =
        header.lines().filter_map(|line| line.strip_prefix("typedef struct ")?.strip_suffix(" {"));
    for name in with_fields {
        assert!(STRUCTS.contains(&name), "`{name}` of the header is not held to its layout");
    }
}

#[test]
fn only_the_functions_of_the_header_are_exported_under_the_soname() {
    if !has("nm") || !has("readelf") {
        return;
    }
    let symbols =
        text(&succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(shared_library())).stdout);
    let mut exported: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(root().join("include/tiled.h")).expect("it is committed");
    let mut declared = functions(&header);
    declared.sort();
    assert_eq!(exported, declared, "exported and declared functions differ");
    let dynamic = text(&succeed(Command::new("readelf").arg("-d").arg(shared_library())).stdout);
    assert!(dynamic.contains("[libtiled.so.0]"), "{dynamic}");
}

#[test]
fn the_library_holds_nothing_that_is_for_tests() {
    if !has("nm") {
        return;
    }
    // those that are not exported too
    let symbols = text(&succeed(Command::new("nm").arg("--defined-only").arg(shared_library())).stdout);
    let of_tests = ["INJECTED", "inject_panic", "tiled_capi_oracle", "tiled_testkit"];
    let is_for_tests = |line: &&str| of_tests.iter().any(|name| line.contains(name));
    let found: Vec<&str> = symbols.lines().filter(is_for_tests).collect();
    assert!(symbols.contains("tiled_plan_new") && found.is_empty(), "{found:#?}");
}

/// The functions that a header declares: words before a parenthesis at the start of a declaration.
fn functions(header: &str) -> Vec<String> {
    let is_comment = |line: &&str| !line.starts_with([' ', '/', '#']) && !line.starts_with("typedef");
    header
        .lines()
        .filter(is_comment)
        .filter_map(|line| {
            let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
            name.starts_with("tiled_").then(|| name.to_owned())
        })
        .collect()
}

/// Builds of the library for the sanitizer and of a changed library take minutes, so that a test only runs them where
/// `variable` names a folder to build in.
fn script_in_folder_of(variable: &str, script: &str) {
    let Some(folder) = std::env::var_os(variable) else {
        eprintln!("skipped: it builds for minutes; run {script}, or set {variable} to a folder to build in");
        return;
    };
    let output = Command::new("sh").arg(root().join(script)).arg(folder).output().expect("there is a shell");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    eprintln!("{out}");
    let is_skipped = output.status.code() == Some(77); // which says why
    assert!(output.status.success() || is_skipped, "{script}: {}\n{out}\n{err}", output.status);
}

#[test]
fn threads_that_share_handles_are_clean_under_thread_sanitizer() {
    script_in_folder_of("TILED_TSAN", "tests/abi/tsan/run.sh");
}

#[test]
fn abidiff_reports_a_struct_that_changed() {
    script_in_folder_of("TILED_ABIDIFF", "tests/abi/changed_struct.sh");
}
