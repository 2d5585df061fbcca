// A file of MNIST's format, plain or gzipped.
#include "ringgrad/data/formats/idx.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return reads_or_refuses([&] { (void)read_idx(as_file(bytes, size)); });
}
