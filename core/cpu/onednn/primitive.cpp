#include "ringgrad/core/cpu/onednn/primitive.h"

#include <map>
#include <mutex>

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
#include <omp.h>
#endif

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::onednn {
namespace {

// Sets OpenMP's number of threads for this thread to that of the stream while it lives. Primitives
// are created for a number of threads, and run with as many.
class Threads {
 public:
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
  explicit Threads(Stream stream) : before_(omp_get_max_threads()) {
    omp_set_num_threads(thread_count(stream));
  }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
#else
  explicit Threads(Stream) {}
#endif
};

BEFORE_MAIN(vendor,
            add_vendor_library(DeviceType::CPU, str("oneDNN ", DNNL_VERSION_MAJOR, ".",
                                                    DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH)));

memory::dims dims(const Shape& sizes) { return {sizes.begin(), sizes.end()}; }

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine* const cpu = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *cpu;
}

bool supports(const Tensor& x) {
  return (x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16) && x.numel() > 0;
}

memory::data_type data_type(DType dtype) {
  return dtype == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc description(const Tensor& x) {
  if (x.layout() == Layout::ChannelBlocked)
    return {dims(x.shape()), data_type(x.dtype()), memory::format_tag::nChw16c};
  // The stride of a dimension of size 1 has no meaning here, but oneDNN reads it.
  return {dims(x.shape()), data_type(x.dtype()),
          dims(x.is_contiguous() ? contiguous_strides(x.shape()) : x.strides())};
}

memory as_memory(const Tensor& x) { return memory(description(x), engine(), x.raw_data()); }

std::shared_ptr<const Primitive> find(Stream stream, const std::string& call,
                                      const std::function<Primitive()>& make) {
  static std::mutex mutex;
  static auto* const made = new std::map<std::string, std::shared_ptr<const Primitive>>;
  const std::string key = str(call, " threads ", thread_count(stream), " convolution ",
                              static_cast<int>(conv_algorithm()));
  std::lock_guard lock(mutex);
  if (const auto at = made->find(key); at != made->end()) return at->second;
  const Threads threads(stream);
  std::shared_ptr<const Primitive> primitive;  // null: oneDNN has none for this call
  try {
    primitive = std::make_shared<Primitive>(make());
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw Error(str(call, ": oneDNN says ", error.what()));
  }
  return made->emplace(key, primitive).first->second;
}

void execute(Stream stream, const Primitive& primitive, Arguments arguments) {
  const Threads threads(stream);
  dnnl::stream queue(engine());
  const cpu::Workspace<char> scratch(stream, static_cast<int64_t>(primitive.scratch.get_size()));
  arguments.insert({DNNL_ARG_SCRATCHPAD, memory(primitive.scratch, engine(), scratch.data())});
  try {
    primitive.run.execute(queue, arguments);
    queue.wait();
  } catch (const dnnl::error& error) {
    throw Error(str(current_op(), ": oneDNN says ", error.what()));
  }
}

void reorder(Stream stream, memory from, memory to) {
  const Threads threads(stream);
  dnnl::stream queue(engine());
  dnnl::reorder(from, to).execute(queue, from, to);
  queue.wait();
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr ours;
  ours.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return ours;
}

}  // namespace ringgrad::onednn
