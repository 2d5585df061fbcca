// Values that no option takes: none at all, as a shell variable that is not set leaves it, and numbers that would
// become others without a word. For command_line.cpp alone, as it needs CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "ringgrad/core/base/text.h"
#include "ringgrad/models/program/misunderstanding.h"

namespace ringgrad::program {

// What is wrong with a value of this type, in CLI11's names; "" : nothing. CLI11 itself takes 010 for 8, -1 and what is
// too large for the largest number, and NaN for a number within every range. So digits are rewritten as it reads them.
inline std::string value_misunderstood(const std::string& type, std::string& value) {
  if (value.empty()) return "is empty; give it a value, or leave it out";
  if (type.find("SIZE [") != std::string::npos) return "";  // 64K
  const bool is_signed = type.starts_with("INT"), is_unsigned = type.starts_with("UINT");
  if (is_signed || is_unsigned) {
    const auto number = parse_number<int64_t>(value);
    const auto natural = parse_number<uint64_t>(value);
    if (is_unsigned ? !natural : !number)
      return fmt::format("is '{}', expected a whole number{}", value, is_unsigned ? " from 0 to 2^64 - 1" : "");
    value = is_unsigned ? fmt::to_string(*natural) : fmt::to_string(*number);
  } else if (type.starts_with("FLOAT")) {
    const auto number = parse_number<double>(value);
    if (!number || !std::isfinite(*number)) return fmt::format("is '{}', expected a number such as 0.5", value);
  }
  return "";
}

// Lets the options of this command, and of those below it, look at their values before anything else does. The words
// of another program's command line are its own.
inline void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const bool is_flag = option->get_items_expected_max() == 0;
    if (is_flag || option->get_name() == "command") continue;
    const std::string type = option->get_type_name();
    option->transform(CLI::Validator([type](std::string& value) { return value_misunderstood(type, value); }, ""));
  }
  for (CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) check_values(*below);
}

}  // namespace ringgrad::program
