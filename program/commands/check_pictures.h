// `ringgrad data check`, for own pictures.
#pragma once

#include <string>

namespace ringgrad::program {

// Reads every picture. Prints the classes, their division, the sizes, and the names of unreadable
// pictures. Returns kOk, or kBadData if some cannot be read. Throws as find_own_pictures() does.
int check_pictures(const std::string& path);

}  // namespace ringgrad::program
