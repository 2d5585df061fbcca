// Reshaping, indexing, and conversions of dtype and layout, for random programs.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/tests/random/operations.h"

namespace ringgrad::test {

using nlohmann::json;

namespace {

template <class F>
ProgramOperation of_x(F f) {
  return [f](const json& args, const Tensors& in) -> Tensors { return {f(in[0], args)}; };
}

std::vector<int64_t> numbers(const json& args, const char* name) {
  return args[name].get<std::vector<int64_t>>();
}

// Reads what stands between the brackets: a number, [begin, end, step], null, "..." or "tensor",
// which takes the next tensor of `in`.
std::vector<Index> places(const json& args, const Tensors& in, size_t next) {
  std::vector<Index> all;
  for (const json& place : args["at"]) {
    if (place.is_number()) {
      all.emplace_back(place.get<int64_t>());
    } else if (place.is_null()) {
      all.emplace_back(None);
    } else if (place.is_array()) {
      const auto bound = [&](int i) {
        return place[i].is_null() ? std::optional<int64_t>()
                                  : std::optional(place[i].get<int64_t>());
      };
      all.emplace_back(Slice(bound(0), bound(1), place[2].get<int64_t>()));
    } else if (place == "...") {
      all.emplace_back(Ellipsis);
    } else {
      all.emplace_back(in[next++]);
    }
  }
  return all;
}

void add_shapes(ProgramOperations& all) {
  all["reshape"] =
      of_x([](const Tensor& x, const json& args) { return reshape(x, numbers(args, "shape")); });
  all["flatten"] = of_x(
      [](const Tensor& x, const json& args) { return flatten(x, args["begin"], args["end"]); });
  all["transpose"] = of_x(
      [](const Tensor& x, const json& args) { return transpose(x, args["dim0"], args["dim1"]); });
  all["permute"] = of_x([](const Tensor& x, const json& args) {
    return permute(x, args["order"].get<std::vector<int>>());
  });
  all["slice"] = of_x([](const Tensor& x, const json& args) {
    return slice(x, args["dim"], args["begin"], args["end"], args["step"]);
  });
  all["narrow"] = of_x([](const Tensor& x, const json& args) {
    return narrow(x, args["dim"], args["begin"], args["length"]);
  });
  all["select"] =
      of_x([](const Tensor& x, const json& args) { return select(x, args["dim"], args["place"]); });
  all["expand"] =
      of_x([](const Tensor& x, const json& args) { return expand(x, numbers(args, "shape")); });
  all["repeat"] =
      of_x([](const Tensor& x, const json& args) { return repeat(x, numbers(args, "times")); });
  all["squeeze"] =
      of_x([](const Tensor& x, const json& args) { return squeeze(x, args["dim"].get<int>()); });
  all["squeeze_all"] = of_x([](const Tensor& x, const json&) { return squeeze(x); });
  all["unsqueeze"] =
      of_x([](const Tensor& x, const json& args) { return unsqueeze(x, args["dim"].get<int>()); });
  all["split"] = [](const json& args, const Tensors& in) {
    return split(in[0], numbers(args, "sizes"), args["dim"]);
  };
  all["chunk"] = [](const json& args, const Tensors& in) {
    return chunk(in[0], args["chunks"], args["dim"]);
  };
  all["cat"] = [](const json& args, const Tensors& in) -> Tensors {
    return {cat(in, args["dim"])};
  };
  all["stack"] = [](const json& args, const Tensors& in) -> Tensors {
    return {stack(in, args["dim"])};
  };
  all["pad"] = of_x([](const Tensor& x, const json& args) {
    return pad(x, numbers(args, "widths"), args["c"].get<double>());
  });
  all["tril"] = of_x(
      [](const Tensor& x, const json& args) { return tril(x, args["diagonal"].get<int64_t>()); });
  all["triu"] = of_x(
      [](const Tensor& x, const json& args) { return triu(x, args["diagonal"].get<int64_t>()); });
}

void add_indices(ProgramOperations& all) {
  all["index_select"] = [](const json& args, const Tensors& in) -> Tensors {
    return {index_select(in[0], args["dim"], in[1])};
  };
  all["gather"] = [](const json& args, const Tensors& in) -> Tensors {
    return {gather(in[0], args["dim"], in[1])};
  };
  all["scatter_add"] = [](const json& args, const Tensors& in) -> Tensors {
    return {scatter_add(in[0], args["dim"], in[1], in[2])};
  };
  all["scatter"] = [](const json& args, const Tensors& in) -> Tensors {
    return {scatter(in[0], args["dim"], in[1], in[2])};
  };
  all["index_add"] = [](const json& args, const Tensors& in) -> Tensors {
    return {index_add(in[0], args["dim"], in[1], in[2])};
  };
  all["embedding"] = [](const json& args, const Tensors& in) -> Tensors {
    const json& padding = args["padding"];
    return {embedding(
        in[0], in[1],
        padding.is_null() ? std::optional<int64_t>() : std::optional(padding.get<int64_t>()))};
  };
  all["one_hot"] = of_x(
      [](const Tensor& x, const json& args) { return one_hot(x, args["classes"].get<int64_t>()); });
  all["index"] = [](const json& args, const Tensors& in) -> Tensors {
    return {index(in[0], places(args, in, 1))};
  };
  all["index_put"] = [](const json& args, const Tensors& in) -> Tensors {
    return {index_put(in[0], places(args, in, 2), in[1], args["accumulate"].get<bool>())};
  };
  all["index_put_"] = [](const json& args, const Tensors& in) -> Tensors {
    in[0].index_put_(places(args, in, 2), in[1], args["accumulate"].get<bool>());
    return {in[0]};
  };
}

}  // namespace

void add_views(ProgramOperations& all) {
  add_shapes(all);
  add_indices(all);
  all["to"] =
      of_x([](const Tensor& x, const json& args) { return to(x, dtype_named(args["dtype"])); });
  all["contiguous"] = of_x([](const Tensor& x, const json&) { return contiguous(x); });
  all["clone"] = of_x([](const Tensor& x, const json&) { return clone(x); });
  all["detach"] = of_x([](const Tensor& x, const json&) { return x.detach(); });
  all["to_layout"] = of_x([](const Tensor& x, const json& args) {
    const std::string layout = args["layout"];
    return to_layout(x, layout == "blocked" ? Layout::ChannelBlocked
                        : layout == "last"  ? Layout::ChannelsLast
                                            : Layout::Strided);
  });
}

}  // namespace ringgrad::test
