// The ranks of a topic: processes of this program, `explain TOPIC` again, each of which knows by
// the environment which part it plays and where its answer goes.
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
  std::vector<nlohmann::json> answers;  // by rank; none where the job failed
};
JobEnd run_ranks(const Page& page, const std::string& part, int ranks);

// The answers of ranks that are not to fail. Throws JobFailed where they do.
std::vector<nlohmann::json> answers_of_ranks(const Page& page, const std::string& part, int ranks);

// A failure of the gallery: says what happens and what PyTorch does then, makes two ranks do it,
// and shows the end.
void show_failure(Page& page, const std::string& what_happens, const std::string& pytorch);

// -- in a rank ------------------------------------------------------------------------------------

std::string own_part();  // "" in the process that tells
// Meets the other ranks, and calls body(), which returns this rank's answer.
void play(const std::function<nlohmann::json(ProcessGroup&)>& body, const InitOptions& group = {});

}  // namespace ringgrad::program
