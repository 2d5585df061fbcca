#include "ringgrad/distributed/distributed_data_parallel.h"

#include <algorithm>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/ddp/reducer.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

constexpr const char* kName = "distributed_data_parallel";

}  // namespace

DistributedDataParallel::DistributedDataParallel(nn::Module& module, ProcessGroup& group,
                                                 DistributedDataParallelOptions options)
    : module_(module), group_(group) {
  NoGradGuard no_grad;
  adopt(module);
  own_.insert(options.ignore.begin(), options.ignore.end());
  const NamedTensors all = module.state_dict();
  for (const std::string& name : own_)
    CHECK(
        std::any_of(all.begin(), all.end(), [&](const auto& named) { return named.first == name; }),
        kName, ": '", name, "' is to be ignored, but the module has no such ",
        "parameter or buffer");
  NamedTensors trained;
  std::vector<Tensor> buffers;
  for (const auto& [name, buffer] : module.named_buffers())
    if (!options.broadcast_buffers)
      own_.insert(name);
    else if (is_common(name)) {
      CHECK(!has_internal_overlap(buffer), kName, ": elements of the buffer ", name, " of shape ",
            buffer.shape(),
            " share memory, so the ranks could not bring it together; "
            "register a copy of its own, contiguous(x)");
      buffers.push_back(buffer);
    }
  const NamedTensors state = common_state();
  for (auto& named : module.named_parameters())
    if (is_common(named.first) && named.second.requires_grad()) trained.push_back(std::move(named));
  CHECK(!trained.empty(), kName,
        ": the module has no parameter that requires a gradient, so there is nothing to do");
  const auto& [first_name, first] = trained.front();
  for (const auto& [name, tensor] : trained)
    CHECK_AS(DeviceError, tensor.device() == first.device(), kName, ": ", first_name, " is on ",
             first.device(), ", ", name, " on ", tensor.device(),
             "; move the module to one device");
  for (const auto& [name, tensor] : state)
    CHECK_AS(DeviceError, group.reaches(tensor.device()), kName, ": ", name, " is on ",
             tensor.device(), ", which this group of ranks (", group.backend(), ") does not reach");

  take_from_rank_0(group, kName, state, trained);
  reducer_ = std::make_shared<Reducer>(group, trained, std::move(buffers), module_state(),
                                       std::move(options));
}

bool DistributedDataParallel::is_common(const std::string& name) const {
  return !own_.contains(name);
}

NamedTensors DistributedDataParallel::common_state() const {
  NamedTensors state = module_.state_dict();
  std::erase_if(state, [&](const auto& named) { return !is_common(named.first); });
  return state;
}

ModuleState DistributedDataParallel::module_state() const {
  ModuleState state;
  for (auto list : {module_.named_parameters(), module_.named_buffers()})
    for (auto& named : list)
      if (is_common(named.first)) state.tensors.push_back(std::move(named));
  for (const auto& [name, module] : module_.named_modules())
    state.training.emplace_back(name, module->is_training());
  return state;
}

Tensor DistributedDataParallel::forward(const Tensor& x) {
  return apply([](nn::Module& module, const Tensor& batch) { return module(batch); }, x);
}

void DistributedDataParallel::begin_forward(const Tensor& batch) {
  if (!grad_enabled()) return;
  CHECK_AS(ShapeError, batch.defined(), kName, ": expected a batch [N, …]");
  if (program_observer) program_observer->batch(batch.size(0));
  reducer_->look_at(module_state());
  set_phase(Phase::Forward);
}

std::vector<Tensor> DistributedDataParallel::end_forward(const Tensor& batch,
                                                         std::vector<Tensor> outputs) {
  if (!grad_enabled()) return outputs;
  return reducer_->prepare_for_backward(std::move(outputs), batch.size(0), is_training());
}

uint64_t DistributedDataParallel::check_identical() const {
  return check_identical_values(group_, kName, common_state());
}

bool DistributedDataParallel::shadow_step() { return reducer_->shadow(); }
void DistributedDataParallel::set_weight(Real weight) { reducer_->set_weight(weight); }
void DistributedDataParallel::skip_step() { reducer_->skip(); }
bool DistributedDataParallel::skipped() const { return reducer_->skipped(); }
void DistributedDataParallel::register_comm_hook(CommHook hook) {
  reducer_->register_comm_hook(std::move(hook));
}
nn::NamedTensors DistributedDataParallel::comm_hook_state() const {
  return reducer_->comm_hook_state();
}
void DistributedDataParallel::load_comm_hook_state(const nn::NamedTensors& state) {
  reducer_->load_comm_hook_state(state);
}
void DistributedDataParallel::set_step(Int64 step) {
  check_step(kName, step);
  reducer_->set_step(step - 1);
}
void DistributedDataParallel::set_flag(Flag flag) { reducer_->set_flag(flag); }
bool DistributedDataParallel::flag() const { return reducer_->flag(); }
std::vector<std::string> DistributedDataParallel::ready_order() const {
  return reducer_->ready_order();
}
void DistributedDataParallel::set_ready_order(const std::vector<std::string>& names,
                                              std::optional<BucketCaps> caps) {
  reducer_->set_ready_order(names, caps);
}
const BucketCaps& DistributedDataParallel::bucket_caps() const { return reducer_->caps(); }
std::shared_ptr<const StepShare> DistributedDataParallel::step_share() const {
  CHECK(reducer_->slices(), kName,
        ": the steps of an optimizer are shared, but every rank averages all gradients; wrap the "
        "module with zero = 1 or 2");
  return reducer_->slices();
}
const ReductionLog& DistributedDataParallel::log() const { return reducer_->log(); }
const ReductionTotals& DistributedDataParallel::totals() const { return reducer_->totals(); }

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() { return NoSync(*this); }

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : reducer_(ddp.reducer_), previous_(reducer_->synchronizing()) {
  reducer_->set_synchronizing(false);
}

DistributedDataParallel::NoSync::~NoSync() { reducer_->set_synchronizing(previous_); }

}  // namespace ringgrad
