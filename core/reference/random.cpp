// Reference: the random numbers that core/random.h defines, one element after the other.
#include <cmath>
#include <numbers>

#include "ringgrad/core/reference/random_state.h"

namespace ringgrad::reference {
namespace {

// Returns the i-th number in [0, 1) of a draw of elements of type T.
template <class T>
double uniform_at(const RandomState& state, int64_t i) {
  return uniform_number<T>(state.block(i, kWordsOf<T>).word, i % (4 / kWordsOf<T>));
}

void advance_random_state(Stream, const Tensor& snapshot_out, const Tensor& state_out,
                          int64_t count) {
  const Results<int64_t> snapshot(snapshot_out);
  const Results<int64_t> state(state_out);
  for (int64_t i = 0; i < 2; ++i) snapshot(i) = state(i);
  state(1) += count;
}

void uniform(Stream, const Tensor& x_out, const Tensor& state_in, double low, double high) {
  const RandomState state(state_in);
  const Results<double> x(flat(x_out));
  visit_floating("uniform", x_out.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x_out.numel(); ++i) x(i) = low + (high - low) * uniform_at<T>(state, i);
  });
}

// Box & Muller (1958): two uniform numbers make elements 2 i and 2 i + 1. The angle is a long
// double, because the cosine of an angle rounded to double would be wrong in its last digits near
// 0.
void normal(Stream, const Tensor& x_out, const Tensor& state_in, double mean, double std) {
  const RandomState state(state_in);
  const Results<double> x(flat(x_out));
  visit_floating("normal", x_out.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x_out.numel(); ++i) {
      const int64_t first = i - i % 2;
      const double radius = std::sqrt(-2 * std::log(1 - uniform_at<Accumulator<T>>(state, first)));
      const long double angle =
          2 * std::numbers::pi_v<long double> * uniform_at<Accumulator<T>>(state, first + 1);
      x(i) =
          mean + std * radius * static_cast<double>(i == first ? std::cos(angle) : std::sin(angle));
    }
  });
}

REFERENCE(advance_random_state);
REFERENCE(uniform);
REFERENCE(normal);

}  // namespace
}  // namespace ringgrad::reference
