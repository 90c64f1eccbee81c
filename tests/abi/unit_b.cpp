// The C++ header in a second translation unit of one program.
#include "tiled.hpp"

int other_unit();

int other_unit() { return tiled::last_error().empty() ? 0 : 1; }
