#!/bin/sh
# Runs tests/abi/threads.c under ThreadSanitizer, library included.
#
#   tests/abi/tsan/run.sh [FOLDER]
#
# FOLDER is where the library is built for the sanitizer (minutes the first time), target/tsan by default. The sanitizer is
# an unstable flag of the compiler, so RUSTC_BOOTSTRAP lets the stable one take it. Exits with 77 where something is missing.
set -eu

source=$(cd "$(dirname "$0")/../../.." && pwd)
here=$source/tests/abi
folder=${1:-${CARGO_TARGET_DIR:-$source/target}/tsan}
target=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(rustc --print sysroot)/lib/rustlib/$target/lib/librustc-stable_rt.tsan.a
[ -e "$runtime" ] || runtime=$(ls "$(rustc --print sysroot)/lib/rustlib/$target/lib/"librustc*_rt.tsan.a 2>/dev/null | head -n 1)
skip() {
    echo "skipped: $1"
    exit 77
}
[ -n "$runtime" ] && [ -e "$runtime" ] || skip "this compiler has no runtime of ThreadSanitizer for $target"
command -v gcc >/dev/null || skip "gcc is not installed"
command -v nm >/dev/null || skip "nm is not installed"

(cd "$source" && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$folder \
    RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
    cargo build --quiet --locked -p tiled-capi --lib --target "$target")
library=$folder/$target/debug/libtiled_capi.a

# mangled names change with the compiler, so they are looked up
undefined=$(nm --undefined-only "$library" 2>/dev/null | sed -n 's/^ *U \(_R[A-Za-z0-9_]*\)$/\1/p' | sort -u)
macros='' wraps=''
for pair in MUTEX_LOCK=futexNtB2_5Mutex14lock_contended RWLOCK_READ=futexNtB2_6RwLock14read_contended \
    RWLOCK_WRITE=futexNtB2_6RwLock15write_contended ONCE_CALL=futexNtB5_4Once4call \
    CONDVAR_WAIT=futexNtB2_7Condvar4wait SCOPE_LEAVE=ScopeData29decrement_num_running_threads; do
    name=$(printf '%s\n' "$undefined" | grep -- "${pair#*=}\$" | head -n 1)
    [ -n "$name" ] || skip "this standard library has no ${pair#*=}"
    macros="$macros -D${pair%%=*}=$name"
    wraps="$wraps -Wl,--wrap=$name"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086 # words
gcc -std=c11 -O1 $macros -c "$here/tsan/locks.c" -o "$work/locks.o"
build() {
    gcc -std=c11 -g -fsanitize=thread -D_DEFAULT_SOURCE -I"$source/include" "-D$1" -c "$here/threads.c" -o "$work/$1.o"
    # shellcheck disable=SC2086
    gcc "$work/$1.o" "$work/locks.o" $wraps -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive "$library" \
        -lgcc_s -lpthread -ldl -lm -lrt -o "$work/$1"
}
build CLEAN
build RACE
export TSAN_OPTIONS="suppressions=$here/tsan/suppressions print_suppressions=1"
if "$work/RACE" 2>"$work/log"; then
    echo "a race between the library's threads went unnoticed" && exit 1
fi
grep -q 'data race.* in step' "$work/log" || { cat "$work/log" && exit 1; }
if ! "$work/CLEAN" 2>"$work/log"; then
    cat "$work/log" && exit 1
fi
cat "$work/log"
echo "threads: clean under ThreadSanitizer, which sees a race that is put there"
