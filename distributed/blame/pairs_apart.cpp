// Finds two ranks that do not answer each other, while both answer a third one. Neither is to
// blame, but the connection between them.
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/transport/failure_detector.h"

namespace ringgrad {

// The answers that this rank got at its last roll call.
struct PairsApart {
  const FailureDetector& ranks;

  bool answers(int r) const {
    return r == ranks.rank() || (ranks.peers_[r].position && !ranks.has_left(r));
  }
  // `a` has an answer from `b`.
  bool reaches(int a, int b) const {
    if (a == ranks.rank()) return answers(b);
    return answers(a) && ranks.peers_[a].misses.find(str(' ', b, ' ')) == std::string::npos;
  }
  bool apart(int a, int b) const {
    return !reaches(a, b) && !reaches(b, a) && !ranks.has_left(a) && !ranks.has_left(b);
  }

  static std::string find(const FailureDetector& ranks) {
    const PairsApart said{ranks};
    std::string text;
    for (int a = 0; a < ranks.size(); ++a)
      for (int b = a + 1; b < ranks.size(); ++b) {
        if (!said.apart(a, b)) continue;
        int third = 0;
        while (third < ranks.size() &&
               (third == a || third == b || !said.reaches(third, a) || !said.reaches(third, b)))
          ++third;
        if (third < ranks.size())
          text += str("; rank ", a, " and rank ", b, " do not reach each other; both reach rank ",
                      third);
      }
    return text;
  }
};

BEFORE_MAIN(pairs_apart, pairs_apart = PairsApart::find);

}  // namespace ringgrad
