// Converts a digit that a person has drawn into MNIST's form. People draw black ink on white paper,
// anywhere on it and of any size. MNIST's digits are white on black, 20 pixels tall or wide, with
// their centre of mass in the middle of 28 x 28 (LeCun et al. 1998, and MNIST's own page).
#pragma once

#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad::program {

// Returns `image`, uint8 [C, H, W], in MNIST's form: uint8 [1, 28, 28]. An image that has this form
// already, or has no ink, comes back unchanged. `*done` says what was done, "" if nothing.
Tensor like_mnist(const Tensor& image, std::string* done);

}  // namespace ringgrad::program
