// The arithmetic of messages between ranks, which core/kernels/reduction.h describes.
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/cpu/reduction_parts.h"

namespace ringgrad::cpu {
namespace {

template <class T, class Op>
struct OfMessages {
  static constexpr ReduceFunctions value = {sizeof(T), sizeof(Accumulator<T>), combine<T, Op, T>,
                                            combine<T, Op, Accumulator<T>>, finish<T, Op>};
};

BEFORE_MAIN(reductions, register_reductions(find<OfMessages>));

}  // namespace
}  // namespace ringgrad::cpu
