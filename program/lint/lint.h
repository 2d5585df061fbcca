// `ringgrad lint`: finds the usual mistakes of training on several ranks in a user's program, by
// what the program does. The library writes that into RINGGRAD_LINT (distributed/lint/); this room
// judges it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

struct Mistake {
  std::string name;   // "shuffled-evaluation"
  std::string where;  // ranks, passes, parameters
  std::string why;
  std::string fix;
};

// Returns the records that ranks have written to a directory, by rank; empty if there are none.
// Throws DataError, which names the file, if one is damaged.
std::vector<nlohmann::json> read_observations(const std::filesystem::path& directory);

// Returns each mistake once, however many ranks make it. The ranks are those of one job. Throws
// nlohmann's exceptions if an observation lacks a field.
std::vector<Mistake> find_mistakes(const std::vector<nlohmann::json>& ranks);

nlohmann::json to_json(const std::vector<Mistake>& findings);
// Prints them, as mistakes or as warnings.
void tell(const std::vector<Mistake>& findings,
          const std::function<void(const std::string& line)>& say);

}  // namespace ringgrad::program
