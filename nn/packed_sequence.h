// Sequences of different lengths in one batch, for recurrent layers (nn/recurrent.h), as in
// torch.nn.utils.rnn:
//
//   const auto packed = nn::pack_padded_sequence(x, lengths, {.enforce_sorted = false});
//   auto [y, state] = lstm(packed);
//   auto [padded, lengths_again] = nn::pad_packed_sequence(y);
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::nn {

// The samples in the order of falling lengths: the rows of all samples at step 0, of all that have
// a step 1, …. Nothing else is in memory, and so layers compute nothing for what is padded.
struct PackedSequence {
  Tensor data;                       // [rows, …]
  std::vector<int64_t> batch_sizes;  // the number of samples at each step
  // int64 [N], on data's device; undefined if the samples came in this order. Place k has sample
  // sorted_indices[k], and sample n is at place unsorted_indices[n].
  Tensor sorted_indices = {};
  Tensor unsorted_indices = {};
};

// Returns x with both orders or with neither: one that is missing is the inverse of the other.
// Throws Error if that one does not have each sample once.
PackedSequence with_both_orders(const PackedSequence& x);

struct PackOptions {
  OnlyByName only_by_name = OnlyByName();
  bool batch_first = false;    // x is [N, T, …] instead of [T, N, …]
  bool enforce_sorted = true;  // the lengths must not increase; else they may have any order
};
// lengths is int64 [N], each at least 1 and at most T, and is read on the host. Throws Error if
// the lengths do not fit.
PackedSequence pack_padded_sequence(const Tensor& x, const Tensor& lengths,
                                    const PackOptions& options = {});
// Sequences [length, …] of one shape else.
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, Flag enforce_sorted = true);

struct PadOptions {
  OnlyByName only_by_name = OnlyByName();
  bool batch_first = false;
  double padding_value = 0;
  std::optional<int64_t> total_length = {};  // T; without it, the greatest length
};
// Returns x [T, N, …], in the order in which the samples came, and their lengths (on the CPU).
std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& x,
                                               const PadOptions& options = {});
// [T, N, …], or [N, T, …] with batch_first, of sequences [length, …].
Tensor pad_sequence(const std::vector<Tensor>& sequences, Flag batch_first = false,
                    Real padding_value = 0);

}  // namespace ringgrad::nn
