// Runs programs through the public API. Each line of stdin is a program in JSON, and each line of
// stdout has the results of one. The other half is against_pytorch.py.
//
//   {"tensors": {"a": {"dtype": "float32", "shape": [2], "bytes": "0000803f00000040"}},
//    "leaves": ["a"],
//    "steps": [{"op": "exp", "in": ["a"], "out": ["b"], "args": {}, "no_grad": false}],
//    "captures": {"b": "hook"},
//    "tracked": true, "direct": false, "way": "backward",
//    "roots": ["b"], "cotangents": {"b": {…}}}
//
//   bytes      little-endian, row-major
//   leaves     those that require a gradient
//   captures   whose gradients are wanted besides: hook, retain or input
//   tracked    whether anything is
//   direct     convolutions by their definition
//   way        or "grad": autograd::grad() of leaves and captures
//
// The results of this program are
//
//   {"steps": [{"out": [{…}], "written": {"a": {…}}, "same": true}],
//    "gradients": [{"a": {…}}], "final": {…}, "error": "…"}
//
// `written` has the new values of all tensors that share memory with the target of a step in place.
// `gradients` has those of each pass, one pass for each root. An error ends the steps. `same` is
// set if a step returned its first input itself.
#include <algorithm>
#include <iostream>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/random/operations.h"

using namespace ringgrad;
using namespace ringgrad::test;
using nlohmann::json;

namespace {

int from_hex(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

Tensor tensor_from(const json& value) {
  const Tensor x = empty(Shape(value["shape"].get<std::vector<int64_t>>()),
                         {.dtype = dtype_named(value["dtype"])});
  const std::string hex = value["bytes"];
  auto* bytes = static_cast<unsigned char*>(x.raw_data());
  for (size_t i = 0; 2 * i < hex.size(); ++i)
    bytes[i] = static_cast<unsigned char>(16 * from_hex(hex[2 * i]) + from_hex(hex[2 * i + 1]));
  return x;
}

json json_of(const Tensor& x) {
  if (!x) return nullptr;
  const Tensor flat = as_contiguous(x);
  const auto* bytes = static_cast<const unsigned char*>(flat.raw_data());
  std::string hex;
  for (size_t i = 0; i < flat.nbytes(); ++i) {
    hex += "0123456789abcdef"[bytes[i] / 16];
    hex += "0123456789abcdef"[bytes[i] % 16];
  }
  return {{"dtype", name(x.dtype())},
          {"shape", std::vector<int64_t>(x.shape().begin(), x.shape().end())},
          {"bytes", hex}};
}

struct Program {
  const json& text;
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, std::string> captures = {};
  std::map<std::string, Tensor> captured = {};  // by hooks, which see one gradient in each pass
  json results = {{"steps", json::array()}};

  void run() {
    for (const auto& [name, value] : text["tensors"].items()) tensors[name] = tensor_from(value);
    for (const std::string name : text["leaves"]) tensors[name].set_requires_grad();
    for (const json& step : text["steps"]) run_step(step);
    differentiate();
    for (const auto& [name, x] : tensors) results["final"][name] = json_of(x);
  }

  void run_step(const json& step) {
    Tensors in;
    for (const std::string name : step["in"]) in.push_back(tensors.at(name));
    const std::string op = step["op"];
    std::optional<NoGradGuard> guard;
    if (step.value("no_grad", false)) guard.emplace();
    json result = {{"out", json::array()}};
    Tensors out = {in[0]};
    // Two names of the tensor exist if a step returned its input itself. Both would get the new
    // value, so the write is skipped.
    const bool writes_two = op.back() == '_' && text["tracked"] && names_of(in[0]) > 1;
    if (writes_two) result["same"] = true;
    try {
      if (!writes_two) out = program_operations().at(op)(step["args"], in);
    } catch (const Error& error) {  // a tracked write to shared memory is refused: the value stays
      if (op.back() != '_' ||
          std::string_view(error.what()).find("seen by others") == std::string_view::npos)
        throw;
      result["refused"] = error.what();
      result["same"] = true;
      out = {in[0]};
    }
    if (op.back() == '_') {
      // If gradients are tracked, the value after the write has another name.
      if (text["tracked"]) tensors.erase(step["in"][0].get<std::string>());
      for (const auto& [name, x] : tensors)
        if (!text["tracked"] && x.shares_memory_with(in[0])) result["written"][name] = json_of(x);
    }
    if (op.back() != '_' && out[0].is_same(in[0])) result["same"] = true;
    for (size_t i = 0; i < out.size(); ++i) {
      result["out"].push_back(json_of(out[i]));
      if (i < step["out"].size()) add(step["out"][i], out[i], !result.contains("same"));
    }
    results["steps"].push_back(result);
  }

  int64_t names_of(const Tensor& x) const {
    return std::count_if(tensors.begin(), tensors.end(),
                         [&](const auto& named) { return named.second.is_same(x); });
  }

  void add(const std::string& name, const Tensor& x, bool is_new) {
    tensors[name] = x;
    if (is_new && text["captures"].contains(name)) captures[name] = text["captures"][name];
    const std::string way = captures.contains(name) ? captures[name] : "";
    if (way == "retain") x.retain_grad();
    if (way == "hook")
      x.register_hook([this, name](const Tensor& gradient) {
        Tensor& sum = captured[name];
        sum = sum ? sum + gradient : gradient;
        return Tensor();
      });
  }

  void differentiate() {
    Tensors roots;
    Tensors cotangents;
    for (const std::string name : text["roots"]) {
      roots.push_back(tensors.at(name));
      cotangents.push_back(tensor_from(text["cotangents"][name]));
    }
    if (roots.empty()) return;
    json& passes = results["gradients"];
    if (text["way"] == "grad") {
      std::vector<std::string> names = text["leaves"];
      for (const auto& [name, way] : captures) names.push_back(name);
      Tensors inputs;
      for (const std::string& name : names) inputs.push_back(tensors.at(name));
      const Tensors all =
          autograd::grad(roots, inputs, {.grad_outputs = cotangents, .allow_unused = true});
      for (size_t i = 0; i < all.size(); ++i) passes[0][names[i]] = json_of(all[i]);
      return;
    }
    for (size_t i = 0; i < roots.size(); ++i) {
      captured.clear();
      roots[i].backward(cotangents[i], i + 1 < roots.size());
      for (const std::string name : text["leaves"]) passes[i][name] = taken_grad(tensors.at(name));
      for (const auto& [name, way] : captures)
        passes[i][name] = way == "hook" ? json_of(captured[name]) : taken_grad(tensors.at(name));
    }
  }

  // Takes the gradient of each pass alone, because nothing says which roundings a sum of passes may
  // have.
  static json taken_grad(const Tensor& x) {
    const json gradient = json_of(x.grad());
    x.set_grad({});
    return gradient;
  }
};

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const json text = json::parse(line);
    Program program{text};
    set_conv_algorithm(text["direct"] ? ConvAlgorithm::Direct : ConvAlgorithm::Auto);
    try {
      program.run();
    } catch (const std::exception& error) {
      program.results["error"] = error.what();
    }
    std::cout << program.results << std::endl;
  }
}
