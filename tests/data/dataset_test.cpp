// Data sets of samples by number: stacked into batches, taken apart into subsets.
#include "ringgrad/data/dataset.h"

#include <algorithm>

#include "ringgrad/core/factory.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

using namespace ringgrad;
using namespace ringgrad::test;

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

TEST_CASE("dataset: samples that cannot be stacked are named", "[quick]") {
  CHECK(contains(error_of<ShapeError>([] {
                   stack_samples({ones({2}), ones({3})});
                 }),
                 "sample 1 of the batch has shape [3], the first one [2]"));
  CHECK_THROWS_AS(stack_samples({ones({2}), Tensor()}), ShapeError);
  CHECK_THROWS_AS(stack_samples({ones({2}), ones({2}, {.dtype = DType::Int64})}), DTypeError);
}
