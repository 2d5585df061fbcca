// Tensor: a handle to a strided (or channel-blocked) array of one element type on one device.
//
// Copying a Tensor copies the handle. Both handles name the same array and the same place in the
// autograd graph. Operations are the free functions of autograd/ops.h. A method with the name of an
// operation calls it, so there is no second API without gradients. These methods and the members
// under "autograd" are declared here, where people look for them. They are defined in autograd/,
// which knows AutogradMeta.
//
// An undefined tensor names no array; examples are Tensor() and a leaf's gradient before backward.
// Every member except defined() throws Error on it.
//
// Thread-safety: as for std::shared_ptr and the array behind it. Different threads may use
// different handles. Writing to elements that another thread reads needs synchronisation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/device.h"
#include "ringgrad/core/dtype.h"
#include "ringgrad/core/scalar.h"
#include "ringgrad/core/shape.h"

namespace ringgrad {

class Tensor;

// Reference-counted bytes on one device, with a version counter. All views of a tensor share one
// Storage.
class Storage {
 public:
  // Takes uninitialised bytes from the caching allocator, for work on the device's current stream.
  Storage(size_t nbytes, Device device);
  // Wraps bytes that the caller owns (a mapped file, shared memory). `release` runs when the last
  // view is gone.
  Storage(void* data, size_t nbytes, Device device, std::function<void()> release);
  ~Storage();
  Storage(const Storage&) = delete;

  void* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }
  Device device() const { return stream_.device; }

  // Counts in-place modifications. A tensor saved for backward compares the counter when it is
  // used, and throws if it changed.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  // Runs whenever somebody asks for the address of a tensor of this storage, and so before every
  // read and write of its elements. It may wait until they are there, and may throw. Empty for all
  // memory but that of distributed/zero/, which sets it before others have the storage.
  std::function<void(const Tensor& x)> before_access;

  // Held by all storages that hold the elements of one channel-blocked tensor: its own, which is
  // made with it, and those of its views, which are copies. While there are several, none may be
  // written to, because the others would not show it.
  std::shared_ptr<const void> twins;

 private:
  void* data_;
  size_t nbytes_;
  Stream stream_;
  std::atomic<uint32_t> version_{0};
  std::function<void()> release_;  // empty: the bytes are the caching allocator's
};

struct AutogradMeta;
struct Node;
struct Index;
struct ValuesAndIndices;
class Mask;
class HookHandle;

// The arrangement of a tensor's elements in its storage.
enum class Layout : uint8_t {
  // Element (i, j, …) is at offset + i * stride[0] + j * stride[1] + …. New tensors are contiguous.
  Strided,
  // 4-D only: strided images stored as NHWC without gaps.
  ChannelsLast,
  // 4-D only: contiguous [N, ⌈C/16⌉, H, W, 16]. In the last block the channels beyond C hold zeros.
  ChannelBlocked,
};
const char* name(Layout layout);              // "channels-last"
inline constexpr int64_t kChannelBlock = 16;  // one AVX-512 register, one cache line of float32

struct TensorOptions {
  DType dtype = DType::Float32;
  Device device = {};
  Layout layout = Layout::Strided;
  bool operator==(const TensorOptions&) const = default;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: names no array
  // Makes a view of `storage`. REQUIRES: every element lies inside the storage.
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, Int64 offset,
         DType dtype, Flag channel_blocked = false);
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  Tensor& operator=(const Tensor&) & = default;  // the handle names another array from now on
  Tensor& operator=(Tensor&&) & = default;
  // Assignment to a temporary, such as x[0] = v or x.index({Slice(), 1}) = v, writes the values
  // into its elements like copy_().
  void operator=(const Tensor& values) &&;
  void operator=(Scalar value) &&;

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }

  // The logical shape. For images it is NCHW in every layout.
  const Shape& shape() const { return impl("shape").shape; }
  // sizes() is the name in libtorch.
  const Shape& sizes() const { return shape(); }
  // d may be negative.
  int64_t size(Int d) const;
  int dim() const { return impl("dim").shape.dim(); }
  int64_t numel() const { return impl("numel").shape.numel(); }
  // The bytes of these elements. The storage may have more: gaps, padding, other tensors' elements.
  size_t nbytes() const {
    return static_cast<size_t>(impl("nbytes").shape.numel()) * itemsize(dtype());
  }
  // Strides have no meaning when the tensor is channel-blocked.
  const Strides& strides() const { return impl("strides").strides; }
  int64_t stride(Int d) const;
  DType dtype() const { return impl("dtype").dtype; }
  Device device() const { return impl("device").storage->device(); }
  // Returns ChannelsLast if the strides say so. Images that are contiguous as well (one channel, or
  // one pixel) are Strided.
  Layout layout() const;
  bool is_channel_blocked() const { return impl("layout").channel_blocked; }
  TensorOptions options() const { return {dtype(), device(), layout()}; }

  bool is_contiguous() const;     // strided, row-major, without gaps
  bool is_channels_last() const;  // strided, 4-D, stored as NHWC without gaps
  // Returns the number of elements in storage order if the tensor uses all of that range exactly
  // once, and otherwise 0. This holds for contiguous tensors, for their permutations, and for
  // channel-blocked tensors, whose padding counts. Two such tensors of equal shape, strides and
  // layout can be walked as flat arrays.
  int64_t flat_numel() const;

  // Returns the address of the first element; on CUDA it is a device address. Throws DTypeError if
  // T is not the tensor's dtype. Waits for elements that ranks still gather (ZeRO), so an address
  // that was taken before an optimizer's step says nothing about the values after it.
  template <class T>
  T* data() const {
    if (impl("data").dtype != dtype_of<T>) throw_wrong_dtype(dtype_of<T>);
    return static_cast<T*>(raw_data());
  }
  void* raw_data() const {
    const Impl& x = impl("data");
    if (x.storage->before_access) [[unlikely]]
      x.storage->before_access(*this);
    return static_cast<char*>(x.storage->data()) +
           x.offset * static_cast<int64_t>(itemsize(x.dtype));
  }

  // Returns the value of a tensor with one element, converted to T. Waits for the device. Throws
  // ShapeError if there is not exactly one element, and DTypeError if T is an integer type whose
  // range the value exceeds.
  template <class T>
  T item() const;

  const std::shared_ptr<Storage>& storage() const { return impl("storage").storage; }
  // The offset is counted in elements.
  int64_t storage_offset() const { return impl("storage_offset").offset; }
  // Returns true if no other handle and no view can see these elements, so that they may be
  // overwritten.
  bool is_sole_owner() const { return impl_.use_count() == 1 && impl_->storage.use_count() == 1; }
  // Returns true if both are handles of one tensor.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  bool shares_memory_with(const Tensor& other) const { return storage() == other.storage(); }

  // Returns the same array without history. Backward closures save such tensors. The name is
  // libtorch's.
  Tensor detach() const;
  // Returns a view of the same storage with other sizes and no history. REQUIRES: as the
  // constructor.
  Tensor as_strided(const Shape& shape, const Strides& strides, Int64 offset) const;
  // Makes every handle of this tensor name `other`'s array from now on. The shape must agree; dtype
  // and device may change. The tensor keeps its history and its gradient. So if it has a gradient,
  // dtype and device must stay those of the gradient (clear it before and set it again afterwards).
  // A tensor that requires a gradient must stay floating. Used to move and convert parameters, and
  // to place them in an arena.
  void set_data(const Tensor& other) const;

  // -- autograd; defined in autograd/ ----------------------------------------------------------
  // Returns true for leaves marked with set_requires_grad(), and for all tensors computed from
  // them.
  bool requires_grad() const;
  // Throws unless this is a floating leaf.
  const Tensor& set_requires_grad(Flag value = true) const;
  bool is_leaf() const;
  // Returns an undefined tensor until backward has reached this leaf.
  Tensor grad() const;
  // The gradient must have this tensor's shape, dtype and device. An undefined one clears it.
  void set_grad(const Tensor& grad) const;
  // Accumulates d(this)/d(leaf) into the grad of every leaf. Without an argument this tensor must
  // have one element. Frees the graph on the way, unless retain_graph keeps it for another pass.
  void backward(const Tensor& grad_output = {}, Flag retain_graph = false) const;
  // The same with autograd::BackwardOptions::create_graph (autograd/grad.h).
  void backward(const Tensor& grad_output, Flag retain_graph, Flag create_graph) const;
  const std::shared_ptr<AutogradMeta>& autograd_meta() const { return impl("autograd").autograd; }
  void set_autograd_meta(std::shared_ptr<AutogradMeta> meta) const {
    impl("autograd").autograd = std::move(meta);
  }
  const Tensor& requires_grad_(Flag value = true) const { return set_requires_grad(value); }
  std::shared_ptr<Node> grad_fn() const;  // the node that made this; null for a leaf
  // Makes backward store the gradient of this tensor, which is not a leaf, in its grad(). Its hooks
  // have run on that gradient.
  const Tensor& retain_grad() const;
  // hook(gradient) runs when this tensor's gradient is complete, before it is passed on. If the
  // hook returns a tensor, that tensor replaces the gradient. The hook stays until remove() is
  // called on the handle or the graph is gone (autograd/grad_hooks.h).
  HookHandle register_hook(std::function<Tensor(const Tensor& grad)> hook) const;

  // -- operations: each is the free function of its name; autograd/ops.h has the contracts
  Tensor add(const Tensor& other) const;
  Tensor sub(const Tensor& other) const;
  Tensor mul(const Tensor& other) const;
  Tensor div(const Tensor& other) const;
  Tensor neg() const;
  Tensor pow(Scalar exponent) const;
  Tensor exp() const;
  Tensor log() const;
  Tensor log1p() const;
  Tensor sqrt() const;
  Tensor square() const;
  Tensor abs() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor clamp(std::optional<Scalar> low, std::optional<Scalar> high = {}) const;
  Tensor clamp_min(Scalar low) const;
  Tensor clamp_max(Scalar high) const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor trunc() const;
  Tensor sign() const;
  Tensor relu() const;
  Tensor sigmoid() const;
  Tensor tanh() const;
  Tensor softmax(Int dim = -1) const;
  Tensor log_softmax(Int dim = -1) const;

  Mask eq(const Tensor& other) const;
  Mask eq(Scalar c) const;
  Mask any(const Dims& dims = {}, Flag keepdim = false) const;
  Mask all(const Dims& dims = {}, Flag keepdim = false) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;

  Tensor sum(const Dims& dims = {}, Flag keepdim = false) const;
  Tensor mean(const Dims& dims = {}, Flag keepdim = false) const;
  Tensor var(const Dims& dims = {}, Int correction = 1, Flag keepdim = false) const;
  Tensor var(const Dims& dims, Flag unbiased, Flag keepdim = false) const;
  Tensor var(Flag unbiased) const;
  Tensor std(const Dims& dims = {}, Int correction = 1, Flag keepdim = false) const;
  Tensor std(const Dims& dims, Flag unbiased, Flag keepdim = false) const;
  Tensor std(Flag unbiased) const;
  Tensor norm(Real p = 2, const Dims& dims = {}, Flag keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  ValuesAndIndices max(Int dim, Flag keepdim = false) const;
  ValuesAndIndices min(Int dim, Flag keepdim = false) const;
  Tensor argmax() const;
  Tensor argmin() const;
  Tensor argmax(Int dim, Flag keepdim = false) const;
  Tensor argmin(Int dim, Flag keepdim = false) const;
  Tensor prod() const;
  Tensor prod(Int dim, Flag keepdim = false) const;
  Tensor cumsum(Int dim) const;
  Tensor cumprod(Int dim) const;
  ValuesAndIndices sort(Int dim = -1, Flag descending = false) const;
  ValuesAndIndices topk(Int64 k, Int dim = -1, Flag largest = true) const;

  Tensor matmul(const Tensor& other) const;
  Tensor mm(const Tensor& other) const;
  Tensor t() const;

  Tensor view(const Shape& shape) const;
  Tensor reshape(const Shape& shape) const;
  Tensor flatten(Int start_dim = 0, Int end_dim = -1) const;
  Tensor squeeze() const;
  Tensor squeeze(Int dim) const;
  Tensor unsqueeze(Int dim) const;
  Tensor transpose(Int dim0, Int dim1) const;
  Tensor permute(const Dims& order) const;
  Tensor expand(const Shape& shape) const;
  Tensor repeat(const Shape& times) const;
  Tensor flip(const Dims& dims) const;
  Tensor roll(const std::vector<int64_t>& shifts, const Dims& dims = {}) const;
  // Returns sliding windows of `size` elements as a copy: [..., n, …] → [..., (n - size) / step +
  // 1, …, size].
  Tensor unfold(Int dim, Int64 size, Int64 step) const;
  // These are view(), reshape() and expand() to the other's shape, and to() its dtype and device.
  Tensor view_as(const Tensor& other) const;
  Tensor reshape_as(const Tensor& other) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor type_as(const Tensor& other) const;
  // These create tensors with this tensor's dtype and device.
  Tensor new_empty(const Shape& shape) const;
  Tensor new_zeros(const Shape& shape) const;
  Tensor new_ones(const Shape& shape) const;
  Tensor new_full(const Shape& shape, Scalar value) const;
  Tensor slice(Int dim, Int64 begin, Int64 end = INT64_MAX, Int64 step = 1) const;
  Tensor narrow(Int dim, Int64 begin, Int64 length) const;
  Tensor select(Int dim, Int64 place) const;
  Tensor operator[](Int64 place) const;
  Tensor index(const std::vector<Index>& at) const;
  Tensor index_select(Int dim, const Tensor& index) const;
  Tensor gather(Int dim, const Tensor& index) const;
  std::vector<Tensor> chunk(Int64 chunks, Int dim = 0) const;
  std::vector<Tensor> split(Int64 size, Int dim = 0) const;

  Tensor to(DType dtype) const;
  Tensor to(ringgrad::Device device) const;
  Tensor cpu() const;
  Tensor cuda() const;
  Tensor contiguous() const;
  Tensor clone() const;

  // -- in place: autograd/composed/in_place.cpp ---------------------------------------------------
  // The tensor has the new value under every handle. If a gradient is tracked, the write becomes
  // part of its history, as in PyTorch. Throws Error if the tensor is a leaf that requires a
  // gradient; write to such a leaf under a NoGradGuard. Also throws Error if a base, a view or a
  // node that saved the elements sees them, because its history would be wrong; write x = x + y
  // then.
  const Tensor& operator+=(const Tensor& other) const;
  const Tensor& operator-=(const Tensor& other) const;
  const Tensor& operator*=(const Tensor& other) const;
  const Tensor& operator/=(const Tensor& other) const;
  const Tensor& operator+=(Scalar c) const;
  const Tensor& operator-=(Scalar c) const;
  const Tensor& operator*=(Scalar c) const;
  const Tensor& operator/=(Scalar c) const;
  const Tensor& add_(const Tensor& other, Scalar alpha = 1) const;  // this += alpha other
  const Tensor& add_(Scalar c) const;
  const Tensor& sub_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& sub_(Scalar c) const;
  const Tensor& mul_(const Tensor& other) const;
  const Tensor& mul_(Scalar c) const;
  const Tensor& div_(const Tensor& other) const;
  const Tensor& div_(Scalar c) const;
  const Tensor& pow_(Scalar exponent) const;
  const Tensor& abs_() const;
  const Tensor& neg_() const;
  const Tensor& exp_() const;
  const Tensor& log_() const;
  const Tensor& log1p_() const;
  const Tensor& sqrt_() const;
  const Tensor& square_() const;
  const Tensor& sin_() const;
  const Tensor& cos_() const;
  const Tensor& relu_() const;
  const Tensor& sigmoid_() const;
  const Tensor& tanh_() const;
  const Tensor& floor_() const;
  const Tensor& ceil_() const;
  const Tensor& round_() const;
  const Tensor& trunc_() const;
  const Tensor& sign_() const;
  const Tensor& clamp_(std::optional<Scalar> low, std::optional<Scalar> high = {}) const;
  const Tensor& clamp_min_(Scalar low) const;
  const Tensor& clamp_max_(Scalar high) const;
  const Tensor& uniform_(Real low = 0, Real high = 1) const;
  const Tensor& normal_(Real mean = 0, Real std = 1) const;
  const Tensor& masked_fill_(const Tensor& mask, Scalar value) const;
  const Tensor& index_put_(const std::vector<Index>& at, const Tensor& values,
                           Flag accumulate = false) const;
  const Tensor& index_put_(const std::vector<Index>& at, Scalar value) const;
  const Tensor& copy_(const Tensor& values) const;  // may be broadcast
  const Tensor& fill_(Scalar value) const;
  const Tensor& zero_() const;

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<AutogradMeta> autograd;
    int64_t offset;
    Shape shape;
    Strides strides;
    DType dtype;
    bool channel_blocked;
  };
  // Returns the tensor's fields on behalf of the member `asked`. Throws Error if the tensor is
  // undefined.
  Impl& impl(const char* asked) const {
    if (!impl_) [[unlikely]]
      throw_undefined(asked);
    return *impl_;
  }
  [[noreturn]] static void throw_undefined(const char* asked);
  [[noreturn]] void throw_wrong_dtype(DType wanted) const;

  std::shared_ptr<Impl> impl_;
};

// A tensor of truth values that is not a condition. `if (x == y)` would test whether the tensor is
// defined, not what it holds. Write if ((x == y).all().item<bool>()) instead.
class Mask : public Tensor {
 public:
  Mask(Tensor values) : Tensor(std::move(values)) {}
  explicit operator bool() const = delete;
};

// Tensors with names, as modules list them, optimizers keep them, checkpoints hold them and ranks
// compare them.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Throws Error in the name of `operation` if x, which is `what` to it, is undefined.
void check_defined(const char* operation, const Tensor& x, const char* what = "an argument");

// Prints the elements, abbreviated if there are more than 1000, and then [2, 3] float32 cpu:0.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// ---- writing to an existing tensor --------------------------------------------------------------

// Returns true if several elements share one place, as after expand(). The answer is exact for all
// strides.
bool has_internal_overlap(const Tensor& x);

// Every write to the elements of x begins here. Raises x's version, so that a graph that saved x
// notices. Throws Error in the name of `operation` in three cases. If several elements share one
// place, only the last value would be kept. If x was computed from leaves that require a gradient,
// the graph would not know of the write and would be wrong. If x is channel-blocked and has views,
// or is such a view, they are copies of each other, and the others would not show the write.
void begin_write(const char* operation, const Tensor& x);

}  // namespace ringgrad
