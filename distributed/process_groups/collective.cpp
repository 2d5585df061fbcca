// From a call of ProcessGroup to what a backend sees of it.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {
namespace {

// So that every backend sees bytes in the order of the elements.
void make_contiguous(Collective& c) {
  const bool in_place = c.input.defined() && c.output.defined() && c.input.is_same(c.output);
  if (c.output.defined() && !c.output.is_contiguous()) {
    c.destinations = {c.output};
    c.output = in_place ? as_contiguous(c.output) : empty(c.output.shape(), {c.output.dtype(), c.output.device()});
  }
  if (in_place)
    c.input = c.output;
  else if (c.input.defined())
    c.input = as_contiguous(c.input);
}

}  // namespace

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

Work ProcessGroup::submit(Collective collective) {
  const auto timeout = collective.options.timeout;  // sums of longer ones would overflow
  CHECK(timeout.count() >= 0 && timeout <= std::chrono::seconds(10'000'000), name(collective.operation),
        ": a timeout of ", timeout.count(), " ms, expected from 1 to 10^10 of them, or 0 for the group's");
  for (const Tensor* x : {&collective.input, &collective.output})
    CHECK_AS(DeviceError, !x->defined() || reaches(x->device()), name(collective.operation), ": a tensor lies on ",
             x->device(),
             device_.is_cpu() ? ", but this is a group of CPU ranks"
                              : str(", expected ", device_, ", the rank's device, or the CPU"));
  if (collective.destinations.empty() && collective.output.defined())
    begin_write(name(collective.operation), collective.output);
  for (const Tensor& x : collective.destinations) begin_write(name(collective.operation), x);
  make_contiguous(collective);
  const bool tells = collective.operation != Operation::Broadcast && collective.operation != Operation::Barrier;
  if (program_observer && tells && !collective.options.about) program_observer->collective();
  return issue(std::move(collective));
}

}  // namespace ringgrad
