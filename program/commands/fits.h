// The largest batches that fit in memory, by each way to train that saves some. `ringgrad fit`
// prints them, and so does the error of a training run that has run out of memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ringgrad/models/registry.h"

namespace ringgrad::program {

struct FitOptions {
  std::string model = "resnet18";
  std::optional<models::ModelOptions> images;  // none: the model's usual ones
  int image_size = 0;                          // unless 0, instead of theirs
  uint64_t memory = uint64_t{2} << 30;         // for the tensors of one process
  std::string optimizer = "sgd";
  int ranks = 2;  // in the rows that use several
  std::string device = "cpu";
};

struct Fit {
  std::string options;   // of `train`
  int64_t batch = 0;     // of all ranks together; 0: not even the smallest
  double predicted = 0;  // bytes of a process
  int64_t measured = 0;  // bytes; 0: was not measured
};

// Finds them by training steps on noise, whose memory is that of this process's tensors. Steps of
// `small` images and of twice as many give a line, which predicts the largest batch. Steps of
// predicted batches then close in on the one that fits. Throws OutOfMemoryError, also if a small
// step does not fit.
std::vector<Fit> measured_fits(const FitOptions& options);
// Only predicts them. Leaves out the ways that there is no time for, which begins to be so after
// `seconds`.
std::vector<Fit> predicted_fits(const FitOptions& options, int64_t small, double seconds);

// Returns the fits as lines of a table.
std::vector<std::string> lines_of(const std::vector<Fit>& fits);
std::string megabytes(double bytes);

}  // namespace ringgrad::program
