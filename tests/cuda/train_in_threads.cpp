// A command that trains as `train --parallel ddp --device cuda` does, with ranks that are threads
// of one process: the emulator's NCCL connects no others. emulator_ranks_test.py runs it.
#include <csignal>
#include <cstdio>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/distributed/vendor_groups/nccl_process_group.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/train_data.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/train/training.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::program {
namespace {

struct ThreadsOptions {
  std::string recipe;
  std::string out;
  int ranks = 2;
  bool sync_bn = false;
  std::string recompute = {};
  int zero = 0;
  double bucket_mb = kUsualBuckets;
  int64_t interrupt_at = -1;  // the step after which a signal asks to stop
  int64_t leave_at = -1;      // the step after which the last rank fails
  int64_t pause_at = -1;      // the step after which it stays away until the others have ended
};

// Counts the convolutions that this thread queues: none in the replay of a captured step.
class Convolutions : private KernelObserver {
 public:
  Convolutions() { set_current(this); }
  ~Convolutions() override { set_current(nullptr); }
  int64_t count = 0;

 private:
  void call(const ObservedCall& call, const std::function<void()>& run) override {
    run();
    count += std::string_view(call.kernel.name()).starts_with("conv2d");
  }
};

int train_in_threads(const ThreadsOptions& o) {
  constexpr std::chrono::seconds kTimeout{10};
  OtherVersion other;
  RunConfig config{
      recipe_from_json(nlohmann::json::parse(o.recipe), other), data_directory(""), 1, {}};
  config.facts = facts_of_dataset(config.recipe.data);
  config.parallel_config = settle({.parallel = "ddp",
                                   .ranks = o.ranks,
                                   .sync_bn = o.sync_bn,
                                   .device = "cuda",
                                   .bucket_mb = o.bucket_mb,
                                   .zero = o.zero,
                                   .recompute = o.recompute},
                                  o.ranks);
  const Data data = read_data(config, "", false);
  // Threads that draw weights at once from the only generator would get others each time.
  manual_seed(config.seed);
  const std::string init = o.out + ".init.safetensors";
  save_model(init, *make_model_for(config.recipe.model, config.facts), config.recipe, config.facts);
  catch_interrupts();

  std::vector<int64_t> steps(o.ranks);
  std::vector<int64_t> replayed(o.ranks);  // steps
  std::string why_not;
  std::atomic<int> ended = 0;
  HostOptions hosts;
  hosts.timeout = kTimeout;
  const auto body = [&](HostProcessGroup& host) {
    const std::shared_ptr<ProcessGroup> borrowed(&host, [](ProcessGroup*) {});
    const int rank = host.rank();
    NcclProcessGroup group(borrowed, Device(DeviceType::CUDA, rank), {.timeout = kTimeout});
    RunConfig own = config;
    own.parallel_config->device = str(group.device());
    Training training(own, data.train_set, &group, 0, init);
    group.barrier().wait();
    default_generator(group.device()).set_state(config.seed + rank, 0);
    const bool last = rank == o.ranks - 1;
    Convolutions queued;
    int64_t before = 0;
    const auto after_step = [&] {
      replayed[rank] += std::exchange(before, queued.count) == queued.count;
      if (last && training.step() == o.leave_at) throw Error("no memory for an activation");
      while (last && training.step() == o.pause_at && ended == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank == 0 && training.step() == o.interrupt_at) std::raise(SIGINT);
      return training.interrupted();
    };
    while (training.epoch() < config.recipe.epochs && !training.interrupted())
      training.run_epoch(after_step);
    steps[rank] = training.step();
    if (rank == 0) why_not = training.step_captured() ? "captured" : training.step_not_captured();
    training.save(o.out);
  };
  const auto errors = errors_of_ranks(host_groups(o.ranks, "shm", hosts), [&](auto& host) {
    try {
      body(host);
    } catch (...) {
      ++ended;
      throw;
    }
  });
  std::puts(nlohmann::json{
      {"steps", steps}, {"captured", why_not}, {"replayed", replayed}, {"errors", errors}}
                .dump()
                .c_str());
  return kOk;
}

void add_options(CLI::App* app, ThreadsOptions& o) {
  app->add_option("--recipe", o.recipe)->required();
  app->add_option("--out", o.out)->required();
  app->add_option("--ranks", o.ranks);
  app->add_flag("--sync-bn", o.sync_bn);
  app->add_option("--recompute", o.recompute);
  app->add_option("--zero", o.zero);
  app->add_option("--bucket-mb", o.bucket_mb);
  app->add_option("--interrupt-at", o.interrupt_at);
  app->add_option("--leave-at", o.leave_at);
  app->add_option("--pause-at", o.pause_at);
}

const Command kThreads(36, "threads", "Train with ranks in threads", train_in_threads, add_options);

}  // namespace
}  // namespace ringgrad::program
