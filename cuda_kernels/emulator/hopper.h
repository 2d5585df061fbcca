// The emulator's half of common/hopper.cuh, which documents these functions: calls of the block's
// scheduler and of the units beside it.
#pragma once

#include <type_traits>

#include "ringgrad/cuda_kernels/emulator/include/cuda.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_bf16.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_fp16.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {

// Collectives of a whole warp. wgmma's lanes pass a ProductCall.
std::string combine_whole_warp(Lane* lanes, uint32_t arrived);
std::string combine_elect(Lane* lanes, uint32_t arrived);
std::string combine_product(Lane* lanes, uint32_t arrived);
std::string combine_product_fence(Lane* lanes, uint32_t arrived);
std::string combine_product_commit(Lane* lanes, uint32_t arrived);

inline Lane whole_warp(Combine combine, const void* call, const char* kind, Site site) {
  return running_block->collective(~0u, {reinterpret_cast<uint64_t>(call), 0, 0}, combine, kind,
                                   site);
}

// stmatrix.sync.aligned.m8n8: the reverse of ldmatrix_x4, of `count` matrices.
void stmatrix(void* row, const unsigned (&words)[4], int count, bool transpose, Site site);

void wait_for_previous_launch();

unsigned shared_address(const void* p, Site site);
uint64_t* in_block(uint64_t* p, unsigned rank, Site site);

template <class T>
constexpr ProductCall::Type product_type() {
  if constexpr (std::is_same_v<T, __half>)
    return ProductCall::Float16;
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return ProductCall::BFloat16;
  else
    return ProductCall::TFloat32;
}

template <class... Places>
Coordinates tiled(Places... places) {
  return {.at = {places...}, .rank = sizeof...(places), .im2col = false, .offsets = {}};
}

}  // namespace ringgrad::emulator

namespace ringgrad::cuda {

inline unsigned shared_address(const void* p, RINGGRAD_SITE) {
  return emulator::shared_address(p, site);
}

// ---- mbarriers ----------------------------------------------------------------------------------
inline void mbarrier_init(uint64_t* barrier, unsigned arrivals, RINGGRAD_SITE) {
  emulator::running_block->async().init(barrier, arrivals, site);
}
inline void fence_mbarrier_init() { emulator::running_block->async().fence_init(); }
inline void mbarrier_inval(uint64_t* barrier, RINGGRAD_SITE) {
  emulator::running_block->async().invalidate(barrier, site);
}
inline void mbarrier_arrive(uint64_t* barrier, RINGGRAD_SITE) {
  emulator::running_block->async().arrive(barrier, false, site);
}
inline void mbarrier_expect_tx(uint64_t* barrier, unsigned bytes, RINGGRAD_SITE) {
  emulator::running_block->async().expect(barrier, bytes, site);
}
inline void mbarrier_arrive_expect_tx(uint64_t* barrier, unsigned bytes, RINGGRAD_SITE) {
  emulator::running_block->async().expect(barrier, bytes, site);
  emulator::running_block->async().arrive(barrier, false, site);
}
inline void mbarrier_arrive_cluster(uint64_t* barrier, unsigned rank, RINGGRAD_SITE) {
  emulator::running_block->async().arrive(emulator::in_block(barrier, rank, site), true, site);
}
inline bool mbarrier_try_wait(uint64_t* barrier, unsigned parity, RINGGRAD_SITE) {
  return emulator::running_block->async().test(barrier, parity, false, site);
}
inline void mbarrier_wait(uint64_t* barrier, unsigned parity, RINGGRAD_SITE) {
  emulator::running_block->async().test(barrier, parity, true, site);
}
inline void mbarrier_wait_cluster(uint64_t* barrier, unsigned parity, RINGGRAD_SITE) {
  mbarrier_wait(barrier, parity, site);
}
inline void fence_proxy_async() { emulator::running_block->async().fence_proxy(); }

// ---- tensor copies ------------------------------------------------------------------------------
inline void prefetch_tensor_map(const CUtensorMap*) {}

#define RINGGRAD_TILED(PARAMETERS, ...)                                                            \
  inline void tma_load(void* to, const CUtensorMap* map, uint64_t* barrier,                        \
                       RINGGRAD_UNPACK PARAMETERS, RINGGRAD_SITE) {                                \
    auto& async = emulator::running_block->async();                                                \
    async.load(to, async.tensor_box(map, emulator::tiled(__VA_ARGS__), site), barrier, 0, site);   \
  }                                                                                                \
  inline void tma_load_multicast(void* to, const CUtensorMap* map, uint64_t* barrier,              \
                                 uint16_t mask, RINGGRAD_UNPACK PARAMETERS, RINGGRAD_SITE) {       \
    auto& async = emulator::running_block->async();                                                \
    async.load(to, async.tensor_box(map, emulator::tiled(__VA_ARGS__), site), barrier, mask,       \
               site);                                                                              \
  }                                                                                                \
  inline void tma_store(const CUtensorMap* map, const void* from, RINGGRAD_UNPACK PARAMETERS,      \
                        RINGGRAD_SITE) {                                                           \
    auto& async = emulator::running_block->async();                                                \
    async.store(async.tensor_box(map, emulator::tiled(__VA_ARGS__), site), from, false, site);     \
  }                                                                                                \
  inline void tma_reduce_add(const CUtensorMap* map, const void* from, RINGGRAD_UNPACK PARAMETERS, \
                             RINGGRAD_SITE) {                                                      \
    auto& async = emulator::running_block->async();                                                \
    async.store(async.tensor_box(map, emulator::tiled(__VA_ARGS__), site), from, true, site);      \
  }
#define RINGGRAD_UNPACK(...) __VA_ARGS__

RINGGRAD_TILED((int x), x)
RINGGRAD_TILED((int x, int y), x, y)
RINGGRAD_TILED((int x, int y, int z), x, y, z)
RINGGRAD_TILED((int x, int y, int z, int u), x, y, z, u)
RINGGRAD_TILED((int x, int y, int z, int u, int v), x, y, z, u, v)
#undef RINGGRAD_TILED
#undef RINGGRAD_UNPACK

inline void tma_load_im2col_multicast(void* to, const CUtensorMap* map, uint64_t* barrier,
                                      uint16_t mask, int c, int w, int h, int n, uint16_t offset_w,
                                      uint16_t offset_h, RINGGRAD_SITE) {
  auto& async = emulator::running_block->async();
  const emulator::Coordinates at{
      .at = {c, w, h, n}, .rank = 4, .im2col = true, .offsets = {offset_w, offset_h}};
  async.load(to, async.tensor_box(map, at, site), barrier, mask, site);
}
inline void tma_load_im2col(void* to, const CUtensorMap* map, uint64_t* barrier, int c, int w,
                            int h, int n, uint16_t offset_w, uint16_t offset_h, RINGGRAD_SITE) {
  tma_load_im2col_multicast(to, map, barrier, 0, c, w, h, n, offset_w, offset_h, site);
}
inline void bulk_load(void* to, const void* from, unsigned bytes, uint64_t* barrier,
                      RINGGRAD_SITE) {
  auto& async = emulator::running_block->async();
  async.load(to, async.bulk_box(from, to, bytes, site), barrier, 0, site);
}
inline void bulk_store(void* to, const void* from, unsigned bytes, RINGGRAD_SITE) {
  auto& async = emulator::running_block->async();
  async.store(async.bulk_box(to, from, bytes, site), from, false, site);
}
inline void bulk_commit() { emulator::running_block->async().commit(); }
template <int kGroups>
void bulk_wait(RINGGRAD_SITE) {
  emulator::running_block->async().wait_prior(kGroups, false, site);
}
template <int kGroups>
void bulk_wait_read(RINGGRAD_SITE) {
  emulator::running_block->async().wait_prior(kGroups, true, site);
}

// ---- a warpgroup's products ---------------------------------------------------------------------
template <class T, int kTransA, int kTransB, int kSums>
void wgmma(float (&d)[kSums], uint64_t a, uint64_t b, int accumulate, RINGGRAD_SITE) {
  static_assert(kSums % 4 == 0 && kSums <= 128, "N is a multiple of 8 up to 256");
  static_assert(sizeof(T) == 2 || (kTransA == 0 && kTransB == 0), "tf32 is not transposed");
  emulator::ProductCall call{d,
                             2 * kSums,
                             accumulate != 0,
                             emulator::product_type<T>(),
                             {a, kTransA != 0},
                             {b, kTransB != 0},
                             nullptr,
                             site};
  emulator::whole_warp(emulator::combine_product, &call, "wgmma", site);
}
template <class T, int kTransB, int kSums>
void wgmma(float (&d)[kSums], const unsigned (&a)[4], uint64_t b, int accumulate, RINGGRAD_SITE) {
  static_assert(kSums % 4 == 0 && kSums <= 128, "N is a multiple of 8 up to 256");
  static_assert(sizeof(T) == 2 || kTransB == 0, "tf32 is not transposed");
  emulator::ProductCall call{
      d, 2 * kSums, accumulate != 0, emulator::product_type<T>(), {}, {b, kTransB != 0}, a, site};
  emulator::whole_warp(emulator::combine_product, &call, "wgmma", site);
}
inline void wgmma_fence(RINGGRAD_SITE) {
  emulator::whole_warp(emulator::combine_product_fence, nullptr, "wgmma.fence", site);
}
inline void wgmma_commit(RINGGRAD_SITE) {
  emulator::whole_warp(emulator::combine_product_commit, nullptr, "wgmma.commit_group", site);
}
template <int kGroups>
void wgmma_wait(RINGGRAD_SITE) {
  emulator::whole_warp(emulator::combine_whole_warp, nullptr, "wgmma.wait_group", site);
  emulator::running_block->async().wait_products(kGroups, site);
}
template <int kCount>
void wgmma_keep(float (&)[kCount]) {}

// ---- warps, blocks, clusters --------------------------------------------------------------------
template <bool kTranspose>
void stmatrix_x4(void* row, unsigned a, unsigned b, unsigned c, unsigned d, RINGGRAD_SITE) {
  emulator::stmatrix(row, {a, b, c, d}, 4, kTranspose, site);
}
template <bool kTranspose>
void stmatrix_x2(void* row, unsigned a, unsigned b, RINGGRAD_SITE) {
  emulator::stmatrix(row, {a, b, 0, 0}, 2, kTranspose, site);
}
inline bool elect_one(RINGGRAD_SITE) {
  return emulator::whole_warp(emulator::combine_elect, nullptr, "elect.sync", site).out != 0;
}
inline void named_barrier_sync(int barrier, int threads, RINGGRAD_SITE) {
  emulator::running_block->barrier(barrier, threads, true, site);
}
inline void named_barrier_arrive(int barrier, int threads, RINGGRAD_SITE) {
  emulator::running_block->barrier(barrier, threads, false, site);
}
template <int kCount>
void set_max_registers_down(RINGGRAD_SITE) {
  emulator::whole_warp(emulator::combine_whole_warp, nullptr, "setmaxnreg", site);
  emulator::running_block->set_registers(kCount, false, site);
}
template <int kCount>
void set_max_registers_up(RINGGRAD_SITE) {
  emulator::whole_warp(emulator::combine_whole_warp, nullptr, "setmaxnreg", site);
  emulator::running_block->set_registers(kCount, true, site);
}
inline unsigned cluster_rank() { return static_cast<unsigned>(emulator::running_block->member()); }
inline unsigned cluster_size() { return static_cast<unsigned>(emulator::running_block->members()); }
template <class T>
T* map_to_rank(T* p, unsigned rank, RINGGRAD_SITE) {
  return reinterpret_cast<T*>(emulator::in_block(
      reinterpret_cast<uint64_t*>(const_cast<std::remove_const_t<T>*>(p)), rank, site));
}
inline void cluster_arrive(RINGGRAD_SITE) { emulator::running_block->cluster_barrier(true, site); }
inline void cluster_wait(RINGGRAD_SITE) { emulator::running_block->cluster_barrier(false, site); }

inline void wait_for_previous_launch() { emulator::wait_for_previous_launch(); }
inline void let_next_launch_begin() {}

template <class T>
unsigned pack(float low, float high) {
  return std::bit_cast<uint16_t>(T(low)) | unsigned{std::bit_cast<uint16_t>(T(high))} << 16;
}

}  // namespace ringgrad::cuda
