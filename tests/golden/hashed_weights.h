// Weights and inputs that C++ and Python make alike, without a file: element i of the tensor NAME
// is a hash of both. The twin of tests/golden/hashed.py; the golden numbers and the comparison with
// PyTorch start from these.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <string_view>

#include "ringgrad/core/shape.h"

namespace ringgrad::test {

// FNV-1a, 64 bits.
constexpr uint64_t fnv1a64(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// A name of which many numbers are made: it is hashed once.
struct HashedName {
  uint64_t hash;
  template <std::convertible_to<std::string_view> Text>
  constexpr HashedName(const Text& name) : hash(fnv1a64(name)) {}
};

// SplitMix64 (Steele, Lea & Flood 2014) of fnv1a64(name) + i.
constexpr uint64_t hashed_bits(const HashedName& name, int64_t i) {
  uint64_t z = name.hash + static_cast<uint64_t>(i) + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// In [-1, 1), a multiple of 2^-52. Inputs are hashed_uniform("input", i).
constexpr double hashed_uniform(const HashedName& name, int64_t i) {
  return static_cast<double>(hashed_bits(name, i) >> 11) * 0x1p-52 - 1.0;
}

constexpr int64_t hashed_label(int64_t i, int64_t classes) {
  return static_cast<int64_t>(hashed_bits("labels", i) % static_cast<uint64_t>(classes));
}

// Note [Mixed and steady weights]
// Comparing gradients to 1e-4 needs a network whose gradient is continuous where it is evaluated.
// With ordinary weights it is not. A ResNet-50 passes ten million values through ReLUs, and
// rounding moves some of them across zero. One such flip changes the gradient of its layer by about
// 1e-3, in any library (PyTorch's float32 differs from its own float64 by 1e-2). So there are two
// kinds of weights:
//   mixed   zero lies in the middle of what each ReLU sees. For float64, where rounding flips
//           nothing.
//   steady  batch norm's scale and shift keep zero about four standard deviations away: half the
//           channels inside a block pass, half are shut, and the sum after a block passes. For
//           float32.
// In both kinds a block's last norm has a small scale, as in trained networks. It keeps errors from
// growing with depth.

// Element i of the entry `name` of a state_dict, of that shape: a parameter or a buffer with
// torchvision's names. Every sum below adds an exact product, so that a fused multiply-add gives
// the same bits.
inline double hashed_state(std::string_view name, const Shape& shape, bool steady, int64_t i) {
  if (name.ends_with("num_batches_tracked")) return 0;
  const double u = hashed_uniform(name, i);
  if (name.ends_with("running_mean")) return 0.1 * u;
  if (name.ends_with("running_var")) return 1.0 + 0.5 * u;
  // He et al. 2015.
  if (shape.dim() >= 2) return std::sqrt(6.0 / static_cast<double>(shape.numel() / shape[0])) * u;

  const auto contains = [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  const bool inner = contains("bn1.");
  const bool outer = contains("bn2.") || contains("bn3.") || contains("downsample.1.");
  if (name.ends_with("bias")) {
    if (steady && inner) return std::copysign(1.0 + u / 16, u);
    return steady && outer ? 0.12 * (1.0 + u / 16) : 0.1 * u;
  }
  if (steady && (inner || outer)) return (inner ? 0.25 : 0.03) * (1.0 + u / 16);
  return (outer ? 0.25 : 1.0) * (1.0 + u / 8);
}

}  // namespace ringgrad::test
