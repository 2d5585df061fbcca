// Which algorithm the CPU's convolutions use where several could. A setting of the process, for measurements and for
// whoever wants sums in the order of the definition.
#pragma once

#include <cstdint>

namespace ringgrad {

enum class ConvAlgorithm : uint8_t {
  Auto,      // the fastest for each geometry
  Direct,    // everywhere
  Winograd,  // wherever there is a scheme for the geometry, direct elsewhere
};

// How the CPU's convolutions multiply bfloat16 numbers, for people: in pairs, or as float32.
const char* bfloat16_products();

// Holds for convolutions that begin afterwards, on every thread.
void set_conv_algorithm(ConvAlgorithm algorithm);
ConvAlgorithm conv_algorithm();

}  // namespace ringgrad
