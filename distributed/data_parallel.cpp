#include "ringgrad/distributed/data_parallel.h"

#include <algorithm>
#include <system_error>
#include <thread>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/thread_modes.h"
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

// What is trained, once per replica, as one node: outputs[r · n + i] is parameter i on replica r's device. The first
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

// Every handle of `target` now names `source`: its array and its place in the graph.
void become(const Tensor& target, const Tensor& source) {
  target.set_data(source);
  target.set_autograd_meta(source.autograd_meta());
}

}  // namespace

void check_replica(const char* what, nn::Module& module, nn::Module& replica) {
  const auto check_count = [&](const char* things, size_t own, size_t expected) {
    CHECK_AS(ShapeError, own == expected, what, ": a replica has ", own, " ", things, ", the module ", expected,
             "; make_replica must make the same network");
  };
  const auto check_tensors = [&](const char* things, const nn::NamedTensors& own, const nn::NamedTensors& expected) {
    check_count(things, own.size(), expected.size());
    for (size_t i = 0; i < own.size(); ++i)
      CHECK_AS(ShapeError, own[i].second.shape() == expected[i].second.shape(), what, ": ", own[i].first, " is ",
               own[i].second.shape(), " in a replica and ", expected[i].second.shape(), " in the module");
  };
  check_tensors("parameters", replica.named_parameters(), module.named_parameters());
  check_tensors("buffers", replica.named_buffers(), module.named_buffers());
  check_count("modules", replica.named_modules().size(), module.named_modules().size());
}

DataParallel::DataParallel(nn::Module& module, const MakeReplica& make_replica, std::vector<Device> devices)
    : module_(module), devices_(std::move(devices)) {
  CHECK(!devices_.empty(), "data_parallel: no devices given, expected at least one");
  for (const Device device : devices_) check_device("data_parallel", device);
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()})
    for (const auto& [name, tensor] : tensors)
      CHECK_AS(DeviceError, tensor.device() == devices_[0], "data_parallel: ", name, " is on ", tensor.device(),
               ", expected the first device, ", devices_[0], "; move the module with to(device)");
  for (const Device device : devices_) {
    auto replica = make_replica();
    check_replica("data_parallel", module, *replica);
    for (const Tensor& buffer : replica->buffers()) buffer.set_data(copy_of(buffer, {buffer.dtype(), device}));
    replicas_.push_back(std::move(replica));
  }
  adopt(module);
}

// Each input as pieces of ⌈N / devices⌉ samples, one for each device as far as they go.
std::vector<std::vector<Tensor>> DataParallel::scatter(const std::vector<Tensor>& inputs) const {
  int64_t n = 0;
  for (const Tensor& x : inputs) {
    CHECK(x.defined(), "data_parallel: an input is an undefined tensor, expected a batch [N, …]");
    if (x.dim() == 0) continue;
    CHECK_AS(ShapeError, n == 0 || x.size(0) == n, "data_parallel: inputs of ", n, " and ", x.size(0),
             " samples, expected the same number in all of them");
    n = x.size(0);
  }
  CHECK_AS(ShapeError, n >= 1, "data_parallel: expected a batch of at least one, [N, …]");
  const int64_t most = static_cast<int64_t>(devices_.size()), piece = (n + most - 1) / most;
  std::vector<std::vector<Tensor>> pieces;
  for (int64_t begin = 0; begin < n; begin += piece) {
    std::vector<Tensor> own;
    for (const Tensor& x : inputs) {
      const Tensor part = x.dim() == 0 || piece == n ? x : slice(x, 0, begin, std::min(n, begin + piece));
      own.push_back(ringgrad::to(contiguous(part), devices_[pieces.size()]));
    }
    pieces.push_back(std::move(own));
  }
  return pieces;
}

// Points the replicas' parameters at fresh copies of the module's, and gives them its buffers' values and its modes.
void DataParallel::replicate(size_t replicas) {
  const auto parameters = module_.parameters(), buffers = module_.buffers();
  std::vector<Tensor> trained;
  for (const Tensor& parameter : parameters)
    if (parameter.requires_grad()) trained.push_back(parameter);
  const auto copies = broadcast(trained, std::span(devices_).first(replicas));
  const auto modules = module_.named_modules();
  const auto copy_on = [&](size_t r, const Tensor& x) {  // the first replica shares the module's own
    return r == 0 ? x.detach() : copy_of(x, {x.dtype(), devices_[r]});
  };
  auto copy = copies.begin();
  for (size_t r = 0; r < replicas; ++r) {
    const auto own = replicas_[r]->parameters(), own_buffers = replicas_[r]->buffers();
    for (size_t i = 0; i < own.size(); ++i)
      become(own[i], parameters[i].requires_grad() ? *copy++ : copy_on(r, parameters[i]));
    // Anew each time: another forward's graph may have saved those that the replica had.
    for (size_t i = 0; i < buffers.size(); ++i) own_buffers[i].set_data(copy_on(r, buffers[i]));
    const auto own_modules = replicas_[r]->named_modules();
    for (size_t i = 0; i < modules.size(); ++i) own_modules[i].second->set_training(modules[i].second->is_training());
  }
}

// One thread per replica, which ends with its forward. Throws the first replica's error, with its name.
void DataParallel::parallel_apply(size_t replicas, const std::function<void(size_t r, nn::Module& replica)>& function) {
  replicate(replicas);
  std::vector<std::exception_ptr> errors(replicas);
  const ThreadModes modes;
  const auto run = [&](size_t r) {
    const auto named = [&](const std::exception& error) {
      return str("data_parallel: in replica ", r, " on ", devices_[r], ": ", error.what());
    };
    try {
      const ThreadModes::Scope scope(modes);
      function(r, *replicas_[r]);
    } catch (const OutOfMemoryError& error) {
      errors[r] = std::make_exception_ptr(OutOfMemoryError(named(error)));
    } catch (const std::exception& error) {
      errors[r] = std::make_exception_ptr(Error(named(error)));
    }
  };
  try {
    std::vector<std::jthread> threads;  // joined when they go, also where there is none for the next replica
    for (size_t r = 1; r < replicas; ++r) threads.emplace_back(run, r);
    run(0);
  } catch (const std::system_error& error) {
    throw Error(str("data_parallel: no threads for ", replicas, " replicas: ", error.what(),
                    "; raise ulimit -u, or use fewer devices"));
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<Tensor> DataParallel::gather(const std::vector<std::vector<Tensor>>& outputs) const {
  std::vector<Tensor> gathered;
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    std::vector<Tensor> parts;
    for (const auto& own : outputs) {
      CHECK(own.size() == outputs[0].size() && own[i].defined() == outputs[0][i].defined(),
            "data_parallel: one replica returned ", outputs[0].size(), " tensors, another ", own.size(),
            " or other undefined ones, expected the same of all");
      if (!own[i]) continue;
      const Tensor part = ringgrad::to(own[i], devices_[0]);
      parts.push_back(part.dim() == 0 ? reshape(part, {1}) : part);
    }
    gathered.push_back(parts.empty() ? Tensor() : cat(parts, 0));
  }
  return gathered;
}

Tensor DataParallel::forward(const Tensor& x) {
  return apply([](nn::Module& replica, const Tensor& piece) { return replica.forward(piece); }, x);
}

}  // namespace ringgrad
