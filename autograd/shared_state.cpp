#include "ringgrad/autograd/shared_state.h"

#include <algorithm>

#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

// Calls visit(parameter, its elements as a part of `array`, the first of these elements).
template <class Visit>
void for_each_part(const StepShare::State& state, const Tensor& array, const Visit& visit,
                   const std::vector<int64_t>& numels) {
  for (size_t k = 0; k < state.parameters.size(); ++k) {
    const int i = state.parameters[k];
    const int64_t offset = state.offsets[k];
    const int64_t begin = std::max<int64_t>(0, offset);
    const int64_t end = std::min(state.numel, offset + numels[static_cast<size_t>(i)]);
    visit(i, array.as_strided({end - begin}, {1}, begin), begin - offset);
  }
}

}  // namespace

std::vector<Tensor> SharedState::whole(const std::vector<Tensor>& parameters,
                                       const std::vector<State>& states, size_t array) const {
  std::vector<Tensor> all;
  std::vector<int64_t> numels;
  for (const Tensor& p : parameters) {
    all.push_back(zeros(p.shape(), {state_dtype(p), p.device()}));
    numels.push_back(p.numel());
  }
  for (const State& state : states)
    for_each_part(
        state, state.arrays[array],
        [&](int i, const Tensor& part, int64_t first) {
          copy_(all[static_cast<size_t>(i)].as_strided(part.shape(), {1}, first), part);
        },
        numels);
  for (const Tensor& x : all) unite(x);
  return all;
}

void SharedState::keep(const std::vector<State>& states, const NamedTensors& whole) const {
  if (states.empty() || states[0].arrays.empty()) return;
  const size_t count = whole.size() / states[0].arrays.size();
  std::vector<int64_t> numels;
  for (size_t i = 0; i < count; ++i) numels.push_back(whole[i].second.numel());
  for (const State& state : states)
    for (size_t a = 0; a < state.arrays.size(); ++a)
      for_each_part(
          state, state.arrays[a],
          [&](int i, const Tensor& part, int64_t first) {
            const Tensor& x = whole[a * count + static_cast<size_t>(i)].second;
            copy_(part, x.as_strided(part.shape(), {1}, x.storage_offset() + first));
          },
          numels);
}

}  // namespace ringgrad
