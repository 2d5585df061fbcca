// The files of tests/golden/, as written by the scripts beside them. RINGGRAD_GOLDEN is their
// folder, told by CMake.
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

}  // namespace ringgrad::test
