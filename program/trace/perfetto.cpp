#include "ringgrad/program/trace/perfetto.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace ringgrad::program {
namespace {

using nlohmann::json;

// Behind the last one come the loader's threads.
enum Thread { kStep = 1, kLayers, kKernels, kGradients, kBuckets, kLoading };
const char* const kThreadNames[] = {"",
                                    "step",
                                    "layers",
                                    "kernels",
                                    "gradients ready (hooks)",
                                    "buckets (all-reduce)",
                                    "data loading"};

class Writer {
 public:
  explicit Writer(int64_t zero) : zero_(zero) {}

  void name(int rank, const std::string& process, size_t loaders) {
    add("M", rank, kStep, {{"name", "process_name"}, {"args", {{"name", process}}}});
    add("M", rank, kStep, {{"name", "process_sort_index"}, {"args", {{"sort_index", rank}}}});
    for (int thread = kStep; thread < kLoading + static_cast<int>(loaders); ++thread) {
      const std::string number = thread > kLoading ? fmt::format(" {}", thread - kLoading) : "";
      add("M", rank, thread,
          {{"name", "thread_name"},
           {"args", {{"name", kThreadNames[std::min<int>(thread, kLoading)] + number}}}});
      add("M", rank, thread, {{"name", "thread_sort_index"}, {"args", {{"sort_index", thread}}}});
    }
  }
  void slice(int rank, int thread, const std::string& name, int64_t begin, int64_t end,
             json args = json::object()) {
    add("X", rank, thread,
        {{"name", name},
         {"cat", kThreadNames[std::min<int>(thread, kLoading)]},
         {"ts", at(begin)},
         {"dur", at(end) - at(begin)},
         {"args", std::move(args)}});
  }
  // Draws an arrow from a place in a slice to the beginning of another slice.
  void arrow(int rank, const std::string& name, int64_t from, int64_t to) {
    const json common = {{"name", name}, {"cat", "flow"}, {"id", ++arrows_}};
    json begin = common;
    json end = common;
    begin["ts"] = at(from);
    end["ts"] = at(to);
    end["bp"] = "e";  // it ends in the slice around its time
    add("s", rank, kGradients, std::move(begin));
    add("f", rank, kBuckets, std::move(end));
  }
  json events() { return std::move(events_); }

 private:
  double at(int64_t time) const { return static_cast<double>(time - zero_) / 1e3; }
  void add(const char* kind, int rank, int thread, json event) {
    event.update({{"ph", kind}, {"pid", rank}, {"tid", thread}});
    events_.push_back(std::move(event));
  }

  int64_t zero_;
  int64_t arrows_ = 0;
  json events_ = json::array();
};

void write(Writer& out, int rank, const StepRecord& record) {
  out.name(rank, fmt::format("rank {}", rank), record.loading.size());
  const auto all = [&](int thread, const std::vector<Slice>& slices) {
    for (const Slice& slice : slices) out.slice(rank, thread, slice.name, slice.begin, slice.end);
  };
  all(kStep, record.phases);
  all(kStep, record.waits);
  all(kLayers, record.layers);
  all(kKernels, record.kernels);
  all(kGradients, record.gradients);
  for (size_t thread = 0; thread < record.loading.size(); ++thread)
    all(kLoading + static_cast<int>(thread), record.loading[thread]);
  for (size_t b = 0; b < record.buckets.size(); ++b) {
    const BucketSlice& bucket = record.buckets[b];
    out.slice(rank, kBuckets, fmt::format("bucket {}", b), bucket.begin, bucket.end,
              {{"bytes", bucket.bytes},
               {"parameters", bucket.parameters},
               {"waited_ms", static_cast<double>(bucket.begin - bucket.launched) / 1e6}});
    for (const std::string& parameter : bucket.parameters) {
      const Slice* last = nullptr;  // the one before it in the same step
      for (const Slice& gradient : record.gradients)
        if (gradient.name == parameter && gradient.begin <= bucket.launched) last = &gradient;
      if (last) out.arrow(rank, parameter, last->begin, bucket.begin);
    }
  }
}

}  // namespace

json perfetto_trace(const std::vector<StepRecord>& records) {
  int64_t zero = std::numeric_limits<int64_t>::max();
  json clocks = json::array();
  for (const StepRecord& record : records) {
    for (const Slice& phase : record.phases) zero = std::min(zero, phase.begin);
    for (const auto& thread : record.loading)
      for (const Slice& slice : thread) zero = std::min(zero, slice.begin);
    clocks.push_back({{"rank", clocks.size()},
                      {"offset_us", static_cast<double>(record.clock_offset) / 1e3},
                      {"error_bound_us", static_cast<double>(record.clock_bound) / 1e3}});
  }
  Writer out(zero);
  for (size_t rank = 0; rank < records.size(); ++rank)
    write(out, static_cast<int>(rank), records[rank]);
  return {{"traceEvents", out.events()},
          {"displayTimeUnit", "ms"},
          {"otherData", {{"clocks", clocks}}}};
}

}  // namespace ringgrad::program
