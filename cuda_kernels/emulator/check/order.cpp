#include "ringgrad/cuda_kernels/emulator/check/order.h"

#include <algorithm>

namespace ringgrad::emulator {
namespace {

void raise(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

void Order::begin(int threads) {
  own_.assign(static_cast<size_t>(threads), 1);
  known_.assign(static_cast<size_t>(threads), nullptr);
  barriers_.clear();
  left_ = right_ = result_ = nullptr;
}

void Order::arrive(const void* barrier, int thread) {
  Barrier& b = barriers_[barrier];
  const Known& known = known_[static_cast<size_t>(thread)];
  if (known && std::find(b.arrived.begin(), b.arrived.end(), known) == b.arrived.end())
    b.arrived.push_back(known);
  b.clocks.emplace_back(thread, own_[static_cast<size_t>(thread)]++);
}

void Order::open(const void* barrier) {
  Barrier& b = barriers_[barrier];
  Clocks clocks(own_.size());
  if (b.opened) raise(clocks, *b.opened);
  for (const Known& known : b.arrived) raise(clocks, *known);
  for (const auto& [thread, clock] : b.clocks) {
    uint32_t& c = clocks[static_cast<size_t>(thread)];
    c = std::max(c, clock);
  }
  if (b.copies >= 0) clocks[static_cast<size_t>(b.copies)] = own_[static_cast<size_t>(b.copies)]++;
  b.arrived.clear();
  b.clocks.clear();
  b.opened = std::make_shared<const Clocks>(std::move(clocks));
}

void Order::pass(const void* barrier, int thread) {
  const Known& opened = barriers_[barrier].opened;
  if (!opened) return;
  Known& known = known_[static_cast<size_t>(thread)];
  known = joined(known, opened);
}

const Order::Known& Order::joined(const Known& a, const Known& b) {
  if (!a || a == b) return b;
  if (a != left_ || b != right_) {
    Clocks clocks = *a;
    raise(clocks, *b);
    left_ = a;
    right_ = b;
    result_ = clocks == *b ? b : std::make_shared<const Clocks>(std::move(clocks));
  }
  return result_;
}

int Order::copies_of(const void* barrier) {
  Barrier& b = barriers_[barrier];
  if (b.copies < 0) {
    b.copies = static_cast<int>(own_.size());
    own_.push_back(1);
  }
  return b.copies;
}

std::shared_ptr<const Order::Snapshot> Order::publish(int thread) {
  return std::make_shared<const Snapshot>(
      Snapshot{thread, own_[static_cast<size_t>(thread)]++, known_[static_cast<size_t>(thread)]});
}

bool Order::covers(const Snapshot& snapshot, int thread, uint32_t clock) {
  return thread == snapshot.thread ? clock <= snapshot.clock
                                   : clock <= seen_by(snapshot.known, thread);
}

}  // namespace ringgrad::emulator
