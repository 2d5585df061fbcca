// The lines that a run writes while it goes on: metrics.jsonl, and TensorBoard's file beside it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/program/run/event_file.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/train/training.h"

namespace ringgrad::program {

// Returns the norm of each layer's gradient as the optimizer gets it: averaged over the ranks,
// unscaled, clipped.
std::map<std::string, double> gradient_norms(nn::Module& model);

// The mean loss of this rank's images since the last look. Looking waits for the device.
class LossSince {
 public:
  // Returns nothing if there were no images, or the loss is not finite.
  std::optional<double> look(const Training& training);

 private:
  int64_t images_ = 0;
  double sum_ = 0;
};

// Writes metrics.jsonl, on the first rank. program/README.md describes a line.
class Logbook {
 public:
  // `every`: steps from line to line, 0: epochs only. Throws IoError.
  Logbook(const RunDirectory& run, Training& training, int64_t step_batch, int64_t every,
          bool tensorboard);

  void begin_epoch();  // times are those of training alone
  void after_step();
  void write(const nlohmann::json& line);  // the line of an epoch

 private:
  const RunDirectory& run_;
  Training& training_;
  const int64_t step_batch_;
  const int64_t every_;
  std::optional<EventFile> events_;
  LossSince loss_;
  std::chrono::steady_clock::time_point since_{};
  int64_t steps_ = 0;  // since then
  double data_ = 0;
  double ranks_ = 0;
};

}  // namespace ringgrad::program
