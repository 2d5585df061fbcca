// Backward of attention on the CPU. A unit is a part of a head's keys. For each tile of keys it
// walks over the queries, makes the weights again, and adds to dk and dv of these keys, and to dq
// of all queries. If there are few heads, each has several units with a dq of their own, which are
// added in the end. The shape alone decides that, so the sums do not depend on the number of
// threads.
#include "ringgrad/core/cpu/attention_rows.h"

namespace ringgrad::cpu {
namespace {

constexpr int64_t kUnits = 16;  // at least, if there are as many tiles of keys

struct Gradients {
  const Tensor& dq;
  const Tensor& dk;
  const Tensor& dv;
  const Tensor& dy;
};
struct Saved {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& y;
  const Tensor& logsumexp;
};

template <class T>
class Backward {
 public:
  using Products = TileProducts<T>;
  using A = typename Products::Sum;

  Backward(const Gradients& gradients, const Saved& saved, const Scores<A>& scores, A scale)
      : to_(gradients),
        from_(saved),
        scores_(scores),
        scale_(scale),
        queries_(saved.q.size(2)),
        keys_(saved.k.size(2)),
        width_(saved.q.size(3)),
        out_width_(saved.v.size(3)),
        stride_(padded(width_, conv::kPanel)),
        out_stride_(padded(out_width_, conv::kPanel)),
        dq_size_(padded(queries_, 4) * stride_) {}

  void run(Stream stream) const {
    const int64_t heads = from_.q.size(0) * from_.q.size(1);
    if (heads == 0) return;
    const int64_t tiles = std::max<int64_t>(1, ceil_div(keys_, kTileKeys));
    const int64_t part = ceil_div(tiles, std::clamp<int64_t>(kUnits / heads, 1, tiles));
    const int64_t parts = ceil_div(tiles, part);
    Division<A> count;
    Memory(count, *this);
    if (parts == 1) count.take(dq_size_);
    ThreadWorkspaces workspaces(stream, count.floats());
    const Workspace<A> dq(stream, parts == 1 ? 0 : heads * parts * dq_size_);
    parallel_for(stream, heads * parts, 1, [&](int64_t unit, int64_t end_unit) {
      const ThreadWorkspaces::Slice slice(workspaces);
      for (; unit < end_unit; ++unit) {
        Division<A> division(memory_of<A>(slice));
        const Memory memory(division, *this);
        A* const own_dq = parts == 1 ? division.take(dq_size_) : dq.data() + unit * dq_size_;
        const int64_t first = unit % parts * part * kTileKeys;
        keys(unit / parts, first, std::min(keys_, first + part * kTileKeys), own_dq, memory);
        if (parts == 1) write_dq(unit, 0, queries_, own_dq);
      }
    });
    if (parts > 1)
      parallel_for(stream, heads * queries_, grain(parts * stride_), [&](int64_t i, int64_t end) {
        for (; i < end; ++i) {
          const int64_t head = i / queries_;
          const int64_t query = i % queries_;
          A* const sum = dq.data() + head * parts * dq_size_ + query * stride_;
          for (int64_t other = 1; other < parts; ++other)
            add_row(sum, sum + other * dq_size_, width_);
          write_dq(head, query, query + 1, sum - query * stride_);
        }
      });
  }

 private:
  // A thread's.
  struct Memory {
    A* left;  // a tile's queries, and dy
    A* q_right;
    A* dy_right;
    A* k_turned;  // a tile's keys
    A* k_right;
    A* v_turned;
    A* scores;  // of a tile, then its weights; and their gradient
    A* slopes;
    A* weights;
    A* z;       // of a row
    A* shared;  // Σ dy y of each query of the head
    A* dk;      // of a tile's keys
    A* dv;

    Memory(Division<A>& division, const Backward& of)
        : left(
              division.take(Products::left_size(kTileQueries, std::max(of.width_, of.out_width_)))),
          q_right(division.take(Products::right_size(kTileQueries, of.width_))),
          dy_right(division.take(Products::right_size(kTileQueries, of.out_width_))),
          k_turned(division.take(Products::right_size(of.width_, kTileKeys))),
          k_right(division.take(Products::right_size(kTileKeys, of.width_))),
          v_turned(division.take(Products::right_size(of.out_width_, kTileKeys))),
          scores(division.take(kTileQueries * kTileKeys)),
          slopes(division.take(kTileQueries * kTileKeys)),
          weights(division.take(kTileQueries * kTileKeys)),
          z(division.take(kTileKeys)),
          shared(division.take(of.queries_)),
          dk(division.take(kTileKeys * of.stride_)),
          dv(division.take(kTileKeys * of.out_stride_)) {}
  };

  // The keys from `first` to `end` of a head.
  void keys(int64_t head, int64_t first, int64_t end, A* dq, const Memory& memory) const {
    const Matrix<T> k = head_of<T>(from_.k, head);
    const Matrix<T> v = head_of<T>(from_.v, head);
    const Matrix<T> y = head_of<T>(from_.y, head);
    const Matrix<T> dy = head_of<T>(to_.dy, head);
    const Matrix<T> dk = head_of<T>(to_.dk, head);
    const Matrix<T> dv = head_of<T>(to_.dv, head);
    // Then not all queries have a part in the first tile's product.
    const bool clears_dq = keys_ == 0 || (first > 0 && scores_.is_causal());
    if (clears_dq) std::fill_n(dq, dq_size_, A{0});
    for (int64_t i = 0; i < queries_; ++i)
      memory.shared[i] = sum_segment<A>(0, out_width_, [a = dy.at(i, 0), b = y.at(i, 0)](auto f) {
        return at<A>(a, f) * at<A>(b, f);
      });
    for (int64_t key = first; key < end; key += kTileKeys) {
      const int64_t count = std::min(kTileKeys, end - key);
      const Matrix<T> keys = k.block(key, 0, count, width_);
      Tile tile;
      tile.head = head;
      tile.first = first;
      tile.key = key;
      tile.keys = count;
      tile.k_turned = Products::right(keys.transposed(), memory.k_turned);
      tile.k = Products::right(keys, memory.k_right);
      tile.v_turned =
          Products::right(v.block(key, 0, count, out_width_).transposed(), memory.v_turned);
      const int64_t query = scores_.is_causal() ? key / kTileQueries * kTileQueries : 0;
      tile.clears_dq = clears_dq;
      tile.first_query = query;
      // Then not all keys have a part in the first product.
      tile.clears = scores_.visible(std::min(queries_, query + kTileQueries), key, count) < count ||
                    queries_ == 0;
      if (tile.clears) {
        std::fill_n(memory.dk, count * stride_, A{0});
        std::fill_n(memory.dv, count * out_stride_, A{0});
      }
      for (int64_t i = query; i < queries_; i += kTileQueries) add_tile(tile, i, dq, memory);
      for (int64_t j = 0; j < count; ++j) {
        write_row(dk.at(key + j, 0), memory.dk + j * stride_, scale_, width_);
        write_row(dv.at(key + j, 0), memory.dv + j * out_stride_, A{1}, out_width_);
      }
    }
  }

  // The keys of a tile.
  struct Tile {
    int64_t head;
    int64_t first;  // of the unit
    int64_t key;
    int64_t keys;
    int64_t first_query;
    bool clears;  // dk and dv: the first product does not overwrite them
    bool clears_dq;
    typename Products::Right k_turned;
    typename Products::Right k;
    typename Products::Right v_turned;
  };

  // Adds to the gradients what the queries from `query` on contribute.
  void add_tile(const Tile& tile, int64_t query, A* dq, const Memory& memory) const {
    const int64_t rows = std::min(kTileQueries, queries_ - query);
    const int64_t used = scores_.visible(query + rows, tile.key, tile.keys);
    if (used == 0) return;
    const Matrix<T> q = head_of<T>(from_.q, tile.head).block(query, 0, rows, width_);
    const Matrix<T> dy = head_of<T>(to_.dy, tile.head).block(query, 0, rows, out_width_);
    Products::multiply(memory.scores, kTileKeys, rows, used, Products::left(q, memory.left),
                       tile.k_turned, false);
    Products::multiply(memory.slopes, kTileKeys, rows, used, Products::left(dy, memory.left),
                       tile.v_turned, false);
    const A* const logsumexp = from_.logsumexp.data<A>() + tile.head * queries_;
    const int64_t end = padded(used, kChannelBlock);
    for (int64_t i = 0; i < rows; ++i) {
      A* const s = memory.scores + i * kTileKeys;
      A* const g = memory.slopes + i * kTileKeys;
      const RowPlace place = {tile.head, query + i, tile.key,
                              scores_.visible(query + i + 1, tile.key, used)};
      const RowOfQuery<A> row = {scores_.finish(s, place), logsumexp[query + i],
                                 memory.shared[query + i]};
      if (scores_.drops()) {
        scores_.draw(memory.z, place);
        slopes<true>(s, g, memory.z, row, place.keys, end);
      } else {
        slopes<false>(s, g, memory.z, row, place.keys, end);
      }
    }
    const bool adds = query > tile.first_query || tile.clears;
    Products::multiply(memory.dv, out_stride_, used, out_width_,
                       Products::turned_weights(memory.scores, rows, used, memory.weights),
                       Products::right(dy, memory.dy_right), adds);
    Products::multiply(memory.dk, stride_, used, width_,
                       Products::turned_weights(memory.slopes, rows, used, memory.weights),
                       Products::right(q, memory.q_right), adds);
    Products::multiply(dq + query * stride_, stride_, rows, width_,
                       Products::weights(memory.slopes, rows, used, memory.weights), tile.k,
                       tile.key > tile.first || tile.clears_dq);
  }

  void write_dq(int64_t head, int64_t first, int64_t end, A* dq) const {
    const Matrix<T> to = head_of<T>(to_.dq, head);
    for (int64_t i = first; i < end; ++i) write_row(to.at(i, 0), dq + i * stride_, scale_, width_);
  }

  const Gradients& to_;
  const Saved& from_;
  const Scores<A>& scores_;
  A scale_;
  int64_t queries_;
  int64_t keys_;
  int64_t width_;
  int64_t out_width_;
  int64_t stride_;
  int64_t out_stride_;
  int64_t dq_size_;
};

void attention_backward_cpu(Stream stream, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                            const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& y, const Tensor& logsumexp, const Tensor& mask,
                            const Tensor& state, const AttentionRule& rule) {
  if (widens(q))
    return narrow_into(dq, [&](const Tensor& wide_dq) {
      narrow_into(dk, [&](const Tensor& wide_dk) {
        narrow_into(dv, [&](const Tensor& wide_dv) {
          attention_backward_cpu(stream, wide_dq, wide_dk, wide_dv, widen(dy), widen(q), widen(k),
                                 widen(v), widen(y), logsumexp, mask, state, rule);
        });
      });
    });
  visit_tiles(q, [&]<class T>() {
    using A = Accumulator<T>;
    const Scores<A> scores(mask, state, q.size(2), k.size(2), rule);
    const Gradients gradients = {dq, dk, dv, dy};
    const Saved saved = {q, k, v, y, logsumexp};
    Backward<T>(gradients, saved, scores, static_cast<A>(rule.scale)).run(stream);
  });
}

REGISTER_KERNEL(attention_backward, CPU, Native, attention_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
