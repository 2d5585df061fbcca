// Probes of what Hopper's instructions mean where the PTX ISA leaves a doubt, or where kernels rest
// on one sentence of it. Each does one thing, and is compared with plain loops. An emulator that
// passes them believes the same as the kernels do; only a GPU knows. Not yet run on one.
#include "ringgrad/bench/hopper_lab.h"

#include <bit>
#include <cmath>
#include <limits>

#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/launch.h"
#include "ringgrad/cuda_kernels/runtime/tensor_map.h"

namespace ringgrad::lab {
namespace {

using cuda::Mbarrier;
using cuda::TensorMap;

const Device kDevice(DeviceType::CUDA);
using Element = __nv_bfloat16;
using Chunk = cuda::Vector<float>;  // 16 bytes
constexpr int kRowBytes = 128;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

// The chunks of 16 bytes in eight rows of 128 change places: by the address's own bits.
int swizzle(int byte) { return byte ^ (byte >> 7 & 7) << 4; }

// A variant that runs once, and returns its error.
Variant probe(std::string name, std::string shape, double most_error,
              std::function<double(Stream)> run) {
  return {"probe", std::move(name), std::move(shape), 0, 0, most_error, 0, [run](bool) {
            const auto error = std::make_shared<double>(kUnknown);
            Prepared prepared;
            prepared.run = [=](Stream stream, int) { *error = run(stream); };
            prepared.error = [=] { return *error; };
            return prepared;
          }};
}

double largest_difference(const Tensor& found, const std::vector<float>& expected) {
  return relative_error(found, tensor(expected, found.shape()));
}

// ---- products of operands that lie anywhere in shared memory ------------------------------------

// An operand as a matrix descriptor says it: bytes in an image of shared memory.
struct Operand {
  int start;
  int leading;
  int stride;
  int base_offset = 0;
  bool transposed = false;  // M or N is contiguous, not K

  // Returns the place of element (i, k), if the swizzle takes the bits of the address.
  int at(int i, int k) const {
    return swizzle(transposed
                       ? start + i / 64 * leading + k / 8 * stride + k % 8 * kRowBytes + i % 64 * 2
                       : start + i / 8 * stride + i % 8 * kRowBytes + k * 2);
  }
};

__device__ __forceinline__ uint64_t descriptor(const unsigned char* shared, const Operand& x) {
  return cuda::matrix_descriptor(shared + x.start, static_cast<unsigned>(x.leading),
                                 static_cast<unsigned>(x.stride), cuda::Swizzle::Bytes128) |
         static_cast<uint64_t>(x.base_offset) << 49;
}

// d [64, N] = a · b for 16 of K, of operands in a copy of the image.
template <int N, int kTransA, int kTransB>
__global__ void __launch_bounds__(cuda::kWarpgroup)
    product_kernel(const Chunk* image, int bytes, Operand a, Operand b, float* d) {
  DYNAMIC_SHARED_1024(shared);
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += cuda::kWarpgroup)
    reinterpret_cast<Chunk*>(shared)[i] = image[i];
  cuda::fence_proxy_async();
  __syncthreads();
  float total[N / 2] = {};
  cuda::wgmma_keep(total);
  cuda::wgmma_fence();
  cuda::wgmma<Element, kTransA, kTransB>(total, descriptor(shared, a), descriptor(shared, b),
                                         false);
  cuda::wgmma_commit();
  cuda::wgmma_wait<0>();
  cuda::wgmma_keep(total);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    d[row * N + i / 4 * 8 + thread % 4 * 2 + i % 2] = total[i];
  }
}

template <int N, int kTransA, int kTransB>
double product_error(Stream stream, const Operand& a, const Operand& b) {
  constexpr int kM = 64;
  constexpr int kK = 16;
  constexpr int kBytes = 96 * 1024;
  const Tensor image = noise({kBytes / 2}, DType::BFloat16);
  const Tensor d = zeros({kM, N}, {.dtype = DType::Float32, .device = kDevice});
  cuda::launch(product_kernel<N, kTransA, kTransB>, 1, cuda::kWarpgroup,
               kBytes + cuda::kSharedSlack, stream,
               reinterpret_cast<const Chunk*>(image.raw_data()), kBytes, a, b, d.data<float>());
  const std::vector<float> numbers = to_vector<float>(image);
  const auto number = [&](const Operand& x, int i, int k) {
    return numbers.at(static_cast<size_t>(x.at(i, k) / 2));
  };
  std::vector<float> expected;
  for (int m = 0; m < kM; ++m)
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) sum += double{number(a, m, k)} * double{number(b, n, k)};
      expected.push_back(static_cast<float>(sum));
    }
  return largest_difference(d, expected);
}

constexpr int kB = 16 * 1024;  // where b's image begins
constexpr Operand kPlainA{0, 0, 8 * kRowBytes};

// `base_offset` other than 0: it is only reported whether that is right, too.
Variant rows_of_k(std::string name, int shift, int stride, int base_offset = 0) {
  const Operand b{kB + shift * kRowBytes, 0, stride, base_offset};
  return probe(name + (base_offset ? ", base offset " + std::to_string(base_offset) : ""),
               "64x64x16", base_offset ? kUnknown : 1e-5,
               [=](Stream stream) { return product_error<64, 0, 0>(stream, kPlainA, b); });
}
Variant rows_of_n(std::string name, int shift, int leading, int base_offset = 0) {
  const Operand b{kB + shift * kRowBytes, leading, 8 * kRowBytes, base_offset, true};
  return probe(name + (base_offset ? ", base offset " + std::to_string(base_offset) : ""),
               "64x192x16", base_offset ? kUnknown : 1e-5,
               [=](Stream stream) { return product_error<192, 0, 1>(stream, kPlainA, b); });
}
Variant transposed_a(int shift) {
  const Operand a{shift * kRowBytes, 8192, 8 * kRowBytes, 0, true};
  const Operand b{kB, 0, 8 * kRowBytes};
  return probe("a along M, begins " + std::to_string(shift) + " rows later", "64x64x16", 1e-5,
               [=](Stream stream) { return product_error<64, 1, 0>(stream, a, b); });
}

// ---- tensor copies ------------------------------------------------------------------------------

// Loads a box of rank 4 and copies it as it lies.
__global__ void __launch_bounds__(32)
    box_kernel(GRID_CONSTANT(TensorMap) map, int x, int y, int z, int w, int bytes, Chunk* out) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* arrived = reinterpret_cast<Mbarrier*>(shared + bytes);
  if (threadIdx.x == 0) {
    cuda::mbarrier_init(arrived, 1);
    cuda::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::mbarrier_arrive_expect_tx(arrived, static_cast<unsigned>(bytes));
    cuda::tma_load(shared, &map, arrived, x, y, z, w);
  }
  cuda::mbarrier_wait(arrived, 0);
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += 32)
    out[i] = reinterpret_cast<const Chunk*>(shared)[i];
}

// The box of a convolution's tile with its border: outside of the image are zeros.
double border_error(Stream stream, int x0, int y0) {
  constexpr int kChannels = 64;
  constexpr int kSide = 8;
  constexpr int kImages = 2;
  constexpr int kWide = 10;
  constexpr int kHigh = 6;
  const Tensor images = noise({kImages, kSide, kSide, kChannels}, DType::BFloat16);
  const Tensor box = noise({kHigh, kWide, kChannels}, DType::BFloat16);
  constexpr int64_t kPixel = 2 * kChannels;
  const TensorMap map = cuda::tiled_map({DType::BFloat16,
                                         images.raw_data(),
                                         {kChannels, kSide, kSide, kImages},
                                         {kPixel, kPixel * kSide, kPixel * kSide * kSide},
                                         {kChannels, kWide, kHigh, 1}});
  constexpr int kBytes = static_cast<int>(kPixel) * kWide * kHigh;
  cuda::launch(box_kernel, 1, 32, kBytes + sizeof(Mbarrier) + cuda::kSharedSlack, stream, map, 0,
               x0, y0, 1, kBytes, reinterpret_cast<Chunk*>(box.raw_data()));
  const std::vector<float> numbers = to_vector<float>(images);
  std::vector<float> expected(static_cast<size_t>(box.numel()));
  for (int y = 0; y < kHigh; ++y)
    for (int x = 0; x < kWide; ++x)
      for (int c = 0; c < kChannels; ++c) {
        const int row = y0 + y;
        const int column = x0 + x;
        const bool inside = row >= 0 && row < kSide && column >= 0 && column < kSide;
        const int at = swizzle((y * kWide + x) * kRowBytes + 2 * c) / 2;
        expected[static_cast<size_t>(at)] =
            inside ? numbers[static_cast<size_t>(((kSide + row) * kSide + column) * kChannels + c)]
                   : 0;
      }
  return largest_difference(box, expected);
}

// Stores 64 × 64 numbers, the value of each its position.
__global__ void __launch_bounds__(64) clipped_kernel(GRID_CONSTANT(TensorMap) map, int x, int y) {
  DYNAMIC_SHARED_1024(shared);
  const int row = static_cast<int>(threadIdx.x);
  for (int column = 0; column < 64; ++column)
    reinterpret_cast<Element*>(shared + cuda::swizzled_128(row, column / 8))[column % 8] =
        Element(static_cast<float>(row + column));
  cuda::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::tma_store(&map, shared, x, y);
    cuda::bulk_commit();
    cuda::bulk_wait<0>();
  }
}

// The map ends before the memory does: nothing else may change.
double clipped_error(Stream stream, int x0, int y0) {
  constexpr int kWide = 72;
  constexpr int kHigh = 80;
  constexpr int kPitch = 80;
  constexpr int kRows = 96;
  constexpr float kBefore = 77;
  const Tensor y = full({kRows, kPitch}, kBefore, {.dtype = DType::BFloat16, .device = kDevice});
  cuda::launch(
      clipped_kernel, 1, 64, 64 * kRowBytes + cuda::kSharedSlack, stream,
      cuda::tiled_map({DType::BFloat16, y.raw_data(), {kWide, kHigh}, {kPitch * 2}, {64, 64}}), x0,
      y0);
  std::vector<float> expected;
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kPitch; ++column) {
      const bool inside = row < kHigh && column < kWide && row >= y0 && row < y0 + 64 &&
                          column >= x0 && column < x0 + 64;
      expected.push_back(inside ? static_cast<float>(row - y0 + column - x0) : kBefore);
    }
  return largest_difference(y, expected);
}

// ---- stmatrix -----------------------------------------------------------------------------------

// Lane l's word j is the pair (16 l + 2 j, 16 l + 2 j + 1); its row of eight is row l of the
// result.
template <bool kTranspose>
__global__ void __launch_bounds__(32) stmatrix_kernel(Chunk* out) {
  DYNAMIC_SHARED_1024(shared);
  const int lane = static_cast<int>(threadIdx.x);
  unsigned words[4];
  for (int j = 0; j < 4; ++j) {
    const float first = static_cast<float>(lane * 8 + j * 2);
    words[j] = cuda::pack<Element>(first, first + 1);
  }
  cuda::stmatrix_x4<kTranspose>(shared + lane * 16, words[0], words[1], words[2], words[3]);
  __syncwarp();
  out[lane] = reinterpret_cast<const Chunk*>(shared)[lane];
}

template <bool kTranspose>
double stmatrix_error(Stream stream) {
  const Tensor y = noise({32, 8}, DType::BFloat16);
  cuda::launch(stmatrix_kernel<kTranspose>, 1, 32, 512 + cuda::kSharedSlack, stream,
               reinterpret_cast<Chunk*>(y.raw_data()));
  std::vector<float> expected(32 * 8);
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 2; ++e) {
        const int row = lane / 4;
        const int column = lane % 4 * 2 + e;
        const int at =
            kTranspose ? (matrix * 8 + column) * 8 + row : (matrix * 8 + row) * 8 + column;
        expected[static_cast<size_t>(at)] = static_cast<float>(lane * 8 + matrix * 2 + e);
      }
  return largest_difference(y, expected);
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  all.push_back(rows_of_k("plain", 0, 1024));
  for (const int shift : {1, 2, 5, 7, 8, 34, 35}) {
    const std::string name = "b begins " + std::to_string(shift) + " rows later";
    all.push_back(rows_of_k(name, shift, 1024));
    if (shift % 8 != 0) all.push_back(rows_of_k(name, shift, 1024, shift % 8));
  }
  for (const int stride : {1280, 2304, 4352})
    for (const int shift : {0, 1})
      all.push_back(rows_of_k("groups of 8 rows " + std::to_string(stride) +
                                  " bytes apart, shifted by " + std::to_string(shift),
                              shift, stride));
  for (const int shift : {0, 1, 3, 10}) {
    all.push_back(
        rows_of_n("b along N, begins " + std::to_string(shift) + " rows later", shift, 8192));
    all.push_back(rows_of_n(
        "b along N, the next 64 one row later, begins " + std::to_string(shift) + " rows later",
        shift, kRowBytes));
  }
  all.push_back(rows_of_n("b along N, begins 1 row later", 1, 8192, 1));
  for (const int shift : {0, 1, 4}) all.push_back(transposed_a(shift));
  for (const auto& [x, y] :
       {std::pair{-1, -1}, std::pair{0, 0}, std::pair{-1, 3}, std::pair{-1, 7}})
    all.push_back(
        probe("box of a tile with its border at " + std::to_string(x) + ", " + std::to_string(y),
              "2x8x8x64", 0, [=](Stream stream) { return border_error(stream, x, y); }));
  for (const auto& [x, y] :
       {std::pair{0, 0}, std::pair{32, 40}, std::pair{-8, -3}, std::pair{64, 0}})
    all.push_back(probe("store clipped at " + std::to_string(x) + ", " + std::to_string(y), "80x72",
                        0, [=](Stream stream) { return clipped_error(stream, x, y); }));
  all.push_back(probe("stmatrix", "4x8x8", 0, stmatrix_error<false>));
  all.push_back(probe("stmatrix, transposed", "4x8x8", 0, stmatrix_error<true>));
  return all;
}

const bool registered = register_variants(variants());

}  // namespace
}  // namespace ringgrad::lab
