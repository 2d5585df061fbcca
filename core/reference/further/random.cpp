// Reference: random integers, and dropout.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/random_elements.h"
#include "ringgrad/core/reference/random_state.h"

namespace ringgrad::reference {
namespace {

void randint(Stream, const Tensor& x_out, const Tensor& state_in, int64_t low, uint64_t range) {
  const RandomState state(state_in);
  const Results<uint64_t> x(flat(x_out));
  for (int64_t i = 0; i < x_out.numel(); ++i) {
    const uint64_t word = wide_word(state.block(i, 2).word, i % 2);
    x(i) = static_cast<uint64_t>(low) + integer_below(range, word, state.seed, state.offset, i);
  }
}

void dropout(Stream, const Tensor& y_out, const Tensor& x_in, const Tensor& state_in, double p) {
  const RandomState state(state_in);
  const Elements<double> x(flat(x_in));
  const Results<double> y(flat(y_out));
  for (int64_t i = 0; i < x_in.numel(); ++i) {
    const bool kept = state.block(i, 1).word[i % 4] >= dropout_threshold(p);
    y(i) = kept ? x(i) / (1 - p) : 0;
  }
}

REFERENCE(randint);
REFERENCE(dropout);

}  // namespace
}  // namespace ringgrad::reference
