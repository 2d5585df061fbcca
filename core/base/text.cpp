#include "ringgrad/core/base/text.h"

namespace ringgrad {

template class Classic<std::ostringstream>;
template class Classic<std::istringstream>;
template class Classic<std::ifstream>;
template class Classic<std::ofstream>;

}  // namespace ringgrad
