// Helpers of all tests: comparing numbers with a tolerance that has a reason, and errors by type
// and text.
#pragma once

#include <cmath>
#include <string>
#include <typeinfo>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad::test {

// Note [Tolerances]
// A test never chooses the tolerance that happens to pass. With the dtype's epsilon e (the distance
// from 1 to the next number) and n = the longest sum behind an element,
//     |got - want| <= e · (4 + 2 √n) · scale
//   4      a result is rounded to the dtype after at most a few functions, each within one or two
//          units in the last place
//   2 √n   rounding errors of a sum grow like a random walk, √n · e / 2 (Higham & Mary 2019,
//          theorem 2.4, λ = 4)
//   scale  1, or |want| where that is more; for sums (n > 1) the largest |want| of the tensor,
//          because the terms of an element that cancels were as large as those of its neighbours
struct Tolerance {
  DType dtype;
  int64_t terms = 1;
};

double machine_epsilon(DType dtype);  // 0 for integers

// Returns "" if `got` has the values `want`, else the first difference that is too large: its
// index, both values, the error and the bound. NaN equals only NaN, and an infinity only itself, so
// they fail unless wanted.
std::string difference(const std::vector<double>& got, const std::vector<double>& want,
                       Tolerance tolerance);
std::string difference(const Tensor& got, const std::vector<double>& want, Tolerance tolerance);

// Returns the text of the error of exactly type E that f throws; otherwise says what happened
// instead.
template <class E, class F>
std::string thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    if (typeid(error) == typeid(E)) return error.what();
    return std::string("another type: ") + typeid(error).name();
  }
  return "nothing was thrown";
}

// REQUIREs that `text` contains `fragment`.
void require_contains(const std::string& text, const std::string& fragment);

// Requires that f throws exactly E, with a text that contains `fragment`.
template <class E, class F>
void require_error(const std::string& fragment, F&& f) {
  require_contains(thrown<E>(f), fragment);
}

}  // namespace ringgrad::test
