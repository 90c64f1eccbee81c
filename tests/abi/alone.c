/* The header stands alone, is included twice, and declares what a program needs. */
#include "tiled.h"
#include "tiled.h"

int main(void) { return tiled_version() == 0; }
