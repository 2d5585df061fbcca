// A picture that somebody wants classified: PNG or PGM.
#include "ringgrad/models/program/commands/image_file.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return reads_or_refuses([&] { (void)program::read_image(as_file(bytes, size)); });
}
