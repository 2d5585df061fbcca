// Times in seconds, from a clock that is never adjusted.
#pragma once

#include <algorithm>
#include <chrono>

namespace ringgrad {

inline double seconds_between(std::chrono::steady_clock::time_point from,
                              std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}
inline double seconds_since(std::chrono::steady_clock::time_point from) {
  return seconds_between(from, std::chrono::steady_clock::now());
}

// A moment after which waiting is an error. Every wait in this library has one.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  Deadline() = default;  // it has already passed
  static Deadline after(Clock::duration timeout) { return Deadline(Clock::now() + timeout); }

  bool passed() const { return Clock::now() >= at_; }
  // Returns the timeout for poll(): the milliseconds left, rounded up, or 0 once the deadline has
  // passed.
  int poll_timeout() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000'000));
  }
  Deadline but_at_most(Clock::duration timeout) const {
    return Deadline(std::min(at_, Clock::now() + timeout));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_{};
};

}  // namespace ringgrad
