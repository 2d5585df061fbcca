// The cases of tests/golden/make_ops.py, run here: for golden_ops_test.cpp, with the file that lies
// there, and for parity_dump.cpp, with one that PyTorch has just written.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad::test {

using Named = std::map<std::string, Tensor>;
using Operation = std::function<Named(const nlohmann::json& args, const Named& in)>;
using Operations = std::map<std::string, Operation>;

const Operations& tensor_operations();  // those of tests/golden/tensor_ops.py
void add_composed(Operations& all);     // those of tests/golden/composed_ops.py

// An array {"shape", "values"}: int64 where the values are whole numbers, else of this dtype. null:
// an undefined tensor.
Tensor golden_tensor(const nlohmann::json& array, DType dtype);

// Names the place where x differs from the array by more than `tolerance`, relative to it or to 1;
// "" if there is none.
std::string golden_difference(const Tensor& x, const nlohmann::json& array, double tolerance);

// The same of all outputs and gradients of a case, computed with inputs of this dtype.
std::string golden_case_difference(const nlohmann::json& row, DType dtype, double tolerance);

}  // namespace ringgrad::test
