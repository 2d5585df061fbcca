// The order of accesses in a cluster (happens-before), by vector clocks. A thread's clock advances
// when it arrives at a barrier. Whoever passes that barrier knows the clocks of all that arrived.
//
// An mbarrier also has a clock, for the copies that land on it: what a copy has written is known to
// whoever passes the phase in which it lands.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ringgrad::emulator {

class Order {
 public:
  void begin(int threads);
  void arrive(const void* barrier, int thread);
  void open(const void* barrier);
  void pass(const void* barrier, int thread);

  // The clock of a thread, or of a barrier's copies, whose number copies_of() returns.
  uint32_t clock(int thread) const { return own_[static_cast<size_t>(thread)]; }
  int copies_of(const void* barrier);
  // Returns true if `thread` knows that `other` has reached the clock.
  bool knows(int thread, int other, uint32_t clock) const {
    return thread == other || seen_by(known_[static_cast<size_t>(thread)], other) >= clock;
  }

  // Records the clocks that a thread knows, for threads of other clusters. Advances its clock.
  struct Snapshot;
  std::shared_ptr<const Snapshot> publish(int thread);
  static bool covers(const Snapshot& snapshot, int thread, uint32_t clock);

 private:
  using Clocks = std::vector<uint32_t>;  // by thread; those beyond its end are 0
  using Known = std::shared_ptr<const Clocks>;
  struct Barrier {
    std::vector<Known> arrived;
    std::vector<std::pair<int, uint32_t>> clocks;
    Known opened;
    int copies = -1;
  };
  static uint32_t seen_by(const Known& known, int thread) {
    return known && static_cast<size_t>(thread) < known->size()
               ? (*known)[static_cast<size_t>(thread)]
               : 0;
  }
  const Known& joined(const Known& a, const Known& b);

  std::vector<uint32_t> own_;
  std::vector<Known> known_;
  std::unordered_map<const void*, Barrier> barriers_;
  // The last result of joined(): mostly all threads of a warp or a block ask for the same.
  Known left_;
  Known right_;
  Known result_;
};

struct Order::Snapshot {
  int thread;
  uint32_t clock;
  Known known;
};

}  // namespace ringgrad::emulator
