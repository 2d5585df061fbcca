// ZeRO: ranks that divide the optimizer's state, and their gradients, train bit for bit as ranks
// that do not. One file, because all cases compare the same ways to train.
#include "ringgrad/distributed/sharded_optimizer.h"

#include <sys/mman.h>
#include <unistd.h>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/nn/optim/muon.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::sharded_optimizer_test {

namespace {

// A rank's result after some steps: its parameters, and the optimizer's whole state.
struct Trained {
  std::vector<double> values;
  std::vector<double> state;
  bool operator==(const Trained&) const = default;
};

std::vector<double> numbers_of(const nn::NamedTensors& state) {
  std::vector<double> all;
  for (const auto& [name, tensor] : state) {
    const auto values = to_vector<double>(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

Samples batch_of(int64_t step, const ProcessGroup& group, DType dtype = DType::Float32) {
  return samples({6}, 3, dtype, step * 12, step * 12 + 12, group.rank(), group.size());
}

// Steps [begin, end). The middle layer is frozen in steps 2 and 3.
void steps(DistributedDataParallel& ddp, optim::Optimizer& optimizer, ProcessGroup& group,
           int64_t begin, int64_t end) {
  for (int64_t step = begin; step < end; ++step) {
    for (const auto& [name, parameter] : ddp.named_parameters())
      if (name.starts_with("middle")) Tensor(parameter).set_requires_grad(step != 2 && step != 3);
    const auto [x, target] = batch_of(step, group);
    optimizer.zero_grad();
    cross_entropy(ddp(x), target).backward();
    optimizer.step();
  }
  ddp.check_identical();
}

const BucketCaps kSmallBuckets = {.first_bytes = 200, .bytes = 400};

template <class Plain, class Options>
Trained train(int ranks, const char* channel, const Options& options, int zero) {
  Trained result;
  run_ddp_ranks(
      ranks,
      [&](ProcessGroup& group) {
        const auto net = make_net<Mlp>(3, DType::Float32);
        DistributedDataParallel ddp(*net, group, {.caps = kSmallBuckets, .zero = zero});
        // Two groups of parameters, of which the second's size divides by no number of ranks.
        nn::NamedTensors weights;
        nn::NamedTensors biases;
        for (const auto& entry : ddp.named_parameters())
          (entry.first.ends_with("weight") ? weights : biases).push_back(entry);
        Options of_biases = options;
        of_biases.weight_decay = 0;
        const std::vector<optim::ParamGroup<Options>> groups{{weights, options},
                                                             {biases, of_biases}};
        std::unique_ptr<optim::Optimizer> optimizer;
        if (zero > 0)
          optimizer = std::make_unique<ShardedOptimizer<Plain>>(ddp, groups);
        else
          optimizer = std::make_unique<Plain>(groups);
        steps(ddp, *optimizer, group, 0, 6);
        const std::vector<double> state = numbers_of(optimizer->state_dict());
        if (group.rank() == ranks - 1) result = {flat_values(ddp), state};
      },
      channel);
  return result;
}

}  // namespace

TEST_CASE("a divided step is the undivided one", "[sharded_optimizer][quick][threads]") {
  const optim::SGDOptions sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-2};
  const optim::AdamWOptions adamw{.lr = 0.01, .weight_decay = 1e-2};
  const optim::AdamWOptions largest{.lr = 0.01, .amsgrad = true, .maximize = true};
  const char* channel = GENERATE("shm", "tcp");
  for (const int ranks : {1, 2, 3, 4}) {
    const Trained plain_sgd = train<optim::SGD>(ranks, channel, sgd, 0);
    const Trained plain_adamw = train<optim::AdamW>(ranks, channel, adamw, 0);
    const Trained plain_largest = train<optim::AdamW>(ranks, channel, largest, 0);
    for (const int zero : {1, 2}) {
      CAPTURE(channel, ranks, zero);
      CHECK(train<optim::SGD>(ranks, channel, sgd, zero) == plain_sgd);
      CHECK(train<optim::AdamW>(ranks, channel, adamw, zero) == plain_adamw);
      CHECK(train<optim::AdamW>(ranks, channel, largest, zero) == plain_largest);
    }
  }
}

TEST_CASE("divided float32 copies are the undivided ones", "[sharded_optimizer][quick][threads]") {
  const optim::AdamWOptions options{.lr = 0.01, .weight_decay = 1e-2};
  const auto train_bf16 = [&](int ranks, int zero, bool float16) {
    Trained result;
    run_ddp_ranks(ranks, [&](ProcessGroup& group) {
      const DType dtype = float16 ? DType::Float16 : DType::BFloat16;
      const auto net = make_net<Mlp>(3, dtype);
      DistributedDataParallel ddp(*net, group,
                                  {.caps = kSmallBuckets, .check_finite = !float16, .zero = zero});
      std::optional<optim::MasterWeights> masters;
      std::shared_ptr<optim::MasterShare> shared;
      std::unique_ptr<optim::Optimizer> optimizer;
      if (zero > 0) {
        optimizer = std::make_unique<optim::AdamW>(ddp.named_parameters(), options);
        shared = std::make_shared<optim::MasterShare>(ddp.step_share(), ddp.named_parameters());
        optimizer->share(shared);
      } else {
        masters.emplace(ddp.named_parameters());
        optimizer = std::make_unique<optim::AdamW>(masters->parameters(), options);
      }
      optim::GradScaler scaler({}, {.initial_scale = 1 << 20, .growth_interval = 2});
      for (int64_t step = 0; step < 6; ++step) {
        const auto [x, target] = batch_of(step, group, dtype);
        masters ? masters->zero_grad() : optimizer->zero_grad();
        const Tensor loss = cross_entropy(ddp(x), target);
        (float16 ? scaler.scale(loss) : loss).backward();
        if (masters) masters->take_gradients();
        if (float16) {
          scaler.step(*optimizer);
          scaler.update();
        } else {
          optimizer->step();
        }
        if (masters) masters->publish();
      }
      ddp.check_identical();
      nn::NamedTensors state = optimizer->state_dict();
      for (const auto& [name, x] : masters ? masters->parameters() : shared->state_dict())
        state.emplace_back("master." + name, x.detach());
      if (float16) must(scaler.current_scale() < (1 << 20), "a step was skipped");
      std::sort(state.begin(), state.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      if (group.rank() == ranks - 1) result = {flat_values(ddp), numbers_of(state)};
    });
    return result;
  };
  for (const bool float16 : {false, true})
    for (const int ranks : {1, 2, 3}) {
      const Trained plain = train_bf16(ranks, 0, float16);
      for (const int zero : {1, 2}) {
        CAPTURE(float16, ranks, zero);
        CHECK(train_bf16(ranks, zero, float16) == plain);
      }
    }
}

TEST_CASE("any number of ranks goes on with a divided state",
          "[sharded_optimizer][quick][threads]") {
  nn::NamedTensors model;
  nn::NamedTensors state;
  const optim::AdamOptions options{.lr = 0.01};
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.zero = 2});
    ShardedOptimizer<optim::Adam> optimizer(ddp, ddp.named_parameters(), options);
    steps(ddp, optimizer, group, 0, 2);
    const nn::NamedTensors all = optimizer.state_dict();
    if (!group.is_main_process()) return;
    for (const auto& [name, tensor] : all)
      state.emplace_back(name, copy_of(tensor, {tensor.dtype()}));
    for (const auto& [name, tensor] : net->state_dict())
      model.emplace_back(name, copy_of(tensor, {tensor.dtype()}));
  });
  const auto go_on = [&](int ranks, int zero) {
    std::vector<double> values;
    run_ddp_ranks(ranks, [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(4, DType::Float32);
      net->load_state_dict(model);
      DistributedDataParallel ddp(*net, group, {.zero = zero});
      optim::Adam adam(ddp.named_parameters(), options);
      if (zero > 0) adam.share(ddp.step_share());
      adam.load_state_dict(state);
      steps(ddp, adam, group, 4, 7);
      if (group.is_main_process()) values = flat_values(ddp);
    });
    return values;
  };
  for (const int ranks : {1, 2, 4})
    for (const int zero : {1, 2}) CHECK(go_on(ranks, zero) == go_on(ranks, 0));
}

namespace {

struct Wide : nn::Module {
  nn::Linear fc{255, 1024};  // with its bias 2^18 parameters
  Wide() { register_module("fc", fc); }
  Tensor forward(const Tensor& x) override { return fc(x); }
};

// The bytes of these arrays that are in memory.
int64_t resident_bytes(const std::vector<std::pair<std::byte*, std::byte*>>& arrays) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  int64_t bytes = 0;
  for (const auto& [begin, end] : arrays) {
    auto* first = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(begin) / page * page);
    std::vector<unsigned char> pages((static_cast<size_t>(end - first) + page - 1) / page);
    must(mincore(first, static_cast<size_t>(end - first), pages.data()) == 0, "mincore");
    for (const unsigned char in : pages) bytes += in & 1 ? static_cast<int64_t>(page) : 0;
  }
  return bytes;
}

}  // namespace

TEST_CASE("a rank keeps its part of the state, and of the gradients, alone",
          "[sharded_optimizer][quick][threads]") {
  const char* channel = GENERATE("shm", "tcp");
  struct Kept {
    int64_t account = 0;  // of all four ranks
    std::array<std::atomic<int64_t>, 4> resident = {};
  };
  constexpr int kRanks = 4;
  const auto kept = [&](int zero, Kept& found) {
    run_ddp_ranks(
        kRanks,
        [&](ProcessGroup& group) {
          group.barrier().wait();
          const int64_t before = memory_stats({}).live_bytes;
          group.barrier().wait();
          const auto net = make_seeded<Wide>(1);
          DistributedDataParallel ddp(*net, group, {.zero = zero});
          optim::Adam optimizer(ddp.named_parameters(), {});
          if (zero > 0) optimizer.share(ddp.step_share());
          std::vector<std::pair<std::byte*, std::byte*>> gradients;
          for (int step = 0; step < 3; ++step) {
            optimizer.zero_grad();
            gradients.clear();
            for (const Tensor& p : ddp.parameters()) {
              auto* begin = static_cast<std::byte*>(p.grad().raw_data());
              gradients.emplace_back(begin, begin + p.numel() * 4);
            }
            ddp(full({2, 255}, group.rank() + 1)).sum().backward();
            optimizer.step();
          }
          found.resident[group.rank()] = resident_bytes(gradients);
          group.barrier().wait();
          if (group.is_main_process()) found.account = memory_stats({}).live_bytes - before;
          group.barrier().wait();
        },
        channel);
  };
  Kept plain;
  Kept first;
  Kept second;
  kept(0, plain);
  kept(1, first);
  kept(2, second);
  const double array = 256.0 * 1024 * sizeof(float);
  // Adam's two arrays, and the gradients', of which three quarters go on each of four ranks.
  const double saved = 0.75 * kRanks * array;
  CHECK(std::abs(static_cast<double>(plain.account - first.account) - 2 * saved) < 0.2 * saved);
  CHECK(std::abs(static_cast<double>(first.account - second.account) - saved) < 0.2 * saved);
  for (int r = 0; r < kRanks; ++r) {
    CAPTURE(channel, r);
    CHECK(static_cast<double>(first.resident[r]) >= array);
    CHECK(static_cast<double>(second.resident[r]) < 0.3 * array);
  }
}

TEST_CASE("with divided steps as many bytes travel as without", "[sharded_optimizer][quick]") {
  const int size = GENERATE(2, 3, 4);
  // The bytes that each rank sends in four steps, after two that agree on buckets and lay the
  // state.
  const auto sent = [&](int zero) {
    std::vector<std::atomic<int64_t>> bytes(static_cast<size_t>(size));
    std::vector<std::unique_ptr<HostProcessGroup>> groups;
    for (auto& transport : in_process_transports(size, "tcp")) {
      HostOptions options;
      // Auto may send more bytes than necessary, where that takes less time.
      options.algorithm = AllReduceAlgorithm::Direct;
      options.on_send = [&count = bytes[groups.size()]](int, std::span<const std::byte> payload) {
        count += static_cast<int64_t>(payload.size());
      };
      groups.push_back(std::make_unique<HostProcessGroup>(std::move(transport), options));
    }
    const auto errors = errors_of_ranks(std::move(groups), [&](ProcessGroup& group) {
      const auto net = make_seeded<Wide>(1);
      DistributedDataParallel ddp(*net, group, {.caps = {100'000, 300'000}, .zero = zero});
      optim::Adam optimizer(ddp.named_parameters(), {});
      if (zero > 0) optimizer.share(ddp.step_share());
      for (int step = 0; step < 6; ++step) {
        group.barrier().wait();  // parameters may still travel
        if (step == 2) bytes[static_cast<size_t>(group.rank())] = 0;
        optimizer.zero_grad();
        ddp(full({2, 255}, group.rank() + 1)).sum().backward();
        optimizer.step();
      }
    });
    for (const std::string& error : errors) CHECK(error.empty());
    int64_t all = 0;
    for (const auto& count : bytes) all += count;
    return all;
  };
  const int64_t plain = sent(0);
  for (const int zero : {1, 2}) {
    const int64_t divided = sent(zero);
    CHECK(divided <= plain);
    CHECK(static_cast<double>(divided) > 0.99 * static_cast<double>(plain));
  }
}

TEST_CASE("a divided step is skipped on all ranks", "[sharded_optimizer][quick][threads]") {
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group,
                                {.caps = kSmallBuckets, .check_finite = false, .zero = 2});
    ShardedOptimizer<optim::Adam> optimizer(ddp, ddp.named_parameters(), optim::AdamOptions{});
    optim::GradScaler scaler;
    const std::vector<double> before = flat_values(ddp);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 4, group.rank(), 2);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      // In the first step one element of one rank's slice alone is infinite.
      Tensor loss = cross_entropy(ddp(x), target);
      if (step == 0)
        loss = loss + (net->first.named_parameters()[0].second.flatten().select(0, 0)) * INFINITY;
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      must((flat_values(ddp) == before) == (step == 0), "the first step changes nothing");
    }
    must(numbers_of(optimizer.state_dict())[0] == 1, "one step is counted");
  });
}

namespace {

enum class Course { Plain, NoSync, Uneven, Skips, Clips };

Trained course(Course kind, int ranks, const char* channel, int zero) {
  Trained result;
  run_ddp_ranks(
      ranks,
      [&](ProcessGroup& group) {
        const auto net = make_net<Mlp>(3, DType::Float64);
        DistributedDataParallel ddp(*net, group, {.caps = kSmallBuckets, .zero = zero});
        optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.01});
        if (zero > 0) optimizer.share(ddp.step_share());
        for (int64_t step = 0; step < 5; ++step) {
          optimizer.zero_grad();
          const auto [x, target] = batch_of(step, group, DType::Float64);
          if (kind == Course::NoSync)
            for (int pass = 0; pass < 2; ++pass) {
              const auto guard = ddp.no_sync();
              cross_entropy(ddp(x * (1.0 + pass)), target).backward();
            }
          if (kind == Course::Skips && step == 2 && group.rank() == 0) ddp.skip_step();
          if (kind == Course::Uneven && step >= 3 && group.rank() == 0)
            must(ddp.shadow_step(), "others have data");
          else
            cross_entropy(ddp(x), target).backward();
          if (ddp.skipped()) continue;
          if (kind == Course::Clips) optim::clip_grad_norm_(ddp.parameters(), 0.01);
          optimizer.step();
        }
        ddp.check_identical();
        const std::vector<double> state = numbers_of(optimizer.state_dict());
        if (group.rank() == ranks - 1) result = {flat_values(ddp), state};
      },
      channel);
  return result;
}

}  // namespace

TEST_CASE("divided steps with no_sync, uneven inputs, skipped steps and clipping",
          "[sharded_optimizer][quick][threads]") {
  const Course kind =
      GENERATE(Course::Plain, Course::NoSync, Course::Uneven, Course::Skips, Course::Clips);
  const char* channel = GENERATE("shm", "tcp");
  for (const int ranks : {2, 3}) {
    const Trained plain = course(kind, ranks, channel, 0);
    for (const int zero : {1, 2}) {
      CAPTURE(static_cast<int>(kind), channel, ranks, zero);
      const Trained divided = course(kind, ranks, channel, zero);
      if (kind != Course::Clips) {
        CHECK(divided == plain);
        continue;
      }
      // The norm is added up in another order.
      CHECK(relative_difference(divided.values, plain.values) < training_tolerance(DType::Float64));
      CHECK(relative_difference(divided.values, course(Course::Plain, ranks, channel, 0).values) >
            1e-6);
    }
  }
}

TEST_CASE("the norm of an optimizer's only parameter is that of all ranks",
          "[sharded_optimizer][quick][threads]") {
  const auto norm_with = [](int zero) {
    double norm = 0;
    run_ddp_ranks(2, [&](ProcessGroup& group) {
      const auto net = make_seeded<nn::Linear>(1, 6, 3, nn::LinearOptions{.bias = false});
      DistributedDataParallel ddp(*net, group, {.zero = zero});
      optim::SGD optimizer(net->named_parameters(), {.lr = 0.1});
      if (zero > 0) optimizer.share(ddp.step_share());
      const auto [x, target] = batch_of(0, group);
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      const double found = optim::clip_grad_norm_(ddp.parameters(), 1e9).item<float>();
      optimizer.step();
      if (group.rank() == 1) norm = found;
    });
    return norm;
  };
  const double plain = norm_with(0);
  CHECK(plain > 0.01);
  for (const int zero : {1, 2}) CHECK(norm_with(zero) == Approx(plain).epsilon(1e-6));
}

TEST_CASE("divided steps of shards have the bits of one rank",
          "[sharded_optimizer][quick][threads]") {
  const auto bits = [](int ranks, const char* channel, int zero, bool sync) {
    Trained result;
    run_ddp_ranks(
        ranks,
        [&](ProcessGroup& group) {
          const auto net = make_net<Mlp>(3, DType::Float32);
          VirtualRanks shards(
              *net, group,
              {.shards = 5, .sync_batch_norm = sync, .caps = kSmallBuckets, .zero = zero});
          optim::AdamW optimizer(net->named_parameters(), {.lr = 0.01});
          if (zero > 0) optimizer.share(shards.step_share());
          for (int64_t step = 0; step < 4; ++step) {
            const auto [x, target] = samples({6}, 3, DType::Float32, step * 11, step * 11 + 11);
            const RowRange own = shards.own_rows(11);
            shards.step(11, [&](const VirtualRanks::Shard& shard) {
              const auto rows = [&](const Tensor& all) {
                return slice(all, 0, own.begin + shard.begin, own.begin + shard.end);
              };
              const Tensor loss =
                  cross_entropy((*net)(rows(x)), rows(target), {.reduction = Reduction::Sum});
              loss.backward();
              return loss;
            });
            optim::clip_grad_norm_(net->parameters(), 0.3);
            must(zero == 0 || !net->parameters()[0].grad(),
                 "gradients are lent for the norm alone");
            optimizer.step();
          }
          shards.check_identical();
          const std::vector<double> state = numbers_of(optimizer.state_dict());
          if (group.rank() == ranks - 1) result = {flat_values(*net), state};
        },
        channel);
    return result;
  };
  const bool sync = GENERATE(false, true);
  const Trained one = bits(1, "shm", 0, sync);
  for (const char* channel : {"shm", "tcp"})
    for (const int ranks : {1, 2, 3, 5})
      for (const int zero : {1, 2}) {
        CAPTURE(sync, channel, ranks, zero);
        CHECK(bits(ranks, channel, zero, sync) == one);
      }
}

TEST_CASE("what cannot be divided is refused", "[sharded_optimizer][quick][threads]") {
  run_ddp_ranks(1, [&](ProcessGroup& group) {
    const auto net = make_seeded<nn::Linear>(1, 4, 4);
    DistributedDataParallel ddp(*net, group, {.zero = 1});
    const Tensor weight = net->named_parameters()[0].second;
    must_be_refused(group, "a step needs whole parameters",
                    [&] { ShardedOptimizer<optim::Muon> optimizer(ddp, std::vector{weight}); });
    optim::SGD optimizer(net->named_parameters(), {.lr = 0.1});
    optimizer.share(ddp.step_share());
    optimizer.zero_grad();
    optimizer.step();
    must_be_refused(group, "after the first step", [&] { optimizer.share(ddp.step_share()); });
    must_be_refused(group, "give all of them at once",
                    [&] { optim::clip_grad_norm_({weight}, 1.0); });
    must_be_refused(group, "leave out one of the two",
                    [&] { ddp.register_comm_hook(bf16_compress_hook()); });
    const auto other = make_seeded<nn::Linear>(1, 4, 4);
    optim::SGD of_other(other->named_parameters(), {.lr = 0.1});
    of_other.share(ddp.step_share());
    must_be_refused(group, "the wrapper averages only 0", [&] { of_other.step(); });
    const auto whole = make_seeded<nn::Linear>(1, 4, 4);
    DistributedDataParallel plain(*whole, group);
    must_be_refused(group, "wrap the module with zero = 1 or 2", [&] { plain.step_share(); });
    must_be_refused(group, "stage 3",
                    [&] { DistributedDataParallel third(*other, group, {.zero = 3}); });
    optim::SGD late(other->named_parameters(), {.lr = 0.1});
    {
      DistributedDataParallel gone(*other, group, {.zero = 2});
      late.share(gone.step_share());
    }
    must_be_refused(group, "the wrapper of these parameters is gone", [&] { late.step(); });
    const auto forgotten = make_seeded<nn::Linear>(1, 6, 3);
    DistributedDataParallel in_parts(*forgotten, group, {.zero = 1});
    optim::SGD alone(forgotten->named_parameters(), {.lr = 0.1});
    const auto [x, target] = batch_of(0, group);
    cross_entropy(in_parts(x), target).backward();
    must_be_refused(group, "use a ShardedOptimizer", [&] { alone.step(); });
  });
  const auto errors = errors_of_ranks(host_groups(2), [&](ProcessGroup& group) {
    const auto net = make_seeded<nn::Linear>(1, 6, 3);
    DistributedDataParallel ddp(*net, group, {.zero = 1});
    for (int step = 0; step < 2; ++step) {
      const auto [x, target] = batch_of(step, group);
      cross_entropy(ddp(x), target).backward();
    }
  });
  for (const std::string& error : errors)
    CHECK(error.find("call the optimizer's zero_grad() before") != std::string::npos);
}

}  // namespace ringgrad::test::sharded_optimizer_test
