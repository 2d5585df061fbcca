// `ringgrad lint`: the usual mistakes of training on several ranks, found in a user's program by
// what it did. The library writes that down where RINGGRAD_LINT says (distributed/lint/); here it
// is judged.
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

// Each mistake once, however many ranks make it. The ranks are those of one job. Throws nlohmann's
// exceptions where an observation lacks something.
std::vector<Mistake> find_mistakes(const std::vector<nlohmann::json>& ranks);

nlohmann::json to_json(const std::vector<Mistake>& findings);
// Says them to people, as mistakes or as warnings.
void tell(const std::vector<Mistake>& findings,
          const std::function<void(const std::string& line)>& say);

}  // namespace ringgrad::program
