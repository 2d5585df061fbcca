// The page of `report`. Values that two runs have in common share a picture; everything else stands
// side by side.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/chrono.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/report/html.h"
#include "ringgrad/program/report/png_data.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/svg.h"
#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {
namespace {

// By Part.
constexpr Span::Kind kKinds[] = {Span::Data,        Span::Forward,   Span::Compute,
                                 Span::Communicate, Span::Optimizer, Span::Wait};

// Makes a part of the grid; with `whole` it is as wide as the page.
std::string section(const std::string& html, bool whole = false) {
  return html.empty() ? ""
                      : fmt::format("<section class=\"{}\">\n", whole ? "whole" : "") + html +
                            "</section>\n";
}
std::string heading(const std::string& words) { return "<h2>" + escaped(words) + "</h2>\n"; }
std::string paragraph(const std::string& words) { return "<p>" + escaped(words) + "</p>\n"; }
std::string milliseconds(double seconds) { return fmt::format("{:.2f}", seconds * 1e3); }

// Returns the letter that tells several runs apart: "A ".
std::string letter(const std::vector<RunRecord>& runs, size_t i) {
  return runs.size() > 1 ? std::string{static_cast<char>('A' + i), ' '} : "";
}

std::string verdict_box(const RunRecord& run, const std::string& letter) {
  const Verdict verdict = judge(run);
  std::string notes;
  for (const std::string& note : run.notes) notes += "<br/>Note: " + escaped(note);
  return fmt::format("<div class=\"verdict{}\">{}<b>{}</b>: {}<br/>Next: <code>{}</code>{}</div>\n",
                     verdict.name == "healthy" ? " healthy" : "", letter, escaped(verdict.name),
                     escaped(verdict.why), escaped(verdict.next), notes);
}

std::string headline_table(const std::vector<RunRecord>& runs) {
  Row header{"run"};
  for (size_t i = 0; i < runs.size(); ++i) header.push_back(letter(runs, i) + runs[i].path);
  std::vector<Row> rows;
  const auto row = [&](const char* what, auto of) {
    rows.push_back({what});
    for (const RunRecord& run : runs) rows.back().push_back(std::string(of(run)));
  };
  row("begun", [](const RunRecord& r) {
    const std::time_t begun = date_of(r.path);
    return begun == 0 ? "" : fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(begun));
  });
  row("model", [](const RunRecord& r) { return r.recipe.model + " on " + r.recipe.data; });
  row("test accuracy", [](const RunRecord& r) {
    return r.epochs.empty() ? "" : fmt::format("{:.2f} %", 100 * r.accuracy());
  });
  row("test loss", [](const RunRecord& r) {
    return r.epochs.empty() ? "" : fmt::format("{:.4f}", r.kept().test_loss);
  });
  row("epochs", [](const RunRecord& r) {
    return fmt::format("{} of {}", r.epochs.empty() ? 0 : r.epochs.back().epoch, r.recipe.epochs);
  });
  row("training", [](const RunRecord& r) { return human_time(r.train_seconds()); });
  row("images per second",
      [](const RunRecord& r) { return with_commas(static_cast<int64_t>(r.images_per_second())); });
  row("divided", [](const RunRecord& r) {
    return r.parallel == "none" ? "one process"
                                : fmt::format("{}, {}", r.parallel, counted(r.ranks, "rank"));
  });
  return html_table({header, rows});
}

// Returns a name for each curve: the run's, if there are several.
std::string label(const std::vector<RunRecord>& runs, size_t i, const char* alone) {
  return letter(runs, i) + alone;
}

// 0: it is not known.
double steps_per_epoch(const RunRecord& run) {
  if (run.summary) return static_cast<double>(run.summary->steps_per_epoch);
  if (run.epochs.empty()) return 0;
  return static_cast<double>(run.epochs.back().step /
                             std::max<int64_t>(1, run.epochs.back().epoch));
}

// Returns a row for each epoch. What an older version has not written is 0, and left out.
std::string epochs_table(const RunRecord& run) {
  Table table{{"epoch", "training loss", "test loss", "test accuracy", "images/s", "time"}, {}};
  for (const EpochLine& line : run.epochs)
    table.rows.push_back(
        {std::to_string(line.epoch), fmt::format("{:.4f}", line.loss),
         line.test_loss == 0 ? "" : fmt::format("{:.4f}", line.test_loss),
         fmt::format("{:.2f} %", 100 * line.test_accuracy),
         line.images_per_second == 0 ? "" : with_commas(std::llround(line.images_per_second)),
         line.seconds == 0 ? "" : human_time(line.seconds)});
  return run.epochs.empty() ? paragraph("No epoch has ended.") : html_table(table);
}

std::string learning(const std::vector<RunRecord>& runs) {
  std::vector<Curve> loss;
  std::vector<Curve> accuracy;
  std::vector<Curve> rate;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    Curve train{label(runs, i, "training"), {}, false, false, i};
    Curve test{label(runs, i, "test"), {}, true, true, i};
    Curve right{label(runs, i, ""), {}, true, false, i};
    for (const EpochLine& epoch : run.epochs) {
      const auto at = static_cast<double>(epoch.epoch);
      if (run.steps.empty() && (!run.summary || run.summary->loss_curve.size() < 2))
        train.points.push_back({at, epoch.loss});
      test.points.push_back({at, epoch.test_loss});
      right.points.push_back({at, epoch.test_accuracy});
    }
    // These are all calls' steps; the summary only has the last call's.
    for (const StepLine& step : run.steps)
      if (const double each = steps_per_epoch(run); each > 0 && std::isfinite(step.loss))
        train.points.push_back({static_cast<double>(step.step) / each, step.loss});
    if (train.points.empty() && run.summary) train.points = run.summary->loss_curve;
    loss.push_back(train);
    loss.push_back(test);
    accuracy.push_back(right);

    constexpr double kMostSteps = 1e12;  // beyond are no steps of a run, but of a damaged file
    const double planned = steps_per_epoch(run) * static_cast<double>(run.recipe.epochs);
    const auto each = static_cast<int64_t>(steps_per_epoch(run));
    const bool drawn = each > 0 && planned > 0 && planned <= kMostSteps;
    // Both have rates of their own.
    if (!drawn || run.has_preset() || run.config.contains("extended")) continue;
    Curve lr{label(runs, i, ""), {}, false, false, i};
    const optim::Schedule schedule = learning_rate(run.recipe, each);
    const int64_t steps = each * run.recipe.epochs;
    for (int64_t k = 0; k <= 120; ++k) {
      const int64_t step = std::min(steps - 1, steps * k / 120);
      lr.points.push_back(
          {static_cast<double>(step) / static_cast<double>(each), schedule(run.recipe.lr, step)});
    }
    rate.push_back(lr);
  }
  std::string html;
  const auto picture = [&](const char* title, const std::string& svg) {
    if (!svg.empty()) html += section(heading(title) + svg);
  };
  if (runs.size() == 1) html += section(heading("Epochs") + epochs_table(runs[0]), true);
  picture("Loss", svg_curves(loss, {"epochs", "loss", Axes::Logarithmic}));
  picture("Test accuracy", svg_curves(accuracy, {"epochs", "test accuracy", Axes::Tight, true}));
  picture("Learning rate", svg_curves(rate, {"epochs", "learning rate", Axes::FromZero}));
  return "<div class=\"runs\">\n" + html + "</div>\n";
}

std::string where_time_goes(const RunRecord& run) {
  const RunSummary& s = *run.summary;
  LaneChart chart{.name = "a step of each rank, part by part", .end = 1e-9};
  Table table{{"ms of a step"}, {}};
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    const RankSummary& rank = s.ranks[r];
    table.header.push_back(fmt::format("rank {}", r));
    Lane lane{fmt::format("rank {}", r), {}, milliseconds(rank.step()) + " ms"};
    double at = 0;
    for (size_t p = 0; p < kParts.size(); ++p) {
      lane.spans.push_back({at, at + rank.seconds[p], kKinds[p], kParts[p]});
      at += rank.seconds[p];
    }
    chart.lanes.push_back(lane);
    chart.end = std::max(chart.end, at);
  }
  for (size_t p = 0; p < kParts.size(); ++p) {
    table.rows.push_back({kParts[p]});
    for (const RankSummary& rank : s.ranks)
      table.rows.back().push_back(milliseconds(rank.seconds[p]));
    chart.key.push_back({kKinds[p], kParts[p]});
  }
  table.rows.push_back({"of which waiting for a core"});
  for (const RankSummary& rank : s.ranks) table.rows.back().push_back(milliseconds(rank.starved));
  chart.unit = "ms";
  chart.units = 1e3;
  chart.numbers = table;
  const bool queued = run.device != "cpu";
  return heading("Where the time goes") + svg_lanes(chart) +
         paragraph(
             "Data: waiting for a batch. Waiting: from a rank's last gradient to the averaged "
             "ones, "
             "which backward did not hide. Rest: between two steps." +
             (queued ? " These are the host's times, which queues work for " + run.device + "."
                     : std::string()));
}

// Makes a row for each layer. If there are many layers, it makes one for each block:
// "layer1.0.conv1" belongs to "layer1".
std::string gradient_norms(const RunRecord& run) {
  constexpr size_t kMostRows = 16;
  const bool many = run.gradient_norms.size() > kMostRows;
  std::map<std::string, std::map<double, double>> squares;  // by row and step
  for (const auto& [layer, norms] : run.gradient_norms)
    for (const auto& [step, norm] : norms)
      squares[many ? layer.substr(0, layer.find('.')) : layer][step] += norm * norm;
  std::vector<Curve> curves;
  for (const auto& [row, of_steps] : squares) {
    curves.push_back({row, {}});
    for (const auto& [step, square] : of_steps)
      curves.back().points.push_back({step, std::sqrt(square)});
  }
  if (curves.empty()) return "";
  return heading("Gradient norm by layer") +
         svg_sparklines("gradient norm by layer, step by step", curves) +
         paragraph(
             "As the optimizer got it, step by step. The numbers: the first, the highest, the "
             "last.");
}

// The layers that take most of a step's time in kernels, and the kernels that do.
std::string layers_and_kernels(const RunSummary& s) {
  constexpr size_t kMostRows = 12;
  double whole = 0;
  for (const KernelTime& k : s.kernels) whole += k.seconds;
  const auto table = [&](const char* title, const auto& name_of) {
    std::map<std::string, double> seconds;
    for (const KernelTime& k : s.kernels) seconds[name_of(k)] += k.seconds;
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, time] : seconds) order.emplace_back(time, name);
    std::sort(order.rbegin(), order.rend());
    std::vector<Row> rows;
    for (size_t i = 0; i < std::min(kMostRows, order.size()); ++i)
      rows.push_back({order[i].second, milliseconds(order[i].first),
                      fmt::format("{:.1f} %", 100 * order[i].first / whole)});
    return html_table({{title, "ms", "share"}, rows});
  };
  if (whole <= 0) return "";
  return heading("Layers and kernels") +
         table("layer",
               [](const KernelTime& k) {
                 return (k.layer.empty() ? "outside layers" : k.layer) + ", " + k.phase;
               }) +
         table("kernel", [](const KernelTime& k) { return k.kernel; }) +
         paragraph(
             "Time in kernels, in a step of rank 0: "
             "the median of the steps that were looked at closely.");
}

std::string one_step(const RunSummary& s) {
  LaneChart chart{.name = "backward, and the buckets that travel meanwhile",
                  .end = 1e-9,
                  .key = {{Span::Compute, "backward"},
                          {Span::Communicate, "a bucket on its way"},
                          {Span::Wait, "waiting for the last ones"}},
                  .unit = "ms",
                  .units = 1e3};
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    const RankSummary& rank = s.ranks[r];
    const double backward = rank.part(Part::Backward);
    const double averaged = backward + rank.part(Part::Waiting);
    chart.lanes.push_back({fmt::format("rank {} backward", r),
                           {{0, backward, Span::Compute}, {backward, averaged, Span::Wait}},
                           milliseconds(averaged) + " ms"});
    chart.end = std::max(chart.end, averaged);
    Lane travels{fmt::format("rank {} buckets", r), {}};
    for (const BucketSummary& bucket : rank.buckets) {
      const std::string name = fmt::format("{} ({})", bucket.parameters, human_bytes(bucket.bytes));
      travels.spans.push_back({bucket.launched, bucket.completed, Span::Communicate, name});
      chart.end = std::max(chart.end, bucket.completed);
    }
    chart.lanes.push_back(travels);
  }
  if (s.ranks.front().buckets.empty()) return "";
  return heading("Backward and its buckets") + svg_lanes(chart) +
         paragraph(
             "Means over the measured steps, on each rank from the beginning of its backward.");
}

std::string memory_and_bytes(const RunSummary& s) {
  LaneChart chart{.name = "memory of each rank",
                  .key = {{Span::Compute, "in tensors, at most"},
                          {Span::Forward, "resident: also data sets, code and shared memory"}},
                  .unit = "bytes"};
  Table table{{"", "tensors", "resident", "sent in a step"}, {}};
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    const RankSummary& rank = s.ranks[r];
    const std::string name = fmt::format("rank {}", r);
    chart.lanes.push_back({name,
                           {{0, static_cast<double>(rank.resident_bytes), Span::Forward},
                            {0, static_cast<double>(rank.tensor_bytes), Span::Compute}},
                           human_bytes(rank.resident_bytes)});
    chart.end =
        std::max(chart.end, static_cast<double>(std::max(rank.resident_bytes, rank.tensor_bytes)));
    table.rows.push_back({name, human_bytes(rank.tensor_bytes), human_bytes(rank.resident_bytes),
                          human_bytes(rank.sent_bytes)});
  }
  for (size_t d = 0; d < s.ranks.front().device_bytes.size(); ++d) {  // DataParallel
    const int64_t bytes = s.ranks.front().device_bytes[d];
    chart.lanes.push_back({fmt::format("device {}", d),
                           {{0, static_cast<double>(bytes), Span::Compute}},
                           human_bytes(bytes)});
    table.rows.push_back({fmt::format("device {}", d), human_bytes(bytes), "", ""});
  }
  chart.numbers = table;
  return heading("Memory and bytes by rank") + svg_lanes(chart);
}

std::string confusion(const RunRecord& run) {
  return run.confusion.empty()
             ? ""
             : heading("Confusion matrix") + svg_matrix(run.confusion, run.classes);
}

// Returns a picture of at most a few dozen pixels a side, so that the page stays small.
std::string small_picture(const ImageDataset& set, int64_t index) {
  constexpr int64_t kMostPixels = 40;
  const Tensor image = select(set.images, 0, index);
  const Shape& shape = image.shape();
  if (shape[1] <= kMostPixels) return png_data(image.data<uint8_t>(), shape[0], shape[1], shape[2]);
  const Tensor fitted = fit_image(image, shape[0], kMostPixels);
  std::vector<uint8_t> pixels(fitted.data<float>(), fitted.data<float>() + fitted.numel());
  return png_data(pixels.data(), shape[0], kMostPixels, kMostPixels);
}

std::string worst_images(const RunRecord& run, const ImageDataset* set) {
  if (run.worst.empty() || !set) return "";
  std::string html = heading("The images that it gets most wrong") + "<ul class=\"gallery\">\n";
  const auto classes = static_cast<int64_t>(std::min(run.classes.size(), set->classes.size()));
  for (const ImageResult& image : run.worst) {
    if (image.index >= set->size() || std::max(image.label, image.answer) >= classes) continue;
    const std::string name =
        image.file.empty() ? fmt::format("no. {}", image.index) : escaped(image.file);
    html += fmt::format(
        "<li><img alt=\"{}\" src=\"{}\"/>{}{}<br/>{:.2g} %<br/>{}</li>\n",
        "picture of " + escaped(set->classes[image.label]), small_picture(*set, image.index),
        escaped(set->classes[image.label]),
        image.answer == image.label ? "" : ", not " + escaped(set->classes[image.answer]),
        100 * std::exp(-image.loss), name);
  }
  return html + "</ul>\n" +
         paragraph(
             "The label; what the network says instead, or nothing where it is right, but the "
             "least sure; how likely it thinks the label; the file or number of the picture.");
}

// "batch 128 · crop 0 · …"
std::string in_words(const nlohmann::json& settings) {
  std::string words;
  for (const auto& [key, value] : settings.items())
    words += fmt::format("{}{} {}", words.empty() ? "" : " · ", key,
                         value.is_string()   ? value.get<std::string>()
                         : value.is_number() ? fmt::format("{:g}", value.get<double>())
                                             : value.dump());
  return words;
}

std::string facts(const RunRecord& run) {
  std::string list = "<dl>";
  const auto fact = [&](const std::string& name, const std::string& value) {
    if (!value.empty())
      list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  };
  fact("run", run.path);
  if (const auto& s = run.summary) {
    fact("command", s->command);
    fact("machine", s->machine);
    fact("commit", s->commit);
    fact("training data", s->data_digest);
    fact("threads", fmt::format("{} per rank, {} loader threads", s->threads, s->workers));
  }
  fact("version", run.version);
  fact("recipe", in_words(run.told()));
  if (run.config.contains("extended")) fact("extended", run.config["extended"].dump());
  if (run.config.contains("division")) fact("parallel", in_words(run.config["division"]));
  fact("seed", run.config.value("seed", nlohmann::json()).dump());
  return heading("What was run") + list + "</dl>\n";
}

std::string step_times(const RunSummary& s) {
  return heading("Step times") +
         svg_histogram(s.histogram.bins, s.histogram.low * 1e3, s.histogram.high * 1e3,
                       "milliseconds of a step") +
         paragraph(fmt::format(
             "{} steps: {} ms in the median, {} ms the 95th percentile; the last bar holds what is "
             "longer.",
             with_commas(s.steps), milliseconds(s.histogram.median),
             milliseconds(s.histogram.p95)));
}

std::string column(const RunRecord& run, const ImageDataset* set) {
  std::string html;
  if (const auto& s = run.summary; s && s->steps > 0 && !s->ranks.empty())
    html += section(where_time_goes(run)) + section(step_times(*s)) + section(one_step(*s)) +
            section(layers_and_kernels(*s)) + section(memory_and_bytes(*s));
  html += section(gradient_norms(run));
  html +=
      section(confusion(run)) + section(worst_images(run, set), true) + section(facts(run), true);
  return "<div class=\"runs\">\n" + html + "</div>\n";
}

}  // namespace

int64_t write_report(const std::vector<RunRecord>& runs, const std::filesystem::path& file,
                     const TestSetOf& test_set) {
  std::string title = "ringgrad";
  for (const RunRecord& run : runs)
    title += (&run == &runs.front() ? ": " : " and ") +
             std::filesystem::path(run.path).filename().string();
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) html += verdict_box(runs[i], letter(runs, i));
  html += "<div class=\"facts\">" + headline_table(runs) + "</div>\n";
  if (runs.size() == 2) {
    Table table{{"setting", "A", "B"}, {}};
    for (const Difference& d : differences(runs[0], runs[1]))
      table.rows.push_back({d.what, d.a, d.b});
    html += heading("Settings that differ");
    html += table.rows.empty() ? paragraph("None.") : html_table(table);
  }
  html += learning(runs);
  std::string columns;
  for (size_t i = 0; i < runs.size(); ++i)
    columns += runs.size() == 1 ? column(runs[i], test_set(runs[i]))
                                : section(heading(letter(runs, i) + runs[i].path) +
                                          one_level_down(heading("Epochs") + epochs_table(runs[i]) +
                                                         column(runs[i], test_set(runs[i]))));
  html += runs.size() == 1 ? columns : "<div class=\"runs\">\n" + columns + "</div>\n";
  html =
      html_document({.title = title,
                     .about = runs.size() == 1 ? "A training run, from its own measurements."
                                               : "Training runs beside each other, from their own "
                                                 "measurements. Each has its letter and colour.",
                     .body = html,
                     .wide = true});
  write_text(file, html);
  return static_cast<int64_t>(html.size());
}

}  // namespace ringgrad::program
