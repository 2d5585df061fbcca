#include "ringgrad/distributed/data_parallel.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

Tensor sum_of(const Tensor& a, const Tensor& b) {  // an undefined a is zero
  if (!a) return b;
  Tensor sum = empty(b.shape(), {b.dtype(), b.device()});
  kernels::add(sum, a, b);
  return sum;
}

// All parameters, once per replica, as one node: outputs[r · n + i] is parameter i on replica r's device. The first
// replica's outputs share memory with the parameters. Backward sums over the replicas, in their order, on the
// parameters' device; it can run only when the last gradient of the last replica has arrived.
std::vector<Tensor> broadcast(const std::vector<Tensor>& parameters, std::span<const Device> devices) {
  std::vector<Tensor> outputs;
  for (size_t r = 0; r < devices.size(); ++r)
    for (const Tensor& parameter : parameters)
      outputs.push_back(r == 0 ? parameter.detach() : copy_of(parameter, {parameter.dtype(), devices[r]}));
  return differentiable(
      "broadcast", parameters, std::move(outputs),
      [n = parameters.size(), replicas = devices.size(), home = devices[0]](std::span<const Tensor> dy) {
        Gradients sums(n);
        for (size_t i = 0; i < n; ++i)
          for (size_t r = 0; r < replicas; ++r)
            if (const Tensor& g = dy[r * n + i]) sums[i] = sum_of(sums[i], on_device(g, home));
        return sums;
      });
}

// Pieces of ⌈N / devices⌉ samples, one for each device as far as they go.
std::vector<Tensor> scatter(const Tensor& x, const std::vector<Device>& devices) {
  const int64_t n = x.size(0), most = static_cast<int64_t>(devices.size()), piece = (n + most - 1) / most;
  std::vector<Tensor> pieces;
  for (int64_t begin = 0; begin < n; begin += piece) {
    const Tensor own = begin == 0 && piece == n ? x : slice(x, 0, begin, std::min(n, begin + piece));
    pieces.push_back(to(contiguous(own), devices[pieces.size()]));
  }
  return pieces;
}

Tensor gather(std::vector<Tensor> outputs, Device device) {
  for (Tensor& output : outputs) output = to(output, device);
  return cat(outputs, 0);
}

// Every handle of `target` now names `source`: its array and its place in the graph.
void become(const Tensor& target, const Tensor& source) {
  target.set_data(source);
  target.set_autograd_meta(source.autograd_meta());
}

}  // namespace

DataParallel::DataParallel(nn::Module& module, const MakeReplica& make_replica, std::vector<Device> devices)
    : module_(module), devices_(std::move(devices)) {
  CHECK(!devices_.empty(), "data_parallel: no devices given, expected at least one");
  for (const Device device : devices_) check_device("data_parallel", device);
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()})
    for (const auto& [name, tensor] : tensors)
      CHECK_AS(DeviceError, tensor.device() == devices_[0], "data_parallel: ", name, " is on ", tensor.device(),
               ", expected the first device, ", devices_[0], "; move the module with to(device)");
  const auto parameters = module.parameters();
  const auto buffers = module.named_buffers();
  for (const Device device : devices_) {
    auto replica = make_replica();
    const auto own = replica->named_parameters();
    CHECK_AS(ShapeError, own.size() == parameters.size(), "data_parallel: a replica has ", own.size(),
             " parameters, the module ", parameters.size(), "; make_replica must make the same network");
    for (size_t i = 0; i < own.size(); ++i)
      CHECK_AS(ShapeError, own[i].second.shape() == parameters[i].shape(), "data_parallel: ", own[i].first, " is ",
               own[i].second.shape(), " in a replica and ", parameters[i].shape(), " in the module");
    const auto own_buffers = replica->buffers();
    CHECK_AS(ShapeError,
             own_buffers.size() == buffers.size() && replica->named_modules().size() == module.named_modules().size(),
             "data_parallel: a replica has ", own_buffers.size(), " buffers in ", replica->named_modules().size(),
             " modules, the module ", buffers.size(), " in ", module.named_modules().size(),
             "; make_replica must make the same network");
    for (size_t i = 0; i < buffers.size(); ++i)
      CHECK_AS(ShapeError, own_buffers[i].shape() == buffers[i].second.shape(), "data_parallel: ", buffers[i].first,
               " is ", own_buffers[i].shape(), " in a replica and ", buffers[i].second.shape(), " in the module");
    for (const Tensor& buffer : own_buffers) buffer.set_data(copy_of(buffer, {buffer.dtype(), device}));
    replicas_.push_back(std::move(replica));
  }
  adopt(module);
}

// Points the replicas' parameters at fresh copies of the module's, and gives them its buffers' values and its modes.
void DataParallel::replicate(size_t replicas) {
  const auto copies = broadcast(module_.parameters(), std::span(devices_).first(replicas));
  const auto buffers = module_.buffers();
  const auto modules = module_.named_modules();
  for (size_t r = 0; r < replicas; ++r) {
    const auto parameters = replicas_[r]->parameters(), own_buffers = replicas_[r]->buffers();
    for (size_t i = 0; i < parameters.size(); ++i) become(parameters[i], copies[r * parameters.size() + i]);
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (r == 0)
        own_buffers[i].set_data(buffers[i]);  // shared: updates of the first replica are kept
      else
        copy_(own_buffers[i], buffers[i]);
    }
    const auto own_modules = replicas_[r]->named_modules();
    for (size_t i = 0; i < modules.size(); ++i) own_modules[i].second->set_training(modules[i].second->is_training());
  }
}

// One thread per replica, which ends with its forward. Throws the first replica's error, with its name.
std::vector<Tensor> DataParallel::parallel_apply(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs(inputs.size());
  std::vector<std::exception_ptr> errors(inputs.size());
  const bool record = grad_enabled();
  const auto apply = [&](size_t r) {
    const auto named = [&](const std::exception& error) {
      return str("data_parallel: in replica ", r, " on ", devices_[r], ": ", error.what());
    };
    try {
      std::optional<NoGradGuard> guard;  // threads begin with grad mode on
      if (!record) guard.emplace();
      outputs[r] = replicas_[r]->forward(inputs[r]);
    } catch (const OutOfMemoryError& error) {
      errors[r] = std::make_exception_ptr(OutOfMemoryError(named(error)));
    } catch (const std::exception& error) {
      errors[r] = std::make_exception_ptr(Error(named(error)));
    }
  };
  try {
    std::vector<std::jthread> threads;  // joined when they go, also where there is none for the next replica
    for (size_t r = 1; r < inputs.size(); ++r) threads.emplace_back(apply, r);
    apply(0);
  } catch (const std::system_error& error) {
    throw Error(str("data_parallel: no threads for ", inputs.size(), " replicas: ", error.what(),
                    "; raise ulimit -u, or use fewer devices"));
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return outputs;
}

Tensor DataParallel::forward(const Tensor& x) {
  CHECK_AS(ShapeError, x.defined() && x.dim() >= 1 && x.size(0) >= 1,
           "data_parallel: expected a batch of at least one, [N, …]");
  const std::vector<Tensor> inputs = scatter(x, devices_);
  if (inputs.size() == 1) return module_.forward(inputs[0]);
  replicate(inputs.size());
  return gather(parallel_apply(inputs), devices_[0]);
}

}  // namespace ringgrad
