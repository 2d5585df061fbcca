// `explain nan`: one rank's batch has a NaN, which averaging would carry to all ranks.
#include <limits>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::nan_topic {
namespace {

// If it is armed, the gradient that reaches layer fc2 in backward is NaN.
class Poisoned : public Chain {
 public:
  Poisoned() : Chain(3, 16) {}
  bool armed = false;

 protected:
  Tensor after_layer(size_t layer, const Tensor& y) override {
    if (!armed || layer != 1) return y;
    return differentiable("poison", {y}, y.detach(), [](const Tensor& dy) -> Gradients {
      return {full(dy.shape(), std::numeric_limits<double>::quiet_NaN())};
    });
  }
};

void on_rank(const std::string&) {
  play([](ProcessGroup& group) -> nlohmann::json {
    Poisoned network;
    DistributedDataParallel ddp(network, group);
    for (int step = 0; step < 5; ++step) {
      network.armed = step == 2 && group.rank() == 1;
      loss_on_noise(ddp, 4, 16, group.rank()).backward();
    }
    return {};
  });
}

void tell(Page& page, const ExplainOptions&) {
  show_failure(page,
               "In step 2, on its way back to layer fc2 of rank 1, a gradient becomes NaN: "
               "an overflow, a bad image, a learning rate that is too high. "
               "The average of a NaN and a number is a NaN, so one step later all ranks have "
               "nothing else, and nobody can tell where it came from.",
               "the NaN is averaged into all ranks' gradients without a word; "
               "the loss is nan from the next step on, everywhere.");
  page.text(
      "Each gradient is looked at when its hook fires, before it leaves the rank: "
      "the error names the rank, the step and the first parameter in backward's order, "
      "so that the cause lies between it and the layer after it. "
      "All ranks end with the same words, and no optimizer has taken a step.");
  page.read("distributed/ddp/finite_check.cpp", "FiniteCheck::look(",
            "what is looked at, and what it costs");
}

}  // namespace
}  // namespace ringgrad::program::nan_topic

const ringgrad::program::Topic ringgrad::program::kNan{
    "nan", "one rank's gradients are not numbers", nan_topic::tell, nan_topic::on_rank};
