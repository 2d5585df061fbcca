// Runs one step of a kernel's ladder alone. It gives the least time that the operands allow a GPU.
// Beside that it gives the measured time, or, if the GPU is emulated, the memory requests.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/core/device/access_counter.h"
#include "ringgrad/core/kernels/ladder.h"

namespace ringgrad::program {

// The limits of a card per second, from its maker's data sheet.
struct Card {
  const char* name;
  double bytes;          // to and from its memory
  double operations_16;  // multiplications and additions of 16-bit numbers, on tensor cores, dense
  double operations_32;  // operations of float32, on CUDA cores
};
// Returns the card that a device's description names; nullptr if it is unknown.
const Card* card_of(const std::string& description);
// Returns the card whose limits are used if there is no GPU.
const Card& usual_card();

struct StepResult {
  int step;  // from 0
  DType dtype;
  std::string shapes;
  double operations;
  double bytes;
  double floor_us = 0;  // 0: of a card that we do not know
  bool by_operations = false;
  double microseconds = 0;  // 0: counted instead
  KernelCounts counts;

  // Returns the sectors read from and written to global memory, as a multiple of the least number.
  double moved() const;
};

// REQUIRES: problem.supports(step). `card` may be nullptr. On an emulated device it counts instead
// of timing.
StepResult run_step(const LadderProblem& problem, int step, Device device, DType dtype,
                    const Card* card, bool emulated);

// `ladder`'s step as numbers, for --json.
nlohmann::json as_json(const Ladder& ladder, const StepResult& result);

}  // namespace ringgrad::program
