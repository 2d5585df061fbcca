// What the rows of tests/op_specs*.cpp do not reach of elementwise operations and copies, on emulated devices.
#ifdef RINGGRAD_CUDA_EMULATED
#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

TEST_CASE("cuda: unaligned operands, and in place", "[quick][emulated]") {
  for (DType dtype : kFloating) {
    const double tolerance = 2 * epsilon(dtype);
    const Tensor a = random_tensor({7, 37}, dtype, 1), b = random_tensor({7, 37}, dtype, 2);
    std::vector<double> sum = values(a);
    const std::vector<double> added = values(b);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    for (const bool shift_x : {false, true})
      for (const bool shift_y : {false, true}) {
        INFO(dtype << ", unaligned: " << shift_x << " " << shift_y);
        const Tensor x = to_device(shift_x ? unaligned(a) : a), y = to_device(shift_y ? unaligned(b) : b);
        REQUIRE((reinterpret_cast<uintptr_t>(x.raw_data()) % 16 != 0) == shift_x);
        REQUIRE((reinterpret_cast<uintptr_t>(y.raw_data()) % 16 != 0) == shift_y);
        kernels::add(x, x, y);
        require_device_close(x, sum, tolerance);
        kernels::fill(x, 0.3);  // which no dtype holds exactly
        require_device_close(x, std::vector<double>(sum.size(), 0.3), tolerance);
      }
  }
}

TEST_CASE("cuda: copies convert between all dtypes as the CPU does", "[quick][emulated]") {
  constexpr DType kAll[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                            DType::Int64,   DType::Int32,   DType::UInt8,    DType::Bool};
  for (DType from : kAll)
    for (DType to : kAll) {
      const Tensor x = random_tensor({9, 7}, from, 12, 0, 100);
      for (const Tensor& source : {x, transposed(x)}) {
        const Tensor y = empty_on_device(source.shape(), to), expected = empty(source.shape(), {.dtype = to});
        kernels::copy(expected, source);
        kernels::copy(y, to_device(source));
        INFO("from " << from << " to " << to);
        REQUIRE(device_values(y) == values(expected));
      }
    }
}

TEST_CASE("cuda: copies between host and device, devices, strides and layouts", "[quick][emulated]") {
  const Tensor image = random_tensor({2, 19, 3, 5}, DType::Float32, 13);
  const std::vector<double> expected = values(image);
  const Tensor blocked = empty(image.shape(), {.layout = Layout::ChannelBlocked});
  const Tensor channels_last = empty(image.shape(), {.layout = Layout::ChannelsLast});
  kernels::copy(blocked, image);
  kernels::copy(channels_last, image);
  const Device other("cuda:1");
  for (const Tensor& source : {image, blocked, channels_last})
    for (const Layout layout : {Layout::Strided, Layout::ChannelBlocked})
      for (const DType dtype : {DType::Float32, DType::Float64}) {
        const Tensor first = empty(image.shape(), {dtype, Device("cuda:0"), layout});
        const Tensor second = empty(image.shape(), {dtype, other, layout});
        const Tensor second_last = empty(image.shape(), {.device = other, .layout = Layout::ChannelsLast});
        const Tensor back = empty(image.shape(), {.dtype = dtype});
        copy_(first, source);        // host to device
        copy_(second_last, first);   // device to device, other strides and dtype
        copy_(second, second_last);  // on one device
        copy_(back, second);         // device to host
        REQUIRE(values(back) == expected);
        if (layout == Layout::ChannelBlocked) {  // the padding holds zeros
          const Tensor raw = to_host(second);
          double sum = 0;
          for (int64_t i = 0; i < raw.flat_numel(); ++i)
            sum += dtype == DType::Float32 ? raw.data<float>()[i] : raw.data<double>()[i];
          double wanted = 0;
          for (double value : expected) wanted += value;
          REQUIRE(std::abs(sum - wanted) < 1e-4);
        }
      }
}
#endif
