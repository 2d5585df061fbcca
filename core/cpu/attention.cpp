// Attention on the CPU in the manner of FlashAttention-2 (Dao 2023), tile by tile
// (attention_tiles.h). A unit is a part of a head's queries. It walks over the keys, and keeps for
// each query the largest score so far, the sum of e^(score - largest), and y times that sum. When a
// later tile has a larger score, the last two are multiplied by e^(old largest - new).
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/attention_rows.h"

namespace ringgrad::cpu {
namespace {

constexpr int64_t kUnitQueries = 8 * kTileQueries;

template <class T>
class Forward {
 public:
  using Products = TileProducts<T>;
  using A = typename Products::Sum;

  Forward(const Tensor& y, const Tensor& logsumexp, const Tensor& q, const Tensor& k,
          const Tensor& v, const Scores<A>& scores)
      : y_(y),
        logsumexp_(logsumexp),
        q_(q),
        k_(k),
        v_(v),
        scores_(scores),
        queries_(q.size(2)),
        keys_(k.size(2)),
        width_(q.size(3)),
        out_width_(v.size(3)),
        y_stride_(padded(out_width_, conv::kPanel)) {}

  void run(Stream stream) const {
    Division<A> count;
    Memory(count, *this);
    ThreadWorkspaces workspaces(stream, count.floats());
    const int64_t parts = ceil_div(queries_, kUnitQueries);
    const int64_t part = parts == 0 ? 0 : padded(ceil_div(queries_, parts), kTileQueries);
    parallel_for(stream, q_.size(0) * q_.size(1) * parts, 1, [&](int64_t unit, int64_t end_unit) {
      const ThreadWorkspaces::Slice slice(workspaces);
      for (; unit < end_unit; ++unit) {
        Division<A> division(memory_of<A>(slice));
        const Memory memory(division, *this);
        const int64_t first = unit % parts * part;
        queries(unit / parts, first, std::min(queries_, first + part), memory);
      }
    });
  }

 private:
  static constexpr A kNone = -std::numeric_limits<A>::infinity();

  // A thread's.
  struct Memory {
    A* left;     // a tile's queries
    A* k_right;  // a tile's keys
    A* v_right;
    A* scores;  // of a tile, and its weights
    A* weights;
    A* z;        // of a row
    A* largest;  // of each query of the unit
    A* sums;
    A* y;

    Memory(Division<A>& division, const Forward& of)
        : left(division.take(Products::left_size(kTileQueries, of.width_))),
          k_right(division.take(Products::right_size(of.width_, kTileKeys))),
          v_right(division.take(Products::right_size(kTileKeys, of.out_width_))),
          scores(division.take(kTileQueries * kTileKeys)),
          weights(division.take(kTileQueries * kTileKeys)),
          z(division.take(kTileKeys)),
          largest(division.take(kUnitQueries)),
          sums(division.take(kUnitQueries)),
          y(division.take(kUnitQueries * of.y_stride_)) {}
  };

  // The queries from `first` to `end` of a head.
  void queries(int64_t head, int64_t first, int64_t end, const Memory& memory) const {
    const Matrix<T> q = head_of<T>(q_, head);
    const Matrix<T> k = head_of<T>(k_, head);
    const Matrix<T> v = head_of<T>(v_, head);
    if (keys_ == 0) std::fill_n(memory.y, (end - first) * y_stride_, A{0});
    std::fill_n(memory.sums, end - first, A{0});
    std::fill_n(memory.largest, end - first, kNone);
    for (int64_t key = 0; key < keys_; key += kTileKeys) {
      const int64_t keys = scores_.visible(end, key, std::min(kTileKeys, keys_ - key));
      if (keys == 0) break;
      const auto k_right =
          Products::right(k.block(key, 0, keys, width_).transposed(), memory.k_right);
      const auto v_right = Products::right(v.block(key, 0, keys, out_width_), memory.v_right);
      for (int64_t query = first; query < end; query += kTileQueries) {
        const int64_t rows = std::min(kTileQueries, end - query);
        const int64_t used = scores_.visible(query + rows, key, keys);
        if (used == 0) continue;
        const auto left = Products::left(q.block(query, 0, rows, width_), memory.left);
        Products::multiply(memory.scores, kTileKeys, rows, used, left, k_right, false);
        for (int64_t i = query; i < query + rows; ++i)
          add_row(memory, i - first, memory.scores + (i - query) * kTileKeys,
                  padded(used, kChannelBlock), {head, i, key, scores_.visible(i + 1, key, used)});
        Products::multiply(memory.y + (query - first) * y_stride_, y_stride_, rows, out_width_,
                           Products::weights(memory.scores, rows, used, memory.weights), v_right,
                           key > 0);
      }
    }
    const Matrix<T> y = head_of<T>(y_, head);
    A* const logsumexp = logsumexp_.data<A>() + head * queries_;
    for (int64_t i = first; i < end; ++i) {
      const A sum = memory.sums[i - first];
      write_row(y.at(i, 0), memory.y + (i - first) * y_stride_, sum == 0 ? A{0} : 1 / sum,
                out_width_);
      logsumexp[i] = sum == 0 ? -kNone : memory.largest[i - first] + std::log(sum);
    }
  }

  // Makes weights of a row's scores s, and adds them to the sums of query `row` of the unit.
  void add_row(const Memory& memory, int64_t row, A* s, int64_t end, const RowPlace& place) const {
    const A scale = scores_.finish(s, place);
    const A before = memory.largest[row];
    const A largest = std::max(before, scale * largest_of(s, place.keys, end));
    memory.largest[row] = largest;
    // Otherwise -∞ - -∞ would be NaN.
    const A shift = largest == kNone ? A{0} : largest;
    const A sum = exponentials(s, scale, shift, place.keys, end);
    if (scores_.drops()) {
      scores_.draw(memory.z, place);
      multiply_rows(s, memory.z, place.keys);
    }
    if (place.key == 0) {
      memory.sums[row] = sum;
      return;
    }
    const A factor = fast_exp(before - shift);
    memory.sums[row] = memory.sums[row] * factor + sum;
    if (factor != 1) multiply_row(memory.y + row * y_stride_, factor, out_width_);
  }

  const Tensor& y_;
  const Tensor& logsumexp_;
  const Tensor& q_;
  const Tensor& k_;
  const Tensor& v_;
  const Scores<A>& scores_;
  int64_t queries_;
  int64_t keys_;
  int64_t width_;
  int64_t out_width_;
  int64_t y_stride_;
};

void attention_cpu(Stream stream, const Tensor& y, const Tensor& logsumexp, const Tensor& q,
                   const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& state,
                   const AttentionRule& rule) {
  ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && logsumexp.is_contiguous());
  if (widens(q))
    return narrow_into(y, [&](const Tensor& wide) {
      attention_cpu(stream, wide, logsumexp, widen(q), widen(k), widen(v), mask, state, rule);
    });
  visit_tiles(q, [&]<class T>() {
    const Scores<Accumulator<T>> scores(mask, state, q.size(2), k.size(2), rule);
    Forward<T>(y, logsumexp, q, k, v, scores).run(stream);
  });
}

REGISTER_KERNEL(attention, CPU, Native, attention_cpu);

}  // namespace
}  // namespace ringgrad::cpu
