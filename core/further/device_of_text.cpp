// Devices are read from text, as in "cuda:1".
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

Device::Device(std::string_view text) {
  const auto colon = text.find(':');
  const auto kind = text.substr(0, colon);
  const std::optional<int> number =
      colon == std::string_view::npos ? 0 : parse_number<int>(text.substr(colon + 1));
  const bool valid = number && *number >= 0 && *number < kMaxDevices;
  CHECK_AS(DeviceError, valid && (kind == "cpu" || kind == "cuda"), "device: cannot read '", text,
           "', expected cpu, cpu:1, cuda or cuda:1");
  type = kind == "cpu" ? DeviceType::CPU : DeviceType::CUDA;
  index = static_cast<int8_t>(*number);
}

}  // namespace ringgrad
