#include "ringgrad/models/registry.h"

#include <functional>

#include "ringgrad/core/error.h"
#include "ringgrad/models/convnet.h"
#include "ringgrad/models/resnet.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kImageNetSize = 64;  // images from this side on are reduced by the stem

struct Entry {
  std::string name;
  std::function<std::shared_ptr<nn::Module>(const ModelOptions&)> make;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> list;
    list.push_back({"cnn", [](const ModelOptions& o) {
                      return std::make_shared<ConvNet>(ConvNetOptions{o.in_channels, o.num_classes, o.image_size});
                    }});
    list.push_back({"lenet", [](const ModelOptions& o) {
                      return std::make_shared<LeNet>(LeNetOptions{o.in_channels, o.num_classes, o.image_size});
                    }});
    for (Shortcut shortcut : {Shortcut::Padding, Shortcut::Projection})
      for (int depth : {20, 32, 44, 56, 110}) {
        const std::string suffix = shortcut == Shortcut::Projection ? "b" : "";
        list.push_back(
            {"resnet" + std::to_string(depth) + suffix, [depth, shortcut](const ModelOptions& o) {
               return std::make_shared<CifarResNet>(depth, CifarResNetOptions{o.in_channels, o.num_classes, shortcut});
             }});
      }
    for (int depth : {18, 34, 50, 101, 152})
      list.push_back({"resnet" + std::to_string(depth), [depth](const ModelOptions& o) {
                        const Stem stem = o.image_size < kImageNetSize ? Stem::Cifar : Stem::ImageNet;
                        return std::make_shared<ResNet>(depth, ResNetOptions{o.in_channels, o.num_classes, stem});
                      }});
    return list;
  }();
  return all;
}

}  // namespace

std::shared_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options) {
  std::string known;
  for (const Entry& entry : entries()) {
    if (entry.name == name) return entry.make(options);
    known += (known.empty() ? "" : " ") + entry.name;
  }
  throw Error(str("make_model: there is no model '", name, "', expected one of: ", known));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.push_back(entry.name);
  return names;
}

}  // namespace ringgrad::models
