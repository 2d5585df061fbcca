// A picture to be classified, of any format.
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return reads_or_refuses([&] { (void)read_image(as_file(bytes, size)); });
}
