// Lists the operations of random programs by name, for random_programs.cpp. operations.py has the
// same names, and says what PyTorch computes for them.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad::test {

using Tensors = std::vector<Tensor>;
using ProgramOperation = std::function<Tensors(const nlohmann::json& args, const Tensors& in)>;
using ProgramOperations = std::map<std::string, ProgramOperation>;

DType dtype_named(const std::string& name);

// An operation whose name ends with "_" writes to its first input and returns it.
const ProgramOperations& program_operations();

void add_layers(ProgramOperations& all);  // convolutions, pools, norms, losses
void add_views(ProgramOperations& all);   // other shapes, indexing, dtypes, layouts

}  // namespace ringgrad::test
