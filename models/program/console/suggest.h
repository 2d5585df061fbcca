// "Did you mean …?" for words mistyped on the command line.
#pragma once

#include <string>
#include <vector>

namespace ringgrad::program {

// ". Did you mean 'train'?" or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ringgrad::program
