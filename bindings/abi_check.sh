#!/bin/sh
# Compares the ABI of a build with that of an earlier one. Run it before a release, with the last released library:
#
#   CARGO_PROFILE_RELEASE_DEBUG=full cargo build --release --locked -p tiled-capi --lib
#   bindings/abi_check.sh OLD/libtiled.so target/release/libtiled_capi.so
#
# Both want full debug information, without which changes of structs go unseen; OLD may also be what `--save FILE` wrote for
# it, which needs no debug information any more. Exits with 0 where nothing changed, 4 where the ABI grew or changed
# (abidiff's answer, which it prints), 12 where it broke, and 77 where abidiff is missing.
set -eu

command -v abidiff >/dev/null || {
    echo "skipped: abidiff is not installed (package abigail-tools)"
    exit 77
}
if [ "${1:-}" = --save ] && [ $# = 3 ]; then # --save FILE LIBRARY
    exec abidw --no-show-locs --no-corpus-path --out-file "$2" "$3"
fi
[ $# = 2 ] || {
    echo "usage: abi_check.sh OLD NEW | --save FILE LIBRARY" >&2
    exit 2
}
for library in "$1" "$2"; do
    [ -r "$library" ] || { echo "abi_check.sh: cannot read $library" >&2 && exit 2; }
    case $library in
    *.abi) continue ;;
    esac
    readelf -S "$library" | grep -q '\.debug_info' || {
        echo "abi_check.sh: $library has no debug information" >&2
        exit 2
    }
done
exec abidiff --no-show-locs "$1" "$2"
