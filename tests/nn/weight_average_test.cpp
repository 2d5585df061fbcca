// Moving averages of weights, by their recurrence in double.
#include "ringgrad/nn/optim/weight_average.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::weight_average_test {

TEST_CASE("a weight average follows its recurrence, and copies what is no number", "[quick]") {
  for (const bool warm_up : {false, true}) {
    const Tensor weight = tensor<float>({1, -2});
    const Tensor count = zeros({}, {.dtype = DType::Int64});
    const nn::NamedTensors state = {{"w", weight}, {"n", count}};
    optim::WeightAverage average(state, {.decay = 0.75, .warm_up = warm_up});
    std::vector<double> want = {1, -2};
    for (int step = 1; step <= 6; ++step) {
      weight.mul_(1.5);
      count.fill_(step);
      average.update(state);
      const double decay = warm_up ? std::min(0.75, (1.0 + step) / (10 + step)) : 0.75;
      const auto now = to_vector<double>(weight);
      for (size_t i = 0; i < 2; ++i) want[i] = decay * want[i] + (1 - decay) * now[i];
      CHECK(difference(average.state_dict()[0].second, want, {DType::Float32, 6}) == "");
      CHECK(average.state_dict()[1].second.item<int64_t>() == step);
    }
    CHECK(average.updates() == 6);
    optim::WeightAverage again(state, {.decay = 0.75, .warm_up = warm_up});
    again.load_state_dict(average.state_dict(), average.updates());
    average.update(state);
    again.update(state);
    CHECK(to_vector<float>(again.state_dict()[0].second) ==
          to_vector<float>(average.state_dict()[0].second));
  }
}

TEST_CASE("a weight average keeps the bits of what does not change", "[quick]") {
  for (const double decay : {0.1, 0.9, 0.999}) {
    const Tensor frozen = randn({100});
    const Tensor changed = randn({100});
    const nn::NamedTensors state = {{"frozen", frozen}, {"changed", changed}};
    optim::WeightAverage average(state, {.decay = decay});
    for (int step = 0; step < 20; ++step) {
      changed.mul_(1.1);
      average.update(state);
    }
    CHECK(to_vector<float>(average.state_dict()[0].second) == to_vector<float>(frozen));
    CHECK(to_vector<float>(average.state_dict()[1].second) != to_vector<float>(changed));
  }
}

TEST_CASE("a network evaluates with averages of its weights", "[quick]") {
  nn::Linear net(2, 3);
  nn::Linear evaluated(2, 3);
  optim::WeightAverage average(net.state_dict(), {.decay = 0});
  {
    NoGradGuard no_grad;
    net.weight.mul_(2);
  }
  average.update(net.state_dict());
  evaluated.load_state_dict(average.state_dict());
  CHECK(to_vector<float>(evaluated.weight.detach()) == to_vector<float>(net.weight.detach()));
  net.to(DType::BFloat16);  // the averages keep float32
  average.update(net.state_dict());
  CHECK(average.state_dict()[0].second.dtype() == DType::Float32);
  require_error<DataError>("other", [&] { average.update({{"other", zeros({1})}}); });
  require_error<Error>("the decay is 1.5",
                       [&] { optim::WeightAverage(net.state_dict(), {.decay = 1.5}); });
}

}  // namespace ringgrad::test::weight_average_test
