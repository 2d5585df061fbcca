// The files of tests/golden/, as written by the scripts beside them. RINGGRAD_GOLDEN is their folder, told by CMake.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test {

inline nlohmann::json load_golden(const char* name) {
  const std::filesystem::path path = std::filesystem::path(RINGGRAD_GOLDEN) / name;
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return nlohmann::json::parse(in);
}

// An array {"shape", "values"}: int64 where the values are whole numbers, else float64. null: an undefined tensor.
inline Tensor golden_tensor(const nlohmann::json& array) {
  if (array.is_null()) return {};
  const Shape shape(array["shape"].get<std::vector<int64_t>>());
  const nlohmann::json& values = array["values"];
  if (!values.empty() && values[0].is_number_integer()) return tensor(values.get<std::vector<int64_t>>(), shape);
  return tensor(values.get<std::vector<double>>(), shape);
}

// Every element within `tolerance` of the golden one, relative to it or to 1.
inline void require_golden(const Tensor& x, const nlohmann::json& array, double tolerance) {
  REQUIRE(x.defined());
  REQUIRE(x.shape() == Shape(array["shape"].get<std::vector<int64_t>>()));
  const auto expected = array["values"].get<std::vector<double>>();
  const auto found = to_vector<double>(x);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("element " << i << ": " << found[i] << ", expected " << expected[i]);
    REQUIRE(std::abs(found[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
  }
}

}  // namespace ringgrad::test
