// The ranks of a topic: processes of this program that run `explain TOPIC` again. The environment
// tells each its part, and the file for its answer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/distributed/launch.h"

namespace ringgrad::program {

class Page;

// -- in the process that tells --------------------------------------------------------------------

struct JobEnd {
  int exit_code = 0;
  std::string said;  // the launcher's report: which rank failed first, and why
  double seconds = 0;
  std::vector<nlohmann::json> answers;  // by rank; empty if the job failed
};
JobEnd run_ranks(const Page& page, const std::string& part, int ranks);

// Returns the answers of ranks that must not fail. Throws JobFailed if they do.
std::vector<nlohmann::json> answers_of_ranks(const Page& page, const std::string& part, int ranks);

// Writes a failure of the gallery: says what happens, and what PyTorch does then, makes two ranks
// fail in this way, and shows the end.
void show_failure(Page& page, const std::string& what_happens, const std::string& pytorch);

// -- in a rank ------------------------------------------------------------------------------------

std::string own_part();  // "" in the process that tells
// Meets the other ranks, and calls body(), which returns this rank's answer.
void play(const std::function<nlohmann::json(ProcessGroup&)>& body, const InitOptions& group = {});

}  // namespace ringgrad::program
