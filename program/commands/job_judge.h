// JobJudge: examines a program that `launch` has run, in builds that have one (lint/).
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

// Warns of possible mistakes in the files that ranks have written to the directory in
// RINGGRAD_LINT, and returns the warnings for the document.
using JobJudge = nlohmann::json (*)(const std::filesystem::path& written);

// nullptr until a source sets it, before main.
inline JobJudge& job_judge() {
  static JobJudge judge = nullptr;
  return judge;
}

}  // namespace ringgrad::program
