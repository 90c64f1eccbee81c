// The C++ header stands alone and is included twice.
#include "tiled.hpp"
#include "tiled.hpp"

int other_unit();

int main() {
    const tiled::engine nothing;
    return nothing || other_unit() != 0 ? 1 : 0;
}
