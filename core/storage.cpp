#include "ringgrad/core/storage.h"

#include "ringgrad/core/device/allocator.h"

namespace ringgrad {

Storage::Storage(size_t nbytes, Device device) : nbytes_(nbytes), stream_(current_stream(device)) {
  data_ = allocate(stream_, nbytes);
}

Storage::Storage(void* data, size_t nbytes, Device device, std::function<void()> release)
    : data_(data), nbytes_(nbytes), stream_{device, nullptr}, release_(std::move(release)) {}

Storage::~Storage() {
  if (release_)
    release_();
  else
    deallocate(stream_, data_, nbytes_);
}

}  // namespace ringgrad
