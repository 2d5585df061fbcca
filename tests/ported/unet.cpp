// A U-Net (Ronneberger et al. 2015) that finds discs and brighter rectangles in noise, with the
// parts, losses and training of Milesi's Pytorch-UNet; its networks are so many channels wide at
// first:
//   unet [EPOCHS] [DICE WANTED] [WIDTH] [IMAGES] [transposed|bilinear]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int64_t kSide = 32;
constexpr int64_t kClasses = 3;  // background, disc, rectangle

// ---- the network --------------------------------------------------------------------------------
struct DoubleConv : nn::Module {
  nn::Sequential double_conv;
  DoubleConv(int64_t in_channels, int64_t out_channels, int64_t mid_channels = 0)
      : double_conv(make(in_channels, out_channels, mid_channels ? mid_channels : out_channels)) {
    register_module("double_conv", double_conv);
  }
  Tensor forward(const Tensor& x) override { return double_conv(x); }

 private:
  static nn::Sequential make(int64_t in, int64_t out, int64_t mid) {
    return nn::Sequential(
        nn::Conv2d(in, mid, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(mid), nn::ReLU(),
        nn::Conv2d(mid, out, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(out), nn::ReLU());
  }
};

struct Down : nn::Module {
  nn::Sequential maxpool_conv;
  Down(int64_t in_channels, int64_t out_channels)
      : maxpool_conv(nn::MaxPool2d(2), DoubleConv(in_channels, out_channels)) {
    register_module("maxpool_conv", maxpool_conv);
  }
  Tensor forward(const Tensor& x) override { return maxpool_conv(x); }
};

struct Up : nn::Module {
  std::shared_ptr<nn::Module> up;
  DoubleConv conv;
  Up(int64_t in_channels, int64_t out_channels, bool bilinear)
      : conv(in_channels, out_channels, bilinear ? in_channels / 2 : 0) {
    if (bilinear)
      up = std::make_shared<nn::Upsample>(nn::UpsampleOptions{
          .scale_factor = 2, .mode = UpsampleMode::Bilinear, .align_corners = true});
    else
      up = std::make_shared<nn::ConvTranspose2d>(in_channels, in_channels / 2, 2,
                                                 nn::ConvTranspose2dOptions{.stride = 2});
    register_module("up", up);
    register_module("conv", conv);
  }
  Tensor operator()(const Tensor& below, const Tensor& x2) {
    const Tensor x1 = (*up)(below);
    const int64_t diff_y = x2.size(2) - x1.size(2);
    const int64_t diff_x = x2.size(3) - x1.size(3);
    const Tensor padded =
        pad(x1, {diff_x / 2, diff_x - diff_x / 2, diff_y / 2, diff_y - diff_y / 2});
    return conv(cat({x2, padded}, 1));
  }
};

struct OutConv : nn::Module {
  nn::Conv2d conv;
  OutConv(int64_t in_channels, int64_t out_channels) : conv(in_channels, out_channels, 1) {
    register_module("conv", conv);
  }
  Tensor forward(const Tensor& x) override { return conv(x); }
};

struct UNet : nn::Module {
  DoubleConv inc;
  Down down1;
  Down down2;
  Down down3;
  Down down4;
  Up up1;
  Up up2;
  Up up3;
  Up up4;
  OutConv outc;
  UNet(int64_t n_channels, int64_t n_classes, int64_t width, bool bilinear = false)
      : inc(n_channels, width),
        down1(width, 2 * width),
        down2(2 * width, 4 * width),
        down3(4 * width, 8 * width),
        down4(8 * width, 16 * width / (bilinear ? 2 : 1)),
        up1(16 * width, 8 * width / (bilinear ? 2 : 1), bilinear),
        up2(8 * width, 4 * width / (bilinear ? 2 : 1), bilinear),
        up3(4 * width, 2 * width / (bilinear ? 2 : 1), bilinear),
        up4(2 * width, width, bilinear),
        outc(width, n_classes) {
    register_module("inc", inc);
    register_module("down1", down1);
    register_module("down2", down2);
    register_module("down3", down3);
    register_module("down4", down4);
    register_module("up1", up1);
    register_module("up2", up2);
    register_module("up3", up3);
    register_module("up4", up4);
    register_module("outc", outc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor x1 = inc(x);
    const Tensor x2 = down1(x1);
    const Tensor x3 = down2(x2);
    const Tensor x4 = down3(x3);
    const Tensor x5 = down4(x4);
    Tensor y = up1(x5, x4);
    y = up2(y, x3);
    y = up3(y, x2);
    y = up4(y, x1);
    return outc(y);
  }
};

// ---- Dice's coefficient -------------------------------------------------------------------------
// The mean of 2 |input ∩ target| / (|input| + |target|) over all dimensions but the last two.
static Tensor dice_coeff(const Tensor& input, const Tensor& target, double epsilon = 1e-6) {
  const Tensor inter = 2 * (input * target).sum({-1, -2});
  Tensor sets_sum = input.sum({-1, -2}) + target.sum({-1, -2});
  sets_sum = where(sets_sum == 0, inter, sets_sum);
  const Tensor dice = (inter + epsilon) / (sets_sum + epsilon);
  return dice.mean();
}

static Tensor multiclass_dice_coeff(const Tensor& input, const Tensor& target) {
  return dice_coeff(input.flatten(0, 1), target.flatten(0, 1));
}

static Tensor dice_loss(const Tensor& input, const Tensor& target) {
  return 1 - multiclass_dice_coeff(input, target);
}

static Tensor one_hot_masks(const Tensor& masks) {
  return one_hot(masks, kClasses).permute({0, 3, 1, 2});
}

// ---- the data -----------------------------------------------------------------------------------
// Image i: a disc, and a brighter rectangle that may cover parts of it.
class Drawings : public Dataset {
 public:
  explicit Drawings(int64_t size) : size_(size) {}
  Example get(int64_t i) const override {
    std::mt19937 random(static_cast<uint32_t>(i));
    std::normal_distribution<float> noise(0, 0.2f);
    const auto between = [&](float low, float high) {
      return std::uniform_real_distribution<float>(low, high)(random);
    };
    const float y0 = between(8, 24);
    const float x0 = between(8, 24);
    const float radius = between(3, 8);
    const float y1 = between(8, 24);
    const float x1 = between(8, 24);
    const float height = between(3, 8);
    const float width = between(3, 8);
    const float light[] = {0, between(0.4f, 0.6f), between(0.8f, 1)};
    std::vector<float> image;
    std::vector<int64_t> mask;
    for (int64_t place = 0; place < kSide * kSide; ++place) {
      const float y = static_cast<float>(place / kSide);
      const float x = static_cast<float>(place % kSide);
      const bool in_disc = std::hypot(y - y0, x - x0) <= radius;
      const bool in_rectangle = std::abs(y - y1) <= height && std::abs(x - x1) <= width;
      mask.push_back(in_rectangle ? 2 : in_disc ? 1 : 0);
      image.push_back(light[mask.back()] + noise(random));
    }
    return {tensor(image, {1, kSide, kSide}), tensor(mask, {kSide, kSide})};
  }
  int64_t size() const override { return size_; }

 private:
  int64_t size_;
};

static double evaluate(UNet& net, DataLoader& loader) {
  NoGradGuard no_grad;
  net.eval();
  double dice_score = 0;
  for (const Batch& batch : loader) {
    const Tensor mask_pred = one_hot_masks(net(batch.data).argmax(1));
    const Tensor mask_true = one_hot_masks(batch.target);
    // Without the background.
    dice_score +=
        multiclass_dice_coeff(mask_pred.slice(1, 1), mask_true.slice(1, 1)).item<double>();
  }
  net.train();
  return dice_score / static_cast<double>(std::max<int64_t>(loader.size(), 1));
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 5;
  const double wanted = argc > 2 ? std::atof(argv[2]) : 0;
  const int64_t width = argc > 3 ? std::atoi(argv[3]) : 64;
  const int64_t images = argc > 4 ? std::atoi(argv[4]) : 1000;
  const bool bilinear = argc > 5 && std::string(argv[5]) == "bilinear";

  manual_seed(1);
  const int64_t n_val = images / 10;
  const auto parts = random_split(std::make_shared<Drawings>(images), {images - n_val, n_val});
  DataLoader train_loader(parts[0], std::make_shared<RandomSampler>(parts[0]->size()),
                          {.batch_size = 8, .num_workers = 1});
  DataLoader val_loader(parts[1], std::make_shared<SequentialSampler>(n_val),
                        {.batch_size = 8, .num_workers = 1, .drop_last = true});
  UNet model(1, kClasses, width, bilinear);
  optim::RMSprop optimizer(model.parameters(), {.lr = 1e-3, .weight_decay = 1e-8});
  optim::ReduceLROnPlateau scheduler(optimizer, {.maximize = true, .patience = 5});
  nn::CrossEntropyLoss criterion;
  double best = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    model.train();
    double epoch_loss = 0;
    for (const Batch& batch : train_loader) {
      const Tensor masks_pred = model(batch.data);
      Tensor loss = criterion(masks_pred, batch.target);
      loss += dice_loss(softmax(masks_pred, 1), one_hot_masks(batch.target));
      optimizer.zero_grad();
      loss.backward();
      optim::clip_grad_norm_(model.parameters(), 1.0);
      optimizer.step();
      epoch_loss += loss.item<double>();
    }
    const double dice = evaluate(model, val_loader);
    scheduler.step(dice);
    std::printf("epoch %d: loss %.4f, dice %.4f\n", epoch,
                epoch_loss / static_cast<double>(train_loader.size()), dice);
    if (dice > best) nn::save_safetensors("unet.safetensors", model.state_dict());
    best = std::max(best, dice);
  }
  return best >= wanted ? 0 : 1;
}
