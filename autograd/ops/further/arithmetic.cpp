#include "ringgrad/autograd/ops.h"

#include <cmath>

#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/autograd/ops/further/image_memory.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/numbers.h"

namespace ringgrad {
namespace {

// Throws for an integer tensor with a fractional number, whose result would be truncated.
void check_scalar(const char* operation, const Tensor& x, Scalar c) {
  check_defined(operation, x);
  CHECK_AS(DTypeError, is_floating(x.dtype()) || is_whole(c), operation, ": the tensor is ",
           x.dtype(), " and the number ", c,
           ", expected a whole number; convert the tensor with to(x, DType::Float32)");
  if (!is_floating(x.dtype())) check_holds(operation, x.dtype(), c);
}

// Returns c as a tensor [] that an operation computes with. Beyond the range of a floating dtype it
// is infinite, as a result would be. (No element could be set to it.)
Tensor operand(const Tensor& x, Scalar c) {
  const Scalar infinite = std::copysign(INFINITY, c.to<double>());
  return scalar(holds(x.dtype(), c) ? c : infinite, {x.dtype(), x.device()});
}

// Returns c as a tensor []. Throws if the dtype cannot hold the number, because a wrapped one would
// be larger or smaller.
Tensor exact_scalar(const char* operation, const Tensor& x, Scalar c) {
  check_scalar(operation, x, c);
  CHECK_AS(DTypeError, holds_exactly(x.dtype(), c), operation, ": the tensor is ", x.dtype(),
           ", which cannot hold the number ", c, "; convert the tensor with to(x, DType::Int64)");
  return operand(x, c);
}

// Returns -c in x's dtype. Integers wrap, so INT64_MIN is its own negative.
Scalar negative(const Tensor& x, Scalar c) {
  const bool is_least = c.is_integer() && c.to<int64_t>() == INT64_MIN;
  if (is_least && !is_floating(x.dtype())) return c;
  return c.is_integer() && !is_least ? Scalar(-c.to<int64_t>()) : Scalar(-c.to<double>());
}

Tensor product_of(const Tensor& a, const Tensor& b) { return mul(a, b); }
Tensor quotient_of(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor divisor_gradient(const Tensor& dy, const Tensor& a, const Tensor& b) {
  if (grad_enabled()) return neg(mul(div(dy, b), div(a, b)));
  const Tensor g = like(dy, a);
  Tensor db = empty(g.shape(), g.options());
  kernels::div_backward(db, g, a, b);
  return db;
}

// The two operands of a binary operation, broadcast to their common shape and in a common layout,
// and a new output.
struct Broadcast {
  Tensor a;
  Tensor b;
  Tensor y;
  Shape a_shape;
  Shape b_shape;

  // Sums and products accept the channel-blocked layout, because they keep its padding zero. A
  // quotient would not.
  Broadcast(const char* operation, const Tensor& a_, const Tensor& b_,
            Takes takes = Takes::AnyLayout) {
    check_same_kind(operation, a_, b_);
    a_shape = a_.shape();
    b_shape = b_.shape();
    const bool both_blocked = a_.is_channel_blocked() && b_.is_channel_blocked();
    const bool keep_blocked = both_blocked && a_shape == b_shape && takes == Takes::AnyLayout;
    const Shape shape = broadcast_shapes(operation, a_shape, b_shape);
    a = keep_blocked ? a_ : broadcast_view(strided(a_), shape);
    b = keep_blocked ? b_ : broadcast_view(strided(b_), shape);
    y = a_shape == shape   ? empty_like(a)
        : b_shape == shape ? empty_like(b)
                           : empty(shape, {a.dtype(), a.device()});
  }
};

// The memory of b, a number for each channel, or channel and image, of channel-blocked images a;
// undefined where it is something else.
Tensor of_channels(const Tensor& a, const Tensor& b) {
  if (!a.is_channel_blocked() || b.dim() < 3 || b.dim() > 4) return {};
  const Shape shape = {b.dim() == 4 ? b.size(0) : 1, b.size(-3), b.size(-2), b.size(-1)};
  const bool fits = (shape[0] == 1 || shape[0] == a.size(0)) && shape[1] == a.size(1) &&
                    shape[2] == 1 && shape[3] == 1;
  if (!fits || a.shape() == shape) return {};
  return memory_in(to_layout(b.dim() == 4 ? b : reshape(b, shape), Layout::ChannelBlocked));
}

// of_two(a, b), which maps zeros to a zero, in a's layout or b's where the other has a number for
// each channel; undefined elsewhere.
template <class F>
Tensor by_channel(const char* operation, const F& of_two, const Tensor& a, const Tensor& b) {
  check_same_kind(operation, a, b);
  if (const Tensor numbers = of_channels(a, b))
    return images_in(of_two(memory_in(a), numbers), a.shape());
  if (const Tensor numbers = of_channels(b, a))
    return images_in(of_two(numbers, memory_in(b)), b.shape());
  return {};
}
Tensor by_channel(const char* operation, Tensor (*of_two)(const Tensor&, const Tensor&),
                  const Tensor& a, const Tensor& b) {
  return by_channel<decltype(of_two)>(operation, of_two, a, b);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (const Tensor y = by_channel("add", add, a, b)) return y;
  OpScope scope("add");
  Broadcast in("add", a, b);
  kernels::add(in.y, in.a, in.b);
  return differentiable("add", {a, b}, in.y,
                        [sa = in.a_shape, sb = in.b_shape](const Tensor& dy) -> Gradients {
                          return {summed(dy, sa), summed(dy, sb)};
                        });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  if (const Tensor y = by_channel("sub", sub, a, b)) return y;
  OpScope scope("sub");
  Broadcast in("sub", a, b);
  kernels::sub(in.y, in.a, in.b);
  return differentiable(
      "sub", {a, b}, in.y,
      [sa = in.a_shape, sb = in.b_shape, wants_b = wants_grad(b)](const Tensor& dy) -> Gradients {
        return {summed(dy, sa), wants_b ? neg(summed(dy, sb)) : Tensor()};
      });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (const Tensor y = by_channel("mul", mul, a, b)) return y;
  OpScope scope("mul");
  Broadcast in("mul", a, b);
  kernels::mul(in.y, in.a, in.b);
  return differentiable("mul", {a, b}, in.y,
                        [a = save_if(wants_grad(b), in.a, 0), b = save_if(wants_grad(a), in.b, 1),
                         sa = in.a_shape, sb = in.b_shape](const Tensor& dy) -> Gradients {
                          return {b ? summed_to(sa, product_of, dy, b.get()) : Tensor(),
                                  a ? summed_to(sb, product_of, dy, a.get()) : Tensor()};
                        });
}

Tensor div(const Tensor& a, const Tensor& b) {
  OpScope scope("div");
  check_same_kind("div", a, b);
  // 7 / 2 is 3.5.
  if (!is_floating(a.dtype())) return div(to(a, DType::Float32), to(b, DType::Float32));
  Broadcast in("div", a, b, Takes::Strided);
  kernels::div(in.y, in.a, in.b);
  return differentiable(
      "div", {a, b}, in.y,
      [a = save_if(wants_grad(b), in.a, 0), b = save(in.b, 1), wants_a = wants_grad(a),
       sa = in.a_shape, sb = in.b_shape](const Tensor& dy) -> Gradients {
        return {wants_a ? summed_to(sa, quotient_of, dy, b.get()) : Tensor(),
                a ? summed_to(sb, divisor_gradient, dy, a.get(), b.get()) : Tensor()};
      });
}

using OfTwo = Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)>;
using OfTwoBackward = Kernel<void(const Tensor& da, const Tensor& db, const Tensor& dy,
                                  const Tensor& a, const Tensor& b)>;

// Computes both gradients for a pass that keeps a graph of them, in the operands' dtype and with
// the result's shape.
using OfTwoTwice = std::pair<Tensor, Tensor> (*)(const Tensor& dy, const Tensor& a,
                                                 const Tensor& b);

// Equals share the gradient; beside a NaN both have all of it, as the kernels say.
static std::pair<Tensor, Tensor> of_larger(const Tensor& dy, const Tensor& a, const Tensor& b) {
  const Tensor half = mul(dy, 0.5);
  return {where(lt(a, b), 0, where(eq(a, b), half, dy)),
          where(lt(b, a), 0, where(eq(a, b), half, dy))};
}
static std::pair<Tensor, Tensor> of_smaller(const Tensor& dy, const Tensor& a, const Tensor& b) {
  return of_larger(dy, neg(a), neg(b));
}
static std::pair<Tensor, Tensor> of_prelu(const Tensor& dy, const Tensor& x, const Tensor& w) {
  const Tensor positive = gt(x, 0);
  return {where(positive, dy, mul(dy, w)), where(positive, 0, mul(dy, x))};
}
static Tensor of_two(const char* name, const OfTwo& kernel, const OfTwoBackward& backward,
                     OfTwoTwice twice, const Tensor& a, const Tensor& b) {
  const auto in_memory = [&](const Tensor& p, const Tensor& q) {
    return of_two(name, kernel, backward, twice, p, q);
  };
  if (const Tensor y = by_channel(name, in_memory, a, b)) return y;
  OpScope scope(name);
  Broadcast in(name, a, b);
  kernel(in.y, in.a, in.b);
  // A small step does not change the larger of the two.
  const bool smooth = twice == of_prelu;
  return differentiable(
      name, {a, b}, in.y,
      [&backward, twice, a = save(in.a, smooth ? 0 : kSavedConstant),
       b = save(in.b, smooth ? 1 : kSavedConstant), sa = in.a_shape,
       sb = in.b_shape](const Tensor& dy) -> Gradients {
        const DType dtype = dy.dtype();
        const DType wide = dy.shape() == sa && dy.shape() == sb ? dtype : accumulator_dtype(dtype);
        if (grad_enabled()) {
          const auto [da, db] = twice(to(dy, wide), to(a.get(), wide), to(b.get(), wide));
          return {to(summed(da, sa), dtype), to(summed(db, sb), dtype)};
        }
        const Tensor g = to(like(dy, a.get()), wide);
        Tensor da = empty(g.shape(), g.options());
        Tensor db = empty(g.shape(), g.options());
        backward(da, db, g, to(a.get(), wide), to(b.get(), wide));
        return {to(sum_to(da, sa), dtype), to(sum_to(db, sb), dtype)};
      });
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return of_two("maximum", kernels::maximum, kernels::maximum_backward, of_larger, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return of_two("minimum", kernels::minimum, kernels::minimum_backward, of_smaller, a, b);
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  check_floating("prelu", x);
  check_parameter("prelu", x, weight);
  const Tensor y = of_two("prelu", kernels::prelu, kernels::prelu_backward, of_prelu,
                          to(x, weight.dtype()), weight);
  return to(y, x.dtype());
}

// Returns c as a tensor [] from which elements are taken.
static Tensor element(const char* operation, const Tensor& x, Scalar c) {
  check_scalar(operation, x, c);
  check_holds(operation, x.dtype(), c);
  return scalar(c, {x.dtype(), x.device()});
}
Tensor scalar_like(const Tensor& x, Scalar c) { return element("scalar_like", x, c); }
Tensor where(const Tensor& mask, const Tensor& a, Scalar b) {
  return where(mask, a, element("where", a, b));
}
Tensor where(const Tensor& mask, Scalar a, const Tensor& b) {
  return where(mask, element("where", b, a), b);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  return where(mask, element("masked_fill", x, value), x);
}

static Tensor shifted(const char* name, const Tensor& x_, Scalar c) {
  OpScope scope(name);
  const Tensor x = strided(x_);
  Tensor y = empty_like(x);
  kernels::affine(y, x, 1, c);
  return differentiable(name, {x}, y, [](const Tensor& dy) -> Gradients { return {dy}; });
}
Tensor add(const Tensor& x, Scalar c) {
  check_scalar("add", x, c);
  return shifted("add", x, c);
}
Tensor sub(const Tensor& x, Scalar c) {
  check_scalar("sub", x, c);
  return shifted("sub", x, negative(x, c));
}

Tensor mul(const Tensor& x_, Scalar c) {
  OpScope scope("mul");
  check_scalar("mul", x_, c);
  // 0 · ∞ is NaN, so the padding would not stay zero.
  const Tensor x = std::isfinite(c.to<float>()) ? x_ : strided(x_);
  Tensor y = empty_like(x);
  kernels::affine(y, x, c, -0.0);  // adding 0 instead would turn -0 into +0
  return differentiable("mul", {x}, y, [c](const Tensor& dy) -> Gradients { return {mul(dy, c)}; });
}

Tensor div(const Tensor& x, Scalar c) {
  check_defined("div", x);
  if (!is_floating(x.dtype())) return div(to(x, DType::Float32), c);
  const bool divides =
      x.device().is_cpu() && x.dtype() == accumulator_dtype(x.dtype()) && !x.is_channel_blocked();
  const double reciprocal = 1 / c.to<double>();
  const bool has_reciprocal = std::isnormal(static_cast<float>(reciprocal));
  return divides || !has_reciprocal ? div(x, operand(x, c)) : mul(x, reciprocal);
}

Tensor neg(const Tensor& x) { return mul(x, -1); }

// Multiplies repeated squares of x. The result wraps just as x · x · … does.
static Tensor integer_power(const Tensor& x, Scalar c) {
  check_scalar("pow", x, c);
  if (x.dtype() == DType::Bool)
    throw_unsupported_dtype("pow", x.dtype(), "a number; convert with to(x, DType::Int64)");
  CHECK_AS(DTypeError, !(c < 0), "pow: the tensor is ", x.dtype(), " and the exponent ", c,
           ", expected one of at least 0, since other powers are no integers; "
           "convert with to(x, DType::Float32)");
  Tensor y = ones_like(x);
  Tensor square = x;
  for (auto exponent = c.to<int64_t>(); exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) y = mul(y, square);
    if (exponent > 1) square = mul(square, square);
  }
  return y;
}

Tensor pow(const Tensor& x, Scalar power) {
  check_defined("pow", x);
  if (!is_floating(x.dtype())) return integer_power(x, power);
  const auto exponent = power.to<double>();
  if (exponent == 0.5)  // a tenth of the time
    return elementwise("pow", x, Takes::Strided, Saves::Output, kernels::sqrt,
                       kernels::sqrt_backward);
  return elementwise("pow", x, Takes::Strided, Saves::Input, kernels::pow, kernels::pow_backward,
                     exponent);
}
Tensor exp(const Tensor& x) {  // dx = dy y
  return elementwise("exp", x, Takes::Strided, Saves::Output, kernels::exp, kernels::mul);
}
Tensor log(const Tensor& x) {  // dx = dy / x
  return elementwise("log", x, Takes::Strided, Saves::Input, kernels::log, kernels::div);
}
Tensor log1p(const Tensor& x) {
  return elementwise("log1p", x, Takes::AnyLayout, Saves::Input, kernels::log1p,
                     kernels::log1p_backward);
}
Tensor sin(const Tensor& x) {
  return elementwise("sin", x, Takes::AnyLayout, Saves::Input, kernels::sin, kernels::sin_backward);
}
Tensor cos(const Tensor& x) {  // 1 at 0
  return elementwise("cos", x, Takes::Strided, Saves::Input, kernels::cos, kernels::cos_backward);
}
Tensor sqrt(const Tensor& x) {
  return elementwise("sqrt", x, Takes::Strided, Saves::Output, kernels::sqrt,
                     kernels::sqrt_backward);
}
Tensor abs(const Tensor& x) {
  return elementwise("abs", x, Takes::Strided, Saves::Input, kernels::abs, kernels::abs_backward);
}
Tensor operator/(Scalar c, const Tensor& x) {
  check_defined("div", x);
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::Float32;
  const Tensor wide = to(x, accumulator_dtype(dtype));  // 16-bit results are rounded once
  return to(div(operand(wide, c), wide), dtype);
}
Tensor clamp(const Tensor& x, std::optional<Scalar> lower, std::optional<Scalar> upper) {
  check_defined("clamp", x);
  CHECK(lower || upper, "clamp: neither limit is given, expected at least one");
  const Scalar low = lower.value_or(-INFINITY);
  const Scalar high = upper.value_or(INFINITY);
  const bool in_order =
      !std::isnan(low.to<double>()) && !std::isnan(high.to<double>()) && !(high < low);
  CHECK(in_order, "clamp: the lower limit ", low, " is above the upper limit ", high);
  if (!is_floating(x.dtype())) {
    const Tensor from = lower ? maximum(x, exact_scalar("clamp", x, low)) : x;
    return upper ? minimum(from, exact_scalar("clamp", x, high)) : from;
  }
  check_holds("clamp", x.dtype(), low);
  check_holds("clamp", x.dtype(), high);
  const Takes takes = 0 < low || high < 0 ? Takes::Strided : Takes::AnyLayout;
  return elementwise("clamp", x, takes, Saves::Input, kernels::clamp, kernels::clamp_backward,
                     low.to<double>(), high.to<double>());
}

// A step function: its slope is 0 wherever it is defined.
static Tensor stepped(const char* name, const Tensor& x,
                      const Kernel<void(const Tensor& y, const Tensor& x)>& kernel) {
  OpScope scope(name);
  check_defined(name, x);
  if (!is_floating(x.dtype())) return clone(x);
  Tensor y = empty_like(x);
  kernel(y, x);
  return differentiable(name, {x}, y, [](const Tensor& dy) -> Gradients {
    const auto none = [](const Tensor& g) { return zeros_like(g); };
    return {linear_gradient("zeros_like", dy, none(dy), none)};
  });
}
Tensor floor(const Tensor& x) { return stepped("floor", x, kernels::floor); }
Tensor ceil(const Tensor& x) { return stepped("ceil", x, kernels::ceil); }
Tensor round(const Tensor& x) { return stepped("round", x, kernels::round); }
Tensor trunc(const Tensor& x) { return stepped("trunc", x, kernels::trunc); }
Tensor sign(const Tensor& x) {
  check_defined("sign", x);
  if (is_floating(x.dtype())) return stepped("sign", x, kernels::sign);
  return sub(to(gt(x, 0), x.dtype()), to(lt(x, 0), x.dtype()));
}

Mask eq(const Tensor& x, Scalar c) { return eq(x, exact_scalar("eq", x, c)); }
Mask ne(const Tensor& x, Scalar c) { return ne(x, exact_scalar("ne", x, c)); }
Mask lt(const Tensor& x, Scalar c) { return lt(x, exact_scalar("lt", x, c)); }
Mask le(const Tensor& x, Scalar c) { return le(x, exact_scalar("le", x, c)); }
Mask gt(const Tensor& x, Scalar c) { return gt(x, exact_scalar("gt", x, c)); }
Mask ge(const Tensor& x, Scalar c) { return ge(x, exact_scalar("ge", x, c)); }

}  // namespace ringgrad
