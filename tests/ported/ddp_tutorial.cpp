// PyTorch's tutorial "Getting Started with Distributed Data Parallel": a step of a toy model on
// several processes, and a checkpoint that rank 0 saves and all ranks load. Inputs and first
// weights are such that PyTorch computes the same numbers:
//   ddp_tutorial [PROCESSES]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct ToyModel : nn::Module {
  nn::Linear net1{10, 10};
  nn::ReLU relu;
  nn::Linear net2{10, 5};
  ToyModel() {
    register_module("net1", net1);
    register_module("relu", relu);
    register_module("net2", net2);
  }
  Tensor forward(const Tensor& x) override { return net2(relu(net1(x))); }
};

// Rank r's 20 samples of 10 features, and their labels.
static Tensor inputs_of(int rank) { return linspace(-1, 1 + rank, 200).view({20, 10}); }
static Tensor labels_of(int rank) { return linspace(1 + rank, -1, 100).view({20, 5}); }

static void set_weights(const nn::Module& model) {
  NoGradGuard no_grad;
  for (const Tensor& parameter : model.parameters())
    parameter.copy_(linspace(-0.5, 0.6, parameter.numel()).view(parameter.shape()));
}

static void check(const char* what, double value, double pytorch) {
  std::printf("%s: %.6f, PyTorch %.6f\n", what, value, pytorch);
  if (!(std::abs(value - pytorch) <= 2e-5 * std::abs(pytorch)))
    throw std::runtime_error(std::string(what) + " is another number than PyTorch's");
}

static double sum_of_squares(const nn::Module& model) {
  double sum = 0;
  for (const Tensor& parameter : model.parameters()) sum += parameter.square().sum().item<double>();
  return sum;
}

static double step(DistributedDataParallel& ddp_model, nn::MSELoss& loss_fn,
                   optim::Optimizer& optimizer, int rank) {
  optimizer.zero_grad();
  const Tensor outputs = ddp_model(inputs_of(rank));
  const Tensor loss = loss_fn(outputs, labels_of(rank));
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

static void demo_basic() {  // on every rank, as all below
  ProcessGroup& group = process_group();
  ToyModel model;
  if (group.is_main_process()) set_weights(model);  // the others get them from rank 0
  DistributedDataParallel ddp_model(model, group);
  nn::MSELoss loss_fn;
  optim::SGD optimizer(ddp_model.parameters(), {.lr = 0.1});
  const double loss = step(ddp_model, loss_fn, optimizer, group.rank());
  if (group.is_main_process()) check("first loss of rank 0", loss, 12.1083);
  check("weights after a step", sum_of_squares(ddp_model), 9.94287);
}

static void demo_checkpoint() {
  ProcessGroup& group = process_group();
  ToyModel model;
  if (group.is_main_process()) set_weights(model);
  DistributedDataParallel ddp_model(model, group);
  const std::string checkpoint_path =
      (std::filesystem::current_path() / "model.checkpoint").string();
  if (group.is_main_process()) nn::save_safetensors(checkpoint_path, ddp_model.state_dict());
  // No rank may load before rank 0 has saved.
  group.barrier().wait();

  // Loading must undo this.
  nn::MSELoss loss_fn;
  optim::SGD optimizer(ddp_model.parameters(), {.lr = 0.1});
  for (int i = 0; i < 3; ++i) step(ddp_model, loss_fn, optimizer, group.rank());
  ddp_model.load_state_dict(nn::load_weights(checkpoint_path).tensors);
  ToyModel expected;
  set_weights(expected);
  for (size_t i = 0; i < model.parameters().size(); ++i)
    if (!equal(model.parameters()[i], expected.parameters()[i]))
      throw std::runtime_error("loaded other weights than were saved");

  double loss = 0;
  for (int i = 0; i < 10; ++i) loss = step(ddp_model, loss_fn, optimizer, group.rank());
  ddp_model.check_identical();
  if (group.is_main_process()) check("last loss of rank 0", loss, 0.215523);
  check("weights after 10 steps", sum_of_squares(ddp_model), 6.47831);
  // Nobody needs the file any more: backward has made all ranks meet.
  if (group.is_main_process()) std::filesystem::remove(checkpoint_path);
}

int main(int argc, char** argv) {
  const auto run_demos = [] {
    demo_basic();
    demo_checkpoint();
  };
  return launch(run_demos, {.num_processes = argc > 1 ? std::atoi(argv[1]) : 2});
}
