// oneDNN's convolutions, as the vendor provider of the CPU; 2.x (Debian 12 has 2.6.3) and 3.x. Channel-blocked images
// are its nChw16c, so nothing is reordered but the filters. What oneDNN has no kernel for goes to the native ones.
#include <array>
#include <map>
#include <memory>
#include <mutex>

#include <dnnl.hpp>
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
#include <omp.h>
#endif

#include "core/autotune.h"
#include "core/check.h"
#include "core/conv_algorithm.h"
#include "core/cpu/widen.h"
#include "core/cpu/workspace.h"
#include "core/kernels.h"
#include "core/parallel.h"

namespace ringgrad::cpu {
namespace {

using dnnl::memory;

enum class Pass : int64_t { Forward, BackwardInput, BackwardWeight };
const char* name(Pass pass) {
  return pass == Pass::Forward         ? "conv2d"
         : pass == Pass::BackwardInput ? "conv2d_backward_input"
                                       : "conv2d_backward_weight";
}

const dnnl::engine& engine() {
  static const dnnl::engine* const cpu = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *cpu;
}

// The arguments of a call: x and w stand for dx and dw in the backward passes, y for dy.
struct Call {
  Pass pass;
  const Tensor &x, &w, &y;
  Tensor bias;
  const Conv2dOptions& o;
};

memory::data_type data_type(const Tensor& x) {
  return x.dtype() == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc images(const Tensor& x) {
  const Shape& s = x.shape();
  const auto tag = x.is_channel_blocked() ? memory::format_tag::nChw16c : memory::format_tag::nchw;
  return {{s[0], s[1], s[2], s[3]}, data_type(x), tag};
}

// The filters as the tensor holds them, and as the primitive may choose to have them.
memory::dims filter_sizes(const Call& c) {
  const Shape& s = c.w.shape();
  if (c.o.groups == 1) return {s[0], s[1], s[2], s[3]};
  return {c.o.groups, s[0] / c.o.groups, s[1], s[2], s[3]};
}
memory::desc plain_filters(const Call& c) {
  const auto tag = c.o.groups == 1 ? memory::format_tag::oihw : memory::format_tag::goihw;
  return {filter_sizes(c), data_type(c.w), tag};
}
memory::desc any_filters(const Call& c) {  // gradients are summed in float32 whatever the images' dtype
  const auto dtype = c.pass == Pass::BackwardWeight ? memory::data_type::f32 : data_type(c.x);
  return {filter_sizes(c), dtype, memory::format_tag::any};
}

// A primitive for one kind of call, and the memory it wants.
struct Primitive {
  dnnl::primitive run;
  memory::desc filters, scratch;
};

// The descriptor of a primitive: 3.x takes the arguments directly, 2.x by way of an operation descriptor.
template <class Operation, class... Hint, class... Arguments>
typename Operation::primitive_desc describe(const dnnl::primitive_attr& attributes, std::tuple<Hint...> hint,
                                            const Arguments&... arguments) {
  return std::apply(
      [&](const auto&... forward) {
#if DNNL_VERSION_MAJOR >= 3
        return typename Operation::primitive_desc(engine(), arguments..., forward..., attributes);
#else
        return typename Operation::primitive_desc({arguments...}, attributes, engine(), forward...);
#endif
      },
      hint);
}

Primitive make(const Call& c) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto algorithm = conv_algorithm() == ConvAlgorithm::Direct ? dnnl::algorithm::convolution_direct
                                                                   : dnnl::algorithm::convolution_auto;
  const auto& [stride, padding, dilation, groups] = c.o;
  const Shape &x = c.x.shape(), &w = c.w.shape(), &y = c.y.shape();
  const memory::dims strides = {stride.h, stride.w}, gaps = {dilation.h - 1, dilation.w - 1};
  const memory::dims before = {padding.h, padding.w};
  const memory::dims after = {(y[2] - 1) * stride.h + dilation.h * (w[2] - 1) + 1 - x[2] - padding.h,
                              (y[3] - 1) * stride.w + dilation.w * (w[3] - 1) + 1 - x[3] - padding.w};
  const memory::desc bias =
      c.bias.defined() ? memory::desc({w[0]}, memory::data_type::f32, memory::format_tag::x) : memory::desc();
  const memory::desc filters(filter_sizes(c), data_type(c.x), memory::format_tag::any);
  const auto forward =
      describe<dnnl::convolution_forward>(attributes, std::tuple<>(), dnnl::prop_kind::forward_training, algorithm,
                                          images(c.x), filters, bias, images(c.y), strides, gaps, before, after);
  if (c.pass == Pass::Forward)
    return {dnnl::convolution_forward(forward), forward.weights_desc(), forward.scratchpad_desc()};
  if (c.pass == Pass::BackwardInput) {
    const auto backward =
        describe<dnnl::convolution_backward_data>(attributes, std::tie(forward), algorithm, images(c.x), any_filters(c),
                                                  images(c.y), strides, gaps, before, after);
    return {dnnl::convolution_backward_data(backward), backward.weights_desc(), backward.scratchpad_desc()};
  }
  const auto backward = describe<dnnl::convolution_backward_weights>(
      attributes, std::tie(forward), algorithm, images(c.x), any_filters(c), images(c.y), strides, gaps, before, after);
  return {dnnl::convolution_backward_weights(backward), backward.diff_weights_desc(), backward.scratchpad_desc()};
}

std::string key_of(Stream stream, const Call& c) {
  const auto& [stride, padding, dilation, groups] = c.o;
  const auto layout = [](const Tensor& t) { return t.is_channel_blocked() ? " blocked" : " contiguous"; };
  return str(name(c.pass), ' ', c.x.dtype(), layout(c.x), layout(c.y), " x ", c.x.shape(), " w ", c.w.dtype(),
             c.w.shape(), " stride ", stride.h, "x", stride.w, " padding ", padding.h, "x", padding.w, " dilation ",
             dilation.h, "x", dilation.w, " groups ", groups, c.bias.defined() ? " bias" : "", " conv ",
             static_cast<int>(conv_algorithm()), " threads ", thread_count(stream));
}

// The primitive for a call, made at the first of its kind; nullptr where oneDNN has none.
std::shared_ptr<const Primitive> find(const std::string& key, const Call& c) {
  static std::mutex mutex;
  static auto* const cache = new std::map<std::string, std::shared_ptr<const Primitive>>;
  std::lock_guard lock(mutex);
  const auto [at, is_new] = cache->try_emplace(key);
  if (!is_new) return at->second;
  const bool known_dtype = c.x.dtype() == DType::Float32 || c.x.dtype() == DType::BFloat16;
  if (!known_dtype || c.x.numel() == 0 || c.w.numel() == 0 || c.y.numel() == 0) return nullptr;
  try {
    at->second = std::make_shared<Primitive>(make(c));
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw Error(str("conv2d: oneDNN says ", error.what()));
  }
  return at->second;
}

void run(Stream stream, const Primitive& primitive, const Call& c) {
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
  omp_set_num_threads(thread_count(stream));
#endif
  dnnl::stream queue(engine());
  const Workspace<char> scratch(stream, static_cast<int64_t>(primitive.scratch.get_size()));
  const memory x(images(c.x), engine(), c.x.raw_data()), y(images(c.y), engine(), c.y.raw_data());
  memory plain(plain_filters(c), engine(), c.w.raw_data());
  const bool in_place = primitive.filters == plain.get_desc();
  const Workspace<char> chosen(stream, in_place ? 0 : static_cast<int64_t>(primitive.filters.get_size()));
  memory filters = in_place ? plain : memory(primitive.filters, engine(), chosen.data());
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SCRATCHPAD, memory(primitive.scratch, engine(), scratch.data())}};
  const bool backward_weight = c.pass == Pass::BackwardWeight;
  if (!in_place && !backward_weight) dnnl::reorder(plain, filters).execute(queue, plain, filters);
  if (c.pass == Pass::Forward) {
    arguments.insert({{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, filters}, {DNNL_ARG_DST, y}});
    if (c.bias.defined())
      arguments.insert({DNNL_ARG_BIAS, memory({{c.bias.numel()}, memory::data_type::f32, memory::format_tag::x},
                                              engine(), c.bias.raw_data())});
  } else if (backward_weight) {
    arguments.insert({{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_WEIGHTS, filters}, {DNNL_ARG_DIFF_DST, y}});
  } else {
    arguments.insert({{DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_WEIGHTS, filters}, {DNNL_ARG_DIFF_DST, y}});
  }
  primitive.run.execute(queue, arguments);
  if (!in_place && backward_weight) dnnl::reorder(filters, plain).execute(queue, filters, plain);
  queue.wait();
}

// oneDNN, or native() where it has nothing, or the faster of the two under autotune.
template <class Native>
void dispatch(Stream stream, const Call& c, Native&& native) {
  const auto without_vendor = [&] {
    ProviderGuard guard(Provider::Native);
    native();
  };
  const std::string key = key_of(stream, c);
  const std::shared_ptr<const Primitive> primitive = find(key, c);
  if (!primitive) return without_vendor();
  const auto vendor = [&] { run(stream, *primitive, c); };
  autotune() ? run_fastest(key, without_vendor, vendor) : vendor();
}

void conv2d_onednn(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                   const Conv2dOptions& o) {
  dispatch(stream, {Pass::Forward, x, w, y, in_dtype(b, DType::Float32), o}, [&] { kernels::conv2d(y, x, w, b, o); });
}
void conv2d_backward_input_onednn(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  const Conv2dOptions& o) {
  dispatch(stream, {Pass::BackwardInput, dx, w, dy, {}, o}, [&] { kernels::conv2d_backward_input(dx, dy, w, o); });
}
void conv2d_backward_weight_onednn(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& o) {
  dispatch(stream, {Pass::BackwardWeight, x, dw, dy, {}, o}, [&] { kernels::conv2d_backward_weight(dw, dy, x, o); });
}

REGISTER_KERNEL(conv2d, DeviceType::CPU, Provider::Vendor, conv2d_onednn);
REGISTER_KERNEL(conv2d_backward_input, DeviceType::CPU, Provider::Vendor, conv2d_backward_input_onednn);
REGISTER_KERNEL(conv2d_backward_weight, DeviceType::CPU, Provider::Vendor, conv2d_backward_weight_onednn);

}  // namespace
}  // namespace ringgrad::cpu
