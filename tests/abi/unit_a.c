/* One of two translation units of one program. */
#include "tiled.h"

uint32_t other_version(void);

int main(void) { return tiled_version() == other_version() ? 0 : 1; }
