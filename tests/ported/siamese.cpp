// An embedding of digits in the plane, learned from pairs by a contrastive loss (Hadsell et al.
// 2006) or from triplets (Schroff et al. 2015), with the networks and losses of Bielski's
// siamese-triplet. What is measured: how often a test digit lies nearest to the mean of its class:
//   siamese [pairs|triplets] [EPOCHS] [ACCURACY WANTED] [CHANNELS]
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr float kMean = 0.1307f;
constexpr float kStd = 0.3081f;

// [SAMPLES, 1, 28, 28], and the places of each class.
struct Digits {
  Tensor images;
  Tensor labels;
  std::vector<std::vector<int64_t>> label_to_indices = std::vector<std::vector<int64_t>>(10);
  explicit Digits(Split split) {
    const ImageDataset set = load_dataset("digits", split);
    images = (set.images.to(DType::Float32) / 255 - kMean) / kStd;
    labels = set.labels;
    for (int64_t i = 0; i < set.size(); ++i)
      label_to_indices[static_cast<size_t>(labels[i].item<int64_t>())].push_back(i);
  }
  // Another one of sample i's class, or one of another class.
  int64_t partner(int64_t i, bool is_same, std::mt19937_64& random) const {
    const int64_t own = labels[i].item<int64_t>();
    int64_t label = own;
    while (!is_same && label == own) label = static_cast<int64_t>(random() % 10);
    const std::vector<int64_t>& places = label_to_indices[static_cast<size_t>(label)];
    int64_t place = i;
    while (place == i) place = places[random() % places.size()];
    return place;
  }
};

// Samples [2, 1, 28, 28] and whether both are of one class.
class SiameseDigits : public Dataset {
 public:
  explicit SiameseDigits(const Digits& digits) : digits_(digits) {}
  Example get(int64_t i) const override {
    std::mt19937_64 random(static_cast<uint64_t>(i));
    const bool target = random() % 2 == 1;
    const int64_t other = digits_.partner(i, target, random);
    return {stack({digits_.images[i], digits_.images[other]}), scalar(target ? 1.0 : 0.0)};
  }
  int64_t size() const override { return digits_.images.size(0); }

 private:
  const Digits& digits_;
};

// Samples [3, 1, 28, 28]: an anchor, one of its class, and one of another.
class TripletDigits : public Dataset {
 public:
  explicit TripletDigits(const Digits& digits) : digits_(digits) {}
  Example get(int64_t i) const override {
    std::mt19937_64 random(static_cast<uint64_t>(i));
    const int64_t positive = digits_.partner(i, true, random);
    const int64_t negative = digits_.partner(i, false, random);
    return {stack({digits_.images[i], digits_.images[positive], digits_.images[negative]})};
  }
  int64_t size() const override { return digits_.images.size(0); }

 private:
  const Digits& digits_;
};

struct EmbeddingNet : nn::Module {
  nn::Sequential convnet;
  nn::Sequential fc;
  explicit EmbeddingNet(int64_t channels)
      : convnet(nn::Conv2d(1, channels, 5), nn::PReLU(), nn::MaxPool2d({.kernel = 2, .stride = 2}),
                nn::Conv2d(channels, 2 * channels, 5), nn::PReLU(),
                nn::MaxPool2d({.kernel = 2, .stride = 2})),
        fc(nn::Linear(2 * channels * 4 * 4, 256), nn::PReLU(), nn::Linear(256, 256), nn::PReLU(),
           nn::Linear(256, 2)) {
    register_module("convnet", convnet);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    Tensor output = convnet(x);
    output = output.view({output.size(0), -1});
    return fc(output);
  }
  Tensor get_embedding(const Tensor& x) { return (*this)(x); }
};

struct SiameseNet : nn::Module {
  std::shared_ptr<EmbeddingNet> embedding_net;
  explicit SiameseNet(std::shared_ptr<EmbeddingNet> net)
      : embedding_net(register_module("embedding_net", std::move(net))) {}
  std::tuple<Tensor, Tensor> operator()(const Tensor& x1, const Tensor& x2) {
    return {(*embedding_net)(x1), (*embedding_net)(x2)};
  }
};

struct TripletNet : nn::Module {
  std::shared_ptr<EmbeddingNet> embedding_net;
  explicit TripletNet(std::shared_ptr<EmbeddingNet> net)
      : embedding_net(register_module("embedding_net", std::move(net))) {}
  std::tuple<Tensor, Tensor, Tensor> operator()(const Tensor& x1, const Tensor& x2,
                                                const Tensor& x3) {
    return {(*embedding_net)(x1), (*embedding_net)(x2), (*embedding_net)(x3)};
  }
};

struct ContrastiveLoss : nn::Module {
  double margin;
  double eps = 1e-9;
  explicit ContrastiveLoss(double margin) : margin(margin) {}
  Tensor operator()(const Tensor& output1, const Tensor& output2, const Tensor& target) {
    const Tensor distances = (output2 - output1).pow(2).sum(1);
    const Tensor losses =
        0.5 *
        (target * distances + (1 + -1 * target) * relu(margin - (distances + eps).sqrt()).pow(2));
    return losses.mean();
  }
};

struct TripletLoss : nn::Module {
  double margin;
  explicit TripletLoss(double margin) : margin(margin) {}
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
    const Tensor distance_positive = (anchor - positive).pow(2).sum(1);
    const Tensor distance_negative = (anchor - negative).pow(2).sum(1);
    return relu(distance_positive - distance_negative + margin).mean();
  }
};

static double nearest_mean(EmbeddingNet& net, const Digits& train_set, const Digits& test_set) {
  NoGradGuard no_grad;
  net.eval();
  const auto embed = [&](const Tensor& images) {
    std::vector<Tensor> parts;
    for (const Tensor& part : images.split(500)) parts.push_back(net.get_embedding(part));
    return cat(parts);
  };
  const Tensor of_train = embed(train_set.images);
  std::vector<Tensor> means;
  for (int label = 0; label < 10; ++label) {
    const Tensor is_of_class = (train_set.labels == label).to(DType::Float32).unsqueeze(1);
    means.push_back((of_train * is_of_class).sum(0) / is_of_class.sum());
  }
  // [samples, 1, 2] - [10, 2]
  const Tensor distances = (embed(test_set.images).unsqueeze(1) - stack(means)).norm(2, -1);
  return (distances.argmin(1) == test_set.labels).to(DType::Float32).mean().item<double>();
}

int main(int argc, char** argv) {
  const bool pairs = argc < 2 || std::string(argv[1]) == "pairs";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 20;
  const double wanted = argc > 3 ? std::atof(argv[3]) : 0;
  const int64_t channels = argc > 4 ? std::atoi(argv[4]) : 32;

  manual_seed(1);
  const Digits train_set(Split::Train);
  const Digits test_set(Split::Test);
  const auto sampler = std::make_shared<RandomSampler>(train_set.images.size(0));
  std::shared_ptr<const Dataset> dataset;
  if (pairs)
    dataset = std::make_shared<SiameseDigits>(train_set);
  else
    dataset = std::make_shared<TripletDigits>(train_set);
  DataLoader loader(dataset, sampler, {.batch_size = 128});

  const auto embedding_net = std::make_shared<EmbeddingNet>(channels);
  SiameseNet siamese(embedding_net);
  TripletNet triplet(embedding_net);
  ContrastiveLoss contrastive_loss(1);
  TripletLoss triplet_loss(1);
  optim::Adam optimizer(embedding_net->parameters(), {.lr = 1e-3});
  optim::LRScheduler scheduler(optimizer, optim::StepLR{.step_size = 8, .gamma = 0.1});
  double accuracy = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    embedding_net->train();
    double sum = 0;
    for (const Batch& batch : loader) {
      optimizer.zero_grad();
      const auto part = [&](int64_t i) { return batch.data.select(1, i); };
      Tensor loss;
      if (pairs) {
        const auto [output1, output2] = siamese(part(0), part(1));
        loss = contrastive_loss(output1, output2, batch.target);
      } else {
        const auto [anchor, positive, negative] = triplet(part(0), part(1), part(2));
        loss = triplet_loss(anchor, positive, negative);
      }
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
    }
    scheduler.step();
    accuracy = nearest_mean(*embedding_net, train_set, test_set);
    std::printf("epoch %d: loss %.4f, nearest mean %.4f\n", epoch,
                sum / static_cast<double>(loader.size()), accuracy);
  }
  return accuracy >= wanted ? 0 : 1;
}
