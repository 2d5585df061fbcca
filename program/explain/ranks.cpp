#include "ringgrad/program/explain/ranks.h"

#include <fstream>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {
namespace {

constexpr const char* kPart = "RINGGRAD_EXPLAIN_PART";
// The file to which rank 0 writes the answers of all ranks.
constexpr const char* kAnswers = "RINGGRAD_EXPLAIN_FILE";

constexpr int kSignal = 128;  // larger exit codes mean that a signal asked for the end

}  // namespace

JobEnd run_ranks(const Page& page, const std::string& part, int ranks) {
  const TemporaryDirectory directory("explain");
  const std::filesystem::path file = directory.of("answers");
  SupervisorOptions job;
  job.environment = {{kPart, part}, {kAnswers, file.string()}};
  job.program = "/proc/self/exe";
  job.command = {program_name(), "explain", page.topic()};
  job.num_processes = ranks;
  const auto start = std::chrono::steady_clock::now();
  const JobResult result = supervise(job);
  if (result.exit_code > kSignal) throw JobFailed(result.exit_code, "explain: " + result.report);
  JobEnd end{result.exit_code, result.report, seconds_since(start), {}};
  if (end.exit_code == kOk) end.answers = json_from(text_of(file));
  return end;
}

std::vector<nlohmann::json> answers_of_ranks(const Page& page, const std::string& part, int ranks) {
  JobEnd end = run_ranks(page, part, ranks);
  if (end.exit_code != kOk) throw JobFailed(end.exit_code, "explain: " + end.said);
  return std::move(end.answers);
}

void show_failure(Page& page, const std::string& what_happens, const std::string& pytorch) {
  page.text(what_happens);
  page.text("PyTorch: " + pytorch);
  page.section("Here, just now");
  const JobEnd end = run_ranks(page, "mistake", 2);
  page.listing(end.said + failure_line(end.exit_code));
  page.text(fmt::format("From the start of the two processes to this: {:.2f} s.", end.seconds));
  page.facts["exit_code"] = end.exit_code;
  page.facts["said"] = end.said;
  page.facts["seconds"] = end.seconds;
}

std::string own_part() { return rank_environment().source.empty() ? "" : variable(kPart); }

void play(const std::function<nlohmann::json(ProcessGroup&)>& body, const InitOptions& group) {
  const auto meet_and_answer = [&] {
    const nlohmann::json own = body(process_group());
    nlohmann::json all = nlohmann::json::array();
    for (const std::string& text : all_gather_texts(process_group(), own.dump()))
      all.push_back(json_from(text));
    if (process_group().is_main_process()) std::ofstream(variable(kAnswers)) << all << std::flush;
  };
  launch_or_throw(meet_and_answer, {.group = group});
}

}  // namespace ringgrad::program
