// Cross entropy of logits, and negative log likelihood of log-probabilities, on the CPU.
//
// The forward pass keeps two numbers for each row, the maximum and log Σ e^(x - max), instead of the probabilities:
// backward makes p = e^(x - max - log sum) again, which costs less than to write and read an array as large as they.
#include <limits>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

template <class A>
constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();

// The weights of the classes, all 1 where undefined, in the accumulation type.
template <class A>
class ClassWeights {
 public:
  explicit ClassWeights(const Tensor& weights)
      : tensor_(in_dtype(weights, dtype_of<A>)), data_(weights.defined() ? tensor_.data<A>() : nullptr) {
    ASSERT(!weights.defined() || weights.is_contiguous());
  }
  A operator[](int64_t c) const { return data_ ? data_[c] : A{1}; }
  A sum(int64_t classes) const {
    return sum_lanes<A>(classes, [this](int64_t c) { return (*this)[c]; });
  }

 private:
  Tensor tensor_;
  const A* data_;
};

// What a row's target asks for: a class, nothing, or something that does not exist.
enum class Target { Class, Ignored, Outside };
Target kind_of(int64_t target, int64_t classes, int64_t ignore_index) {
  if (target == ignore_index) return Target::Ignored;
  return target >= 0 && target < classes ? Target::Class : Target::Outside;
}

// body(row) for every row of x [N, C].
template <class Body>
void for_each_row(Stream stream, const Tensor& x, int64_t cost, Body&& body) {
  ASSERT(x.dim() == 2 && x.is_contiguous());
  parallel_for(stream, x.shape()[0], grain(cost * x.shape()[1]), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

void cross_entropy_cpu(Stream stream, const Tensor& loss, const Tensor& weight, const Tensor& log_sum_exp,
                       const Tensor& x, const Tensor& t, const Tensor& class_weight,
                       const kernels::CrossEntropyOptions& options) {
  visit_floating("cross_entropy", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = x.shape()[1];
    const ClassWeights<A> u(class_weight);
    const A smoothing = static_cast<A>(options.label_smoothing), share = smoothing / static_cast<A>(classes);
    for_each_row(stream, x, 4, [&](int64_t n) {
      const T* const row = x.data<T>() + n * classes;
      const A largest = max_lanes<A>(classes, [row](int64_t c) { return static_cast<A>(row[c]); });
      const A sum = sum_lanes<A>(classes, [=](int64_t c) { return fast_exp(static_cast<A>(row[c]) - largest); });
      const A log_sum = std::log(sum);
      const auto surprise = [=](int64_t c) { return log_sum - (static_cast<A>(row[c]) - largest); };  // -log p[c]
      log_sum_exp.data<A>()[2 * n] = largest;
      log_sum_exp.data<A>()[2 * n + 1] = log_sum;
      A& row_loss = loss.data<A>()[n];
      A& row_weight = weight.data<A>()[n];
      const int64_t target = t.data<int64_t>()[n];
      switch (kind_of(target, classes, options.ignore_index)) {
        case Target::Class:
          row_weight = u[target];
          row_loss = (1 - smoothing) * row_weight * surprise(target);
          if (smoothing != 0) row_loss += share * sum_lanes<A>(classes, [&](int64_t c) { return u[c] * surprise(c); });
          break;
        case Target::Ignored: row_loss = row_weight = 0; break;
        case Target::Outside: row_loss = row_weight = kNaN<A>;
      }
    });
  });
}

// With p = softmax(x): dx[c] = p[c] ((1 - s) u[t] + s/C Σ u) - s/C u[c], and (1 - s) u[t] less at c = t.
void cross_entropy_backward_cpu(Stream stream, const Tensor& dx, const Tensor& scale, const Tensor& x,
                                const Tensor& log_sum_exp, const Tensor& t, const Tensor& class_weight,
                                const kernels::CrossEntropyOptions& options) {
  visit_floating("cross_entropy", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = x.shape()[1];
    const ClassWeights<A> u(class_weight);
    const A smoothing = static_cast<A>(options.label_smoothing), share = smoothing / static_cast<A>(classes);
    const A all = u.sum(classes);
    for_each_row(stream, x, 4, [&](int64_t n) {
      const T* const row = x.data<T>() + n * classes;
      T* const to = dx.data<T>() + n * classes;
      const int64_t target = t.data<int64_t>()[n];
      const Target kind = kind_of(target, classes, options.ignore_index);
      if (kind != Target::Class) {
        std::fill_n(to, classes, static_cast<T>(kind == Target::Ignored ? A{0} : kNaN<A>));
        return;
      }
      const A largest = log_sum_exp.data<A>()[2 * n], log_sum = log_sum_exp.data<A>()[2 * n + 1];
      const A s = scale.data<A>()[n], hit = (1 - smoothing) * u[target];
      const A factor = s * (hit + share * all), spread = s * share;
      const auto elsewhere = [&](int64_t c) {
        return factor * fast_exp(static_cast<A>(row[c]) - largest - log_sum) - spread * u[c];
      };
      const A at_target = elsewhere(target) - s * hit;  // before dx is written, which may be x
      for (int64_t c = 0; c < classes; ++c) to[c] = static_cast<T>(elsewhere(c));
      to[target] = static_cast<T>(at_target);
    });
  });
}

void nll_loss_cpu(Stream stream, const Tensor& loss, const Tensor& weight, const Tensor& x, const Tensor& t,
                  const Tensor& class_weight, int64_t ignore_index) {
  visit_floating("nll_loss", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = x.shape()[1];
    const ClassWeights<A> u(class_weight);
    for_each_row(stream, x, 1, [&](int64_t n) {
      const int64_t target = t.data<int64_t>()[n];
      const Target kind = kind_of(target, classes, ignore_index);
      const A none = kind == Target::Ignored ? A{0} : kNaN<A>;
      weight.data<A>()[n] = kind == Target::Class ? u[target] : none;
      loss.data<A>()[n] = kind == Target::Class ? -u[target] * static_cast<A>(x.data<T>()[n * classes + target]) : none;
    });
  });
}

void nll_loss_backward_cpu(Stream stream, const Tensor& dx, const Tensor& scale, const Tensor& t,
                           const Tensor& class_weight, int64_t ignore_index) {
  visit_floating("nll_loss", dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = dx.shape()[1];
    const ClassWeights<A> u(class_weight);
    for_each_row(stream, dx, 1, [&](int64_t n) {
      const int64_t target = t.data<int64_t>()[n];
      const Target kind = kind_of(target, classes, ignore_index);
      T* const to = dx.data<T>() + n * classes;
      std::fill_n(to, classes, static_cast<T>(kind == Target::Outside ? kNaN<A> : A{0}));
      if (kind == Target::Class) to[target] = static_cast<T>(-scale.data<A>()[n] * u[target]);
    });
  });
}

REGISTER_KERNEL(cross_entropy, DeviceType::CPU, Provider::Native, cross_entropy_cpu);
REGISTER_KERNEL(cross_entropy_backward, DeviceType::CPU, Provider::Native, cross_entropy_backward_cpu);
REGISTER_KERNEL(nll_loss, DeviceType::CPU, Provider::Native, nll_loss_cpu);
REGISTER_KERNEL(nll_loss_backward, DeviceType::CPU, Provider::Native, nll_loss_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
