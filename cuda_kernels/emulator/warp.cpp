// The computations of a warp's collectives once all lanes of their mask have arrived: shuffles,
// votes, matrix instructions.
#include <bit>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/hopper.h"

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

// ---- Hopper's collectives -----------------------------------------------------------------------

std::string combine_whole_warp(Lane*, uint32_t arrived) {
  return arrived == ~0u ? "" : "the whole warp must take part";
}

// PTX leaves open which lane it is.
std::string combine_elect(Lane* lanes, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  const uint32_t random = running_block->random() % kWarpSize;
  const bool any = running_block->schedule() == Schedule::Random;
  const uint32_t first = running_block->schedule() == Schedule::Forward ? 0 : kWarpSize - 1;
  for (uint32_t lane = 0; lane < kWarpSize; ++lane)
    lanes[lane].out = lane == (any ? random : first);
  return "";
}

std::string combine_product(Lane* lanes, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  std::array<ProductCall*, kWarpSize> calls;
  for (size_t lane = 0; lane < kWarpSize; ++lane)
    calls[lane] = reinterpret_cast<ProductCall*>(lanes[lane].in);
  return running_block->async().issue(running_block->warp(), calls);
}

std::string combine_product_fence(Lane*, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  return running_block->async().fence_products(running_block->warp());
}

std::string combine_product_commit(Lane*, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  running_block->async().commit_products(running_block->warp());
  return "";
}

namespace {

struct StmatrixOperands {
  uint16_t* row;
  const unsigned* words;
  int count;
};

template <bool kTranspose>
std::string combine_stmatrix(Lane* lanes, uint32_t arrived) {
  if (arrived != ~0u) return "the whole warp must take part";
  const auto operands = [&](int lane) -> const StmatrixOperands& {
    return *reinterpret_cast<StmatrixOperands*>(lanes[lane].in);
  };
  for (int matrix = 0; matrix < operands(0).count; ++matrix)
    for (int lane = 0; lane < kWarpSize; ++lane)
      for (int half = 0; half < 2; ++half) {
        const int row = lane / 4;
        const int column = lane % 4 * 2 + half;
        operands(matrix * 8 + (kTranspose ? column : row)).row[kTranspose ? row : column] =
            static_cast<uint16_t>(operands(lane).words[matrix] >> (16 * half));
      }
  return "";
}

}  // namespace

void stmatrix(void* row, const unsigned (&words)[4], int count, bool transpose, Site site) {
  if (running_block->lane() < 8 * count) {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
      running_block->fail(site, "stmatrix: the row's address is not aligned to 16 bytes");
    if (observer) observer->access({row, 16, true, false, __builtin_return_address(0)});
    running_block->async().note_write(row, 16);
  }
  const StmatrixOperands mine{static_cast<uint16_t*>(row), words, count};
  whole_warp(transpose ? combine_stmatrix<true> : combine_stmatrix<false>, &mine, "stmatrix", site);
}

void wait_for_previous_launch() {
  if (observer) observer->wait_for_previous_launch();
}

unsigned shared_address(const void* p, Site site) {
  const Block& block = *running_block;
  const auto offset = static_cast<const char*>(p) - static_cast<char*>(block.dynamic_shared());
  if (!block.dynamic_shared() || offset < 0 ||
      offset > static_cast<ptrdiff_t>(block.grid().shared_bytes))
    block.fail(site, "an address that is not in the block's dynamic shared memory");
  return static_cast<unsigned>(offset) + kFirstSharedAddress;
}

uint64_t* in_block(uint64_t* p, unsigned rank, Site site) {
  const Block& block = *running_block;
  const int member = static_cast<int>(rank);
  if (member >= block.members())
    block.fail(site, str("block ", rank, " of a cluster of ", block.members()));
  if (block.exited(member)) block.fail(site, str("block ", rank, " of the cluster has exited"));
  const unsigned offset = shared_address(p, site) - kFirstSharedAddress;
  return reinterpret_cast<uint64_t*>(static_cast<char*>(block.dynamic_shared(member)) + offset);
}

}  // namespace ringgrad::emulator
