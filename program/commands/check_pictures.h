// `ringgrad data check` of pictures of one's own.
#pragma once

#include <string>

namespace ringgrad::program {

// Reads every picture; says classes, how they are divided, sizes, and by name which cannot be read.
// Returns kOk, or kBadData where some cannot be. Throws what find_own_pictures() throws.
int check_pictures(const std::string& path);

}  // namespace ringgrad::program
