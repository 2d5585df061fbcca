// The observer in builds whose kernels report their accesses. RINGGRAD_EMU_CHECK=0 disables the
// checker. RINGGRAD_EMU_PROFILE=1 enables the profile, which is printed to stderr at the end of the
// program. count_accesses() has a profile of its own.

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/check/checker.h"
#include "ringgrad/cuda_kernels/emulator/check/profile.h"
#include "ringgrad/cuda_kernels/emulator/language.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {
namespace {

bool enabled(const char* variable, bool otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? std::string_view(value) != "0" : otherwise;
}

class CheckingObserver : public Observer {
 public:
  CheckingObserver() {
    if (enabled("RINGGRAD_EMU_CHECK", true)) checker_ = std::make_unique<Checker>();
    if (enabled("RINGGRAD_EMU_PROFILE", false)) profile_ = std::make_unique<Profile>(kFirstBlocks);
  }
  ~CheckingObserver() override {
    if (profile_) std::fputs(table_of(profile_->counts()).c_str(), stderr);
  }

  // Counts what the kernels that `body` runs do, in all of their blocks.
  KernelCounts count(const std::function<void()>& body) {
    auto other = std::exchange(profile_, std::make_unique<Profile>(kAllBlocks));
    try {
      body();
    } catch (...) {
      profile_ = std::move(other);
      throw;
    }
    return std::exchange(profile_, std::move(other))->counts();
  }

  void begin_launch(const Grid& grid, int device) override {
    grid_ = &grid;
    if (checker_) checker_->begin_launch(grid, device);
    if (profile_) profile_->begin_launch(grid);
  }
  void end_launch() override {
    if (checker_) checker_->end_launch();
  }
  void begin_block(const Block& block, int64_t index) override {
    map_.begin_block(*grid_, block);
    if (checker_) checker_->begin_cluster(index, block.threads_of_cluster());
    if (profile_) profile_->begin_block(index);
  }
  void end_block() override {
    if (profile_) profile_->end_block();
  }
  void arrive(const void* barrier, int thread) override {
    const Unobserved unobserved;
    if (checker_) checker_->order().arrive(barrier, thread);
  }
  void open(const void* barrier) override {
    const Unobserved unobserved;
    if (checker_) checker_->order().open(barrier);
  }
  void pass(const void* barrier, int thread) override {
    const Unobserved unobserved;
    if (checker_) checker_->order().pass(barrier, thread);
  }
  void count(const char* kind, int64_t amount) override {
    const Unobserved unobserved;
    if (profile_) profile_->count(kind, amount);
  }
  void fence() override {
    const Unobserved unobserved;
    if (checker_) checker_->fence();
  }
  void wait_for_previous_launch() override {
    const Unobserved unobserved;
    if (checker_) checker_->wait_for_previous_launch();
  }
  void access(const Access& access) override {
    const Unobserved unobserved;
    const Memory memory = map_.find(access.address);
    if (memory == Memory::Private) return;
    if (checker_) checker_->access(access, memory);
    if (access.thread >= 0) return;
    if (checker_ && access.write && memory == Memory::Shared)
      running_block->async().note_write(access.address, access.bytes);
    if (profile_) profile_->access(access, memory);
  }

 private:
  static constexpr int64_t kFirstBlocks = 4;
  static constexpr int64_t kAllBlocks = std::numeric_limits<int64_t>::max();
  const Grid* grid_ = nullptr;
  MemoryMap map_;
  std::unique_ptr<Checker> checker_;
  std::unique_ptr<Profile> profile_;
};

// Destroyed at the end of the program, to print the profile.
const std::unique_ptr<CheckingObserver> installed = [] {
  auto created = std::make_unique<CheckingObserver>();
  observer = created.get();
  count_accesses = [](const std::function<void()>& body) {
    return static_cast<CheckingObserver*>(observer)->count(body);
  };
  return created;
}();

}  // namespace
}  // namespace ringgrad::emulator
