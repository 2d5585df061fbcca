// The computations of a warp's collectives once all lanes of their mask have arrived: shuffles,
// votes, matrix instructions.
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

// ---- tensor cores -------------------------------------------------------------------------------

namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kK = 16;

struct MmaOperands {
  float* d;
  const unsigned* a;
  const unsigned* b;
  ToFloat to_float;

  float a_at(int word, int half) const {
    return to_float(static_cast<uint16_t>(a[word] >> (16 * half)));
  }
  float b_at(int word, int half) const {
    return to_float(static_cast<uint16_t>(b[word] >> (16 * half)));
  }
};

std::string combine_mma(Lane* lanes, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  const auto operands = [&](int lane) -> const MmaOperands& {
    return *reinterpret_cast<MmaOperands*>(lanes[lane].in);
  };
  float a[kM][kK];
  float b[kK][kN];
  float d[kM][kN];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const MmaOperands& mine = operands(lane);
    const int group = lane / 4;
    const int pair = lane % 4 * 2;  // a lane holds pairs of neighbouring elements
    for (int word = 0; word < 4; ++word)
      for (int half = 0; half < 2; ++half)
        a[group + word % 2 * 8][pair + half + word / 2 * 8] = mine.a_at(word, half);
    for (int word = 0; word < 2; ++word)
      for (int half = 0; half < 2; ++half) b[pair + half + word * 8][group] = mine.b_at(word, half);
    for (int i = 0; i < 4; ++i) d[group + i / 2 * 8][pair + i % 2] = mine.d[i];
  }
  for (int m = 0; m < kM; ++m)
    for (int k = 0; k < kK; ++k)
      for (int n = 0; n < kN; ++n) d[m][n] += a[m][k] * b[k][n];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int group = lane / 4;
    const int pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) operands(lane).d[i] = d[group + i / 2 * 8][pair + i % 2];
  }
  return "";
}

struct LdmatrixOperands {
  unsigned* fragment;
  const uint16_t* row;
};

// Matrix j goes to word j of every lane. Lane 4 r + c gets elements 2 c and 2 c + 1 of row r
// (transposed: of column r).
template <bool kTranspose>
std::string combine_ldmatrix(Lane* lanes, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  const auto operands = [&](int lane) -> const LdmatrixOperands& {
    return *reinterpret_cast<LdmatrixOperands*>(lanes[lane].in);
  };
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int row, int column) -> unsigned {
        return operands(matrix * 8 + (kTranspose ? column : row)).row[kTranspose ? row : column];
      };
      const int row = lane / 4;
      const int column = lane % 4 * 2;
      operands(lane).fragment[matrix] = element(row, column) | element(row, column + 1) << 16;
    }
  return "";
}

}  // namespace

void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], ToFloat to_float,
               Site site) {
  const MmaOperands mine{d, a, b, to_float};
  running_block->collective(~0u, {reinterpret_cast<uint64_t>(&mine), 0, 0}, combine_mma, "mma.sync",
                            site);
}

void ldmatrix_x4(unsigned (&fragment)[4], const void* row, bool transpose, Site site) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    running_block->fail(site, "ldmatrix: the row's address is not aligned to 16 bytes");
  if (observer) observer->access({row, 16, false, false, __builtin_return_address(0)});
  const LdmatrixOperands mine{fragment, static_cast<const uint16_t*>(row)};
  running_block->collective(~0u, {reinterpret_cast<uint64_t>(&mine), 0, 0},
                            transpose ? combine_ldmatrix<true> : combine_ldmatrix<false>,
                            "ldmatrix", site);
}

}  // namespace ringgrad::emulator
