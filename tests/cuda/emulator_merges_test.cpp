// Tests reductions per channel on a device with many multiprocessors. Each term counts once, few
// merges follow each other, and the bits do not depend on the order in which the blocks finish.
#include <bit>

#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/tests/cuda/cuda_kernels.h"
#include "ringgrad/tests/cuda/emulator_merges_kernels.cu"
#include "ringgrad/tests/cuda/emulator_util.h"

namespace ringgrad::test::emulator_merges_test {

namespace {

constexpr int kMultiprocessors = 132;  // an H200's

class Multiprocessors {
 public:
  explicit Multiprocessors(int count) { emulator::config().multiprocessors = count; }
  ~Multiprocessors() { emulator::config().multiprocessors = before_; }
  Multiprocessors(const Multiprocessors&) = delete;

 private:
  const int before_ = emulator::config().multiprocessors;
};

struct Counted {
  int terms;
  int merges;
};

// Counts terms and merges. All channels must have the same number of terms. Threads read vectors of
// 8 channels, as for bfloat16.
Counted count(const Shape& nchw, Layout layout) {
  const Device device("cuda:0");
  const Channels channels(empty(nchw, {DType::BFloat16, device, layout}));
  const DeviceArray<int> terms(static_cast<size_t>(nchw[1]));
  const DeviceArray<int> merges(static_cast<size_t>(nchw[1]));
  reduce_channels<8>(current_stream(device), channels, /*aligned=*/true,
                     DepthReducer{terms.get(), merges.get()});
  const std::vector<int> all_terms = terms.values();
  const std::vector<int> all_merges = merges.values();
  for (const int each : all_terms) REQUIRE(each == all_terms[0]);
  return {all_terms[0], *std::max_element(all_merges.begin(), all_merges.end())};
}

}  // namespace

// channels.cuh has these numbers. There are as many segments as with its batch of 512: a block then
// has fewer terms, but not fewer merges.
TEST_CASE("cuda: a batch norm's sums are merged in few steps on a large device", "[quick][cuda]") {
  const Multiprocessors many(kMultiprocessors);
  struct Case {
    Shape images;
    int merges;
  };
  const auto [images, merges] = GENERATE(Case{{64, 64, 32, 32}, 11}, Case{{128, 128, 16, 16}, 7},
                                         Case{{512, 256, 8, 8}, 5}, Case{{512, 512, 4, 4}, 4});
  const Counted counted = count(images, Layout::ChannelsLast);
  CHECK(counted.terms == images[0] * images[2] * images[3]);
  CHECK(counted.merges == merges);
}

TEST_CASE("cuda: each term of a channel is counted once, whatever the layout", "[quick][cuda]") {
  const Multiprocessors some(GENERATE(1, 3, kMultiprocessors));
  const Layout layout = GENERATE(Layout::ChannelsLast, Layout::Strided);
  const Shape images = GENERATE(Shape{1, 1, 1, 1}, Shape{3, 3, 7, 5}, Shape{2, 8, 9, 9},
                                Shape{7, 20, 11, 3}, Shape{2, 100, 33, 17}, Shape{5, 264, 6, 6});
  INFO(images[0] << " x " << images[1] << " x " << images[2] << " x " << images[3]);
  const Counted counted = count(images, layout);
  CHECK(counted.terms == images[0] * images[2] * images[3]);
  CHECK(counted.merges <= 16);
}

TEST_CASE("cuda: statistics have the same bits in whatever order blocks and threads run",
          "[quick][cuda]") {
  const Multiprocessors many(kMultiprocessors);
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    const Tensor x = random_tensor({17, 64, 13, 13}, dtype, 3);
    const Tensor nhwc = empty(x.shape(), {.dtype = dtype, .layout = Layout::ChannelsLast});
    // The mean is large.
    kernels::add(x, x, full({1}, 30, {.dtype = dtype}).as_strided(x.shape(), {0, 0, 0, 0}, 0));
    kernels::copy(nhwc, x);
    const Tensor device_x = to_device(nhwc);
    std::vector<std::vector<float>> found;
    for (const auto schedule :
         {emulator::Schedule::Forward, emulator::Schedule::Reversed, emulator::Schedule::Random}) {
      emulator::config().schedule = schedule;
      const Tensor mean = empty_on_device({64}, DType::Float32);
      const Tensor var = empty_on_device({64}, DType::Float32);
      kernels::batch_norm_stats(mean, var, device_x);
      found.push_back(to_vector<float>(mean));
      found.push_back(to_vector<float>(var));
    }
    emulator::config().schedule = emulator::Schedule::Forward;
    CHECK((found[2] == found[0] && found[4] == found[0]));
    CHECK((found[3] == found[1] && found[5] == found[1]));
  }
}

}  // namespace ringgrad::test::emulator_merges_test
