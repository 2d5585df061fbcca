// The generic suites: every row of op_specs() on every device, provider, dtype and arrangement.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/gradcheck.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test::op_test {

namespace {

struct Setting {
  Device device = {};
  DType dtype = DType::Float64;
  Arrangement arrangement = Arrangement::Contiguous;
  Provider provider = Provider::Native;
  DType rounded_to = dtype;  // the precision of the inputs' values

  std::string describe() const {
    return str(device, ' ', ringgrad::name(provider), ' ', dtype, ' ', name(arrangement));
  }
};

struct Results {
  Tensors outputs;
  std::vector<std::vector<double>> grads;  // for inputs that want a gradient, in order
  std::string changed;                     // an input whose values are not what they were, or empty
};

Tensors make_inputs(const Sample& sample, const Setting& setting) {
  Tensors inputs;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Input& input = sample.inputs[i];
    const DType dtype = input.dtype_for(setting.dtype);
    inputs.push_back(arrange(values_of(input, static_cast<int>(i), setting.rounded_to), dtype,
                             setting.device, setting.arrangement, i));
    if (input.wants_grad && is_floating(dtype)) inputs.back().set_requires_grad();
  }
  return inputs;
}

// Returns the gradient with which backward starts: numbers that every dtype holds exactly.
Array weights_of(const Tensor& y) {
  Array weights = values_of(whole(y.shape(), -12, 13), 100, DType::Float64);
  for (double& w : weights.values) w /= 8;
  return weights;
}

// Runs the operation; then backward from each output, with its weights, or with one weight for all
// elements, seen with stride 0 as sum() would give it.
Results run(const OpSpec& spec, const Sample& sample, const Setting& setting, bool backward,
            bool same_weight = false) {
  ProviderGuard provider(setting.provider);
  const Tensors inputs = make_inputs(sample, setting);
  Results results;
  results.outputs = spec.run(inputs);
  for (const Tensor& y : results.outputs) {
    if (!backward || !y.requires_grad()) continue;
    y.backward(same_weight ? Tensor(full({}, 0.625, {y.dtype(), y.device()}).storage(), y.shape(),
                                    Strides(std::vector<int64_t>(y.dim())), 0, y.dtype())
                           : arrange(weights_of(y), y.dtype(), setting.device, setting.arrangement,
                                     inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double> original =
        values_of(sample.inputs[i], static_cast<int>(i), setting.rounded_to).values;
    const std::string changed = difference(inputs[i], original, {DType::Int64});
    if (!changed.empty()) results.changed = str("input ", i, ": ", changed);
    if (backward && inputs[i].requires_grad())
      results.grads.push_back(inputs[i].grad() ? to_vector<double>(inputs[i].grad())
                                               : std::vector<double>{});
  }
  return results;
}

std::vector<Provider> providers_of(const OpSpec& spec, Device device) {
  std::vector<Provider> providers = {Provider::Native};
  if (device.type == DeviceType::CPU) providers.push_back(Provider::Reference);
  const auto has_vendor = [device](const std::string& name) {
    const KernelBase* kernel = find_kernel(name);
    return kernel && kernel->has(device.type, Provider::Vendor);
  };
  if (std::any_of(spec.kernels.begin(), spec.kernels.end(), has_vendor))
    providers.push_back(Provider::Vendor);
  return providers;
}

// Every kernel that the row reaches, and those that every test needs, have an implementation there.
bool runs_on(const OpSpec& spec, DeviceType device) {
  if (device_count(device) == 0) return false;
  std::vector<std::string> needed = spec.kernels;
  needed.insert(needed.end(), {"fill", "copy"});
  if (device == DeviceType::CUDA) needed.push_back("copy_to_host");
  return std::all_of(needed.begin(), needed.end(), [device](const std::string& name) {
    const KernelBase* kernel = find_kernel(name);
    return kernel &&
           (kernel->has(device, Provider::Native) || kernel->has(device, Provider::Vendor));
  });
}

std::vector<Arrangement> arrangements_of(const OpSpec& spec, const Sample& sample) {
  if (spec.bare_kernel) return {Arrangement::Contiguous};
  const bool large = sample.is_large();
  std::vector<Arrangement> all = {Arrangement::Contiguous};
  if (!large) all.insert(all.end(), {Arrangement::Reversed, Arrangement::Gaps});
  const auto image = [](const Input& input) { return input.shape.dim() == 4; };
  if (std::none_of(sample.inputs.begin(), sample.inputs.end(), image)) return all;
  all.insert(all.end(), {Arrangement::ChannelsLast, Arrangement::ChannelBlocked});
  if (!large) all.push_back(Arrangement::Mixed);
  return all;
}

// So many that the reference kernels take long to look at each by two runs.
bool has_many_derivatives(const Sample& sample) {
  constexpr int64_t kMany = 1000;
  int64_t derivatives = 0;
  for (const Input& input : sample.inputs) derivatives += input.shape.numel();
  return derivatives > kMany;
}

Tolerance tolerance_of(const OpSpec& spec, DType dtype) { return {dtype, spec.terms}; }

Array array_of(const Tensor& x) {
  Array array(x.shape());
  array.values = to_vector<double>(x);
  return array;
}

// The channels beyond C in the last block of a channel-blocked tensor.
bool padding_is_zero(const Tensor& x) {
  const Shape& s = x.shape();
  const Shape blocks = {s[0], (s[1] + kChannelBlock - 1) / kChannelBlock, s[2], s[3],
                        kChannelBlock};
  const std::vector<double> raw = to_vector<double>(
      Tensor(x.storage(), blocks, contiguous_strides(blocks), x.storage_offset(), x.dtype()));
  const int64_t pixels = s[2] * s[3];
  for (int64_t i = 0; i < static_cast<int64_t>(raw.size()); ++i) {
    const int64_t block = i / (pixels * kChannelBlock) % blocks[1];
    if (block * kChannelBlock + i % kChannelBlock >= s[1] && raw[i] != 0) return false;
  }
  return true;
}

// The reference kernels' results for contiguous inputs of these values, in float64 where the dtype
// is a floating one.
Results by_reference(const OpSpec& spec, const Sample& sample, const Setting& setting) {
  const DType wide = is_floating(setting.dtype) ? DType::Float64 : setting.dtype;
  return run(spec, sample,
             {.dtype = wide, .provider = Provider::Reference, .rounded_to = setting.dtype},
             is_floating(wide));
}

Arrays formula(const OpSpec& spec, const Sample& sample, const Setting& setting) {
  Arrays inputs;
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    inputs.push_back(values_of(sample.inputs[i], static_cast<int>(i), setting.rounded_to));
  return spec.reference(inputs);
}

void check_forward(const OpSpec& spec, const Setting& setting, const Results& results,
                   const Arrays& want) {
  REQUIRE(results.outputs.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const Tensor& y = results.outputs[i];
    INFO("result " << i);
    CHECK(y.shape() == want[i].shape);
    CHECK(difference(y, want[i].values, tolerance_of(spec, setting.dtype)) == "");
    if (y.is_channel_blocked()) CHECK(padding_is_zero(y));
  }
}

void check_gradients(const OpSpec& spec, const Setting& setting, const Results& results,
                     const Results& want) {
  REQUIRE(results.grads.size() == want.grads.size());
  for (size_t i = 0; i < want.grads.size(); ++i) {
    INFO("gradient " << i);
    CHECK(difference(results.grads[i], want.grads[i], tolerance_of(spec, setting.dtype)) == "");
  }
}

// Checks d/dh Σ w f(x + h v) = Σ v dx at h = 0. Here w are the weights of the outputs, v = ±1, and
// dx is the result of backward for w.
void check_slope(const OpSpec& spec, const Sample& sample) {
  const auto sign = [](int64_t j) { return j * 0x9E3779B97F4A7C15 >> 63 ? 1.0 : -1.0; };
  const auto weighted_sum_at = [&](double h) {
    const ProviderGuard reference(Provider::Reference);
    Tensors inputs = make_inputs(sample, {});
    for (Tensor& x : inputs) {
      if (!x.requires_grad()) continue;
      std::vector<double> moved = to_vector<double>(x);
      for (size_t j = 0; j < moved.size(); ++j) moved[j] += h * sign(static_cast<int64_t>(j));
      x = tensor(moved, x.shape());
      x.set_requires_grad();
    }
    double sum = 0;
    for (const Tensor& y : spec.run(inputs)) {
      if (!y.requires_grad()) continue;
      const std::vector<double> values = to_vector<double>(y);
      const std::vector<double> weights = weights_of(y).values;
      for (size_t j = 0; j < values.size(); ++j) sum += weights[j] * values[j];
    }
    return sum;
  };
  double slope = 0;
  double squares = 0;
  for (const std::vector<double>& grad :
       run(spec, sample, {.provider = Provider::Reference}, true).grads)
    for (size_t j = 0; j < grad.size(); ++j) {
      slope += sign(static_cast<int64_t>(j)) * grad[j];
      squares += grad[j] * grad[j];
    }
  const double h = 1e-6;
  const double numeric = (weighted_sum_at(h) - weighted_sum_at(-h)) / (2 * h);
  INFO("backward gives " << slope << ", central differences " << numeric);
  // As gradcheck's, if all elements err alike.
  CHECK(std::abs(slope - numeric) <= 1e-6 * std::sqrt(squares));
}

// Looks at each derivative by two runs, for the samples that are chosen.
void check_derivatives(const OpSpec& spec, Provider provider,
                       const std::function<bool(const Sample&)>& is_chosen) {
  if (spec.dtypes != kFloatingDTypes || spec.bare_kernel) return;
  const ProviderGuard guard(provider);
  for (size_t i = 0; i < spec.samples.size(); ++i) {
    const Sample& sample = spec.samples[i];
    if (!sample.smooth || !is_chosen(sample)) continue;
    const Tensors inputs = make_inputs(sample, {});
    const Tensors outputs = spec.run(inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].requires_grad()) continue;
      INFO(spec.name << ", sample " << i << ", output " << k);
      const auto result = gradcheck([&](const Tensors& in) { return spec.run(in)[k]; }, inputs);
      INFO(result.message);
      CHECK(result.passed);
    }
  }
}

// Every provider, in all dtypes and arrangements, against the reference kernels in float64, and
// against the row's own formula where it has one.
void check_everything(const OpSpec& spec, Device device) {
  for (const DType dtype : spec.dtypes)
    for (size_t i = 0; i < spec.samples.size(); ++i) {
      const Sample& sample = spec.samples[i];
      const Results want = by_reference(spec, sample, {.dtype = dtype, .rounded_to = dtype});
      Arrays outputs;
      for (const Tensor& y : want.outputs) outputs.push_back(array_of(y));
      if (spec.reference) outputs = formula(spec, sample, {.dtype = dtype, .rounded_to = dtype});
      for (const Provider provider : providers_of(spec, device))
        for (const Arrangement arrangement : arrangements_of(spec, sample)) {
          const Setting setting = {device, dtype, arrangement, provider, dtype};
          INFO(spec.name << ", sample " << i << ", " << setting.describe());
          const Results results = run(spec, sample, setting, is_floating(dtype));
          check_forward(spec, setting, results, outputs);
          CHECK(results.changed == "");
          check_gradients(spec, setting, results, want);
          if (!spec.keeps_blocked || results.outputs[0].dim() != 4 ||
              !(sample.inputs[0].shape == sample.inputs.back().shape))
            continue;
          if (arrangement == Arrangement::ChannelBlocked)
            CHECK(results.outputs[0].is_channel_blocked());
          if (arrangement == Arrangement::ChannelsLast && device.is_cuda())
            CHECK(results.outputs[0].is_channels_last());
        }
    }
}

}  // namespace

TEST_CASE("operations and their gradients equal those of the reference kernels", "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) { check_everything(spec, {}); }
  }
}

TEST_CASE("operations on cuda and their gradients equal those of the reference kernels",
          "[ops][cuda]") {
  for (const OpSpec& spec : op_specs()) {
    if (!runs_on(spec, DeviceType::CUDA)) continue;
    DYNAMIC_SECTION(spec.name) { check_everything(spec, Device("cuda")); }
  }
}

// The reference kernels, with which all others are compared above.
TEST_CASE("backward agrees with central differences", "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) {
      check_derivatives(spec, Provider::Reference, [](const Sample& sample) {
        return !sample.is_large() && !has_many_derivatives(sample);
      });
    }
  }
}

// The native kernels where the reference kernels would take long.
TEST_CASE("backward of larger inputs agrees with central differences", "[ops]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) {
      check_derivatives(spec, Provider::Native, [](const Sample& sample) {
        return !sample.is_large() && has_many_derivatives(sample);
      });
    }
  }
}

TEST_CASE("second derivatives agree with central differences of the first", "[ops]") {
  // The first derivatives of a softplus at 1e4 are large, and so is their rounding error.
  const GradcheckOptions options = {.step = 1e-5};
  std::set<std::string> passed;
  for (const OpSpec& spec : op_specs()) {
    if (spec.dtypes != kFloatingDTypes || spec.bare_kernel) continue;
    for (size_t i = 0; i < spec.samples.size(); ++i) {
      const Sample& sample = spec.samples[i];
      if (!sample.smooth || sample.is_empty() || has_many_derivatives(sample)) continue;
      const Tensors inputs = make_inputs(sample, {});
      const Tensors outputs = spec.run(inputs);
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (!outputs[k].requires_grad() || outputs[k].numel() == 0) continue;
        INFO(spec.name << ", sample " << i << ", output " << k);
        const auto result =
            gradgradcheck([&](const Tensors& in) { return spec.run(in)[k]; }, inputs, options);
        INFO(result.message);
        CHECK(result.passed);
        passed.insert(spec.name);
      }
    }
  }
  CHECK(passed.size() == 207);
}

// The same graph runs with create_graph and without: recording changes none of the gradients.
TEST_CASE(
    "a pass that keeps a graph gives the gradients of one that does not, which records nothing",
    "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    if (spec.dtypes != kFloatingDTypes || spec.bare_kernel) continue;
    for (size_t i = 0; i < spec.samples.size(); ++i) {
      INFO(spec.name << ", sample " << i);
      const Tensors inputs = make_inputs(spec.samples[i], {});
      Tensors wanted;
      for (const Tensor& x : inputs)
        if (x.requires_grad()) wanted.push_back(x);
      for (const Tensor& y : spec.run(inputs)) {
        if (!y.requires_grad()) continue;
        autograd::GradOptions options = {
            .grad_outputs = {arrange(weights_of(y), y.dtype(), {}, Arrangement::Contiguous)},
            .retain_graph = true,
            .allow_unused = true};
        const uint64_t before = next_sequence();
        const Tensors plain = autograd::grad({y}, wanted, options);
        CHECK(next_sequence() == before + 2);  // the pass's root, and this
        options.create_graph = true;
        const Tensors recorded = autograd::grad({y}, wanted, options);
        for (size_t k = 0; k < wanted.size(); ++k) {
          CHECK(!(plain[k] && plain[k].requires_grad()));
          REQUIRE(plain[k].defined() == recorded[k].defined());
          if (plain[k])
            CHECK(difference(recorded[k], to_vector<double>(plain[k]),
                             tolerance_of(spec, DType::Float64)) == "");
        }
      }
    }
  }
}

// For inputs too large to look at each derivative of the reference kernels: the one along a
// direction of all inputs at once.
TEST_CASE("backward of the reference kernels agrees with a central difference", "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) {
      for (size_t i = 0; i < spec.samples.size(); ++i) {
        const Sample& sample = spec.samples[i];
        if (!sample.smooth || spec.dtypes != kFloatingDTypes || spec.bare_kernel) continue;
        if (!sample.is_large() && !has_many_derivatives(sample)) continue;
        INFO(spec.name << ", sample " << i);
        check_slope(spec, sample);
      }
    }
  }
}

// A gradient from sum() or mean() has stride 0, whatever the kernels of the operation before it
// would like.
TEST_CASE("backward accepts a gradient whose elements share a place", "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) {
      for (size_t i = 0; i < spec.samples.size(); ++i) {
        if (spec.dtypes != kFloatingDTypes || spec.bare_kernel) continue;
        INFO(spec.name << ", sample " << i);
        const auto f = [&](bool same_weight) {
          return run(spec, spec.samples[i], {}, true, same_weight);
        };
        const Results shared = f(true);
        Sample sample = spec.samples[i];
        const Tensors inputs = make_inputs(sample, {});
        for (const Tensor& y : spec.run(inputs))
          if (y.requires_grad()) y.backward(full(y.shape(), 0.625, {y.dtype()}));
        size_t grad = 0;
        for (const Tensor& x : inputs)
          if (x.requires_grad() && x.grad())
            CHECK(difference(shared.grads[grad++], to_vector<double>(x.grad()),
                             tolerance_of(spec, DType::Float64)) == "");
      }
    }
  }
}

// The kernels for several sets of instructions differ in the order of some sums.
TEST_CASE("the kernels for each of this machine's instructions agree", "[ops][quick]") {
  struct Using {
    const std::string before = isa();
    ~Using() { use_isa(before); }
  } restore;
  for (const BuiltIsa& other : built_isas()) {
    if (!other.on_this_machine || other.name == restore.before) continue;
    for (const OpSpec& spec : op_specs())
      for (const DType dtype : spec.dtypes)
        for (size_t i = 0; i < spec.samples.size(); ++i) {
          INFO(spec.name << ", sample " << i << ", " << dtype << ", " << other.name << " and "
                         << restore.before);
          const auto with = [&](const std::string& name) {
            use_isa(name);
            return run(spec, spec.samples[i], {.dtype = dtype, .rounded_to = dtype},
                       is_floating(dtype));
          };
          const Results here = with(restore.before);
          const Results there = with(other.name);
          for (size_t k = 0; k < here.outputs.size(); ++k)
            CHECK(difference(there.outputs[k], to_vector<double>(here.outputs[k]),
                             tolerance_of(spec, dtype)) == "");
          for (size_t k = 0; k < here.grads.size(); ++k)
            CHECK(difference(there.grads[k], here.grads[k], tolerance_of(spec, dtype)) == "");
        }
  }
}

TEST_CASE("mistakes are refused with a typed error that says what to do", "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) {
      for (const ErrorCase& error : spec.errors) {
        INFO(spec.name << ": " << error.text);
        error.test();
      }
    }
  }
}

TEST_CASE("no graph is built where nobody wants a gradient", "[ops][quick]") {
  for (const OpSpec& spec : op_specs()) {
    DYNAMIC_SECTION(spec.name) {
      const Sample& sample = spec.samples[0];
      const DType dtype = spec.dtypes[0];
      {
        NoGradGuard no_grad;
        for (const Tensor& y : spec.run(make_inputs(sample, {.dtype = dtype}))) CHECK(y.is_leaf());
      }
      Tensors inputs = make_inputs(sample, {.dtype = dtype});
      for (Tensor& x : inputs) x = x.detach();
      for (const Tensor& y : spec.run(inputs)) CHECK(y.is_leaf());
    }
  }
}

TEST_CASE("rows: each has samples with and without elements, and a name of its own",
          "[ops][quick]") {
  std::set<std::string> names;
  for (const OpSpec& spec : op_specs()) {
    INFO(spec.name);
    CHECK(names.insert(spec.name).second);
    const auto empty = [](const Sample& sample) { return sample.is_empty(); };
    CHECK(!std::all_of(spec.samples.begin(), spec.samples.end(), empty));
    CHECK(std::any_of(spec.samples.begin(), spec.samples.end(), empty) == spec.never_empty.empty());
  }
}

TEST_CASE("every kernel has a row, and every row names kernels that exist", "[ops][quick]") {
  std::set<std::string> named;
  for (const OpSpec& spec : op_specs())
    for (const std::string& name : spec.kernels) {
      INFO(spec.name << " names the kernel " << name);
      CHECK(find_kernel(name) != nullptr);
      named.insert(name);
    }
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next()) {
    INFO("kernel " << kernel->name());
    CHECK(named.count(kernel->name()) == 1);
    CHECK(kernel->has(DeviceType::CPU, Provider::Native));
    CHECK(kernel->has(DeviceType::CPU, Provider::Reference));
  }
}

}  // namespace ringgrad::test::op_test
