// What all ranks must have in common, as lines of text, and where it differs.
#pragma once

#include <string>
#include <vector>

namespace ringgrad {

// "rank 2 has another recipe than rank 0: lr 0.1 there, lr 0.2 on rank 0 (number 3 of 7 and 7)": of
// the texts by rank, the first that is not rank 0's, and its first line that differs; "": there is
// none. `noun` says what the lines describe.
std::string first_difference(const std::vector<std::string>& texts, const char* noun);

}  // namespace ringgrad
