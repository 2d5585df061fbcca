// One row of `ringgrad bench ddp`: a method of data parallelism, measured in processes of its own.
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/program/bench/bench.h"

namespace ringgrad::program {

struct BenchDdpOptions : WorkloadOptions {
  // For a row and round.
  double seconds = 3;
  int rounds = 3;
  bool force = false;
  // --bucket-mb: the first one is ddp's, the others have rows of their own.
  std::vector<std::string> buckets;
  // Numbers of ranks to extrapolate to, and of the nodes they are spread over.
  std::vector<int> predict;
  std::vector<int> nodes;
  // Between nodes.
  double network_us = 30;
  double network_gbit = 25;
  // The run directory whose measurements to explain; "" : measure.
  std::string from;
  // The run directory; "" : runs/NNNN-bench-ddp-MODEL.
  std::string out;
  bool report = true;
  // Measure this row in this process, as one of its ranks; "": all rows.
  std::string row;
};

// Trains options.model on a fixed batch of noise, by the method options.row ("none", "dp",
// "ddp_no_overlap", "ddp"), for options.seconds. Collective; returns rank 0's result. With DDP,
// blocks of steps with and without communication (no_sync) alternate in the same processes, so
// that other load on the machine affects both.
//   images_per_second, step_ms    medians over the blocks; step_quartiles_ms
//   kept_of_no_communication      the median of the ratios of neighbouring blocks; kept_quartiles
//   exposed_ms                    per step: from a rank's last gradient to the averaged ones, the
//                                 mean over the ranks
//   transfer_ms                   the same for the rank that came last, which waited for no other.
//                                 Both are medians over the steps. They are missing on GPUs, where
//                                 the host runs ahead, as are the buckets
//   computed_ms, buckets          the time of the last gradient, and of each bucket, since rank 0's
//                                 backward began; medians
//   copies, copies_ms             dp on the CPU: the number and time of copies between devices in a
//                                 step
//   memory_bytes                  the peak of every device or rank, including shared gradients
//   moved_bytes, busiest_bytes    per step: between all devices, and into and out of the busiest
//   samples                       [bytes, seconds] of an all-reduce between these ranks, or a copy
//                                 between devices
// The first kComparedSteps steps are not timed. If the ranks' parameters differ after them, it
// throws OutOfStepError. Rank 0 writes its parameters to that file, unless its name is empty.
inline constexpr int kComparedSteps = 10;
nlohmann::json measure_row(const BenchDdpOptions& options, ProcessGroup& group,
                           const std::filesystem::path& parameters_file);

// Measures the rows of options.device and options.buckets, each in processes of its own: rounds of
// all rows, in turn, so that a slow minute hits all of them. The document is what
// explain_rounds() takes. Throws UsageError for options that are impossible, JobFailed for a row
// that fails.
nlohmann::json measure_rows(const BenchDdpOptions& options);

}  // namespace ringgrad::program
