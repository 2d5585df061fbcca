// Compares lines of text that all ranks must have in common, and says where they differ.
#pragma once

#include <string>
#include <vector>

namespace ringgrad {

// Returns a text such as "rank 2 has another recipe than rank 0: lr 0.1 there, lr 0.2 on rank 0
// (number 3 of 7 and 7)". It names the first rank whose text differs from rank 0's, and the first
// line that differs. Returns "" if all are equal. `noun` says what the lines describe.
std::string first_difference(const std::vector<std::string>& texts, const char* noun);

}  // namespace ringgrad
