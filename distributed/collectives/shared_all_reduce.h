// All-reduce between ranks that see each other's memory: nothing is sent.
//
// Each rank owns one slice of the elements. It reduces that slice over all ranks' buffers and
// stores the result into all of them. All ranks meet twice: when every buffer is complete, and when
// every slice is stored. n ranks move 2 n · bytes(x) in all, which is the least possible: each byte
// of each buffer is read once and written once. All ranks hold the same bits, because each element
// is computed by one of them, in the order of ranks.
//
// That is for buffers in memory from allocate(). Others go through staging areas beside the boards,
// piece by piece, which costs two more copies, in the cache.
//
// Where several machines have several ranks each, the owner of a slice adds only what its machine
// has; then the owners of that slice, one on each machine, add their sums in a ring, and each
// brings the result to its machine.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/core/tensor.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

class SharedAllReduce {
 public:
  // Adds up what the owners of a slice, one on each machine, have of it: wide[count] in place, by
  // `on_wide`'s operation.
  using Across = std::function<void(void* wide, size_t count, const ReduceFunctions& on_wide)>;

  // `here`: the ranks that share this one's memory, and this one, in order. The transport must
  // outlive this.
  SharedAllReduce(Transport& transport, std::vector<int> here);

  // Collective: memory that all ranks here see.
  std::shared_ptr<Storage> allocate(size_t bytes);

  // Collective; enters it with `frame`. x[count] becomes the reduction of all ranks' x. `across` is
  // empty where all are here, and called by all ranks of the group, as often, where they are not.
  void run(const Frame& frame, std::shared_ptr<const std::string> about, void* x, size_t count,
           const ReduceFunctions& reduction, const Across& across = {});

 private:
  struct Place {  // of a buffer; segment 0: not in shared memory
    uint64_t segment = 0, offset = 0;
  };
  struct Segments {  // shared with the storages, which may outlive this, and die in any thread
    std::mutex mutex;
    std::vector<SharedSegment> list;
  };

  Place find(const void* x, size_t bytes) const;
  std::byte* address(int rank, size_t bytes) const;
  std::byte* staging(int rank) const;
  void wait_for_all(std::atomic<uint64_t> Board::*count, uint64_t value);  // on every rank's board
  void meet();
  void reduce_slice(const std::vector<void*>& inputs, const std::vector<void*>& results,
                    size_t begin, size_t end, const ReduceFunctions& reduction,
                    const Across& across);
  void reduce_in_place(size_t count, const ReduceFunctions& reduction, const Across& across);
  void reduce_staged(std::byte* x, size_t count, const ReduceFunctions& reduction,
                     const Across& across, bool first_is_staged);

  Transport& transport_;
  SharedMemoryPeers& memory_;
  const std::vector<int> here_;
  const int rank_, size_;  // among them
  std::shared_ptr<Segments> segments_ = std::make_shared<Segments>();
  uint64_t meetings_ = 0;
  size_t turn_ = 0;  // which of the two staging areas the next piece uses
};

}  // namespace ringgrad
