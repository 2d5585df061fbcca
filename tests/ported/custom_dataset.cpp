// A data set of one's own: a folder of pictures and a list that names them, as PyTorch's C++
// example reads one:
//   custom_dataset [EPOCHS] [ACCURACY WANTED] [FOLDER]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int64_t kSide = 28;
constexpr int64_t kTrain = 3000;
constexpr int64_t kTest = 1000;

// FOLDER/info.csv has a line "FILE,LABEL" for each picture, a binary PGM.
class CustomDataset : public Dataset {
 public:
  explicit CustomDataset(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::ifstream list(folder_ / "info.csv");
    for (std::string line; std::getline(list, line);) {
      const size_t comma = line.find(',');
      lines_.emplace_back(line.substr(0, comma), std::stoll(line.substr(comma + 1)));
    }
  }
  Example get(int64_t i) const override {
    const auto& [file, label] = lines_.at(static_cast<size_t>(i));
    return {(read_picture(folder_ / file) / 255 - 0.13) / 0.31,
            scalar(static_cast<double>(label), {.dtype = DType::Int64})};
  }
  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }

 private:
  static Tensor read_picture(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::string magic;
    int64_t width = 0;
    int64_t height = 0;
    int64_t white = 0;
    in >> magic >> width >> height >> white;
    in.get();
    std::vector<uint8_t> pixels(static_cast<size_t>(width * height));
    in.read(reinterpret_cast<char*>(pixels.data()), static_cast<std::streamsize>(pixels.size()));
    if (magic != "P5" || !in) throw DataError(file.string() + " is no picture");
    // to() copies.
    return from_blob(pixels.data(), {1, height, width}, DType::UInt8).to(DType::Float32);
  }

  std::filesystem::path folder_;
  std::vector<std::pair<std::string, int64_t>> lines_;
};

// Such a folder, of the first generated digits.
static void write_pictures(const std::filesystem::path& folder, int64_t count) {
  std::filesystem::create_directories(folder);
  const ImageDataset digits = load_dataset("digits", Split::Train);
  std::ofstream list(folder / "info.csv");
  for (int64_t i = 0; i < count; ++i) {
    const std::string file = std::to_string(i) + ".pgm";
    std::ofstream out(folder / file, std::ios::binary);
    out << "P5 " << kSide << " " << kSide << " 255\n";
    out.write(reinterpret_cast<const char*>(digits.images[i].data<uint8_t>()), kSide * kSide);
    list << file << "," << digits.labels[i].item<int64_t>() << "\n";
  }
}

static nn::Sequential make_network() {
  return nn::Sequential(nn::Conv2d(1, 16, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(16, 32, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(32, 32, 3, {.padding = 1}), nn::ReLU(), nn::AdaptiveAvgPool2d(1),
                        nn::Flatten(), nn::Linear(32, 64), nn::ReLU(), nn::Dropout(0.2),
                        nn::Linear(64, 10), nn::Functional(log_softmax, 1));
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  const double wanted = argc > 2 ? std::atof(argv[2]) : 0;
  const std::filesystem::path folder = argc > 3 ? argv[3] : "pictures";
  if (!std::filesystem::exists(folder / "info.csv")) write_pictures(folder, kTrain + kTest);

  manual_seed(1);
  const auto parts = random_split(std::make_shared<CustomDataset>(folder), {kTrain, kTest});
  DataLoader train_loader(parts[0], std::make_shared<RandomSampler>(kTrain),
                          {.batch_size = 32, .num_workers = 2});
  DataLoader test_loader(parts[1], std::make_shared<SequentialSampler>(kTest),
                         {.batch_size = 250, .num_workers = 2});
  nn::Sequential network = make_network();
  optim::Adam optimizer(network.parameters(), {.lr = 3e-3});

  double accuracy = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    network.train();
    double loss_sum = 0;
    for (const Batch& batch : train_loader) {
      optimizer.zero_grad();
      const Tensor loss = nll_loss(network(batch.data), batch.target.squeeze());
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>() * static_cast<double>(batch.size());
    }
    NoGradGuard no_grad;
    network.eval();
    double correct = 0;
    for (const Batch& batch : test_loader)
      correct += (network(batch.data).argmax(1) == batch.target.squeeze()).sum().item<double>();
    accuracy = correct / kTest;
    std::printf("epoch %d: loss %.4f, accuracy %.4f\n", epoch, loss_sum / kTrain, accuracy);
  }
  return accuracy >= wanted ? 0 : 1;
}
