// The weights of ranks: whatever the mean of a loss is taken over, the average over the ranks must
// be the gradient that one process computes from the whole batch.
#include <array>
#include <limits>

#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::ddp_weights_test {

namespace {

constexpr DType kDouble = DType::Float64;

// It has batch norm over all ranks, whatever their losses weigh.
std::unique_ptr<TwiceNormedCnn> make_normed() { return make_net<TwiceNormedCnn>(3, kDouble, 3); }

// Rows of images, many of them without a label: rank 1 of 2 has one labelled row of eight, rank 2
// of 3 none.
struct Labelled {
  Tensor x;
  Tensor target;
  Labelled(int64_t begin, int64_t end) : x(samples({1, 8, 8}, 3, kDouble, begin, end).x) {
    std::vector<int64_t> labels;
    for (int64_t i = begin; i < end; ++i) labels.push_back(i < 8 || i == 10 ? (i * i) % 3 : -100);
    target = tensor(labels);
  }
};

const ClassLossOptions kPlain = {};
ClassLossOptions with_class_weights() { return {.weight = tensor<double>({0.2, 1, 7})}; }

// Every rank has eight rows in a row, one process has them all.
void compare_with_one_process(int ranks, const ClassLossOptions& options) {
  const auto alone = make_normed();
  const Labelled all(0, 8 * ranks);
  cross_entropy((*alone)(all.x), all.target, options).backward();
  run_ddp_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_normed();
    convert_sync_batchnorm(*net, group);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}, .weighting = Weighting::Given});
    const Labelled own(8 * group.rank(), 8 * group.rank() + 8);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp.set_weight(loss_divisor(own.target, options));
      cross_entropy(ddp(own.x), own.target, options).backward();
      must(!ddp.skipped(), "a step like others");
      must(relative_difference(gradients(*net), gradients(*alone)) < 1e-11,
           "the gradient of the whole batch");
    }
    ddp.check_identical();
  });
}

}  // namespace

TEST_CASE("a rank with one labelled row of eight", "[ddp][quick][threads]") {
  compare_with_one_process(2, kPlain);
}

TEST_CASE("a rank whose rows are all ignored adds nothing, and no NaN", "[ddp][quick][threads]") {
  compare_with_one_process(3, kPlain);
}

// Rank 1 has its label in the first pass, rank 2 none in either.
TEST_CASE("labelled rows in several passes", "[ddp][quick][threads]") {
  constexpr int kRanks = 3;
  constexpr int kPasses = 2;
  const auto rows = [](int rank, int pass) {
    return Labelled(8 * rank + 4 * pass, 8 * rank + 4 * pass + 4);
  };
  const auto loss_of = [](nn::Module& model, const Tensor& x, const Tensor& target,
                          double divisor) {
    return cross_entropy(model(x), target, {.reduction = Reduction::Sum}) * (1 / divisor);
  };
  const auto alone = make_normed();
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<Tensor> xs;
    std::vector<Tensor> targets;
    for (int rank = 0; rank < kRanks; ++rank) {
      xs.push_back(rows(rank, pass).x);
      targets.push_back(rows(rank, pass).target);
    }
    loss_of(*alone, cat(xs), cat(targets), 9).backward();  // 8 + 1 + 0 labels
  }
  run_ddp_ranks(kRanks, [&](ProcessGroup& group) {
    const auto net = make_normed();
    convert_sync_batchnorm(*net, group);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}, .weighting = Weighting::Given});
    const double labels = loss_divisor(Labelled(8 * group.rank(), 8 * group.rank() + 8).target);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      ddp.set_weight(labels);
      {
        const auto guard = ddp.no_sync();
        loss_of(ddp, rows(group.rank(), 0).x, rows(group.rank(), 0).target, labels).backward();
      }
      loss_of(ddp, rows(group.rank(), 1).x, rows(group.rank(), 1).target, labels).backward();
      must(relative_difference(gradients(*net), gradients(*alone)) < 1e-11,
           "the gradient of all passes");
    }
  });
}

TEST_CASE("class weights", "[ddp][quick][threads]") {
  compare_with_one_process(2, with_class_weights());
}

TEST_CASE("what a mean over rows is divided by", "[loss][quick]") {
  CHECK(loss_divisor(tensor<int64_t>({0, 2, -100, 1}), kPlain) == 3);
  CHECK(loss_divisor(tensor<int64_t>({0, 2, -100, 2}), with_class_weights()) == 0.2 + 7 + 7);
  CHECK(loss_divisor(tensor<int64_t>({-100, -100}), kPlain) == 0);
  CHECK(loss_divisor(tensor<int64_t>({4, 7}), {.ignore_index = 4}) == 1);
}

TEST_CASE("a loss that is a sum, and the plain mean of ranks", "[ddp][quick][threads]") {
  const auto alone = make_net<Mlp>(3, kDouble);
  const auto whole = samples({6}, 3, kDouble, 0, 9);
  cross_entropy((*alone)(whole.x), whole.target, {.reduction = Reduction::Sum}).backward();
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, kDouble);
    DistributedDataParallel ddp(*net, group, {.weighting = Weighting::Ranks});
    const int64_t begin = std::vector<int64_t>{0, 1, 3}[group.rank()];
    const int64_t end = std::vector<int64_t>{1, 3, 9}[group.rank()];
    const auto own = samples({6}, 3, kDouble, begin, end);
    (cross_entropy(ddp(own.x), own.target, {.reduction = Reduction::Sum}) * group.size())
        .backward();
    must(relative_difference(gradients(*net), gradients(*alone)) < 1e-12,
         "the gradient of the sum");
  });
}

TEST_CASE("a rank weighs as many samples as its passes have on average", "[ddp][quick][threads]") {
  const auto loss_of = [](nn::Module& model, int64_t begin, int64_t end) {
    const auto own = samples({6}, 3, kDouble, begin, end);
    return cross_entropy(model(own.x), own.target);
  };
  const auto alone = make_net<Mlp>(3, kDouble);
  const Tensor first = loss_of(*alone, 0, 4) + loss_of(*alone, 4, 6);
  const Tensor second = loss_of(*alone, 6, 7) + loss_of(*alone, 7, 8);
  ((3 * first + second) / 4).backward();
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, kDouble);
    DistributedDataParallel ddp(*net, group);
    const std::vector<int64_t> at =
        group.rank() == 0 ? std::vector<int64_t>{0, 4, 6} : std::vector<int64_t>{6, 7, 8};
    {
      const auto guard = ddp.no_sync();
      loss_of(ddp, at[0], at[1]).backward();
    }
    loss_of(ddp, at[1], at[2]).backward();
    must(relative_difference(gradients(*net), gradients(*alone)) < 1e-12,
         "the gradient by the mean numbers of samples");
  });
}

// REINFORCE: each rank has an episode of another length, and the loss is the mean of -log p ·
// advantage over all moves. Its parts come in several passes, and only the last one averages.
TEST_CASE("episodes of unequal length in several passes", "[ddp][quick][threads]") {
  constexpr int kRanks = 3;
  const auto part = [](nn::Module& policy, int64_t begin, int64_t end, double divisor) {
    const auto [x, move] = samples({6}, 3, kDouble, begin, end);
    std::vector<double> advantage;
    for (int64_t i = begin; i < end; ++i) advantage.push_back(std::sin(static_cast<double>(i)));
    const Tensor log_p = nll_loss(log_softmax(policy(x), 1), move, {.reduction = Reduction::None});
    return sum(log_p * tensor(advantage)) * (1 / divisor);
  };
  const auto length_of = [](int rank, int step) {
    return int64_t{3} + 5 * ((rank + step) % kRanks);
  };
  const auto alone = make_net<Mlp>(3, kDouble);
  std::vector<std::vector<double>> expected;
  for (int step = 0; step < 4; ++step) {
    alone->zero_grad();
    for (int rank = 0; rank < kRanks; ++rank)  // 3 + 8 + 13 moves
      part(*alone, 100 * rank, 100 * rank + length_of(rank, step), 24).backward();
    expected.push_back(gradients(*alone));
  }
  run_ddp_ranks(kRanks, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, kDouble);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}, .weighting = Weighting::Given});
    for (int step = 0; step < 4; ++step) {
      ddp.zero_grad();
      const int64_t begin = 100 * group.rank();
      const int64_t end = begin + length_of(group.rank(), step);
      ddp.set_weight(static_cast<double>(end - begin));
      int64_t at = begin;
      {
        const auto guard = ddp.no_sync();
        for (; at + 4 < end; at += 4)
          part(ddp, at, at + 4, static_cast<double>(end - begin)).backward();
      }
      part(ddp, at, end, static_cast<double>(end - begin)).backward();
      must(relative_difference(gradients(*net), expected[step]) < 1e-12,
           "the gradient over all moves");
    }
  });
}

TEST_CASE("a bad batch on one rank is skipped by all", "[ddp][quick][threads]") {
  const bool backward = GENERATE(true, false);
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_net<NormedCnn>(3, kDouble);
    DistributedDataParallel ddp(*net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 4; ++step) {
      const auto before = to_vector<double>(net->conv.weight);
      auto [x, target] = samples({1, 8, 8}, 3, kDouble, 12 * step, 12 * step + 12, group.rank(), 3);
      const bool bad = step == 2 && group.rank() == 1;
      if (bad) fill_(x, std::numeric_limits<double>::quiet_NaN());
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(ddp(x), target);
      if (!std::isfinite(loss.item<double>())) ddp.skip_step();
      if (bad && !backward)
        must(ddp.shadow_step(), "there is data");
      else
        loss.backward();
      must(ddp.skipped() == (step == 2), "all ranks hear of it");
      if (ddp.skipped())
        must(gradients(*net) == std::vector<double>(gradients(*net).size()), "gradients are zeros");
      else
        optimizer.step();
      must((to_vector<double>(net->conv.weight) == before) == (step == 2), "all other steps count");
      must(std::isfinite(sum(net->bn.running_mean).item<double>()),
           "nor is anything left in the running statistics");
    }
    ddp.check_identical();
  });
}

TEST_CASE("a step in which nothing weighs anything is skipped", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, kDouble);
    DistributedDataParallel ddp(*net, group, {.weighting = Weighting::Given});
    for (int step = 0; step < 3; ++step) {
      const auto own = samples({6}, 3, kDouble, 0, 8, group.rank(), 2);
      ddp.set_weight(step == 0 ? 0 : 4);
      const Tensor target = step == 0 ? full({4}, -100, {.dtype = DType::Int64}) : own.target;
      cross_entropy(ddp(own.x), target).backward();
      must(ddp.skipped() == (step == 0), "nobody had a label");
    }
    ddp.check_identical();
  });
}

TEST_CASE("weights that cannot be, or that nobody has given", "[ddp][quick]") {
  const auto error_of = [](Weighting weighting, const std::vector<double>& weights) {
    return errors_of_ranks(host_groups(1), [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(3, kDouble);
      DistributedDataParallel ddp(*net, group, {.weighting = weighting});
      for (const double weight : weights) ddp.set_weight(weight);
      const auto own = samples({6}, 3, kDouble, 0, 8);
      for (int step = 0; step < 2; ++step) cross_entropy(ddp(own.x), own.target).backward();
    })[0];
  };
  require_contains(error_of(Weighting::Samples, {4}), "belongs to Weighting::Given");
  require_contains(error_of(Weighting::Given, {4, -1}), "the weight is -1");
  require_contains(error_of(Weighting::Given, {std::numeric_limits<double>::quiet_NaN()}),
                   "the weight is nan");
  require_contains(error_of(Weighting::Given, {4}),  // once, of two steps
                   "nobody has said what this rank's gradients weigh");
  for (const double usual : {-1.0, std::numeric_limits<double>::infinity()}) {
    const auto errors = errors_of_ranks(host_groups(1), [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(3, kDouble);
      DistributedDataParallel ddp(*net, group, {.usual_weight = usual});
    });
    require_contains(errors[0], str("usual_weight is ", usual));
  }
}

TEST_CASE("a rank that alone gives no weight is named on all", "[ddp][quick][threads]") {
  std::array<std::string, 3> errors;
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, kDouble);
    DistributedDataParallel ddp(*net, group, {.weighting = Weighting::Given});
    const auto own = samples({6}, 3, kDouble, 0, 9, group.rank(), 3);
    if (group.rank() != 1) ddp.set_weight(3);
    try {  // here: a rank that an exception leaves ends the group, which others may hear of first
      cross_entropy(ddp(own.x), own.target).backward();
    } catch (const std::exception& e) {
      errors[group.rank()] = e.what();
    }
  });
  for (const int other : {0, 2})
    require_contains(errors[other], "step 0 has thrown on rank 1: distributed_data_parallel: ");
  for (const std::string& error : errors)
    require_contains(error, "nobody has said what this rank's gradients weigh");
}

}  // namespace ringgrad::test::ddp_weights_test
