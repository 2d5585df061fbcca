// A Contribution is what one rank adds to the current step, with its weight among the ranks.
//
// Note [Weights]
// A rank's loss is a mean. So the gradient of the mean over all ranks is Σ w_r g_r / Σ w_r, where
// w_r is the divisor of rank r's loss. Knowing the sum first would cost a round trip before the
// first bucket. Instead rank r multiplies by w_r / c, where c is the usual weight. Afterwards all
// ranks multiply by c / mean(w), which they learn at the end of the step. If all ranks have the
// usual weight, both factors are 1 and nothing is multiplied. The gradient of a loss of weight 0 is
// replaced by zeros where it enters the module. It is not multiplied by 0, because it is 0/0 if
// every row is ignored.
//
// The usual weight is that of the first step, and float32 has room for any factor that is likely.
// 16 bits do not: there 2000 · 64 is infinite. So if gradients travel as 16-bit floats, or through
// a hook that may convert them, c is the largest weight of the current step. The round trip is then
// made, and no factor before the sum exceeds 1; the mean itself is as large as the largest gradient
// at most.
//
// With SyncBatchNorm even a rank of weight 0 receives gradients, because other ranks' losses depend
// on its samples. These gradients are expressed in units of the rank's own weight, or of the usual
// weight if that is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ringgrad {

// The weight of a rank's gradients in the average. A rank without samples has weight 0.
enum class Weighting : uint8_t {
  Samples,  // the batch's size; the mean over the passes whose gradients have come together
  Ranks,    // all the same: PyTorch's plain mean
  Given,    // the number that DistributedDataParallel::set_weight() gives
};

// Sums that show whether a number x is the same on all ranks. If it is, ranks · Σ x² = (Σ x)²;
// otherwise ranks · Σ x² is larger.
struct Alike {
  double sum;
  double squares;
  static Alike of(double x) { return {x, x * x}; }
  bool on(double ranks) const { return ranks * squares == sum * sum; }
};

// The numbers that ranks add up at the end of a step.
struct StepNumbers {
  double weight;
  double samples;   // that the buffers have seen
  double present;   // ranks that had data
  double flags;     // ranks that have set the flag
  double skips;     // ranks that ask to skip the step
  double computed;  // ranks that had a backward pass
  double failures;  // ranks whose backward has thrown
  // Counts the forwards that no backward has used although one has used a later forward, since the
  // last step in which a rank had no data or failed. The count is the same on all ranks, unless a
  // rank has left out a backward.
  Alike unused;
  Alike frozen;  // which parameters are; see module_watch.h
  Alike modes;   // the modes of the module's parts, on ranks that have computed
};

// The two factors of Note [Weights]: of a rank's gradients before they are averaged over the ranks,
// and of the average once the sum of all ranks' weights is known. REQUIRES: all are positive.
double factor_before(double weight, double usual);
double factor_after(double usual, double sum_of_weights, int ranks);

class Contribution {
 public:
  explicit Contribution(Weighting weighting) : weighting_(weighting) {}

  // A forward whose output a backward with averaging is to use; its number.
  int64_t begin_forward();
  // A backward pass reaches the output of a forward (0: of one that does not count).
  void reach(int64_t forward);
  // Begins a pass for a batch of so many samples. Throws Error if its weight must be given, and was
  // not.
  void begin_pass(int64_t samples);
  // Sets the unit of a rank without weight in this step. REQUIRES: the step's first gradients have
  // not come yet.
  void set_usual(double usual) { usual_ = usual; }

  // Throws Error unless weights are given here, and this one is finite and not negative.
  void set_weight(double weight);
  void skip() { skip_ = true; }

  int passes() const { return passes_; }
  // The weight of all passes together; 0: the loss is nothing, whatever it is.
  double weight() const;
  // The factor of this rank's gradients in the sum over the ranks.
  double unit() const;
  // Returns the same factor for the last pass alone.
  double pass_unit() const;
  // Says that gradients of other ranks' losses have come, in this unit.
  void receive() { received_ = true; }
  // Returns true if this rank's gradients count as zeros, whatever their memory holds.
  bool is_nothing() const { return weight() == 0 && (skip_ || !received_); }
  bool must_be_finite() const { return passes_ > 0 ? !is_nothing() : !skip_ && given_ != 0.0; }

  // This rank has no data for the rest of the step, whatever it was about to do; or all ranks count
  // their unused forwards anew.
  void give_up() {
    open_.clear();
    unused_ = 0;
  }
  // The step is a replay of one to which this rank brought `recorded`. Throws Error if the weight
  // given since then is another one.
  void replay(const StepNumbers& recorded);
  // Ends the step and returns this rank's numbers for it. The next step begins.
  StepNumbers end_step(bool flag);
  int64_t unused_forwards() const { return unused_; }  // by now; see StepNumbers

 private:
  Weighting weighting_;
  double samples_ = 0;  // mean batch size of the passes
  int64_t pass_samples_ = 0;
  int passes_ = 0;
  double usual_ = 1;
  std::optional<double> given_;
  bool skip_ = false;
  bool received_ = false;

  // newest_: that a backward has reached
  int64_t forwards_ = 0;
  int64_t newest_ = 0;
  std::vector<int64_t> open_;  // forwards that no backward has reached, oldest first
  int64_t unused_ = 0;
};

// The contribution of the backward pass in which this thread is, for sums over the ranks during it
// (sync_batch_norm.cpp). It is nullptr if no DistributedDataParallel has begun one.
inline thread_local Contribution* contribution_of_this_pass = nullptr;
// In forward: this thread has normalized over all ranks' samples (sync_batch_norm.cpp), so ranks
// will meet in the backward of that.
inline thread_local bool normalized_over_ranks = false;

}  // namespace ringgrad
