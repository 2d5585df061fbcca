// A file of torch.save(), from anywhere: an archive whose pickle is a program. The bytes are taken
// as such a file, and as the pickle of one, which no checksum guards.
#include <span>

#include "ringgrad/program/weights/pickle.h"
#include "ringgrad/program/weights/torch_file.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  reads_or_refuses([&] { (void)program::read_torch_file(as_file(bytes, size)); });
  return reads_or_refuses(
      [&] { (void)program::read_state_dict(std::span(bytes, size), "pickle"); });
}
