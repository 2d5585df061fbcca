// The C++ half of tests/golden/parity_pytorch.py: it runs a network with hashed weights and writes
// the results as safetensors, which Python compares.
//
//   parity_dump train NETWORK DTYPE OUT
//       logits, losses, grad.NAME, state.NAME: see tests/golden/parity.h
//   parity_dump save NETWORK DTYPE OUT
//       the state_dict with hashed weights, as a program would save it
//   parity_dump eval NETWORK DTYPE WEIGHTS OUT
//       loads WEIGHTS and writes the logits in evaluation mode; prints a note when it took the
//       names without their "module." prefix
//   parity_dump ops CASES DTYPE
//       the cases that golden/make_ops.py wrote; prints those that differ
#include <cstdio>
#include <exception>
#include <fstream>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/load_weights.h"
#include "ringgrad/tests/golden/golden_operations.h"
#include "ringgrad/tests/golden/parity.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

void evaluate(const std::string& network, DType dtype, const char* weights, const char* out) {
  const auto [model, image, classes] = make_parity_network(network);
  model->to(dtype);
  if (model->load_state_dict(nn::load_weights(weights).tensors).stripped_module_prefix)
    std::puts("stripped the prefix module.");
  model->eval();
  NoGradGuard guard;
  nn::save_safetensors(out, {{"logits", model->forward(hashed_images(image, dtype))}});
}

void save(const std::string& network, DType dtype, const char* out) {
  const auto [model, image, classes] = make_parity_network(network);
  model->to(dtype);
  load_hashed(*model, dtype == DType::Float32);
  nn::save_safetensors(out, model->state_dict());
}

void compare_ops(const char* path, DType dtype) {
  std::ifstream in(path);
  int count = 0;
  const nlohmann::json golden = nlohmann::json::parse(in);
  for (const auto& row : golden["cases"]) {
    ++count;
    const std::string wrong =
        golden_case_difference(row, dtype, dtype == DType::Float64 ? 2e-11 : 1e-4);
    if (!wrong.empty())
      std::printf("%s: %s\n", row["op"].get<std::string>().c_str(), wrong.c_str());
  }
  std::printf("%d cases\n", count);
}

int usage() {
  std::fputs(
      "usage: parity_dump train|save NETWORK DTYPE OUT, eval NETWORK DTYPE WEIGHTS OUT, "
      "or ops CASES DTYPE\n",
      stderr);
  return 2;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::string command = count > 1 ? arguments[1] : "";
  if (count != (command == "eval" ? 6 : command == "ops" ? 4 : 5)) return usage();
  const std::string network = arguments[2];
  const DType dtype = arguments[3] == std::string("float64") ? DType::Float64 : DType::Float32;
  if (command == "ops") {
    compare_ops(arguments[2], dtype);
  } else if (command == "train") {
    nn::save_safetensors(arguments[4], parity_training(network, dtype));
  } else if (command == "save") {
    save(network, dtype, arguments[4]);
  } else if (command == "eval") {
    evaluate(network, dtype, arguments[4], arguments[5]);
  } else {
    return usage();
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "parity_dump: %s\n", error.what());
  return 1;
}
