// The environment variables that the library and the program read: one table, which
// tests/program/environment_test.py compares with the sources.
#pragma once

#include <string>
#include <vector>

namespace ringgrad::program {

struct EnvironmentVariable {
  std::string name;
  std::string set_by;  // user; tests; ringgrad (for processes that it starts); a launcher; system
  std::string values;
  std::string otherwise;  // the value that counts if it is not set
  std::string meaning;
  std::string read_by;  // a source file
};

std::vector<EnvironmentVariable> environment_table();

}  // namespace ringgrad::program
