// Networks against numbers that PyTorch computed (tests/golden/make_networks.py): logits, loss,
// every gradient, and the state after five steps of SGD, to 1e-9 relative in float64 and 1e-4 in
// float32.
#include <cmath>
#include <map>

#include "ringgrad/tests/golden/golden.h"
#include "ringgrad/tests/golden/parity.h"

namespace ringgrad::test::golden_networks_test {
using nlohmann::json;

namespace {

struct Condensed {
  // the 2-norm, and the product with hashed_uniform(NAME + "#dot")
  double norm = 0;
  double dot = 0;
};

Condensed condense(const std::string& name, const Tensor& x) {
  Condensed out;
  const HashedName direction(name + "#dot");
  const std::vector<double> values = to_vector<double>(x);
  for (size_t i = 0; i < values.size(); ++i) {
    out.norm += values[i] * values[i];
    out.dot += values[i] * hashed_uniform(direction, static_cast<int64_t>(i));
  }
  out.norm = std::sqrt(out.norm);
  return out;
}

// An error vector e moves the norm by at most |e| and the dot product by about |e| / √3. A gradient
// that is zero but for rounding (a bias in front of batch norm) is measured against `floor`.
void require_condensed(const Condensed& found, double norm, double dot, double tolerance,
                       double floor) {
  const double allowed = tolerance * std::max(norm, floor);
  INFO("norm " << found.norm << ", expected " << norm << "; dot " << found.dot << ", expected "
               << dot << "; allowed " << allowed);
  REQUIRE(std::abs(found.norm - norm) <= allowed);
  REQUIRE(std::abs(found.dot - dot) <= allowed);
}

void check(const json& row) {
  const std::string network = row["network"];
  const bool steady = row["weights"] == "steady";
  INFO(network << (steady ? " in float32" : " in float64"));
  // Ten times as far as PyTorch's own float32 may be, see make_networks.py.
  const double tolerance = steady ? 3e-4 : 1e-9;
  std::map<std::string, Tensor> found;
  for (auto& [name, value] : parity_training(network, steady ? DType::Float32 : DType::Float64))
    found[name] = value;

  for (const char* key : {"logits", "losses"}) {
    INFO(key);
    const auto expected = row[key].get<std::vector<double>>();
    const auto values = to_vector<double>(found.at(key));
    REQUIRE(values.size() == expected.size());
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += (values[i] - expected[i]) * (values[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    REQUIRE(std::sqrt(error) <= tolerance * std::sqrt(norm));
  }

  const double floor = 1e-3 * row["gradient_norm"].get<double>();
  size_t compared = 2;
  for (const auto& [name, numbers] : row["tensors"].items()) {
    size_t column = 0;
    if (numbers.size() == 4) {
      INFO("gradient of " << name);
      require_condensed(condense(name, found.at("grad." + name)), numbers[0], numbers[1], tolerance,
                        floor);
      column = 2;
      ++compared;
    }
    INFO(name << " after " << kParitySteps << " steps");
    require_condensed(condense(name, found.at("state." + name)), numbers[column],
                      numbers[column + 1], tolerance, 0);
    ++compared;
  }
  REQUIRE(compared == found.size());  // and nothing that the golden file does not know
}

void check_all(const std::vector<std::string>& networks) {
  const json golden = load_golden("networks.json");
  REQUIRE(golden["batch"] == kParityBatch);
  REQUIRE(golden["steps"] == kParitySteps);
  size_t cases = 0;
  for (const json& row : golden["cases"]) {
    const std::string network = row["network"];
    if (std::find(networks.begin(), networks.end(), network) == networks.end()) continue;
    check(row);
    ++cases;
  }
  REQUIRE(cases == 2 * networks.size());
}

}  // namespace

TEST_CASE("the small networks train as in PyTorch", "[quick]") { check_all({"cnn", "lenet"}); }
TEST_CASE("the small networks train as in PyTorch with the reference kernels", "[quick]") {
  const ProviderGuard reference(Provider::Reference);
  check_all({"cnn", "lenet"});
}
TEST_CASE("ResNet-20 trains as in PyTorch, with either shortcut") {
  check_all({"resnet20", "resnet20b"});
}
TEST_CASE("ResNet-18 trains as in PyTorch") { check_all({"resnet18"}); }
TEST_CASE("ResNet-50 trains as in PyTorch") { check_all({"resnet50"}); }

TEST_CASE("ResNet-18 sees what torchvision's sees, under the same names, from 64 pixels on",
          "[quick]") {
  const json golden = load_golden("stem.json");
  const auto model = models::make_model("resnet18", {.image_size = 64});
  model->to(DType::Float64);
  load_hashed(*model, false);
  model->eval();
  std::vector<std::string> names;
  for (const auto& [name, value] : model->state_dict()) names.push_back(name);
  std::vector<std::string> expected = golden["state"];
  std::sort(names.begin(), names.end());
  std::sort(expected.begin(), expected.end());
  CHECK(names == expected);
  const auto logits = golden["logits"].get<std::vector<double>>();
  const auto found = to_vector<double>(model->forward(hashed_images({3, 64, 64}, DType::Float64)));
  REQUIRE(found.size() == logits.size());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(found[i] - logits[i]) <= 1e-9 * std::abs(logits[i]) + 1e-11);
}

}  // namespace ringgrad::test::golden_networks_test
