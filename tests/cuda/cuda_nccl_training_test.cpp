// DistributedDataParallel over NCCL on two to four devices. It must compute what the same ranks
// compute on the CPU. With SyncBatchNorm it must compute what one device computes from the whole
// batch, in float32, and in float16 with a loss scale.
#include <cmath>
#include <optional>

#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_nccl_training_test {

namespace {

constexpr int64_t kSteps = 6;

// Returns one rank's part of a step's batch of 8 or 7 samples. Not all ranks have the same number.
Samples batch_of(int64_t step, int rank, int ranks, DType dtype) {
  return samples({1, 8, 8}, 3, dtype, 8 * step, 8 * step + (step == 4 ? 7 : 8), rank, ranks);
}

std::vector<double> train_ranks(int ranks, bool on_devices, const NcclOptions& options = {}) {
  std::vector<double> result;
  const auto body = [&](ProcessGroup& group) {
    const Device device = on_devices ? device_of(group) : Device();
    // rank 0's weights must win.
    const auto net = make_net<NormedCnn>(3 + group.rank(), DType::Float32);
    net->to(device);
    DistributedDataParallel ddp(*net, group, {.caps = {300, 300}});
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.05, .momentum = 0.9});
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto [x, target] = batch_of(step, group.rank(), ranks, DType::Float32);
      optimizer.zero_grad();
      cross_entropy(ddp(to(x, device)), to(target, device)).backward();
      optimizer.step();
    }
    ddp.check_identical();
    if (group.is_main_process()) result = flat_values(ddp);
  };
  if (on_devices)
    run_nccl(ranks, options, body);
  else
    run_ddp_ranks(ranks, body);
  return result;
}

// Training in mixed precision: 16-bit parameters with float32 copies, and a scale with which the
// first step overflows.
class MixedTrainer {
 public:
  // Without a group this is the reference: one device, no wrapper.
  MixedTrainer(DType dtype, Device device, ProcessGroup* group)
      : dtype_(dtype), device_(device), net_(make_net<NormedCnn>(3, dtype)) {
    net_->to(device);
    if (group) {
      must(convert_sync_batchnorm(*net_, *group) == 1, "one is converted");
      ddp_.emplace(*net_, *group,
                   DistributedDataParallelOptions{.caps = {300, 300}, .check_finite = false});
    }
    masters_.emplace(net_->named_parameters());
    optimizer_.emplace(masters_->parameters(), optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
    scaler_.emplace(device, optim::GradScalerOptions{
                                .initial_scale = 0x1p40, .backoff = 0x1p-30, .growth_interval = 2});
  }

  void train(int rank, int ranks) {
    nn::Module& model = ddp_ ? static_cast<nn::Module&>(*ddp_) : *net_;
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto [x, target] = batch_of(step, rank, ranks, dtype_);
      masters_->zero_grad();
      const Tensor loss =
          cross_entropy(to(model(to(x, device_)), DType::Float32), to(target, device_));
      (dtype_ == DType::Float16 ? scaler_->scale(loss) : loss).backward();
      masters_->take_gradients();
      if (dtype_ == DType::Float16) {
        scaler_->step(*optimizer_);
        scaler_->update();
      } else {
        optimizer_->step();
      }
      masters_->publish();
    }
    if (ddp_) ddp_->check_identical();
  }

  double scale() const { return scaler_->current_scale(); }
  // Returns the state that training changes, in float32: the copies of the parameters, and the
  // running statistics.
  std::vector<double> state() const {
    std::vector<double> all;
    const auto append = [&](const Tensor& x) {
      for (const double value : to_vector<double>(x)) all.push_back(value);
    };
    for (const auto& [name, master] : masters_->parameters()) append(master);
    append(net_->bn.running_mean);
    append(net_->bn.running_var);
    return all;
  }

 private:
  DType dtype_;
  Device device_;
  std::unique_ptr<NormedCnn> net_;
  std::optional<DistributedDataParallel> ddp_;
  std::optional<optim::MasterWeights> masters_;
  std::optional<optim::SGD> optimizer_;
  std::optional<optim::GradScaler> scaler_;
};

std::vector<double> operator-(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

}  // namespace

TEST_CASE("nccl: DistributedDataParallel on devices computes what it does on the CPU",
          "[quick][cuda][threads]") {
  const int ranks = GENERATE(2, 3, 4);
  if (!enough_devices(ranks)) return;
  const auto cpu = train_ranks(ranks, false);
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  INFO(ranks << " ranks");
  CHECK(relative_difference(train_ranks(ranks, true, {.all_reduce = how, .segment_bytes = 100}),
                            cpu) < training_tolerance(DType::Float32));
}

TEST_CASE("nccl: with SyncBatchNorm and a loss scale, ranks train as one device",
          "[quick][cuda][threads]") {
  const int ranks = GENERATE(2, 3, 4);
  if (!enough_devices(ranks)) return;
  const DType dtype = GENERATE(DType::Float32, DType::Float16);
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  MixedTrainer alone(dtype, Device("cuda:0"), nullptr);
  const std::vector<double> before = alone.state();
  alone.train(0, 1);
  const std::vector<double> expected = alone.state() - before;

  std::vector<double> moved;
  double scale = 0;
  const StreamOrderGuard order(StreamOrder::Random);
  run_nccl(ranks, {.all_reduce = how, .segment_bytes = 100}, [&](ProcessGroup& group) {
    MixedTrainer trainer(dtype, device_of(group), &group);
    trainer.train(group.rank(), group.size());
    if (!group.is_main_process()) return;
    moved = trainer.state() - before;
    scale = trainer.scale();
  });
  CHECK(scale == alone.scale());
  // The first step was skipped, and five were good.
  if (dtype == DType::Float16) CHECK(scale == 0x1p12);
  // See Note [Tolerances] in test_util.h: the longest sum is that over the pixels of 8 images. In
  // float16 it is kept in float32, so what adds up is one rounding per step.
  const double terms = dtype == DType::Float32 ? 8 * 64 : kSteps;
  INFO(ranks << " ranks, " << dtype);
  CHECK(relative_difference(moved, expected) < machine_epsilon(dtype) * (4 + 2 * std::sqrt(terms)));
}

TEST_CASE("nccl: exact times of buckets are in order", "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  run_nccl(2, {}, [](ProcessGroup& group) {
    const auto net = make_net<NormedCnn>(3, DType::Float32);
    net->to(device_of(group));
    DistributedDataParallel ddp(*net, group, {.caps = {300, 300}, .exact_times = true});
    const auto [x, target] = batch_of(0, group.rank(), group.size(), DType::Float32);
    for (int step = 0; step < 2; ++step)
      cross_entropy(ddp(to(x, device_of(group))), to(target, device_of(group))).backward();
    const ReductionLog& log = ddp.log();
    must(log.buckets.size() > 2, "several buckets");
    for (const BucketLog& bucket : log.buckets)
      must(0 < bucket.ready && bucket.ready <= bucket.launched &&
               bucket.launched < bucket.completed && bucket.completed <= log.finished,
           "the order of times");
    must(log.buckets.back().launched >= log.computed, "the last bucket is launched after backward");
  });
}

}  // namespace ringgrad::test::cuda_nccl_training_test
