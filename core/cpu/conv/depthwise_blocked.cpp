// Rows of a block of channels are copied as float with zeros around them. So loops over a window's
// taps need no border case, and a bfloat16 number is widened once. The copy stays in the cache: an
// image is read once and written once. One file, because forward and both gradients walk the same
// copy.
#include "ringgrad/core/cpu/conv/depthwise_blocked.h"

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {
namespace {

using cpu::ConvShape;
using cpu::ThreadWorkspaces;
using cpu::Workspace;

constexpr int64_t kBlock = kChannelBlock;
// The numbers of a copy: half of a second-level cache of 512 KiB.
constexpr int64_t kCopied = 1 << 16;

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -cpu::ceil_div(-a, b); }

// One axis of the outputs (y, or dx) and of the images from which they are computed. Output i uses
// the inputs first(i) to last(i), of which some lie outside.
struct Reach {
  int64_t outputs;
  int64_t inputs;
  int64_t taps;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
  bool forward;

  int64_t first(int64_t i) const {
    return forward ? i * stride - padding : floor_div(i + padding - (taps - 1) * dilation, stride);
  }
  int64_t last(int64_t i) const {
    return forward ? first(i) + (taps - 1) * dilation : floor_div(i + padding, stride);
  }
  // Outputs that use the same taps are this far apart.
  int64_t phases() const { return forward ? 1 : stride; }
  // The inputs of two such outputs are this far apart.
  int64_t step() const { return forward ? stride : 1; }
  // Sets `input` to the input of output i at this tap. Returns false if the tap skips this output.
  bool sees(int64_t i, int64_t tap, int64_t& input) const {
    if (forward) return input = i * stride - padding + tap * dilation, true;
    const int64_t place = i + padding - tap * dilation;
    input = floor_div(place, stride);
    return place == input * stride;
  }
};

struct Axes {
  Reach rows;
  Reach columns;
  Axes(const ConvShape& s, bool forward)
      : rows{forward ? s.p : s.h, forward ? s.h : s.p, s.r,    s.stride.h,
             s.padding.h,         s.dilation.h,        forward},
        columns{forward ? s.q : s.w, forward ? s.w : s.q, s.s,    s.stride.w,
                s.padding.w,         s.dilation.w,        forward} {}
};

// Some rows of outputs, and the copy of their inputs.
struct Window {
  const Axes& axes;
  // `strip` is the largest number of output rows; strips are whole phases.
  int64_t left;
  int64_t width;
  int64_t strip;
  int64_t strips;

  explicit Window(const Axes& axes)
      : axes(axes),
        left(axes.columns.first(0)),
        width(axes.columns.last(axes.columns.outputs - 1) - left + 1),
        strip(axes.rows.outputs) {
    const int64_t phases = axes.rows.phases();
    for (int64_t parts = 2; strip > phases && size() > kCopied; parts *= 2)
      strip = cpu::ceil_div(axes.rows.outputs, parts * phases) * phases;
    strips = cpu::ceil_div(axes.rows.outputs, strip);
  }
  int64_t begin(int64_t i) const { return i * strip; }
  int64_t rows(int64_t i) const { return std::min(axes.rows.outputs - begin(i), strip); }
  int64_t pitch() const { return width * kBlock; }
  int64_t size() const { return (axes.rows.last(strip - 1) - axes.rows.first(0) + 1) * pitch(); }

  // Copies the inputs of strip i from a plane of the image. REQUIRES: `to` is zeros, or was filled
  // by this function.
  template <class T>
  void copy(const T* plane, int64_t i, float* to) const {
    const int64_t first = std::max<int64_t>(0, left);
    const int64_t last = std::min(axes.columns.inputs, left + width);
    const int64_t bottom = axes.rows.last(begin(i) + rows(i) - 1);
    for (int64_t row = axes.rows.first(begin(i)); row <= bottom; ++row, to += pitch()) {
      if (row < 0 || row >= axes.rows.inputs || first >= last) {
        if (strips > 1) std::fill_n(to, pitch(), 0.0f);
        continue;
      }
      const T* const from = plane + row * axes.columns.inputs * kBlock;
      float* const inside = to - left * kBlock;
      for (int64_t j = first * kBlock; j < last * kBlock; j += kLanes)
        store(inside + j, load(from + j));
    }
  }
};

constexpr int kInRun = 3;
constexpr int kMostInTile = 8;

// The taps of the outputs (row + i phases, column + j phases): runs of three whose inputs are
// neighbours, and single taps, from place `first` of all taps on. A row's `outputs` are computed in
// `tiles` tiles of almost equal size: 9 outputs are 5 and 4.
struct Phase {
  int64_t row;
  int64_t column;
  int64_t first;
  int64_t runs;
  int64_t singles;
  int64_t outputs;
  int64_t tiles;
  int64_t in_tile;
};

// All taps by phases, some of which may have no outputs. Within a phase they are in the order of
// their inputs.
class Taps {
 public:
  Taps(Stream stream, const Window& window)
      : window_(window),
        count_(window.axes.rows.taps * window.axes.columns.taps),
        phases_(stream, window.axes.rows.phases() * window.axes.columns.phases()),
        offsets_(stream, count_),
        order_(stream, count_) {
    const auto& [rows, columns] = window.axes;
    int64_t filled = 0;
    for (int64_t i = 0; i < rows.phases(); ++i)
      for (int64_t j = 0; j < columns.phases(); ++j) {
        Phase& phase = phases_[phase_count_++];
        const int64_t of_runs = has_runs() ? columns.taps / kInRun * kInRun : 0;
        const int64_t first = filled;
        const int64_t singles = add(i, j, 0, of_runs, first);
        filled = add(i, j, of_runs, columns.taps, singles);
        const int64_t outputs = cpu::ceil_div(columns.outputs - j, columns.phases());
        const int64_t tiles = cpu::ceil_div(outputs, kMostInTile);
        phase = {i,
                 j,
                 first,
                 (singles - first) / kInRun,
                 filled - singles,
                 outputs,
                 tiles,
                 outputs / std::max<int64_t>(1, tiles)};
      }
  }
  // Loops over runs exist for steps of 1 and 2.
  bool has_runs() const {
    const Reach& columns = window_.axes.columns;
    return columns.dilation == 1 && columns.phases() == 1 && columns.step() <= 2;
  }
  const Phase* begin() const { return phases_.data(); }
  const Phase* end() const { return phases_.data() + phase_count_; }
  int64_t count() const { return count_; }
  // The position of each tap's input for the first output of a strip.
  const int64_t* offsets() const { return offsets_.data(); }
  // Returns the tap [r, s] as one number.
  int64_t tap(int64_t place) const { return order_[place]; }

 private:
  // Adds the taps [begin, end) of each row of the window, in the order of their inputs.
  int64_t add(int64_t row, int64_t column, int64_t begin, int64_t end, int64_t place) {
    const auto& [rows, columns] = window_.axes;
    int64_t i = 0;
    int64_t j = 0;
    for (int64_t r = 0; r < rows.taps; ++r)
      for (int64_t at = begin; at < end; ++at) {
        const int64_t s = columns.forward ? at : columns.taps - 1 - at;
        if (!rows.sees(row, r, i) || !columns.sees(column, s, j)) continue;
        offsets_[place] = (i - rows.first(0)) * window_.pitch() + (j - window_.left) * kBlock;
        order_[place++] = r * columns.taps + s;
      }
    return place;
  }

  const Window& window_;
  int64_t count_;
  int64_t phase_count_ = 0;
  Workspace<Phase> phases_;
  Workspace<int64_t> offsets_;
  Workspace<int64_t> order_;
};

// Packs w [C, R, S] as [⌈C/16⌉, taps in their order, 16].
void pack(int64_t channels, const Taps& taps, const float* w, float* packed) {
  for (int64_t first = 0; first < channels; first += kBlock)
    for (int64_t place = 0; place < taps.count(); ++place, packed += kBlock)
      for (int64_t lane = 0; lane < kBlock; ++lane) {
        const int64_t channel = first + lane;
        packed[lane] = channel < channels ? w[channel * taps.count() + taps.tap(place)] : 0.0f;
      }
}

// A row's outputs of one phase, `to_step` numbers apart, and their inputs, `step` apart.
template <class T>
struct Row {
  const Phase& phase;
  const int64_t* offsets;  // offsets and weights of the phase's taps
  const float* weights;
  const float* from;
  int64_t step;
  int64_t to_step;
  bool streams;

  // Adds the products of `runs` runs to the sums. A vector of pixels is loaded once for all taps of
  // a run that use it. kStep is the distance between the outputs' pixels; 0 means `step` numbers,
  // for single taps.
  template <int kCount, int kStep, int kTaps>
  [[gnu::always_inline]] void add(Vector* sums, int64_t runs, const int64_t* offset,
                                  const float* weight, const float* seen) const {
    for (; runs > 0; --runs, offset += kTaps, weight += kTaps * kBlock) {
      Vector factors[kTaps];
      RINGGRAD_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) factors[tap] = in_register(load(weight + tap * kBlock));
      const float* const first = seen + *offset;
      if constexpr (kStep == 0) {
        RINGGRAD_UNROLL
        for (int i = 0; i < kCount; ++i) sums[i] += factors[0] * load(first + i * step);
      } else {
        _Pragma("GCC unroll 32") for (int i = 0; i < (kCount - 1) * kStep + kTaps; ++i) {
          const Vector pixels = in_register(load(first + i * kBlock));
          RINGGRAD_UNROLL
          for (int tap = 0; tap < kTaps; ++tap)
            if (i >= tap && (i - tap) % kStep == 0 && (i - tap) / kStep < kCount)
              sums[(i - tap) / kStep] += factors[tap] * pixels;
        }
      }
    }
  }

  template <int kCount, int kStep>
  [[gnu::noinline]] void tile(int64_t column, Vector start, const T* addend, T* to,
                              int64_t lane) const {
    Vector sums[kCount];
    RINGGRAD_UNROLL
    for (int i = 0; i < kCount; ++i) sums[i] = start;
    const float* const seen = from + column * step + lane;
    const int64_t in_runs = phase.runs * kInRun;
    if constexpr (kStep > 0)
      add<kCount, kStep, kInRun>(sums, phase.runs, offsets, weights + lane, seen);
    add<kCount, 0, 1>(sums, phase.singles, offsets + in_runs, weights + in_runs * kBlock + lane,
                      seen);
    const int64_t place = column * to_step + lane;
    RINGGRAD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const int64_t at = place + i * to_step;
      if (addend) sums[i] += load(addend + at);
      store_or_stream(to + at, sums[i], streams);
    }
  }
  template <int kStep>
  void run(Vector start, const T* addend, T* to, int64_t lane) const {
    int64_t more = phase.outputs - phase.tiles * phase.in_tile;  // tiles with one output more
    for (int64_t column = 0; column < phase.outputs;) {
      const int64_t count = phase.in_tile + (more > 0);
      if (count == 8)
        tile<8, kStep>(column, start, addend, to, lane);
      else if (count == 7)
        tile<7, kStep>(column, start, addend, to, lane);
      else if (count == 6)
        tile<6, kStep>(column, start, addend, to, lane);
      else if (count == 5)
        tile<5, kStep>(column, start, addend, to, lane);
      else if (count == 4)
        tile<4, kStep>(column, start, addend, to, lane);
      else if (count == 3)
        tile<3, kStep>(column, start, addend, to, lane);
      else if (count == 2)
        tile<2, kStep>(column, start, addend, to, lane);
      else
        tile<1, kStep>(column, start, addend, to, lane);
      column += count;
      --more;
    }
  }
};

// Computes both the convolution and the gradient of its images. A unit is a strip of one block of
// channels of one image.
template <class T>
void convolve_blocks(Stream stream, const ConvShape& shape, bool forward, const T* x,
                     const float* w, const float* bias, const T* addend, T* y) {
  const Axes axes(shape, forward);
  const auto& [rows, columns] = axes;
  if (rows.outputs == 0) return;  // the gradient of images of no height
  const Window window(axes);
  const Taps taps(stream, window);
  const int64_t blocks = channel_blocks(shape.groups);
  const int64_t strips = window.strips;
  const int64_t plane = rows.outputs * columns.outputs * kBlock;
  const int64_t input_plane = rows.inputs * columns.inputs * kBlock;
  const Workspace<float> packed(stream, blocks * (taps.count() + 1) * kBlock);
  float* const start = packed.data() + blocks * taps.count() * kBlock;
  pack(shape.groups, taps, w, packed.data());
  std::fill_n(start, blocks * kBlock, 0.0f);
  if (bias) std::copy_n(bias, shape.groups, start);
  const bool streams = should_stream(y, shape.n * blocks * plane) &&
                       (sizeof(T) == sizeof(float) || columns.phases() == 1);
  parallel_for(stream, shape.n * blocks * strips, cpu::grain(3 * window.size()),
               [&](int64_t first, int64_t last) {
                 const Workspace<float> copy(stream, window.size());
                 std::fill_n(copy.data(), window.size(), 0.0f);
                 for (int64_t unit = first; unit < last; ++unit) {
                   const int64_t image = unit / strips;
                   const int64_t block = image % blocks;
                   const int64_t strip = unit % strips;
                   window.copy(x + image * input_plane, strip, copy.data());
                   for (const Phase& phase : taps) {
                     Row<T> row{phase,
                                taps.offsets() + phase.first,
                                packed.data() + (block * taps.count() + phase.first) * kBlock,
                                copy.data(),
                                columns.step() * kBlock,
                                columns.phases() * kBlock,
                                streams};
                     for (int64_t i = phase.row; i < window.rows(strip); i += rows.phases()) {
                       const int64_t place =
                           image * plane +
                           ((window.begin(strip) + i) * columns.outputs + phase.column) * kBlock;
                       const T* const more = addend ? addend + place : nullptr;
                       for (int64_t lane = 0; lane < kBlock; lane += kLanes) {
                         const Vector from = load(start + block * kBlock + lane);
                         if (!taps.has_runs())
                           row.template run<0>(from, more, y + place, lane);
                         else if (columns.step() == 1)
                           row.template run<1>(from, more, y + place, lane);
                         else
                           row.template run<2>(from, more, y + place, lane);
                       }
                       row.from += rows.step() * window.pitch();
                     }
                   }
                 }
                 stream_fence();
               });
}

// Rows of dy, and their inputs in the copy of x.
template <class T>
struct Products {
  const float* from;
  const T* dy;
  int64_t rows;
  int64_t outputs;
  // distance between the inputs of a row and of the next; the same for outputs
  int64_t pitch;
  int64_t step;

  // sums[tap] += the products of outputs and inputs at that tap, for kRuns runs of three taps or
  // for kRuns single taps. kStep is as above.
  template <int kRuns, int kTaps, int kStep>
  [[gnu::noinline]] void add(const int64_t* offsets, int64_t lane, float* sums) const {
    constexpr int kTile = 4;
    Vector total[kRuns * kTaps];
    RINGGRAD_UNROLL
    for (int tap = 0; tap < kRuns * kTaps; ++tap) total[tap] = load(sums + tap * kBlock + lane);
    for (int64_t row = 0; row < rows; ++row) {
      const float* seen = from + row * pitch + lane;
      const T* grad = dy + row * outputs * kBlock + lane;
      int64_t i = 0;
      for (; i + kTile <= outputs; i += kTile, seen += kTile * step, grad += kTile * kBlock)
        add_tile<kTile, kRuns, kTaps, kStep>(total, offsets, seen, grad);
      for (; i < outputs; ++i, seen += step, grad += kBlock)
        add_tile<1, kRuns, kTaps, kStep>(total, offsets, seen, grad);
    }
    RINGGRAD_UNROLL
    for (int tap = 0; tap < kRuns * kTaps; ++tap) store(sums + tap * kBlock + lane, total[tap]);
  }

 private:
  template <int kOutputs, int kRuns, int kTaps, int kStep>
  [[gnu::always_inline]] void add_tile(Vector* total, const int64_t* offsets, const float* seen,
                                       const T* grad) const {
    Vector grads[kOutputs];
    RINGGRAD_UNROLL
    for (int i = 0; i < kOutputs; ++i) grads[i] = in_register(load(grad + i * kBlock));
    RINGGRAD_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      const float* const first = seen + offsets[run * kTaps];
      if constexpr (kStep == 0) {
        RINGGRAD_UNROLL
        for (int i = 0; i < kOutputs; ++i) total[run] += grads[i] * load(first + i * step);
      } else {
        RINGGRAD_UNROLL
        for (int i = 0; i < (kOutputs - 1) * kStep + kTaps; ++i) {
          const Vector pixels = in_register(load(first + i * kBlock));
          RINGGRAD_UNROLL
          for (int tap = 0; tap < kTaps; ++tap)
            if (i >= tap && (i - tap) % kStep == 0 && (i - tap) / kStep < kOutputs)
              total[run * kTaps + tap] += grads[(i - tap) / kStep] * pixels;
        }
      }
    }
  }
};

// The same for all taps of a window.
template <class T>
void add_products(const Products<T>& products, const Taps& taps, float* sums) {
  const Phase& all = *taps.begin();
  const bool twice = products.step == 2 * kBlock;
  for (int64_t lane = 0; lane < kBlock; lane += kLanes)
    for (int64_t done = 0; done < taps.count();) {
      const auto add = [&]<int kRuns, int kTaps, int kStep>() {
        products.template add<kRuns, kTaps, kStep>(taps.offsets() + done, lane,
                                                   sums + done * kBlock);
        done += kRuns * kTaps;
      };
      const int64_t runs = all.runs - done / kInRun;
      const int64_t rest = taps.count() - done;
      if (runs >= 3)
        twice ? add.template operator()<3, 3, 2>() : add.template operator()<3, 3, 1>();
      else if (runs > 0)
        twice ? add.template operator()<1, 3, 2>() : add.template operator()<1, 3, 1>();
      else
        rest >= 8 ? add.template operator()<8, 1, 0>() : add.template operator()<1, 1, 0>();
    }
}

}  // namespace

template <class T>
void depthwise_blocked(Stream stream, const ConvShape& shape, const T* x, const float* w,
                       const float* bias, T* y) {
  convolve_blocks<T>(stream, shape, true, x, w, bias, nullptr, y);
}

template <class T>
void depthwise_blocked_backward_input(Stream stream, const ConvShape& shape, const T* dy,
                                      const float* w, const T* addend, T* dx) {
  convolve_blocks<T>(stream, shape, false, dy, w, nullptr, addend, dx);
}

// Units are blocks of channels × parts of the images. Each has its own sums, which are added in
// order.
template <class T>
void depthwise_blocked_backward_weight(Stream stream, const ConvShape& shape, const T* x,
                                       const T* dy, float* dw) {
  constexpr int64_t kUnits = 64;
  const Axes axes(shape, true);
  const Window window(axes);
  const Taps taps(stream, window);
  const int64_t blocks = channel_blocks(shape.groups);
  const int64_t strips = window.strips;
  const int64_t count = shape.n * strips;
  const int64_t sums_size = taps.count() * kBlock;
  const int64_t parts = std::clamp<int64_t>(kUnits / blocks, 1, std::max<int64_t>(1, count));
  const Workspace<double> partial(stream, parts * blocks * sums_size);
  parallel_for(stream, blocks * parts, 1, [&](int64_t unit, int64_t) {
    const int64_t block = unit / parts;
    const int64_t part = unit % parts;
    double* const total = partial.data() + (part * blocks + block) * sums_size;
    const Workspace<float> copy(stream, window.size() + sums_size);
    float* const sums = copy.data() + window.size();
    std::fill_n(copy.data(), window.size() + sums_size, 0.0f);
    std::fill_n(total, sums_size, 0.0);
    const auto fold = [&] {
      for (int64_t i = 0; i < sums_size; ++i) total[i] += sums[i];
      std::fill_n(sums, sums_size, 0.0f);
    };
    int64_t terms = 0;
    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
      const int64_t image = i / strips * blocks + block;
      const int64_t strip = i % strips;
      const int64_t rows = window.rows(strip);
      if (terms + rows * shape.q > cpu::kMaxTerms) {
        fold();
        terms = 0;
      }
      terms += rows * shape.q;
      window.copy(x + image * shape.h * shape.w * kBlock, strip, copy.data());
      const T* const grad = dy + (image * shape.p + window.begin(strip)) * shape.q * kBlock;
      add_products(Products<T>{copy.data(), grad, rows, shape.q, shape.stride.h * window.pitch(),
                               shape.stride.w * kBlock},
                   taps, sums);
    }
    fold();
  });
  parallel_for(stream, blocks * taps.count(), cpu::grain(parts * kBlock),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t first = i / taps.count() * kBlock;
                   for (int64_t lane = 0; lane < std::min(kBlock, shape.groups - first); ++lane) {
                     double sum = 0;
                     for (int64_t part = 0; part < parts; ++part)
                       sum += partial[part * blocks * sums_size + i * kBlock + lane];
                     dw[(first + lane) * taps.count() + taps.tap(i % taps.count())] =
                         static_cast<float>(sum);
                   }
                 }
               });
}

#define INSTANTIATE(T)                                                                             \
  template void depthwise_blocked(Stream, const ConvShape&, const T*, const float*, const float*,  \
                                  T*);                                                             \
  template void depthwise_blocked_backward_input(Stream, const ConvShape&, const T*, const float*, \
                                                 const T*, T*);                                    \
  template void depthwise_blocked_backward_weight(Stream, const ConvShape&, const T*, const T*,    \
                                                  float*)
INSTANTIATE(float);
INSTANTIATE(bfloat16);

}  // namespace ringgrad::conv
