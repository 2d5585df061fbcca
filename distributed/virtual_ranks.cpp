#include "ringgrad/distributed/virtual_ranks.h"

#include <optional>
#include <thread>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/generator_scope.h"
#include "ringgrad/distributed/ddp/buffer_numbers.h"
#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/shards/shard_meeting.h"
#include "ringgrad/distributed/sync_batch_norm.h"

namespace ringgrad {
namespace {

constexpr const char* kName = "virtual_ranks";
// The numbers of a shard that precede the buffers: samples, loss, flag, and the two of Alike for
// the frozen parameters.
constexpr int64_t kNumbers = 5;
constexpr int kDrawBits = 32;  // a shard may draw 4 · 2^32 random numbers in a step

int checked(int shards, const ProcessGroup& group) {
  CHECK(shards >= group.size(), kName, ": --shards ", shards, " for ", group.size(),
        " ranks, expected at least one for each; a rank without work would only wait");
  return shards;
}

}  // namespace

// One of this rank's shards while it is computed.
struct VirtualRanks::ShardState {
  int index;                    // of all shards
  std::vector<Tensor> buffers;  // those of the module or replica in its turn
  Generator random;
  int64_t samples = 0;
  double loss = 0;  // the sum of theirs
};

VirtualRanks::VirtualRanks(nn::Module& module, ProcessGroup& group, VirtualRanksOptions options)
    : module_(module),
      group_(group),
      options_(options),
      tree_(group, checked(options.shards, group)) {
  NoGradGuard no_grad;
  NamedTensors& trained = trained_;
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
  check_same_signature(group, kName, module.state_dict());
  check_same_signature(group, "virtual_ranks (parameters that require a gradient)", trained);
  if (options.sync_batch_norm) convert_sync_batchnorm(module, group);
  replicas_.push_back({nullptr, &module, device_, module.buffers()});
  gradients_ = std::make_unique<ShardGradients>(group, tree_, trained, options.caps,
                                                options.check_finite, options.sync_batch_norm);
  if (group.size() > 1)
    for (const auto& [name, tensor] : module.state_dict()) group.broadcast(tensor, 0).wait();
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
  const auto reason = watch_->look(module_state());
  if (!reason) return;
  const std::string text =
      str(kName, ": on rank ", group_.rank(), ", before step ", step_, ": ", *reason);
  group_.abort(text, FailureKind::Failed);
  throw Error(text);
}

// Throws unless all ranks freeze the same parameters. Otherwise their parameters would become
// different.
void VirtualRanks::check_alike(const Tensor& total) {
  const auto* numbers = total.data<double>();
  if (Alike{numbers[3], numbers[4]}.on(options_.shards)) return;
  check_same_lines(group_, str(kName, ", step ", step_), "set of frozen parameters",
                   frozen_lines(trained_),
                   "; freeze and unfreeze on all ranks before the same step");
}

void VirtualRanks::add_replica(Device device) {
  CHECK(!options_.sync_batch_norm, kName, ": ", options_.devices.size(),
        " devices, and batch norm over all shards is for one device of a rank");
  check_device(kName, device);
  const std::shared_ptr<nn::Module> own = options_.make_replica();
  check_replica(kName, module_, *own);
  own->to(device);
  const auto parameters = module_.parameters(), copies = own->parameters();
  std::vector<Tensor> trained;
  for (size_t i = 0; i < parameters.size(); ++i) {
    copies[i].requires_grad_(parameters[i].requires_grad());
    if (parameters[i].requires_grad()) trained.push_back(copies[i]);
  }
  gradients_->add_replica(trained);
  replicas_.push_back({own, own.get(), device, own->buffers()});
}

// The replicas get the module's parameters and modes.
void VirtualRanks::replicate() {
  const auto parameters = module_.parameters();
  const auto modules = module_.named_modules();
  for (size_t r = 1; r < replicas_.size(); ++r) {
    const auto copies = replicas_[r].module->parameters();
    for (size_t i = 0; i < copies.size(); ++i)
      copies[i].set_data(copy_of(parameters[i], {parameters[i].dtype(), replicas_[r].device}));
    const auto own = replicas_[r].module->named_modules();
    for (size_t i = 0; i < own.size(); ++i)
      own[i].second->set_training(modules[i].second->is_training());
  }
}

void VirtualRanks::give_buffers(size_t replica, const std::vector<Tensor>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) replicas_[replica].buffers[i].set_data(buffers[i]);
}

// Each replica computes neighbouring ones of this rank's shards, on a thread of its own. Throws the
// first one's error.
void VirtualRanks::on_replicas(const std::function<void(size_t replica, int shard)>& compute) {
  const int shards = own_shards().size(),
            replicas = std::min(shards, static_cast<int>(replicas_.size()));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(replicas));
  const ThreadModes modes;
  const auto run = [&](int r) {
    try {
      const ThreadModes::Scope scope(modes);
      const ShardRange own = shards_of_rank(r, replicas, shards);
      for (int m = own.begin; m < own.end; ++m) compute(static_cast<size_t>(r), m);
    } catch (...) {
      errors[r] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;  // joined when they go
    for (int r = 1; r < replicas; ++r) threads.emplace_back(run, r);
    run(0);
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
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
    group_.broadcast(base, 0, {.step = step_, .about = summary_}).wait();
  }
  return bases;
}

// Returns what a shard adds to the step, as float64, in which counts are exact. Floating buffers
// (float64 ones as differences from their base) are multiplied by the samples, so that their mean
// can be taken. Integers and booleans are those of shard 0.
Tensor VirtualRanks::summary_of(const ShardState& state, const std::vector<Tensor>& bases) const {
  int64_t numel = kNumbers;
  for (const Tensor& buffer : state.buffers) numel += count_of_numbers(buffer);
  const Tensor row = full({numel}, -0.0, {.dtype = DType::Float64});
  auto* numbers = row.data<double>();
  numbers[0] = static_cast<double>(state.samples);
  numbers[1] = state.loss;
  numbers[2] = flag_ ? 1 : 0;
  const Alike frozen = Alike::of(frozen_number(trained_));
  numbers[3] = frozen.sum;
  numbers[4] = frozen.squares;
  int64_t at = kNumbers;
  for (size_t i = 0; i < state.buffers.size(); ++i) {
    const Tensor& buffer = state.buffers[i];
    const double weight = is_floating(buffer.dtype()) ? numbers[0] : state.index == 0 ? 1 : 0;
    const Tensor part = row.as_strided({count_of_numbers(buffer)}, {1}, at);
    if (weight > 0) {
      const Tensor x = on_device(numbers_of(buffer), part.device());
      copy_(part, bases[i] ? apart_from(bases[i], x) : x);
      multiply(part, weight);
    }
    at += part.numel();
  }
  return row;
}

double VirtualRanks::take_in(const Tensor& total, const std::vector<Tensor>& bases) {
  const auto* numbers = total.data<double>();
  any_flag_ = numbers[2] > 0;
  int64_t at = kNumbers;
  for (size_t i = 0; i < replicas_[0].buffers.size(); ++i) {
    const Tensor& buffer = replicas_[0].buffers[i];
    const Tensor part = total.as_strided({count_of_numbers(buffer)}, {1}, at);
    if (is_floating(buffer.dtype())) multiply(part, 1 / numbers[0]);
    take_numbers(buffer, bases[i] ? moved_from(bases[i], part) : part);
    at += part.numel();
  }
  return numbers[1] / numbers[0];
}

double VirtualRanks::step(Int64 batch, const ComputeLoss& compute_loss) {
  CHECK(grad_enabled(), kName, ": step inside a NoGradGuard, where there are no gradients");
  CHECK(batch > 0, kName, ": a batch of ", batch, " samples, expected at least one");
  CHECK(!options_.sync_batch_norm || batch >= options_.shards, kName, ": a batch of ", batch,
        " samples for ", options_.shards,
        " shards, and batch norm over all of them needs a sample in each; leave the batch out");
  check_module();
  const std::vector<ShardState> states = compute_shards(batch, compute_loss);
  const std::vector<Tensor> bases = bases_of(states);
  std::vector<PartialSum<Tensor>> sums;
  for (const ShardState& state : states)
    join(sums, {{state.index, state.index + 1}, summary_of(state, bases)}, options_.shards, sum_of);
  std::vector<Tensor> rows;
  for (auto& sum : sums) rows.push_back(std::move(sum.value));
  auto summary = tree_.start(std::move(rows), {.step = step_, .about = summary_});
  gradients_->finish(1 / static_cast<double>(batch));
  tree_.fold(summary);
  tree_.finish(summary);
  check_alike(summary.own.back());
  ++step_;
  return take_in(summary.own.back(), bases);
}

// Every shard of this rank; afterwards the module's buffers are what they were.
std::vector<VirtualRanks::ShardState> VirtualRanks::compute_shards(
    int64_t batch, const ComputeLoss& compute_loss) {
  const ShardRange own = own_shards();
  std::vector<Tensor> before;
  for (const Tensor& buffer : replicas_[0].buffers) before.push_back(buffer.detach());
  std::vector<ShardState> states;
  for (int shard = own.begin; shard < own.end; ++shard) states.push_back({shard, {}, Generator()});
  const auto prepare = [&](ShardState& state, Device device) {
    state.random = Generator(0, device);
    state.random.set_state(options_.seed + static_cast<uint64_t>(state.index),
                           static_cast<uint64_t>(step_) << kDrawBits);
    for (const Tensor& buffer : before)
      state.buffers.push_back(copy_of(buffer, {buffer.dtype(), device}));
  };
  const auto begin_turn = [&](size_t replica, int m) {
    gradients_->compute(m, static_cast<int>(replica));
    give_buffers(replica, states[m].buffers);
  };
  Lockstep lockstep(own.size(), [&](int m) { begin_turn(0, m); });
  ShardMeeting meeting(options_.shards, own, own.size() > 1 ? &lockstep : nullptr);
  try {
    gradients_->begin(step_);
    if (options_.sync_batch_norm) {
      for (ShardState& state : states) prepare(state, device_);
      lockstep.run(
          [&](int m) { compute_shard(states[m], replicas_[0], batch, compute_loss, meeting); });
    } else {
      replicate();
      on_replicas([&](size_t replica, int m) {
        prepare(states[m], replicas_[replica].device);
        begin_turn(replica, m);
        compute_shard(states[m], replicas_[replica], batch, compute_loss, meeting);
      });
    }
  } catch (...) {
    gradients_->abandon();
    give_buffers(0, before);
    throw;
  }
  give_buffers(0, before);
  return states;
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

uint64_t VirtualRanks::check_identical() const {
  return check_identical_values(group_, kName, module_.state_dict());
}

}  // namespace ringgrad
