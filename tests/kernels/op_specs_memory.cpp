// Rows for the kernels that fill, copy and convert, which every operation stands on.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

std::vector<DType> all_dtypes() {
  std::vector<DType> all = kFloatingDTypes;
  all.insert(all.end(), kIntegerDTypes.begin(), kIntegerDTypes.end());
  all.push_back(DType::Bool);
  return all;
}

// x converted to `dtype`, and from there to int64, where every dtype can be compared exactly.
OpSpec conversion(DType dtype) {
  OpSpec spec;
  spec.name = std::string("copy to ") + ringgrad::name(dtype);
  spec.kernels = {"copy"};
  spec.run = [dtype](const Tensors& in) {
    const Tensor y = empty_like(in[0], dtype);
    const Tensor exact = empty_like(in[0], DType::Int64);
    kernels::copy(y, in[0]);
    kernels::copy(exact, y);
    return Tensors{exact};
  };
  spec.reference = [dtype](const Arrays& in) {
    return Arrays{map(in[0], [dtype](double v) { return dtype == DType::Bool ? v != 0 : v; })};
  };
  spec.samples = {{whole({4, 5}, 0, 100)}, {whole({2, 3, 4, 5}, 0, 2)}, {whole({0, 2}, 0, 2)}};
  spec.dtypes = all_dtypes();
  return spec;
}

}  // namespace

std::vector<OpSpec> memory_specs() {
  std::vector<OpSpec> specs;
  for (DType dtype : all_dtypes()) specs.push_back(conversion(dtype));

  OpSpec fill;
  fill.name = "fill";
  fill.kernels = {"fill"};
  fill.run = [](const Tensors& in) {
    const Tensor y = empty_like(in[0]);
    fill_(y, 1);
    return Tensors{y};
  };
  fill.reference = [](const Arrays& in) { return Arrays{Array(in[0].shape, 1)}; };
  fill.samples = {{whole({4, 5}, 0, 2)}, {whole({2, 3, 4, 5}, 0, 2)}, {whole({0}, 0, 2)}};
  fill.dtypes = all_dtypes();
  specs.push_back(fill);

  // To the host and back, through whichever side does the work.
  OpSpec to_host;
  to_host.name = "copy_to_host";
  to_host.kernels = {"copy_to_host", "copy"};
  to_host.run = [](const Tensors& in) {
    const Tensor host = empty(in[0].shape(), {.dtype = in[0].dtype()});
    const Tensor back = empty_like(in[0]);
    kernels::copy_to_host(in[0], host);
    copy_(back, host);
    return Tensors{host, back};
  };
  to_host.reference = [](const Arrays& in) { return Arrays{in[0], in[0]}; };
  to_host.samples = {{whole({4, 5}, 0, 2)},
                     {whole({19, 35}, 0, 2)},
                     {whole({2, 3, 4, 5}, 0, 2)},
                     {whole({0, 3}, 0, 2)}};
  to_host.dtypes = all_dtypes();
  specs.push_back(to_host);
  return specs;
}

}  // namespace ringgrad::test
