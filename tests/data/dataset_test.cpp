// Data sets of samples by number: stacked into batches, taken apart into subsets.
#include "ringgrad/data/dataset.h"

#include <algorithm>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::dataset_test {

namespace {

struct Squares : Dataset {
  Example get(int64_t i) const override {
    const auto x = static_cast<float>(i);
    return {tensor<float>({x, x * x}), with_target ? tensor<int64_t>({i}, Shape{}) : Tensor()};
  }
  int64_t size() const override { return 10; }
  bool with_target = true;
};

}  // namespace

TEST_CASE("dataset: samples become batches, on any number of workers", "[quick][threads]") {
  for (const int workers : {0, 2}) {
    DataLoader loader(std::make_shared<Squares>(), std::make_shared<SequentialSampler>(10),
                      {.batch_size = 4, .num_workers = workers});
    std::vector<float> data;
    std::vector<int64_t> target;
    for (const Batch& batch : loader) {
      CHECK(batch.data.shape() == Shape{batch.size(), 2});
      CHECK(batch.target.shape() == Shape{batch.size()});
      for (const float x : to_vector<float>(batch.data)) data.push_back(x);
      for (const int64_t t : to_vector<int64_t>(batch.target)) target.push_back(t);
    }
    CHECK(target == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK((data.size() == 20 && data[19] == 81));
  }
  const auto alone = std::make_shared<Squares>();
  alone->with_target = false;
  DataLoader loader(alone, std::make_shared<SequentialSampler>(10));
  for (const Batch& batch : loader) CHECK(!batch.target);
}

TEST_CASE("dataset: subsets, and a split that repeats itself", "[quick]") {
  const auto all = std::make_shared<Squares>();
  const Subset some(all, {7, 7, 0});
  CHECK(some.size() == 3);
  CHECK(some.get(1).target.item<int64_t>() == 7);
  CHECK_THROWS_AS(some.get(3), IndexError);
  CHECK_THROWS_AS(Subset(all, {10}), IndexError);

  const auto parts = random_split(all, {7, 3, 0});
  const auto again = random_split(all, {7, 3, 0});
  CHECK((parts[0]->size() == 7 && parts[1]->size() == 3 && parts[2]->size() == 0));
  CHECK(parts[0]->indices() == again[0]->indices());
  CHECK(parts[0]->indices() != random_split(all, {7, 3, 0}, 1)[0]->indices());
  std::vector<int64_t> together = parts[0]->indices();
  together.insert(together.end(), parts[1]->indices().begin(), parts[1]->indices().end());
  std::sort(together.begin(), together.end());
  CHECK(together == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(contains(error_of<Error>([&] {
                   random_split(all, {7, 2});
                 }),
                 "add up to 9, the data set has 10"));
  CHECK_THROWS_AS(random_split(all, {11, -1}), Error);
}

TEST_CASE("dataset: data sets one after the other are one", "[quick]") {
  const auto all = std::make_shared<Squares>();
  const auto empty_part = std::make_shared<Subset>(all, std::vector<int64_t>{});
  const auto two = std::make_shared<Subset>(all, std::vector<int64_t>{9, 4});
  const ConcatDataset chain({two, empty_part, all, two});
  REQUIRE(chain.size() == 14);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < chain.size(); ++i) found.push_back(chain.get(i).target.item<int64_t>());
  CHECK(found == std::vector<int64_t>{9, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 4});
  for (const int64_t wrong : {-1, 14})
    require_error<IndexError>(
        "ConcatDataset: there is no sample " + std::to_string(wrong) + ", expected 0 to 13",
        [&] { chain.get(wrong); });
  require_error<Error>("there are no data sets, expected at least one", [] { ConcatDataset({}); });
  require_error<Error>("ConcatDataset: data set 1 is a null pointer", [&] {
    ConcatDataset({all, nullptr});
  });
}

TEST_CASE("dataset: rows of tensors are samples, and share their memory", "[quick]") {
  const Tensor data = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const TensorDataset both(data, tensor<int64_t>({7, 8, 9}));
  REQUIRE(both.size() == 3);
  CHECK(to_vector<float>(both.get(2).data) == std::vector<float>{5, 6});
  CHECK(both.get(1).target.item<int64_t>() == 8);
  fill_(data, 0);
  CHECK(to_vector<float>(both.get(1).data) == std::vector<float>{0, 0});
  CHECK(!TensorDataset(data, Tensor()).get(0).target);
  const Tensor across = transpose(tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2}), 0, 1);
  CHECK(to_vector<float>(TensorDataset(across, Tensor()).get(1).data) ==
        std::vector<float>{2, 4, 6});
  for (const int64_t wrong : {-1, 3})
    require_error<IndexError>(
        "TensorDataset: there is no sample " + std::to_string(wrong) + ", expected 0 to 2",
        [&] { both.get(wrong); });
  require_error<ShapeError>("the data has shape [3, 2], the target [2], expected as many rows",
                            [&] { TensorDataset(data, ones({2})); });
  require_error<ShapeError>("the data has shape [], the target (undefined)",
                            [] { TensorDataset(ones(Shape{}), Tensor()); });
}

TEST_CASE("dataset: what there is not is refused by its number", "[quick]") {
  const auto all = std::make_shared<Squares>();
  const Subset some(all, {7, 7, 0});
  for (const int64_t wrong : {-1, 3})
    require_error<IndexError>(
        "Subset: there is no sample " + std::to_string(wrong) + ", expected 0 to 2",
        [&] { some.get(wrong); });
  for (const int64_t wrong : {-1, 10})
    require_error<IndexError>(
        "Subset: there is no sample " + std::to_string(wrong) + ", expected 0 to 9",
        [&] { Subset(all, {wrong}); });
  require_error<Error>("Subset: the data set is a null pointer", [] { Subset(nullptr, {}); });
  require_error<Error>("random_split: the data set is a null pointer",
                       [] { random_split(nullptr, {}); });
  require_error<Error>("data_loader: the data set is a null pointer",
                       [] { stacked_batches(nullptr); });
  require_error<Error>("stack_samples: there are no samples", [] { stack_samples({}); });
  const MakeBatch batches = stacked_batches(all);
  for (const int64_t wrong : {-1, 10})
    require_error<IndexError>(
        "the sampler gave index " + std::to_string(wrong) + ", expected 0 to 9", [&] {
          batches(std::vector<int64_t>{0, wrong}, 0);
        });
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{-1, 11}, {5, 6}, {11}})
    require_error<Error>("add up to more than the data set's 10 samples, or one is negative",
                         [&] { random_split(all, sizes); });
}

TEST_CASE("dataset: samples that cannot be stacked are named", "[quick]") {
  CHECK(contains(error_of<ShapeError>([] {
                   stack_samples({ones({2}), ones({3})});
                 }),
                 "sample 1 of the batch has shape [3], the first one [2]"));
  CHECK_THROWS_AS(stack_samples({ones({2}), Tensor()}), ShapeError);
  CHECK_THROWS_AS(stack_samples({ones({2}), ones({2}, {.dtype = DType::Int64})}), DTypeError);
}

}  // namespace ringgrad::test::dataset_test
