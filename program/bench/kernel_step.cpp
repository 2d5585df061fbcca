#include "ringgrad/program/bench/kernel_step.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace ringgrad::program {
namespace {

constexpr Card kCards[] = {
    {"H200", 4.8e12, 989e12, 67e12},
    {"H100 80GB HBM3", 3.35e12, 989e12, 67e12},
    {"A100-SXM4-80GB", 2.04e12, 312e12, 19.5e12},
};
constexpr int64_t kSectorBytes = 32;

nlohmann::json as_json(const AccessCount& count) {
  nlohmann::json json = {{"requests", count.requests}, {"bytes", count.bytes}};
  if (count.shared)
    json.update({{"passes", count.passes}, {"least_passes", count.least_passes}});
  else
    json["sectors"] = count.sectors;
  return json;
}

nlohmann::json as_json(const KernelCounts& counts) {
  nlohmann::json json = {{"launches", counts.launches},
                         {"blocks", counts.blocks},
                         {"threads", counts.threads},
                         {"instructions", counts.instructions},
                         {"global_load", as_json(counts.total(false, false))},
                         {"global_store", as_json(counts.total(false, true))},
                         {"shared_load", as_json(counts.total(true, false))},
                         {"shared_store", as_json(counts.total(true, true))},
                         {"lines", nlohmann::json::array()}};
  for (const AccessCount& count : counts.accesses) {
    nlohmann::json line = as_json(count);
    line.update({{"line", count.line},
                 {"memory", count.shared ? "shared" : "global"},
                 {"access", count.write ? "store" : "load"}});
    json["lines"].push_back(std::move(line));
  }
  return json;
}

}  // namespace

const Card* card_of(const std::string& description) {
  for (const Card& card : kCards)
    if (description.find(card.name) != std::string::npos) return &card;
  return nullptr;
}

const Card& usual_card() { return kCards[0]; }

double StepResult::moved() const {
  const int64_t sectors = counts.total(false, false).sectors + counts.total(false, true).sectors;
  return static_cast<double>(sectors * kSectorBytes) / bytes;
}

StepResult run_step(const LadderProblem& problem, int step, Device device, DType dtype,
                    const Card* card, bool emulated) {
  StepResult result{.step = step,
                    .dtype = dtype,
                    .shapes = problem.shapes,
                    .operations = problem.operations,
                    .bytes = problem.bytes,
                    .counts = {}};
  if (card) {
    const double rate = dtype == DType::Float32 ? card->operations_32 : card->operations_16;
    const double by_bytes = 1e6 * problem.bytes / card->bytes;
    const double by_operations = 1e6 * problem.operations / rate;
    result.floor_us = std::max(by_bytes, by_operations);
    result.by_operations = by_operations > by_bytes;
  }
  if (emulated) {
    result.counts = count_accesses([&] {
      const Stream stream = current_stream(device);
      problem.run(step, stream);
      synchronize(stream);
    });
  } else {
    result.microseconds =
        1e6 * seconds_per_call(device, [&](Stream stream) { problem.run(step, stream); });
  }
  return result;
}

nlohmann::json as_json(const Ladder& ladder, const StepResult& result) {
  const LadderStep& step = ladder.steps[static_cast<size_t>(result.step)];
  nlohmann::json json = {{"step", result.step + 1},
                         {"name", step.name},
                         {"idea", step.idea},
                         {"dtype", name(result.dtype)},
                         {"shapes", result.shapes},
                         {"bytes", result.bytes},
                         {"operations", result.operations},
                         {"floor_us", nullptr},
                         {"floor_by", result.by_operations ? "operations" : "bytes"}};
  if (result.floor_us > 0) json["floor_us"] = result.floor_us;
  if (result.microseconds == 0) {
    json["counts"] = as_json(result.counts);
    json["moved"] = result.moved();
    return json;
  }
  json["microseconds"] = result.microseconds;
  if (result.floor_us > 0) json["of_floor"] = result.floor_us / result.microseconds;
  return json;
}

}  // namespace ringgrad::program
