// From an address in the program to the line it comes from, for reports.
#pragma once

#include <string>

namespace ringgrad::emulator {

// "softmax.cu:42", or "function + 0x1f" where debug information or addr2line are missing. `pc` is a return address.
std::string source_line(const void* pc);

}  // namespace ringgrad::emulator
