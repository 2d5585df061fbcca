// A file of tensors, from anywhere.
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return reads_or_refuses([&] { (void)nn::load_safetensors(as_file(bytes, size)); });
}
