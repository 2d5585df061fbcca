#include "ringgrad/program/learn/learn.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/learn/exercise_text.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learners_code.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {
namespace {

struct LearnOptions {
  int number = 0;    // the exercise, from 1 on
  std::string file;  // check: the learner's file; "": the one that `start` has written
};

constexpr int kSeconds = 8;  // that the checks may take, beside the compiler

const Exercise* const kExercises[] = {&exercises::kRingReduceScatter, &exercises::kRingAllGather,
                                      &exercises::kBucketPlan,        &exercises::kHook,
                                      &exercises::kBackward,          &exercises::kSampler,
                                      &exercises::kWeighting,         &exercises::kDeadRank,
                                      &exercises::kSyncBatchNorm,     &exercises::kOverlap};
constexpr int kLast = static_cast<int>(std::size(kExercises));

std::string command(const char* action, int number) {
  return program_command(fmt::format("learn {} {}", action, number));
}

int list_exercises(const LearnOptions&) {
  nlohmann::json listed = nlohmann::json::array();
  for (int number = 1; number <= kLast; ++number) {
    const Exercise& exercise = *kExercises[number - 1];
    const std::string file = file_of(exercise, number);
    result("{:>3}  {:<28} {}{}", number, exercise.name, file,
           std::filesystem::exists(file) ? "" : " (not begun)");
    listed.push_back(
        {{"number", number}, {"name", exercise.name}, {"file", file}, {"source", exercise.source}});
  }
  message("Begin with {}: it writes the file.", command("start", 1));
  print_json({{"exercises", listed}});
  return kOk;
}

// Throws UsageError if there is none.
const Exercise& exercise_of(int number) {
  if (number < 1 || number > kLast)
    throw UsageError("learn: no exercise {}, expected 1 to {}; {} shows them", number, kLast,
                     program_command("learn list"));
  return *kExercises[number - 1];
}

// Also throws UsageError if a file is in the way, and IoError if one cannot be written.
int start(const LearnOptions& options) {
  const int number = options.number;
  const Exercise& exercise = exercise_of(number);
  const std::filesystem::path file = file_of(exercise, number);
  if (std::filesystem::exists(std::filesystem::symlink_status(file)))
    throw UsageError(
        "learn: {} is there already, and stays as it is; "
        "move it away to begin again, or check it: {}",
        file.string(), command("check", number));
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  CHECK_AS(IoError, !error, "learn: cannot make the directory ", file.parent_path().string(), ": ",
           error.message());
  const std::string text = stub_of(exercise, number);
  write_text(file, text);
  result("wrote {}: {}", file.string(), exercise.name);
  message("{}\n\nWrite what is missing there, then: {}",
          fmt::join(paragraphs(exercise.task, 80), "\n"), command("check", number));
  print_json({{"number", number}, {"name", exercise.name}, {"file", file.string()}});
  return kOk;
}

Grade grade(const Exercise& exercise, int number, const std::string& file) {
  if (!std::filesystem::exists(file))
    return {{},
            "the file",
            fmt::format("there is no {}; {} writes {}", file, command("start", number),
                        file_of(exercise, number))};
  if (text_of(file) == stub_of(exercise, number))
    return {{}, "the file", "it is as it was: nothing is written there yet"};
  const TemporaryDirectory directory("learn");
  const std::string library = directory.of("learner");
  try {
    compile(file, library);
    return grade_in_child(
        [&](Grading& grading) {
          std::optional<LearnersCode> code;
          grading.check("it loads", [&] { code.emplace(library); });
          exercise.grade(grading, *code);
        },
        kSeconds);
  } catch (const DoesNotCompile& error) {
    return {{}, "it compiles", error.what()};
  }
}

// Returns kOk if the exercise is solved, kTrainingFailed if it is not. Throws IoError if no
// compiler is found.
int check(const LearnOptions& options) {
  const int number = options.number;
  const Exercise& exercise = exercise_of(number);
  const std::string file = options.file.empty() ? file_of(exercise, number) : options.file;
  const auto begin = std::chrono::steady_clock::now();
  const Grade outcome = grade(exercise, number, file);
  const bool passed = outcome.failed.empty();
  for (const std::string& what : outcome.passed) result("  ok     {}", what);
  if (!passed) result("  wrong  {}\n\n{}\n", outcome.failed, outcome.why);
  result("{}: exercise {}, {}, in {:.1f} s", passed ? "passed" : "not yet", number, exercise.name,
         seconds_since(begin));
  if (passed)
    message("The engine's own is {}. Next: {}", exercise.source,
            number < kLast ? command("start", number + 1) : program_command("explain"));
  print_json({{"number", number},
              {"name", exercise.name},
              {"file", file},
              {"passed", passed},
              {"checks", outcome.passed},
              {"failed", outcome.failed},
              {"why", outcome.why}});
  return passed ? kOk : kTrainingFailed;
}

void add_number(CLI::App* app, LearnOptions& o) {
  app->add_option("number", o.number, "of the exercise")->required();
}
void add_number_and_file(CLI::App* app, LearnOptions& o) {
  add_number(app, o);
  app->add_option("--file", o.file, "yours, if it lies elsewhere");
}

const Command kLearn(100, "learn", "Exercises: write a part of the engine, and have it graded");
const Command kList(101, "learn list", "What there is to write", list_exercises);
const Command kStart(102, "learn start",
                     "Write the file of an exercise, never over one that is there", start,
                     add_number);
const Command kCheck(103, "learn check",
                     "Compile that file alone, run it in the engine, and grade it", check,
                     add_number_and_file);

}  // namespace
}  // namespace ringgrad::program
