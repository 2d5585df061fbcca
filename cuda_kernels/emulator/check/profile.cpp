#include "ringgrad/cuda_kernels/emulator/check/profile.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {
namespace {

constexpr uintptr_t kSector = 32, kBanks = 32, kBankBytes = 4;

}  // namespace

void Profile::begin_block(int64_t index) { active_ = index < kBlocks; }

void Profile::access(const Access& access, Memory memory) {
  if (!active_) return;
  auto [found, first] = sites_.try_emplace({access.pc, access.write});
  Site& site = found->second;
  if (first) {
    site.memory = memory;
    site.write = access.write;
  }
  const int thread = running_block->thread();
  site.in_progress[{thread / kWarpSize, site.executions[thread]++}].accesses.emplace_back(
      reinterpret_cast<uintptr_t>(access.address), access.bytes);
}

void Profile::end_block() {
  for (auto& [place, site] : sites_) {
    for (const auto& [which, request] : site.in_progress) count(site, request);
    site.in_progress.clear();
    site.executions.clear();
  }
}

void Profile::count(Site& site, const Request& request) {
  std::set<uintptr_t> sectors;
  std::map<uintptr_t, std::set<uintptr_t>> words_of_bank;  // one word per bank and pass; equal words are one
  for (const auto& [address, bytes] : request.accesses) {
    site.bytes += static_cast<int64_t>(bytes);
    for (uintptr_t word = address / kBankBytes; word * kBankBytes < address + bytes; ++word) {
      sectors.insert(word * kBankBytes / kSector);
      words_of_bank[word % kBanks].insert(word);
    }
  }
  size_t passes = 1;
  for (const auto& [bank, words] : words_of_bank) passes = std::max(passes, words.size());
  ++site.requests;
  site.sectors += static_cast<int64_t>(sectors.size());
  site.passes += static_cast<int64_t>(passes);
}

std::string Profile::table() const {
  std::string text = "line                            access        requests  per request\n";
  for (const auto& [place, site] : sites_) {
    const double requests = static_cast<double>(site.requests);
    char line[256];
    if (site.memory == Memory::Shared)
      std::snprintf(line, sizeof line, "%-30s  shared %-5s %9lld  %5.2f passes\n", source_line(place.first).c_str(),
                    site.write ? "store" : "load", static_cast<long long>(site.requests),
                    static_cast<double>(site.passes) / requests);
    else
      std::snprintf(line, sizeof line, "%-30s  global %-5s %9lld  %5.2f sectors, %3.0f %% used\n",
                    source_line(place.first).c_str(), site.write ? "store" : "load",
                    static_cast<long long>(site.requests), static_cast<double>(site.sectors) / requests,
                    100.0 * static_cast<double>(site.bytes) / static_cast<double>(site.sectors * int64_t{kSector}));
    text += line;
  }
  return text;
}

}  // namespace ringgrad::emulator
