#!/bin/sh
# Installs libtiled for C and C++: headers, shared library with SONAME, static library, pkg-config file, CMake package.
#
#   bindings/install.sh --prefix DIR [--libdir lib] [--destdir DIR] [--from DIR] [--keep-debug]
#
# --prefix   where it will be found, absolute; there is no default, because Debian's map editor `tiled` owns
#            include/tiled and libtiled.so.1 under /usr
# --libdir   the folder of libraries under the prefix, `lib` by default (`lib/x86_64-linux-gnu`, `lib64`)
# --destdir  put in front of every path, for packages that are built in a folder of their own
# --from     a folder with libtiled_capi.so and libtiled_capi.a already built; without it they are built with cargo
# --keep-debug  installs the libraries with their debug information, which is several times as large as they are
#
# The variable STRIP names the program that takes debug information out, `strip` by default: for another architecture its own.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
prefix='' libdir=lib destdir='' from='' strip=${STRIP:-strip}
while [ $# -gt 0 ]; do
    case $1 in
    --keep-debug) strip='' && shift && continue ;;
    --prefix) prefix=$2 ;;
    --libdir) libdir=$2 ;;
    --destdir) destdir=$2 ;;
    --from) from=$2 ;;
    *) echo "install.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
case $prefix in
/*) ;;
*) echo "install.sh: --prefix wants an absolute path" >&2 && exit 2 ;;
esac
if [ -n "$strip" ] && ! command -v "$strip" >/dev/null; then
    echo "install.sh: $strip is not installed: install binutils, set STRIP, or give --keep-debug" >&2 && exit 2
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$source/Cargo.toml" | head -n 1)
major=${version%%.*}
if [ -z "$from" ]; then
    (cd "$source" && cargo build --release --locked -p tiled-capi)
    from=${CARGO_TARGET_DIR:-$source/target}/release
fi

lib=$destdir$prefix/$libdir
include=$destdir$prefix/include
mkdir -p "$include" "$lib/pkgconfig" "$lib/cmake/tiled"
install -m 644 "$source/include/tiled.h" "$source/include/tiled.hpp" "$include"
install -m 755 "$from/libtiled_capi.so" "$lib/libtiled.so.$version"
ln -sf "libtiled.so.$version" "$lib/libtiled.so.$major"
ln -sf "libtiled.so.$major" "$lib/libtiled.so"
install -m 644 "$from/libtiled_capi.a" "$lib/libtiled.a"
if [ -n "$strip" ]; then
    # the functions that are exported stay in the one, all that a linker needs in the other
    "$strip" --strip-unneeded "$lib/libtiled.so.$version"
    "$strip" --strip-debug "$lib/libtiled.a"
fi

cat > "$lib/pkgconfig/tiled.pc" <<EOF
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: tiled
Description: Exact tiled execution and training of convolutional networks
Version: $version
Libs: -L\${libdir} -ltiled
Libs.private: -lgcc_s -lpthread -lm -ldl -lc
Cflags: -I\${includedir}
EOF

# the package finds its prefix from where it lies, so that an installed tree can be moved
up=$(printf '%s' "$libdir/cmake/tiled" | sed 's|[^/][^/]*|..|g')
cat > "$lib/cmake/tiled/tiledConfig.cmake" <<EOF
# Targets: tiled::headers (include path alone), tiled::tiled (shared), tiled::static.
get_filename_component(_tiled_prefix "\${CMAKE_CURRENT_LIST_DIR}/$up" ABSOLUTE)
set(_tiled_lib "\${_tiled_prefix}/$libdir")
if(NOT TARGET tiled::headers)
  add_library(tiled::headers INTERFACE IMPORTED)
  set_target_properties(tiled::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "\${_tiled_prefix}/include")
  add_library(tiled::tiled SHARED IMPORTED)
  set_target_properties(tiled::tiled PROPERTIES
    IMPORTED_LOCATION "\${_tiled_lib}/libtiled.so.$version"
    IMPORTED_SONAME "libtiled.so.$major"
    INTERFACE_LINK_LIBRARIES tiled::headers)
  add_library(tiled::static STATIC IMPORTED)
  set_target_properties(tiled::static PROPERTIES
    IMPORTED_LOCATION "\${_tiled_lib}/libtiled.a"
    INTERFACE_LINK_LIBRARIES "tiled::headers;gcc_s;pthread;m;dl;c")
endif()
unset(_tiled_prefix)
unset(_tiled_lib)
EOF
cat > "$lib/cmake/tiled/tiledConfigVersion.cmake" <<EOF
# Before version 1 a minor version may break; after it, a major one.
set(PACKAGE_VERSION "$version")
string(REGEX REPLACE "^([0-9]+\\\\.[0-9]+).*" "\\\\1" _tiled_wanted "\${PACKAGE_FIND_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION OR NOT "\${_tiled_wanted}" STREQUAL "${version%.*}")
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
EOF
echo "installed libtiled $version under $destdir$prefix"
