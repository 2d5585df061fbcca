#include "ringgrad/nn/random_state.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/nn/checkpoint.h"

namespace ringgrad::nn {

NamedTensors random_state(const std::vector<Device>& devices) {
  NamedTensors state;
  for (Device device : devices) {
    const Tensor& own = default_generator(device).state();
    state.emplace_back(str(device), copy_of(own, {own.dtype(), own.device()}));
  }
  return state;
}

void check_random_state(const NamedTensors& state) {
  for (const auto& [name, saved] : state) {
    try {
      Device{name};
    } catch (const DeviceError& error) {
      throw DataError(str("set_random_state: ", error.what()));
    }
    CHECK_AS(DataError, saved.defined(), "set_random_state: '", name, "' is an undefined tensor");
    CHECK_AS(DataError, saved.dtype() == DType::Int64 && saved.shape() == Shape{2},
             "set_random_state: '", name, "' is ", saved.shape(), " ", saved.dtype(),
             ", expected [2] int64");
  }
}

void set_random_state(const NamedTensors& state, std::optional<Device> onto) {
  check_random_state(state);
  for (const auto& [name, saved] : state)
    if (const Device device = onto.value_or(Device(name)); device.index < device_count(device.type))
      copy_(default_generator(device).state(), saved);
}

}  // namespace ringgrad::nn
