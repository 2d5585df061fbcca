#include "ringgrad/program/trace/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "ringgrad/program/report/html.h"

namespace ringgrad::program {
namespace {

constexpr double kWidth = 960, kLeft = 92, kRight = 16, kTop = 76, kLane = 26, kRank = 84,
                 kLoadingLane = 20;

constexpr const char* kStyle = R"(
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.page { fill: var(--paper); } .title { font-size: 15px; font-weight: 600; }
.grid { stroke: var(--soft); } .ready { stroke: var(--ink); } .in { fill: var(--paper); font-size: 11px; }
.forward { fill: var(--teal); } .backward { fill: var(--blue); } .optimizer { fill: var(--green); }
.zero_grad { fill: var(--pink); } .data, .loading { fill: var(--violet); } .rest { fill: var(--soft); }
.wait { fill: var(--gray); } .bucket { fill: var(--orange); } .queued { fill: var(--orange); opacity: .35; }
)";

// The meaning of each colour.
constexpr std::pair<const char*, const char*> kKey[] = {{"data", "data, loader"},
                                                        {"zero_grad", "zero_grad"},
                                                        {"forward", "forward"},
                                                        {"backward", "backward"},
                                                        {"wait", "waits for gradients"},
                                                        {"optimizer", "optimizer"},
                                                        {"bucket", "a bucket's all-reduce"},
                                                        {"queued", "queued"},
                                                        {"rest", "rest"}};

double ms(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

// 1, 2 or 5 times a power of ten: so that there are about eight lines.
double grid_step(double whole) {
  const double rough = whole / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(double width, int64_t begin, int64_t end)
      : begin_(begin),
        end_(end),
        scale_((width - kLeft - kRight) / static_cast<double>(end - begin)) {}

  // Loaders are ahead of the steps. A time outside the picture is drawn at its edge.
  double x(int64_t time) const {
    return kLeft + static_cast<double>(std::clamp(time, begin_, end_) - begin_) * scale_;
  }
  void text(double x, double y, const std::string& words, const char* of = "",
            const char* anchor = "start") {
    shapes_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    of, x, y, anchor, escaped(words));
  }
  // Draws a bar over that time, with its name in it if there is room before `covered`.
  void bar(const std::string& of, double y, double height, int64_t from, int64_t to,
           const std::string& label, const std::string& tip,
           int64_t covered = std::numeric_limits<int64_t>::max()) {
    const double room = x(std::min(to, covered)) - x(from);
    const double width = std::max(x(to) - x(from), 1.5);
    shapes_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" "
        "y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\"><title>{}</title></rect>\n",
        of, x(from), y, width, height, escaped(tip));
    if (room > 7.0 * static_cast<double>(label.size()) + 6)
      text(x(from) + room / 2, y + height / 2 + 4, label, "in", "middle");
  }
  void line(const char* of, double x1, double y1, double y2, const std::string& tip = "") {
    const std::string words = tip.empty() ? "" : "<title>" + escaped(tip) + "</title>";
    shapes_ += fmt::format(
        "<line class=\"{}\" "
        "x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\">{}</line>\n",
        of, x1, y1, x1, y2, words);
  }
  void square(const char* of, double x, double y) {
    shapes_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\"/>\n", of, x, y);
  }
  const std::string& shapes() const { return shapes_; }

 private:
  int64_t begin_;
  int64_t end_;
  double scale_;
  std::string shapes_;
};

// Returns the top of the next rank.
double draw_rank(Picture& picture, double top, size_t rank, const StepRecord& record,
                 int64_t zero) {
  double below = top + kLane + 6;
  picture.text(12, top + 17, fmt::format("rank {}", rank));
  picture.text(12, below + 17, "all-reduce");
  const auto times = [&](int64_t from, int64_t to) {
    return fmt::format("{:.2f} to {:.2f} ms", ms(from - zero), ms(to - zero));
  };
  for (const Slice& phase : record.phases) {
    int64_t covered = phase.end;
    for (const Slice& wait : record.waits)
      if (wait.begin >= phase.begin) covered = std::min(covered, wait.begin);
    picture.bar(phase.name, top, kLane, phase.begin, phase.end, phase.name,
                fmt::format("{}: {}", phase.name, times(phase.begin, phase.end)), covered);
  }
  for (const Slice& wait : record.waits)
    picture.bar("wait", top, kLane, wait.begin, wait.end, "waits",
                fmt::format("{}: {}", wait.name, times(wait.begin, wait.end)));
  for (const Slice& gradient : record.gradients)
    picture.line("ready", picture.x(gradient.begin), top + kLane - 5, below - 1,
                 fmt::format("{} is ready at {:.2f} ms", gradient.name, ms(gradient.begin - zero)));
  for (const BucketSlice& bucket : record.buckets)  // below the bars of those that run meanwhile
    if (bucket.begin > bucket.launched)
      picture.bar("queued", below, kLane, bucket.launched, bucket.begin, "", "queued");
  for (size_t b = 0; b < record.buckets.size(); ++b) {
    const BucketSlice& bucket = record.buckets[b];
    const std::string last = bucket.parameters.size() > 1 ? " … " + bucket.parameters.back() : "";
    picture.bar("bucket", below, kLane, bucket.begin, bucket.end, std::to_string(b),
                fmt::format("bucket {}, {:.1f} kB, {}{}: {}, launched at {:.2f}", b,
                            static_cast<double>(bucket.bytes) / 1e3, bucket.parameters.front(),
                            last, times(bucket.begin, bucket.end), ms(bucket.launched - zero)));
  }
  below += kLane + 6;
  for (const auto& thread : record.loading) {
    picture.text(12, below + 12, "loader");
    for (const Slice& batch : thread)
      picture.bar("loading", below, kLoadingLane - 6, batch.begin, batch.end, "",
                  fmt::format("{}: {}", batch.name, times(batch.begin, batch.end)));
    below += kLoadingLane;
  }
  return below + kRank - 2 * (kLane + 6);
}

// Returns what the picture shows, for those who do not see it.
std::string in_words(const std::vector<StepRecord>& records, int64_t zero) {
  std::string words = "Milliseconds.";
  const auto add = [&](const std::string& name, int64_t from, int64_t to) {
    words += fmt::format(" {} {:.2f} to {:.2f},", name, ms(from - zero), ms(to - zero));
  };
  for (size_t rank = 0; rank < records.size(); ++rank) {
    words += fmt::format(" Rank {}:", rank);
    for (const Slice& phase : records[rank].phases) add(phase.name, phase.begin, phase.end);
    for (const Slice& wait : records[rank].waits) add(wait.name, wait.begin, wait.end);
    for (size_t b = 0; b < records[rank].buckets.size(); ++b) {
      const BucketSlice& bucket = records[rank].buckets[b];
      add(fmt::format("bucket {} all-reduced", b), bucket.begin, bucket.end);
    }
    words.back() = '.';
  }
  return words;
}

}  // namespace

std::string timeline_svg(const std::string& title, const std::vector<StepRecord>& records) {
  int64_t zero = std::numeric_limits<int64_t>::max();
  int64_t end = std::numeric_limits<int64_t>::min();
  int64_t bound = 0;
  for (const StepRecord& record : records) {
    zero = std::min(zero, record.phases.front().begin);
    end = std::max(end, record.phases.back().end);
    bound = std::max(bound, record.clock_bound);
  }
  const auto steps =
      static_cast<double>(std::ranges::count(records.front().phases, "optimizer", &Slice::name));
  const double width = kWidth * std::max(1.0, steps / 2);
  const double whole = ms(end - zero);
  Picture picture(width, zero, std::max(end, zero + 1));
  double bottom = kTop;
  for (const StepRecord& record : records)
    bottom += kRank + kLoadingLane * static_cast<double>(record.loading.size());
  picture.text(12, 24, title, "title");
  for (double at = 0, step = grid_step(std::max(whole, 1e-3)); at <= whole; at += step) {
    const double x = picture.x(zero + static_cast<int64_t>(at * 1e6));
    picture.line("grid", x, kTop - 12, bottom - 12);
    picture.text(x, kTop - 18, fmt::format("{:g}{}", at, at == 0 ? " ms" : ""), "", "middle");
  }
  double top = kTop;
  for (size_t rank = 0; rank < records.size(); ++rank)
    top = draw_rank(picture, top, rank, records[rank], zero);
  double at = 12;
  for (const auto& [of, meaning] : kKey) {
    picture.square(of, at, bottom + 2);
    picture.text(at + 16, bottom + 12, meaning);
    at += 28 + 6.4 * static_cast<double>(std::string_view(meaning).size());
  }
  picture.text(12, bottom + 34,
               fmt::format("short strokes: a parameter's gradient is ready · clocks of the ranks "
                           "agree within {:.0f} µs",
                           static_cast<double>(bound) / 1e3));
  const double height = bottom + 48;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" role=\"img\"><title>{2}</title>\n<desc>{3}</desc>\n"
      "<style>{4}{5}</style>\n<rect class=\"page\" width=\"{0}\" height=\"{1}\"/>\n{6}</svg>\n",
      width, height, escaped(title), escaped(in_words(records, zero)), html_colours(), kStyle,
      picture.shapes());
}

}  // namespace ringgrad::program
