#include "ringgrad/program/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/shards/shard_tree.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

// No more memory than training; larger ones were no faster.
constexpr int64_t kEvaluationBatch = 100;

// Returns −log softmax(logits)[label], in double.
double loss_of(const float* logits, int64_t classes, int64_t label) {
  const double highest = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - highest);
  return std::max(0.0, std::log(sum) + highest - logits[label]);
}

void keep_worst(std::vector<ImageResult>& images) {
  const size_t kept = std::min(images.size(), kWorst);
  std::partial_sort(images.begin(), images.begin() + static_cast<ptrdiff_t>(kept), images.end(),
                    [](const ImageResult& a, const ImageResult& b) {
                      return a.loss > b.loss || (a.loss == b.loss && a.index < b.index);
                    });
  images.resize(kept);
}

// Ranks have different numbers of them; a loss below 0 fills up.
void gather_worst(ProcessGroup& group, std::vector<ImageResult>& images) {
  images.resize(kWorst, {.loss = -1});
  std::vector<int64_t> numbers;
  std::vector<double> losses;
  for (const ImageResult& image : images) {
    numbers.insert(numbers.end(), {image.index, image.label, image.answer});
    losses.push_back(image.loss);
  }
  numbers = all_gather_values(group, numbers);
  losses = all_gather_values(group, losses);
  images.clear();
  for (size_t i = 0; i < losses.size(); ++i)
    if (losses[i] >= 0)
      images.push_back({numbers[3 * i], numbers[3 * i + 1], numbers[3 * i + 2], losses[i]});
  keep_worst(images);
}

// `losses` has each share of the images, with zeros for another rank's, so a sum over the ranks
// rounds nothing.
void sum_over_ranks(ProcessGroup& group, std::vector<double>& losses, Evaluation& evaluation) {
  const Tensor loss = tensor(losses);
  std::vector<int64_t> numbers = evaluation.confusion;
  numbers.push_back(evaluation.interrupted);
  const Tensor counts = tensor(numbers);
  group.all_reduce(loss).wait();
  group.all_reduce(counts).wait();
  losses = to_vector<double>(loss);
  evaluation.confusion = to_vector<int64_t>(counts);
  evaluation.interrupted = evaluation.confusion.back() > 0;
  evaluation.confusion.pop_back();
  gather_worst(group, evaluation.worst);
}

}  // namespace

Evaluation evaluate(nn::Module& model, const ImageDataset& dataset, const ImageTransform& transform,
                    Device device, ProcessGroup* group, int shards) {
  set_phase(Phase::Evaluation);
  NoGradGuard no_grad;
  model.eval();
  const int ranks = group ? group->size() : 1;
  const int rank = group ? group->rank() : 0;
  const int shares = shards > 0 ? shards : ranks;
  const ShardRange own = shards_of_rank(rank, ranks, shares);
  const auto classes = static_cast<int64_t>(dataset.classes.size());
  const DType dtype = model.parameters().at(0).dtype();  // 16 bits if the model was converted
  Evaluation evaluation;
  evaluation.confusion.resize(classes * classes);
  std::vector<double> losses(static_cast<size_t>(shares));
  for (int share = own.begin; share < own.end && !evaluation.interrupted; ++share) {
    const DistributedSamplerOptions exact{.shuffle = false, .pad = false};
    DataLoader loader(dataset,
                      std::make_shared<DistributedSampler>(dataset.size(), shares, share, exact),
                      {.batch_size = kEvaluationBatch, .num_workers = 1, .transform = transform});
    for (const Batch& batch : loader) {
      if ((evaluation.interrupted = interrupted() != 0)) break;
      const Tensor logits = to(model(to(to(batch.data, device), dtype)), DType::Float32);
      const auto target = to_vector<int64_t>(batch.target);
      const auto answer = to_vector<int64_t>(argmax(logits, 1));
      losses[share] +=
          cross_entropy(logits, to(batch.target, device), {.reduction = Reduction::Sum})
              .item<float>();
      const auto values = to_vector<float>(logits);
      for (int64_t i = 0; i < batch.size(); ++i) {
        ++evaluation.confusion[target[i] * classes + answer[i]];
        const double loss = loss_of(values.data() + i * classes, classes, target[i]);
        if (std::isfinite(loss))
          evaluation.worst.push_back({batch.indices[i], target[i], answer[i], loss});
      }
      keep_worst(evaluation.worst);
    }
  }
  if (group) sum_over_ranks(*group, losses, evaluation);
  evaluation.loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  for (int64_t label = 0; label < classes; ++label) {
    evaluation.correct += evaluation.confusion[label * classes + label];
    for (int64_t answer = 0; answer < classes; ++answer)
      evaluation.total += evaluation.confusion[label * classes + answer];
  }
  CHECK(evaluation.interrupted || evaluation.total == dataset.size(),
        "evaluate: ", evaluation.total, " images were counted, expected ", dataset.size());
  evaluation.loss /= static_cast<double>(std::max<int64_t>(evaluation.total, 1));
  return evaluation;
}

}  // namespace ringgrad::program
