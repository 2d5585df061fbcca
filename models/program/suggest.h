// "Did you mean …?" for words mistyped on the command line.
#pragma once

#include <string>
#include <vector>

namespace ringgrad::program {

// The candidate nearest to `word` by edit distance (transpositions count one: Damerau 1964), or "" when all are far.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// ". Did you mean 'train'?" or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ringgrad::program
