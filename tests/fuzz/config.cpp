// The config.json of a run, which any program may have edited.
#include <fstream>

#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static char directory[] = "/dev/shm/fuzz-config-XXXXXX";
  static const bool made = mkdtemp(directory) != nullptr &&
                           std::atexit([] { std::filesystem::remove_all(directory); }) == 0;
  if (!made) std::abort();
  std::ofstream(std::string(directory) + "/config.json")
      .write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  return reads_or_refuses(
      [&] { (void)program::read_config(program::RunDirectory::open(directory)); });
}
