#include "ringgrad/distributed/agreement/lines.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/text.h"

namespace ringgrad {

std::string first_difference(const std::vector<std::string>& texts, const char* noun) {
  const auto differs = std::find_if(texts.begin(), texts.end(),
                                    [&](const std::string& text) { return text != texts[0]; });
  if (differs == texts.end()) return "";
  const auto lines_of = [](const std::string& all) {
    TextInput text(all);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  };
  const auto ours = lines_of(texts[0]);
  const auto theirs = lines_of(*differs);
  size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  const auto at = [i](const std::vector<std::string>& lines) {
    return i < lines.size() ? lines[i] : "nothing";
  };
  return str("rank ", differs - texts.begin(), " has another ", noun, " than rank 0: ", at(theirs),
             " there, ", at(ours), " on rank 0 (number ", i, " of ", theirs.size(), " and ",
             ours.size(), ")");
}

}  // namespace ringgrad
