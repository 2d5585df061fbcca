// Numbers and dtypes, as operations see them that the book does not have.
#pragma once

#include "ringgrad/core/scalar.h"

namespace ringgrad {

// Does what visit_dtype() does, for every dtype except bool.
template <class Body>
decltype(auto) visit_number(const char* operation, DType dtype, Body&& body) {
  if (dtype == DType::Bool) throw_unsupported_dtype(operation, dtype, "a number");
  return visit_dtype(operation, dtype, std::forward<Body>(body));
}

bool is_whole(Scalar number);  // it has no fraction

// Returns true if the number becomes an element without wrapping. Comparisons need this, because a
// wrapped number is another number.
bool holds_exactly(DType dtype, Scalar number);

}  // namespace ringgrad
