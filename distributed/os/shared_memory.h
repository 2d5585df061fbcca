// Bytes that several ranks of one machine see at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

// An anonymous file (memfd), mapped by every rank that was handed its descriptor. It never has a
// name. So nothing is left behind however the processes end, no other process can open it, and a
// container's small /dev/shm does not limit it. Its size is sealed, so that no rank can take the
// pages from another one (SIGBUS).
//
// Within one process a file is mapped once. Ranks that are threads get the same addresses, so
// sanitizers see their races.
class SharedMemory {
 public:
  // Returns memory of zeros. Throws OutOfMemoryError, and LimitError if this process may open no
  // more files, or none of this size.
  static std::shared_ptr<SharedMemory> create(size_t bytes);
  // Maps memory that another rank has created. Throws DistributedError if the descriptor is no such
  // file.
  static std::shared_ptr<SharedMemory> open(FileDescriptor descriptor);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // The descriptor of memory that was created here, to be passed to the ranks that open it.
  // close_descriptor() closes it and keeps the mapping. A descriptor for each group and segment
  // would exhaust the limit of open files.
  int descriptor() const { return descriptor_.get(); }
  void close_descriptor() { descriptor_.reset(); }

 private:
  SharedMemory(std::byte* data, size_t size) : data_(data), size_(size) {}
  static std::shared_ptr<SharedMemory> map(const FileDescriptor& descriptor, size_t bytes);

  FileDescriptor descriptor_;
  std::byte* data_;
  size_t size_;
};

// The same on all processes that can share memory with this one: a hash of the machine's boot and
// network namespace.
uint64_t machine_id();

}  // namespace ringgrad
