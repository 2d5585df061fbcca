#include "ringgrad/core/generator_scope.h"

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {

Generator::Generator(const Tensor& state)
    : state_(copy_of(state, {state.dtype(), state.device()})) {}

BEFORE_MAIN(generator_scope, scoped_generator = GeneratorScope::find);

}  // namespace ringgrad
