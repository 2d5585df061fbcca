// Refuses values that no option takes: empty ones, as an unset shell variable leaves them, and
// numbers that would silently become others.
#pragma once

#include <CLI/CLI.hpp>

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "ringgrad/core/base/text.h"
#include "ringgrad/program/misunderstanding.h"

namespace ringgrad::program {

// Returns what is wrong with a value of this type (in CLI11's names), or "" if nothing is. CLI11
// itself reads 010 as 8, turns -1 and numbers that are too large into the largest number, and
// accepts NaN in every range. So whole numbers are rewritten in a form that it reads correctly.
inline std::string value_misunderstood(const std::string& type, std::string& value) {
  if (value.empty()) return "is empty; give it a value, or leave it out";
  if (type.find("SIZE [") != std::string::npos)  // 64K
    return value.starts_with('-') ? fmt::format("is '{}', expected a size such as 64K", value) : "";
  const bool is_signed = type.starts_with("INT");
  const bool is_unsigned = type.starts_with("UINT");
  if (is_signed || is_unsigned) {
    const auto number = parse_number<int64_t>(value);
    const auto natural = parse_number<uint64_t>(value);
    if (is_unsigned ? !natural : !number)
      return fmt::format("is '{}', expected a whole number{}", value,
                         is_unsigned ? " from 0 to 2^64 - 1" : "");
    value = is_unsigned ? fmt::to_string(*natural) : fmt::to_string(*number);
  } else if (type.starts_with("FLOAT")) {
    const auto number = parse_number<double>(value);
    if (!number || !std::isfinite(*number))
      return fmt::format("is '{}', expected a number such as 0.5", value);
  }
  return "";
}

// Lets the options of this command and of its subcommands check their values before anything else
// does. The words of another program's command line are not checked.
inline void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const bool is_flag = option->get_items_expected_max() == 0;
    if (is_flag || option->get_name() == "command") continue;
    const std::string type = option->get_type_name();
    option->transform(CLI::Validator(
        [type](std::string& value) { return value_misunderstood(type, value); }, ""));
  }
  for (CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; }))
    check_values(*below);
}

}  // namespace ringgrad::program
