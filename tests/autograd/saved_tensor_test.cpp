#include "ringgrad/autograd/differentiable.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::saved_tensor_test {

namespace {
Tensor leaf(const std::vector<float>& values) { return Tensor(tensor(values)).set_requires_grad(); }
}  // namespace

TEST_CASE("a saved tensor that was modified in place is an error that names the operation",
          "[saved_tensor][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = exp(x * 1);
  const Tensor loss = sum(y);
  fill_(y.detach(), 5);
  require_error<Error>(
      "exp: a tensor of shape [2] saved for backward was modified in place (version 1, saved "
      "at version 0), or another view of its memory was, such as a parameter of the same arena; "
      "modify it after backward, or modify a copy",
      [&] { loss.backward(); });
  CHECK(!x.grad());
}

TEST_CASE("modifying a view, or through one, counts", "[saved_tensor][quick]") {
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor data = tensor<float>({1, 1, 1, 1});
  const Tensor loss = sum(x * data);
  fill_(slice(data, 0, 3), 7);  // one element, which every view of the storage shares
  require_error<Error>("mul: a tensor of shape [4] saved for backward was modified in place",
                       [&] { loss.backward(); });
}

TEST_CASE("what backward does not need may be modified", "[saved_tensor][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor c = tensor<float>({3, 4});
  const Tensor y = x * c;  // needs c alone: c wants no gradient
  const Tensor z = y + c;  // needs nothing
  fill_(y.detach(), 0);
  fill_(z.detach(), 0);
  sum(z).backward();
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{3, 4});
}

TEST_CASE("running statistics that evaluation used must not move before backward",
          "[saved_tensor][quick]") {
  const Tensor x = Tensor(ones({4, 2})).set_requires_grad();
  const Tensor mean = zeros({2});
  const Tensor var = ones({2});
  const Tensor y = batch_norm(x, {}, {}, mean, var, {.training = false});
  batch_norm(x, {}, {}, mean, var);
  require_error<Error>("batch_norm: a tensor of shape [2] saved for backward was modified in place",
                       [&] {
                         y.backward(ones({4, 2}));
                       });
}

TEST_CASE("saving keeps an alias without history", "[saved_tensor][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  const SavedTensor saved = save(y);
  const SavedTensor nothing = save_if(false, y);
  const SavedTensor undefined = save(Tensor());
  CHECK(saved.get().shares_memory_with(y));
  CHECK(!saved.get().requires_grad());
  CHECK(!nothing);
  CHECK(!undefined);
  CHECK(!undefined.get());
}

TEST_CASE("backward frees what a node saved as soon as it has run", "[saved_tensor][quick]") {
  const Tensor x = leaf({1, 2});
  std::weak_ptr<Storage> storage;
  Tensor loss;
  {
    const Tensor y = exp(x);
    storage = y.storage();
    loss = sum(y);
  }
  CHECK(!storage.expired());  // exp saved its result
  loss.backward();
  CHECK(storage.expired());
}

}  // namespace ringgrad::test::saved_tensor_test
