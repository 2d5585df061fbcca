// ElasticJob: training that goes on when ranks die, hang, leave or join.
//
//   int main() { return launch(train, {.num_processes = 3, .elastic = {.min = 2, .max = 4}}); }
//
//   void train() {
//     Net model;
//     optim::SGD optimizer(model.named_parameters(), {.lr = 0.1, .momentum = 0.9});
//     int64_t step = 0;
//     ElasticJob job;
//     job.run([&](ProcessGroup& group) {  // once for each generation of ranks
//       NamedTensors state = model.state_dict();
//       for (const auto& entry : optimizer.state_dict()) state.push_back(entry);
//       step = hand_over(group, {step, state}).step;  // who is behind, or new, catches up
//
//       // Not before: it begins with rank 0's weights.
//       VirtualRanks ranks(model, group, {.shards = 8});
//       while (step < 1000) {
//         ranks.set_step(step);
//         // Throws where a rank has died: then the body begins again, with those who are left.
//         ranks.step(…);
//         optimizer.step();  // with this the step counts
//         ++step;
//         job.check();  // throws GroupChanged where a rank waits to join
//       }
//     });
//   }
//
// The body must be able to begin wherever a step has ended: what it has done counts up to the last
// optimizer step, and nothing of the step under way does. elastic/README.md says how the ranks
// agree on who they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ringgrad/distributed/elastic/elastic_member.h"
#include "ringgrad/distributed/hand_over.h"
#include "ringgrad/distributed/init_process_group.h"

namespace ringgrad {

class ElasticJob {
 public:
  // Of a rank that a launcher has started for an elastic job. `work`: lines that describe what all
  // ranks must have in common, such as model, seed, version and data; a rank that joins with
  // another one is refused, with an OutOfStepError here that names the line, while the job goes on.
  // Groups are rings of CPU ranks. Throws DistributedError where this is no rank of an elastic job.
  explicit ElasticJob(std::vector<std::string> work = {}, const InitOptions& options = {});

  // Calls body with the group of every generation in which this rank is, until it returns, on all
  // ranks together: then the job is done. A DistributedError of the body, other than an
  // OutOfStepError, is such a loss, and the next generation begins; any other error ends this rank,
  // and so the job. Throws LeftBehindError where the others have gone on without this rank. Returns
  // false where the job was done before this rank was a member.
  bool run(const std::function<void(ProcessGroup& group)>& body);

  // In the body, after a step: throws GroupChanged where the group is to be formed anew.
  void check() const { member_.check(place_); }
  // In the body: too few ranks are left, which are to save their state, and to return.
  bool is_last() const { return place_.last; }
  // Counted from 1 on.
  uint64_t generation() const { return place_.generation; }
  // For who writes what outlives the job, which is rank 0 of the group: ElasticMember::WritePermit
  // permit(job.member()).
  const ElasticMember& member() const { return member_; }

 private:
  std::shared_ptr<ProcessGroup> form_group() const;

  const std::vector<std::string> work_;
  const InitOptions options_;
  ElasticMember member_;
  Place place_;
};

}  // namespace ringgrad
