// What this machine's CPU can do at most, measured in some milliseconds: the two numbers of a
// roofline (Williams, Waterman & Patterson 2009). All threads of the stream take part.
#pragma once

#include "ringgrad/core/device.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad::cpu {

// Multiplications and additions per second of the instruction that the convolutions use for images
// of a dtype, on registers alone.
double peak_operations(Stream stream, DType dtype);

// Bytes per second that come from memory beyond the caches, or go there: the best of reading and
// copying.
double peak_bandwidth(Stream stream);

}  // namespace ringgrad::cpu
