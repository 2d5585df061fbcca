// Fits a polynomial of degree 4 whose coefficients are drawn, from 32 points at a time, until the
// loss is below 0.001:
//   regression [MOST STEPS]
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int kDegree = 4;

// The columns x, x², x³, x⁴.
static Tensor features(const Tensor& x) {
  std::vector<Tensor> powers;
  for (int i = 1; i <= kDegree; ++i) powers.push_back(x.unsqueeze(1).pow(i));
  return cat(powers, 1);
}

int main(int argc, char** argv) {
  const int most_steps = argc > 1 ? std::atoi(argv[1]) : 100'000;
  manual_seed(1);
  const Tensor true_weight = randn({kDegree, 1}) * 5;
  const Tensor true_bias = randn({1}) * 5;

  nn::Linear fc(kDegree, 1);
  optim::SGD optimizer(fc.parameters(), {.lr = 0.1});
  int step = 0;
  float loss = 1;
  for (; loss >= 1e-3f && step < most_steps; ++step) {
    const Tensor x = features(randn({32}));
    const Tensor y = x.mm(true_weight) + true_bias;
    optimizer.zero_grad();
    const Tensor output = smooth_l1_loss(fc(x), y);
    loss = output.item<float>();
    output.backward();
    optimizer.step();
  }
  const double furthest = (fc.weight - true_weight.t()).abs().max().item<double>();
  std::printf("loss %.6f after %d steps; the coefficient furthest off is off by %.3f\n", loss, step,
              furthest);
  return loss < 1e-3f && furthest < 0.2 ? 0 : 1;
}
