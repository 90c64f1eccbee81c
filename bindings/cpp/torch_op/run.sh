#!/bin/sh
# Builds the operator against torch, runs it beside torch's own convolutions, and prints the largest difference and the memory
# that each took.
#
#   bindings/cpp/torch_op/run.sh [--prefix DIR] [--venv DIR] [--size N]
#
# --prefix   where libtiled is installed; without it the library is built and installed into a temporary folder
# --venv     a Python environment with torch; without it one is made in target/torch_op (torch for the CPU: about 200 MB)
# --size     height and width of the image, 1024 by default
#
# Exits with 1 where the results differ by more than 1e-5, with 77 where cmake, Python or torch is missing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../../.." && pwd)
work=${CARGO_TARGET_DIR:-$source/target}/torch_op
prefix='' venv='' size=1024
while [ $# -gt 1 ]; do
    case $1 in
    --prefix) prefix=$2 ;;
    --venv) venv=$2 ;;
    --size) size=$2 ;;
    *) echo "run.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
skip() {
    echo "skipped: $1"
    exit 77
}
command -v cmake >/dev/null || skip "cmake is not installed"
command -v python3 >/dev/null || skip "python3 is not installed"

mkdir -p "$work"
if [ -z "$venv" ]; then
    venv=$work/venv
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || skip "python3 cannot make an environment (package python3-venv)"
    "$venv/bin/python" -c 'import torch' 2>/dev/null ||
        "$venv/bin/pip" install --quiet torch --index-url https://download.pytorch.org/whl/cpu ||
        skip "torch cannot be installed"
fi
facts=$("$venv/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__), int(torch._C._GLIBCXX_USE_CXX11_ABI))') ||
    skip "there is no torch in $venv"
if [ -z "$prefix" ]; then
    prefix=$work/prefix
    sh "$source/bindings/install.sh" --prefix "$prefix"
fi
cmake -S "$here" -B "$work/build" "-DCMAKE_PREFIX_PATH=$prefix" "-DTORCH_ROOT=${facts% *}" "-DTORCH_CXX11_ABI=${facts##* }"
cmake --build "$work/build"
exec "$work/build/compare" "$size"
