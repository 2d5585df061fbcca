// `explain mismatch`: two ranks build different networks.
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::mismatch_topic {
namespace {

struct Net : nn::Module {
  explicit Net(int64_t hidden) : fc1(16, hidden), fc2(hidden, 16) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
  nn::Linear fc1;
  nn::Linear fc2;
};

void on_rank(const std::string&) {
  play([](ProcessGroup& group) -> nlohmann::json {
    Net network(group.rank() == 0 ? 32 : 48);  // an option that one rank reads from another file
    DistributedDataParallel ddp(network, group);
    return {};
  });
}

void tell(Page& page, const ExplainOptions&) {
  show_failure(page,
               "Rank 1 has read another configuration: its first layer has 48 outputs instead of "
               "32. Summed by position, gradients of different weights would meet.",
               "rank 1 says \"params[0] … appears not to match\", an index without a name; "
               "rank 0 says \"Connection closed by peer\".");
  page.text(
      "The ranks compare names, shapes, dtypes and which parameters are trained when the network "
      "is wrapped, and later, with every message, a hash of the plan of the buckets.");
  page.read("distributed/ddp/parameter_check.cpp", "void check_same_signature(",
            "what is compared");
}

}  // namespace
}  // namespace ringgrad::program::mismatch_topic

const ringgrad::program::Topic ringgrad::program::kMismatch{
    "mismatch", "two ranks have built different networks", mismatch_topic::tell,
    mismatch_topic::on_rank};
