// docs/from_keras.md shows it beside Keras': layers in a row, fit, evaluate, save. DATA [EPOCHS].
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

double evaluate(nn::Module& model, DataLoader& loader) {
  NoGradGuard no_grad;
  model.eval();
  int64_t right = 0;
  int64_t all = 0;
  for (const Batch& batch : loader) {
    right += model(batch.data).argmax(1).eq(batch.target).sum().item<int64_t>();
    all += batch.target.numel();
  }
  model.train();
  return static_cast<double>(right) / static_cast<double>(all);
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "mnist";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 5;
  manual_seed(1);
  nn::Sequential model(nn::Conv2d(1, 32, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                       nn::Dropout(0.5), nn::Linear(32 * 13 * 13, 10));
  optim::Adam optimizer(model.parameters(), {.lr = 1e-3});
  const ImageDataset images = load_dataset(name, Split::Train);
  const ImageDataset unseen = load_dataset(name, Split::Test);
  DataLoader train(images, std::make_shared<RandomSampler>(images.size()), {.batch_size = 128});
  DataLoader test(unseen, std::make_shared<SequentialSampler>(unseen.size()), {.batch_size = 128});
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    for (const Batch& batch : train) {
      optimizer.zero_grad();
      cross_entropy(model(batch.data), batch.target).backward();
      optimizer.step();
    }
    std::printf("epoch %d: accuracy %.4f\n", epoch, evaluate(model, test));
  }
  nn::save_safetensors("model.safetensors", model.state_dict());
}
