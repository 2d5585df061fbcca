// Sums over a convolution's results for the batch norm beside it, from the tiles that are about to
// leave shared memory.
//
// Forward these are the moments of each channel of y. In the gradient of images that are a batch
// norm's output they are the sums that its backward needs, and the gradient is rectified. So each
// result is seen as it is stored, rounded and with its addend.
//
// A warp takes rows of a slice of 64 channels, each thread two neighbouring channels. Of 16 rows it
// takes first their mean, then deviations from it, so nothing cancels. Each warp adds rows
// in the order of its tiles and writes one part at the end, so the bits depend on the shapes alone.
#pragma once

#include "ringgrad/cuda_kernels/common/batch_norm.cuh"
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/common/moments.cuh"

namespace ringgrad::cuda {

// A convolution's sums and their place. Without parts it sums nothing.
template <class T>
struct ColumnSums {
  void* parts = nullptr;  // [part, channels] of Moments<float>, or of Sums<float> for a gradient
  int channels = 0;
  // For a gradient: the batch norm's input, in the memory order of the result, its mean, and the
  // bits of its output, or nullptr without relu.
  const T* x = nullptr;
  const float* mean = nullptr;
  const uint8_t* positive = nullptr;
};

// A row of a slice in shared memory, and its pixel in the whole result; -1 if it means nothing.
struct SummedRow {
  int row;
  int pixel;
};

// A thread's sums over two channels.
template <class T, bool kGradient>
class Columns {
 public:
  // The rows of a call of add(). A gradient's have more operands, so fewer fit into registers.
  static constexpr int kRows = kGradient ? 8 : 16;

  // `column` is the first of the slice's 64 channels.
  __device__ __forceinline__ Columns(const ColumnSums<T>& sums, int column)
      : column_(column + static_cast<int>(threadIdx.x) % 32 * 2),
        counts_(sums.parts && column_ < sums.channels) {}

  // Adds kRows rows of the slice; row(i) is a SummedRow.
  template <class Row>
  __device__ __forceinline__ void add(const ColumnSums<T>& sums, unsigned char* slice,
                                      const Row& row) {
    if (!counts_) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto word_of = [&](int i) {
      return reinterpret_cast<Pair*>(slice + swizzled_128(i, lane / 4) + lane % 4 * 4);
    };
    Pair values[kRows];
    int pixels[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const SummedRow at = row(i);
      pixels[i] = at.pixel;
      values[i] = *word_of(at.row);
    }
    if constexpr (kGradient) {
      Pair x[kRows];
      unsigned bits[kRows];
      const Vector<float, 2> mean = load_vector<2>(sums.mean + column_, 0);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (pixels[i] < 0) continue;
        const int64_t at = int64_t{pixels[i]} * sums.channels + column_;
        x[i] = load_vector<2>(sums.x + at, 0);
        bits[i] = sums.positive ? static_cast<unsigned>(sums.positive[at / 8]) >> at % 8 : 3;
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (pixels[i] < 0) continue;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          if ((bits[i] >> k & 1) == 0) values[i].element[k] = narrow<T>(0.0F);
          const float g = widen(values[i].element[k]);
          first_[k] += g;
          second_[k] += g * (widen(x[i].element[k]) - mean.element[k]);
        }
        *word_of(row(i).row) = values[i];
      }
    } else {
      add_moments(values, pixels);
    }
  }

  // Writes the sums as a part of the two channels.
  __device__ __forceinline__ void store(const ColumnSums<T>& sums, int part) const {
    if (!counts_) return;
    const int64_t at = int64_t{part} * sums.channels + column_;
#pragma unroll
    for (int k = 0; k < 2; ++k)
      if constexpr (kGradient)
        static_cast<Sums<float>*>(sums.parts)[at + k] = {first_[k], second_[k]};
      else
        static_cast<Moments<float>*>(sums.parts)[at + k] = {count_, first_[k], second_[k]};
  }

 private:
  using Pair = Vector<T, 2>;

  __device__ __forceinline__ void add_moments(const Pair (&values)[kRows],
                                              const int (&pixels)[kRows]) {
    float count = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) count += pixels[i] >= 0 ? 1.0F : 0.0F;
    if (count == 0) return;
    const float each = 1 / count;
    const float share = count / (count_ + count);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float mean = 0;
#pragma unroll
      for (int i = 0; i < kRows; ++i) mean += pixels[i] >= 0 ? widen(values[i].element[k]) : 0.0F;
      mean *= each;
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float apart = pixels[i] >= 0 ? widen(values[i].element[k]) - mean : 0.0F;
        squares += apart * apart;
      }
      const float distance = mean - first_[k];  // Chan's formulas, as in common/moments.cuh
      first_[k] += distance * share;
      second_[k] += squares + distance * distance * count_ * share;
    }
    count_ += count;
  }

  int column_;
  bool counts_;
  // The moments' mean and squares, or the sums of g and of g (x - mean).
  float first_[2] = {};
  float second_[2] = {};
  float count_ = 0;
};

}  // namespace ringgrad::cuda
