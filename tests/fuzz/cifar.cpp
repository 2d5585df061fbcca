// The test split of CIFAR-10 in its binary form: one file.
#include "ringgrad/data/formats/cifar.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const std::vector<std::string> classes(10, "class");
  CifarFormat format = kCifar10;
  format.test_files = {as_file(bytes, size).filename()};
  return reads_or_refuses(
      [&] { (void)read_cifar(format, "cifar10", "/proc/self/fd", Split::Test, classes); });
}
