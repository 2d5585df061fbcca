#include "ringgrad/distributed/ddp/contribution.h"

namespace ringgrad {

// If every rank has the usual weight, this is exactly 1 …
double factor_before(double weight, double usual) { return weight / usual; }

// … and so is this: the average divides by the number of ranks, and should divide by the sum of
// their weights.
double factor_after(double usual, double sum_of_weights, int ranks) {
  return usual / (sum_of_weights / ranks);
}

}  // namespace ringgrad
