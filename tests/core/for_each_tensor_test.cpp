// Finds the tensors inside a value, at any place.
#include "ringgrad/core/for_each_tensor.h"

#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::for_each_tensor_test {

namespace {

struct Inner {
  Tensor x;
  int count = 0;
};
struct Outputs {
  Tensor logits;
  std::vector<Tensor> features;
  std::optional<Inner> inner;
  std::string name;
};

template <class T>
std::vector<float> found(T&& value) {
  std::vector<float> values;
  for_each_tensor(value, [&](const Tensor& x) { values.push_back(x ? x.item<float>() : -1); });
  return values;
}

}  // namespace

TEST_CASE("tensors are found in order, in tuples, vectors, optionals and structs", "[quick]") {
  CHECK(found(scalar(1)) == std::vector<float>{1});
  CHECK(found(std::tuple(scalar(1), 5, std::pair(scalar(2), scalar(3)))) ==
        std::vector<float>{1, 2, 3});
  CHECK(found(std::array{scalar(1), Tensor()}) == std::vector<float>{1, -1});
  CHECK(found(Outputs{scalar(1), {scalar(2), scalar(3)}, Inner{scalar(4)}, "x"}) ==
        std::vector<float>{1, 2, 3, 4});
  CHECK(found(std::optional<Tensor>()) == std::vector<float>{});
  CHECK(found(3.5) == std::vector<float>{});
}

TEST_CASE("what is visited may be replaced", "[quick]") {
  Outputs outputs{scalar(1), {scalar(2)}, {}, ""};
  for_each_tensor(outputs, [](Tensor& x) { x = scalar(7); });
  CHECK(found(outputs) == std::vector<float>{7, 7});
}

}  // namespace ringgrad::test::for_each_tensor_test
