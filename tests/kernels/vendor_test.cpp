// Tests the code between our kernels and NVIDIA's libraries that needs none of the libraries.
#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/vendor/by_columns.h"
#include "ringgrad/cuda_kernels/vendor/thread_handles.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::vendor_test {

TEST_CASE(
    "cublas: a matrix is addressed as it lies, whatever the strides of single rows and columns",
    "[quick]") {
  const int64_t rows = GENERATE(1, 2, 5);
  const int64_t columns = GENERATE(1, 2, 5);
  for (const int64_t row_stride : {0, 1, 2, 5, 7})
    for (const int64_t column_stride : {0, 1, 2, 5, 7}) {
      const Tensor x =
          zeros({64}).as_strided({1, rows, columns}, {0, row_stride, column_stride}, 0);
      INFO(rows << " x " << columns << ", strides " << row_stride << ", " << column_stride);
      const auto how = cuda::by_columns(x);
      const bool by_rows =
          (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
      const bool itself = (rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows);
      REQUIRE(how.has_value() == (by_rows || itself));
      if (!how) continue;
      CHECK(how->leading >= (how->is_itself ? rows : columns));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          CHECK(i * row_stride + j * column_stride ==
                (how->is_itself ? j * how->leading + i : i * how->leading + j));
    }
}

#ifdef RINGGRAD_CUDA_EMULATED
TEST_CASE("a library that does not start on a device is left alone there", "[quick][cuda]") {
  using Handle = int*;
  static int made = 0;
  static int tried = 0;
  cuda::ThreadHandles<Handle> handles;
  const auto handle = [&](const char* device) {
    return handles.of(Device(device), "a library", [&](Handle* created) {
      *created = &made;  // as some do before they fail
      return ++tried == 1 ? "its parts differ" : nullptr;
    });
  };
  CHECK(handle("cuda:0") == nullptr);
  CHECK(handle("cuda:0") == nullptr);
  CHECK(tried == 1);
  CHECK(handle("cuda:1") == &made);
  CHECK(handle("cuda:1") == &made);
  CHECK(tried == 2);
}
#endif

}  // namespace ringgrad::test::vendor_test
