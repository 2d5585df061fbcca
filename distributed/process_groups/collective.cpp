// Turns a call of ProcessGroup into the Collective that a backend sees.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/core/overlap.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {
namespace {

bool is_in_place(const Collective& c) {
  return c.operation == Operation::AllReduce || c.operation == Operation::Broadcast ||
         c.operation == Operation::Reduce || c.in_slices();
}

// Makes the tensors contiguous, so that every backend sees the bytes in the order of the elements.
// It also copies an input that shares memory with the output: ranks read each other's memory, and
// parts of the output arrive before all of the input has been sent.
void make_contiguous(Collective& c) {
  const bool in_place = is_in_place(c) && c.output.defined();
  if (c.output.defined() && !c.output.is_contiguous()) {
    c.destinations = {c.output};
    c.output = in_place ? as_contiguous(c.output)
                        : empty(c.output.shape(), {c.output.dtype(), c.output.device()});
  }
  if (in_place)
    c.input = c.output;
  else if (c.input.defined())
    c.input = have_memory_in_common(c.input, c.output)
                  ? copy_of(c.input, {c.input.dtype(), c.input.device()})
                  : as_contiguous(c.input);
}

}  // namespace

void deliver(const Collective& c) {
  int64_t at = 0;
  for (const Tensor& x : c.destinations) {
    kernels::copy(x, c.output.as_strided(x.shape(), contiguous_strides(x.shape()),
                                         c.output.storage_offset() + at));
    at += x.numel();
  }
}

Frame frame_of(const Collective& c) {
  if (c.stands_for) return *c.stands_for;
  Frame frame;
  frame.operation = c.operation;
  frame.reduce_op = c.reduce_op;
  frame.step = c.options.step;
  frame.bucket = c.options.bucket;
  frame.layout = c.options.layout;
  frame.tag = c.options.tag;
  if (c.operation != Operation::SendRecv) frame.root = c.root;
  if (const Tensor& x = c.part()) {
    frame.dtype = x.dtype();
    if (!c.input_counts.empty()) return frame;  // sizes are two ranks' affair
    static_assert(kMaxDims <= kFrameDims);
    set_shape(frame, {x.shape().begin(), x.shape().end()});
  }
  return frame;
}

std::string describe(const Collective& c) {
  return str(describe(frame_of(c)), c.options.about ? str(" (", *c.options.about, ")") : "");
}

void ProcessGroup::check_process(const char* call) const {
  CHECK(forks_ == forks, call, ": this process was forked from rank ", rank_, " of ", size_,
        ", and does not ",
        "share its connections; only the parent can call it, "
        "or exec a program that is a rank of its own job");
}

Work ProcessGroup::submit(Collective collective) {
  check_process(name(collective.operation));
  const auto timeout = collective.options.timeout;  // sums of longer ones would overflow
  CHECK(timeout.count() >= 0 && timeout <= std::chrono::seconds(10'000'000),
        name(collective.operation), ": a timeout of ", timeout.count(),
        " ms, expected from 1 to 10^10 of them, or 0 for the group's");
  for (const Tensor* x : {&collective.input, &collective.output})
    CHECK_AS(DeviceError, !x->defined() || reaches(x->device()), name(collective.operation),
             ": a tensor lies on ", x->device(),
             device_.is_cpu() ? ", but this is a group of CPU ranks"
                              : str(", expected ", device_, ", the rank's device, or the CPU"));
  if (collective.destinations.empty() && collective.output.defined())
    begin_write(name(collective.operation), collective.output);
  for (const Tensor& x : collective.destinations) begin_write(name(collective.operation), x);
  make_contiguous(collective);
  const bool tells =
      collective.operation != Operation::Broadcast && collective.operation != Operation::Barrier;
  if (program_observer && tells && !collective.options.about) program_observer->collective();
  return issue(std::move(collective));
}

}  // namespace ringgrad
