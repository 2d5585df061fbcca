#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

static std::vector<std::string>& libraries(DeviceType device) {
  static std::array<std::vector<std::string>, kDeviceTypes> all;
  return all[static_cast<int>(device)];
}

bool add_vendor_library(DeviceType device, const std::string& library) {
  libraries(device).push_back(library);
  return true;
}
const std::vector<std::string>& vendor_libraries(DeviceType device) { return libraries(device); }

}  // namespace ringgrad
