// What a reducing collective does with elements, for one dtype and one ReduceOp: kernels on memory
// that is no tensor's, such as a message or a segment that ranks share.
//
// Functions of untyped pointers, chosen once per collective: a template of every algorithm for
// every dtype and operation would say nothing more, and compile for minutes. Like all kernels of
// the CPU they are compiled for the machine's instructions (isa.h), but they add one element beside
// the other: the bits are the same for all.
//
// 16-bit floats are summed in float32 and rounded once, at the end. Partial results therefore have
// a type of their own, `wide`: float for the 16-bit types, else the dtype itself. Min and max hand
// NaN on, wherever it stands. An average is the sum times 1/ranks (int64: the quotient, rounded
// towards zero). Sums and products of integers wrap around.
//
// Floating-point addition is not associative, so ranks hold the same bits only where each element
// is added up in one order. Every algorithm sees to that: one rank adds an element for all, or all
// add in the order of ranks.
#pragma once

#include <cstddef>

#include "ringgrad/core/dtype.h"

namespace ringgrad {

enum class ReduceOp : uint8_t { Sum, Average, Min, Max, Product, BitAnd, BitOr, BitXor };
const char* name(ReduceOp op);  // "average"

struct ReduceFunctions {
  size_t item_bytes;  // of an element
  size_t wide_bytes;  // of a partial result

  // wide[n] = own[n] (op) incoming[n], the incoming ones being elements or partial results. `wide`
  // may be `own` where both have the same type. Partial results are combined in a fixed order, so
  // all of these are deterministic.
  void (*combine_items)(void* wide, const void* own, const void* incoming, size_t n);
  void (*combine_wide)(void* wide, const void* own, const void* incoming, size_t n);

  // result[n] = what the group returns for the combination of all ranks' elements. `result` may be
  // `wide`.
  void (*finish)(void* result, const void* wide, size_t n, int ranks);

  // Elements [begin, end): wide[end - begin] = inputs[0] (op) inputs[1] (op) …, in the order of
  // ranks.
  void (*combine_all)(void* wide, const void* const* inputs, int ranks, size_t begin, size_t end);

  // The same operation on partial results: a sum where this is an average.
  const ReduceFunctions* on_wide;

  // Elements [begin, end): results[·] = finish(inputs[0] (op) inputs[1] (op) …), in the order of
  // ranks. `results` may be `inputs`.
  void (*reduce_all)(void* const* results, int num_results, const void* const* inputs, int ranks,
                     size_t begin, size_t end);
};

// Throws DTypeError in the name of `operation` for averages of int32, uint8 and bool, and bits of
// floating dtypes; EnvironmentError as isa().
const ReduceFunctions& reduction(const char* operation, DType dtype, ReduceOp op);

// The same operation where false is 0 and true is 1: a sum is "any", a product "all".
ReduceOp on_bool(ReduceOp op);

// For core/cpu/reduction.cpp: these are in use from now on. nullptr where a dtype has no such
// operation. Returns true.
using FindReduction = const ReduceFunctions* (*)(DType dtype, ReduceOp op);
bool register_reductions(FindReduction find);

}  // namespace ringgrad
