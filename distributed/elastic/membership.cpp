#include "ringgrad/distributed/elastic/membership.h"

#include <fcntl.h>

#include <new>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

Membership::Membership(std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)),
      page_(std::launder(reinterpret_cast<MembershipPage*>(memory_->data()))) {}

Membership Membership::create(int slots) {
  ASSERT(slots >= 1);
  Membership made(SharedMemory::create(sizeof(MembershipPage) +
                                       sizeof(MemberSlot) * static_cast<size_t>(slots - 1)));
  made.page_->slots = slots;
  return made;
}

Membership Membership::open(int descriptor) {
  FileDescriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  CHECK_AS(DistributedError, copy,
           "elastic: the launcher's list of ranks cannot be read; a script between the launcher "
           "and the rank has closed descriptor ",
           descriptor);
  Membership opened(SharedMemory::open(std::move(copy)));
  CHECK_AS(DistributedError, opened.memory_->size() >= sizeof(MembershipPage),
           "elastic: the launcher's list of ranks "
           "is damaged");
  return opened;
}

}  // namespace ringgrad
