// `explain kill`: a rank is killed in the middle of backward, as by the kernel when memory runs
// out.
#include <signal.h>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::kill_topic {
namespace {

void on_rank(const std::string&) {
  play([](ProcessGroup& group) -> nlohmann::json {
    Chain network(3, 16);
    constexpr int64_t kLayer = 4 * 16 * 17;
    DistributedDataParallel ddp(network, group, {.caps = {.first_bytes = kLayer, .bytes = kLayer}});
    int step = 0;
    const HookHandle hook =
        register_post_accumulate_grad_hook(network.parameters()[2], [&](const Tensor&) {
          if (step == 2 && group.rank() == 1) raise(SIGKILL);
        });
    for (; step < 5; ++step) loss_on_noise(ddp, 4, 16, group.rank()).backward();
    return {};
  });
}

void tell(Page& page, const ExplainOptions&) {
  show_failure(
      page,
      "Rank 1 gets SIGKILL in backward of step 2, as the kernel does it to a process when memory "
      "runs out: no handler runs, and no last word is said. Rank 0 waits for its gradients.",
      "the other rank raises \"Connection closed by peer [127.0.0.1]:32934\" (Gloo), "
      "or waits for the watchdog's timeout (NCCL); torchrun, which started them, "
      "names the rank and its exit code (-9, SIGKILL). Nobody names the step or the parameter.");
  page.text(
      "What a rank is doing stands in memory that it shares with its launcher, "
      "so it is known of a rank that can say nothing any more. "
      "The kernel closes the dead process's connections, which wakes all others at once.");
  page.read("distributed/launcher/first_cause.cpp", "JobResult first_cause(",
            "of several ranks that ended badly, which one was the first");
}

}  // namespace
}  // namespace ringgrad::program::kill_topic

const ringgrad::program::Topic ringgrad::program::kKill{
    "kill", "a rank is killed in the middle of backward", kill_topic::tell, kill_topic::on_rank};
