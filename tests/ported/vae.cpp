// A variational autoencoder (Kingma & Welling 2014) of digits, as PyTorch's example vae trains it.
// Writes reconstructions and samples of each epoch into a folder:
//   vae [--data NAME] [--batch-size N] [--epochs N] [--seed N] [--results FOLDER] [--loss F]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct VAE : nn::Module {
  nn::Linear fc1{784, 400};
  nn::Linear fc21{400, 20};
  nn::Linear fc22{400, 20};
  nn::Linear fc3{20, 400};
  nn::Linear fc4{400, 784};
  VAE() {
    register_module("fc1", fc1);
    register_module("fc21", fc21);
    register_module("fc22", fc22);
    register_module("fc3", fc3);
    register_module("fc4", fc4);
  }
  std::tuple<Tensor, Tensor> encode(const Tensor& x) {
    const Tensor h1 = relu(fc1(x));
    return {fc21(h1), fc22(h1)};
  }
  Tensor reparameterize(const Tensor& mu, const Tensor& logvar) {
    const Tensor std = exp(0.5 * logvar);
    const Tensor eps = randn_like(std);
    return mu + eps * std;
  }
  Tensor decode(const Tensor& z) {
    const Tensor h3 = relu(fc3(z));
    return sigmoid(fc4(h3));
  }
  std::tuple<Tensor, Tensor, Tensor> operator()(const Tensor& x) {
    const auto [mu, logvar] = encode(x.view({-1, 784}));
    const Tensor z = reparameterize(mu, logvar);
    return {decode(z), mu, logvar};
  }
};

// The reconstruction's cross entropy, and the divergence of N(mu, e^logvar) from N(0, 1): summed
// over pixels, dimensions and samples.
static Tensor loss_function(const Tensor& recon_x, const Tensor& x, const Tensor& mu,
                            const Tensor& logvar) {
  const Tensor bce = binary_cross_entropy(recon_x, x.view({-1, 784}), Reduction::Sum);
  const Tensor kld = -0.5 * sum(1 + logvar - mu.pow(2) - logvar.exp());
  return bce + kld;
}

static void train(int epoch, VAE& model, DataLoader& loader, optim::Optimizer& optimizer,
                  int64_t samples) {
  model.train();
  double train_loss = 0;
  for (const Batch& batch : loader) {
    optimizer.zero_grad();
    const auto [recon_batch, mu, logvar] = model(batch.data);
    const Tensor loss = loss_function(recon_batch, batch.data, mu, logvar);
    loss.backward();
    train_loss += loss.item<double>();
    optimizer.step();
  }
  std::printf("epoch %d: average loss %.4f\n", epoch, train_loss / static_cast<double>(samples));
}

static double test(int epoch, VAE& model, DataLoader& loader, int64_t samples,
                   const std::filesystem::path& results) {
  model.eval();
  NoGradGuard no_grad;
  double test_loss = 0;
  bool is_first = true;
  for (const Batch& batch : loader) {
    const auto [recon_batch, mu, logvar] = model(batch.data);
    test_loss += loss_function(recon_batch, batch.data, mu, logvar).item<double>();
    if (is_first) {
      const int64_t n = std::min<int64_t>(batch.data.size(0), 8);
      const Tensor comparison =
          cat({batch.data.slice(0, 0, n), recon_batch.view({-1, 1, 28, 28}).slice(0, 0, n)});
      save_image(comparison.cpu(), results / ("reconstruction_" + std::to_string(epoch) + ".png"),
                 {.nrow = n});
    }
    is_first = false;
  }
  test_loss /= static_cast<double>(samples);
  std::printf("test: loss %.4f\n", test_loss);
  return test_loss;
}

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"--data", "digits"},     {"--batch-size", "128"},
                                                {"--epochs", "10"},       {"--seed", "1"},
                                                {"--results", "results"}, {"--loss", "1000"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const std::filesystem::path results = options["--results"];
  std::filesystem::create_directories(results);

  manual_seed(std::stoull(options["--seed"]));
  const ImageDataset train_set = load_dataset(options["--data"], Split::Train);
  const ImageDataset test_set = load_dataset(options["--data"], Split::Test);
  const int64_t batch_size = std::stoll(options["--batch-size"]);
  DataLoader train_loader(train_set, std::make_shared<RandomSampler>(train_set.size()),
                          {.batch_size = batch_size, .num_workers = 1});
  DataLoader test_loader(test_set, std::make_shared<SequentialSampler>(test_set.size()),
                         {.batch_size = batch_size, .num_workers = 1});
  VAE model;
  optim::Adam optimizer(model.parameters(), {.lr = 1e-3});
  double loss = 0;
  for (int epoch = 1; epoch <= std::stoi(options["--epochs"]); ++epoch) {
    train(epoch, model, train_loader, optimizer, train_set.size());
    loss = test(epoch, model, test_loader, test_set.size(), results);
    NoGradGuard no_grad;
    const Tensor sample = model.decode(randn({64, 20})).cpu();
    save_image(sample.view({64, 1, 28, 28}),
               results / ("sample_" + std::to_string(epoch) + ".png"));
  }
  return loss <= std::stod(options["--loss"]) ? 0 : 1;
}
