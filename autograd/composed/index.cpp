// x.index({…}) and its inverse: parts of a tensor selected by numbers, slices and tensors.
#include <algorithm>
#include <numeric>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad {
namespace {

using Kind = Index::Kind;

// The positions that a tensor selects along one dimension.
struct Named {
  int dim;
  Tensor places;  // int64
};

bool is_mask(const Index& entry) {
  if (entry.kind == Kind::Rows) check_defined("index", entry.rows);
  return entry.kind == Kind::Rows && entry.rows.dtype() == DType::Bool;
}

// Returns the number of dimensions that the entries treat.
int named_dims(const std::vector<Index>& at) {
  int count = 0;
  for (const Index& entry : at)
    count += is_mask(entry) ? entry.rows.dim()
                            : entry.kind != Kind::NewDimension && entry.kind != Kind::Rest;
  return count;
}

// A mask selects positions along each of its dimensions.
std::vector<Named> named_by_mask(const Tensor& x, int dim, const Tensor& mask) {
  bool fits = mask.dim() > 0;
  for (int d = 0; fits && d < mask.dim(); ++d) fits = mask.size(d) == x.size(dim + d);
  CHECK_AS(ShapeError, fits, "index: the mask has shape ", mask.shape(), " for dimension ", dim,
           " and those after it of the tensor ", x.shape(), ", expected equal sizes");
  const Tensor places = nonzero(mask);
  std::vector<Named> named;
  for (int d = 0; d < mask.dim(); ++d) named.push_back({dim + d, select(places, 1, d)});
  return named;
}

// Converts negative positions. On the CPU, where that does not wait, it also checks the range.
Tensor checked(const Tensor& places, int64_t size, Device device) {
  CHECK_AS(DeviceError, places.device() == device, "index: a tensor of places is on ",
           places.device(), ", the tensor on ", device,
           ", expected one device; move with to(places, device)");
  CHECK_AS(DTypeError, places.dtype() == DType::Int64, "index: a tensor of places has dtype ",
           places.dtype(), ", expected int64, or bool; convert with to(places, DType::Int64)");
  if (!places.device().is_cpu()) return where(places < 0, places + size, places);
  const Tensor counted = copy_of(places, places.options());
  int64_t* const at = counted.data<int64_t>();
  bool inside = true;
  for (int64_t i = 0, n = counted.numel(); i < n; ++i) {
    at[i] += at[i] < 0 ? size : 0;
    inside = inside && at[i] >= 0 && at[i] < size;
  }
  CHECK_AS(IndexError, inside, "index: a tensor of places has elements from ",
           min(places).item<int64_t>(), " to ", max(places).item<int64_t>(), ", expected ", -size,
           " to ", size - 1);
  return counted;
}

Tensor picked(const Tensor& x, const Named& named) {
  const Tensor places = checked(named.places, x.size(named.dim), x.device());
  Shape shape;
  for (int d = 0; d < named.dim; ++d) shape.push_back(x.size(d));
  for (const int64_t size : places.shape()) shape.push_back(size);
  for (int d = named.dim + 1; d < x.dim(); ++d) shape.push_back(x.size(d));
  return reshape(index_select(x, named.dim, reshape(places, {places.numel()})), shape);
}

// Returns the elements of x that several tensors select together. Their dimensions are joined into
// one, in front, whose rows are selected.
Tensor picked(const Tensor& x, const std::vector<Named>& named) {
  Shape among;
  Shape rest;  // the broadcast places, and x's other dimensions
  for (const Named& n : named) among = broadcast_shapes("index", among, n.places.shape());
  std::vector<int> order;
  for (const Named& n : named) order.push_back(n.dim);
  Tensor row = zeros(among, {DType::Int64, x.device()});
  int64_t rows = 1;
  for (const Named& n : named) {
    const int64_t size = x.size(n.dim);
    row = row * size + checked(n.places, size, x.device());
    rows *= size;
  }
  for (int d = 0; d < x.dim(); ++d) {
    if (std::any_of(named.begin(), named.end(), [d](const Named& n) { return n.dim == d; }))
      continue;
    order.push_back(d);
    rest.push_back(x.size(d));
  }
  Shape matrix = rest;
  matrix.insert(0, rows);
  Shape shape = among;
  for (const int64_t size : rest) shape.push_back(size);
  const Tensor y = reshape(
      index_select(reshape(permute(x, order), matrix), 0, reshape(row, {among.numel()})), shape);

  const int first = named.front().dim;
  const int count = static_cast<int>(named.size());
  if (first == 0 || named.back().dim != first + count - 1) return y;
  std::vector<int> back(y.dim());  // moves the dimensions to where the tensors were
  std::iota(back.begin(), back.end(), 0);
  std::rotate(back.begin(), back.begin() + among.dim(), back.begin() + among.dim() + first);
  return permute(y, back);
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Index>& at) {
  check_defined("index", x);
  const int named = named_dims(at);
  const auto rests =
      std::count_if(at.begin(), at.end(), [](const Index& i) { return i.kind == Kind::Rest; });
  CHECK_AS(IndexError, named <= x.dim() && rests <= 1, "index: ", named,
           " dimensions are named, shape ", x.shape(), " has ", x.dim(),
           "; expected no more, and at most one Ellipsis");
  Tensor y = x;
  int d = 0;
  std::vector<Named> tensors;
  for (const Index& entry : at) switch (entry.kind) {
      case Kind::Place: y = select(y, d, entry.range.begin); break;
      case Kind::Range:
        y = slice(y, d++, entry.range.begin, entry.range.end, entry.range.step);
        break;
      case Kind::NewDimension: y = unsqueeze(y, d++); break;
      case Kind::Rest: d += x.dim() - named; break;
      case Kind::Rows:
        if (!is_mask(entry)) {
          tensors.push_back({d++, entry.rows});
          break;
        }
        for (Named& of_mask : named_by_mask(y, d, entry.rows))
          tensors.push_back(std::move(of_mask));
        d += entry.rows.dim();
        break;
    }
  return tensors.empty() ? y : tensors.size() == 1 ? picked(y, tensors[0]) : picked(y, tensors);
}

Tensor index_put(const Tensor& x, const std::vector<Index>& at, const Tensor& values,
                 Flag accumulate) {
  check_same_kind("index_put", x, values);
  // The same index applied to the elements' numbers gives the positions that it selects.
  const Tensor numbers = on_device(reshape(arange(x.numel()), x.shape()), x.device());
  const Tensor named = index(numbers, at);
  Tensor places = reshape(named, {named.numel()});
  Tensor from = reshape(expand(values, named.shape()), {named.numel()});
  const Tensor flat = reshape(x, {x.numel()});
  if (accumulate || named.numel() == 0) return reshape(index_add(flat, 0, places, from), x.shape());

  // After a stable sort of the positions, the last value of each run of equal positions stays.
  const Tensor order = argsort(places);
  const Tensor sorted = index_select(places, 0, order);
  const Tensor last =
      cat({slice(sorted, 0, 1) != slice(sorted, 0, 0, -1), ones({1}, {DType::Bool, x.device()})});
  const Tensor kept = masked_select(order, last);
  places = index_select(places, 0, kept);
  from = index_select(from, 0, kept);
  // For each element of x the number of its new value, from 1 on; 0 means none.
  const Tensor which = index_add(zeros({x.numel()}, {DType::Int64, x.device()}), 0, places,
                                 on_device(arange(1, kept.numel() + 1), x.device()));
  return reshape(where(which > 0, index_select(from, 0, where(which > 0, which - 1, 0)), flat),
                 x.shape());
}

}  // namespace ringgrad
