// Elementwise arithmetic with NumPy's broadcasting, and elementwise functions.
//
// Both tensors have one dtype and one device. Integer dtypes work for add, sub, mul, div, neg, maximum and equal
// (division truncates; by zero gives 0) and have no gradient; the functions need a floating dtype. Errors: ShapeError
// where shapes cannot be broadcast, DTypeError, DeviceError.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& x, double c);  // with an integer tensor c is whole, else DTypeError
Tensor mul(const Tensor& x, double c);
Tensor div(const Tensor& x, double c);  // floating; on the CPU rounded once in float32 and float64; else x · (1/c)
Tensor neg(const Tensor& x);
Tensor maximum(const Tensor& a, const Tensor& b);  // NaN wins; at a tie each receives half the gradient, at NaN all
Tensor equal(const Tensor& a, const Tensor& b);    // bool, without gradient

Tensor pow(const Tensor& x, double exponent);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor abs(const Tensor& x);                             // gradient 0 at 0
Tensor clamp(const Tensor& x, double low, double high);  // gradient 1 at the limits themselves

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& x, double c) { return add(x, c); }
inline Tensor operator+(double c, const Tensor& x) { return add(x, c); }
inline Tensor operator-(const Tensor& x, double c) { return add(x, -c); }
inline Tensor operator-(double c, const Tensor& x) { return add(neg(x), c); }
inline Tensor operator*(const Tensor& x, double c) { return mul(x, c); }
inline Tensor operator*(double c, const Tensor& x) { return mul(x, c); }
inline Tensor operator/(const Tensor& x, double c) { return div(x, c); }
inline Tensor operator/(double c, const Tensor& x) { return mul(pow(x, -1), c); }

}  // namespace ringgrad
