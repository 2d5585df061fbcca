#include "ringgrad/distributed/ddp/parameter_check.h"

#include <algorithm>
#include <sstream>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/agreement/lines.h"
#include "ringgrad/distributed/group_values.h"

namespace ringgrad {
namespace {

CollectiveOptions about(const std::string& what) {
  return {.about = std::make_shared<const std::string>(what)};
}

uint64_t hash_of_values(const Tensor& tensor) {
  const Tensor x = as_contiguous(on_device(tensor, {}));
  return hash_of(x.raw_data(), x.nbytes());
}

}  // namespace

void disagree(ProcessGroup& group, const std::string& text) {
  group.abort(text, FailureKind::OutOfStep);
  throw OutOfStepError(text);
}

void check_step(const char* what, int64_t step) {
  CHECK(step >= 0 && step <= int64_t{1} << 62, what, ": set_step(", step,
        "), expected the number of a step, from 0 to 2^62");
}

std::string words_of(const std::exception_ptr& error) {
  const std::string text = failure_of(error).text;
  return text.empty() ? "an exception without words" : text;
}

void throw_of_ranks(ProcessGroup& group, const std::string& what, const std::string& own) {
  const std::vector<std::string> words = all_gather_texts(group, own);
  std::string text = what + " has thrown";
  for (size_t r = 0; r < words.size(); ++r)
    if (!words[r].empty()) text += str(" on rank ", r, ": ", words[r], ";");
  throw_failure({FailureKind::Failed, text + " all ranks leave the step out"});
}

void check_same_lines(ProcessGroup& group, const std::string& what, const char* noun,
                      const std::vector<std::string>& lines, const char* remedy) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  const auto hashes = all_gather_values<int64_t>(
      group, {static_cast<int64_t>(hash_of(all.data(), all.size()))}, about(what));
  const auto same = [&](int64_t hash) { return hash == hashes[0]; };
  if (std::all_of(hashes.begin(), hashes.end(), same)) return;
  // All ranks see that two differ, and look for the difference together.
  disagree(group, str(what, ": ", first_difference(all_gather_texts(group, all), noun), remedy));
}

std::vector<std::string> lines_of_values(const NamedTensors& tensors) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : tensors)
    lines.push_back(str(name, " with hash ", hash_of_values(tensor)));
  return lines;
}

void check_same_signature(ProcessGroup& group, const std::string& what,
                          const NamedTensors& tensors) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : tensors)
    lines.push_back(str("'", name, "' ", tensor.shape(), " ", tensor.dtype()));
  check_same_lines(group, what, "model", lines);
}

void take_from_rank_0(ProcessGroup& group, const std::string& what, const NamedTensors& state,
                      const NamedTensors& trained) {
  check_same_signature(group, what, state);
  check_same_signature(group, what + " (parameters that require a gradient)", trained);
  if (group.size() > 1)
    for (const auto& [name, tensor] : state) group.broadcast(tensor, 0).wait();
}

uint64_t check_identical_values(ProcessGroup& group, const char* what,
                                const NamedTensors& tensors) {
  std::vector<int64_t> own;
  for (const auto& [name, tensor] : tensors)
    own.push_back(static_cast<int64_t>(hash_of_values(tensor)));
  const auto hashes = all_gather_values(group, own, about(what));
  for (size_t i = 0; i < own.size(); ++i) {
    std::string ranks;
    for (int r = 1; r < group.size(); ++r)
      if (hashes[r * own.size() + i] != hashes[i]) ranks += str(ranks.empty() ? "" : ", ", r);
    if (!ranks.empty())
      disagree(group,
               str(what, ": ", tensors[i].first, " differs from rank 0's on rank ", ranks,
                   "; something changed it on some ranks only, outside of the averaged gradients"));
  }
  return hash_of(own.data(), own.size() * sizeof(int64_t));
}

}  // namespace ringgrad
