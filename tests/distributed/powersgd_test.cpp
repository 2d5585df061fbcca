// PowerSGD against the paper's formulas, computed here in float64 with loops; and a network that
// trains with it.
#include "ringgrad/distributed/powersgd_hook.h"

#include "ringgrad/nn/safetensors.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::powersgd_test {

namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

// Projects x onto the span of the columns by the normal equations, which need no orthogonal basis.
// It uses Gauss and Jordan's method.
Matrix projected(const Matrix& columns, const Matrix& x) {
  Matrix gram = product(transposed(columns), columns);
  Matrix right = product(transposed(columns), x);
  for (size_t i = 0; i < gram.size(); ++i)
    for (size_t k = 0; k < gram.size(); ++k) {
      const double factor = k == i ? 1 - 1 / gram[i][i] : gram[k][i] / gram[i][i];
      for (size_t j = 0; j < gram.size(); ++j) gram[k][j] -= factor * gram[i][j];
      for (size_t j = 0; j < right[0].size(); ++j) right[k][j] -= factor * right[i][j];
    }
  return product(columns, right);
}

Matrix mean(const std::vector<Matrix>& all) {
  Matrix sum = all[0];
  for (size_t i = 0; i < sum.size(); ++i)
    for (size_t j = 0; j < sum[0].size(); ++j) {
      for (size_t r = 1; r < all.size(); ++r) sum[i][j] += all[r][i][j];
      sum[i][j] /= static_cast<double>(all.size());
    }
  return sum;
}

double gradient(int rank, int step, int64_t i) {
  return uniform_from(
             philox(static_cast<uint64_t>(rank * 100 + step), static_cast<uint64_t>(i)).word[0]) -
         0.5;
}

// With buckets of which one splits a tensor, and one is averaged plainly.
struct Trained {
  ProcessGroup& group;
  std::unique_ptr<Mlp> net = make_net<Mlp>(3, DType::Float32);
  DistributedDataParallel ddp{*net, group, {.caps = {256, 640}}};
  optim::SGD optimizer{ddp.named_parameters(), {.lr = 0.1, .momentum = 0.9}};

  Trained(ProcessGroup& ranks, int64_t columns = 1) : group(ranks) {
    ddp.register_comm_hook(powersgd_hook(columns));
  }
  void steps(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      const auto [x, target] =
          samples({6}, 3, DType::Float32, 12 * step, 12 * step + 12, group.rank(), group.size());
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      optimizer.step();
    }
  }
  void load(const Trained& other) {
    net->load_state_dict(other.net->state_dict());
    optimizer.load_state_dict(const_cast<Trained&>(other).optimizer.state_dict());
  }
};

}  // namespace

// These comparisons do not depend on the basis that a hook chooses for its span. P Qᵀ is the
// projection of the mean M onto the span of the mean M Q, and the next Q has the span of its
// transpose.
TEST_CASE("PowerSGD is subspace iteration with error feedback", "[powersgd][quick][threads]") {
  constexpr int kRanks = 3;
  constexpr int kSteps = 4;
  constexpr int kColumns = 2;
  constexpr int64_t kCount = 150;
  constexpr int64_t kSide = 13;  // 19 zeros
  std::vector<std::vector<std::vector<double>>> results(kRanks,
                                                        std::vector<std::vector<double>>(kSteps));
  run_ddp_ranks(kRanks, [&](ProcessGroup& group) {
    const CommHook hook = powersgd_hook(kColumns);
    Tensor scratch;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<double> values;
      for (int64_t i = 0; i < kCount; ++i) values.push_back(gradient(group.rank(), step, i));
      const Tensor flat = tensor(values);
      hook({group, flat, {}, 0, true, {}, scratch}).wait();
      results[group.rank()][step] = to_vector<double>(flat);
    }
  });

  std::mt19937 random(1);  // where the hook begins
  Matrix q(kSide, std::vector<double>(kColumns));
  for (auto& row : q)
    for (double& value : row) value = static_cast<double>(random()) / 0x1p31 - 1;
  std::vector<Matrix> m(kRanks, Matrix(kSide, std::vector<double>(kSide)));
  for (int step = 0; step < kSteps; ++step) {
    for (int r = 0; r < kRanks; ++r)
      for (int64_t i = 0; i < kCount; ++i) m[r][i / kSide][i % kSide] += gradient(r, step, i);
    const Matrix all = mean(m);
    const Matrix p = product(all, q);
    const Matrix low = projected(p, all);
    q = product(transposed(all), p);
    std::vector<double> expected;
    for (int64_t i = 0; i < kCount; ++i) expected.push_back(low[i / kSide][i % kSide]);
    for (int r = 0; r < kRanks; ++r) {
      CAPTURE(step, r);
      REQUIRE(relative_difference(results[r][step], expected) < 1e-10);
      REQUIRE(results[r][step] == results[0][step]);
      for (int64_t i = 0; i < kCount; ++i) m[r][i / kSide][i % kSide] -= expected[i];
    }
  }
}

TEST_CASE("PowerSGD leaves plain what is small, and forgets what is not finite",
          "[powersgd][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const CommHook hook = powersgd_hook(1);
    const auto averaged = [&](Tensor& scratch, int64_t n, double value) {
      const Tensor flat = full({n}, value, {.dtype = DType::Float32});
      hook({group, flat, {}, 0, true, {}, scratch}).wait();
      return to_vector<float>(flat)[0];
    };
    Tensor small;
    Tensor large;
    must(averaged(small, 9, group.rank()) == 0.5 && !small, "9 elements travel as they are");
    must(averaged(large, 100, 0) == 0, "zeros");
    must(std::isnan(averaged(large, 100, group.rank() == 1 ? NAN : 1)), "NaN is told to all");
    for (int step = 0; step < 3; ++step)
      must(std::abs(averaged(large, 100, 1 + group.rank()) - 1.5f) < 1e-5f,
           "a matrix of one direction is exact");
  });
  REQUIRE_THROWS_AS(powersgd_hook(0), Error);
}

TEST_CASE("more columns than a matrix has are no compression", "[powersgd][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    ddp.register_comm_hook(powersgd_hook(int64_t{1} << 62));
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), 2);
    cross_entropy(ddp(x), target).backward();
    must(ddp.comm_hook_state().empty(), "gradients are averaged plainly");
  });
}

TEST_CASE("a network trains with PowerSGD, on all ranks alike", "[powersgd][quick][threads]") {
  const auto loss_after = [](const CommHook& hook) {
    std::vector<double> losses(2);
    run_ddp_ranks(2, [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(3, DType::Float32);
      DistributedDataParallel ddp(*net, group, {.comm_hook = hook});
      optim::SGD optimizer(ddp.parameters(), {.lr = 0.2});
      const auto [x, target] = samples({6}, 3, DType::Float32, 0, 32, group.rank(), 2);
      for (int step = 0; step < 60; ++step) {
        optimizer.zero_grad();
        const Tensor loss = cross_entropy(ddp(x), target);
        loss.backward();
        optimizer.step();
        losses[group.rank()] = loss.item<float>();
      }
      ddp.check_identical();
    });
    return losses[0] + losses[1];
  };
  const double plain = loss_after({});
  const double low_rank = loss_after(powersgd_hook(2));
  CAPTURE(plain, low_rank);
  const double guessing = 2 * std::log(3.0);
  REQUIRE(guessing - low_rank > 0.7 * (guessing - plain));
  REQUIRE(low_rank != plain);  // it did something
}

TEST_CASE("training with PowerSGD goes on from a checkpoint with the same bits",
          "[powersgd][quick][threads]") {
  const TempFolder folder;
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const std::string file = folder / std::to_string(group.rank());
    Trained whole(group);
    Trained first(group);
    Trained resumed(group);
    Trained without(group);
    must(first.ddp.comm_hook_state().empty(), "nothing is kept yet");
    whole.steps(0, 7);
    first.steps(0, 3);
    nn::save_safetensors(file, first.ddp.comm_hook_state());
    for (Trained* other : {&resumed, &without}) other->load(first);
    resumed.ddp.load_comm_hook_state(nn::load_safetensors(file).tensors);
    must(resumed.ddp.ready_order() == first.ddp.ready_order(), "the buckets are as they were");
    for (Trained* other : {&resumed, &without}) other->steps(3, 7);
    must(flat_values(*resumed.net) == flat_values(*whole.net), "bit for bit");
    must(flat_values(*without.net) != flat_values(*whole.net), "the errors matter");

    // The state is loaded again into a hook that has kept another one; then an empty state is.
    resumed.load(first);
    resumed.ddp.load_comm_hook_state(nn::load_safetensors(file).tensors);
    resumed.steps(3, 7);
    must(flat_values(*resumed.net) == flat_values(*whole.net), "bit for bit again");
    resumed.ddp.load_comm_hook_state({});
    must(resumed.ddp.comm_hook_state().empty(), "nothing is kept any more");
  });
}

TEST_CASE("a communication hook's state that belongs elsewhere is refused",
          "[powersgd][quick][threads]") {
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    Trained trained(group);
    Trained wider(group, 2);
    trained.steps(0, 2);
    const NamedTensors state = trained.ddp.comm_hook_state();
    const auto altered = [&](const std::string& name, const Tensor& with) {
      NamedTensors other;
      for (const auto& [key, tensor] : state)
        if (key != name) other.emplace_back(key, tensor);
      if (with) other.emplace_back(name, with);
      return other;
    };
    const auto refused = [&](const std::string& words, const NamedTensors& other) {
      must_be_refused(group, words, [&] { trained.ddp.load_comm_hook_state(other); });
    };
    refused("an order of 2 parameters, expected one of the module's 6",
            altered("plan", tensor<int64_t>({0, 1, 8, 8})));
    refused("an order of 6 parameters", altered("plan", tensor<int64_t>({0, 1, 2, 3, 4, 4, 8, 8})));
    refused("an order of 0 parameters", altered("plan", tensor<int64_t>({0})));
    refused("'9' belongs to none of the", altered("9", tensor<float>({0})));
    refused("an order of 0 parameters", altered("plan", Tensor()));
    // A refused state changes nothing: not the buckets, nor what would fit.
    const auto values = [&] {
      std::vector<std::vector<double>> all;
      for (const auto& [key, tensor] : trained.ddp.comm_hook_state())
        all.push_back(to_vector<double>(tensor));
      return all;
    };
    const auto before = values();
    NamedTensors surplus = altered("plan", tensor<int64_t>({0, 1, 2, 3, 4, 5, 64, 64}));
    for (auto& [key, tensor] : surplus) tensor = zeros_like(tensor);
    surplus.back().second = tensor<int64_t>({0, 1, 2, 3, 4, 5, 64, 64});
    surplus.emplace_back("99", tensor<float>({0}));
    refused("'99' belongs to none of the", surplus);
    must(values() == before, "nothing has changed");
    must_be_refused(group, "register the hook before", [&] {
      trained.ddp.register_comm_hook({});
      trained.ddp.load_comm_hook_state(state);
    });
    wider.ddp.load_comm_hook_state(state);
    must_be_refused(group, "wants what the same hook, with the same options, has kept",
                    [&] { wider.steps(0, 1); });
  });
}

}  // namespace ringgrad::test::powersgd_test
