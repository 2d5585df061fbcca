#include "ringgrad/distributed/data_parallel.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <typeinfo>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/shards/flat_tensors.h"
#include "ringgrad/distributed/shards/tree_all_reduce.h"

namespace ringgrad {
namespace {

// True if the loss depends on the parameter; by replica and parameter.
using Arrived = std::vector<std::vector<bool>>;

// Gives replica r its parameters: parts of the arrays, which lie on its device. The first replica's
// share memory with the module's. Backward packs their gradients into arrays of the same layout, on
// the thread of the replica's device. So all replicas' are packed at the same time.
std::vector<Tensor> parameters_of(size_t r, const std::vector<Tensor>& parameters,
                                  const std::vector<Tensor>& arrays,
                                  const std::shared_ptr<const std::vector<FlatLayout>>& layouts,
                                  const std::shared_ptr<Arrived>& arrived) {
  std::vector<Tensor> own(parameters.size());
  for (size_t k = 0; k < arrays.size(); ++k) unpack(arrays[k], (*layouts)[k], own);
  if (r == 0)
    for (size_t i = 0; i < own.size(); ++i) own[i] = parameters[i].detach();
  return differentiable(
      "replica", arrays, std::move(own), [r, layouts, arrived](std::span<const Tensor> dy) {
        std::vector<bool>& own_arrived = (*arrived)[r];
        own_arrived.clear();
        for (const Tensor& g : dy) own_arrived.push_back(g.defined());
        Gradients packs;
        for (const FlatLayout& layout : *layouts) {
          const auto found =
              std::ranges::find_if(layout.members, [&](size_t i) { return dy[i].defined(); });
          packs.push_back(found == layout.members.end() ? Tensor()
                                                        : packed(layout, dy, dy[*found].device()));
        }
        return packs;
      });
}

// Copies the trained parameters to all replicas, an array at a time: outputs[r][i] is parameter i
// on replica r's device. Backward sums over the replicas, in their order, on the parameters'
// device. It can run only when the last gradient of the last replica has arrived.
std::vector<std::vector<Tensor>> broadcast(const std::vector<Tensor>& parameters,
                                           std::span<const Device> devices) {
  if (parameters.empty()) return std::vector<std::vector<Tensor>>(devices.size());
  if (devices.size() == 1) {  // nothing to copy, and nothing to sum
    std::vector<Tensor> own;
    for (const Tensor& parameter : parameters) own.push_back(parameter.detach());
    return {differentiable("broadcast", parameters, std::move(own), [](std::span<const Tensor> dy) {
      return Gradients(dy.begin(), dy.end());
    })};
  }
  const std::vector<FlatTensors> flat = flat_tensors(parameters);
  const auto layouts = std::make_shared<std::vector<FlatLayout>>();
  for (const FlatTensors& of : flat) layouts->push_back(of.layout);
  std::vector<Tensor> arrays;  // [replica][dtype]
  for (size_t r = 0; r < devices.size(); ++r)
    for (const auto& [layout, array] : flat)
      arrays.push_back(r == 0 ? array : copy_of(array, {layout.dtype, devices[r]}));
  const auto arrived = std::make_shared<Arrived>(devices.size());
  arrays = differentiable("broadcast", parameters, std::move(arrays),
                          [layouts, arrived, n = parameters.size(),
                           first_device = devices[0]](std::span<const Tensor> dy) {
                            Gradients gradients(n);
                            std::vector<bool> has(n);
                            for (size_t k = 0; k < layouts->size(); ++k) {
                              Tensor sum;
                              for (size_t r = 0; r < arrived->size(); ++r) {
                                const Tensor& g = dy[r * layouts->size() + k];
                                if (!g) continue;
                                const Tensor own = on_device(g, first_device);
                                sum = sum ? sum_of(sum, own) : own;
                                for (const size_t i : (*layouts)[k].members)
                                  has[i] = has[i] || (*arrived)[r][i];
                              }
                              if (sum) unpack(sum, (*layouts)[k], gradients);
                            }
                            for (size_t i = 0; i < n; ++i)
                              if (!has[i]) gradients[i] = Tensor();
                            return gradients;
                          });
  std::vector<std::vector<Tensor>> outputs;
  for (size_t r = 0; r < devices.size(); ++r) {
    const auto begin = arrays.begin() + static_cast<ptrdiff_t>(r * layouts->size());
    const std::vector<Tensor> own(begin, begin + static_cast<ptrdiff_t>(layouts->size()));
    outputs.push_back(parameters_of(r, parameters, own, layouts, arrived));
  }
  return outputs;
}

// Makes every handle of `target` name `source`: its array and its place in the graph.
void become(const Tensor& target, const Tensor& source) {
  target.set_data(source);
  target.set_autograd_meta(source.autograd_meta());
}

using NamedModules = std::vector<std::pair<std::string, nn::Module*>>;

// Returns `prefix` and the first layer that only one of the two has, or whose types differ. Returns
// "" if there is none.
std::string difference(const char* prefix, const NamedModules& module,
                       const NamedModules& replica) {
  const auto named = [](const auto& entry) {
    return str("'", entry.first, "' (", entry.second->type_name(), ")");
  };
  for (size_t i = 0; i < std::max(module.size(), replica.size()); ++i) {
    if (i >= replica.size())
      return str(prefix, "the module has a layer ", named(module[i]), " that replicas lack");
    if (i >= module.size())
      return str(prefix, "the module lacks a layer ", named(replica[i]), " of the replicas");
    const nn::Module& ours = *module[i].second;
    const nn::Module& theirs = *replica[i].second;
    if (module[i].first != replica[i].first || typeid(ours) != typeid(theirs))
      return str(prefix, "the module has a layer ", named(module[i]), " where replicas have ",
                 named(replica[i]));
  }
  return {};
}

}  // namespace

void check_replica(const char* what, nn::Module& module, nn::Module& replica) {
  const auto check_tensors = [&](const char* things, const nn::NamedTensors& own,
                                 const nn::NamedTensors& expected) {
    CHECK_AS(ShapeError, own.size() == expected.size(), what, ": a replica has ", own.size(), " ",
             things, ", the module ", expected.size(), "; make_replica must make the same network");
    for (size_t i = 0; i < own.size(); ++i)
      CHECK_AS(ShapeError, own[i].second.shape() == expected[i].second.shape(), what, ": ",
               own[i].first, " is ", own[i].second.shape(), " in a replica and ",
               expected[i].second.shape(), " in the module");
  };
  check_tensors("parameters", replica.named_parameters(), module.named_parameters());
  check_tensors("buffers", replica.named_buffers(), module.named_buffers());
  const std::string differs = difference(": ", module.named_modules(), replica.named_modules());
  CHECK_AS(ShapeError, differs.empty(), what, differs, "; make_replica must make the same network");
}

DataParallel::DataParallel(nn::Module& module, const MakeReplica& make_replica,
                           std::vector<Device> devices)
    : module_(module), make_replica_(make_replica), devices_(std::move(devices)) {
  CHECK(!devices_.empty(), "data_parallel: no devices given, expected at least one");
  for (const Device device : devices_) check_device("data_parallel", device);
  check_place();
  make_replicas();
  for (const auto& replica : replicas_) check_replica("data_parallel", module, *replica);
  adopt(module);
}

void DataParallel::check_place() const {
  for (const auto& tensors : {module_.named_parameters(), module_.named_buffers()})
    for (const auto& [name, tensor] : tensors)
      CHECK_AS(DeviceError, tensor.device() == devices_[0], "data_parallel: ", name, " is on ",
               tensor.device(), ", expected the first device, ", devices_[0],
               "; move the module with to(device)");
}

void DataParallel::make_replicas() {
  replicas_.clear();
  for (size_t r = 0; r < devices_.size(); ++r) {
    replicas_.push_back(make_replica_());
    CHECK(replicas_[r] != nullptr,
          "data_parallel: make_replica gave a null pointer, expected a module");
  }
}

// Cuts each input into pieces of ⌈N / devices⌉ samples, one for each device as far as they go.
std::vector<std::vector<Tensor>> DataParallel::scatter(const std::vector<Tensor>& inputs) const {
  int64_t n = 0;
  for (const Tensor& x : inputs) {
    CHECK(x.defined(), "data_parallel: an input is an undefined tensor, expected a batch [N, …]");
    if (x.dim() == 0) continue;
    CHECK_AS(ShapeError, n == 0 || x.size(0) == n, "data_parallel: inputs of ", n, " and ",
             x.size(0), " samples, expected the same number in all of them");
    n = x.size(0);
  }
  CHECK_AS(ShapeError, n >= 1, "data_parallel: expected a batch of at least one, [N, …]");
  const int64_t most = static_cast<int64_t>(devices_.size());
  const int64_t piece = (n + most - 1) / most;
  std::vector<std::vector<Tensor>> pieces;
  for (int64_t begin = 0; begin < n; begin += piece) {
    std::vector<Tensor> own;
    for (const Tensor& x : inputs) {
      const Tensor part =
          x.dim() == 0 || piece == n ? x : slice(x, 0, begin, std::min(n, begin + piece));
      own.push_back(ringgrad::to(contiguous(part), devices_[pieces.size()]));
    }
    pieces.push_back(std::move(own));
  }
  return pieces;
}

// Points the replicas' parameters and buffers at fresh copies of the module's, because the graph of
// another forward may have saved the old ones. The first replica shares the module's own tensors.
void DataParallel::replicate(size_t replicas) {
  check_place();
  const auto modules = module_.named_modules();
  if (!difference("", modules, replicas_[0]->named_modules()).empty()) make_replicas();
  std::vector<Tensor> trained;
  std::vector<Tensor> others;
  for (const auto& tensors : {module_.parameters(), module_.buffers()})
    for (const Tensor& x : tensors) (x.requires_grad() ? trained : others).push_back(x);
  const auto copies = broadcast(trained, std::span(devices_).first(replicas));
  const auto flat_others = replicas == 1 ? std::vector<FlatTensors>() : flat_tensors(others);
  for (size_t r = 0; r < replicas; ++r) {
    // Pairs each of the module's tensors with its copy on this replica's device.
    std::vector<std::pair<Tensor, Tensor>> copy;
    for (size_t i = 0; i < trained.size(); ++i) copy.emplace_back(trained[i], copies[r][i]);
    const auto copied = r == 0 ? others : copies_on(devices_[r], flat_others, others.size());
    for (size_t i = 0; i < others.size(); ++i)
      copy.emplace_back(others[i], r == 0 ? others[i].detach() : copied[i]);

    std::vector<Tensor> pointed;  // the replica's own, which other members of it may name, too
    const auto point = [&](Tensor& own, const Tensor& of_module) {
      const auto among = [](const Tensor& x) {
        return [&x](const Tensor& other) { return other.is_same(x); };
      };
      const auto found = std::find_if(copy.begin(), copy.end(), [&](const auto& pair) {
        return pair.first.is_same(of_module);
      });
      const bool is_own = own && found != copy.end() && own.shape() == of_module.shape() &&
                          std::none_of(pointed.begin(), pointed.end(), among(own));
      if (is_own) {
        become(own, found->second);
        pointed.push_back(own);
      } else {
        own = found != copy.end() ? found->second : Tensor();
      }
    };
    const auto own_modules = replicas_[r]->named_modules();
    const std::string differs = difference("data_parallel: ", modules, own_modules);
    CHECK(differs.empty(), differs,
          "; make_replica must make the network as it is now, or wrap it when it is complete");
    for (size_t i = 0; i < modules.size(); ++i)
      own_modules[i].second->follow(*modules[i].second, point);
  }
}

void on_threads_of_replicas(const char* what, size_t replicas,
                            const std::function<void(size_t r)>& body) {
  std::vector<std::exception_ptr> errors(replicas);
  const ThreadModes modes;
  const auto run = [&](size_t r) {
    try {
      const ThreadModes::Scope scope(modes);
      body(r);
    } catch (...) {
      errors[r] = std::current_exception();
    }
  };
  try {
    // The threads are joined at the end, even if the next one cannot be started.
    std::vector<std::jthread> threads;
    for (size_t r = 1; r < replicas; ++r) threads.emplace_back(run, r);
    run(0);
  } catch (const std::system_error& error) {
    throw Error(str(what, ": no threads for ", replicas, " replicas: ", error.what(),
                    "; raise ulimit -u, or use fewer devices"));
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

// Throws the first replica's error, with its name.
void DataParallel::parallel_apply(
    size_t replicas, const std::function<void(size_t r, nn::Module& replica)>& function) {
  replicate(replicas);
  on_threads_of_replicas("data_parallel", replicas, [&](size_t r) {
    const auto named = [&](const std::exception& error) {
      return str("data_parallel: in replica ", r, " on ", devices_[r], ": ", error.what());
    };
    try {
      function(r, *replicas_[r]);
    } catch (const OutOfMemoryError& error) {
      throw OutOfMemoryError(named(error));
    } catch (const std::exception& error) {
      throw Error(named(error));
    }
  });
}

std::vector<Tensor> DataParallel::gather(const std::vector<std::vector<Tensor>>& outputs) const {
  std::vector<Tensor> gathered;
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    std::vector<Tensor> parts;
    for (const auto& own : outputs) {
      CHECK(own.size() == outputs[0].size() && own[i].defined() == outputs[0][i].defined(),
            "data_parallel: one replica returned ", outputs[0].size(), " tensors, another ",
            own.size(), " or other undefined ones, expected the same of all");
      if (!own[i]) continue;
      const Tensor part = ringgrad::to(own[i], devices_[0]);
      parts.push_back(part.dim() == 0 ? reshape(part, {1}) : part);
    }
    gathered.push_back(parts.empty() ? Tensor() : cat(parts, 0));
  }
  return gathered;
}

Tensor DataParallel::forward(const Tensor& x) {
  return apply([](nn::Module& replica, const Tensor& piece) { return replica(piece); }, x);
}

}  // namespace ringgrad
