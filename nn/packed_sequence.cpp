#include "ringgrad/nn/packed_sequence.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::nn {
namespace {

Tensor numbers(const std::vector<int64_t>& values, Device device) {
  return to(tensor<int64_t>(values), device);
}

// Returns the shape of x with these sizes in place of its first `from` ones.
Shape with_sizes(const Tensor& x, const std::vector<int64_t>& sizes, int from) {
  Shape shape;
  for (const int64_t size : sizes) shape.push_back(size);
  for (int d = from; d < x.dim(); ++d) shape.push_back(x.size(d));
  return shape;
}

// Returns at which place of `order` each number is.
Tensor inverse(const char* which, const Tensor& order, int64_t samples) {
  const char* const name = "PackedSequence";
  CHECK_AS(ShapeError, order.shape() == Shape{samples}, name, ": the ", which,
           " indices have shape ", order.shape(), ", expected [", samples,
           "], one for each sample");
  std::vector<int64_t> place(static_cast<size_t>(samples), -1);
  int64_t k = 0;
  for (const int64_t n : to_vector<int64_t>(order)) {
    CHECK_AS(IndexError, n >= 0 && n < samples && place[n] < 0, name, ": number ", k, " of the ",
             which, " indices is ", n, ", expected each number from 0 to ", samples - 1, " once");
    place[n] = k++;
  }
  return numbers(place, order.device());
}

}  // namespace

PackedSequence with_both_orders(const PackedSequence& x) {
  PackedSequence both = x;
  if (x.sorted_indices && !x.unsorted_indices && !x.batch_sizes.empty())
    both.unsorted_indices = inverse("sorted", x.sorted_indices, x.batch_sizes[0]);
  if (x.unsorted_indices && !x.sorted_indices && !x.batch_sizes.empty())
    both.sorted_indices = inverse("unsorted", x.unsorted_indices, x.batch_sizes[0]);
  return both;
}

PackedSequence pack_padded_sequence(const Tensor& x, const Tensor& lengths_,
                                    const PackOptions& options) {
  OpScope scope("pack_padded_sequence");
  const char* const name = current_op();
  CHECK_AS(ShapeError, x.defined() && x.dim() >= 2, name, ": the input has shape ",
           x ? str(x.shape()) : "undefined", ", expected at least 2 dimensions");
  const int64_t steps = x.size(options.batch_first ? 1 : 0);
  const int64_t samples = x.size(options.batch_first ? 0 : 1);
  CHECK_AS(ShapeError, lengths_.defined() && lengths_.shape() == Shape{samples}, name,
           ": the lengths have shape ", lengths_ ? str(lengths_.shape()) : "undefined",
           ", expected [", samples, "], one for each sample");
  CHECK_AS(DTypeError, lengths_.dtype() == DType::Int64, name, ": the lengths are ",
           lengths_.dtype(), ", expected int64");
  CHECK_AS(ShapeError, samples > 0, name, ": there are no samples, expected at least one");
  const Tensor lengths = as_contiguous(on_device(lengths_, {}));
  const int64_t* const length = lengths.data<int64_t>();
  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t n = 0; n < samples; ++n) {
    CHECK(length[n] >= 1 && length[n] <= steps, name, ": the length of sample ", n, " is ",
          length[n], ", expected 1 to ", steps, ", the steps of the input");
    CHECK(!options.enforce_sorted || n == 0 || length[n] <= length[n - 1], name,
          ": the lengths of samples ", n - 1, " and ", n, " are ", length[n - 1], " and ",
          length[n], ", expected falling ones; enforce_sorted = false takes any order");
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length[a] > length[b]; });

  PackedSequence packed;
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < length[order[0]]; ++t) {
    int64_t k = 0;
    for (; k < samples && length[order[k]] > t; ++k)
      rows.push_back(options.batch_first ? order[k] * steps + t : t * samples + order[k]);
    packed.batch_sizes.push_back(k);
  }
  packed.data =
      index_select(reshape(x, with_sizes(x, {steps * samples}, 2)), 0, numbers(rows, x.device()));
  if (options.enforce_sorted) return packed;
  std::vector<int64_t> place(samples);
  for (int64_t k = 0; k < samples; ++k) place[order[k]] = k;
  packed.sorted_indices = numbers(order, x.device());
  packed.unsorted_indices = numbers(place, x.device());
  return packed;
}

std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& x, const PadOptions& options) {
  const PackedSequence packed = with_both_orders(x);
  OpScope scope("pad_packed_sequence");
  const char* const name = current_op();
  CHECK(packed.data.defined() && !packed.batch_sizes.empty(), name,
        ": the sequence is empty, expected one of pack_padded_sequence() or of a layer");
  const auto longest = static_cast<int64_t>(packed.batch_sizes.size());
  const int64_t steps = options.total_length.value_or(longest);
  CHECK(steps >= longest, name, ": total_length is ", steps,
        ", expected at least the longest sample's ", longest);
  const int64_t samples = packed.batch_sizes[0];
  CHECK(samples > 0 && std::ranges::is_sorted(packed.batch_sizes, std::ranges::greater()) &&
            packed.batch_sizes.back() > 0,
        name,
        ": the batch sizes are not at least 1, or increase, expected those of samples in the "
        "order of falling lengths");
  count_elements(name, {steps, samples});
  const int64_t padding = packed.data.size(0);  // the row behind all others
  std::vector<int64_t> place(samples);
  std::iota(place.begin(), place.end(), 0);
  if (packed.unsorted_indices) {
    CHECK_AS(ShapeError, packed.unsorted_indices.shape() == Shape{samples}, name,
             ": the unsorted indices have shape ", packed.unsorted_indices.shape(), ", expected [",
             samples, "], one for each sample");
    const Tensor places = as_contiguous(on_device(packed.unsorted_indices, {}));
    std::copy_n(places.data<int64_t>(), samples, place.begin());
    for (const int64_t k : place)
      CHECK_AS(IndexError, k >= 0 && k < samples, name, ": an unsorted index is ", k,
               ", expected 0 to ", samples - 1);
  }
  std::vector<int64_t> rows(steps * samples, padding);
  const Tensor lengths = zeros({samples}, {.dtype = DType::Int64});
  int64_t begin = 0;
  for (int64_t t = 0; t < longest; ++t) {
    const int64_t present = packed.batch_sizes[t];
    for (int64_t n = 0; n < samples; ++n) {
      if (place[n] >= present) continue;
      rows[options.batch_first ? n * steps + t : t * samples + n] = begin + place[n];
      lengths.data<int64_t>()[n] = t + 1;
    }
    begin += present;
  }
  CHECK_AS(ShapeError, begin == padding, name, ": there are ", padding,
           " rows, the batch sizes together ", begin, ", expected as many");
  const Tensor last =
      full(with_sizes(packed.data, {1}, 1), options.padding_value, packed.data.options());
  const Tensor all = index_select(cat({packed.data, last}), 0, numbers(rows, packed.data.device()));
  const std::vector<int64_t> sizes =
      options.batch_first ? std::vector{samples, steps} : std::vector{steps, samples};
  return {reshape(all, with_sizes(packed.data, sizes, 1)), lengths};
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, Flag batch_first, Real padding_value) {
  OpScope scope("pad_sequence");
  CHECK(!sequences.empty(), "pad_sequence: there are no sequences, expected at least one");
  int64_t steps = 0;
  for (const Tensor& x : sequences) {
    CHECK_AS(ShapeError, x.defined() && x.dim() >= 1, "pad_sequence: sequence ",
             &x - sequences.data(), " is undefined or has no dimension, expected [length, …]");
    steps = std::max(steps, x.size(0));
  }
  std::vector<Tensor> padded;
  for (const Tensor& x : sequences) {
    std::vector<int64_t> widths(2 * x.dim(), 0);  // the last dimension comes first
    widths.back() = steps - x.size(0);
    padded.push_back(pad(x, widths, double{padding_value}));
  }
  return stack(padded, batch_first ? 0 : 1);
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, Flag enforce_sorted) {
  OpScope scope("pack_sequence");
  const Tensor padded = pad_sequence(sequences);
  std::vector<int64_t> lengths;
  for (const Tensor& x : sequences) lengths.push_back(x.size(0));
  return pack_padded_sequence(padded, tensor<int64_t>(lengths), {.enforce_sorted = enforce_sorted});
}

}  // namespace ringgrad::nn
