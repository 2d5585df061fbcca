// For every word of memory, who wrote and who read it last in the current launch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace ringgrad::emulator {

// One access, as far as races need it.
struct Trace {
  const void* pc = nullptr;  // nullptr: none yet
  int64_t block;
  uint32_t thread, barrier, warp_barrier;  // who, and how many barriers before
  uint8_t bytes;                           // of the word, one bit each
  bool atomic;
};

struct Word {  // 4 bytes
  uint32_t launch = 0;
  Trace write, read;
};

class Shadow {
 public:
  // The word that contains `address`, empty when this launch has not touched it.
  Word& word(uintptr_t address, uint32_t launch) {
    const uintptr_t page = address / kPageBytes;
    if (page != last_page_) {
      auto& words = pages_[page];
      if (!words) words = std::make_unique<Page>();
      last_page_ = page;
      last_ = words.get();
    }
    Word& word = (*last_)[address % kPageBytes / 4];
    if (word.launch != launch) word = Word{.launch = launch, .write = {}, .read = {}};
    return word;
  }

 private:
  static constexpr uintptr_t kPageBytes = 4096;
  using Page = std::array<Word, kPageBytes / 4>;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = ~uintptr_t{0};
  Page* last_ = nullptr;
};

}  // namespace ringgrad::emulator
