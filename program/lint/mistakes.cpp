// The rules of `ringgrad lint`. Each is a function of what the ranks have done, and finds one
// mistake or none.
#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "ringgrad/program/lint/lint.h"

namespace ringgrad::program {
namespace mistakes {
namespace {

using nlohmann::json;
using Ranks = std::vector<json>;
using Found = std::optional<Mistake>;

// "rank 1", "ranks 0 and 2"
std::string on(const std::set<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string listed(const std::vector<std::string>& names) {
  const size_t shown = std::min<size_t>(names.size(), 3);
  return fmt::format("{}{}",
                     fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

// The ranks on which this holds, and the passes of the first of them.
struct Passes {
  std::set<int> ranks;
  std::vector<size_t> numbers;
  std::string words() const {
    return fmt::format(
        "{}, {} {} over data", on(ranks), numbers.size() == 1 ? "pass" : "passes",
        fmt::join(numbers.begin(),
                  numbers.begin() + static_cast<ptrdiff_t>(std::min<size_t>(numbers.size(), 5)),
                  ", "));
  }
};
template <class Condition>
Passes passes_where(const Ranks& ranks, Condition&& holds) {
  Passes found;
  for (const json& rank : ranks)
    for (size_t i = 1; i < rank.at("passes").size(); ++i) {
      if (!holds(rank, rank["passes"][i])) continue;
      if (found.ranks.empty() || *found.ranks.begin() == rank.at("rank"))
        found.numbers.push_back(i);
      found.ranks.insert(rank.at("rank").get<int>());
    }
  return found;
}

bool several(const Ranks& ranks) { return !ranks.empty() && ranks[0].at("size") > 1; }
bool trains(const json& pass) { return pass.at("backwards") > 0; }
// A loader whose batches another loop uses, beside a second one's, has done nothing by itself.
bool evaluates(const json& pass) {
  return !trains(pass) &&
         (pass.at("reads") > 0 || !pass.at("training").empty() || !pass.at("evaluation").empty());
}

Found other_parameters(const Ranks& ranks) {
  for (const json& rank : ranks)
    for (const json& optimizer : rank.at("optimizers")) {
      const auto names = optimizer.at("not_averaged").get<std::vector<std::string>>();
      if (rank.at("averaged") == 0 || names.empty()) continue;
      return Mistake{
          "optimizer-of-other-parameters",
          fmt::format(
              "rank {}: an optimizer moves {} of {} parameters that no wrapper averages: {}",
              rank.at("rank").get<int>(), names.size(), optimizer.at("parameters").get<int>(),
              listed(names)),
          "it was made from another model, or before parameters were replaced; "
          "so each rank steps by its own gradients, or by none, and the ranks' models part",
          "wrap the model first, then make the optimizer from "
          "the wrapper: optim::SGD(ddp.parameters(), …)"};
    }
  return {};
}

Found never_stepped(const Ranks& ranks) {
  for (const json& rank : ranks) {
    const auto names = rank.at("never_stepped").get<std::vector<std::string>>();
    const bool steps = std::any_of(rank.at("optimizers").begin(), rank.at("optimizers").end(),
                                   [](const json& optimizer) { return optimizer.at("steps") > 0; });
    if (!steps || names.empty()) continue;
    return Mistake{"averaged-but-never-stepped",
                   fmt::format("rank {}: gradients are averaged and no optimizer uses them: {}",
                               rank.at("rank").get<int>(), listed(names)),
                   "these parameters stay as they were initialised, "
                   "while their gradients cost time on every step",
                   "give them to the optimizer, or freeze them before the "
                   "model is wrapped: set_requires_grad(false)"};
  }
  return {};
}

Found evaluation_in_training_mode(const Ranks& ranks) {
  const Passes found = passes_where(ranks, [](const json&, const json& pass) {
    return evaluates(pass) && !pass.at("training").empty();
  });
  if (found.ranks.empty()) return {};
  return Mistake{
      "evaluation-in-training-mode",
      found.words() + ": nothing was learnt there, and batch norm or dropout worked as in training",
      "dropout falsifies what is measured, and batch norm normalises by the test batch and lets "
      "the test data into its running statistics",
      "model.eval() before the evaluation, model.train() after it"};
}

Found shuffled_evaluation(const Ranks& ranks) {
  const Passes found = passes_where(ranks, [](const json&, const json& pass) {
    return evaluates(pass) && !pass.at("ascending");
  });
  if (found.ranks.empty()) return {};
  return Mistake{
      "shuffled-evaluation", found.words() + ": an evaluation in random order",
      "what is measured of single samples or of batches is another thing each time, "
      "and a prediction no longer belongs to the sample at its place",
      "a SequentialSampler, or DistributedSampler with {.shuffle = false, .pad = false}"};
}

Found repeated_samples(const Ranks& ranks) {
  const Passes found = passes_where(ranks, [](const json&, const json& pass) {
    return evaluates(pass) && pass.at("repeated") > 0;
  });
  if (found.ranks.empty()) return {};
  return Mistake{"samples-counted-twice",
                 found.words() + ": the last samples of the evaluation repeat the first ones",
                 "they count twice, so the accuracy is not that of the data set",
                 "DistributedSampler with {.shuffle = false, .pad = false}, "
                 "or leave Batch::padding samples out"};
}

Found same_order(const Ranks& ranks) {
  const Passes found = passes_where(ranks, [](const json& rank, const json& pass) {
    if (!trains(pass) || pass.at("ascending")) return false;
    const json& passes = rank.at("passes");
    return std::any_of(passes.begin(), passes.end(), [&](const json& other) {
      return &other < &pass && other.at("sampler") == pass.at("sampler") &&
             other.at("order") == pass.at("order") && trains(other);
    });
  });
  if (found.ranks.empty()) return {};
  return Mistake{"same-order-every-epoch",
                 found.words() + ": a shuffled order that an earlier epoch had already",
                 "batches of the same samples come again and again, and shuffling is worth nothing",
                 "sampler->set_epoch(epoch) with the number of the epoch; or no call of it: "
                 "each pass is then the next epoch by itself"};
}

Found same_samples(const Ranks& ranks) {
  std::set<std::string> orders;
  size_t count = 0;
  for (const json& rank : ranks)
    for (const json& pass : rank.at("passes"))
      if (pass.at("sampler") >= 0 && trains(pass)) {
        orders.insert(pass.at("order").dump());
        ++count;
        break;
      }
  if (count < 2 || count < ranks.size() || orders.size() > 1) return {};
  return Mistake{
      "same-samples-on-every-rank",
      fmt::format("all {} ranks train on the same samples in the same order", ranks.size()),
      "the ranks compute the same gradients, so averaging changes nothing: "
      "the work of all but one is lost",
      "DistributedSampler(size, group.size(), group.rank())"};
}

// An optimizer's rate in a step; `lr` lists from which step on there was which.
double rate_in(const json& lr, int64_t step) {
  double rate = 0;
  for (const json& change : lr)
    if (change.at(0) <= step) rate = change.at(1);
  return rate;
}

Found different_rates(const Ranks& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const json& first = ranks[0].at("optimizers");
    const json& other = ranks[r].at("optimizers");
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      std::set<int64_t> changes;
      for (const json* lr : {&first[i].at("lr"), &other[i].at("lr")})
        for (const json& change : *lr) changes.insert(change.at(0).get<int64_t>());
      const int64_t steps =
          std::min(first[i].at("steps").get<int64_t>(), other[i].at("steps").get<int64_t>());
      for (const int64_t step : changes) {
        const double a = rate_in(first[i]["lr"], step);
        const double b = rate_in(other[i]["lr"], step);
        if (a == b || step >= steps) continue;
        return Mistake{
            "learning-rates-differ",
            fmt::format("optimizer {}, from step {} on: {} on rank {}, {} on rank {}", i, step, a,
                        ranks[0].at("rank").get<int>(), b, ranks[r].at("rank").get<int>()),
            "the same gradients move the ranks' parameters by different steps: their models part",
            "compute the rate from what all ranks know, or broadcast it from rank 0"};
      }
    }
  }
  return {};
}

Found different_batches(const Ranks& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const int64_t a = ranks[0].at("largest_batch");
    const int64_t b = ranks[r].at("largest_batch");
    if (a == b || a == 0 || b == 0) continue;
    return Mistake{"batches-differ",
                   fmt::format("the largest batch has {} samples on rank 0, {} on rank {}", a, b,
                               ranks[r].at("rank").get<int>()),
                   "the average is right, as samples are weighted, but the rank with less waits "
                   "for the one with more in every step, and runs out of data at another time",
                   "one batch size for all ranks: the global batch divided by group.size()"};
  }
  return {};
}

bool brings_together(const Ranks& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const json& rank) { return rank.at("collectives") > 0; });
}

Found own_metrics(const Ranks& ranks) {
  if (!several(ranks) || brings_together(ranks)) return {};
  const Passes found = passes_where(ranks, [&](const json& rank, const json& pass) {
    if (!evaluates(pass) || pass.at("reads") == 0) return false;
    const size_t i = static_cast<size_t>(&pass - &rank.at("passes")[0]);
    return std::any_of(ranks.begin(), ranks.end(), [&](const json& other) {
      return other.at("passes").size() > i && other["passes"][i].at("order") != pass.at("order");
    });
  });
  if (found.ranks.size() < 2) return {};
  return Mistake{
      "metrics-of-one-rank",
      found.words() +
          ": each rank evaluates its part of the data, and no collective puts the parts together",
      "what one rank reports is its share's accuracy, not the data set's",
      "sum counts and losses over the ranks before dividing: group.all_reduce(counts).wait()"};
}

Found own_loss(const Ranks& ranks) {
  if (!several(ranks) || brings_together(ranks)) return {};
  std::set<int> reading;
  for (const json& rank : ranks)
    if (rank.at("losses_read") > 0) reading.insert(rank.at("rank").get<int>());
  if (reading.empty()) return {};
  return Mistake{"loss-of-one-rank",
                 on(reading) + ": the training loss is read, and never brought together",
                 "it is the mean over this rank's samples only; "
                 "curves of one rank are noisier than the training is",
                 "once an epoch: "
                 "add up losses in a tensor, and group.all_reduce(sum, ReduceOp::Average).wait()"};
}

Found item_every_step(const Ranks& ranks) {
  for (const json& rank : ranks) {
    int64_t steps = 0;
    for (const json& pass : rank.at("passes")) steps += pass.at("backwards").get<int64_t>();
    const int64_t reads = rank.at("device_reads");
    if (steps < 10 || reads < steps) continue;
    return Mistake{
        "item-every-step",
        fmt::format("rank {}: item() was called {} times in {} steps, of values on a GPU",
                    rank.at("rank").get<int>(), reads, steps),
        "each call waits until the GPU has done all that was queued, "
        "so that it idles while the host prepares the next step",
        "add up what you want to know in a tensor there, and read it once an epoch"};
  }
  return {};
}

}  // namespace
}  // namespace mistakes

std::vector<Mistake> find_mistakes(const std::vector<nlohmann::json>& ranks) {
  using namespace mistakes;
  std::vector<Mistake> findings;
  for (const auto rule :
       {other_parameters, never_stepped, evaluation_in_training_mode, shuffled_evaluation,
        repeated_samples, same_order, same_samples, different_rates, different_batches, own_metrics,
        own_loss, item_every_step})
    if (Found found = rule(ranks)) findings.push_back(std::move(*found));
  return findings;
}

}  // namespace ringgrad::program
