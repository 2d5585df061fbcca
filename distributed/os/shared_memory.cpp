#include "ringgrad/distributed/os/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"

namespace ringgrad {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct MappedFiles {
  MappedFiles() { hold_over_fork(mutex); }
  std::mutex mutex;
  std::map<ino_t, std::weak_ptr<SharedMemory>> by_inode;
};
MappedFiles& mapped_files() {
  // Never destroyed: a worker may map memory while the process exits.
  static auto* const files = new MappedFiles;
  return *files;
}

struct stat status_of(int descriptor) {
  struct stat status {};
  CHECK_AS(DistributedError, fstat(descriptor, &status) == 0,
           "shared memory: ", std::strerror(errno));
  return status;
}

}  // namespace

SharedMemory::~SharedMemory() { munmap(data_, size_); }

std::shared_ptr<SharedMemory> SharedMemory::create(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);  // nothing cannot be mapped
  FileDescriptor file(memfd_create("ringgrad", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  check_opened<DistributedError>(file, "shared memory: memfd_create");
  const bool sized = ftruncate(file.get(), static_cast<off_t>(bytes)) == 0;
  CHECK_AS(LimitError, sized || errno != EFBIG, "shared memory: ", bytes,
           " bytes are more than a file may have; raise the limit (ulimit -f)");
  CHECK_AS(OutOfMemoryError, sized, "shared memory: ", bytes,
           " bytes for ranks of one machine: ", std::strerror(errno));
  CHECK_AS(DistributedError, fcntl(file.get(), F_ADD_SEALS, kSeals) == 0,
           "shared memory: ", std::strerror(errno));
  auto memory = map(file, bytes);
  memory->descriptor_ = std::move(file);
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::open(FileDescriptor descriptor) {
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  CHECK_AS(DistributedError, seals >= 0 && (seals & kSeals) == kSeals,
           "shared memory: a rank sent a file that is not sealed shared memory");
  const auto bytes = static_cast<size_t>(status_of(descriptor.get()).st_size);
  return map(descriptor, bytes);
}

std::shared_ptr<SharedMemory> SharedMemory::map(const FileDescriptor& descriptor, size_t bytes) {
  MappedFiles& files = mapped_files();
  std::lock_guard lock(files.mutex);
  std::erase_if(files.by_inode, [](const auto& entry) { return entry.second.expired(); });
  auto& known = files.by_inode[status_of(descriptor.get()).st_ino];
  if (auto mapped = known.lock()) return mapped;

  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  CHECK_AS(OutOfMemoryError, data != MAP_FAILED, "shared memory: mapping ", bytes,
           " bytes: ", std::strerror(errno));
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: many systems keep shared memory in small pages
  std::shared_ptr<SharedMemory> result(new SharedMemory(static_cast<std::byte*>(data), bytes));
  known = result;
  return result;
}

uint64_t machine_id() {
  std::string boot;
  Classic<std::ifstream>("/proc/sys/kernel/random/boot_id") >> boot;
  // unknown, so that it shares memory with no other machine
  if (boot.empty()) return std::random_device()();
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return std::hash<std::string>()(str(boot, network.st_ino));
}

}  // namespace ringgrad
