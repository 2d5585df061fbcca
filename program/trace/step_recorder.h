// Looks on while a rank takes steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/trace/step_record.h"
#include "ringgrad/program/train/loading_log.h"

namespace ringgrad::program {

std::vector<std::vector<Slice>> slices_of(LoadingLog& log);  // since the last call, by thread

// Its hooks stay as long as it lives, but it records only between start() and pause(). With
// DistributedDataParallel it must be made and destroyed on all ranks between the same two steps,
// because it registers a communication hook, which averages plainly.
class StepRecorder : private KernelObserver {
 public:
  // Both arguments must outlive this object. `ddp` is nullptr if there is none, or its buckets are
  // not wanted.
  StepRecorder(nn::Module& model, DistributedDataParallel* ddp);
  ~StepRecorder() override;
  StepRecorder(const StepRecorder&) = delete;

  void start();
  void begins(const std::string& phase);  // begins a phase of the step; the one before has ended
  void end_step();                        // the gradients are averaged
  void pause();
  StepRecord take();  // returns what was recorded since the last call

 private:
  void call(const ObservedCall& call, const std::function<void()>& run) override;
  void layer_is_done(const std::string& name);
  void end_phase();

  DistributedDataParallel* ddp_;
  std::vector<std::string> names_;  // the parameters' names, by their numbers in buckets
  std::vector<HookHandle> module_hooks_;
  std::vector<HookHandle> before_hooks_;
  std::vector<HookHandle> after_hooks_;
  bool recording_ = false;
  KernelObserver* previous_ = nullptr;
  int64_t since_ = 0;          // the end of the last layer, or the beginning of the phase
  size_t buckets_before_ = 0;  // at the beginning of the step under way
  StepRecord record_;
};

}  // namespace ringgrad::program
