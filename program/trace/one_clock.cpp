#include "ringgrad/program/trace/one_clock.h"

#include <limits>

#include "ringgrad/distributed/group_values.h"
#include "ringgrad/program/console/json_text.h"

namespace ringgrad::program {
namespace {

constexpr int kQuestions = 50;

struct ClockOffset {
  int64_t offset;
  int64_t bound;
};

// As NTP does (Mills 1991): the answer was given between question and return.
ClockOffset ask(ProcessGroup& group, int rank) {
  const Tensor time = zeros({1}, {.dtype = DType::Int64});
  int64_t quickest = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < kQuestions; ++i) {
    const int64_t sent = steady_nanoseconds();
    group.send(time, rank).wait();
    group.recv(time, rank).wait();
    const int64_t took = steady_nanoseconds() - sent;
    if (took >= quickest) continue;
    quickest = took;
    offset = time.item<int64_t>() - (sent + took / 2);
  }
  return {offset, (quickest + 1) / 2};
}

void answer(ProcessGroup& group) {
  const Tensor time = zeros({1}, {.dtype = DType::Int64});
  for (int i = 0; i < kQuestions; ++i) {
    group.recv(time, 0).wait();
    fill_(time, 0);
    time.data<int64_t>()[0] = steady_nanoseconds();
    group.send(time, 0).wait();
  }
}

void shift(StepRecord& record, int64_t by) {
  for (auto* slices :
       {&record.phases, &record.layers, &record.kernels, &record.gradients, &record.waits})
    for (Slice& slice : *slices) slice.begin += by, slice.end += by;
  for (auto& thread : record.loading)
    for (Slice& slice : thread) slice.begin += by, slice.end += by;
  for (BucketSlice& bucket : record.buckets) {
    bucket.launched += by;
    bucket.begin += by;
    bucket.end += by;
  }
}

}  // namespace

std::vector<StepRecord> on_one_clock(StepRecord own, ProcessGroup& group) {
  std::vector<ClockOffset> clocks(1, {0, 0});
  for (int rank = 1; rank < group.size(); ++rank) {
    if (group.is_main_process())
      clocks.push_back(ask(group, rank));
    else if (group.rank() == rank)
      answer(group);
  }
  const auto texts = all_gather_texts(group, nlohmann::json(own).dump());
  if (!group.is_main_process()) return {};
  std::vector<StepRecord> records;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    StepRecord record = json_from(texts[rank]);
    shift(record, -clocks[rank].offset);
    record.clock_offset = clocks[rank].offset;
    record.clock_bound = clocks[rank].bound;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace ringgrad::program
