// One step of a kernel's ladder, run alone: the least time that its operands allow a GPU, and
// either what it takes, or, where it is emulated, what it asks of the memory.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/core/device/access_counter.h"
#include "ringgrad/core/kernels/ladder.h"

namespace ringgrad::program {

// What a card can do at most per second, by its maker's data sheet.
struct Card {
  const char* name;
  double bytes;          // to and from its memory
  double operations_16;  // multiplications and additions of 16-bit numbers, on tensor cores, dense
  double operations_32;  // of float32, on CUDA cores
};
// The card that a device's description names; nullptr where it is none that we know.
const Card* card_of(const std::string& description);
// Whose floor is told where there is no GPU.
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

  // What is read from and written to global memory, by sectors, as a multiple of the least.
  double moved() const;
};

// REQUIRES: problem.supports(step). `card` may be nullptr. Counts where the device is emulated.
StepResult run_step(const LadderProblem& problem, int step, Device device, DType dtype,
                    const Card* card, bool emulated);

// `ladder`'s step as numbers, for --json.
nlohmann::json as_json(const Ladder& ladder, const StepResult& result);

}  // namespace ringgrad::program
