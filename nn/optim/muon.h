// Muon: momentum whose direction is made orthogonal, so that a step turns all of a matrix' singular
// directions by the same amount (Jordan, Jin, Boza, You, Cesista, Newhouse & Bernstein 2024,
// kellerjordan.github.io/posts/muon).
#pragma once

#include <vector>

#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

// U Vᵀ of a matrix' singular value decomposition U S Vᵀ, roughly: `steps` of a quintic of Newton's
// and Schulz's kind bring singular values that are not tiny to between 0.7 and 1.2. x [rows,
// columns], float32; zero stays zero.
Tensor orthogonalized(const Tensor& x, int steps = 5);

struct MuonOptions {
  double lr = 1e-3;
  // Decoupled, as AdamW's.
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  // The steps of orthogonalized().
  int steps = 5;
  // The step times sqrt(max(1, rows / columns)), as PyTorch's "original".
  bool scale_by_shape = true;
};

// For weight matrices and filters: one of more than two dimensions counts as [size(0), the rest].
// Biases, norms, embeddings and last layers want another optimizer. Formulas as torch.optim.Muon,
// which takes matrices only, and rounds each direction to bfloat16. Throws on parameters of fewer
// dimensions, or another dtype than float32.
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
