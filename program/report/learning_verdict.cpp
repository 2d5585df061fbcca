#include <algorithm>
#include <cmath>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/report/findings.h"
#include "ringgrad/program/run/data_facts.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kLearningSteps = 50;  // after which something should have been learnt

// Returns the next command to try. The labels of one's own data may be wrong. Those of the
// catalogue are right, so another learning rate is tried.
std::string other_rate_or_data(const RunRecord& run) {
  if (is_own_data(run.recipe.data))
    return program_command("data check " + shell_word(run.recipe.data));
  Recipe asked;
  asked.model = run.recipe.model;
  asked.data = run.recipe.data;
  asked.optimizer = run.recipe.optimizer;
  const double usual = make_recipe(asked, {"--optimizer"}).lr;
  return train_with(run, fmt::format("--lr {}", usual != run.recipe.lr ? usual : usual / 3));
}

}  // namespace

void judge_learning(const RunRecord& run, Findings& found) {
  if (run.state == RunRecord::Failed && run.failure.find("diverged") != std::string::npos)
    return found.push_back({1,
                            {"diverging", run.failure,
                             train_with(run, fmt::format("--lr {:.2g}", run.recipe.lr / 3))}});
  if (run.epochs.empty()) return;
  const EpochLine& last = run.epochs.back();
  const auto best =
      std::min_element(run.epochs.begin(), run.epochs.end(),
                       [](const EpochLine& a, const EpochLine& b) { return a.loss < b.loss; });
  const auto classes = static_cast<double>(run.classes.size());
  const double guessing = std::log(std::max(classes, 1.0));
  const bool judged = last.step >= kLearningSteps && classes >= 2;
  const std::string lower = train_with(run, fmt::format("--lr {:.2g}", run.recipe.lr / 3));
  if (last.loss > 1.25 * best->loss + 0.05)
    return found.push_back(
        {1,
         {"diverging",
          fmt::format("the training loss rose from {:.3f} in epoch {} to {:.3f} in epoch {}",
                      best->loss, best->epoch, last.loss, last.epoch),
          lower}});
  // A network that nothing has changed yet is a little worse than guessing, too.
  const double at_first = run.summary && !run.summary->loss_curve.empty()
                              ? run.summary->loss_curve.front()[1]
                              : guessing;
  if (judged && last.loss > guessing + 0.3 && last.loss > 1.1 * at_first)
    return found.push_back(
        {1,
         {"diverging",
          fmt::format("a training loss of {:.3f} is worse than guessing among {} classes, {:.3f}",
                      last.loss, classes, guessing),
          lower}});
  if (judged && last.test_accuracy < 1.5 / classes && last.loss > 0.9 * guessing)
    return found.push_back({1,
                            {"not-learning",
                             fmt::format("{:.1f} % of the test images after {} steps is as "
                                         "good as guessing among {} classes; a loss of {:.3f}: "
                                         "wrong labels, or a learning rate far off",
                                         100 * last.test_accuracy, last.step, classes, last.loss),
                             other_rate_or_data(run)}});
  // Moving averages, such as those of batch norm, need more steps.
  if (last.step < kLearningSteps) return;
  const auto sweetest = std::min_element(
      run.epochs.begin(), run.epochs.end(),
      [](const EpochLine& a, const EpochLine& b) { return a.test_loss < b.test_loss; });
  const bool turned = last.test_loss > 1.15 * sweetest->test_loss &&
                      last.test_loss > sweetest->test_loss + 0.05 &&
                      last.loss < 0.95 * sweetest->loss;
  const bool apart =
      run.epochs.size() > 1 && last.test_loss > 2 * last.loss && last.test_loss > last.loss + 0.5;
  if (turned)
    found.push_back(
        {1,
         {"overfitting",
          fmt::format(
              "the test loss rose from {:.3f} in epoch {} to {:.3f}, while the training loss fell "
              "to {:.3f}",
              sweetest->test_loss, sweetest->epoch, last.test_loss, last.loss),
          train_with(run, fmt::format("--epochs {}", sweetest->epoch))}});
  else if (apart)
    found.push_back({1,
                     {"overfitting",
                      fmt::format("the loss is {:.3f} on training images and {:.3f} on test images",
                                  last.loss, last.test_loss),
                      train_with(run, "--crop 2 --weight-decay 0.001")}});
}

}  // namespace ringgrad::program
