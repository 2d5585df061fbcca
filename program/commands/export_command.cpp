// `ringgrad export --python`: prints Python lines with which PyTorch loads a file of weights and
// gets our results.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/commands/checkpoint_options.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program {
namespace {

using Shapes = std::map<std::string, Shape>;  // a network's parameters by name

constexpr const char* kConvNet = R"(model = nn.Sequential(OrderedDict(
    layer1=nn.Sequential(nn.Conv2d({channels}, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
    layer2=nn.Sequential(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    flat=nn.Flatten(), fc=nn.Linear({features}, {classes})))
)";

constexpr const char* kLeNet = R"(model = nn.Sequential(OrderedDict(
    conv1=nn.Conv2d({channels}, 6, 5, padding=2), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
    conv2=nn.Conv2d(6, 16, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flat=nn.Flatten(),
    fc1=nn.Linear({features}, 120), relu3=nn.ReLU(), fc2=nn.Linear(120, 84), relu4=nn.ReLU(),
    fc3=nn.Linear(84, {classes})))
)";

constexpr const char* kQuickNet = R"(model = nn.Sequential(OrderedDict(
    conv1=nn.Conv2d({channels}, 16, 5), pool1=nn.MaxPool2d(2), relu1=nn.ReLU(),
    conv2=nn.Conv2d(16, 48, 3), pool2=nn.MaxPool2d(2), relu2=nn.ReLU(), flat=nn.Flatten(),
    fc1=nn.Linear({features}, 256), relu3=nn.ReLU(), fc2=nn.Linear(256, {classes})))
)";

constexpr const char* kAirbench = R"(def group(inputs, outputs):
    def conv(inputs): return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    def norm(): return nn.BatchNorm2d(outputs, eps=1e-12)
    return nn.Sequential(OrderedDict(conv1=conv(inputs), pool=nn.MaxPool2d(2), norm1=norm(), gelu1=nn.GELU(),
                                     conv2=conv(outputs), norm2=norm(), gelu2=nn.GELU()))

class Head(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 256

model = nn.Sequential(OrderedDict(
    whiten=nn.Conv2d({channels}, {whitened}, 2), gelu=nn.GELU(),
    group1=group({whitened}, 64), group2=group(64, 256), group3=group(256, 256),
    pool=nn.MaxPool2d(3), flat=nn.Flatten(), head=Head(256, {classes}, bias=False)))
)";

constexpr const char* kResNet = R"(model = torchvision.models.{name}(num_classes={classes})
model.conv1 = nn.Conv2d({channels}, 64, {stem}, bias=False)
)";

constexpr const char* kCifarResNet = R"(BasicBlock = torchvision.models.resnet.BasicBlock

class Padding(nn.Module):  # every second pixel, and zeros for the channels that are not there yet
    def forward(self, x):
        more = x.shape[1] // 2
        return nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more))

def layer(inputs, outputs, stride):
    shortcut = None if stride == 1 else {shortcut}
    first = BasicBlock(inputs, outputs, stride, shortcut)
    return nn.Sequential(first, *[BasicBlock(outputs, outputs) for _ in range({blocks} - 1)])

model = nn.Sequential(OrderedDict(
    conv1=nn.Conv2d({channels}, 16, 3, padding=1, bias=False), bn1=nn.BatchNorm2d(16), relu=nn.ReLU(),
    layer1=layer(16, 16, 1), layer2=layer(16, 32, 2), layer3=layer(32, 64, 2),
    pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(64, {classes})))
)";

// The network as torchvision or torch has it, with our names of parameters; its kind shows in
// these.
std::string network(const std::string& name, const Shapes& shapes, size_t classes) {
  using fmt::arg;
  const auto has = [&](const std::string& parameter) { return shapes.contains(parameter); };
  if (has("layer1.0.weight"))
    return fmt::format(kConvNet, arg("channels", shapes.at("layer1.0.weight")[1]),
                       arg("features", shapes.at("fc.weight")[1]), arg("classes", classes));
  if (has("whiten.weight"))
    return fmt::format(kAirbench, arg("channels", shapes.at("whiten.weight")[1]),
                       arg("whitened", shapes.at("whiten.weight")[0]), arg("classes", classes));
  const Shape stem = shapes.at("conv1.weight");
  if (has("fc3.weight"))
    return fmt::format(kLeNet, arg("channels", stem[1]),
                       arg("features", shapes.at("fc1.weight")[1]), arg("classes", classes));
  if (has("fc2.weight"))
    return fmt::format(kQuickNet, arg("channels", stem[1]),
                       arg("features", shapes.at("fc1.weight")[1]), arg("classes", classes));
  if (has("layer4.0.conv1.weight")) {
    const bool small_images = stem[2] == 3;
    return fmt::format(kResNet, arg("name", name), arg("classes", classes),
                       arg("channels", stem[1]),
                       arg("stem", small_images ? "3, padding=1" : "7, stride=2, padding=3")) +
           (small_images ? "model.maxpool = nn.Identity()\n" : "");
  }
  int blocks = 0;
  while (has(fmt::format("layer1.{}.conv1.weight", blocks))) ++blocks;
  const char* const projection =
      "nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))";
  return fmt::format(
      kCifarResNet, arg("blocks", blocks), arg("channels", stem[1]), arg("classes", classes),
      arg("shortcut", has("layer2.0.downsample.0.weight") ? projection : "Padding()"));
}

// A checkpoint's names have a prefix, and other things stand beside its weights.
std::string weights_in_python(const std::string& file) {
  const auto all = nn::load_safetensors(file).tensors;
  const auto has = [&](const std::string& prefix) {
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& entry) { return entry.first.starts_with(prefix); });
  };
  if (!has("optim.") && !has("random."))
    return "{name: file.get_tensor(name) for name in file.keys()}";
  const std::string prefix = has(kAverageInFile) ? kAverageInFile : "model.";
  return fmt::format(
      "{{name[{0}:]: file.get_tensor(name) for name in file.keys() if name.startswith(\"{1}\")}}",
      prefix.size(), prefix);
}

int export_python(const CheckpointOptions& options) {
  const SavedModel saved = load_model(options.checkpoint, options.model, options.data);
  check_utf8("export: the name", saved.file);
  const DataFacts& info = saved.facts;
  Shapes shapes;
  for (const auto& [name, parameter] : saved.module->named_parameters())
    shapes[name] = parameter.shape();
  const std::string model = network(saved.model, shapes, info.classes.size());
  const auto uses = [&](const char* word) { return model.find(word) != std::string::npos; };

  std::string text;
  if (uses("OrderedDict")) text += "from collections import OrderedDict\n";
  text += uses("torchvision") ? "import torch, torchvision\n" : "import torch\n";
  text += "from safetensors import safe_open\nfrom torch import nn\n\n" + model;
  text += fmt::format(
      "with safe_open({}, \"pt\") as file:\n    model.load_state_dict({})\nmodel.eval()\n",
      nlohmann::json(saved.file).dump(), weights_in_python(saved.file));
  text += fmt::format("classes = {}\n", nlohmann::json(info.classes).dump());
  text += fmt::format(
      "mean, std = torch.tensor([{}]).view(-1, 1, 1), torch.tensor([{}]).view(-1, 1, 1)\n",
      fmt::join(info.mean, ", "), fmt::join(info.std, ", "));
  text += fmt::format(
      "predict = lambda images: model((images / 255 - mean) / std)  # of uint8 [N, {0}, {1}, {1}]",
      info.channels, info.image_size);
  result("{}", text);
  print_json({{"python", text}, {"model", saved.model}, {"data", saved.data}});
  return kOk;
}

void add_options(CLI::App* app, CheckpointOptions& o) {
  app->add_flag("--python")->description("print them")->required();
  add_checkpoint_options(app, o);
}

const Command kExport(40, "export", "How PyTorch loads a checkpoint: lines of Python",
                      export_python, add_options);

}  // namespace
}  // namespace ringgrad::program
