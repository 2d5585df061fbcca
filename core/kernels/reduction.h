// The arithmetic of a reducing collective, for one dtype and one ReduceOp. These kernels work on
// memory that belongs to no tensor, such as a message or a segment that ranks share.
//
// They are functions of untyped pointers, chosen once per collective. A template of every algorithm
// for every dtype and operation would say nothing more, and would compile for minutes. Like all
// kernels of the CPU they are compiled for the machine's instructions (isa.h). They combine
// elements independently, so all instruction sets give the same bits.
//
// 16-bit floats are summed in float32 and rounded once, at the end. So partial results have a type
// of their own, `wide`: float for the 16-bit types, else the dtype itself. Min and max give NaN if
// any element is NaN. An average is the sum times 1/ranks (int64: the quotient, rounded towards
// zero). Sums and products of integers wrap around.
//
// Floating-point addition is not associative. Ranks hold the same bits only if each element is
// added up in one order. Every algorithm ensures this: one rank adds an element for all, or all
// ranks add in the order of ranks.
#pragma once

#include <cstddef>

#include "ringgrad/core/dtype.h"

namespace ringgrad {

enum class ReduceOp : uint8_t { Sum, Average, Min, Max, Product, BitAnd, BitOr, BitXor };
const char* name(ReduceOp op);  // "average"

struct ReduceFunctions {
  size_t item_bytes;  // size of an element
  size_t wide_bytes;  // size of a partial result

  // wide[n] = own[n] (op) incoming[n]. The incoming numbers are elements in combine_items and
  // partial results in combine_wide. `wide` may be `own` if both have the same type. Partial
  // results are combined in a fixed order, so all of these are deterministic.
  void (*combine_items)(void* wide, const void* own, const void* incoming, size_t n);
  void (*combine_wide)(void* wide, const void* own, const void* incoming, size_t n);

  // result[n] = the group's result from the combination of all ranks' elements. `result` may be
  // `wide`.
  void (*finish)(void* result, const void* wide, size_t n, int ranks);

  // -- for whoever has all ranks' elements; null in a program without core/cpu/rank_reduction.cpp
  // --

  // For elements [begin, end), in the order of ranks: wide[end - begin] = inputs[0] (op) inputs[1]
  // (op) ….
  void (*combine_all)(void* wide, const void* const* inputs, int ranks, size_t begin,
                      size_t end) = nullptr;

  // The same operation on partial results; for an average it is the sum.
  const ReduceFunctions* on_wide = nullptr;

  // For elements [begin, end), in the order of ranks: results[·] = finish(inputs[0] (op) inputs[1]
  // (op) …). `results` may be `inputs`.
  void (*reduce_all)(void* const* results, int num_results, const void* const* inputs, int ranks,
                     size_t begin, size_t end) = nullptr;
};

// Throws DTypeError in the name of `operation` for averages of int32, uint8 and bool, and for
// bitwise operations on floating dtypes. Throws EnvironmentError as isa().
const ReduceFunctions& reduction(const char* operation, DType dtype, ReduceOp op);

// Returns the equivalent operation on false = 0 and true = 1: a sum becomes "any", a product "all".
ReduceOp on_bool(ReduceOp op);

// core/cpu/reduction.cpp calls this to put its functions in use. `find` returns nullptr if a dtype
// has no such operation. Those of core/cpu/rank_reduction.cpp, which are `of_ranks`, replace them.
// Returns true.
using FindReduction = const ReduceFunctions* (*)(DType dtype, ReduceOp op);
bool register_reductions(FindReduction find, bool of_ranks = false);

}  // namespace ringgrad
