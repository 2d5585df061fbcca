// What the warp intrinsics compute once all lanes of their mask are there.
#include <bit>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {

std::string combine_shuffle(Lane* lanes, uint32_t arrived) {
  for (uint32_t left = arrived; left; left &= left - 1) {
    Lane& lane = lanes[std::countr_zero(left)];
    if (!(arrived >> lane.source & 1))
      return str("lane ", std::countr_zero(left), " reads lane ", lane.source,
                 ", which is not in the mask or has exited");
    lane.out = lanes[lane.source].in;
  }
  return "";
}

std::string combine_ballot(Lane* lanes, uint32_t arrived) {
  uint32_t votes = 0;
  for (uint32_t left = arrived; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (lanes[lane].in) votes |= 1u << lane;
  }
  for (uint32_t left = arrived; left; left &= left - 1) lanes[std::countr_zero(left)].out = votes;
  return "";
}

std::string combine_nothing(Lane*, uint32_t) { return ""; }

}  // namespace ringgrad::emulator
