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
//       step = hand_over(group, {step, state}).step;  // ranks that are behind, or new, catch up
//
//       // After hand_over(): the constructor copies rank 0's weights to all.
//       VirtualRanks ranks(model, group, {.shards = 8});
//       while (step < 1000) {
//         ranks.set_step(step);
//         // Throws if a rank has died: the body begins again with the ranks that are left.
//         ranks.step(…);
//         optimizer.step();  // with this the step counts
//         ++step;
//         job.check();  // throws GroupChanged if a rank waits to join
//       }
//     });
//   }
//
// The body must be able to begin after any step. Everything up to the last optimizer step counts,
// and nothing of an unfinished step does. elastic/README.md says how ranks agree on the members.
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
  // For a rank that a launcher has started for an elastic job. `work` has lines that describe what
  // all ranks must have in common, such as model, seed, version and data. A rank with other lines
  // cannot join: it throws an OutOfStepError here that names the line, while the job goes on.
  // Groups are rings of CPU ranks. Throws DistributedError if this process is no rank of an elastic
  // job.
  explicit ElasticJob(std::vector<std::string> work = {}, const InitOptions& options = {});

  // Calls `body` with the group of every generation to which this rank belongs. The job is done
  // when the body has returned on all ranks together. If the body throws a DistributedError other
  // than an OutOfStepError, a rank was lost and the next generation begins; any other error ends
  // this rank, and so the job. Throws LeftBehindError if the others have gone on without this rank.
  // Returns false if the job was done before this rank was a member.
  bool run(const std::function<void(ProcessGroup& group)>& body);

  // Call it in the body, after a step. Throws GroupChanged if the group must be formed anew.
  void check() const { member_.check(place_); }
  // In the body: returns true if too few ranks are left. They must save their state and return.
  bool is_last() const { return place_.last; }
  // The first generation is 1.
  uint64_t generation() const { return place_.generation; }
  // Gives rank 0 of the group permission to write what outlives the job: ElasticMember::WritePermit
  // permit(job.member()).
  const ElasticMember& member() const { return member_; }

 private:
  std::shared_ptr<ProcessGroup> form_group() const;

  const std::vector<std::string> work_;
  const InitOptions options_;
  const std::chrono::milliseconds timeout_;
  ElasticMember member_;
  Place place_;
};

}  // namespace ringgrad
