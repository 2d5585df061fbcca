// The peak performance of this machine's CPU, measured in some milliseconds: the two numbers of a
// roofline (Williams, Waterman & Patterson 2009). All threads of the stream take part.
#pragma once

#include "ringgrad/core/device.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad::cpu {

// Multiplications and additions per second, on registers alone, of the instruction that the
// convolutions use for images of a dtype.
double peak_operations(Stream stream, DType dtype);

// Bytes per second to or from memory beyond the caches: the better of reading and copying.
double peak_bandwidth(Stream stream);

}  // namespace ringgrad::cpu
