// Rows for pooling.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

OpSpec max_pool(const std::string& name, const Pool2dOptions& o, std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"max_pool2d", "max_pool2d_backward"};
  spec.run = [o](const Tensors& in) { return Tensors{max_pool2d(in[0], o)}; };
  spec.samples = std::move(samples);
  spec.terms = 9;  // a pixel may win in every window that covers it
  return spec;
}

OpSpec avg_pool(const std::string& name, const Pool2dOptions& o, std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"avg_pool2d", "avg_pool2d_backward"};
  spec.run = [o](const Tensors& in) { return Tensors{avg_pool2d(in[0], o)}; };
  spec.samples = std::move(samples);
  spec.terms = 9;
  return spec;
}

OpSpec adaptive(const std::string& name, Pair size, std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"adaptive_avg_pool2d", "adaptive_avg_pool2d_backward"};
  spec.run = [size](const Tensors& in) { return Tensors{adaptive_avg_pool2d(in[0], size)}; };
  spec.samples = std::move(samples);
  spec.terms = 35;
  return spec;
}

using Pool = Tensor (*)(const Tensor& x, const Pool2dOptions& options);
std::vector<ErrorCase> window_errors(const std::string& op, Pool run) {
  const auto fails = [run](const Shape& shape, Pool2dOptions o) {
    return [=] { run(zeros(shape), o); };
  };
  return {error<ShapeError>(op + ": the input has shape [3, 4, 4] with 3 dimensions, expected 4",
                            fails({3, 4, 4}, {})),
          error<ShapeError>(
              op + ": the kernel 5×5 does not fit into the input [1, 1, 4, 4] padded by 0×0",
              fails({1, 1, 4, 4}, {.kernel = 5})),
          error<ShapeError>("does not fit", fails({1, 1, 0, 4}, {})),
          error<Error>(op + ": the kernel is 0×2, expected 1 to",
                       fails({1, 1, 4, 4}, {.kernel = {0, 2}})),
          error<Error>(op + ": the stride is -1×1", fails({1, 1, 4, 4}, {.stride = {-1, 1}})),
          error<Error>(op + ": the padding is 2×0, expected at most half the kernel 3×3",
                       fails({1, 1, 4, 4}, {.kernel = 3, .padding = {2, 0}})),
          error<DTypeError>(op + ": unsupported dtype int64", [run] {
            run(zeros({1, 1, 4, 4}, {.dtype = DType::Int64}), Pool2dOptions{});
          })};
}

}  // namespace

std::vector<OpSpec> pool_specs() {
  std::vector<OpSpec> specs = {
      max_pool("max_pool2d", {},
               {{distinct({2, 3, 4, 6})},
                {distinct({1, 2, 5, 5})},  // the last row and column are not covered
                {distinct({1, 17, 2, 2})},
                {uniform({0, 3, 4, 4})},
                {uniform({2, 5, 32, 35})},
                not_smooth({literal({1, 1, 2, 4}, {1, 1, NAN, 2, 1, 1, 3, NAN})})}),
      max_pool("max_pool2d 3×3, stride 2, padding 1", {.kernel = 3, .stride = 2, .padding = 1},
               {{distinct({2, 3, 6, 7})}, {distinct({1, 1, 1, 1})}, {uniform({0, 1, 4, 4})}}),
      max_pool("max_pool2d overlapping", {.kernel = {3, 2}, .stride = 1, .padding = {0, 1}},
               {{distinct({2, 2, 5, 4})},
                {uniform({2, 2, 5, 4}, -3, -1)},  // padding must not win with its zeros
                {uniform({0, 2, 5, 4})},
                not_smooth({literal({1, 1, 4, 3}, {5, NAN, 1, 2, NAN, 7, 7, 0, 7, 1, 3, 3})})}),
      avg_pool("avg_pool2d", {},
               {{uniform({2, 3, 4, 6})},
                {uniform({1, 17, 5, 5})},
                {uniform({0, 3, 4, 4})},
                {uniform({2, 5, 32, 35})}}),
      avg_pool("avg_pool2d padded, padding counts", {.kernel = 3, .stride = {1, 2}, .padding = 1},
               {{uniform({2, 3, 5, 6})}, {uniform({0, 3, 4, 4})}}),
      avg_pool("avg_pool2d padded, padding does not count",
               {.kernel = {3, 2}, .stride = 2, .padding = 1, .count_padding = false},
               {{uniform({2, 3, 5, 6})}, {uniform({0, 3, 4, 4})}}),
      adaptive("adaptive_avg_pool2d to 1×1", 1,
               {{uniform({2, 3, 5, 7})}, {uniform({2, 17, 4, 4})}, {uniform({0, 3, 4, 4})}}),
      adaptive("adaptive_avg_pool2d", {3, 2}, {{uniform({2, 3, 5, 7})}, {uniform({0, 3, 4, 4})}}),
      adaptive("adaptive_avg_pool2d to nothing", {0, 2},
               {{uniform({2, 3, 5, 7})}, {uniform({0, 3, 4, 4})}}),
      adaptive("adaptive_avg_pool2d to a larger size", {7, 4},
               {{uniform({2, 3, 3, 2})}, {uniform({0, 3, 4, 4})}}),
  };
  specs[0].errors = window_errors("max_pool2d", max_pool2d);
  specs[0].errors.push_back(
      error<ShapeError>("[0, 1, 65536, 32768] padded by 0×0 have more than 2^31 - 1 pixels", [] {
        max_pool2d(empty({0, 1, 65536, 32768}), {});
      }));
  specs[3].errors = window_errors("avg_pool2d", avg_pool2d);
  specs[6].errors = {
      error<Error>("adaptive_avg_pool2d: the output size is -1×2, expected at least 0",
                   [] {
                     adaptive_avg_pool2d(zeros({1, 1, 4, 4}), {-1, 2});
                   }),
      error<ShapeError>("adaptive_avg_pool2d: the input [1, 1, 0, 4] has no pixels",
                        [] {
                          adaptive_avg_pool2d(zeros({1, 1, 0, 4}), 1);
                        }),
      error<ShapeError>("adaptive_avg_pool2d: the input has shape [4, 4]", [] {
        adaptive_avg_pool2d(zeros({4, 4}), 1);
      })};
  return specs;
}

}  // namespace ringgrad::test
