#pragma once

#include <string>

namespace ringgrad::program {

// Where data sets lie: what --data-dir says, else RINGGRAD_DATA_DIR, else data/files.
std::string data_directory(const std::string& option);

}  // namespace ringgrad::program
