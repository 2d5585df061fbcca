// `explain hang`: one rank leaves out a backward, and the other waits for it.
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::hang_topic {
namespace {

void on_rank(const std::string&) {
  play([](ProcessGroup& group) -> nlohmann::json {
    Chain network(3, 16);
    DistributedDataParallel ddp(network, group);
    for (int step = 0; step < 5; ++step) {
      const Tensor loss = loss_on_noise(ddp, 4, 16, group.rank());
      if (step == 2 && group.rank() == 1) continue;  // "this batch looks odd"
      loss.backward();
    }
    return {};
  });
}

void tell(Page& page, const ExplainOptions&) {
  show_failure(page,
               "In step 2 rank 1 finds its batch odd and goes on with the next one, "
               "without backward. Rank 0 averages its gradients of step 2 and waits for rank 1's, "
               "which come one step later: other gradients, of the same shape. "
               "Either everything hangs, or what does not belong together is added up.",
               "the gradients of two different steps are averaged without a word; and at the end, "
               "where one rank has an all-reduce more, the job stands still until a timeout of 10 "
               "(NCCL) or 30 minutes (Gloo), which does not say which rank was missing.");
  page.text(
      "A step is a backward that averages, so rank 1's third one is its step 2, as rank 0's is. "
      "But one of rank 1's forwards no backward has used; "
      "at the end of every step all ranks compare how many those are, "
      "before an optimizer sees the gradients, and say who has left one out. "
      "A batch to be left out is left out on all ranks: skip_step() travels with the gradients.");
  page.read("distributed/ddp/reducer.cpp", "void Reducer::check_no_backward_left_out(",
            "the comparison, of two numbers that travel with the weights");
}

}  // namespace
}  // namespace ringgrad::program::hang_topic

const ringgrad::program::Topic ringgrad::program::kHang{"hang", "one rank leaves out a backward",
                                                        hang_topic::tell, hang_topic::on_rank};
