// Images on their way between host and devices, and between layouts.
#ifdef RINGGRAD_CUDA_EMULATED
#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

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
          const Tensor raw(second.storage(), {second.flat_numel()}, {1}, second.storage_offset(), dtype);
          double sum = 0;
          for (double value : values(raw)) sum += value;
          double wanted = 0;
          for (double value : expected) wanted += value;
          REQUIRE(std::abs(sum - wanted) < 1e-4);
        }
      }
}
#endif
