// Muon: momentum whose direction is orthogonalised, so that a step changes all singular directions
// of a matrix by the same amount (Jordan, Jin, Boza, You, Cesista, Newhouse & Bernstein 2024,
// kellerjordan.github.io/posts/muon).
#pragma once

#include <vector>

#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

// Returns approximately U Vᵀ of the singular value decomposition U S Vᵀ of x [rows, columns],
// float32. `steps` of a quintic Newton-Schulz iteration bring singular values that are not tiny to
// between 0.7 and 1.2. Zero stays zero.
Tensor orthogonalized(const Tensor& x, int steps = 5);

struct MuonOptions {
  double lr = 1e-3;
  // Decoupled, as in AdamW.
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  // The number of steps of orthogonalized().
  int steps = 5;
  // Multiplies the step by sqrt(max(1, rows / columns)), like PyTorch's "original".
  bool scale_by_shape = true;
};

// For weight matrices and filters; more than two dimensions count as [size(0), the rest]. Biases,
// norms, embeddings and last layers need another optimizer. The formulas are those of
// torch.optim.Muon, which accepts only matrices and rounds each direction to bfloat16. Throws if a
// parameter has fewer dimensions or is not float32.
class Muon : public Optimizer {
 public:
  explicit Muon(ParameterList parameters, MuonOptions options = {});
  explicit Muon(std::vector<ParamGroup<MuonOptions>> groups);

 protected:
  // State: "momentum_buffer", b ← μ b + (1 - μ) g.
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  bool steps_elements() const override { return false; }
  std::vector<MuonOptions> options_;
};

}  // namespace ringgrad::optim
