/* The other of two translation units of one program. */
#include "tiled.h"

uint32_t other_version(void);

uint32_t other_version(void) { return tiled_version(); }
