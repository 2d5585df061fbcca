#include "ringgrad/distributed/virtual_ranks.h"

#include <cstring>
#include <optional>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/generator_scope.h"
#include "ringgrad/distributed/ddp/buffer_numbers.h"
#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/shards/flat_tensors.h"
#include "ringgrad/distributed/shards/shard_meeting.h"
#include "ringgrad/distributed/sync_batch_norm.h"

namespace ringgrad {
namespace {

constexpr const char* kName = "virtual_ranks";
// The numbers of one shard, or of all together. They precede the buffers.
struct ShardNumbers {
  double samples;
  double loss;  // the sum of theirs
  double flags;
  double failures;  // shards of ranks on which one has failed
  Alike frozen;     // which parameters are
};
constexpr int64_t kNumbers = sizeof(ShardNumbers) / sizeof(double);

constexpr int kDrawBits = 32;  // a shard may draw 4 · 2^32 random numbers in a step

int checked(int shards, const ProcessGroup& group) {
  CHECK(shards >= group.size(), kName, ": --shards ", shards, " for ", group.size(),
        " ranks, expected at least one for each; a rank without work would only wait");
  return shards;
}

}  // namespace

// One of this rank's shards while it is computed.
struct VirtualRanks::ShardState {
  int index;                    // the index among all shards
  std::vector<Tensor> buffers;  // those of the module or replica in its turn
  Generator random;
  int64_t samples = 0;
  double loss = 0;  // the sum of theirs
  bool failed = false;
};

VirtualRanks::VirtualRanks(nn::Module& module, ProcessGroup& group, VirtualRanksOptions options)
    : module_(module),
      group_(group),
      options_(options),
      tree_(group, checked(options.shards, group)) {
  NoGradGuard no_grad;
  NamedTensors trained;
  for (const auto& named : module.named_parameters())
    if (named.second.requires_grad()) trained.push_back(named);
  CHECK(!trained.empty(), kName,
        ": the module has no parameter that requires a gradient, so there is nothing to do");
  device_ = trained[0].second.device();
  for (const auto& [name, tensor] : module.state_dict()) {
    CHECK_AS(DeviceError, tensor.device() == device_, kName, ": ", name, " is on ", tensor.device(),
             ", ", trained[0].first, " on ", device_, "; move the module to one device");
    CHECK_AS(DeviceError, group.size() == 1 || group.reaches(device_), kName, ": ", name, " is on ",
             device_, ", which this group of ranks (", group.backend(), ") does not reach");
  }
  check_same_lines(group, kName, "division",
                   {str("--shards ", options.shards), str("seed ", options.seed)});
  take_from_rank_0(group, kName, module.state_dict(), trained);
  if (options.sync_batch_norm) convert_sync_batchnorm(module, group);
  replicas_.push_back({nullptr, &module, device_, module.buffers()});
  gradients_ =
      std::make_unique<ShardGradients>(group, tree_, trained, options.caps, options.check_finite,
                                       options.sync_batch_norm, options.zero);
  for (size_t i = 1; i < options_.devices.size(); ++i) add_replica(options_.devices[i]);
  watch_ = std::make_unique<ModuleWatch>(module_state());
}

ModuleState VirtualRanks::module_state() const {
  ModuleState state;
  for (auto list : {module_.named_parameters(), module_.named_buffers()})
    for (auto& named : list) state.tensors.push_back(std::move(named));
  return state;
}

void VirtualRanks::check_module() {
  if (const auto reason = watch_->look(module_state()))
    gradients_->fail_all_ranks(
        str("on rank ", group_.rank(), ", before step ", gradients_->step() + 1, ": ", *reason));
}

void VirtualRanks::add_replica(Device device) {
  CHECK(!options_.sync_batch_norm, kName, ": ", options_.devices.size(),
        " devices, and batch norm over all shards is for one device of a rank");
  check_device(kName, device);
  const std::shared_ptr<nn::Module> own = options_.make_replica();
  check_replica(kName, module_, *own);
  own->to(device);
  const auto parameters = module_.parameters();
  const auto copies = own->parameters();
  std::vector<Tensor> trained;
  for (size_t i = 0; i < parameters.size(); ++i) {
    copies[i].requires_grad_(parameters[i].requires_grad());
    if (parameters[i].requires_grad()) trained.push_back(copies[i]);
  }
  gradients_->add_replica(trained);
  replicas_.push_back({own, own.get(), device, own->buffers()});
}

// Gives the replicas the module's parameters and modes.
void VirtualRanks::replicate() {
  const auto parameters = module_.parameters();
  const auto modules = module_.named_modules();
  const auto flat = flat_tensors(parameters);
  for (size_t r = 1; r < replicas_.size(); ++r) {
    const auto copies = replicas_[r].module->parameters();
    const auto values = copies_on(replicas_[r].device, flat, parameters.size());
    for (size_t i = 0; i < copies.size(); ++i) copies[i].set_data(values[i]);
    const auto own = replicas_[r].module->named_modules();
    for (size_t i = 0; i < own.size(); ++i)
      own[i].second->set_training(modules[i].second->is_training());
  }
}

void VirtualRanks::give_buffers(size_t replica, const std::vector<Tensor>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) replicas_[replica].buffers[i].set_data(buffers[i]);
}

// Returns shard 0's float64 buffers on all ranks, and undefined tensors for the other buffers
// (ddp/buffer_numbers.h). Shard 0 has a sample if any shard has.
std::vector<Tensor> VirtualRanks::bases_of(const std::vector<ShardState>& states) {
  std::vector<Tensor> bases;
  for (size_t i = 0; i < replicas_[0].buffers.size(); ++i) {
    const Tensor& buffer = replicas_[0].buffers[i];
    Tensor& base = bases.emplace_back();
    if (buffer.dtype() != DType::Float64) continue;
    base = empty({buffer.numel()}, {.dtype = DType::Float64});
    if (states[0].index == 0)
      copy_(base, on_device(numbers_of(states[0].buffers[i]), base.device()));
    group_.broadcast(base, 0, {.step = gradients_->step(), .about = summary_}).wait();
  }
  return bases;
}

// Returns a shard's summand of the step, as float64, in which counts are exact.
Tensor VirtualRanks::summary_of(const ShardState& state, const std::vector<Tensor>& bases) const {
  int64_t numel = kNumbers;
  for (const Tensor& buffer : state.buffers) numel += count_of_numbers(buffer);
  const Tensor row = empty({numel}, {.dtype = DType::Float64});
  const ShardNumbers numbers{static_cast<double>(state.samples), state.loss, flag_ ? 1.0 : 0.0,
                             state.failed ? 1.0 : 0.0, frozen(gradients_->parameters())};
  std::memcpy(row.data<double>(), &numbers, sizeof numbers);
  int64_t at = kNumbers;
  for (size_t i = 0; i < state.buffers.size(); ++i) {
    const Tensor& buffer = state.buffers[i];
    const Tensor part = row.as_strided({count_of_numbers(buffer)}, {1}, at);
    pack_buffer(part, buffer, bases[i], numbers.samples, state.index == 0);
    at += part.numel();
  }
  return row;
}

double VirtualRanks::take_in(const Tensor& total, const std::vector<Tensor>& bases,
                             const std::exception_ptr& error) {
  ShardNumbers numbers;
  std::memcpy(&numbers, total.data<double>(), sizeof numbers);
  if (numbers.failures > 0) {
    const std::string what = str(kName, ": a shard of step ", gradients_->step());
    gradients_->take_back();
    throw_of_ranks(group_, what, error ? words_of(error) : "");
  }
  check_frozen(group_, str(kName, ", step ", gradients_->step()), numbers.frozen, options_.shards,
               gradients_->parameters());
  any_flag_ = numbers.flags > 0;
  int64_t at = kNumbers;
  for (size_t i = 0; i < bases.size(); ++i) {
    const Tensor& buffer = replicas_[0].buffers[i];
    const Tensor part = total.as_strided({count_of_numbers(buffer)}, {1}, at);
    unpack_buffer(buffer, part, bases[i], numbers.samples);
    at += part.numel();
  }
  return numbers.loss / numbers.samples;
}

void VirtualRanks::set_step(Int64 step) {
  check_step(kName, step);
  gradients_->set_step(step - 1);
}

double VirtualRanks::step(Int64 batch, const ComputeLoss& compute_loss) {
  CHECK(grad_enabled(), kName, ": step inside a NoGradGuard, where there are no gradients");
  CHECK(batch > 0, kName, ": a batch of ", batch, " samples, expected at least one");
  CHECK(!options_.sync_batch_norm || batch >= options_.shards, kName, ": a batch of ", batch,
        " samples for ", options_.shards,
        " shards, and batch norm over all of them needs a sample in each; leave the batch out");
  check_module();
  std::exception_ptr error;
  const std::vector<ShardState> states = compute_shards(batch, compute_loss, error);
  try {
    const std::vector<Tensor> bases = bases_of(states);
    std::vector<PartialSum<Tensor>> sums;
    for (const ShardState& state : states)
      join(sums, {{state.index, state.index + 1}, summary_of(state, bases)}, options_.shards,
           sum_of);
    std::vector<Tensor> rows;
    for (auto& sum : sums) rows.push_back(std::move(sum.value));
    auto summary = tree_.start(std::move(rows), {.step = gradients_->step(), .about = summary_});
    gradients_->finish(1 / static_cast<double>(batch));
    tree_.fold(summary);
    tree_.finish(summary);
    return take_in(summary.own.back(), bases, error);
  } catch (...) {
    if (error) std::rethrow_exception(error);  // this rank's own reason, which the others know
    throw;
  }
}

// Computes every shard of this rank. Afterwards the module's buffers are what they were.
std::vector<VirtualRanks::ShardState> VirtualRanks::compute_shards(int64_t batch,
                                                                   const ComputeLoss& compute_loss,
                                                                   std::exception_ptr& error) {
  const ShardRange own = own_shards();
  std::vector<Tensor> before;
  for (const Tensor& buffer : replicas_[0].buffers) before.push_back(buffer.detach());
  std::vector<ShardState> states;
  for (int shard = own.begin; shard < own.end; ++shard) states.push_back({shard, {}, Generator()});
  const auto prepare = [&](ShardState& state, Device device) {
    state.random = Generator(0, device);
    state.random.set_state(options_.seed + static_cast<uint64_t>(state.index),
                           static_cast<uint64_t>(gradients_->step()) << kDrawBits);
    for (const Tensor& buffer : before)
      state.buffers.push_back(copy_of(buffer, {buffer.dtype(), device}));
  };
  const auto begin_turn = [&](size_t replica, int m) {
    gradients_->compute(m, static_cast<int>(replica));
    give_buffers(replica, states[m].buffers);
  };
  Lockstep lockstep(own.size(), [&](int m) { begin_turn(0, m); });
  ShardMeeting meeting(options_.shards, own, own.size() > 1 ? &lockstep : nullptr);
  gradients_->begin();
  try {
    if (options_.sync_batch_norm) {
      for (ShardState& state : states) prepare(state, device_);
      lockstep.run(
          [&](int m) { compute_shard(states[m], replicas_[0], batch, compute_loss, meeting); });
    } else {
      replicate();
      // Each replica computes neighbouring shards of this rank.
      const int replicas = std::min(own.size(), static_cast<int>(replicas_.size()));
      on_threads_of_replicas(kName, static_cast<size_t>(replicas), [&](size_t r) {
        const ShardRange its = shards_of_rank(static_cast<int>(r), replicas, own.size());
        for (int m = its.begin; m < its.end; ++m) {
          prepare(states[m], replicas_[r].device);
          begin_turn(r, m);
          compute_shard(states[m], replicas_[r], batch, compute_loss, meeting);
        }
      });
    }
    gradients_->end_shards();
  } catch (...) {
    error = std::current_exception();
  }
  give_buffers(0, before);
  if (error) fail_shards(states, before, error);
  return states;
}

// The other ranks may have failed, too, so the group lives on: the step goes on with shards without
// samples and gradients, and says at its end what has happened.
void VirtualRanks::fail_shards(std::vector<ShardState>& states, const std::vector<Tensor>& before,
                               const std::exception_ptr& error) {
  for (ShardState& state : states) {
    state.buffers = before;
    state.samples = 0;
    state.failed = true;
  }
  try {
    if (is_noticed(error)) std::rethrow_exception(error);
    // Other ranks may wait in the middle of their shards for the statistics of these.
    if (options_.sync_batch_norm && group_.size() > 1)
      gradients_->fail_all_ranks(str("on rank ", group_.rank(), " a shard of step ",
                                     gradients_->step(), " has failed: ", words_of(error)));
    gradients_->end_failed_shards();
  } catch (...) {
    gradients_->give_up();
    std::rethrow_exception(error);
  }
}

void VirtualRanks::compute_shard(ShardState& state, const Replica& replica, int64_t batch,
                                 const ComputeLoss& compute_loss, ShardMeeting& meeting) {
  const RowRange rows = rows_of({state.index, state.index + 1}, options_.shards, batch);
  const int64_t first = own_rows(batch).begin;
  if (rows.size() > 0) {
    set_phase(Phase::Forward);
    const GeneratorScope random(state.random);
    std::optional<ShardMeeting::Scope> meets;
    if (options_.sync_batch_norm) meets.emplace(meeting);
    const Shard shard{state.index, rows.begin - first, rows.end - first, replica.module,
                      replica.device};
    state.loss = to_vector<double>(compute_loss(shard))[0];
  }
  gradients_->end_shard(state.index - own_shards().begin);
  state.samples = rows.size();
}

std::shared_ptr<const StepShare> VirtualRanks::step_share() const {
  CHECK(gradients_->slices(), kName,
        ": the steps of an optimizer are shared, but every rank has all gradients; ask for "
        "zero = 1 or 2");
  return gradients_->slices();
}

uint64_t VirtualRanks::check_identical() const {
  return check_identical_values(group_, kName, module_.state_dict());
}

}  // namespace ringgrad
