// FiniteCheck finds gradients that are not finite before they are averaged. After that every rank
// has them, and no rank can tell where they came from.
//
// Note [Not finite]
// On the CPU each gradient is checked when it is ready. On a GPU that would mean waiting for the
// device in every hook. There a kernel checks each bucket before it is launched, and a record in
// the device's memory keeps the first step and position at which it found one. After the first
// step, and every 50 steps, or once a second in replays, the ranks read and compare their records.
// That waits for the device, and costs one small message. So the error comes late, but names the
// first rank, parameter and step.
//
// A graph that has recorded the kernel uses the same step number at each replay. So steps are
// counted from an origin, which is moved before each replay together with the record. Each
// comparison that finds nothing begins anew, with the record and with the origin. So does a leap of
// set_step(), because a record has room for 2^25 steps from the origin. If it holds something
// already, that stays until it is compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ringgrad/distributed/buckets/bucket_plan.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// look() and compare() return the text of an error, which names parameter, rank and step, if they
// have found one.
class FiniteCheck {
 public:
  static constexpr int64_t kStepsBetweenComparisons = 50;

  // All three must outlive this object. Positions are counted in `arenas`, which must not change
  // after the first check.
  FiniteCheck(ProcessGroup& group, const NamedTensors& parameters,
              const std::vector<ArenaRange>& arenas);

  // For gradients on the CPU; others are passed over.
  std::optional<std::string> look(int parameter, const Tensor& gradient, int64_t step);

  // Checks the numbers that travel in place of a bucket's gradients, on the CPU. Tensors on a GPU
  // are not checked.
  std::optional<std::string> look_at_sent(const BucketRange& range, const Tensor& sent,
                                          int64_t step);

  // Starts the check of a bucket on a GPU in the form in which it travels, and does not wait.
  // Buckets on the CPU are not checked.
  void look_later(const BucketRange& range, const Tensor& flat, int64_t step);
  // The next step has this number.
  void expect(int64_t step);
  // The steps that a graph recorded as `number_of(step)` are called `step` from now on.
  int64_t number_of(int64_t step) const { return step - origin_; }
  void call(int64_t number, int64_t step);
  // Collective if look_later() has checked something.
  std::optional<std::string> compare(const CollectiveOptions& options);

 private:
  void begin_anew(int64_t step);
  int parameter_at(int arena, int64_t position) const;
  std::string describe(int parameter, int rank, int64_t step) const;

  ProcessGroup& group_;
  const NamedTensors& parameters_;
  const std::vector<ArenaRange>& arenas_;
  const Tensor found_;  // on the CPU
  Tensor record_;       // on the GPU; undefined: no gradient there
  Tensor moved_;        // by how much, there
  int64_t origin_ = 0;
  bool found_before_leap_ = false;
};

}  // namespace ringgrad
