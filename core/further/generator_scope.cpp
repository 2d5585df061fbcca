#include "ringgrad/core/generator_scope.h"

#include "ringgrad/core/base/before_main.h"

namespace ringgrad {

BEFORE_MAIN(generator_scope, scoped_generator = GeneratorScope::find);

}  // namespace ringgrad
