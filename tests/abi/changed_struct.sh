#!/bin/sh
# Shows that bindings/abi_check.sh reports a changed struct: builds the library twice, the second time with a field more in
# the middle of tiled_operator_options, and compares the two.
#
#   tests/abi/changed_struct.sh [FOLDER]
#
# FOLDER is where both are built (minutes the first time), target/abidiff by default. Exits with 77 without abidiff.
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$source/target}/abidiff}
check=$source/bindings/abi_check.sh
command -v abidiff >/dev/null || { echo "skipped: abidiff is not installed (package abigail-tools)" && exit 77; }

mkdir -p "$folder/source"
copy=$folder/source
(cd "$source" && git ls-files -z | xargs -0 tar cf -) | (cd "$copy" && tar xf -)
build() {
    (cd "$copy" && CARGO_TARGET_DIR=$folder CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=full \
        cargo build --quiet --locked -p tiled-capi --lib)
    cp "$folder/debug/libtiled_capi.so" "$folder/$1.so"
}
build before
file=$copy/crates/capi/src/operator/mod.rs
sed -i -e 's|^    pub memory_bytes: u64,|    pub scratch_bytes: u64,\n    /// Bytes.\n    pub memory_bytes: u64,|' \
    -e 's|memory_bytes: 0, tile|scratch_bytes: 0, memory_bytes: 0, tile|' "$file"
build after

sh "$check" "$folder/before.so" "$folder/before.so" || { echo "a library differs from itself" && exit 1; }
status=0
sh "$check" "$folder/before.so" "$folder/after.so" >"$folder/report" || status=$?
cat "$folder/report"
[ "$status" != 0 ] && grep -q scratch_bytes "$folder/report" && grep -q tiled_operator_options "$folder/report" || {
    echo "a changed struct went unnoticed (status $status)"
    exit 1
}
echo "abidiff: reports the changed struct, with status $status"
