#include "ringgrad/core/random.h"

#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {
namespace {

std::mutex generators_mutex;
BEFORE_MAIN(generators, hold_over_fork(generators_mutex));
uint64_t default_seed = 0;
std::vector<std::unique_ptr<Generator>>& generators(DeviceType type) {
  // Never destroyed, because it holds tensors.
  static auto* all = new std::vector<std::unique_ptr<Generator>>[kDeviceTypes];
  return all[static_cast<int>(type)];
}

int64_t words_of(DType dtype) {
  return visit_dtype("random", dtype, []<class T>() -> int64_t { return kWordsOf<T>; });
}

// The numbers go to the elements in row-major order, whatever the strides.
template <class Draw>
void draw_into(const char* operation, const Tensor& x, const Draw& draw) {
  begin_write(operation, x);
  const Tensor y = x.is_contiguous() ? x : empty(x.shape(), {x.dtype(), x.device()});
  draw(y, default_generator(x.device()).draw(x.numel() * words_of(x.dtype())));
  if (!y.is_same(x)) kernels::copy(x, y);
}

}  // namespace

Generator::Generator(uint64_t seed, Device device)
    : state_(empty({2}, {.dtype = DType::Int64, .device = device})) {
  set_state(seed, 0);
}

void Generator::set_state(uint64_t seed, uint64_t offset) {
  copy_(state_, tensor<int64_t>({static_cast<int64_t>(seed), static_cast<int64_t>(offset)}));
}

Tensor Generator::draw(int64_t count) {
  Tensor snapshot = empty_like(state_);
  kernels::advance_random_state(snapshot, state_, (count + 3) / 4);
  return snapshot;
}

Generator& default_generator(Device device) {
  check_device("random", device);
  if (Generator* const own = scoped_generator ? scoped_generator(device) : nullptr) return *own;
  std::lock_guard lock(generators_mutex);
  auto& of_type = generators(device.type);
  if (static_cast<int>(of_type.size()) <= device.index) of_type.resize(device.index + 1);
  auto& generator = of_type[device.index];
  if (!generator) generator = std::make_unique<Generator>(default_seed, device);
  return *generator;
}

void manual_seed(uint64_t seed) {
  std::lock_guard lock(generators_mutex);
  default_seed = seed;
  for (int type = 0; type < kDeviceTypes; ++type)
    for (auto& generator : generators(static_cast<DeviceType>(type)))
      if (generator) generator->set_state(seed, 0);
}

void uniform_(const Tensor& x, Real low, Real high) {
  CHECK(std::isfinite(high - low) && low <= high, "uniform_: the bounds are ", low, " and ", high,
        ", expected finite numbers at a finite distance, the lower one first");
  for (const double bound : {low, high}) check_holds("uniform_", x.dtype(), bound);
  draw_into("uniform_", x,
            [=](const Tensor& y, const Tensor& state) { kernels::uniform(y, state, low, high); });
}

void normal_(const Tensor& x, Real mean, Real std) {
  CHECK(std::isfinite(mean) && std::isfinite(std) && std >= 0, "normal_: the mean is ", mean,
        " and the deviation ", std, ", expected finite numbers and a deviation of at least 0");
  // Box and Muller (1958) turn two uniform numbers into two normal ones. The draw therefore takes
  // as many offsets as a uniform one.
  draw_into("normal_", x,
            [=](const Tensor& y, const Tensor& state) { kernels::normal(y, state, mean, std); });
}

}  // namespace ringgrad
