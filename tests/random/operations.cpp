// Arithmetic, comparisons, functions, reductions, products, and operations in place.
#include "ringgrad/tests/random/operations.h"

#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"

namespace ringgrad::test {

using nlohmann::json;

namespace {

// Calls f with the program's number as an integer or a double. "inf" and the like are strings in
// the program.
template <class F>
auto with_number(const json& number, F&& f) {
  if (number.is_number_integer()) return f(number.get<int64_t>());
  if (number.is_string()) return f(std::stod(number.get<std::string>()));
  return f(number.get<double>());
}

double real(const json& number) {
  return with_number(number, [](auto x) { return static_cast<double>(x); });
}

Dims dims(const json& args) { return args["dims"].get<std::vector<int>>(); }
bool keepdim(const json& args) { return args.value("keepdim", false); }

ProgramOperation unary(Tensor (*f)(const Tensor&)) {
  return [f](const json&, const Tensors& in) -> Tensors { return {f(in[0])}; };
}

template <class F>
ProgramOperation of_x(F f) {
  return [f](const json& args, const Tensors& in) -> Tensors { return {f(in[0], args)}; };
}

template <class F>
ProgramOperation of_pair(F f) {
  return [f](const json&, const Tensors& in) -> Tensors { return {f(in[0], in[1])}; };
}

// Calls f with x and the number, which is an integer if the program has one.
template <class F>
ProgramOperation of_number(F f) {
  return [f](const json& args, const Tensors& in) -> Tensors {
    return {with_number(args["c"], [&](auto c) -> Tensor { return f(in[0], c); })};
  };
}

Tensors both(const ValuesAndIndices& result) { return {result.values, result.indices}; }

template <class F>
ProgramOperation with_indices(F f) {
  return [f](const json& args, const Tensors& in) -> Tensors { return both(f(in[0], args)); };
}

void add_arithmetic(ProgramOperations& all) {
  all["add"] = of_pair([](const Tensor& a, const Tensor& b) { return a + b; });
  all["sub"] = of_pair([](const Tensor& a, const Tensor& b) { return a - b; });
  all["mul"] = of_pair([](const Tensor& a, const Tensor& b) { return a * b; });
  all["div"] = of_pair([](const Tensor& a, const Tensor& b) { return a / b; });
  all["maximum"] = of_pair([](const Tensor& a, const Tensor& b) { return maximum(a, b); });
  all["minimum"] = of_pair([](const Tensor& a, const Tensor& b) { return minimum(a, b); });
  all["add_number"] = of_number([](const Tensor& x, auto c) { return x + c; });
  all["sub_number"] = of_number([](const Tensor& x, auto c) { return x - c; });
  all["number_sub"] = of_number([](const Tensor& x, auto c) { return c - x; });
  all["mul_number"] = of_number([](const Tensor& x, auto c) { return x * c; });
  all["div_number"] = of_number([](const Tensor& x, auto c) { return x / c; });
  all["number_div"] = of_number([](const Tensor& x, auto c) { return c / x; });
  all["pow"] = of_number([](const Tensor& x, auto c) { return pow(x, c); });
  all["leaky_relu"] = of_number([](const Tensor& x, auto c) { return leaky_relu(x, c); });
  all["elu"] = of_number([](const Tensor& x, auto c) { return elu(x, c); });
  all["softplus"] = of_number([](const Tensor& x, auto c) { return softplus(x, c); });
  all["clamp"] = of_x([](const Tensor& x, const json& args) {
    return clamp(x, real(args["low"]), real(args["high"]));
  });
  all["prelu"] = of_pair([](const Tensor& x, const Tensor& weight) { return prelu(x, weight); });
  const std::map<std::string, Tensor (*)(const Tensor&)> functions = {
      {"neg", neg},         {"exp", exp},   {"log", log},
      {"log1p", log1p},     {"sin", sin},   {"cos", cos},
      {"sqrt", sqrt},       {"abs", abs},   {"square", square},
      {"relu", relu},       {"gelu", gelu}, {"silu", silu},
      {"sigmoid", sigmoid}, {"tanh", tanh}, {"logsigmoid", logsigmoid}};
  for (const auto& [name, f] : functions) all[name] = unary(f);
}

void add_comparisons(ProgramOperations& all) {
  all["eq"] = of_pair([](const Tensor& a, const Tensor& b) { return a == b; });
  all["ne"] = of_pair([](const Tensor& a, const Tensor& b) { return a != b; });
  all["lt"] = of_pair([](const Tensor& a, const Tensor& b) { return a < b; });
  all["le"] = of_pair([](const Tensor& a, const Tensor& b) { return a <= b; });
  all["gt"] = of_pair([](const Tensor& a, const Tensor& b) { return a > b; });
  all["ge"] = of_pair([](const Tensor& a, const Tensor& b) { return a >= b; });
  all["eq_number"] = of_number([](const Tensor& x, auto c) { return x == c; });
  all["lt_number"] = of_number([](const Tensor& x, auto c) { return x < c; });
  all["ge_number"] = of_number([](const Tensor& x, auto c) { return x >= c; });
  all["logical_not"] = of_x([](const Tensor& x, const json&) { return logical_not(x); });
  all["logical_and"] = of_pair([](const Tensor& a, const Tensor& b) { return logical_and(a, b); });
  all["logical_or"] = of_pair([](const Tensor& a, const Tensor& b) { return logical_or(a, b); });
  all["isnan"] = of_x([](const Tensor& x, const json&) { return isnan(x); });
  all["any"] =
      of_x([](const Tensor& x, const json& args) { return any(x, dims(args), keepdim(args)); });
  all["all"] = of_x([](const Tensor& x, const json& args) {
    return ringgrad::all(x, dims(args), keepdim(args));
  });
  all["where"] = [](const json&, const Tensors& in) -> Tensors {
    return {where(in[0], in[1], in[2])};
  };
  all["where_number"] = [](const json& args, const Tensors& in) -> Tensors {
    return {with_number(args["c"], [&](auto c) { return where(in[0], in[1], c); })};
  };
  all["masked_fill"] = [](const json& args, const Tensors& in) -> Tensors {
    return {with_number(args["c"], [&](auto c) { return masked_fill(in[0], in[1], c); })};
  };
  all["masked_select"] =
      of_pair([](const Tensor& x, const Tensor& mask) { return masked_select(x, mask); });
  all["nonzero"] = of_x([](const Tensor& x, const json&) { return nonzero(x); });
}

void add_reductions(ProgramOperations& all) {
  all["sum"] =
      of_x([](const Tensor& x, const json& args) { return sum(x, dims(args), keepdim(args)); });
  all["mean"] =
      of_x([](const Tensor& x, const json& args) { return mean(x, dims(args), keepdim(args)); });
  all["var"] = of_x([](const Tensor& x, const json& args) {
    return var(x, dims(args), args["correction"].get<int>(), keepdim(args));
  });
  all["std"] = of_x([](const Tensor& x, const json& args) {
    return ringgrad::std(x, dims(args), args["correction"].get<int>(), keepdim(args));
  });
  all["norm"] = of_x([](const Tensor& x, const json& args) {
    return norm(x, real(args["p"]), dims(args), keepdim(args));
  });
  all["logsumexp"] = of_x(
      [](const Tensor& x, const json& args) { return logsumexp(x, args["dim"], keepdim(args)); });
  all["softmax"] =
      of_x([](const Tensor& x, const json& args) { return softmax(x, args["dim"].get<int>()); });
  all["log_softmax"] = of_x(
      [](const Tensor& x, const json& args) { return log_softmax(x, args["dim"].get<int>()); });
  all["max_all"] = of_x([](const Tensor& x, const json&) { return max(x); });
  all["min_all"] = of_x([](const Tensor& x, const json&) { return min(x); });
  all["argmax_all"] = of_x([](const Tensor& x, const json&) { return argmax(x); });
  all["argmin_all"] = of_x([](const Tensor& x, const json&) { return argmin(x); });
  all["max"] = with_indices(
      [](const Tensor& x, const json& args) { return max(x, args["dim"], keepdim(args)); });
  all["min"] = with_indices(
      [](const Tensor& x, const json& args) { return min(x, args["dim"], keepdim(args)); });
  all["argmax"] =
      of_x([](const Tensor& x, const json& args) { return argmax(x, args["dim"], keepdim(args)); });
  all["argmin"] =
      of_x([](const Tensor& x, const json& args) { return argmin(x, args["dim"], keepdim(args)); });
  all["cumsum"] =
      of_x([](const Tensor& x, const json& args) { return cumsum(x, args["dim"].get<int>()); });
  all["argsort"] = of_x([](const Tensor& x, const json& args) {
    return argsort(x, args["dim"].get<int>(), args["descending"].get<bool>());
  });
  all["sort"] = with_indices([](const Tensor& x, const json& args) {
    return sort(x, args["dim"].get<int>(), args["descending"].get<bool>());
  });
  all["topk"] = with_indices([](const Tensor& x, const json& args) {
    return topk(x, args["k"].get<int64_t>(), args["dim"].get<int>(), args["largest"].get<bool>());
  });
  all["matmul"] = of_pair([](const Tensor& a, const Tensor& b) { return matmul(a, b); });
  all["linear"] = [](const json&, const Tensors& in) -> Tensors {
    return {linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor())};
  };
  all["einsum"] = [](const json& args, const Tensors& in) -> Tensors {
    return {einsum(args["equation"].get<std::string>().c_str(), in[0], in[1])};
  };
}

// Returns the tensor itself, after f has written to it.
template <class F>
ProgramOperation in_place(F f) {
  return [f](const json& args, const Tensors& in) -> Tensors {
    f(in, args);
    return {in[0]};
  };
}

template <class F>
ProgramOperation in_place_number(F f) {
  return in_place([f](const Tensors& in, const json& args) {
    with_number(args["c"], [&](auto c) {
      f(in[0], c);
      return 0;
    });
  });
}

void add_in_place(ProgramOperations& all) {
  all["add_"] = in_place([](const Tensors& in, const json&) { in[0] += in[1]; });
  all["sub_"] = in_place([](const Tensors& in, const json&) { in[0] -= in[1]; });
  all["mul_"] = in_place([](const Tensors& in, const json&) { in[0] *= in[1]; });
  all["div_"] = in_place([](const Tensors& in, const json&) { in[0] /= in[1]; });
  all["add_alpha_"] = in_place([](const Tensors& in, const json& args) {
    with_number(args["c"], [&](auto c) { return in[0].add_(in[1], c), 0; });
  });
  all["add_number_"] = in_place_number([](const Tensor& x, auto c) { x += c; });
  all["sub_number_"] = in_place_number([](const Tensor& x, auto c) { x -= c; });
  all["mul_number_"] = in_place_number([](const Tensor& x, auto c) { x *= c; });
  all["div_number_"] = in_place_number([](const Tensor& x, auto c) { x /= c; });
  all["fill_"] = in_place_number([](const Tensor& x, auto c) { x.fill_(c); });
  all["zero_"] = in_place([](const Tensors& in, const json&) { in[0].zero_(); });
  all["copy_"] = in_place([](const Tensors& in, const json&) { in[0].copy_(in[1]); });
  all["clamp_"] = in_place([](const Tensors& in, const json& args) {
    in[0].clamp_(real(args["low"]), real(args["high"]));
  });
  all["masked_fill_"] = in_place([](const Tensors& in, const json& args) {
    with_number(args["c"], [&](auto c) { return in[0].masked_fill_(in[1], c), 0; });
  });
}

}  // namespace

DType dtype_named(const std::string& wanted) {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                            DType::Int64, DType::Int32, DType::UInt8, DType::Bool})
    if (wanted == name(dtype)) return dtype;
  throw Error("no dtype is called " + wanted);
}

const ProgramOperations& program_operations() {
  static const ProgramOperations operations = [] {
    ProgramOperations all;
    add_arithmetic(all);
    add_comparisons(all);
    add_reductions(all);
    add_in_place(all);
    add_layers(all);
    add_views(all);
    return all;
  }();
  return operations;
}

}  // namespace ringgrad::test
