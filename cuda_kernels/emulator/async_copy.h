// cp.async: copies from global to shared memory that a thread starts, groups, and waits for.
//
// The destination is filled with NaN when the copy starts and with the data only when its group is waited for, which
// is the latest that the hardware may take: a forgotten wait, or a forgotten barrier after it, shows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ringgrad::emulator {

class AsyncCopies {  // of one thread
 public:
  // Copies bytes - zero_fill bytes and sets the rest to zero. Returns what is wrong with the arguments, or "".
  // `pc` is the place in the program, for observers.
  std::string start(void* destination, const void* source, size_t bytes, size_t zero_fill, const void* pc);
  void commit();
  // Completes all groups but the newest `groups`.
  void wait_prior(int groups);

  bool in_flight() const { return !copies_.empty(); }
  void clear();

 private:
  struct Copy {
    void* destination;
    const void* source;
    size_t bytes, zero_fill;
    int group;
    const void* pc;
  };
  std::vector<Copy> copies_;  // oldest first
  int group_ = 0;
};

}  // namespace ringgrad::emulator
