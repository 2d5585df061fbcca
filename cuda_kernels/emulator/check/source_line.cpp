#include "ringgrad/cuda_kernels/emulator/check/source_line.h"

#include <cstdio>
#include <memory>

#include <dlfcn.h>

#include "ringgrad/core/error.h"

namespace ringgrad::emulator {

std::string source_line(const void* pc) {
  Dl_info module;
  if (!dladdr(pc, &module)) return "?";
  // The instruction before the return address is the call.
  const auto offset = reinterpret_cast<uintptr_t>(pc) - reinterpret_cast<uintptr_t>(module.dli_fbase) - 1;
  char text[512];
  std::snprintf(text, sizeof text, "addr2line -e '%s' 0x%lx 2>/dev/null", module.dli_fname,
                static_cast<unsigned long>(offset));
  std::string line;
  if (const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(text, "r"), pclose); pipe)
    if (std::fgets(text, sizeof text, pipe.get())) line = text;
  line = line.substr(0, line.find_first_of(" \n"));  // without "(discriminator 3)"
  line = line.substr(line.rfind('/') + 1);
  if (!line.empty() && line.find('?') == line.npos) return line;
  return module.dli_sname ? str(module.dli_sname, " + 0x", std::hex, offset) : str("0x", std::hex, offset);
}

}  // namespace ringgrad::emulator
