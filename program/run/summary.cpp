#include "ringgrad/program/run/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/program/console/json_text.h"

namespace ringgrad::program {

double RankSummary::step() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
double RankSummary::compute() const { return step() - part(Part::Data) - part(Part::Waiting); }

StepHistogram histogram_of(std::vector<float> seconds) {
  constexpr size_t kBins = 30;
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    return seconds[static_cast<size_t>(part * static_cast<double>(seconds.size() - 1))];
  };
  StepHistogram histogram{
      seconds.front(), std::max(at(0.98), seconds.front() * 1.01f), {}, at(0.5), at(0.95)};
  histogram.bins.resize(kBins);
  for (const float x : seconds) {
    const double place = (x - histogram.low) / (histogram.high - histogram.low) * kBins;
    ++histogram.bins[std::min(static_cast<size_t>(place), kBins - 1)];
  }
  return histogram;
}

// Times are in milliseconds, for people who open the file.
nlohmann::json to_json(const RankSummary& rank) {
  nlohmann::json parts;
  nlohmann::json buckets = nlohmann::json::array();
  for (size_t i = 0; i < kParts.size(); ++i) parts[kParts[i]] = rank.seconds[i] * 1e3;
  for (const BucketSummary& bucket : rank.buckets)
    buckets.push_back({{"parameters", bucket.parameters},
                       {"bytes", bucket.bytes},
                       {"ready_ms", bucket.ready * 1e3},
                       {"launched_ms", bucket.launched * 1e3},
                       {"completed_ms", bucket.completed * 1e3}});
  return {{"step_ms", std::move(parts)},           {"starved_ms", rank.starved * 1e3},
          {"processor_ms", rank.processor * 1e3},  {"machine_ms", rank.machine * 1e3},
          {"page_faults", rank.page_faults},       {"tensor_bytes", rank.tensor_bytes},
          {"resident_bytes", rank.resident_bytes}, {"sent_bytes", rank.sent_bytes},
          {"device_bytes", rank.device_bytes},     {"buckets", std::move(buckets)}};
}

namespace {

// Reads a time or a count.
double number(const nlohmann::json& json, const char* key) {
  const double value = json.at(key).get<double>();
  CHECK_AS(DataError, std::isfinite(value) && value >= 0, key, " is ", value,
           ", expected 0 or more");
  return value;
}
double seconds(const nlohmann::json& json, const char* key) { return number(json, key) / 1e3; }

}  // namespace

RankSummary rank_from_json(const nlohmann::json& json) {
  RankSummary rank;
  for (size_t i = 0; i < kParts.size(); ++i)
    rank.seconds[i] = seconds(json.at("step_ms"), kParts[i]);
  rank.starved = seconds(json, "starved_ms");
  rank.processor = seconds(json, "processor_ms");
  rank.machine = seconds(json, "machine_ms");
  rank.page_faults = number(json, "page_faults");
  json.at("tensor_bytes").get_to(rank.tensor_bytes);
  json.at("resident_bytes").get_to(rank.resident_bytes);
  json.at("sent_bytes").get_to(rank.sent_bytes);
  rank.device_bytes = json.value("device_bytes", rank.device_bytes);
  for (const auto& bucket : json.at("buckets"))
    rank.buckets.push_back({bucket.at("parameters"), bucket.at("bytes"),
                            seconds(bucket, "ready_ms"), seconds(bucket, "launched_ms"),
                            seconds(bucket, "completed_ms")});
  return rank;
}

nlohmann::json to_json(const RunSummary& s) {
  nlohmann::json ranks = nlohmann::json::array();
  nlohmann::json worst = nlohmann::json::array();
  nlohmann::json kernels = nlohmann::json::array();
  for (const KernelTime& k : s.kernels)
    kernels.push_back(
        {{"phase", k.phase}, {"layer", k.layer}, {"kernel", k.kernel}, {"ms", k.seconds * 1e3}});
  for (const RankSummary& rank : s.ranks) ranks.push_back(to_json(rank));
  for (const ImageResult& image : s.worst) {
    worst.push_back({{"index", image.index},
                     {"label", image.label},
                     {"answer", image.answer},
                     {"loss", image.loss}});
    if (!image.file.empty()) worst.back()["file"] = image.file;
  }
  return {{"ended", s.ended},
          {"version", s.version},
          {"commit", s.commit},
          {"command", s.command},
          {"machine", s.machine},
          {"data_digest", s.data_digest},
          {"measured_steps", s.steps},
          {"steps_per_epoch", s.steps_per_epoch},
          {"train_seconds", s.train_seconds},
          {"test_seconds", s.test_seconds},
          {"save_seconds", s.save_seconds},
          {"images_per_second", s.images_per_second},
          {"cores", s.cores},
          {"threads", s.threads},
          {"workers", s.workers},
          {"throttled", s.throttled},
          {"memory_limit", s.memory_limit},
          {"ranks", std::move(ranks)},
          {"step_histogram",
           {{"low_ms", s.histogram.low * 1e3},
            {"high_ms", s.histogram.high * 1e3},
            {"median_ms", s.histogram.median * 1e3},
            {"p95_ms", s.histogram.p95 * 1e3},
            {"bins", s.histogram.bins}}},
          {"kernels", std::move(kernels)},
          {"loss_curve", s.loss_curve},
          {"classes", s.classes},
          {"confusion", s.confusion},
          {"worst", std::move(worst)}};
}

RunSummary summary_from_json(const nlohmann::json& json) {
  RunSummary s;
  s.ended = json.value("ended", true);
  json.at("version").get_to(s.version);
  s.commit = json.value("commit", "");
  json.at("command").get_to(s.command);
  json.at("machine").get_to(s.machine);
  json.at("data_digest").get_to(s.data_digest);
  json.at("measured_steps").get_to(s.steps);
  json.at("steps_per_epoch").get_to(s.steps_per_epoch);
  s.train_seconds = number(json, "train_seconds");
  s.test_seconds = number(json, "test_seconds");
  s.save_seconds = number(json, "save_seconds");
  s.images_per_second = number(json, "images_per_second");
  json.at("cores").get_to(s.cores);
  json.at("threads").get_to(s.threads);
  json.at("workers").get_to(s.workers);
  s.throttled = number(json, "throttled");
  json.at("memory_limit").get_to(s.memory_limit);
  for (const auto& rank : json.at("ranks")) s.ranks.push_back(rank_from_json(rank));
  const auto& h = json.at("step_histogram");
  s.histogram = {seconds(h, "low_ms"), seconds(h, "high_ms"), h.at("bins"), seconds(h, "median_ms"),
                 seconds(h, "p95_ms")};
  for (const auto& k : json.value("kernels", nlohmann::json::array()))
    s.kernels.push_back({k.at("phase"), k.at("layer"), k.at("kernel"), seconds(k, "ms")});
  json.at("loss_curve").get_to(s.loss_curve);
  json.at("classes").get_to(s.classes);
  json.at("confusion").get_to(s.confusion);
  const auto classes = static_cast<int64_t>(s.classes.size());
  CHECK_AS(DataError,
           s.confusion.empty() || static_cast<int64_t>(s.confusion.size()) == classes * classes,
           "confusion has ", s.confusion.size(), " numbers, expected ", classes * classes);
  for (const auto& image : json.at("worst")) {
    s.worst.push_back({image.at("index"), image.at("label"), image.at("answer"),
                       number(image, "loss"), image.value("file", "")});
    const ImageResult& last = s.worst.back();
    CHECK_AS(DataError,
             std::min({last.index, last.label, last.answer}) >= 0 &&
                 std::max(last.label, last.answer) < classes,
             "worst has an image of a class that there is not");
  }
  return s;
}

void write_summary(const std::filesystem::path& run, const RunSummary& summary) {
  write_text(run / "summary.json", json_text(to_json(summary), 1) + '\n');
}

}  // namespace ringgrad::program
