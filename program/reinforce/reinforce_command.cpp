// `ringgrad reinforce`: learns to balance a pole on a cart, on one process or several ranks with an
// environment each.
#include <algorithm>
#include <deque>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/models/reinforce.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/run_of_ranks.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program {
namespace {

struct ReinforceOptions {
  int64_t episodes = 2000;  // at most, over all ranks
  double lr = 0.01;
  uint64_t seed = 1;
  // shards: environments, whatever the ranks; 0: one for each rank
  int ranks = 1;
  int shards = 0;
  // As for train.
  std::string out;
  std::string resume;
  int64_t max_steps = 0;  // stop after this number of episodes of this call; 0: never
};
void each_setting(ReinforceOptions& o, const auto& visit) {
  visit("lr", o.lr), visit("seed", o.seed), visit("episodes", o.episodes),
      visit("shards", o.shards);
}

using nlohmann::json;
const RunKind kReinforceRun = "reinforce";
constexpr int64_t kWindow = 100;  // episodes whose mean counts
constexpr double kSolved = 195;   // pushes out of CartPole's 200, as Gym defines it

// The lengths of the last episodes, in all environments.
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
  models::Reinforce agent({.lr = o.lr, .seed = o.seed, .shards = o.shards}, group);
  Window window;
  if (!o.resume.empty()) {
    const auto progress = agent.load(RunDirectory::open(o.resume, kReinforceRun).checkpoint());
    if (const auto lengths = progress.find("lengths"); lengths != progress.end())
      window.add(json_from(lengths->second).get<std::vector<int64_t>>());
  }
  const bool finished = window.solved() || agent.episodes() >= o.episodes;
  if (finished) {
    const std::string all =
        window.solved() ? "solved it" : fmt::format("all its {}", counted(o.episodes, "episode"));
    if (run && !std::filesystem::exists(run->model()))  // it was killed before
      nn::save_safetensors(run->model(), agent.policy().state_dict());
    nothing_to_go_on_with(kReinforceRun, o.resume, all);
    return kOk;
  }
  const int64_t ranks = group ? group->size() : 1;
  const int64_t environments = agent.environments();
  const int64_t first = agent.episodes();
  message("cart    solved when {} episodes on end last {:.0f} of {} pushes on average · {}",
          kWindow, kSolved, models::CartPole::kMaxSteps, counted(environments, "environment"));
  json curve = json::array();
  int signal = 0;
  bool stop = false;
  while (!stop && agent.episodes() < o.episodes && !window.solved()) {
    window.add(agent.episode());
    signal = static_cast<int>(largest(interrupted(), group));  // it may have reached one rank only
    stop = signal > 0 || (o.max_steps > 0 && agent.episodes() - first >= o.max_steps);
    const bool last = stop || agent.episodes() >= o.episodes || window.solved();
    if (!run || (agent.episodes() % kWindow >= environments && !last)) continue;
    curve.push_back({{"episodes", agent.episodes()},
                     {"pushes", agent.pushes()},
                     {"mean_length", window.mean()}});
    run->append_metrics(curve.back());
    news("episode {:>5}  mean of the last {:>3}: {:6.1f} pushes", agent.episodes(),
         window.lengths.size(), window.mean());
  }
  agent.check_identical();
  if (!run) return signal > 0 ? 128 + signal : kOk;
  agent.save(run->checkpoint(), {{"lengths", json(window.lengths).dump()}});
  nn::save_safetensors(run->model(), agent.policy().state_dict());
  json document = {{"run", run->path().string()},
                   {"solved", window.solved()},
                   {"episodes", agent.episodes()},
                   {"ranks", ranks},
                   {"environments", environments},
                   {"pushes", agent.pushes()},
                   {"pushes_per_rank", agent.pushes() / ranks},
                   {"mean_length", window.mean()},
                   {"curve", curve},
                   {"parameters_sha256", sha256_of_state(agent.policy())}};
  if (stop)
    say_stopped(kReinforceRun, *run, fmt::format("episode {}", agent.episodes()), signal, document);
  else if (window.solved())
    news("solved  after {} episodes, {} pushes on each rank", agent.episodes(),
         with_commas(agent.pushes() / ranks));
  else
    news("not solved in {} episodes; --episodes gives it more, or try another --seed",
         agent.episodes());
  print_json(document);
  return signal > 0 ? 128 + signal : kOk;
}

int reinforce(const ReinforceOptions& asked) {
  ReinforceOptions options = asked;
  restore_settings(kReinforceRun, options);
  return train_on_ranks({.kind = kReinforceRun,
                         .name = "cartpole",
                         .out = options.out,
                         .resume = options.resume,
                         .ranks = options.ranks,
                         .shards = options.shards,
                         .max_steps = options.max_steps,
                         .config = {{"reinforce", settings_of(options)}}},
                        [&](const RunDirectory* run, ProcessGroup* group) {
                          manual_seed(options.seed);
                          return train(options, run, group);
                        });
}

void add_options(CLI::App* app, ReinforceOptions& o) {
  app->add_option("--episodes", o.episodes, "at most, over all ranks")
      ->capture_default_str()
      ->check(kPositive);
  app->add_option("--lr", o.lr, "of Adam")->capture_default_str()->check(check_above_zero);
  app->add_option("--seed", o.seed, "of weights, carts and chance")->capture_default_str();
  app->add_option("--ranks", o.ranks, "processes, each with a cart or more")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  app->add_option("--out", o.out, "the run directory (default: runs/NNNN-cartpole)");
  add_whole_life(
      app, {"--episodes", "--lr", "--seed", "--out"},
      "environments; as many give the same bits on any number of ranks (0: one for each rank)", o);
  app->add_option("--max-steps", o.max_steps, "save and stop after so many episodes")
      ->check(kNotNegative);
}

const Command kReinforce(170, "reinforce", "Learn to balance a pole on a cart", reinforce,
                         add_options);

}  // namespace
}  // namespace ringgrad::program
