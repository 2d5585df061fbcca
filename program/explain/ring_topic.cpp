// `explain ring`: an all-reduce of as many small numbers as there are ranks, message by message.
#include <fmt/format.h>

#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::ring_topic {
namespace {

// Rank r's chunk c is (c + 1) · 10^r. So each rank has a digit of its own in a sum, which shows
// that its number is in.
std::vector<int64_t> own_numbers(int rank, int ranks) {
  std::vector<int64_t> x;
  int64_t power = 1;
  for (int r = 0; r < rank; ++r) power *= 10;
  for (int c = 0; c < ranks; ++c) x.push_back((c + 1) * power);
  return x;
}

// Answers with this rank's array before each message that it sends, and at the end.
void on_rank(const std::string& part) {
  nlohmann::json sends = nlohmann::json::array();
  Tensor x;
  InitOptions options;
  options.algorithm =
      part == "naive" ? AllReduceAlgorithm::GatherBroadcast : AllReduceAlgorithm::Ring;
  options.on_send = [&](int peer, std::span<const std::byte> payload) {
    if (!x) return;  // something else than the all-reduce
    const auto chunk = (payload.data() - static_cast<const std::byte*>(x.raw_data())) /
                       static_cast<ptrdiff_t>(sizeof(int64_t));
    sends.push_back({{"to", peer},
                     {"bytes", payload.size()},
                     {"chunk", chunk},
                     {"before", to_vector<int64_t>(x)}});
  };
  play(
      [&](ProcessGroup& group) {
        const Tensor mine = tensor(own_numbers(group.rank(), group.size()));
        group.barrier().wait();
        x = mine;
        group.all_reduce(x, ReduceOp::Sum).wait();
        x = {};
        return nlohmann::json{
            {"sends", sends}, {"end", to_vector<int64_t>(mine)}, {"over", group.backend()}};
      },
      options);
}

using Numbers = std::vector<int64_t>;

int64_t bytes_sent(const nlohmann::json& rank) {
  int64_t bytes = 0;
  for (const auto& send : rank["sends"]) bytes += send["bytes"].get<int64_t>();
  return bytes;
}

int64_t busiest(const std::vector<nlohmann::json>& ranks) {
  int64_t most = 0;
  for (const auto& rank : ranks) most = std::max(most, bytes_sent(rank));
  return most;
}

// Draws the ranks in a circle. Each has an arrow to its right neighbour, labelled with the bytes
// that travel there.
std::string circle(int n, int64_t bytes) {
  const double kTurn = 6.283185307179586;
  const double kMiddleX = 170;
  const double kMiddleY = 160;
  const double kRadius = 120;
  std::string svg = svg_begin(
      340, 320, fmt::format("{} ranks in a ring, each sends {} bytes to the next", n, bytes));
  const auto at = [&](double r, double radius) {
    return std::pair(kMiddleX + radius * std::sin(kTurn * r / n),
                     kMiddleY - radius * std::cos(kTurn * r / n));
  };
  const double aside = n == 2 ? 10 : 0;  // there and back are two lines
  for (int r = 0; r < n; ++r) {
    // From the middle outwards, through the line's middle.
    const auto [out_x, out_y] = at(r + 0.5, 1);
    const double x_out = out_x - kMiddleX;
    const double y_out = out_y - kMiddleY;
    const auto [x, y] = at(r, kRadius);
    const auto [nx, ny] = at(r + 1, kRadius);
    const double length = std::hypot(nx - x, ny - y);
    const double dx = (nx - x) / length;
    const double dy = (ny - y) / length;
    const double mx = (x + nx) / 2 + aside * x_out;
    const double my = (y + ny) / 2 + aside * y_out;
    const double half = length / 2 - 24;
    svg += fmt::format("<path class=\"line\" d=\"M{:.0f} {:.0f}L{:.0f} {:.0f}\"/>", mx - half * dx,
                       my - half * dy, mx + half * dx, my + half * dy);
    svg += fmt::format(
        "<path class=\"communicate\" d=\"M{:.0f} {:.0f}L{:.0f} {:.0f}L{:.0f} {:.0f}Z\"/>",
        mx + 8 * dx, my + 8 * dy, mx - 6 * dx + 6 * dy, my - 6 * dy - 6 * dx, mx - 6 * dx - 6 * dy,
        my - 6 * dy + 6 * dx);
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{} B</text>\n",
                       mx + 26 * x_out, my + 18 * y_out + 4, bytes);
  }
  for (int r = 0; r < n; ++r) {
    const auto [x, y] = at(r, kRadius);
    svg += fmt::format(
        "<circle class=\"box\" cx=\"{:.0f}\" cy=\"{:.0f}\" r=\"24\"/><text "
        "x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">rank {}</text>\n",
        x, y, x, y + 4, r);
  }
  return svg + "</svg>\n";
}

void tell(Page& page, const ExplainOptions& options) {
  const int n = options.ranks;
  if (n < 2 || n > 8)
    throw UsageError("explain ring: --ranks {}, expected 2 to 8, which still can be read", n);
  const auto ranks = answers_of_ranks(page, "ring", n);
  const auto naive = answers_of_ranks(page, "naive", n);
  const size_t steps = ranks[0]["sends"].size();
  std::vector<std::vector<Numbers>> state(n);  // by rank: before each step, and at the end
  for (int r = 0; r < n; ++r) {
    for (const auto& send : ranks[r]["sends"]) state[r].push_back(send["before"]);
    state[r].push_back(ranks[r]["end"]);
  }
  const Numbers& total = state[0].back();

  page.text(
      fmt::format("{} processes each have an array of {} numbers, and all want the sum. "
                  "The array is cut into as many chunks as there are ranks; everybody sends to the "
                  "right neighbour and receives from the left, all at once. Rank r's numbers are "
                  "(chunk + 1) · 10^r, so that a digit tells whose number is in a sum.",
                  n, n));
  const auto table = [&](size_t step) {
    Row header{"rank"};
    for (int c = 0; c < n; ++c) header.push_back(fmt::format("chunk {}", c));
    header.push_back(step < steps ? "then sends" : "");
    std::vector<Row> rows;
    for (int r = 0; r < n; ++r) {
      Row row{fmt::format("rank {}", r)};
      for (int c = 0; c < n; ++c) {
        const int64_t x = state[r][step][c];
        const bool is_new = step > 0 && x != state[r][step - 1][c];
        row.push_back({std::to_string(x), x == total[c] ? Cell::Done
                                          : is_new      ? Cell::New
                                                        : Cell::None});
      }
      const auto& sends = ranks[r]["sends"];
      row.push_back(step < steps
                        ? fmt::format("chunk {} → rank {}", sends[step]["chunk"].get<int>(),
                                      sends[step]["to"].get<int>())
                        : "");
      rows.push_back(row);
    }
    page.table(header, rows);
  };
  page.section("Before");
  table(0);
  for (size_t step = 1; step <= steps; ++step) {
    const bool reducing = step < static_cast<size_t>(n);
    page.section(fmt::format("After step {} of {}: {}", step, steps,
                             reducing ? "reduce-scatter" : "all-gather"));
    table(step);
  }
  page.text(
      "+ (yellow): has grown in this step; * (green): is complete. In the first half a chunk "
      "collects one number "
      "after the other; in the second half the complete chunks go round.");

  page.section("What it costs");
  const auto size = static_cast<int64_t>(sizeof(int64_t)) * n;
  const int64_t ring = busiest(ranks);
  const int64_t through_one = busiest(naive);
  page.chart({.name = "bytes that the busiest rank sends",
              .lanes = {{"ring",
                         {{0, static_cast<double>(ring), Span::Communicate}},
                         fmt::format("{} B from every rank", ring)},
                        {"naive",
                         {{0, static_cast<double>(through_one), Span::Communicate}},
                         fmt::format("{} B from rank 0", through_one)}},
              .end = static_cast<double>(std::max(ring, through_one)),
              .key = {{Span::Communicate, "bytes that the busiest rank sends"}},
              .unit = "bytes"});
  page.text(
      fmt::format("Counted as they were sent, without the headers: each rank {} bytes "
                  "in {} messages, which is 2 (n - 1) / n · {} B, the least possible. "
                  "The naive all-reduce, in which rank 0 adds up and sends everything back, "
                  "has just sent {} B from rank 0: (n - 1) · {} B, and as much into it. "
                  "The ring's share hardly grows with n; the naive one's does.",
                  ring, steps, size, through_one, size));
  std::vector<Row> arrows;
  for (int r = 0; r < n; ++r)
    arrows.push_back({fmt::format("rank {}", r), fmt::format("rank {}", (r + 1) % n),
                      std::to_string(bytes_sent(ranks[r]))});
  page.picture(circle(n, ring), {{"from", "to", "bytes"}, arrows},
               html_square("communicate", "colour of arrows") +
                   " An arrow points to where a rank's bytes go.");
  page.facts["ranks"] = n;
  page.facts["steps"] = steps;
  page.facts["array_bytes"] = size;
  page.facts["states"] = state;
  page.facts["over"] = ranks[0]["over"];
  for (int r = 0; r < n; ++r) {
    page.facts["ring_bytes"].push_back(bytes_sent(ranks[r]));
    page.facts["naive_bytes"].push_back(bytes_sent(naive[r]));
  }
  page.read("distributed/collectives/ring.cpp", "void ring_all_reduce(",
            "these steps; with real gradients a chunk travels in segments, "
            "so that one is added while the next is on its way. Between ranks that share memory "
            "nothing is sent at all: shared_memory/shared_all_reduce.cpp");
}

}  // namespace
}  // namespace ringgrad::program::ring_topic

const ringgrad::program::Topic ringgrad::program::kRing{
    "ring", "an all-reduce step by step: who sends what to whom, and what it costs",
    ring_topic::tell, ring_topic::on_rank};
