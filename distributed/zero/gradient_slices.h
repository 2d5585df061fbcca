// GradientSlices: ZeRO (Rajbhandari, Rasley, Ruwase & He 2020, section 5) for a GradientBuckets
// policy. A bucket is not all-reduced but reduce-scattered: of each bucket a rank gets the average
// of its slice alone. It steps that slice, and then the slices of the parameters are gathered. That
// moves as many bytes as the all-reduces do, of which these are the two halves.
//
// Stage 1 divides the optimizer's state. Stage 2 divides the gradients, too. Once a bucket has been
// reduced, the memory of the other ranks' slices goes back to the system, page by page. The next
// backward takes new pages. The addresses stay, so gradients are written, weighed and sent as
// without it, with the same bits.
//
// Between steps a parameter's grad is undefined, because no rank has all of it.
//
// Note [Parameters that arrive]
// On CPUs a step ends before its parameters have been gathered. They travel bucket by bucket while
// the next forward runs, the first layers first. Whoever asks for the address of elements waits for
// their buckets alone (Storage::before_access). No element can be read or written without its
// address, so forward, evaluation, checkpoints and norms need no code of their own. If a gather
// fails, so does every access to what it should have brought. On a GPU the host does not wait
// anyway, and the stream waits when the step ends.
#pragma once

#include <vector>

#include "ringgrad/autograd/shared_state.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/distributed/buckets/gradient_buckets.h"

namespace ringgrad {

// Not thread-safe.
class GradientSlices final : public SharedState {
 public:
  // Collective. Moves the parameters' values into memory that ranks share if they can. `arenas` and
  // `buckets` are the policy's. `whole_norms`: gradients are lent whole for norms, which costs half
  // an all-reduce, and the norm is then added up as without ZeRO. The group must outlive this
  // object. Throws Error for stage 2 on a GPU, and unless the stage is 1 or 2.
  GradientSlices(int stage, ProcessGroup& group, NamedTensors parameters,
                 std::vector<ArenaRange> arenas, const std::vector<GradientBucket>& buckets,
                 bool whole_norms);
  ~GradientSlices() override;

  // The buckets have been planned anew.
  void plan(const std::vector<GradientBucket>& buckets);
  // The policy is gone: a later step is an error.
  void close() { open_ = false; }

  // -- a step, as the policy sees it -------------------------------------------------------------

  // Returns true if the gradients are zeros, or what passes since then have added.
  bool zeroed() const { return has_ == Has::Sums; }
  // The step's gradients begin anew, whatever there is.
  void restart() { has_ = Has::Sums; }
  // Backward has written this parameter's gradient.
  void written(int parameter);
  // This bucket's average has been waited for, so other ranks' slices of it are of no use.
  void reduced(int bucket);
  // The gradients of this rank's slices, one array for each bucket.
  std::vector<Tensor> own_gradients() const;
  // Collective. Completes all gradients, of which each rank has averaged its slices.
  void gather_gradients();
  // All buckets have been averaged.
  void finish();

  // -- for the optimizer -------------------------------------------------------------------------

  std::vector<ArenaRange> parts(const std::vector<Tensor>& parameters) const override;
  int64_t layout() const override { return layout_; }
  void unite(const Tensor& x) const override;
  void add(const Tensor& x) const override;
  void gather() const override;
  void zero_grad() const override { const_cast<GradientSlices*>(this)->set_to_zero(); }
  bool lend_gradients() const override;
  void take_gradients_back() const override { const_cast<GradientSlices*>(this)->drop(); }

 private:
  enum class Has : uint8_t { Sums, Averages };
  struct Slice {
    int arena;
    // The bucket, and this rank's part of it, in elements of the arena.
    int64_t begin;
    int64_t end;
    int64_t own_begin;
    int64_t own_end;
    std::shared_ptr<const std::string> names;
    bool written;  // other ranks' slices may use memory
  };
  // See Note [Parameters that arrive]. Belongs to the parameters' memory, too, which may outlive
  // this object.
  struct Arrivals {
    struct Bucket {
      int64_t begin;  // in bytes of the arena
      int64_t end;
      Work work;
    };
    // Waits for the buckets that reach into these bytes; by default, for all.
    void wait(int64_t from = 0, int64_t to = INT64_MAX) const;
    // Those of the last step.
    std::vector<Bucket> buckets;
    const int born_after = forks;
  };
  void move_values(bool first);
  void set_to_zero();
  void drop();
  void written(Slice& slice);
  void release(Slice& slice);
  Tensor view(const Tensor& flat, int i) const;
  CollectiveOptions options_of(const Slice& slice, bool async) const;

  const int stage_;
  ProcessGroup& group_;
  const NamedTensors parameters_;
  std::vector<ArenaRange> arenas_;  // `values` are those that the parameters are views of
  // By arena: the same memory, whose addresses are had at once, and what travels there.
  std::vector<Tensor> unguarded_;
  std::vector<std::shared_ptr<Arrivals>> arrivals_;
  std::vector<std::pair<int, int64_t>> places_;  // by parameter: its arena and its beginning there
  const bool whole_norms_;
  std::vector<Slice> slices_;  // in the order of buckets
  int64_t layout_ = 0;
  bool open_ = true;
  Has has_ = Has::Sums;
};

}  // namespace ringgrad
