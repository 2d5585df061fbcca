#include "ringgrad/cuda_kernels/emulator/check/profile.h"

#include <algorithm>
#include <bit>
#include <iomanip>
#include <set>
#include <tuple>

#include "ringgrad/core/base/letters.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {
namespace {

constexpr uintptr_t kSector = 32;
constexpr uintptr_t kBanks = 32;
constexpr uintptr_t kBankBytes = 4;

// A request to shared memory is split into parts of this many bytes: the 4-byte words of a whole
// warp, the 8-byte words of half a warp, or the 16-byte words of a quarter. ldmatrix reads one
// matrix, the rows of 8 lanes, at a time.
constexpr size_t kPartBytes = kBanks * kBankBytes;

struct Passes {
  int64_t needed;
  int64_t least;
};
// Counts the passes for words that are requested together. Each word counts once, because lanes
// that want the same word share it.
Passes passes_for(const std::set<uintptr_t>& words) {
  std::vector<int64_t> words_of_bank(kBanks);
  for (const uintptr_t word : words) ++words_of_bank[word % kBanks];
  return {*std::max_element(words_of_bank.begin(), words_of_bank.end()),
          static_cast<int64_t>((words.size() + kBanks - 1) / kBanks)};
}

}  // namespace

void Profile::count_request(AccessCount& count, const Request& request) {
  std::set<uintptr_t> sectors;
  std::map<size_t, std::set<uintptr_t>> words_of_part;
  for (const auto& [lane, address, bytes] : request) {
    count.bytes += static_cast<int64_t>(bytes);
    const size_t lanes_of_part = std::bit_floor(std::max<size_t>(1, kPartBytes / bytes));
    std::set<uintptr_t>& words = words_of_part[static_cast<size_t>(lane) / lanes_of_part];
    for (uintptr_t word = address / kBankBytes; word * kBankBytes < address + bytes; ++word) {
      sectors.insert(word * kBankBytes / kSector);
      words.insert(word);
    }
  }
  ++count.requests;
  if (count.shared) {
    for (const auto& [part, words] : words_of_part) {
      const Passes passes = passes_for(words);
      count.passes += passes.needed;
      count.least_passes += passes.least;
    }
  } else {
    count.sectors += static_cast<int64_t>(sectors.size());
  }
}

void Profile::begin_launch(const Grid& grid) {
  const int64_t blocks = int64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  ++launches_;
  all_blocks_ += blocks;
  threads_ += blocks * grid.block.x * grid.block.y * grid.block.z;
}

void Profile::access(const Access& access, Memory memory) {
  if (!active_ || access.async == AsyncCopy::Landed) return;
  Site& site = sites_[{access.pc, access.write}];
  site.count.shared = memory == Memory::Shared;
  site.count.write = access.write;
  site.atomic = access.atomic;
  site.async = access.async == AsyncCopy::Started;
  const int thread = running_block->thread_of_cluster();
  site.in_progress[{thread / kWarpSize, site.executions[thread]++}].push_back(
      {thread % kWarpSize, reinterpret_cast<uintptr_t>(access.address), access.bytes});
}

void Profile::count(const char* kind, int64_t amount) {
  if (active_) instructions_[kind] += amount;
}

void Profile::end_block() {
  for (auto& [place, site] : sites_) {
    for (const auto& [which, request] : site.in_progress) count_request(site.count, request);
    site.in_progress.clear();
    site.executions.clear();
  }
}

KernelCounts Profile::counts() const {
  KernelCounts result{.launches = launches_,
                      .blocks = all_blocks_,
                      .threads = threads_,
                      .accesses = {},
                      .instructions = instructions_};
  std::vector<const void*> places;
  for (const auto& [place, site] : sites_) places.push_back(place.first);
  const std::vector<std::string> lines = source_lines(places);
  // An unrolled loop has one line at several places.
  std::map<std::tuple<std::string, bool, bool>, AccessCount> by_line;
  size_t next = 0;
  for (const auto& [place, site] : sites_) {
    AccessCount& count = by_line[{lines[next], site.count.shared, site.count.write}];
    count.line = lines[next++];
    count.shared = site.count.shared;
    count.write = site.count.write;
    count.add(site.count);
    if (site.atomic) result.instructions["atomic"] += site.count.requests;
    if (site.async) result.instructions["cp.async"] += site.count.requests;
  }
  for (const auto& [line, count] : by_line) result.accesses.push_back(count);
  return result;
}

std::string table_of(const KernelCounts& counts) {
  std::string text = "line                            access        requests  per request\n";
  for (const AccessCount& count : counts.accesses) {
    const double requests = static_cast<double>(count.requests);
    const auto fixed = [](double value, int digits) {
      return formatted(value, std::chars_format::fixed, digits);
    };
    TextOutput line;
    line << std::left << std::setw(30) << count.line << (count.shared ? "  shared " : "  global ")
         << std::setw(5) << (count.write ? "store" : "load") << std::right << std::setw(10)
         << count.requests << "  " << std::setw(5);
    if (count.shared)
      line << fixed(static_cast<double>(count.passes) / requests, 2) << " passes, "
           << fixed(static_cast<double>(count.least_passes) / requests, 2) << " at least\n";
    else
      line << fixed(static_cast<double>(count.sectors) / requests, 2) << " sectors, "
           << std::setw(3)
           << fixed(100.0 * static_cast<double>(count.bytes) /
                        static_cast<double>(count.sectors * int64_t{kSector}),
                    0)
           << " % used\n";
    text += line.str();
  }
  return text;
}

}  // namespace ringgrad::emulator
