#include "ringgrad/tests/kernels/op_spec.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "ringgrad/core/factory.h"

namespace ringgrad::test {
namespace {

std::vector<OpSpec> collect() {
  std::vector<OpSpec> all;
  for (auto list : {arithmetic_specs, comparison_specs, function_specs, view_specs, reduce_specs,
                    matmul_specs, conv_specs, pool_specs, norm_specs, loss_specs, indexing_specs,
                    random_specs, image_specs, memory_specs, optimizer_specs})
    for (OpSpec& spec : list()) all.push_back(std::move(spec));
  return all;
}

double rounded(double value, DType dtype) {
  switch (dtype) {
    case DType::Float64: return value;
    case DType::Bool: return value != 0;
    case DType::BFloat16: return static_cast<float>(bfloat16(static_cast<float>(value)));
    case DType::Float16: return static_cast<float>(float16(static_cast<float>(value)));
    default: return static_cast<float>(value);  // integers of the samples are small
  }
}

}  // namespace

const std::vector<OpSpec>& op_specs() {
  static const std::vector<OpSpec> all = collect();
  return all;
}

const KernelBase* find_kernel(const std::string& name) {
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next())
    if (kernel->name() == name) return kernel;
  return nullptr;
}

int64_t Array::offset(const Shape& index) const {
  const Strides strides = contiguous_strides(shape);
  int64_t result = 0;
  for (int d = 0; d < shape.dim(); ++d) result += index[d] * strides[d];
  return result;
}

Shape Array::index(int64_t offset) const {
  Shape result = shape;
  for (int d = shape.dim() - 1; d >= 0; --d) {
    result[d] = offset % shape[d];
    offset /= shape[d];
  }
  return result;
}

Input Input::away_from(double kink) const {
  Input result = *this;
  result.kinks.push_back(kink);
  return result;
}
Input Input::without_grad() const {
  Input result = *this;
  result.wants_grad = false;
  return result;
}
Input Input::kept_wide() const {
  Input result = *this;
  result.per_channel = true;
  return result;
}
DType Input::dtype_for(DType tested) const {
  if (dtype) return *dtype;
  return per_channel && tested != DType::Float64 ? DType::Float32 : tested;
}

Input uniform(const Shape& shape, double low, double high) {
  return {.shape = shape, .low = low, .high = high};
}
Input distinct(const Shape& shape) { return {.values = Input::Values::Distinct, .shape = shape}; }
Input whole(const Shape& shape, int64_t low, int64_t high) {
  return {.values = Input::Values::Integers,
          .shape = shape,
          .low = static_cast<double>(low),
          .high = static_cast<double>(high)};
}
Input integers(const Shape& shape, int64_t low, int64_t high) {
  Input result = whole(shape, low, high);
  result.dtype = DType::Int64;
  return result;
}
Input literal(const Shape& shape, const std::vector<double>& values) {
  return {.values = Input::Values::Literal, .shape = shape, .literal = values};
}
Input labels(const std::vector<double>& values) {
  Input result = literal({static_cast<int64_t>(values.size())}, values);
  result.dtype = DType::Int64;
  return result;
}

bool Sample::is_empty() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const Input& input) { return input.shape.numel() == 0; });
}
bool Sample::is_large() const {
  constexpr int64_t kLarge = 5000;
  int64_t elements = 0;
  for (const Input& input : inputs) elements += input.shape.numel();
  return elements > kLarge;
}
Sample not_smooth(std::vector<Input> inputs) { return Sample(std::move(inputs), false); }

const char* name(Arrangement arrangement) {
  switch (arrangement) {
    case Arrangement::Contiguous: return "contiguous";
    case Arrangement::Reversed: return "reversed in memory";
    case Arrangement::Gaps: return "with gaps";
    case Arrangement::ChannelsLast: return "channels-last";
    case Arrangement::ChannelBlocked: return "channel-blocked";
    default: return "in mixed layouts";
  }
}

Array values_of(const Input& input, int i, DType tested) {
  // Its output is the same everywhere; that of <random>'s distributions is not.
  std::mt19937_64 random(1234 + i);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  Array x(input.shape);
  const int64_t n = x.numel();
  switch (input.values) {
    case Input::Values::Uniform:
      for (double& v : x.values) {
        v = input.low + (input.high - input.low) * unit();
        for (double kink : input.kinks)
          if (std::abs(v - kink) < 0.05) v = kink + (v < kink ? -0.05 : 0.05);
      }
      break;
    case Input::Values::Distinct:
      for (int64_t k = 0; k < n; ++k) x.values[k] = static_cast<double>(k - n / 2) / 8;
      for (int64_t k = n - 1; k > 0; --k) std::swap(x.values[k], x.values[random() % (k + 1)]);
      break;
    case Input::Values::Integers:
      for (double& v : x.values) v = std::floor(input.low + (input.high - input.low) * unit());
      break;
    case Input::Values::Literal: x.values = input.literal; break;
  }
  for (double& v : x.values) v = rounded(v, input.dtype_for(tested));
  return x;
}

Tensor arrange(const Array& values, DType dtype, Device device, Arrangement arrangement, size_t i) {
  constexpr Arrangement kMix[] = {Arrangement::ChannelsLast, Arrangement::Contiguous,
                                  Arrangement::ChannelBlocked};
  if (arrangement == Arrangement::Mixed) arrangement = kMix[i % 3];
  const Shape& shape = values.shape;
  Tensor x;
  switch (arrangement) {
    case Arrangement::Reversed: {
      Shape reversed = shape;
      std::reverse(reversed.begin(), reversed.end());
      Strides strides = contiguous_strides(reversed);
      std::reverse(strides.begin(), strides.end());
      x = empty(reversed, {dtype, device}).as_strided(shape, strides, 0);
      break;
    }
    case Arrangement::Gaps: {
      Shape larger = shape;
      for (int64_t& size : larger) size = 2 * size + 1;
      Strides strides = contiguous_strides(larger);
      int64_t offset = 0;
      for (int64_t& stride : strides) {
        offset += shape.numel() > 0 ? stride : 0;
        stride *= 2;
      }
      x = full(larger, dtype == DType::Bool || !is_floating(dtype) ? 77 : NAN, {dtype, device})
              .as_strided(shape, strides, offset);
      break;
    }
    default: {
      const bool image = shape.dim() == 4 && is_floating(dtype);
      const Layout layout = arrangement == Arrangement::ChannelsLast     ? Layout::ChannelsLast
                            : arrangement == Arrangement::ChannelBlocked ? Layout::ChannelBlocked
                                                                         : Layout::Strided;
      x = empty(shape, {dtype, device, image ? layout : Layout::Strided});
    }
  }
  copy_(x, tensor(values.values, shape));
  return x;
}

Array map(const Array& x, const std::function<double(double)>& f) {
  Array y(x.shape);
  for (int64_t i = 0; i < x.numel(); ++i) y.values[i] = f(x.values[i]);
  return y;
}

Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  const int dims = std::max(a.shape.dim(), b.shape.dim());
  const auto size = [dims](const Array& x, int d) {
    const int own = d - (dims - x.shape.dim());
    return own < 0 ? 1 : x.shape[own];
  };
  Shape shape;
  for (int d = 0; d < dims; ++d) shape.push_back(size(a, d) == 1 ? size(b, d) : size(a, d));
  Array y(shape);
  const auto at = [dims](const Array& x, const Shape& index) {
    Shape own = x.shape;
    for (int d = 0; d < own.dim(); ++d) own[d] = own[d] == 1 ? 0 : index[d + dims - own.dim()];
    return x.values[x.offset(own)];
  };
  for (int64_t i = 0; i < y.numel(); ++i) y.values[i] = f(at(a, y.index(i)), at(b, y.index(i)));
  return y;
}

Array around(const Array& x, int d) {
  int64_t outer = 1;
  int64_t inner = 1;
  for (int i = 0; i < d; ++i) outer *= x.size(i);
  for (int i = d + 1; i < x.shape.dim(); ++i) inner *= x.size(i);
  return reshaped(x, {outer, x.size(d), inner});
}

Array reshaped(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}

}  // namespace ringgrad::test
