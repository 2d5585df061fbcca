// `ringgrad reinforce`: learns to balance a pole on a cart, on one process or several ranks with an environment each.
#include <algorithm>
#include <deque>
#include <fstream>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/run_directory.h"
#include "ringgrad/models/reinforce.h"
#include "ringgrad/nn/safetensors.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;
constexpr int64_t kWindow = 100;  // episodes whose mean counts
constexpr double kSolved = 195;   // of CartPole's 200 pushes, as Gym has it

json settings_of(const ReinforceOptions& o) {
  return {{"reinforce", {{"lr", o.lr}, {"seed", o.seed}, {"episodes", o.episodes}}}};
}

ReinforceOptions resumed(ReinforceOptions o) {
  const std::filesystem::path config = RunDirectory::open(o.resume).path() / "config.json";
  try {
    std::ifstream in(config);
    const json settings = json::parse(in).at("reinforce");
    settings.at("lr").get_to(o.lr);
    settings.at("seed").get_to(o.seed);
    settings.at("episodes").get_to(o.episodes);
  } catch (const json::exception& error) {
    throw DataError(fmt::format("reinforce: {} is not of a run of `reinforce`: {}", config.string(), error.what()));
  }
  return o;
}

// The lengths of the last episodes, of all ranks.
struct Window {
  std::deque<int64_t> lengths;
  void add(const std::vector<int64_t>& some) {
    lengths.insert(lengths.end(), some.begin(), some.end());
    while (static_cast<int64_t>(lengths.size()) > kWindow) lengths.pop_front();
  }
  double mean() const {
    return std::accumulate(lengths.begin(), lengths.end(), 0.0) /
           static_cast<double>(std::max<size_t>(1, lengths.size()));
  }
  bool solved() const { return lengths.size() == kWindow && mean() >= kSolved; }
};

int64_t largest(int64_t own, ProcessGroup* group) {
  const Tensor x = full({}, static_cast<double>(own), {.dtype = DType::Int64});
  if (group) group->all_reduce(x, ReduceOp::Max).wait();
  return x.item<int64_t>();
}

int train(const ReinforceOptions& o, const RunDirectory* run, ProcessGroup* group) {
  models::Reinforce agent({.lr = o.lr, .seed = o.seed}, group);
  Window window;
  if (!o.resume.empty()) {
    const auto progress = agent.load(RunDirectory::open(o.resume).checkpoint());
    if (const auto lengths = progress.find("lengths"); lengths != progress.end())
      window.add(json::parse(lengths->second).get<std::vector<int64_t>>());
  }
  const int64_t ranks = group ? group->size() : 1, first = agent.episodes();
  message("cart    solved when {} episodes on end last {:.0f} of {} pushes on average · {} environment{}", kWindow,
          kSolved, models::CartPole::kMaxSteps, ranks, ranks > 1 ? "s" : "");
  json curve = json::array();
  int signal = 0;
  bool stop = false;
  while (!stop && agent.episodes() < o.episodes && !window.solved()) {
    window.add(agent.episode());
    signal = static_cast<int>(largest(interrupted(), group));  // it may have reached one rank only
    stop = signal > 0 || (o.max_steps > 0 && agent.episodes() - first >= o.max_steps);
    const bool last = stop || agent.episodes() >= o.episodes || window.solved();
    if (!run || (agent.episodes() % kWindow >= ranks && !last)) continue;
    curve.push_back({{"episodes", agent.episodes()}, {"pushes", agent.pushes()}, {"mean_length", window.mean()}});
    run->append_metrics(curve.back());
    result("episode {:>5}  mean of the last {:>3}: {:6.1f} pushes", agent.episodes(), window.lengths.size(),
           window.mean());
  }
  agent.check_identical();
  if (!run) return signal > 0 ? 128 + signal : kOk;
  agent.save(run->checkpoint(), {{"lengths", json(window.lengths).dump()}});
  nn::save_safetensors(run->model(), agent.policy().state_dict());
  if (stop)
    result("stopped at episode {} · resume: {}", agent.episodes(),
           program_command("reinforce --resume " + run->path().string()));
  else if (window.solved())
    result("solved  after {} episodes, {} pushes of the first cart", agent.episodes(), with_commas(agent.pushes()));
  else
    result("not solved in {} episodes; --episodes gives it more, another --seed other luck", agent.episodes());
  print_json({{"run", run->path().string()},
              {"solved", window.solved()},
              {"episodes", agent.episodes()},
              {"pushes_per_rank", agent.pushes()},
              {"mean_length", window.mean()},
              {"curve", curve}});
  return signal > 0 ? 128 + signal : kOk;
}

RunDirectory open_run(const ReinforceOptions& o) {
  if (!o.resume.empty()) return RunDirectory::resume(o.resume);
  RunDirectory run = RunDirectory::create(o.out, "cartpole");
  run.write_config(settings_of(o));
  return run;
}

int train_here(const ReinforceOptions& o, ProcessGroup* group) {
  if (group) check_same_lines(*group, "reinforce", "settings", {settings_of(o).dump(), str("at most ", o.max_steps)});
  manual_seed(o.seed);
  catch_interrupts("note    this episode is finished and saved; a second signal ends at once");
  if (group && !group->is_main_process()) {
    silence_console();
    return train(o, nullptr, group);
  }
  const std::string launchers = variable(kRunVariable);
  const RunDirectory run = launchers.empty() ? open_run(o) : RunDirectory::open(launchers);
  return train(o, &run, group);
}

}  // namespace

int reinforce(const ReinforceOptions& asked) {
  const ReinforceOptions options = asked.resume.empty() ? asked : resumed(asked);
  if (!rank_environment().source.empty()) {
    int code = kOk;
    launch_or_throw([&] { code = train_here(options, &process_group()); });
    return code;
  }
  if (options.ranks == 1) return train_here(options, nullptr);
  const RunDirectory run = open_run(options);
  setenv(kRunVariable, run.path().c_str(), 1);
  return launch_or_throw([] {}, {.num_processes = options.ranks});
}

}  // namespace ringgrad::program
