#include "ringgrad/models/registry.h"

#include <functional>

#include "ringgrad/core/error.h"
#include "ringgrad/models/convnet.h"
#include "ringgrad/models/lenet.h"
#include "ringgrad/models/resnet.h"
#include "ringgrad/models/speed_networks.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kImageNetSize = 64;  // from this side on the stem reduces images

using Make = std::function<std::shared_ptr<nn::Module>(const ModelOptions&)>;

// The networks in the order in which they are listed.
const std::vector<std::pair<std::string, Make>>& entries() {
  static const auto all = [] {
    std::vector<std::pair<std::string, Make>> list;
    const auto add = [&](const std::string& name, Make make) {
      list.emplace_back(name, std::move(make));
    };
    add("cnn", [](const ModelOptions& o) {
      return std::make_shared<ConvNet>(ConvNetOptions{o.in_channels, o.num_classes, o.image_size});
    });
    add("lenet", [](const ModelOptions& o) {
      return std::make_shared<LeNet>(ConvNetOptions{o.in_channels, o.num_classes, o.image_size});
    });
    add("quick", [](const ModelOptions& o) {
      return std::make_shared<QuickNet>(o.in_channels, o.num_classes, o.image_size);
    });
    add("airbench", [](const ModelOptions& o) {
      return std::make_shared<Airbench>(o.in_channels, o.num_classes, o.image_size);
    });
    for (const Shortcut shortcut : {Shortcut::Padding, Shortcut::Projection})
      for (const int depth : {20, 32, 44, 56, 110})
        add(str("resnet", depth, shortcut == Shortcut::Projection ? "b" : ""),
            [=](const ModelOptions& o) {
              return std::make_shared<CifarResNet>(
                  depth, CifarResNetOptions{o.in_channels, o.num_classes, shortcut});
            });
    for (const int depth : {18, 34, 50, 101, 152})
      add(str("resnet", depth), [=](const ModelOptions& o) {
        const Stem stem = o.image_size < kImageNetSize ? Stem::Cifar : Stem::ImageNet;
        return std::make_shared<ResNet>(depth, ResNetOptions{o.in_channels, o.num_classes, stem});
      });
    return list;
  }();
  return all;
}

}  // namespace

std::shared_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options) {
  std::string known;
  for (const auto& [own, make] : entries()) {
    if (own == name) return make(options);
    known += (known.empty() ? "" : " ") + own;
  }
  throw Error(str("make_model: there is no model '", name, "', expected one of: ", known));
}

ModelOptions usual_images(const std::string& name) {
  if (name == "cnn" || name == "lenet" || name == "quick")
    return {.in_channels = 1, .image_size = 28};
  return {};
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : entries()) names.push_back(name);
  return names;
}

}  // namespace ringgrad::models
